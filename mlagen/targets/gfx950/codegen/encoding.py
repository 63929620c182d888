"""The generator's microcode table: what the words of an instruction say, field by field.

Source: CDNA4 ISA guide, chapter 12 (microcode formats) and the opcode tables. It has the
instructions of `isa.TABLE`. `read` leaves no bit out: what a format holds is an operand, or a
modifier that differs from its default. The checkers have a decoder of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from mlagen.targets.gfx950.codegen.isa import AGPR, SGPR

# An operand: a register's number as in `isa`, or the 32 bits of a constant; "off" has neither.
Register = tuple[str, int]
OFF: Register = ("off", 0)

_LITERAL, _DPP, _SDWA = 255, 250, 249  # source codes that another dword follows
_NO_SADDR = 0x7F
_VCC: Register = ("r", SGPR + 106)
_FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_TURN = 0x3E22F983  # source code 248: 1 / (2 pi)


@dataclass(frozen=True, slots=True)
class EncodedInstruction:
    """One encoded instruction. `operands` in the order of the text, `modifiers` by name: only those
    that are not the default. `immediate`: SIMM16 of a program instruction."""

    mnemonic: str
    operands: tuple[Register, ...]
    modifiers: Mapping[str, int]
    immediate: int = 0


def _table(text: str) -> dict[int, str]:
    pairs = (entry.split(":") for entry in text.split())
    return {int(number): name for number, name in pairs}


_SOP1 = _table(
    "0:s_mov_b32 1:s_mov_b64 4:s_not_b32 5:s_not_b64 8:s_brev_b32 12:s_bcnt1_i32_b32 "
    "13:s_bcnt1_i32_b64 16:s_ff1_i32_b32 17:s_ff1_i32_b64 18:s_flbit_i32_b32 22:s_sext_i32_i8 "
    "23:s_sext_i32_i16 48:s_abs_i32"
)
_SOP2 = _table(
    "0:s_add_u32 1:s_sub_u32 2:s_add_i32 3:s_sub_i32 4:s_addc_u32 5:s_subb_u32 6:s_min_i32 "
    "7:s_min_u32 8:s_max_i32 9:s_max_u32 10:s_cselect_b32 11:s_cselect_b64 12:s_and_b32 "
    "13:s_and_b64 14:s_or_b32 15:s_or_b64 16:s_xor_b32 17:s_xor_b64 18:s_andn2_b32 "
    "19:s_andn2_b64 20:s_orn2_b32 21:s_orn2_b64 22:s_nand_b32 24:s_nor_b32 26:s_xnor_b32 "
    "28:s_lshl_b32 29:s_lshl_b64 30:s_lshr_b32 31:s_lshr_b64 32:s_ashr_i32 33:s_ashr_i64 "
    "34:s_bfm_b32 35:s_bfm_b64 36:s_mul_i32 37:s_bfe_u32 38:s_bfe_i32 44:s_mul_hi_u32 "
    "45:s_mul_hi_i32 46:s_lshl1_add_u32 47:s_lshl2_add_u32 48:s_lshl3_add_u32 "
    "49:s_lshl4_add_u32 50:s_pack_ll_b32_b16 51:s_pack_lh_b32_b16 52:s_pack_hh_b32_b16"
)
_SOPC = _table(
    "0:s_cmp_eq_i32 1:s_cmp_lg_i32 2:s_cmp_gt_i32 3:s_cmp_ge_i32 4:s_cmp_lt_i32 "
    "5:s_cmp_le_i32 6:s_cmp_eq_u32 7:s_cmp_lg_u32 8:s_cmp_gt_u32 9:s_cmp_ge_u32 "
    "10:s_cmp_lt_u32 11:s_cmp_le_u32 12:s_bitcmp0_b32 13:s_bitcmp1_b32 18:s_cmp_eq_u64 "
    "19:s_cmp_lg_u64"
)
_SOPK = _table("0:s_movk_i32 14:s_addk_i32 15:s_mulk_i32")
_SOPP = _table(
    "0:s_nop 1:s_endpgm 2:s_branch 4:s_cbranch_scc0 5:s_cbranch_scc1 6:s_cbranch_vccz "
    "7:s_cbranch_vccnz 10:s_barrier 12:s_waitcnt 15:s_setprio"
)
_SMEM = _table("0:s_load_dword 1:s_load_dwordx2 2:s_load_dwordx4 3:s_load_dwordx8")
_VOP1 = _table(
    "1:v_mov_b32 2:v_readfirstlane_b32 5:v_cvt_f32_i32 6:v_cvt_f32_u32 7:v_cvt_u32_f32 "
    "8:v_cvt_i32_f32 10:v_cvt_f16_f32 11:v_cvt_f32_f16 17:v_cvt_f32_ubyte0 "
    "18:v_cvt_f32_ubyte1 19:v_cvt_f32_ubyte2 20:v_cvt_f32_ubyte3 27:v_fract_f32 "
    "28:v_trunc_f32 29:v_ceil_f32 30:v_rndne_f32 31:v_floor_f32 32:v_exp_f32 33:v_log_f32 "
    "34:v_rcp_f32 36:v_rsq_f32 39:v_sqrt_f32 41:v_sin_f32 42:v_cos_f32 43:v_not_b32 "
    "44:v_bfrev_b32 45:v_ffbh_u32 46:v_ffbl_b32 56:v_mov_b64 81:v_swap_b32 84:v_cvt_f32_fp8 "
    "85:v_cvt_f32_bf8 89:v_permlane16_swap_b32 90:v_permlane32_swap_b32 91:v_cvt_f32_bf16"
)
_VOP2 = _table(
    "0:v_cndmask_b32 1:v_add_f32 2:v_sub_f32 3:v_subrev_f32 5:v_mul_f32 6:v_mul_i32_i24 "
    "8:v_mul_u32_u24 10:v_min_f32 11:v_max_f32 12:v_min_i32 13:v_max_i32 14:v_min_u32 "
    "15:v_max_u32 16:v_lshrrev_b32 17:v_ashrrev_i32 18:v_lshlrev_b32 19:v_and_b32 20:v_or_b32 "
    "21:v_xor_b32 25:v_add_co_u32 26:v_sub_co_u32 27:v_subrev_co_u32 28:v_addc_co_u32 "
    "29:v_subb_co_u32 30:v_subbrev_co_u32 52:v_add_u32 53:v_sub_u32 54:v_subrev_u32 "
    "59:v_fmac_f32 61:v_xnor_b32"
)
_VOPC = _table(
    "16:v_cmp_class_f32 65:v_cmp_lt_f32 66:v_cmp_eq_f32 67:v_cmp_le_f32 68:v_cmp_gt_f32 "
    "69:v_cmp_lg_f32 70:v_cmp_ge_f32 71:v_cmp_o_f32 72:v_cmp_u_f32 77:v_cmp_neq_f32 "
    "193:v_cmp_lt_i32 194:v_cmp_eq_i32 195:v_cmp_le_i32 196:v_cmp_gt_i32 197:v_cmp_ne_i32 "
    "198:v_cmp_ge_i32 201:v_cmp_lt_u32 202:v_cmp_eq_u32 203:v_cmp_le_u32 204:v_cmp_gt_u32 "
    "205:v_cmp_ne_u32 206:v_cmp_ge_u32"
)
_VOP3 = _table(
    "450:v_mad_i32_i24 451:v_mad_u32_u24 456:v_bfe_u32 457:v_bfe_i32 458:v_bfi_b32 "
    "459:v_fma_f32 462:v_alignbit_b32 463:v_alignbyte_b32 464:v_min3_f32 465:v_min3_i32 "
    "466:v_min3_u32 467:v_max3_f32 468:v_max3_i32 469:v_max3_u32 470:v_med3_f32 "
    "471:v_med3_i32 472:v_med3_u32 488:v_mad_u64_u32 493:v_perm_b32 499:v_xad_u32 "
    "509:v_lshl_add_u32 510:v_add_lshl_u32 511:v_add3_u32 512:v_lshl_or_b32 513:v_and_or_b32 "
    "514:v_or3_b32 520:v_lshl_add_u64 569:v_cvt_scalef32_pk_f32_fp8 615:v_cvt_pk_f16_f32 "
    "616:v_cvt_pk_bf16_f32 617:v_cvt_scalef32_pk_bf16_fp8 645:v_mul_lo_u32 646:v_mul_hi_u32 "
    "647:v_mul_hi_i32 648:v_ldexp_f32 649:v_readlane_b32 650:v_writelane_b32 "
    "651:v_bcnt_u32_b32 652:v_mbcnt_lo_u32_b32 653:v_mbcnt_hi_u32_b32 655:v_lshlrev_b64 "
    "656:v_lshrrev_b64 657:v_ashrrev_i64 659:v_bfm_b32 662:v_cvt_pkrtz_f16_f32 "
    "674:v_cvt_pk_fp8_f32 675:v_cvt_pk_bf8_f32"
)
# The long form of the short ones (CDNA4 ISA, VOP3A: opcode map).
_VOP3 |= _VOPC | {256 + n: name for n, name in _VOP2.items()}
_VOP3 |= {320 + n: name for n, name in _VOP1.items()}
_CARRIES = {f"v_{name}_co_u32" for name in ("add", "sub", "subrev", "addc", "subb", "subbrev")}
_CARRY_IN = {f"v_{name}_co_u32" for name in ("addc", "subb", "subbrev")}
TWO_RESULTS = frozenset(_CARRIES | {"v_mad_u64_u32"})  # the second is a lane mask
_THREE = """v_mad_i32_i24 v_mad_u32_u24 v_bfe_u32 v_bfe_i32 v_bfi_b32 v_fma_f32 v_alignbit_b32
v_alignbyte_b32 v_min3_f32 v_min3_i32 v_min3_u32 v_max3_f32 v_max3_i32 v_max3_u32 v_med3_f32
v_med3_i32 v_med3_u32 v_perm_b32 v_xad_u32 v_lshl_add_u32 v_add_lshl_u32 v_add3_u32 v_lshl_or_b32
v_and_or_b32 v_or3_b32 v_lshl_add_u64 v_mad_u64_u32 v_cndmask_b32"""
# Sources of the long form; two where nothing is said.
_SOURCES = dict.fromkeys(_VOP1.values(), 1) | dict.fromkeys((*_THREE.split(), *_CARRY_IN), 3)
_SCALAR_RESULTS = {"v_readfirstlane_b32", "v_readlane_b32"}
_VOP3P = _table("48:v_pk_fma_f32 49:v_pk_mul_f32 50:v_pk_add_f32")
_MAI = _table(
    "46:v_mfma_f32_32x32x64_f8f6f4 53:v_mfma_f32_16x16x32_bf16 55:v_mfma_f32_32x32x16_bf16 "
    "88:v_accvgpr_read_b32 89:v_accvgpr_write_b32 115:v_mfma_f32_16x16x32_fp8_fp8"
)
_DS = _table(
    "13:ds_write_b32 14:ds_write2_b32 30:ds_write_b8 31:ds_write_b16 54:ds_read_b32 "
    "55:ds_read2_b32 57:ds_read_i8 58:ds_read_u8 59:ds_read_i16 60:ds_read_u16 "
    "61:ds_swizzle_b32 62:ds_permute_b32 63:ds_bpermute_b32 77:ds_write_b64 78:ds_write2_b64 "
    "118:ds_read_b64 119:ds_read2_b64 223:ds_write_b128 226:ds_read_b64_tr_b8 "
    "227:ds_read_b64_tr_b16 255:ds_read_b128"
)
_GLOBAL = _table(
    "16:global_load_ubyte 17:global_load_sbyte 18:global_load_ushort 19:global_load_sshort "
    "20:global_load_dword 21:global_load_dwordx2 22:global_load_dwordx3 "
    "23:global_load_dwordx4 24:global_store_byte 26:global_store_short 28:global_store_dword "
    "29:global_store_dwordx2 30:global_store_dwordx3 31:global_store_dwordx4 "
    "42:global_load_lds_dword 125:global_load_lds_dwordx4"
)
_MUBUF = _table(
    "16:buffer_load_ubyte 17:buffer_load_sbyte 18:buffer_load_ushort 19:buffer_load_sshort "
    "20:buffer_load_dword 21:buffer_load_dwordx2 22:buffer_load_dwordx3 "
    "23:buffer_load_dwordx4 24:buffer_store_byte 26:buffer_store_short 28:buffer_store_dword "
    "29:buffer_store_dwordx2 30:buffer_store_dwordx3 31:buffer_store_dwordx4"
)
KNOWN = frozenset(
    name
    for table in (
        _SOP1,
        _SOP2,
        _SOPC,
        _SOPK,
        _SOPP,
        _SMEM,
        _VOP3,
        _VOP3P,
        _MAI,
        _DS,
        _GLOBAL,
        _MUBUF,
    )
    for name in table.values()
)


class UnknownError(ValueError):
    """The words are no instruction of the table."""


def size_of(code: bytes, at: int) -> int:
    """Bytes of the instruction at `at`."""
    (word,) = struct.unpack_from("<I", code, at)
    top = word >> 23
    if top == 0x17F:  # SOPP
        return 4
    if top >> 7 == 0b10:  # SOP1, SOP2, SOPC
        if top >> 5 == 0b1011 and top != 0x17D and top != 0x17E:  # SOPK
            return 4
        one = top == 0x17D
        return 8 if word & 0xFF == _LITERAL or (not one and word >> 8 & 0xFF == _LITERAL) else 4
    if top >> 8 == 0:  # VOP1, VOP2, VOPC
        return 8 if word & 0x1FF in (_LITERAL, _DPP, _SDWA) else 4
    return 8


def read(raw: bytes) -> EncodedInstruction:
    """What the bytes of one instruction say; UnknownError where the table has no such opcode."""
    (word,) = struct.unpack_from("<I", raw)
    second = struct.unpack_from("<I", raw, 4)[0] if len(raw) == 8 else 0
    top = word >> 26
    if word >> 31 == 0:
        return _short_vector(word, second)
    if word >> 30 == 0b10:
        return _scalar(word, second)
    readers = {0x30: _smem, 0x34: _vop3, 0x36: _ds, 0x37: _global, 0x38: _mubuf}
    reader = readers.get(top)
    if reader is None:
        raise UnknownError
    return reader(word, second)


def _name(table: Mapping[int, str], number: int) -> str:
    if number not in table:
        raise UnknownError
    return table[number]


def _told(**fields: int) -> dict[str, int]:
    """Modifiers that are not the default."""
    return {name: value for name, value in fields.items() if value}


def float_bits(value: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


def _source(code: int, literal: int, accumulates: int = 0) -> Register:
    """A source operand of 9 bits, or of 8 for scalars (CDNA4 ISA, scalar operands)."""
    if code >= 256:
        return ("r", code - 256 + (AGPR if accumulates else 0))
    if code < 128:
        return ("r", SGPR + code)
    if code <= 192:
        return ("c", code - 128)
    if code <= 208:
        return ("c", (192 - code) & 0xFFFFFFFF)
    if code in _FLOATS:
        return ("c", float_bits(_FLOATS[code]))
    if code == 248:
        return ("c", _TURN)
    if code == _LITERAL:
        return ("c", literal)
    raise UnknownError


def _vector(number: int, accumulates: int = 0) -> Register:
    return ("r", number + (AGPR if accumulates else 0))


def _scalar(word: int, literal: int) -> EncodedInstruction:
    low, high, result = word & 0xFF, word >> 8 & 0xFF, ("r", SGPR + (word >> 16 & 0x7F))
    top = word >> 23
    if top == 0x17F:
        return EncodedInstruction(_name(_SOPP, word >> 16 & 0x7F), (), {}, word & 0xFFFF)
    if top == 0x17E:
        sources = (_source(low, literal), _source(high, literal))
        return EncodedInstruction(_name(_SOPC, word >> 16 & 0x7F), sources, {})
    if top == 0x17D:
        return EncodedInstruction(_name(_SOP1, high), (result, _source(low, literal)), {})
    if top >> 5 == 0b1011:
        return EncodedInstruction(_name(_SOPK, top & 0x1F), (result,), {}, word & 0xFFFF)
    name = _name(_SOP2, top & 0x7F)
    return EncodedInstruction(name, (result, _source(low, literal), _source(high, literal)), {})


def _smem(word: int, second: int) -> EncodedInstruction:
    data, base = ("r", SGPR + (word >> 6 & 0x7F)), ("r", SGPR + 2 * (word & 0x3F))
    offset, register = second & 0x1FFFFF, second >> 25
    by_register, constant = word >> 14 & 1, word >> 17 & 1
    signed = offset - (0x200000 if offset & 0x100000 else 0)
    place: Register = ("r", SGPR + register) if by_register else ("c", signed & 0xFFFFFFFF)
    if not by_register and not constant:  # the older form: OFFSET is the number of a register
        place, offset = ("r", SGPR + (offset & 0x7F)), offset & ~0x7F
    told = _told(
        glc=word >> 16 & 1,
        nv=word >> 15 & 1,
        offset=0 if place[0] == "c" else offset,
        soffset=0 if by_register else register,
        reserved=second >> 21 & 0xF | word >> 13 & 1,
    )
    return EncodedInstruction(_name(_SMEM, word >> 18 & 0xFF), (data, base, place), told)


def _short_vector(word: int, second: int) -> EncodedInstruction:
    """VOP1, VOP2 and VOPC."""
    code, result = word & 0x1FF, _vector(word >> 17 & 0xFF)
    other = _vector(word >> 9 & 0xFF)
    told: dict[str, int] = {}
    if code == _SDWA:
        raise UnknownError
    if code == _DPP:
        first = _vector(second & 0xFF)
        told = _told(dpp=1, ctrl=second >> 8 & 0x1FF, fi=second >> 18 & 1, bc=second >> 19 & 1,
                     neg=second >> 20 & 1 | (second >> 22 & 1) << 1, reserved=second >> 17 & 1,
                     abs=second >> 21 & 1 | (second >> 23 & 1) << 1, rows=0xF ^ second >> 28,
                     banks=0xF ^ second >> 24 & 0xF)  # fmt: skip
    else:
        first = _source(code, second)
    top = word >> 25
    if top == 0x3F:
        name = _name(_VOP1, word >> 9 & 0xFF)
        if name in _SCALAR_RESULTS:
            result = ("r", SGPR + (word >> 17 & 0xFF))
        return EncodedInstruction(name, (result, first), told)
    if top == 0x3E:
        return EncodedInstruction(_name(_VOPC, word >> 17 & 0xFF), (_VCC, first, other), told)
    name = _name(_VOP2, top)
    carry = (_VCC,) if name in _CARRIES else ()
    mask = (_VCC,) if name == "v_cndmask_b32" or name in _CARRY_IN else ()
    return EncodedInstruction(name, (result, *carry, first, other, *mask), told)


def _vop3(word: int, second: int) -> EncodedInstruction:
    """VOP3A, VOP3B, VOP3P and its matrix form."""
    if word >> 23 == 0x1A7:
        return _packed(word, second)
    number = word >> 16 & 0x3FF
    name = _name(_VOP3, number)
    result = _vector(word & 0xFF)
    codes = (second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF)
    count = _SOURCES.get(name, 2)
    sources = tuple(_source(code, 0) for code in codes[:count])
    unused = sum(code << 9 * at for at, code in enumerate(codes[count:]))
    told = _told(clamp=word >> 15 & 1, omod=second >> 27 & 3, neg=second >> 29, unused=unused)
    if name in TWO_RESULTS:
        carry = ("r", SGPR + (word >> 8 & 0x7F))
        return EncodedInstruction(name, (result, carry, *sources), told)
    told |= _told(abs=word >> 8 & 7, op_sel=word >> 11 & 15)
    if name.startswith("v_cmp_") or name in _SCALAR_RESULTS:
        result = ("r", SGPR + (word & 0xFF))
    return EncodedInstruction(name, (result, *sources), told)


def _packed(word: int, second: int) -> EncodedInstruction:
    number = word >> 16 & 0x7F
    codes = (second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF)
    if number in _MAI:
        return _matrix(_MAI[number], word, second, codes)
    name = _name(_VOP3P, number)
    count = 3 if name == "v_pk_fma_f32" else 2
    every = (1 << count) - 1
    high = second >> 27 & 3 | (word >> 14 & 1) << 2
    told = _told(
        clamp=word >> 15 & 1,
        op_sel=word >> 11 & 7,
        op_sel_hi=high & every ^ every,
        neg_lo=second >> 29,
        neg_hi=word >> 8 & 7,
        unused=codes[2] if count == 2 else 0,
    )
    return EncodedInstruction(
        name, (_vector(word & 0xFF), *(_source(code, 0) for code in codes[:count])), told
    )


def _matrix(name: str, word: int, second: int, codes: tuple[int, int, int]) -> EncodedInstruction:
    accumulates, result = second >> 27 & 3, word >> 15 & 1
    told = _told(cbsz=word >> 8 & 7, abid=word >> 11 & 15, blgp=second >> 29)
    if name.startswith("v_accvgpr"):  # one side is an accumulation register, whatever ACC says
        moved = _told(
            cbsz=word >> 8 & 7,
            abid=word >> 11 & 7,
            clamp=word >> 15 & 1,
            blgp=second >> 29,
            unused=second >> 9 & 0x3FFFF,
        )
        reads = int(name == "v_accvgpr_read_b32")
        operands = (_vector(word & 0xFF, 1 - reads), _source(codes[0], 0, reads))
        return EncodedInstruction(name, operands, moved)
    sources = (
        _source(codes[0], 0, accumulates & 1),
        _source(codes[1], 0, accumulates >> 1),
        _source(codes[2], 0, result),
    )
    return EncodedInstruction(name, (_vector(word & 0xFF, result), *sources), told)


def _ds(word: int, second: int) -> EncodedInstruction:
    name, acc = _name(_DS, word >> 17 & 0xFF), word >> 25 & 1
    address, data = _vector(second & 0xFF), _vector(second >> 8 & 0xFF, acc)
    result = _vector(second >> 24, acc)
    two = "read2" in name or "write2" in name
    told = _told(gds=word >> 16 & 1)
    if two:
        told |= _told(offset0=word & 0xFF, offset1=word >> 8 & 0xFF)
    else:
        told |= _told(offset=word & 0xFFFF)
    if name.startswith("ds_write2"):
        other = _vector(second >> 16 & 0xFF, acc)
        return EncodedInstruction(name, (address, data, other), told | _told(vdst=second >> 24))
    told |= _told(data1=second >> 16 & 0xFF)
    if name.startswith("ds_write"):
        return EncodedInstruction(name, (address, data), told | _told(vdst=second >> 24))
    if "permute" in name:
        return EncodedInstruction(name, (result, address, data), told)
    return EncodedInstruction(name, (result, address), told | _told(data0=second >> 8 & 0xFF))


def _global(word: int, second: int) -> EncodedInstruction:
    name, acc = _name(_GLOBAL, word >> 18 & 0x7F), second >> 23 & 1
    saddr = second >> 16 & 0x7F
    offset = word & 0x1FFF
    told = _told(
        offset=offset - (0x2000 if offset & 0x1000 else 0),
        segment=word >> 14 & 3 ^ 2,
        lds=word >> 13 & 1,
        sc0=word >> 16 & 1,
        nt=word >> 17 & 1,
        sc1=word >> 25 & 1,
    )
    base: Register = OFF if saddr == _NO_SADDR else ("r", SGPR + saddr)
    address, data = _vector(second & 0xFF), second >> 8 & 0xFF
    if "_store_" in name:
        return EncodedInstruction(
            name, (address, _vector(data, acc), base), told | _told(vdst=second >> 24)
        )
    told |= _told(data=data)
    if "_load_lds_" in name:
        return EncodedInstruction(name, (address, base), told | _told(vdst=second >> 24, acc=acc))
    return EncodedInstruction(name, (_vector(second >> 24, acc), address, base), told)


def _mubuf(word: int, second: int) -> EncodedInstruction:
    name = _name(_MUBUF, word >> 18 & 0x7F)
    lds, offen, idxen = word >> 16 & 1, word >> 12 & 1, word >> 13 & 1
    told = _told(
        offset=word & 0xFFF,
        offen=offen,
        idxen=idxen,
        sc0=word >> 14 & 1,
        sc1=word >> 15 & 1,
        nt=word >> 17 & 1,
        lds=lds,
        reserved=word >> 25 & 1 | second >> 21 & 3,
    )
    address = _vector(second & 0xFF) if offen or idxen else OFF
    told |= _told(vaddr=0 if offen or idxen else second & 0xFF)
    data = _vector(second >> 8 & 0xFF, second >> 23 & 1)
    resource = ("r", SGPR + 4 * (second >> 16 & 0x1F))
    rest = (address, resource, _source(second >> 24, 0))
    if lds:
        return EncodedInstruction(
            name, rest, told | _told(vdata=second >> 8 & 0xFF, acc=second >> 23 & 1)
        )
    return EncodedInstruction(name, (data, *rest), told)
