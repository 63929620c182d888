"""Warps part and meet, exit, and are counted."""

from running import kernel, run


def test_every_warp_of_every_block_runs():
    ran = run(kernel("bra L; L: ret;"), grid=(2, 1, 1), block=(64, 1, 1))
    assert ran.ended and not ran.findings
    assert ran.executed == 2 * 2 * 2 and ran.counts["ret;"] == 4


def test_trap_names_its_line():
    ran = run(kernel("trap; ret;"))
    assert (ran.fault, ran.fault_text) == ("FAULT_TRAP", "trap;")
