"""D = A B + D in the work space, as the level of arithmetic asks."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.exact_sums import exact_sums, split
from mlagen.emulator.ptx.matrix.sums import (
    add_c,
    has_special,
    keep_c,
    put_special,
    sum_special,
    sum_whole,
)
from mlagen.emulator.ptx.matrix.vectors import products


@spliced
def stored_bits(kind: int) -> int:
    """Bits of a significand behind the hidden one."""
    if kind == m.BF16:
        return 7
    if kind == m.E4M3 or kind == m.E2M3:
        return 3
    if kind == m.E5M2 or kind == m.E3M2:
        return 2
    if kind == m.E2M1:
        return 1
    return 10  # f16, tf32


@spliced
def least_exponent(kind: int) -> int:
    """Of a type's normal numbers."""
    if kind == m.F16 or kind == m.E5M2:
        return -14
    if kind == m.E4M3:
        return -6
    if kind == m.E3M2:
        return -2
    if kind == m.E2M3 or kind == m.E2M1:
        return 0
    return -126


@spliced
def kind_of_sum(kind: int, flags: int) -> int:
    """What the tensor core takes elements of a type for: two passes are of f16."""
    return m.F16 if flags & m.INTERLEAVED != 0 else kind


@compiled
def exact_pass(temp: int, columns: int, first: int, pairs: int, apart: int, sums: int) -> None:
    """One sum with D; see `exact.exact_sums`. `sums`: of X_SUMS."""
    kept = (0xFFFFFFFF << (23 - ((sums >> 8) & 0xFF))) & 0xFFFFFFFF
    if (sums >> 16) & 0xFF == m.D_F16:
        kept = 0
    special = load_i64(temp + m.SPECIAL, 0) | load_i64(temp + m.SPECIAL, 1)
    odd = special != 0 or has_special(temp, columns)
    if odd:
        sum_special(temp, columns, first, pairs, apart)
    exact_sums(temp, columns, first, pairs, apart, sums & 0xFF, kept)
    if odd:
        put_special(temp, columns)


@compiled
def multiply_exactly(
    temp: int, kind_a: int, kind_b: int, sums: int, columns: int, depth: int, same: bool
) -> None:
    """The sums that the tensor core makes (arithmetic/dot.py). `same`: B is that of before."""
    flags = sums >> 24
    kind_a = kind_of_sum(kind_a, flags)
    kind_b = kind_of_sum(kind_b, flags)
    a, b = stored_bits(kind_a), stored_bits(kind_b)
    left = (sums & 0xFF) - a - b
    special = temp + m.SPECIAL
    store_i64(special, 0, 0)
    least = least_exponent(kind_a)
    split(
        temp + m.A_VALUE, m.A_SIZE, m.DEPTH, m.ROWS, (depth + 7) & -8, left, 23 - a, least, special
    )
    if not same:
        least = least_exponent(kind_b)
        special += 8
        store_i64(special, 0, 0)
        split(temp + m.B_VALUE, m.B_SIZE, m.COLUMNS, depth, columns, 0, 23 - b, least, special)
    if flags & m.INTERLEAVED != 0:
        keep_c(temp, columns)
        exact_pass(temp, columns, 0, depth >> 2, 4, sums)
        exact_pass(temp, columns, 2, depth >> 2, 4, sums)
        add_c(temp, columns)
    else:
        exact_pass(temp, columns, 0, depth >> 1, 2, sums)


@compiled
def multiply_kinds(
    context: int, kind_a: int, kind_b: int, sums: int, columns: int, depth: int, same: bool
) -> None:
    """What the work space holds of A, B and D, multiplied and added up. `sums`: of X_SUMS; `same`:
    B is that of the call before."""
    temp = load_i64(context, y.C_TEMP)
    if kind_a == m.S8 or kind_a == m.U8:
        sum_whole(temp, columns, depth, (sums >> 24) & m.SATURATED)
    elif load_i64(context, y.C_EXACT) == 0:
        products(temp, columns, depth)
    else:
        multiply_exactly(temp, kind_a, kind_b, sums, columns, depth, same)


@compiled
def multiply(context: int, p: int, columns: int, depth: int, same: bool) -> None:
    """The same with the types that a program row says."""
    kind_a = load_i64(p, y.P_AUX + m.X_TYPE_A)
    kind_b = load_i64(p, y.P_AUX + m.X_TYPE_B)
    sums = load_i64(p, y.P_AUX + m.X_SUMS)
    multiply_kinds(context, kind_a, kind_b, sums, columns, depth, same)
