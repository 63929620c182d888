"""Two waves that copy to the same place of LDS: the same bytes need no order, others do."""

import pytest
from binary.gfx950_assembler import assemble

from mlagen.audit.gfx950.lds import check_lds
from mlagen.binary import load_code_object

# All waves copy 16 bytes a lane from where s[4:7] begins, to where LDS begins.
START = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[12:13], s[0:1], 0x10
  v_readfirstlane_b32 s9, v0
  s_lshr_b32 s9, s9, 6
  v_and_b32 v1, 63, v0
  v_lshlrev_b32 v1, 4, v1
  s_waitcnt lgkmcnt(0)
  s_mov_b32 m0, 0
"""
BUFFER = "  buffer_load_dwordx4 v1, s[4:7], 0 offen lds\n"
GLOBAL = "  global_load_lds_dwordx4 v1, s[12:13]\n"
END = """
  s_waitcnt vmcnt(0)
  s_barrier
  ds_read_b128 v[8:11], v1
  s_waitcnt lgkmcnt(0)
  s_endpgm
"""
# Each wave a quarter further, in memory as in LDS: half of what two neighbours copy is the same.
SHIFTED = "  s_lshl_b32 s10, s9, 9\n  v_add_u32 v2, s10, v1\n  s_mov_b32 m0, s10\n"
MOVED = BUFFER.replace("v1", "v2")
# The lanes of odd waves take the rows that follow the wave's own: the wave number matters.
ROW = "  s_mul_i32 s10, s9, {step}\n  v_add_u32 v2, s10, v1\n"
PAGE = "  s_load_dword s11, s[12:13], 0x0\n  s_waitcnt lgkmcnt(0)\n  v_add_u32 v2, s11, v1\n"
OTHERS = "  s_add_u32 s8, s12, s9\n  s_load_dword s11, s[12:13], s8\n  s_waitcnt lgkmcnt(0)\n"


def errors(copy: str, waves: int = 2) -> list[str]:
    code = assemble(START + copy + END, lds=8192)
    report = check_lds(load_code_object(code).kernel(), waves)
    assert not report.unchecked
    return [f.rule for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize(
    "copy",
    [
        BUFFER,
        BUFFER.replace("offen", "offen offset:64"),
        GLOBAL,
        SHIFTED + MOVED,
        PAGE + MOVED,
    ],
    ids=["buffer", "offset", "global", "half the same", "an index from memory"],
)
def test_the_same_bytes_need_no_order(copy):
    assert errors(copy) == []


@pytest.mark.parametrize(
    "copy",
    [
        ROW.format(step="0x400") + MOVED,
        ROW.format(step=4) + MOVED,
        SHIFTED + BUFFER,
        OTHERS + "  v_add_u32 v2, s11, v1\n" + MOVED,
        BUFFER + "  s_add_u32 s4, s4, s9\n" + BUFFER,
        GLOBAL + BUFFER,
    ],
    ids=["other rows", "a dword on", "LDS alone moves", "two indices", "two buffers", "two kinds"],
)
def test_other_bytes_do(copy):
    assert errors(copy) == ["lds-waw"]


def test_the_same_bytes_are_still_read_too_early():
    late = START + BUFFER + END.replace("s_barrier", "s_nop 0")
    report = check_lds(load_code_object(assemble(late, lds=8192)).kernel(), 2)
    assert {f.rule for f in report.findings} == {"lds-raw"}


# Every wave writes 4 bytes a lane where the others do.
WRITTEN = """
  v_and_b32 v2, 63, v0
  v_lshlrev_b32 v2, 2, v2
  {}
  ds_write_b32 v2, v3
  s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize(
    "value",
    [
        "v_mov_b32 v3, s4",
        "v_and_b32 v3, 63, v0",
        "global_load_dword v3, v2, s[12:13]\n  s_waitcnt vmcnt(0)\n  v_add_f32 v3, v3, v3",
    ],
)
def test_the_same_values_need_no_order(value):
    assert errors(WRITTEN.format(value)) == []


def test_other_values_do_and_values_that_are_not_followed_are_a_guess():
    assert errors(WRITTEN.format("v_mov_b32 v3, v0")) == ["lds-waw"]
    unknown = WRITTEN.format(
        "ds_read_b32 v3, v1 offset:4096\n  s_waitcnt lgkmcnt(0)\n  v_add_u32 v3, v3, v0"
    )
    code = assemble(START + unknown + END, lds=8192)
    found = check_lds(load_code_object(code).kernel(), 2).findings
    (told,) = (finding for finding in found if finding.rule == "lds-waw")
    assert told.severity == "unproved" and told.guess
