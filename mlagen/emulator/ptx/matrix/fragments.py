"""D, and A in registers, between the registers of a warp and the work space.

A warp has 16 rows: lane l those numbered l / 4 and l / 4 + 8 (PTX ISA, "Register Fragments").
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    bits_of,
    f32_of,
    float32,
    int64,
    load_f32,
    load_i64,
    load_u32,
    store_f32,
    store_u32,
    uint32,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.elements import half_value, per_chunk, take_core
from mlagen.emulator.ptx.matrix.vectors import decoded, mixed, parted
from mlagen.emulator.ptx.state import listed, place


@compiled
def half_bits(number: float) -> int:
    """The f16 nearest to an f32, ties to even; NaN is 0x7fff."""
    bits = int64(bits_of(number))
    sign = (bits >> 16) & 0x8000
    size = bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return 0x7FFF
    if size >= 0x477FF000:
        return sign | 0x7C00
    if size < 0x38800000:  # below the least normal f16: whole steps of 2^-24
        steps = f32_of(uint32(size)) * float32(16777216.0) + float32(8388608.0)
        return sign | (int64(bits_of(steps)) & 0x7FF)
    size += 0xFFF + ((size >> 13) & 1)
    return sign | ((size - 0x38000000) >> 13)


@compiled
def sums_type(p: int) -> int:
    """The type of D that a program row says."""
    return (load_i64(p, y.P_AUX + m.X_SUMS) >> 16) & 0xFF


@compiled
def take_sums(context: int, warp: int, p: int, columns: int, first: int) -> None:
    """The registers from `first` of the row's list into the work space, as D."""
    temp = load_i64(context, y.C_TEMP)
    packed = sums_type(p) == m.D_F16
    for j in range(columns // 8):
        for half in range(2):
            into = temp + m.D_VALUE + 4 * (m.COLUMNS * 8 * half + 8 * j)
            if packed:
                row = place(context, warp, listed(context, p, first + 2 * j + half))
                for lane in range(y.LANES):
                    bits = int64(load_u32(row, lane))
                    at = m.COLUMNS * (lane >> 2) + 2 * (lane & 3)
                    store_f32(into, at, half_value(bits & 0xFFFF))
                    store_f32(into, at + 1, half_value(bits >> 16))
            else:
                even = place(context, warp, listed(context, p, first + 4 * j + 2 * half))
                odd = place(context, warp, listed(context, p, first + 4 * j + 2 * half + 1))
                mixed(even, odd, into)


@compiled
def give_sums(context: int, warp: int, p: int, columns: int) -> None:
    """The work space's D into registers."""
    temp = load_i64(context, y.C_TEMP)
    packed = sums_type(p) == m.D_F16
    for j in range(columns // 8):
        for half in range(2):
            source = temp + m.D_VALUE + 4 * (m.COLUMNS * 8 * half + 8 * j)
            if packed:
                row = place(context, warp, listed(context, p, 2 * j + half))
                for lane in range(y.LANES):
                    at = m.COLUMNS * (lane >> 2) + 2 * (lane & 3)
                    low = half_bits(load_f32(source, at))
                    high = half_bits(load_f32(source, at + 1))
                    store_u32(row, lane, uint32(low | (high << 16)))
            else:
                even = place(context, warp, listed(context, p, 4 * j + 2 * half))
                odd = place(context, warp, listed(context, p, 4 * j + 2 * half + 1))
                parted(even, odd, source)


@compiled
def clear_sums(temp: int, columns: int) -> None:
    """D is 0."""
    for row in range(m.ROWS):
        for column in range(columns):
            store_u32(temp + m.D_VALUE, row * m.COLUMNS + column, uint32(0))


@compiled
def take_fragment(context: int, warp: int, p: int, first: int, registers: int, form: int) -> None:
    """A of 16 rows from registers `first` … of the row's list. `form`: type | negated << 9. A
    register is a core matrix."""
    temp = load_i64(context, y.C_TEMP)
    kind = form & 0xFF
    negated = (form >> 9) & 1
    count = per_chunk(kind)  # elements of a row of a core matrix
    for number in range(registers):
        row = place(context, warp, listed(context, p, first + number))
        at = m.DEPTH * 8 * (number & 1) + count * (number >> 1)
        if kind == m.TF32:
            for lane in range(y.LANES):
                bits = int64(load_u32(row, lane)) & 0xFFFFE000
                where = at + m.DEPTH * (lane >> 2) + (lane & 3)
                store_u32(temp + m.A_VALUE, where, uint32(bits ^ (negated << 31)))
        else:
            for part in range(count // 8):
                into = temp + m.A_WORDS + 2 * (at + 8 * part)
                take_core(row, 8 * part, 16, 0, into, 2 * m.DEPTH, count >> 4)
    if kind != m.TF32:
        depth = count * (registers >> 1)
        words = temp + m.A_WORDS
        decoded(kind, words, temp + m.A_VALUE, m.ROWS, depth, m.DEPTH, negated)


@compiled
def take_columns(context: int, warp: int, p: int, first: int, registers: int, kind: int) -> None:
    """B of 8 columns, "col", from registers of mma.sync."""
    temp = load_i64(context, y.C_TEMP)
    count = per_chunk(kind)
    for number in range(registers):
        row = place(context, warp, listed(context, p, first + number))
        deep = count * number
        if kind == m.TF32:
            for lane in range(y.LANES):
                bits = int64(load_u32(row, lane)) & 0xFFFFE000
                at = m.COLUMNS * (deep + (lane & 3)) + (lane >> 2)
                store_u32(temp + m.B_VALUE, at, uint32(bits))
        else:
            for part in range(count // 8):
                into = temp + m.B_WORDS + 2 * m.COLUMNS * (deep + 8 * part)
                take_core(row, 8 * part, 16, 0, into, 2 * m.COLUMNS, 2 | count >> 4)
    if kind != m.TF32:
        words = temp + m.B_WORDS
        decoded(kind, words, temp + m.B_VALUE, count * registers, 8, m.COLUMNS, 0)
