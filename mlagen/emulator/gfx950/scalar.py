"""The scalar ALU: operations on SGPRs with SCC (CDNA4 ISA guide, SOP1, SOP2, SOPC, SOPK)."""

from __future__ import annotations

from mlagen.binary.operand import EXEC, M0, SCC
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.numeric import (
    count_bits,
    first_high,
    first_low,
    reverse_bits,
    signed32,
)
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_u32, store_u32, uint32, uint64


@compiled
def get32(scalars: int, index: int) -> int:
    return int64(load_u32(scalars, index))


@compiled
def get64(scalars: int, index: int) -> int:
    return int64(load_u32(scalars, index)) | int64(load_u32(scalars, index + 1)) << 32


@compiled
def put32(scalars: int, index: int, value: int) -> None:
    store_u32(scalars, index, uint32(value))


@compiled
def put64(scalars: int, index: int, value: int) -> None:
    store_u32(scalars, index, uint32(value))
    store_u32(scalars, index + 1, uint32(value >> 32))


@compiled
def put32_scc(scalars: int, dst: int, value: int) -> None:
    """A 32-bit result; SCC: it is not zero."""
    put32(scalars, dst, value)
    put32(scalars, SCC, 1 if value & 0xFFFFFFFF != 0 else 0)


@compiled
def put64_scc(scalars: int, dst: int, value: int) -> None:
    put64(scalars, dst, value)
    put32(scalars, SCC, 1 if value != 0 else 0)


@compiled
def scalar_compare(op: int, scalars: int, a: int, b: int) -> None:
    """s_cmp_*: SCC = relation. a and b are 64-bit values, zero-extended for 32-bit compares.

    The relations have the same order for all types: eq, lg, gt, ge, lt, le; 64 bits have two.
    """
    if op < o.S_CMP_EQ_U32:
        a = signed32(a)
        b = signed32(b)
    relation = (op - o.S_CMP_EQ_I32) % 6
    if op == o.S_BITCMP0_B32:
        value = ((a >> (b & 31)) & 1) == 0
    elif op == o.S_BITCMP1_B32:
        value = ((a >> (b & 31)) & 1) == 1
    elif relation == 0:
        value = a == b
    elif relation == 1:
        value = a != b
    elif relation == 2:
        value = a > b
    elif relation == 3:
        value = a >= b
    elif relation == 4:
        value = a < b
    else:
        value = a <= b
    put32(scalars, SCC, 1 if value else 0)


@compiled
def scalar_add(op: int, scalars: int, dst: int, a: int, b: int) -> None:
    """Adds, subtracts and extrema: SCC is the carry, the overflow or "first was taken"."""
    if op == o.S_ADD_U32:
        value = a + b
        scc = value >> 32
    elif op == o.S_SUB_U32:
        value = a - b
        scc = 1 if a < b else 0
    elif op == o.S_ADDC_U32:
        value = a + b + get32(scalars, SCC)
        scc = value >> 32
    elif op == o.S_SUBB_U32:
        borrow = get32(scalars, SCC)
        value = a - b - borrow
        scc = 1 if a < b + borrow else 0
    elif op == o.S_ADD_I32:
        value = signed32(a) + signed32(b)
        scc = 1 if value != signed32(value & 0xFFFFFFFF) else 0
    elif op == o.S_SUB_I32:
        value = signed32(a) - signed32(b)
        scc = 1 if value != signed32(value & 0xFFFFFFFF) else 0
    elif op == o.S_MIN_I32:
        value = min(signed32(a), signed32(b))
        scc = 1 if signed32(a) < signed32(b) else 0
    elif op == o.S_MAX_I32:
        value = max(signed32(a), signed32(b))
        scc = 1 if signed32(a) > signed32(b) else 0
    elif op == o.S_MIN_U32:
        value = min(a, b)
        scc = 1 if a < b else 0
    else:  # S_MAX_U32
        value = max(a, b)
        scc = 1 if a > b else 0
    put32(scalars, dst, value)
    put32(scalars, SCC, scc & 1)


@compiled
def scalar_logic(op: int, a: int, b: int) -> int:
    """Bitwise operations; 32-bit forms use the low half only."""
    if op == o.S_AND_B32 or op == o.S_AND_B64 or op == o.S_AND_SAVEEXEC_B64:
        return a & b
    if op == o.S_OR_B32 or op == o.S_OR_B64 or op == o.S_OR_SAVEEXEC_B64:
        return a | b
    if op == o.S_XOR_B32 or op == o.S_XOR_B64:
        return a ^ b
    if op == o.S_ANDN2_B32 or op == o.S_ANDN2_B64 or op == o.S_ANDN2_SAVEEXEC_B64:
        return a & ~b
    if op == o.S_ORN2_B32 or op == o.S_ORN2_B64:
        return a | ~b
    if op == o.S_NAND_B32:
        return ~(a & b)
    if op == o.S_NOR_B32:
        return ~(a | b)
    return ~(a ^ b)  # xnor


@compiled
def scalar_shift(op: int, a: int, b: int) -> int:
    """Shifts and bit fields of 32 bits."""
    if op == o.S_LSHL_B32:
        return a << (b & 31)
    if op == o.S_LSHR_B32:
        return a >> (b & 31)
    if op == o.S_ASHR_I32:
        return signed32(a) >> (b & 31)
    if op == o.S_BFE_U32 or op == o.S_BFE_I32:
        offset = b & 31
        width = min((b >> 16) & 0x7F, 32)
        if width == 0:
            return 0
        value = (a >> offset) & ((1 << width) - 1)
        if op == o.S_BFE_I32 and (value >> (width - 1)) & 1:
            value -= 1 << width
        return value
    return (a << (op - o.S_LSHL1_ADD_U32 + 1)) + b


@compiled
def scalar_alu(op: int, scalars: int, dst: int, a: int, b: int, imm: int) -> None:
    """Execute one scalar operation. a, b: 64-bit operand values; imm: sign-extended SIMM16."""
    if op >= o.S_CMP_EQ_I32 and op <= o.S_BITCMP1_B32:
        scalar_compare(op, scalars, a, b)
    elif op >= o.S_ADD_U32 and op <= o.S_MAX_U32:
        scalar_add(op, scalars, dst, a, b)
    elif op == o.S_MOV_B32:
        put32(scalars, dst, a)
    elif op == o.S_MOV_B64:
        put64(scalars, dst, a)
    elif op == o.S_MOVK_I32:
        put32(scalars, dst, imm)
    elif op == o.S_ADDK_I32:
        value = signed32(get32(scalars, dst)) + imm
        put32(scalars, SCC, 1 if value != signed32(value & 0xFFFFFFFF) else 0)
        put32(scalars, dst, value)
    elif op == o.S_MULK_I32:
        put32(scalars, dst, signed32(get32(scalars, dst)) * imm)
    elif op == o.S_CMOVK_I32:
        if get32(scalars, SCC):
            put32(scalars, dst, imm)
    elif op == o.S_CMOV_B32:
        if get32(scalars, SCC):
            put32(scalars, dst, a)
    elif op == o.S_CMOV_B64:
        if get32(scalars, SCC):
            put64(scalars, dst, a)
    elif op == o.S_CSELECT_B32:
        put32(scalars, dst, a if get32(scalars, SCC) else b)
    elif op == o.S_CSELECT_B64:
        put64(scalars, dst, a if get32(scalars, SCC) else b)
    elif op == o.S_MUL_I32:
        put32(scalars, dst, a * b)
    elif op == o.S_MUL_HI_U32:
        put32(scalars, dst, int64((uint64(a) * uint64(b)) >> uint64(32)))
    elif op == o.S_MUL_HI_I32:
        put32(scalars, dst, (signed32(a) * signed32(b)) >> 32)
    elif op >= o.S_AND_B64 and op <= o.S_XNOR_B64:
        put64_scc(scalars, dst, scalar_logic(op, a, b))
    elif op >= o.S_AND_B32 and op <= o.S_XNOR_B32:
        put32_scc(scalars, dst, scalar_logic(op, a, b))
    elif op >= o.S_AND_SAVEEXEC_B64 and op <= o.S_ANDN2_SAVEEXEC_B64:
        saved = get64(scalars, EXEC)
        put64(scalars, dst, saved)
        put64_scc(scalars, EXEC, scalar_logic(op, a, saved))
    elif op == o.S_LSHL_B64 or op == o.S_LSHR_B64 or op == o.S_ASHR_I64:
        if op == o.S_LSHL_B64:
            value = a << (b & 63)
        elif op == o.S_ASHR_I64:
            value = a >> (b & 63)
        else:
            value = int64(uint64(a) >> uint64(b & 63))
        put64_scc(scalars, dst, value)
    elif op == o.S_BFM_B32:
        put32(scalars, dst, ((1 << (a & 31)) - 1) << (b & 31))
    elif op >= o.S_LSHL_B32 and op <= o.S_LSHL4_ADD_U32:
        value = scalar_shift(op, a, b)
        put32_scc(scalars, dst, value)
        if op >= o.S_LSHL1_ADD_U32:
            put32(scalars, SCC, 1 if (value >> 32) != 0 else 0)
    else:
        scalar_rare(op, scalars, dst, a, b, imm)


@compiled
def scalar_rare(op: int, scalars: int, dst: int, a: int, b: int, imm: int) -> None:
    """Counts, packs, sign extensions and the index mode's register."""
    if op == o.S_NOT_B32:
        put32_scc(scalars, dst, ~a)
    elif op == o.S_NOT_B64:
        put64_scc(scalars, dst, ~a)
    elif op == o.S_ABS_I32:
        put32_scc(scalars, dst, abs(signed32(a)))
    elif op == o.S_BCNT1_I32_B32 or op == o.S_BCNT1_I32_B64:
        put32_scc(scalars, dst, count_bits(a))
    elif op == o.S_BREV_B32:
        put32(scalars, dst, reverse_bits(a))
    elif op == o.S_FF1_I32_B32:
        put32(scalars, dst, first_low(a))
    elif op == o.S_FF1_I32_B64:
        value = first_low(a & 0xFFFFFFFF)
        if value < 0 and (a >> 32) & 0xFFFFFFFF != 0:
            value = 32 + first_low((a >> 32) & 0xFFFFFFFF)
        put32(scalars, dst, value)
    elif op == o.S_BFM_B64:
        put64(scalars, dst, ((1 << (a & 63)) - 1) << (b & 63))
    elif op == o.S_FLBIT_I32_B32:
        put32(scalars, dst, first_high(a))
    elif op == o.S_SEXT_I32_I8:
        put32(scalars, dst, ((a & 0xFF) ^ 0x80) - 0x80)
    elif op == o.S_SEXT_I32_I16:
        put32(scalars, dst, ((a & 0xFFFF) ^ 0x8000) - 0x8000)
    elif op == o.S_PACK_LL_B32_B16:
        put32(scalars, dst, (a & 0xFFFF) | (b & 0xFFFF) << 16)
    elif op == o.S_PACK_LH_B32_B16:
        put32(scalars, dst, (a & 0xFFFF) | (b & 0xFFFF0000))
    elif op == o.S_PACK_HH_B32_B16:
        put32(scalars, dst, ((a >> 16) & 0xFFFF) | (b & 0xFFFF0000))
    elif op == o.S_BITSET0_B32:
        put32(scalars, dst, get32(scalars, dst) & ~(1 << (a & 31)))
    elif op == o.S_BITSET1_B32:
        put32(scalars, dst, get32(scalars, dst) | 1 << (a & 31))
    elif op == o.S_SET_GPR_IDX_ON:
        kept = get32(scalars, M0) & 0xFFFF0F00
        put32(scalars, M0, kept | (a & 0xFF) | (imm & 15) << 12)
