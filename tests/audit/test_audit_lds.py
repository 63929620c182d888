"""Order on LDS, barriers, bounds and bank phases: small kernels, right and broken by one edit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from binary.gfx950_assembler import assemble

from mlagen.audit.gfx950.findings import RULES
from mlagen.audit.gfx950.lds import LdsOptions, LdsReport, check_lds
from mlagen.audit.launch import KnownLaunch
from mlagen.binary import load_code_object
from mlagen.errors import ConfigError

WAVES = 4
# v1: 16 bytes of each thread's own, v2: the same of the thread two waves on.
ADDRESSES = """
  v_lshlrev_b32 v1, 4, v0
  v_add_u32 v2, 0x800, v1
  v_and_b32 v2, 0xfff, v2
"""
EXCHANGE = f"""{ADDRESSES}
  ds_write_b128 v1, v[4:7]
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b128 v[8:11], v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_write_b128 v1, v[8:11]
  s_endpgm
"""
# A ring of two buffers: each wave copies 1 KiB, all read what another wave copied.
RING = f"""{ADDRESSES}
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s8, s[0:1], 0x10
  v_readfirstlane_b32 s9, v0
  s_lshl_b32 s9, s9, 4
  s_mov_b32 s10, 0
  s_mov_b32 s11, 0
  s_waitcnt lgkmcnt(0)
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc1 L_end
  s_mov_b32 m0, s9
  buffer_load_dwordx4 v1, s[4:7], 0 offen lds
L_loop:
  s_xor_b32 s11, s11, 0x1000
  s_add_u32 m0, s9, s11
  buffer_load_dwordx4 v1, s[4:7], 0 offen lds
  s_waitcnt vmcnt(1)
  s_barrier
  s_xor_b32 s12, s11, 0x1000
  v_add_u32 v3, s12, v2
  ds_read_b128 v[8:11], v3
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_add_u32 s10, s10, 1
  s_cmp_lt_u32 s10, s8
  s_cbranch_scc1 L_loop
L_end:
  s_endpgm
"""


def audit(body: str, lds: int = 8192, options: LdsOptions | None = None) -> LdsReport:
    return check_lds(load_code_object(assemble(body, lds=lds)).kernel(), WAVES, options)


def rules(report: LdsReport) -> set[str]:
    return {finding.rule for finding in report.findings}


def without(body: str, line: str, number: int = 0) -> str:
    """The body without the `number`th line that reads so."""
    lines = body.split("\n")
    at = [i for i, text in enumerate(lines) if text.strip() == line][number]
    return "\n".join(lines[:at] + lines[at + 1 :])


@pytest.mark.parametrize("body", [EXCHANGE, RING], ids=["exchange", "ring"])
def test_a_right_kernel_has_no_finding(body: str) -> None:
    report = audit(body)
    assert report.findings == ()
    assert report.unchecked == ()
    assert report.blocks[0] == report.blocks[1]


@pytest.mark.parametrize(
    ("body", "line", "number", "rule"),
    [
        (EXCHANGE, "s_barrier", 0, "lds-raw"),
        (EXCHANGE, "s_waitcnt lgkmcnt(0)", 0, "lds-raw"),
        (EXCHANGE, "s_barrier", 1, "lds-war"),
        (EXCHANGE, "s_waitcnt lgkmcnt(0)", 1, "lds-war"),
        (RING, "s_waitcnt vmcnt(1)", 0, "lds-raw"),
        (RING, "s_barrier", 0, "lds-raw"),
        (RING, "s_barrier", 1, "lds-war"),
        (RING, "s_waitcnt lgkmcnt(0)", 1, "lds-war"),
    ],
)
def test_one_missing_line_is_found(body: str, line: str, number: int, rule: str) -> None:
    report = audit(without(body, line, number))
    assert rule in rules(report)
    assert rules(report) <= set(RULES)


def test_a_looser_count_is_found() -> None:
    report = audit(RING.replace("vmcnt(1)", "vmcnt(2)"))
    assert "lds-raw" in rules(report)


def test_a_read_before_the_barrier_that_is_waited_for_after_it_is_an_error_unless_it_comes_late():
    """The barrier does not wait for the read. 128 cycles of products before the copy, on every way
    from the barrier, are more than reads in flight take: a doubt about hardware, no more."""
    late = without(RING, "s_waitcnt lgkmcnt(0)", 1)
    product = "  v_mfma_f32_32x32x16_bf16 v[16:31], v[12:15], v[12:15], 0\n"
    for products, severity in ((0, "error"), (3, "error"), (4, "letter")):
        body = late.replace("L_loop:\n", "L_loop:\n" + products * product)
        found = [f for f in audit(body).findings if f.rule == "lds-war"]
        assert {f.severity for f in found} == {severity}
        assert all("before barrier" in f.needs for f in found)
    same = [f for f in audit(without(RING, "s_barrier", 1)).findings if f.rule == "lds-war"]
    assert any(f.severity == "error" for f in same)


def test_own_copy_read_without_a_wait() -> None:
    body = f"""{ADDRESSES}
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_readfirstlane_b32 s9, v0
  s_lshl_b32 m0, s9, 4
  s_waitcnt lgkmcnt(0)
  buffer_load_dwordx4 v1, s[4:7], 0 offen lds
  WAIT
  ds_read_b128 v[8:11], v1
  s_waitcnt lgkmcnt(0)
  s_endpgm
"""
    assert audit(body.replace("WAIT", "s_waitcnt vmcnt(0)")).findings == ()
    (finding,) = audit(body.replace("WAIT", "s_nop 0")).findings
    assert finding.rule == "lds-raw"
    assert finding.needs == "vmcnt(0) before it"


def test_waves_that_pass_different_numbers_of_barriers() -> None:
    body = """
  v_readfirstlane_b32 s4, v0
  s_cmp_lt_u32 s4, 128
  s_cbranch_scc1 L_end
  s_barrier
L_end:
  ds_write_b32 v0, v0
  s_endpgm
"""
    report = audit(body)
    assert "barrier-unequal" in rules(report)
    assert {(b.waves, b.barriers) for b in report.barriers} == {((0, 1), 0), ((2, 3), 1)}


def test_staggered_waves_with_equal_totals_are_right() -> None:
    """Waves 2 and 3 are one barrier behind in a loop of two barriers, and catch up at its end."""
    body = """
  v_readfirstlane_b32 s4, v0
  s_load_dword s5, s[0:1], 0x0
  s_mov_b32 s6, 0
  s_waitcnt lgkmcnt(0)
  s_cmp_lt_u32 s4, 128
  s_cbranch_scc1 L_loop
  s_barrier
L_loop:
  s_barrier
  s_barrier
  s_add_u32 s6, s6, 1
  s_cmp_lt_u32 s6, s5
  s_cbranch_scc1 L_loop
  s_cmp_lt_u32 s4, 128
  s_cbranch_scc0 L_end
  s_barrier
L_end:
  s_endpgm
"""
    report = audit(body)
    assert report.findings == ()
    assert len({b.barriers for b in report.barriers}) > 2  # several loop counts
    assert all(b.waves == (0, 1, 2, 3) for b in report.barriers)


def test_bounds_and_use() -> None:
    assert audit(EXCHANGE, lds=4096).lds_bytes_used == 4096
    report = audit(EXCHANGE, lds=4000)
    assert rules(report) == {"lds-bounds"}
    assert (
        audit(EXCHANGE, lds=4000, options=LdsOptions(KnownLaunch(dynamic_bytes=96))).findings == ()
    )


@pytest.mark.parametrize(("stride", "cycles"), [(4, 4), (8, 64)])
def test_bank_phases(stride: int, cycles: int) -> None:
    """16 bytes a lane in lane order are served without conflicts; at 256 bytes all 16 lanes of
    each of the four phases meet in the same banks."""
    body = f"""
  v_and_b32 v0, 63, v0
  v_lshlrev_b32 v1, {stride}, v0
  ds_read_b128 v[8:11], v1
  s_waitcnt lgkmcnt(0)
  s_endpgm
"""
    (access,) = audit(body, lds=65536).accesses
    assert (access.addresses, access.ideal) == ("known", 4)
    assert access.cycles == cycles


def test_an_address_from_memory_is_unproved() -> None:
    body = """
  s_load_dword s4, s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  v_lshl_add_u32 v1, v0, 4, s4
  ds_read_b128 v[8:11], v1
  s_waitcnt lgkmcnt(0)
  s_endpgm
"""
    report = audit(body)
    (guess,) = report.findings
    assert guess.severity == "unproved" and "addresses that are not known" in guess.message
    assert report.accesses[0].addresses == "unknown"


def test_a_block_that_is_not_that_many_waves_is_refused() -> None:
    kernel = load_code_object(assemble(EXCHANGE, lds=8192)).kernel()
    with pytest.raises(ConfigError, match="makes 2 waves"):
        check_lds(kernel, 4, LdsOptions(KnownLaunch(block=(128, 1, 1))))
    with pytest.raises(ConfigError, match="whole waves"):
        check_lds(kernel, 2, LdsOptions(KnownLaunch(block=(100, 1, 1))))


def _aiter(path: str) -> Path:
    folder = os.environ.get("MLAGEN_AITER")
    if not folder or not (Path(folder) / path).is_file():
        pytest.skip(f"MLAGEN_AITER names no folder with {path}")
    return Path(folder) / path


def test_aiter_fmha_forward_is_clean() -> None:
    code = _aiter("fmha_v3_fwd/fwd_hd128_bf16.co").read_bytes()
    report = check_lds(load_code_object(code).kernel(), 8)
    assert report.findings == ()
    assert report.unchecked == ()


def test_aiter_decode_covers_half_of_its_writes_only() -> None:
    """Eight ds_write, four ds_read, lgkmcnt(8), s_barrier: four of the writes are not waited for
    when other waves read them."""
    code = _aiter("mla/mla_dec_stage1_bf16_a16w16_subQ16_mqa16.co").read_bytes()
    report = check_lds(load_code_object(code).kernel(), 4)
    assert rules(report) == {"lds-raw"}
    assert (0x1840, 0x3018) in {(f.other_pc, f.pc) for f in report.findings}


MASKS = """
  s_load_dword s8, s[0:1], 0x10
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  v_cmp_gt_u32 vcc, s8, v0
  {}
  ds_write_b32 v1, v0
  s_endpgm
"""
ALTERNATIVES = """
  s_and_saveexec_b64 s[4:5], vcc
  s_xor_b64 s[4:5], exec, s[4:5]
  v_mov_b32 v2, 1
  s_{}_saveexec_b64 s[4:5], s[4:5]
  {}
  v_mov_b32 v2, 2
  s_or_b64 exec, exec, s[4:5]
"""


@pytest.mark.parametrize(
    "between",
    [
        ALTERNATIVES.format("or", "s_xor_b64 exec, exec, s[4:5]"),
        ALTERNATIVES.format("andn2", ""),
        "s_and_saveexec_b64 s[4:5], vcc\n"
        + ALTERNATIVES.format("andn2", "").replace("[4:5]", "[6:7]")
        + "s_or_b64 exec, exec, s[4:5]",
        "s_not_b64 s[4:5], vcc\n  s_or_b64 exec, vcc, s[4:5]",
    ],
)  # fmt: skip
def test_lanes_that_are_turned_off_and_on_again_are_known(between: str) -> None:
    """As compilers do it for both sides of an if, and inside of another."""
    report = audit(MASKS.format(between))
    assert not report.findings and report.accesses[0].end == 4 * WAVES * 64
    (only,) = audit(MASKS.format("s_and_b64 exec, exec, vcc")).findings
    assert "the active lanes" in only.guess
