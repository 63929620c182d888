"""The vector ALU: `alu` for 32-bit results, one function for compares, one for carries.

Operands are addresses of rows of 64 dwords. Results go to a scratch row and are committed under
EXEC by the caller, so a destination may be one of the sources.
"""

from __future__ import annotations

import math

import numpy as np

from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.lanes import (
    lanes_f32,
    lanes_i32,
    lanes_u32,
    row_add_carry,
    row_operation,
    row_sub_borrow,
)
from mlagen.emulator.gfx950.layout import POISON
from mlagen.emulator.gfx950.numeric import (
    bf16_of,
    cos_of_turns,
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
    scaled_by,
    signed16,
    signed32,
    sin_of_turns,
    u32_of_f32,
)
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    bits_of,
    float32,
    float64,
    int64,
    load_u32,
    store_u32,
    uint32,
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
    """f32 arithmetic lane by lane; the transcendental unit's flush denormals always (ISA guide)."""
    if op >= o.V_LOG_F32 and op <= o.V_COS_F32:
        keep = FLUSH
    for i in range(64):
        x = read_f32(a, i, keep)
        if op == o.V_LOG_F32:
            value = log2_f32(x)
        elif op == o.V_RSQ_F32:
            value = float32(1.0 / math.sqrt(float64(x)))
        elif op == o.V_SIN_F32:
            value = sin_of_turns(x)
        elif op == o.V_COS_F32:
            value = cos_of_turns(x)
        elif op == o.V_FRACT_F32:
            value = float32(x - np.floor(x))
            if value == value:
                value = min_f32(value, f32_from(0x3F7FFFFF))
        elif op == o.V_MED3_F32:
            y = read_f32(b, i, keep)
            z = read_f32(c, i, keep)
            if x != x or y != y or z != z:
                value = min_f32(min_f32(x, y), z)
            else:
                value = max_f32(min_f32(x, y), min_f32(max_f32(x, y), z))
        else:  # V_LDEXP_F32
            power = min(max(signed32(read_int(b, i)), -300), 300)
            value = float32(math.ldexp(float64(x), power))
        write_f32(t, i, value, keep)


@compiled
def alu_convert(op: int, t: int, a: int, b: int, c: int, keep: int, clamp: int, upper: int) -> None:
    """Conversions lane by lane. `clamp`: FP16_OVFL; `upper` picks a source's upper half."""
    for i in range(64):
        x = read_int(a, i)
        y = read_int(b, i)
        if op == o.V_CVT_U32_F32:
            value = u32_of_f32(read_f32(a, i, keep))
        elif op == o.V_CVT_I32_F32:
            value = i32_of_f32(read_f32(a, i, keep))
        elif op == o.V_CVT_F16_F32:
            value = f16_of(flush_bits(x, keep), clamp)
        elif op == o.V_CVT_PK_F16_F32:
            value = f16_of(flush_bits(x, keep), clamp)
            value |= f16_of(flush_bits(y, keep), clamp) << 16
        elif op == o.V_CVT_PKRTZ_F16_F32:
            value = f16_towards_zero(flush_bits(x, keep))
            value |= f16_towards_zero(flush_bits(y, keep)) << 16
        elif op == o.V_CVT_F32_F16:
            value = flush_bits(int64(bits_of(float32(f32_of_f16(x & 0xFFFF)))), keep)
        elif op == o.V_CVT_F32_FP8:
            value = int64(bits_of(float32(f32_of_e4m3(x & 0xFF))))
        elif op == o.V_CVT_F32_BF8:
            value = int64(bits_of(float32(f32_of_e5m2(x & 0xFF))))
        elif op == o.V_CVT_SCALEF32_PK_BF16_FP8:
            word = x >> (16 * upper)
            low = scaled_by(f32_of_e4m3(word & 0xFF), y, 1)
            high = scaled_by(f32_of_e4m3((word >> 8) & 0xFF), y, 1)
            value = bf16_of(int64(bits_of(low))) | bf16_of(int64(bits_of(high))) << 16
        elif op == o.V_CVT_PK_BF8_F32:
            value = e5m2_of(flush_bits(x, keep), clamp) | e5m2_of(flush_bits(y, keep), clamp) << 8
        else:  # divided by the scale, exactly: what f32 cannot hold is beyond or below 8 bits
            scale = read_int(c, i)
            x = int64(bits_of(scaled_by(read_f32(a, i, keep), scale, -1)))
            y = int64(bits_of(scaled_by(read_f32(b, i, keep), scale, -1)))
            if op == o.V_CVT_SCALEF32_PK_FP8_F32:
                value = e4m3_of(x, clamp) | e4m3_of(y, clamp) << 8
            else:
                value = e5m2_of(x, clamp) | e5m2_of(y, clamp) << 8
        write_int(t, i, value)


@compiled
def by_truth_table(x: int, y: int, z: int, table: int) -> int:
    """v_bitop3 of one lane."""
    value = 0
    for bit in range(8):
        if (table >> bit) & 1:
            term = x if bit & 4 else ~x
            term &= y if bit & 2 else ~y
            term &= z if bit & 1 else ~z
            value |= term
    return value


@compiled
def alu_integer(op: int, t: int, a: int, b: int, c: int, aux: int) -> None:
    """32-bit integer operations lane by lane; `aux` is the truth table of v_bitop3."""
    for i in range(64):
        x = read_int(a, i)
        y = read_int(b, i)
        z = read_int(c, i)
        if op == o.V_BITOP3_B32:
            value = by_truth_table(x, y, z, aux)
        elif op == o.V_BITOP3_B16:  # what it leaves in the upper half is not documented
            value = (by_truth_table(x, y, z, aux) & 0xFFFF) | (POISON & 0xFFFF0000)
        elif op == o.V_BFE_I32:
            width = z & 31
            value = (x >> (y & 31)) & ((1 << width) - 1)
            if width != 0 and (value >> (width - 1)) & 1:
                value -= 1 << width
        elif op == o.V_ALIGNBIT_B32:
            value = y >> (z & 31) | x << (32 - (z & 31))
        elif op == o.V_ALIGNBYTE_B32:
            value = y >> (8 * (z & 3)) | x << (32 - 8 * (z & 3))
        elif op == o.V_MBCNT_LO:
            value = count_bits(x & ((1 << min(i, 32)) - 1)) + y
        elif op == o.V_MBCNT_HI:
            value = count_bits(x & ((1 << max(i - 32, 0)) - 1)) + y
        elif op == o.V_BCNT_U32_B32:
            value = count_bits(x) + y
        elif op == o.V_BFREV_B32:
            value = reverse_bits(x)
        elif op == o.V_FFBH_U32:
            value = first_high(x)
        else:  # V_FFBL_B32
            value = first_low(x)
        write_int(t, i, value)


@compiled
def alu(op: int, t: int, a: int, b: int, c: int, keep: int, clamp: int, aux: int) -> None:
    """t = op(a, b, c) on 64 lanes, but for divisions; f32 denormals are treated as `keep` says.

    `clamp`: FP16_OVFL. `aux`: the truth table of v_bitop3, the half that a conversion reads.
    """
    if row_operation(op, t, a, b, c, keep, clamp):
        return
    if op >= o.V_CVT_U32_F32:
        alu_convert(op, t, a, b, c, keep, clamp, aux)
    elif op >= o.V_BITOP3_B32:
        alu_integer(op, t, a, b, c, aux)
    else:
        alu_float(op, t, a, b, c, keep)


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
