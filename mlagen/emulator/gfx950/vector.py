"""The vector ALU: one function for 32-bit results, one for compares, one for carries.

Operands are addresses of rows of 64 dwords. Results go to a scratch row and are committed under
EXEC by the caller, so a destination may be one of the sources.
"""

from __future__ import annotations

import math

import numpy as np

from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.compiling import compiled
from mlagen.emulator.gfx950.lanes import (
    lanes_f32,
    lanes_i32,
    lanes_u32,
    row_add,
    row_add3,
    row_add_carry,
    row_add_shift,
    row_add_u32,
    row_and,
    row_and_or,
    row_exp2,
    row_fma,
    row_max,
    row_max3,
    row_min,
    row_min3,
    row_mov,
    row_mul,
    row_mul_i24,
    row_mul_lo,
    row_or,
    row_pack_bf16,
    row_pack_e4m3,
    row_perm,
    row_rcp,
    row_shift_add,
    row_shift_arithmetic,
    row_shift_left,
    row_shift_or,
    row_shift_right,
    row_sub,
    row_sub_borrow,
    row_sub_u32,
    row_xor,
)
from mlagen.emulator.gfx950.layout import POISON
from mlagen.emulator.gfx950.numeric import (
    bf16_of,
    count_bits,
    e4m3_of,
    e5m2_of,
    f16_of,
    f16_towards_zero,
    f32_from,
    f32_of_e4m3,
    f32_of_e5m2,
    f32_of_f16,
    first_high,
    first_low,
    flush_bits,
    i32_of_f32,
    log2_f32,
    max_f32,
    min_f32,
    reverse_bits,
    round_even,
    scaled_by,
    signed16,
    signed24,
    signed32,
    u32_of_f32,
)
from mlagen.emulator.gfx950.raw import (
    bits_of,
    float32,
    float64,
    int64,
    load_u32,
    store_u32,
    uint32,
    uint64,
)

# The transcendental unit flushes denormals whatever MODE says.
FLUSH = 0x80000000


@compiled
def read_int(row: int, lane: int) -> int:
    return int64(load_u32(row, lane))


@compiled
def read_f32(row: int, lane: int, keep: int) -> float:
    return f32_from(flush_bits(int64(load_u32(row, lane)), keep))


@compiled
def write_int(row: int, lane: int, value: int) -> None:
    store_u32(row, lane, uint32(value))


@compiled
def write_f32(row: int, lane: int, value: float, keep: int) -> None:
    store_u32(row, lane, uint32(flush_bits(int64(bits_of(float32(value))), keep)))


@compiled
def alu_float(op: int, t: int, a: int, b: int, c: int, keep: int) -> None:
    """f32 arithmetic: t = op(a, b, c) on 64 lanes, denormals treated as `keep` says.

    exp, log, rcp, rsq and sqrt flush them always (ISA guide; LLVM says so of rcp and rsq).
    """
    if op == o.V_MUL_F32:
        row_mul(t, a, b, c, keep, 0)
    elif op == o.V_ADD_F32:
        row_add(t, a, b, c, keep, 0)
    elif op == o.V_SUB_F32:
        row_sub(t, a, b, c, keep, 0)
    elif op == o.V_SUBREV_F32:
        row_sub(t, b, a, c, keep, 0)
    elif op == o.V_FMA_F32 or op == o.V_FMAC_F32:
        row_fma(t, a, b, c, keep, 0)
    elif op == o.V_EXP_F32:
        row_exp2(t, a, b, c, FLUSH, 0)
    elif op == o.V_MAX_F32:
        row_max(t, a, b, c, keep, 0)
    elif op == o.V_MIN_F32:
        row_min(t, a, b, c, keep, 0)
    elif op == o.V_MAX3_F32:
        row_max3(t, a, b, c, keep, 0)
    elif op == o.V_MIN3_F32:
        row_min3(t, a, b, c, keep, 0)
    elif op == o.V_MED3_F32:
        for i in range(64):
            x = read_f32(a, i, keep)
            y = read_f32(b, i, keep)
            z = read_f32(c, i, keep)
            if x != x or y != y or z != z:
                value = min_f32(min_f32(x, y), z)
            else:
                value = max_f32(min_f32(x, y), min_f32(max_f32(x, y), z))
            write_f32(t, i, value, keep)
    elif op == o.V_RCP_F32:
        row_rcp(t, a, b, c, FLUSH, 0)
    elif op == o.V_LOG_F32:
        for i in range(64):
            write_f32(t, i, log2_f32(read_f32(a, i, FLUSH)), FLUSH)
    elif op == o.V_RSQ_F32:
        for i in range(64):
            write_f32(t, i, 1.0 / math.sqrt(float64(read_f32(a, i, FLUSH))), FLUSH)
    elif op == o.V_SQRT_F32:
        for i in range(64):
            write_f32(t, i, math.sqrt(float64(read_f32(a, i, FLUSH))), FLUSH)
    elif op == o.V_FRACT_F32:
        for i in range(64):
            x = read_f32(a, i, keep)
            value = float32(x - np.floor(x))
            write_f32(t, i, min_f32(value, f32_from(0x3F7FFFFF)) if value == value else value, keep)
    elif op == o.V_TRUNC_F32:
        for i in range(64):
            write_f32(t, i, np.trunc(read_f32(a, i, keep)), keep)
    elif op == o.V_CEIL_F32:
        for i in range(64):
            write_f32(t, i, np.ceil(read_f32(a, i, keep)), keep)
    elif op == o.V_RNDNE_F32:
        for i in range(64):
            write_f32(t, i, round_even(read_f32(a, i, keep)), keep)
    elif op == o.V_FLOOR_F32:
        for i in range(64):
            write_f32(t, i, np.floor(read_f32(a, i, keep)), keep)
    else:  # V_LDEXP_F32
        for i in range(64):
            power = min(max(signed32(read_int(b, i)), -300), 300)
            write_f32(t, i, math.ldexp(float64(read_f32(a, i, keep)), power), keep)


@compiled
def alu_convert(op: int, t: int, a: int, b: int, keep: int, clamp8: int, upper: int) -> None:
    """Conversions between f32, integers and small floats; `upper` picks a source's upper half."""
    if op == o.V_CVT_PK_BF16_F32:
        row_pack_bf16(t, a, b, a, keep, 0)
    elif op == o.V_CVT_PK_FP8_F32:
        row_pack_e4m3(t, a, b, a, keep, clamp8)
    elif op == o.V_CVT_PK_BF8_F32:
        for i in range(64):
            low = e5m2_of(flush_bits(read_int(a, i), keep), clamp8)
            write_int(t, i, low | e5m2_of(flush_bits(read_int(b, i), keep), clamp8) << 8)
    elif op == o.V_CVT_F32_I32:
        for i in range(64):
            write_f32(t, i, float32(signed32(read_int(a, i))), keep)
    elif op == o.V_CVT_F32_U32:
        for i in range(64):
            write_f32(t, i, float32(read_int(a, i)), keep)
    elif op == o.V_CVT_U32_F32:
        for i in range(64):
            write_int(t, i, u32_of_f32(read_f32(a, i, keep)))
    elif op == o.V_CVT_I32_F32:
        for i in range(64):
            write_int(t, i, i32_of_f32(read_f32(a, i, keep)))
    elif op == o.V_CVT_SCALEF32_PK_BF16_FP8:
        for i in range(64):
            word = read_int(a, i) >> (16 * upper)
            low = scaled_by(f32_of_e4m3(word & 0xFF), read_int(b, i), 1)
            high = scaled_by(f32_of_e4m3((word >> 8) & 0xFF), read_int(b, i), 1)
            value = bf16_of(int64(bits_of(low)))
            write_int(t, i, value | bf16_of(int64(bits_of(high))) << 16)
    elif op == o.V_CVT_F16_F32:
        for i in range(64):
            write_int(t, i, f16_of(flush_bits(read_int(a, i), keep), clamp8))
    elif op == o.V_CVT_F32_F16:
        for i in range(64):
            write_f32(t, i, f32_of_f16(read_int(a, i) & 0xFFFF), keep)
    else:  # V_CVT_F32_UBYTE0 .. 3
        shift = 8 * (op - o.V_CVT_F32_UBYTE0)
        for i in range(64):
            write_f32(t, i, float32((read_int(a, i) >> shift) & 0xFF), keep)


@compiled
def alu_convert_more(op: int, t: int, a: int, b: int, c: int, keep: int, clamp: int) -> None:
    """Pairs of f32 to f16 or, scaled, to 8 bits; bf16 and 8 bits to f32; `clamp`: FP16_OVFL."""
    for i in range(64):
        x = read_int(a, i)
        y = read_int(b, i)
        if op == o.V_CVT_PKRTZ_F16_F32:
            value = f16_towards_zero(flush_bits(x, keep))
            value |= f16_towards_zero(flush_bits(y, keep)) << 16
        elif op == o.V_CVT_PK_F16_F32:
            value = f16_of(flush_bits(x, keep), clamp)
            value |= f16_of(flush_bits(y, keep), clamp) << 16
        elif op == o.V_CVT_F32_BF16:  # the guide moves the bits and says nothing of denormals
            value = x << 16
        elif op == o.V_CVT_F32_FP8:
            value = int64(bits_of(float32(f32_of_e4m3(x & 0xFF))))
        elif op == o.V_CVT_F32_BF8:
            value = int64(bits_of(float32(f32_of_e5m2(x & 0xFF))))
        else:  # divided by the scale, exactly: what f32 cannot hold is beyond or below 8 bits
            scale = read_int(c, i)
            low = int64(bits_of(scaled_by(read_f32(a, i, keep), scale, -1)))
            high = int64(bits_of(scaled_by(read_f32(b, i, keep), scale, -1)))
            if op == o.V_CVT_SCALEF32_PK_FP8_F32:
                value = e4m3_of(low, clamp) | e4m3_of(high, clamp) << 8
            else:
                value = e5m2_of(low, clamp) | e5m2_of(high, clamp) << 8
        write_int(t, i, value)


@compiled
def alu_integer(op: int, t: int, a: int, b: int, c: int, aux: int) -> None:
    """32-bit integer operations; `aux` is the truth table of v_bitop3."""
    if op == o.V_MOV_B32:
        row_mov(t, a, b, c, 0, 0)
    elif op == o.V_ADD_U32:
        row_add_u32(t, a, b, c, 0, 0)
    elif op == o.V_SUB_U32:
        row_sub_u32(t, a, b, c, 0, 0)
    elif op == o.V_SUBREV_U32:
        row_sub_u32(t, b, a, c, 0, 0)
    elif op == o.V_ADD3_U32:
        row_add3(t, a, b, c, 0, 0)
    elif op == o.V_AND_B32:
        row_and(t, a, b, c, 0, 0)
    elif op == o.V_OR_B32:
        row_or(t, a, b, c, 0, 0)
    elif op == o.V_XOR_B32:
        row_xor(t, a, b, c, 0, 0)
    elif op == o.V_XNOR_B32:
        for i in range(64):
            write_int(t, i, ~(read_int(a, i) ^ read_int(b, i)))
    elif op == o.V_NOT_B32:
        for i in range(64):
            write_int(t, i, ~read_int(a, i))
    elif op == o.V_LSHLREV_B32:
        row_shift_left(t, a, b, c, 0, 0)
    elif op == o.V_LSHRREV_B32:
        row_shift_right(t, a, b, c, 0, 0)
    elif op == o.V_ASHRREV_I32:
        row_shift_arithmetic(t, a, b, c, 0, 0)
    elif op == o.V_LSHL_ADD_U32:
        row_shift_add(t, a, b, c, 0, 0)
    elif op == o.V_ADD_LSHL_U32:
        row_add_shift(t, a, b, c, 0, 0)
    elif op == o.V_LSHL_OR_B32:
        row_shift_or(t, a, b, c, 0, 0)
    elif op == o.V_AND_OR_B32:
        row_and_or(t, a, b, c, 0, 0)
    elif op == o.V_OR3_B32:
        for i in range(64):
            write_int(t, i, read_int(a, i) | read_int(b, i) | read_int(c, i))
    elif op == o.V_XAD_U32:
        for i in range(64):
            write_int(t, i, (read_int(a, i) ^ read_int(b, i)) + read_int(c, i))
    elif op == o.V_PERM_B32:
        row_perm(t, a, b, c, 0, 0)
    elif (
        op == o.V_BITOP3_B32
        or op == o.V_BITOP3_B16
        or op == o.V_BFE_U32
        or op == o.V_BFE_I32
        or op == o.V_BFI_B32
        or op == o.V_BFM_B32
        or op == o.V_ALIGNBIT_B32
        or op == o.V_ALIGNBYTE_B32
    ):
        alu_bits(op, t, a, b, c, aux)
    elif op >= o.V_ADD_U16:
        alu_halfword(op, t, a, b, c)
    else:
        alu_integer_rare(op, t, a, b, c)


@compiled
def alu_bits(op: int, t: int, a: int, b: int, c: int, aux: int) -> None:
    """Bit fields, alignment, truth tables."""
    if op == o.V_BITOP3_B32 or op == o.V_BITOP3_B16:
        for i in range(64):
            x = read_int(a, i)
            y = read_int(b, i)
            z = read_int(c, i)
            value = 0
            for bit in range(8):
                if (aux >> bit) & 1:
                    term = x if bit & 4 else ~x
                    term &= y if bit & 2 else ~y
                    term &= z if bit & 1 else ~z
                    value |= term
            if op == o.V_BITOP3_B16:
                value = (value & 0xFFFF) | (POISON & 0xFFFF0000)
            write_int(t, i, value)
    elif op == o.V_BFE_U32:
        for i in range(64):
            width = read_int(c, i) & 31
            value = read_int(a, i) >> (read_int(b, i) & 31)
            write_int(t, i, value & ((1 << width) - 1))
    elif op == o.V_BFE_I32:
        for i in range(64):
            width = read_int(c, i) & 31
            value = (read_int(a, i) >> (read_int(b, i) & 31)) & ((1 << width) - 1)
            if width != 0 and (value >> (width - 1)) & 1:
                value -= 1 << width
            write_int(t, i, value)
    elif op == o.V_BFI_B32:
        for i in range(64):
            mask = read_int(a, i)
            write_int(t, i, (mask & read_int(b, i)) | (~mask & read_int(c, i)))
    elif op == o.V_BFM_B32:
        for i in range(64):
            width = read_int(a, i) & 31
            write_int(t, i, ((1 << width) - 1) << (read_int(b, i) & 31))
    elif op == o.V_ALIGNBIT_B32:
        for i in range(64):
            shift = read_int(c, i) & 31
            value = read_int(b, i) >> shift | read_int(a, i) << (32 - shift)
            write_int(t, i, value)
    else:  # V_ALIGNBYTE_B32
        for i in range(64):
            shift = 8 * (read_int(c, i) & 3)
            value = read_int(b, i) >> shift | read_int(a, i) << (32 - shift)
            write_int(t, i, value)


@compiled
def alu_halfword(op: int, t: int, a: int, b: int, c: int) -> None:
    """16-bit integers in the lower halves; the upper half of the result is zero."""
    for i in range(64):
        x = read_int(a, i) & 0xFFFF
        y = read_int(b, i) & 0xFFFF
        if op == o.V_ADD_U16:
            value = x + y
        elif op == o.V_SUB_U16:
            value = x - y
        elif op == o.V_SUBREV_U16:
            value = y - x
        elif op == o.V_MUL_LO_U16:
            value = x * y
        elif op == o.V_MAD_LEGACY_U16:
            value = x * y + read_int(c, i)
        elif op == o.V_LSHLREV_B16:
            value = y << (x & 15)
        elif op == o.V_LSHRREV_B16:
            value = y >> (x & 15)
        elif op == o.V_ASHRREV_I16:
            value = signed16(y) >> (x & 15)
        elif op == o.V_MIN_U16:
            value = min(x, y)
        elif op == o.V_MAX_U16:
            value = max(x, y)
        elif op == o.V_MIN_I16:
            value = min(signed16(x), signed16(y))
        else:  # V_MAX_I16
            value = max(signed16(x), signed16(y))
        write_int(t, i, value & 0xFFFF)


@compiled
def alu_of_three(op: int, t: int, a: int, b: int, c: int) -> None:
    """The least, the largest or the middle of three integers."""
    signed = op == o.V_MIN3_I32 or op == o.V_MAX3_I32 or op == o.V_MED3_I32
    for i in range(64):
        x = read_int(a, i)
        y = read_int(b, i)
        z = read_int(c, i)
        if signed:
            x = signed32(x)
            y = signed32(y)
            z = signed32(z)
        if op == o.V_MIN3_I32 or op == o.V_MIN3_U32:
            write_int(t, i, min(min(x, y), z))
        elif op == o.V_MAX3_I32 or op == o.V_MAX3_U32:
            write_int(t, i, max(max(x, y), z))
        else:
            write_int(t, i, max(min(x, y), min(max(x, y), z)))


@compiled
def alu_integer_rare(op: int, t: int, a: int, b: int, c: int) -> None:
    """Multiplies, extrema and bit counts."""
    if op == o.V_MUL_I32_I24:
        row_mul_i24(t, a, b, c, 0, 0)
    elif op == o.V_MUL_U32_U24:
        for i in range(64):
            write_int(t, i, (read_int(a, i) & 0xFFFFFF) * (read_int(b, i) & 0xFFFFFF))
    elif op == o.V_MUL_HI_U32_U24:
        for i in range(64):
            write_int(t, i, ((read_int(a, i) & 0xFFFFFF) * (read_int(b, i) & 0xFFFFFF)) >> 32)
    elif op == o.V_MAD_U32_U24:
        for i in range(64):
            product = (read_int(a, i) & 0xFFFFFF) * (read_int(b, i) & 0xFFFFFF)
            write_int(t, i, product + read_int(c, i))
    elif op == o.V_MAD_I32_I24:
        for i in range(64):
            product = signed24(read_int(a, i)) * signed24(read_int(b, i))
            write_int(t, i, product + read_int(c, i))
    elif op == o.V_MUL_LO_U32:
        row_mul_lo(t, a, b, c, 0, 0)
    elif op == o.V_MUL_HI_U32:
        for i in range(64):
            product = uint64(read_int(a, i)) * uint64(read_int(b, i))
            write_int(t, i, int64(product >> uint64(32)))
    elif op == o.V_MUL_HI_I32:
        for i in range(64):
            write_int(t, i, (signed32(read_int(a, i)) * signed32(read_int(b, i))) >> 32)
    elif op == o.V_MIN_I32:
        for i in range(64):
            write_int(t, i, min(signed32(read_int(a, i)), signed32(read_int(b, i))))
    elif op == o.V_MAX_I32:
        for i in range(64):
            write_int(t, i, max(signed32(read_int(a, i)), signed32(read_int(b, i))))
    elif op == o.V_MIN_U32:
        for i in range(64):
            write_int(t, i, min(read_int(a, i), read_int(b, i)))
    elif op == o.V_MAX_U32:
        for i in range(64):
            write_int(t, i, max(read_int(a, i), read_int(b, i)))
    elif (
        op == o.V_MIN3_I32
        or op == o.V_MAX3_I32
        or op == o.V_MED3_I32
        or op == o.V_MIN3_U32
        or op == o.V_MAX3_U32
        or op == o.V_MED3_U32
    ):
        alu_of_three(op, t, a, b, c)
    elif op == o.V_MBCNT_LO:
        for i in range(64):
            below = (1 << min(i, 32)) - 1
            write_int(t, i, count_bits(read_int(a, i) & below) + read_int(b, i))
    elif op == o.V_MBCNT_HI:
        for i in range(64):
            below = (1 << max(i - 32, 0)) - 1
            write_int(t, i, count_bits(read_int(a, i) & below) + read_int(b, i))
    elif op == o.V_BCNT_U32_B32:
        for i in range(64):
            write_int(t, i, count_bits(read_int(a, i)) + read_int(b, i))
    elif op == o.V_BFREV_B32:
        for i in range(64):
            write_int(t, i, reverse_bits(read_int(a, i)))
    elif op == o.V_FFBH_U32:
        for i in range(64):
            write_int(t, i, first_high(read_int(a, i)))
    else:  # V_FFBL_B32
        for i in range(64):
            write_int(t, i, first_low(read_int(a, i)))


@compiled
def add_carry(op: int, t: int, a: int, b: int, mask: int) -> int:
    """Adds and subtracts with carry; the lane mask of carries (borrows) out is returned."""
    carry = mask if op & o.CARRY_IN else 0
    if op & o.CARRY_REVERSE:
        a, b = b, a
    if op & o.CARRY_SUB:
        return row_sub_borrow(t, a, b, carry)
    return row_add_carry(t, a, b, carry)


@compiled
def _holds_int(relation: int, x: int, y: int) -> bool:
    if relation == 0:
        return False
    if relation == 1:
        return x < y
    if relation == 2:
        return x == y
    if relation == 3:
        return x <= y
    if relation == 4:
        return x > y
    if relation == 5:
        return x != y
    if relation == 6:
        return x >= y
    return True


@compiled
def class_of_f32(bits: int) -> int:
    """One-hot class number of an f32 (CDNA4 ISA guide, V_CMP_CLASS)."""
    sign = (bits >> 31) & 1
    exponent = (bits >> 23) & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 255:
        if fraction:
            return 2 if fraction & 0x400000 else 1
        return 4 if sign else 512
    if exponent == 0:
        if fraction:
            return 16 if sign else 128
        return 32 if sign else 64
    return 8 if sign else 256


@compiled
def compare(op: int, a: int, b: int, a_high: int, b_high: int, keep: int) -> int:
    """Lane mask of a compare; the high rows matter for 64-bit integers only.

    A relation is a set of outcomes: less (bit 0), equal (bit 1), greater (bit 2).
    """
    out = 0
    kind = op >> 4
    relation = op & 15
    if op == o.CMP_CLASS:
        for i in range(64):
            if class_of_f32(read_int(a, i)) & read_int(b, i):
                out |= 1 << i
    elif kind == o.CMP_F32:
        # The upper eight relations are complements of the lower eight, reversed (ISA guide, V_CMP).
        if relation < 8:
            return lanes_f32(a, b, relation, keep)
        return ~lanes_f32(a, b, 15 - relation, keep)
    elif kind == o.CMP_I32:
        return lanes_i32(a, b, relation, keep)
    elif kind == o.CMP_U32:
        return lanes_u32(a, b, relation, keep)
    elif kind == o.CMP_I16:
        for i in range(64):
            if _holds_int(relation, signed16(read_int(a, i)), signed16(read_int(b, i))):
                out |= 1 << i
    elif kind == o.CMP_U16:
        for i in range(64):
            if _holds_int(relation, read_int(a, i) & 0xFFFF, read_int(b, i) & 0xFFFF):
                out |= 1 << i
    else:
        flip = -0x8000000000000000 if kind == o.CMP_U64 else 0
        for i in range(64):
            x = (read_int(a, i) | read_int(a_high, i) << 32) ^ flip
            y = (read_int(b, i) | read_int(b_high, i) << 32) ^ flip
            if _holds_int(relation, x, y):
                out |= 1 << i
    return out
