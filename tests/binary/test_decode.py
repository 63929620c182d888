"""The decoder against the assembler: text -> bytes -> text -> bytes must close."""

import tempfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from gfx950_assembler import assemble, run_zig

from mlagen.binary import load_code_object
from mlagen.binary.decode import decode_at
from mlagen.errors import BinaryError

CORPUS = """
s_mov_b32 s5, s6
s_mov_b32 m0, 0x18000
s_mov_b64 s[4:5], exec
s_add_u32 s3, s4, 0x12345
s_addc_u32 s3, s4, -7
s_cselect_b32 s1, s2, 64
s_lshl_b32 s1, s2, 5
s_and_b64 vcc, s[4:5], exec
s_mul_hi_u32 s7, s8, s9
s_bfm_b32 s7, 3, 4
s_ff1_i32_b32 s3, s4
s_cmp_lt_u32 s3, 17
s_cmp_eq_u64 s[4:5], s[6:7]
s_movk_i32 s3, 0x8000
s_addk_i32 s3, 0x1
s_cmpk_eq_u32 s3, 0x2
s_nop 7
s_waitcnt vmcnt(4) lgkmcnt(0)
s_waitcnt vmcnt(37)
s_waitcnt lgkmcnt(11)
s_waitcnt expcnt(0)
s_barrier
s_setprio 3
s_branch 3
s_cbranch_scc1 65533
s_set_gpr_idx_on s3, 0x9
s_set_gpr_idx_off
s_load_dword s4, s[2:3], 0x10
s_load_dwordx2 s[4:5], s[2:3], 0x0
s_load_dwordx4 s[4:7], s[2:3], s8
s_load_dwordx8 s[8:15], s[2:3], 0x40
s_load_dwordx16 s[16:31], s[2:3], 0x40
v_mov_b32 v1, 0x7fff7fff
v_mov_b32 v1, -4.0
v_mov_b64 v[2:3], v[4:5]
v_add_f32 v1, s3, v2
v_add_f32_e64 v1, -v3, |v2|
v_add_f32_e64 v1, v3, v2 clamp
v_mul_f32_e64 v1, v3, v2 mul:2
v_sub_f32 v1, 0.15915494, v2
v_fma_f32 v1, -v2, v3, 1.0
v_fmac_f32 v1, v2, v3
v_max3_f32 v1, v2, |v3|, v4
v_med3_f32 v1, v2, v3, v4
v_exp_f32 v1, v2
v_log_f32 v1, v2
v_rcp_f32_e64 v1, -v2
v_rcp_iflag_f32 v1, v2
v_cvt_f32_u32 v1, v2
v_cvt_u32_f32 v1, v2
v_cvt_pk_bf16_f32 v1, v2, v3
v_cvt_pk_fp8_f32 v1, v2, v3
v_cvt_pk_fp8_f32 v1, v2, v3 op_sel:[0,0,1]
v_cvt_pk_f32_fp8_sdwa v[2:3], v4 src0_sel:WORD_1
v_cvt_scalef32_pk_bf16_fp8 v1, v2, v3 op_sel:[1,0,0]
v_add_u32_sdwa v1, v2, s3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_1
v_or_b32_sdwa v1, v2, sext(v3) dst_sel:WORD_1 dst_unused:UNUSED_SEXT src0_sel:BYTE_3 src1_sel:BYTE_1
v_cmp_eq_u32_sdwa vcc, v2, v3 src0_sel:DWORD src1_sel:BYTE_0
v_cmp_lt_i32_sdwa s[4:5], v2, s3 src0_sel:WORD_1 src1_sel:DWORD
v_fmamk_f32 v1, v2, 0x3f123456, v3
v_fmaak_f32 v1, v2, v3, 0x3f123456
v_fmamk_f32 v1, 0x3f123456, 0x3f123456, v3
v_div_scale_f32 v1, vcc, v2, v3, v2
v_div_fmas_f32 v1, v2, v3, v4
v_div_fixup_f32 v1, v2, v3, v4
v_mad_u64_u32 v[2:3], s[4:5], v6, s7, v[8:9]
v_mad_i64_i32 v[2:3], vcc, v6, v7, 0
v_cvt_f16_f32 v1, v2
v_lshlrev_b16 v1, 3, v2
v_bitop3_b16 v1, v2, v3, v4 bitop3:0x6c
v_cmp_ne_u16 vcc, v2, v3
v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], v[0:15]
v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9]
v_pk_fma_f32 v[2:3], v[4:5], s[6:7], v[8:9] op_sel_hi:[1,0,1]
v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel:[0,1] op_sel_hi:[1,0]
v_pk_add_f32 v[2:3], v[4:5], v[6:7] neg_lo:[0,1] neg_hi:[0,1]
v_pk_mov_b32 v[2:3], v[4:5], v[6:7] op_sel:[1,0]
v_add_u32 v1, 64, v2
v_add3_u32 v1, v2, s3, v4
v_lshl_add_u32 v1, v2, 3, v4
v_lshl_or_b32 v1, v2, 3, v4
v_and_or_b32 v1, v2, v3, v4
v_bitop3_b32 v1, v2, v3, v4 bitop3:0x96
v_mul_lo_u32 v1, v2, s3
v_mul_hi_u32 v1, v2, v3
v_mul_i32_i24 v1, v2, v3
v_mad_u32_u24 v1, v2, v3, v4
v_perm_b32 v1, v2, v3, s4
v_bfe_u32 v1, v2, 3, 5
v_alignbit_b32 v1, v2, v3, 16
v_lshlrev_b32 v1, 3, v2
v_lshlrev_b64 v[2:3], 3, v[4:5]
v_lshl_add_u64 v[2:3], v[4:5], 2, v[6:7]
v_add_co_u32 v1, vcc, v2, v3
v_addc_co_u32 v1, vcc, v2, v3, vcc
v_add_co_u32_e64 v1, s[4:5], v2, v3
v_addc_co_u32_e64 v1, s[4:5], v2, v3, s[6:7]
v_cndmask_b32 v1, v2, v3, vcc
v_cndmask_b32_e64 v1, v2, v3, s[4:5]
v_cmp_lt_i32 vcc, v2, v3
v_cmp_gt_f32_e64 s[4:5], v2, -v3
v_cmp_le_u64_e64 s[4:5], v[2:3], v[4:5]
v_cmp_class_f32_e64 s[4:5], v2, v3
v_cmpx_eq_u32_e64 exec, v2, v3
v_readfirstlane_b32 s3, v2
v_readlane_b32 s3, v2, s4
v_writelane_b32 v2, s3, 5
v_permlane32_swap_b32 v1, v2
v_permlane16_swap_b32 v1, v2
v_swap_b32 v1, v2
v_mov_b32_dpp v1, v2 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf
v_mul_u32_u24_dpp v1, v2, v3 row_newbcast:5 row_mask:0xf bank_mask:0xf
v_add_f32_dpp v1, v2, v3 row_shr:4 row_mask:0xf bank_mask:0xe bound_ctrl:0
v_mbcnt_hi_u32_b32 v1, v2, v3
v_accvgpr_read_b32 v1, a2
v_accvgpr_write_b32 a1, v2
v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]
v_mfma_f32_32x32x16_bf16 a[0:15], v[16:19], a[20:23], 0
v_mfma_f32_16x16x32_bf16 v[0:3], a[16:19], v[20:23], v[4:7]
v_mfma_f32_16x16x16_bf16 v[0:3], v[16:17], v[20:21], v[0:3]
v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], v[0:15]
v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:29], v[0:15] blgp:2
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[16:23], v[24:31], 1.0
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[16:23], v[24:31], v[0:3], v32, v33 op_sel_hi:[0,0,0]
v_mfma_f32_16x16x32_fp8_bf8 v[0:3], v[16:17], v[20:21], v[0:3]
ds_read_b128 v[0:3], v4 offset:65520
ds_read_b128 a[0:3], v4
ds_read_b64 v[0:1], v4 offset:8
ds_read_b32 v0, v4
ds_read_u16 v0, v4 offset:2
ds_read2_b64 v[0:3], v4 offset0:1 offset1:2
ds_read_b64_tr_b16 v[0:1], v4 offset:512
ds_read_b64_tr_b8 a[0:1], v4
ds_write_b128 v4, v[0:3] offset:16
ds_write_b64 v4, a[0:1]
ds_write2st64_b32 v4, v0, v1 offset0:1 offset1:3
ds_bpermute_b32 v0, v4, v5
buffer_load_dword v0, v4, s[8:11], s3 offen offset:4095
buffer_load_dwordx4 v[0:3], off, s[8:11], 0
buffer_load_dwordx4 v4, s[8:11], s3 offen offset:64 lds
buffer_load_dwordx4 a[0:3], v4, s[8:11], 0 idxen sc0 nt sc1
buffer_load_dword v0, v[4:5], s[8:11], 0 idxen offen
buffer_store_dwordx4 v[0:3], v4, s[8:11], 0 offen
buffer_store_short v0, v4, s[8:11], 0 offen
tbuffer_load_format_x v1, v2, s[4:7], s3 format:22 offen offset:7
tbuffer_load_format_xyzw a[4:7], v[2:3], s[8:11], 0 format:127 idxen offen offset:4095 sc0 nt sc1
tbuffer_load_format_xyz v[4:6], off, s[4:7], 0 format:1
tbuffer_store_format_xy v[4:5], v2, s[4:7], s3 format:34 idxen
tbuffer_load_format_d16_x v4, v2, s[4:7], 0 format:22 offen
tbuffer_load_format_d16_xyz v[4:5], v2, s[4:7], 0 format:22 offen nt
tbuffer_store_format_d16_xyzw a[4:5], v2, s[4:7], 0 format:22 offen sc1
tbuffer_store_format_d16_xy v4, v2, s[4:7], 0 format:22 offen
ds_read_b64_tr_b4 v[0:1], v4 offset:8
ds_read_b96_tr_b6 v[0:2], v4
buffer_inv sc1
buffer_wbl2 sc0 sc1
global_load_dword v0, v[4:5], off
global_load_dwordx4 v[0:3], v4, s[2:3] offset:-16
global_load_ubyte v0, v4, s[2:3]
global_load_lds_dwordx4 v[4:5], off offset:64
global_load_lds_dwordx3 v4, s[2:3]
scratch_load_dword v16, off, off offset:4
scratch_load_dwordx4 v[16:19], v1, off offset:-8
scratch_load_dword v16, v2, s3
scratch_store_dwordx2 off, v[4:5], off offset:8
scratch_store_dword v2, v4, s3
scratch_load_dword a3, off, off
scratch_store_dword off, a3, s3 offset:16
global_store_dwordx2 v4, v[0:1], s[2:3] offset:4080
global_store_dword v[4:5], a3, off
s_endpgm
""".strip().splitlines()


@pytest.fixture(scope="module")
def encoded():
    """(bytes of .text, instruction offsets) of the corpus."""
    return _bytes_of(CORPUS)


def _bytes_of(lines):
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "c.s").write_text("\n".join(lines) + "\n")
        target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx950"]
        run_zig(["clang", *target, "-c", "c.s", "-o", "c.o"], directory)
        with (directory / "c.o").open("rb") as handle:
            return ELFFile(handle).get_section_by_name(".text").data()


def _decode_all(code):
    offset, result = 0, []
    while offset < len(code):
        ins = decode_at(code, offset)
        result.append(ins)
        offset += ins.size
    return result


def test_every_line_decodes_to_one_instruction_of_its_name(encoded):
    decoded = _decode_all(encoded)
    assert len(decoded) == len(CORPUS)
    for line, ins in zip(CORPUS, decoded, strict=True):
        name = line.split()[0]
        for suffix in ("_e64", "_e32", "_dpp", "_sdwa"):
            name = name.removesuffix(suffix)
        assert ins.mnemonic == name, line


def test_formatted_text_assembles_to_the_same_bytes(encoded):
    decoded = _decode_all(encoded)
    again = _bytes_of([str(ins) for ins in decoded])
    if again != encoded:
        for line, ins in zip(CORPUS, decoded, strict=True):
            mine = _bytes_of([str(ins)])
            assert mine == encoded[ins.offset : ins.offset + ins.size], f"{line} shown as {ins}"


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("v_mfma_f32_32x32x16_bf16 a[0:15], v[16:19], a[20:23], 0",
         {"vdst": ("a", 0, 16), "src0": ("v", 16, 4), "src1": ("a", 20, 4)}),
        ("buffer_load_dwordx4 v4, s[8:11], s3 offen offset:64 lds",
         {"vaddr": ("v", 4, 1), "srsrc": ("s", 8, 4), "soffset": ("s", 3, 1)}),
        ("global_load_dwordx4 v[0:3], v4, s[2:3] offset:-16",
         {"vdst": ("v", 0, 4), "addr": ("v", 4, 1), "saddr": ("s", 2, 2)}),
        ("global_load_dword v0, v[4:5], off", {"vdst": ("v", 0, 1), "addr": ("v", 4, 2)}),
        ("v_readfirstlane_b32 s3, v2", {"vdst": ("s", 3, 1), "src0": ("v", 2, 1)}),
        ("v_cmp_gt_f32_e64 s[4:5], v2, -v3", {"vdst": ("s", 4, 2), "src1": ("v", 3, 1)}),
        ("ds_read_b128 a[0:3], v4", {"vdst": ("a", 0, 4), "addr": ("v", 4, 1)}),
        ("s_load_dwordx8 s[8:15], s[2:3], 0x40", {"sdata": ("s", 8, 8), "sbase": ("s", 2, 2)}),
    ],
)  # fmt: skip
def test_operand_kinds_and_widths(text, operands):
    ins = decode_at(_bytes_of([text]), 0)
    for name, expected in operands.items():
        found = ins.operand(name)
        assert found is not None and (found.kind, found.index, found.count) == expected


def test_an_instruction_before_a_matrix_instruction_is_not_swallowed():
    """The tables alone would read these two as one scaled matrix instruction."""
    lines = [
        "ds_read_b128 v[0:3], v4",
        "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], v[0:15]",
        "v_mfma_f32_32x32x64_f8f6f4 v[32:47], v[16:23], v[24:31], v[32:47]",
    ]
    assert [str(ins) for ins in _decode_all(_bytes_of(lines))] == lines


def test_code_that_ends_inside_an_instruction():
    code = _bytes_of(["ds_read_b128 v[0:3], v4"])
    with pytest.raises(BinaryError):
        decode_at(code[:4], 0)


def test_a_kernel_prints_as_it_was_written():
    kernel = load_code_object(assemble("  v_add_f32 v1, 1.0, v0\n  s_endpgm\n")).kernel()
    assert [str(ins) for ins in kernel.instructions] == ["v_add_f32 v1, 1.0, v0", "s_endpgm"]
