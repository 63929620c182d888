"""mma.sync: matrix instructions of one warp."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.control import gathered
from mlagen.emulator.ptx.matrix import layout as m
from mlagen.emulator.ptx.matrix.doubles import multiply_doubles
from mlagen.emulator.ptx.matrix.fragments import give_sums, take_columns, take_fragment, take_sums
from mlagen.emulator.ptx.matrix.product import multiply
from mlagen.emulator.ptx.state import program_row


@compiled
def run_mma(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN until all lanes of the warp are there."""
    if not gathered(context, warp, row, mask, y.ALL):
        return y.AGAIN
    p = program_row(context, row)
    aux = p + 8 * y.P_AUX
    if load_i64(aux, m.X_TYPE_A) == m.F64:
        multiply_doubles(context, warp, p)
        return y.NEXT
    depth = load_i64(aux, m.X_K)
    kind_a = load_i64(aux, m.X_TYPE_A)
    kind_b = load_i64(aux, m.X_TYPE_B)
    first = load_i64(aux, m.X_REGISTERS)
    many = load_i64(aux, m.X_SIGNS)  # registers of A; B has half of them
    # The list is D, A, B, C.
    take_sums(context, warp, p, 8, first + many + many // 2)
    take_fragment(context, warp, p, first, many, kind_a)
    take_columns(context, warp, p, first + many, many // 2, kind_b)
    multiply(context, p, 8, depth)
    give_sums(context, warp, p, 8)
    return y.NEXT
