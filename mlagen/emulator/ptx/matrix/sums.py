"""Sums of whole numbers, and sums of floats with a NaN or an Inf in them."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    f32_of,
    float32,
    float64,
    int32,
    int64,
    load_f32,
    load_i32,
    load_u32,
    store_f32,
    store_i32,
    store_u32,
    uint32,
)
from mlagen.emulator.ptx.matrix import work_space as m


@compiled
def sum_whole(temp: int, columns: int, depth: int, saturated: int) -> None:
    """D += A B of whole numbers, modulo 2^32 or held at the ends."""
    for row in range(m.ROWS):
        into = temp + m.D_VALUE + 4 * m.COLUMNS * row
        for column in range(columns):
            made = int64(load_i32(into, column))
            for deep in range(depth):
                a = int64(load_i32(temp + m.A_VALUE, row * m.DEPTH + deep))
                made += a * int64(load_i32(temp + m.B_VALUE, deep * m.COLUMNS + column))
            if saturated != 0:
                made = min(max(made, -0x80000000), 0x7FFFFFFF)
            store_i32(into, column, int32(made))


@compiled
def has_special(temp: int, columns: int) -> bool:
    """Whether D has a NaN or an Inf."""
    found = 0
    for row in range(m.ROWS):
        for column in range(columns):
            bits = int64(load_u32(temp + m.D_VALUE, row * m.COLUMNS + column))
            found |= int64((bits & 0x7F800000) == 0x7F800000)
    return found != 0


@compiled
def sum_special(temp: int, columns: int, first: int, pairs: int, apart: int) -> None:
    """Sums with NaN or Inf in them at ODD; what has none is 0 there. See `exact.exact_sums`."""
    for row in range(m.ROWS):
        for column in range(columns):
            at = row * m.COLUMNS + column
            total = float64(load_f32(temp + m.D_VALUE, at))
            for number in range(2 * pairs):
                deep = first + (number >> 1) * apart + (number & 1)
                a = float64(load_f32(temp + m.A_VALUE, row * m.DEPTH + deep))
                b = float64(load_f32(temp + m.B_VALUE, deep * m.COLUMNS + column))
                total += a * b
            made = float32(0.0)
            if total != total:
                made = f32_of(uint32(0x7FFFFFFF))
            elif total - total != 0.0:
                made = float32(total)
            store_f32(temp + m.ODD, at, made)


@compiled
def put_special(temp: int, columns: int) -> None:
    """What `sum_special` found, into D."""
    for row in range(m.ROWS):
        for column in range(columns):
            at = row * m.COLUMNS + column
            made = load_u32(temp + m.ODD, at)
            if made != 0:
                store_u32(temp + m.D_VALUE, at, made)


@compiled
def add_c(temp: int, columns: int) -> None:
    """D plus what was kept as C, as ordinary numbers: rounded once."""
    for row in range(m.ROWS):
        for column in range(columns):
            at = row * m.COLUMNS + column
            made = load_f32(temp + m.D_VALUE, at) + load_f32(temp + m.C_VALUE, at)
            if made != made:
                made = f32_of(uint32(0x7FFFFFFF))
            store_f32(temp + m.D_VALUE, at, made)


@compiled
def keep_c(temp: int, columns: int) -> None:
    """D is C now, and 0 itself."""
    for row in range(m.ROWS):
        for column in range(columns):
            at = row * m.COLUMNS + column
            store_u32(temp + m.C_VALUE, at, load_u32(temp + m.D_VALUE, at))
            store_u32(temp + m.D_VALUE, at, uint32(0))
