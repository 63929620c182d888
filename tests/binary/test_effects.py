"""Reads and writes of instructions whose operand lists alone do not tell them."""

import struct

import pytest
from test_decode import _bytes_of

from mlagen.binary.decode import decode_at
from mlagen.binary.effects import effects
from mlagen.binary.hazards import passes_of, strictest_pair
from mlagen.binary.operand import HARDWARE, M0, VCC

READS = {
    "v_smfmac_f32_16x16x32_bf16 v[0:3], v[4:5], v[6:9], v10": [
        ("v", 4, 2, "mfma_ab"), ("v", 6, 4, "mfma_ab"), ("v", 10, 1, "mfma_ab"),
        ("v", 0, 4, "mfma_c")],
    "s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s3": [("s", 3, 1, "salu")],
    "s_getreg_b32 s3, hwreg(HW_REG_MODE, 4, 2)": [("s", HARDWARE + 1, 1, "hardware")],
    "s_sendmsg sendmsg(MSG_INTERRUPT)": [("s", M0, 1, "m0_use")],
    "s_or_b64 s[4:5], s[6:7], exec": [("s", 6, 2, "mask"), ("s", 126, 2, "salu")],
    "s_or_b64 s[4:5], s[6:7], s[8:9]": [("s", 6, 2, "salu"), ("s", 8, 2, "salu")],
    "v_dot2c_f32_f16 v1, v2, v3": [
        ("v", 2, 1, "valu"), ("v", 3, 1, "valu"), ("v", 1, 1, "dot_c")],
    "v_div_fmas_f32 v1, v2, v3, v4": [
        ("v", 2, 1, "valu"), ("v", 3, 1, "valu"), ("v", 4, 1, "valu"), ("s", VCC, 2, "div_mask")],
    "v_cmp_lt_i32_sdwa s[4:5], v2, s3 src0_sel:WORD_1 src1_sel:DWORD": [
        ("v", 2, 1, "valu"), ("s", 3, 1, "const")],
    "v_pk_fma_f32 v[2:3], v[4:5], s[6:7], v[8:9] op_sel:[1,0,0] op_sel_hi:[1,0,1]": [
        ("v", 5, 1, "valu"), ("s", 6, 1, "const"), ("v", 8, 2, "valu")],
}  # fmt: skip
WRITES = {
    "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3": [("s", HARDWARE + 1, 1, "hardware")],
    "v_cmp_lt_i32_sdwa s[4:5], v2, s3 src0_sel:WORD_1 src1_sel:DWORD": [("s", 4, 2, "valu_scalar")],
    "v_div_scale_f32 v1, vcc, v2, v3, v2": [("v", 1, 1, "valu"), ("s", VCC, 2, "valu_scalar")],
    "v_mad_u64_u32 v[2:3], s[4:5], v6, v7, v[8:9]": [
        ("v", 2, 2, "valu"), ("s", 4, 2, "valu_scalar")],
}  # fmt: skip


def _one(text):
    return decode_at(_bytes_of([text]), 0)


def _plain(accesses):
    return [(a.file, a.base, a.count, a.role) for a in accesses if a.role != "exec"]


@pytest.mark.parametrize("text", READS)
def test_reads(text):
    assert _plain(effects(_one(text), 256).reads) == READS[text]


@pytest.mark.parametrize("text", WRITES)
def test_writes(text):
    assert _plain(effects(_one(text), 256).writes) == WRITES[text]


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]", 2),
        ("v_mfma_f32_16x16x4_4b_f16 v[0:15], v[16:17], v[18:19], v[0:15]", 8),
        ("v_mfma_f32_32x32x4_2b_f16 v[0:31], v[32:33], v[34:35], v[0:31]", 16),
        ("v_mfma_i32_32x32x32_i8 v[0:15], v[16:19], v[20:23], v[0:15]", 8),
        ("v_mfma_f32_32x32x1_2b_f32 v[0:31], v32, v33, v[0:31]", 16),
        ("v_mfma_f32_16x16x1_4b_f32 v[0:15], v32, v33, v[0:15]", 8),
        ("v_smfmac_f32_32x32x16_bf16 v[0:15], v[16:17], v[20:23], v30", 8),
    ],
)
def test_passes(text, passes):
    """Numbers that LLVM pads a vector instruction after these by, less what the pipe adds."""
    assert passes_of(_one(text)) == passes


def test_hardware_registers_are_told_apart():
    write, same, other = (
        _one(text)
        for text in (
            "s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s3",
            "s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 2)",
            "s_getreg_b32 s4, hwreg(HW_REG_STATUS, 4, 2)",
        )
    )
    assert strictest_pair(write, same, 256)[0] == 2 and strictest_pair(write, other, 256)[0] == 0


@pytest.mark.parametrize("source", [128, 255])  # 0; a literal
def test_a_swap_with_a_constant_writes_one_register(source):
    """The assembler refuses it; bytes may say it."""
    ins = decode_at(struct.pack("<II", 0x7E00A200 | 1 << 17 | source, 0xFF900000), 0)
    assert ins.mnemonic == "v_swap_b32"
    assert _plain(effects(ins, 256).writes) == [("v", 1, 1, "valu")]
