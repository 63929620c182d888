"""mma.sync of f64: each sum is a chain of fused multiplications and additions, K ascending.

Lane l has A's rows l / 4 and l / 4 + 8, B's column l / 4, both at K = l % 4 of each four, and D's
columns 2 (l % 4) and the next (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64").
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    bits_of_f64,
    f64_of,
    fma_f64,
    load_i64,
    store_i64,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import layout as m
from mlagen.emulator.ptx.state import listed, place


@compiled
def multiply_doubles(context: int, warp: int, p: int) -> None:
    """D = A B + C of 8 or 16 rows and 8 columns. The list is D, A, B, C."""
    temp = load_i64(context, y.C_TEMP)
    sums = load_i64(p, y.P_AUX + m.X_REGISTERS)
    depth = load_i64(p, y.P_AUX + m.X_K)
    halves = sums // 2  # of the rows: 8 each
    for number in range(halves * depth // 4):
        row = place(context, warp, listed(context, p, sums + number))
        deep = 4 * (number // halves)
        for lane in range(y.LANES):
            at = 16 * ((lane >> 2) + 8 * (number % halves)) + deep + (lane & 3)
            store_i64(temp + m.A_VALUE, at, load_i64(row, lane))
    first = sums + halves * depth // 4
    for number in range(depth // 4):
        row = place(context, warp, listed(context, p, first + number))
        for lane in range(y.LANES):
            at = 16 * (lane >> 2) + 4 * number + (lane & 3)
            store_i64(temp + m.B_VALUE, at, load_i64(row, lane))
    first += depth // 4
    for number in range(sums):
        row = place(context, warp, listed(context, p, first + number))
        for lane in range(y.LANES):
            store_i64(temp + m.D_VALUE, y.LANES * number + lane, load_i64(row, lane))
    for number in range(sums):
        row = place(context, warp, listed(context, p, number))
        for lane in range(y.LANES):
            a = temp + m.A_VALUE + 128 * ((lane >> 2) + 8 * (number >> 1))
            b = temp + m.B_VALUE + 128 * (2 * (lane & 3) + (number & 1))
            total = f64_of(load_i64(temp + m.D_VALUE, y.LANES * number + lane))
            for deep in range(depth):
                total = fma_f64(f64_of(load_i64(a, deep)), f64_of(load_i64(b, deep)), total)
            store_i64(row, lane, bits_of_f64(total))
