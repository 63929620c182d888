"""mma.sync: matrix instructions of one warp."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import bits_of_f64, f64_of, fma_f64, load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.control import gathered
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.fragments import (
    give_sums,
    sums_type,
    take_columns,
    take_fragment,
    take_sums,
)
from mlagen.emulator.ptx.matrix.product import multiply
from mlagen.emulator.ptx.state import listed, place, program_row


@compiled
def multiply_f64(context: int, warp: int, p: int, first: int, many: int, depth: int) -> None:
    """D = A B + C of f64: products are added in the order of K, each with one rounding. `first`:
    registers of D; `many`: of A. Lane l has A's rows l / 4 and l / 4 + 8, and every fourth
    element of K from l % 4 on; B's column l / 4; D's columns 2 (l % 4) and the next."""
    temp = load_i64(context, y.C_TEMP)
    halves = first // 2
    others = first + many
    last = others + many // halves
    for number in range(first):
        row = place(context, warp, listed(context, p, last + number))
        for lane in range(y.LANES):
            line = (lane >> 2) + 8 * (number >> 1)
            column = 2 * (lane & 3) + (number & 1)
            total = f64_of(load_i64(row, lane))
            for deep in range(depth):
                which = (deep >> 2) * halves + (number >> 1)
                a = place(context, warp, listed(context, p, first + which))
                b = place(context, warp, listed(context, p, others + (deep >> 2)))
                factor = f64_of(load_i64(a, 4 * (line & 7) + (deep & 3)))
                other = f64_of(load_i64(b, 4 * column + (deep & 3)))
                total = fma_f64(factor, other, total)
            store_i64(temp, y.LANES * number + lane, bits_of_f64(total))
    for number in range(first):
        row = place(context, warp, listed(context, p, number))
        for lane in range(y.LANES):
            store_i64(row, lane, load_i64(temp, y.LANES * number + lane))


@compiled
def run_mma(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN until all lanes of the warp are there."""
    if not gathered(context, warp, row, mask, y.ALL):
        return y.AGAIN
    p = program_row(context, row)
    aux = p + 8 * y.P_AUX
    depth = load_i64(aux, m.X_K)
    kind_a = load_i64(aux, m.X_TYPE_A)
    kind_b = load_i64(aux, m.X_TYPE_B)
    first = load_i64(aux, m.X_REGISTERS)
    many = load_i64(aux, m.X_SIGNS)  # registers of A; B has half of them
    # The list is D, A, B, C.
    if sums_type(p) == m.D_F64:
        multiply_f64(context, warp, p, first, many, depth)
        return y.NEXT
    take_sums(context, warp, p, 8, first + many + many // 2)
    take_fragment(context, warp, p, first, many, kind_a)
    take_columns(context, warp, p, first + many, many // 2, kind_b)
    multiply(context, p, 8, depth, False)
    give_sums(context, warp, p, 8)
    return y.NEXT
