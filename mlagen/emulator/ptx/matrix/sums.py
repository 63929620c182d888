"""Sums of products: fast, in f32 one after the other, and exact, as the tensor core adds.

Exact: the products of a step and the accumulator are aligned to the greatest exponent among them,
each is cut to some bits behind it, the rest is one exact sum, and that is cut to the result, or
rounded to an f16 (arithmetic/dot.py has the parameters and where they come from).
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import (
    bits_of,
    f32_of,
    f64_of,
    float32,
    float64,
    fma_f32,
    int32,
    int64,
    load_f32,
    load_i32,
    load_i64,
    store_f32,
    store_i32,
    store_i64,
    uint32,
)
from mlagen.emulator.ptx.matrix import layout as m
from mlagen.emulator.ptx.matrix.elements import half_value
from mlagen.emulator.ptx.matrix.fragments import half_bits

NONE_YET = -(1 << 20)
LEAST = -200  # below all exponents there are
HALF = 10  # bits of the result's fraction where that is an f16


@compiled
def sum_fast(temp: int, columns: int, depth: int) -> None:
    """D += A B in f32, each product added with one rounding."""
    for row in range(m.ROWS):
        into = temp + m.D_VALUE + 4 * m.COLUMNS * row
        for deep in range(depth):
            a = load_f32(temp + m.A_VALUE, row * m.DEPTH + deep)
            b = temp + m.B_VALUE + 4 * m.COLUMNS * deep
            for column in range(columns):
                store_f32(into, column, fma_f32(a, load_f32(b, column), load_f32(into, column)))


@compiled
def sum_whole(temp: int, columns: int, depth: int) -> None:
    """D += A B of whole numbers, modulo 2^32."""
    for row in range(m.ROWS):
        into = temp + m.D_VALUE + 4 * m.COLUMNS * row
        for deep in range(depth):
            a = load_i32(temp + m.A_VALUE, row * m.DEPTH + deep)
            b = temp + m.B_VALUE + 4 * m.COLUMNS * deep
            for column in range(columns):
                made = int64(load_i32(into, column)) + int64(a) * int64(load_i32(b, column))
                store_i32(into, column, int32(made))


@compiled
def special_sum(temp: int, row: int, column: int, first: int, count: int) -> float:
    """A sum with NaN or Inf in it, or the finite sum as f64 gives it."""
    total = float64(load_f32(temp + m.D_VALUE, row * m.COLUMNS + column))
    for deep in range(first, first + count):
        a = float64(load_f32(temp + m.A_VALUE, row * m.DEPTH + deep))
        b = float64(load_f32(temp + m.B_VALUE, deep * m.COLUMNS + column))
        total += a * b
    made = float32(total)
    if made != made:
        made = f32_of(uint32(0x7FFFFFFF))
    return made


@spliced
def cut(number: float) -> float:
    """An f64 as f32, rounded towards zero."""
    made = float32(number)
    if abs(float64(made)) > abs(number):
        made = f32_of(uint32(int64(bits_of(made)) - 1))
    return made


@compiled
def rounded_half(number: float) -> float:
    """An f64 rounded to the nearest f16, ties to even; never -0."""
    near = cut(number)
    if float64(near) != number:  # to odd: what was cut off decides between halves
        near = f32_of(uint32(int64(bits_of(near)) | 1))
    bits = half_bits(near)
    return half_value(0 if bits == 0x8000 else bits)


@spliced
def aligned(significand: int, up: int, down: int) -> int:
    """A significand moved by `up - down` bits, cut towards zero."""
    size = abs(significand) << up
    moved = size >> min(down, 62)
    return moved if significand >= 0 else -moved


@compiled
def sum_step(temp: int, row: int, columns: int, first: int, count: int, form: int) -> None:
    """One step of the exact sum: `count` products from `first` and the accumulator of a row.
    `form`: bits behind the greatest exponent | stored bits of A's and B's significands together
    << 8 | bits of the result's fraction << 16."""
    fraction = form & 0xFF
    # The least exponent that the accumulator's format has.
    least = -14 if form >> 16 == HALF else -126
    kept = (0xFFFFFFFF << (23 - (form >> 16))) & 0xFFFFFFFF
    stored = (form >> 8) & 0xFF
    into = temp + m.D_VALUE + 4 * m.COLUMNS * row
    most = temp + m.MOST
    total = temp + m.SUM
    for column in range(columns):
        bits = int64(bits_of(load_f32(into, column)))
        power = ((bits >> 23) & 0xFF) - 127
        power = NONE_YET if bits & 0x7FFFFFFF == 0 else max(power, least)
        store_i32(most, column, int32(power))
    for deep in range(first, first + count):
        whole = int64(load_i32(temp + m.A_WHOLE, row * m.DEPTH + deep))
        if whole != 0:
            power_a = int64(load_i32(temp + m.A_POWER, row * m.DEPTH + deep))
            b_whole = temp + m.B_WHOLE + 4 * m.COLUMNS * deep
            b_power = temp + m.B_POWER + 4 * m.COLUMNS * deep
            for column in range(columns):
                power = power_a + int64(load_i32(b_power, column))
                if load_i32(b_whole, column) == 0:
                    power = NONE_YET
                store_i32(most, column, int32(max(power, int64(load_i32(most, column)))))
    for column in range(columns):
        bits = int64(bits_of(load_f32(into, column)))
        power = ((bits >> 23) & 0xFF) - 127
        significand = (bits & 0x7FFFFF) | 0x800000
        if power == -127:
            significand = bits & 0x7FFFFF
            power = -126
        if power < least:
            significand >>= min(least - power, 62)
            power = least
        if bits & 0x80000000 != 0:
            significand = -significand
        down = int64(load_i32(most, column)) - power + 23
        store_i64(total, column, aligned(significand, fraction, down))
    for deep in range(first, first + count):
        whole = int64(load_i32(temp + m.A_WHOLE, row * m.DEPTH + deep))
        if whole != 0:
            power_a = int64(load_i32(temp + m.A_POWER, row * m.DEPTH + deep))
            b_whole = temp + m.B_WHOLE + 4 * m.COLUMNS * deep
            b_power = temp + m.B_POWER + 4 * m.COLUMNS * deep
            for column in range(columns):
                product = whole * int64(load_i32(b_whole, column))
                power = power_a + int64(load_i32(b_power, column))
                down = int64(load_i32(most, column)) - power + stored
                part = aligned(product, fraction, down)
                store_i64(total, column, load_i64(total, column) + part)
    if form >> 16 == HALF:
        for column in range(columns):
            power = max(int64(load_i32(most, column)), LEAST)  # of nothing but zeros
            exact = float64(load_i64(total, column)) * two_to(power - fraction)
            store_f32(into, column, rounded_half(exact))
        return
    for column in range(columns):
        power = int64(load_i32(most, column))
        made = float32(0.0)
        if power != NONE_YET:
            made = cut(float64(load_i64(total, column)) * two_to(power - fraction))
            made = f32_of(uint32(int64(bits_of(made)) & kept))
        store_f32(into, column, made)


@spliced
def two_to(power: int) -> float:
    """2^power for the powers that sums have."""
    return f64_of((power + 1023) << 52)


@compiled
def sum_exact(temp: int, columns: int, depth: int, form: int, special: bool) -> None:
    """D += A B as the tensor core adds. `form`: as of `sum_step`, elements a step << 24; `special`:
    there is a NaN or an Inf in A or B."""
    step = form >> 24
    for row in range(m.ROWS):
        into = temp + m.D_VALUE + 4 * m.COLUMNS * row
        first = 0
        while first < depth:
            odd = special or has_special(into, columns)
            if odd:
                for column in range(columns):
                    made = special_sum(temp, row, column, first, step)
                    store_f32(temp + m.SPECIAL, column, made)
            sum_step(temp, row, columns, first, step, form & 0xFFFFFF)
            if odd:
                for column in range(columns):
                    made = load_f32(temp + m.SPECIAL, column)
                    if (int64(bits_of(made)) >> 23) & 0xFF == 0xFF:
                        store_f32(into, column, made)
            first += step


@compiled
def has_special(row: int, columns: int) -> bool:
    """Whether a row of floats has a NaN or an Inf."""
    found = 0
    for column in range(columns):
        if (int64(bits_of(load_f32(row, column))) >> 23) & 0xFF == 0xFF:
            found |= 1
    return found != 0
