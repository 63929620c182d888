"""What a wave knows of its lanes' addresses, against the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from gfx950_assembler import assemble

from mlagen.binary import load_code_object
from mlagen.binary.flow import read_flow
from mlagen.emulator import Argument, Buffer, Launch, emulate
from mlagen.inspect.values import view

WAVES = 2
# v0: the thread, v1 and s20, s21 known numbers; the result in v9.
SETUP = """
  v_and_b32 v0, 0x3ff, v0
  v_lshrrev_b32 v1, 6, v0
  s_nop 4
  v_readfirstlane_b32 s20, v1
  s_nop 4
  s_mov_b32 s21, 0x1234567
  v_and_b32 v2, 63, v0
  v_xor_b32 v3, 0x155, v2
"""
CODE = {
    "shifts": "v_lshlrev_b32 v9, 3, v2\n v_lshrrev_b32 v9, 1, v9",
    "subrev": "v_subrev_u32 v9, 5, v2",
    "or": "v_or_b32 v9, s20, v3",
    "not": "v_not_b32 v9, v3",
    "mul24": "v_mul_u32_u24 v9, v2, v3",
    "signed mul24": "v_sub_u32 v8, v2, v3\n v_mul_i32_i24 v9, v8, v2",
    "mul_lo": "v_mul_lo_u32 v9, v3, s21",
    "mad24": "v_mad_u32_u24 v9, v2, v3, v0",
    "add3": "v_add3_u32 v9, v2, v3, s20",
    "lshl_add": "v_lshl_add_u32 v9, v2, 4, v3",
    "add_lshl": "v_add_lshl_u32 v9, v2, v3, 2",
    "lshl_or": "v_lshl_or_b32 v9, v2, 9, v3",
    "and_or": "v_and_or_b32 v9, v3, 7, v0",
    "or3": "v_or3_b32 v9, v2, v3, s20",
    "xad": "v_xad_u32 v9, v2, v3, v0",
    "bfe": "v_bfe_u32 v9, v3, 2, 5",
    "mbcnt": "v_mbcnt_lo_u32_b32 v9, -1, 0\n v_mbcnt_hi_u32_b32 v9, -1, v9",
    "mbcnt of a mask": "s_movk_i32 s22, 0x0f0f\n v_mbcnt_lo_u32_b32 v9, s22, 3",
    "scalar": "s_mul_i32 s22, s20, 0x30c0\n s_lshl_b32 s23, s20, 9\n s_add_u32 s22, s22, s23\n"
    " s_and_b32 s22, s22, 0x7fff\n s_addk_i32 s22, 0x10\n v_add_u32 v9, s22, v2",
    "scalar minus": "s_sub_i32 s22, s20, 9\n s_xor_b32 s22, s22, s21\n v_mov_b32 v9, s22",
    "short": "s_movk_i32 s22, -3\n s_mulk_i32 s22, 5\n v_mov_b32 v9, s22",
    "first lane": "s_nop 4\n v_readfirstlane_b32 s22, v3\n s_nop 4\n v_add_u32 v9, s22, v2",
}


def known(code: bytes, wave: int) -> np.ndarray | None:
    """The address that the marking ds_read uses, as `view` has it."""
    kernel = load_code_object(code).kernel()
    flow = read_flow(kernel.instructions)
    seen = view(flow, kernel.descriptor.accum_offset, wave, (64 * WAVES, 1, 1)).addresses
    return seen[max(seen)] if seen else None


def body(code: str) -> str:
    return (
        f"{SETUP}\n {code}\n s_load_dwordx2 s[6:7], s[0:1], 0x8\n v_lshlrev_b32 v7, 2, v0\n"
        " s_waitcnt lgkmcnt(0)\n global_store_dword v7, v9, s[6:7]\n"
        # Only marks the place: the one workgroup there is, number 0, goes past it.
        " s_cmp_eq_u32 s2, 0\n s_cbranch_scc1 past\n ds_read_b32 v10, v9\npast:\n s_endpgm"
    )


@pytest.mark.parametrize("name", CODE)
def test_each_instruction_against_the_emulator(name):
    code = assemble(body(CODE[name]), lds=65536)
    out = np.zeros(64 * WAVES, np.uint32)
    result = emulate(
        code,
        Launch(
            grid=(1, 1, 1),
            block=(64 * WAVES, 1, 1),
            arguments=[Argument(8, Buffer("out", out, "write"))],
        ),
    )
    assert not result.findings
    for wave in range(WAVES):
        lanes = known(code, wave)
        assert lanes is not None
        np.testing.assert_array_equal(lanes, out[64 * wave : 64 * wave + 64])


@pytest.mark.parametrize(
    "code",
    [
        "global_load_dword v9, v3, s[4:5]",  # memory
        "v_mul_f32 v9, 2.0, v3",  # floats are not evaluated
        "v_add_u32_sdwa v9, v2, v3 dst_sel:DWORD src0_sel:BYTE_0 src1_sel:DWORD",
        "v_mov_b32_dpp v9, v3 row_shl:1 row_mask:0xf bank_mask:0xf",
        "s_load_dword s30, s[0:1], 0x0\n s_waitcnt lgkmcnt(0)\n v_add_u32 v9, s30, v2",
    ],
)
def test_what_is_not_evaluated_is_unknown(code):
    assert known(assemble(body(code), lds=65536), 0) is None


def test_a_value_that_changes_in_a_loop_is_unknown():
    code = assemble(
        f"{SETUP}\n s_load_dword s8, s[0:1], 0x0\n v_mov_b32 v9, v2\nloop:\n"
        " ds_read_b32 v10, v9\n v_add_u32 v9, 4, v9\n s_waitcnt lgkmcnt(0)\n"
        " s_sub_u32 s8, s8, 1\n s_cmp_eq_u32 s8, 0\n s_cbranch_scc0 loop\n s_endpgm",
        lds=65536,
    )
    assert known(code, 0) is None


def test_a_value_that_stays_in_a_loop_is_known():
    code = assemble(
        f"{SETUP}\n s_load_dword s8, s[0:1], 0x0\n v_mov_b32 v9, v2\nloop:\n"
        " ds_read_b32 v10, v9\n s_waitcnt lgkmcnt(0)\n"
        " s_sub_u32 s8, s8, 1\n s_cmp_eq_u32 s8, 0\n s_cbranch_scc0 loop\n s_endpgm",
        lds=65536,
    )
    np.testing.assert_array_equal(known(code, 0), np.arange(64))
