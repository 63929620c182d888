"""D = A B + D in the work space, as the level of arithmetic asks."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import layout as m
from mlagen.emulator.ptx.matrix.elements import split
from mlagen.emulator.ptx.matrix.sums import sum_exact, sum_fast, sum_whole


@compiled
def stored_bits(kind: int) -> int:
    """Bits of a significand behind the hidden one."""
    if kind == m.BF16:
        return 7
    if kind == m.E4M3:
        return 3
    if kind == m.E5M2:
        return 2
    return 10  # f16, tf32


@compiled
def multiply(context: int, p: int, columns: int, depth: int) -> None:
    """What the work space holds of A, B and D, multiplied and added up."""
    temp = load_i64(context, y.C_TEMP)
    kind_a = load_i64(p, y.P_AUX + m.X_TYPE_A)
    kind_b = load_i64(p, y.P_AUX + m.X_TYPE_B)
    sums = load_i64(p, y.P_AUX + m.X_SUMS)
    if kind_a == m.S8 or kind_a == m.U8:
        sum_whole(temp, columns, depth)
        return
    if load_i64(context, y.C_EXACT) == 0:
        sum_fast(temp, columns, depth)
        return
    special = split(temp, m.A_VALUE, m.ROWS, m.DEPTH, depth, kind_a)
    special = split(temp, m.B_VALUE, depth, m.COLUMNS, columns, kind_b) or special
    form = (sums >> 8) & 0xFF | (stored_bits(kind_a) + stored_bits(kind_b)) << 8
    form |= ((sums >> 16) & 0xFF) << 16 | (sums & 0xFF) << 24
    sum_exact(temp, columns, depth, form, special)
