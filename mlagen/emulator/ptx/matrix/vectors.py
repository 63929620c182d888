"""Words of the matrix path that work on vectors of eight: a core matrix of eight rows of eight
elements, eight columns of a sum.

They are built of LLVM vectors, since LLVM finds none in loops that turn a matrix round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.values.lanes import Lanes, real, switch, vector

I64 = ir.IntType(64)
Generate = Callable[[Lanes, Sequence[Any]], None]


def eight(bits: int) -> Any:
    """LLVM's vector of eight integers."""
    return vector(bits, 8)


def eight_floats(bits: int) -> Any:
    """LLVM's vector of eight floats."""
    return real(bits, 8)


def word(arity: int, generate: Generate) -> Any:
    """A word of the engine's language that takes whole numbers and gives nothing."""

    def typing(context: Any, *args: Any) -> tuple[Any, Any]:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            generate(Lanes(builder), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * arity), code

    return intrinsic(typing)


def whole(number: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(I64, number)


def each(t: Lanes, count: Any) -> AbstractContextManager[Any]:
    """A loop; `count` is a number or code."""
    return cgutils.for_range(t.b, whole(count) if isinstance(count, int) else count)


def at(t: Lanes, base: Any, *steps: tuple[Any, int]) -> Any:
    """An address: `base` plus indices times bytes."""
    for index, size in steps:
        base = t.b.add(base, t.b.mul(index, whole(size)))
    return base


def load(t: Lanes, address: Any, kind: Any) -> Any:
    """A value of a type, at any address of four bytes or, of smaller elements, any."""
    return t.b.load(t.b.inttoptr(address, kind.as_pointer()), align=1)


def store(t: Lanes, address: Any, value: Any) -> None:
    """The same the other way."""
    t.b.store(value, t.b.inttoptr(address, value.type.as_pointer()), align=1)


def spread(t: Lanes, address: Any) -> Any:
    """A number of 32 bits in memory, in each of eight lanes."""
    return t.splat(t.b.zext(load(t, address, ir.IntType(32)), I64), eight(32))


# ---- core matrices ----------------------------------------------------------------------------


def _shuffled(t: Lanes, a: Any, b: Any, places: Sequence[int]) -> Any:
    return t.b.shuffle_vector(a, b, ir.Constant(vector(32, len(places)), list(places)))


def _core(bits: int, turned: bool) -> Generate:
    """Rows of eight elements, `step` bytes apart and moved by a swizzle (`moved`: which bits above
    the seventh go to the fourth and up), as 16-bit words at `into`, each row `into_step` bytes
    after the one before; `turned`: the matrix is transposed."""

    def generate(t: Lanes, args: Sequence[Any]) -> None:
        shared, first, step, moved, into, into_step = args
        rows = []
        for number in range(8):
            place = t.b.add(first, t.b.mul(step, whole(number)))
            other = t.b.and_(t.b.lshr(place, whole(7)), moved)
            place = t.b.xor(place, t.b.shl(other, whole(4)))
            row = load(t, t.b.add(shared, place), eight(bits))
            rows.append(t.resize(row, 16))
        if turned:
            for _ in range(3):
                low = [n + 8 * odd for n in range(4) for odd in range(2)]
                high = [n + 4 for n in low]
                rows = [
                    _shuffled(t, rows[n], rows[n + 4], places)
                    for n in range(4)
                    for places in (low, high)
                ]
        for number, row in enumerate(rows):
            store(t, t.b.add(into, t.b.mul(into_step, whole(number))), row)

    return generate


# f(shared, address of the first row, bytes a row, swizzle, into, bytes a row of it)
core_16: Any = word(6, _core(16, False))
core_8: Any = word(6, _core(8, False))
turned_16: Any = word(6, _core(16, True))
turned_8: Any = word(6, _core(8, True))


# ---- elements to numbers ----------------------------------------------------------------------


def _f16(t: Lanes, x: Any) -> Any:
    sign = t.shl(t.and_(x, 0x8000), 16)
    rest = t.shl(t.and_(x, 0x7FFF), 13)
    number = t.integers(t.b.fmul(t.floats(rest), t.const(eight_floats(32), 2.0**112)))
    top = t.compare(">=", rest, 0x0F800000)
    return t.b.or_(t.select(top, t.or_(rest, 0x7F800000), number), sign)


def _e4m3(t: Lanes, x: Any) -> Any:
    size = t.and_(x, 0x7F)
    number = t.integers(t.b.fmul(t.floats(t.shl(size, 20)), t.const(eight_floats(32), 2.0**120)))
    number = t.select(t.compare("==", size, 0x7F), 0x7FFFFFFF, number)
    return t.b.or_(number, t.shl(t.and_(x, 0x80), 24))


# By the numbers of types in `layout`; bits of f32, or whole numbers. tf32 comes another way.
_MEANINGS: tuple[Callable[[Lanes, Any], Any], ...] = (
    lambda t, x: t.shl(x, 16),
    _f16,
    lambda t, x: x,
    _e4m3,
    lambda t, x: _f16(t, t.shl(x, 8)),
    lambda t, x: t.ashr(t.shl(x, 24), 24),
    lambda t, x: x,
)


def _decoded(t: Lanes, args: Sequence[Any]) -> None:
    """`rows` of `columns` words at `source`, `stride` words apart, as numbers at `into`."""
    kind, source, into, rows, columns, stride, signs = args
    flip = t.splat(t.b.shl(signs, whole(31)), eight(32))

    def case(meaning: Callable[[Lanes, Any], Any]) -> Callable[[], None]:
        def emit() -> None:
            with each(t, rows) as row, each(t, t.b.lshr(columns, whole(3))) as column:
                index = at(t, t.b.mul(row.index, stride), (column.index, 8))
                x = t.resize(load(t, at(t, source, (index, 2)), eight(16)), 32)
                store(t, at(t, into, (index, 4)), t.b.xor(meaning(t, x), flip))

        return emit

    switch(t.b, kind, [case(meaning) for meaning in _MEANINGS])


# f(type, source, into, rows, columns, stride, 1 for negated)
decoded: Any = word(7, _decoded)


# ---- D ----------------------------------------------------------------------------------------


def _mixed(t: Lanes, args: Sequence[Any]) -> None:
    """Two registers of a warp, of even and of odd columns, into eight rows of eight columns."""
    even, odd, into = args
    places = [n + 4 * other for n in range(4) for other in range(2)]
    for row in range(8):
        first, other = (
            load(t, t.b.add(one, whole(16 * row)), vector(32, 4)) for one in (even, odd)
        )
        store(t, t.b.add(into, whole(4 * m.COLUMNS * row)), _shuffled(t, first, other, places))


def _parted(t: Lanes, args: Sequence[Any]) -> None:
    """The same the other way."""
    even, odd, source = args
    for row in range(8):
        both = load(t, t.b.add(source, whole(4 * m.COLUMNS * row)), eight(32))
        for first, to in enumerate((even, odd)):
            found = _shuffled(t, both, both, range(first, 8, 2))
            store(t, t.b.add(to, whole(16 * row)), found)


mixed: Any = word(3, _mixed)  # f(even, odd, into)
parted: Any = word(3, _parted)  # f(even, odd, source)


# ---- sums in f32 ------------------------------------------------------------------------------


def _products(t: Lanes, args: Sequence[Any]) -> None:
    """D += A B in f32, each product added with one rounding, in order."""
    temp, columns, depth = args
    kind = eight_floats(32)
    with each(t, m.ROWS // 8) as block, each(t, t.b.lshr(columns, whole(3))) as column:
        into = at(t, temp, (block.index, 32 * m.COLUMNS), (column.index, 32))
        rows = [t.b.add(into, whole(m.D_VALUE + 4 * m.COLUMNS * row)) for row in range(8)]
        sums = [cgutils.alloca_once(t.b, kind) for _ in rows]
        for place, row in zip(sums, rows, strict=True):
            t.b.store(load(t, row, kind), place)
        b_first = at(t, t.b.add(temp, whole(m.B_VALUE)), (column.index, 32))
        a_first = at(t, t.b.add(temp, whole(m.A_VALUE)), (block.index, 32 * m.DEPTH))
        with each(t, depth) as deep:
            b = load(t, at(t, b_first, (deep.index, 4 * m.COLUMNS)), kind)
            a = at(t, a_first, (deep.index, 4))
            for row, place in enumerate(sums):
                factor = t.floats(spread(t, t.b.add(a, whole(4 * m.DEPTH * row))))
                t.b.store(t.call("fma", factor, b, t.b.load(place)), place)
        for place, row in zip(sums, rows, strict=True):
            store(t, row, t.b.load(place))


products: Any = word(3, _products)  # f(temp, columns, depth)
