"""What is certain and what is not: forms of kernels that others ship, each with its faulty twin."""

import pytest
from ptx_snippets import ARM, INIT, kernel, wait

from mlagen.audit.ptx import audit_ptx


def told(body, **options):
    """Rules with their severities."""
    found = audit_ptx(kernel(body, **options)).findings
    return {(one.rule, one.severity) for one in found}


def errors(body, **options):
    return {rule for rule, severity in told(body, **options) if severity == "error"}


# Lanes part at an election and meet again: a size compared before decides in all of them.
ELECTED = """
    setp.ge.u32 %p1, %n, 4;
    elect.sync %r1|%p2, -1;
    @!%p2 bra MEET;
    st.shared.b32 [%at+4096], %r1;
MEET:
    elect.sync %r1|%p3, -1;
    not.pred %p3, %p3;
    or.pred %p4, %p1, %p3;
"""


@pytest.mark.parametrize(("skip", "rules"), [("    @%p1 bra END;\n", set()), ("", {"deadlock"})])
def test_a_comparison_outlives_a_branch_by_lanes(skip, rules):
    """Thread 0 feeds where the others wait: `%p4` is no datum."""
    body = INIT + ELECTED + f"    @%p4 bra FED;\n{ARM}\nFED:\n"
    assert errors(body + skip + wait(1)) == rules


# Three warps read their role from a byte of a word that a fourth stored.
ROLES = """
    st.shared.b32 [%base+4096], {word};
    bar.sync 0;
    shr.u32 %r1, %t, 5;
    add.u32 %r2, %base, %r1;
    ld.shared.b8 %r3, [%r2+4096];
    setp.eq.u32 %p1, %r3, 1;
    @%p1 bra FEED;
    mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar], 0;
"""
WAITS = "    bra END;\nFEED:\n    elect.sync %r4|%p2, -1;\n"
FEEDS = ARM.replace("%one", "%p2")


@pytest.mark.parametrize(
    ("word", "rules"),
    [(0x02000001, set()), (0x02000000, {"deadlock"}), (0x02010001, {"mbarrier-arrivals"})],
)
def test_a_role_is_a_byte_of_a_word(word, rules):
    body = INIT + ROLES.format(word=word) + wait(1) + WAITS + FEEDS + wait(2)
    assert errors(body) & {"deadlock", "mbarrier-arrivals"} == rules


@pytest.mark.parametrize(("value", "severity"), [("7", "letter"), ("%t", "error")])
def test_all_threads_store_one_number(value, severity):
    body = f"    bar.warp.sync 0xffffffff;\n    st.shared.b32 [%base], {value};\n"
    assert told(body) == {("smem-waw", severity)}


REGISTERS = """
    setp.lt.u32 %p1, %t, 64;
    @%p1 bra LOW;
    setmaxnreg.dec.sync.aligned.u32 40;
    bra END;
LOW:
    setmaxnreg.dec.sync.aligned.u32 {low};
"""


@pytest.mark.parametrize(("low", "severity"), [(40, "letter"), (48, "error")])
def test_the_same_registers_at_another_place(low, severity):
    assert told(REGISTERS.format(low=low)) == {("setmaxnreg-diverged", severity)}


# Thread 0 asks for a tile before the loop over the range that a record in memory tells.
RANGE = """
    ld.global.nc.v2.u32 {{%r1, %r2}}, [%g];
    {arm}
    setp.ge.s32 %p1, %r1, %r2;
    @%p1 bra END;
    mov.u32 %parity, 0;
ROUND:
W1: mbarrier.try_wait.parity.shared::cta.b64 %wait, [%bar], %parity;
    @!%wait bra W1;
    xor.b32 %parity, %parity, 1;
    ld.shared.b32 %r3, [%at];
    st.global.b32 [%g], %r3;
    bar.sync 0;
    add.s32 %r1, %r1, 1;
    setp.lt.s32 %p2, %r1, %r2;
    @!%p2 bra END;
    {again}
    bra ROUND;
"""


def test_a_range_in_memory_that_is_empty_is_a_guess():
    right = RANGE.format(arm=ARM, again=ARM)
    found = audit_ptx(kernel(INIT + right)).findings
    assert {(one.rule, one.severity) for one in found} == {("copy-unwaited", "unproved")}
    assert "memory holds a range that is empty" in found[0].message
    # Of a range with something in it: the copy comes before the others have read.
    early = right.replace("    bar.sync 0;\n", "").replace(
        "%r1, 1;\n    setp.lt", "%r1, 1;\n    setp.lt"
    )
    assert "smem-war" in errors(INIT + early)
    assert "copy-unwaited" in errors(INIT + right.replace("@!%p2 bra END", "@!%p2 bra LAST")
                                     + f"LAST:\n{ARM}")  # fmt: skip


def test_a_range_that_is_short_is_not_empty():
    """What an unrolled loop leaves out: four rounds or fewer are work."""
    short = RANGE.format(arm=ARM, again=ARM).replace(
        "setp.ge.s32 %p1, %r1, %r2", "add.s32 %r4, %r1, 4;\n    setp.ge.s32 %p1, %r4, %r2"
    )
    assert errors(INIT + short) == {"copy-unwaited"}


def test_a_range_that_parameters_tell_is_no_guess():
    body = RANGE.replace(
        "ld.global.nc.v2.u32 {{%r1, %r2}}, [%g];", "mov.u32 %r1, 0;\nmov.u32 %r2, %n;"
    )
    assert errors(INIT + body.format(arm=ARM, again=ARM)) == {"copy-unwaited"}


# A tile's weights are loaded, and used where it has rows; the place is given back in any case.
WEIGHTS = """
    ld.shared.b32 %r3, [%at];
    setp.eq.u32 %p1, %n, {n};
    @%p1 bra NONE;
    st.global.b32 [%g], %r3;
NONE:
    bar.sync 0;
    {used}
"""


@pytest.mark.parametrize(
    ("used", "rules"), [("", set()), ("st.global.b32 [%g], %r3;", {"smem-load-release"})]
)
def test_a_load_that_is_not_used_on_this_path(used, rules):
    body = INIT + WEIGHTS.format(n=0, used=f"{ARM}{wait(1)}{used}")
    assert errors(body) == rules


@pytest.mark.parametrize(
    ("copy", "severity"),
    [
        ("    cp.async.ca.shared.global [%at], [%g], 4;\n", "letter"),
        (INIT + ARM, "error"),
    ],
)
def test_the_end_of_a_block_with_a_copy_on_its_way(copy, severity):
    assert told(copy) == {("copy-unwaited", severity)}


# One of three ways by a table: nothing, a wait, what it waits for.
TABLE = """
    {index}
    brx.idx %r1, WAYS;
WAYS: .branchtargets END, WAITS, FEED;
FEED:
    elect.sync %r4|%p2, -1;
{feeds}
    bra END;
WAITS:
{waits}
"""
INDEX = {
    "by lane": "shr.u32 %r1, %t, 5;\n    min.u32 %r1, %r1, 2;\n    sub.u32 %r1, 2, %r1;",
    "by size": "and.b32 %r1, %n, 1;\n    setp.lt.u32 %p1, %t, 32;\n    @%p1 mov.u32 %r1, 2;",
    "by data": "ld.global.u32 %r1, [%g];\n    and.b32 %r1, %r1, 1;\n    setp.lt.u32 %p1, %t, 32;\n"
    "    @%p1 mov.u32 %r1, 2;",
}


@pytest.mark.parametrize(("fed", "rules"), [(FEEDS + wait(3), set()), ("", {"deadlock"})])
@pytest.mark.parametrize("index", INDEX)
def test_a_branch_by_a_table(index, fed, rules):
    """Warp 0 feeds, and others wait, or not: a size decides for all of them."""
    body = TABLE.format(index=INDEX[index], feeds=fed, waits=wait(1))
    assert errors(INIT + body) == rules
