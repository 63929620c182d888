"""Sums as the tensor core makes them (arithmetic/dot.py), eight columns at a time.

Numbers are whole significands and exponents. A product is aligned to the greatest exponent of its
sum and cut to a window behind it; 32 bits hold the sum of eight products and the accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.vectors import (
    I64,
    at,
    each,
    eight,
    eight_floats,
    load,
    spread,
    store,
    whole,
    word,
)
from mlagen.emulator.ptx.values.lanes import Lanes

_FAR = -(1 << 20)  # the exponent of a factor that is zero
_FARTHER = -(1 << 22)  # of an accumulator that is zero
_LEAST = -600  # below any exponent of a sum
_LOW, _HIGH = -90, 110  # the greatest exponent of a sum that f32 can scale


def _splat(t: Lanes, number: Any) -> Any:
    return t.splat(number, eight(32))


def _up_to_31(t: Lanes, x: Any) -> Any:
    """What a shift may be; 31 moves out all that there is."""
    return t.call("umin", x, t.const(x, 31))


def _parts(t: Lanes, bits: Any, least: Any) -> tuple[Any, Any]:
    """Significand of 24 bits and exponent of f32 numbers that were made of a smaller format, whose
    denormal numbers have the exponent `least`."""
    field = t.and_(t.lshr(bits, 23), 0xFF)
    mantissa = t.and_(bits, 0x7FFFFF)
    denormal = t.compare("==", field, 0)
    size = t.b.select(denormal, mantissa, t.or_(mantissa, 0x800000))
    power = t.sub(t.select(denormal, 1, field), 127)
    low = t.call("smax", t.b.sub(least, power), t.const(power, 0))
    return t.b.lshr(size, _up_to_31(t, low)), t.b.add(power, low)


def _signed(t: Lanes, size: Any, like: Any) -> Any:
    """A size with the sign of another number."""
    sign = t.ashr(like, 31)
    return t.b.sub(t.b.xor(size, sign), sign)


def _split(t: Lanes, args: Sequence[Any]) -> None:
    """f32 numbers as significands and exponents, `behind` and twice `behind` the numbers.
    Significands lose `right` bits, which are zero, and go `left`. A NaN or an Inf among them
    leaves a number that is not zero at `special`."""
    value, behind, stride, rows, columns, left, right, least, special = args
    up, down, lowest = (_splat(t, number) for number in (left, right, least))
    found = cgutils.alloca_once(t.b, eight(32))
    t.b.store(t.const(eight(32), 0), found)
    with each(t, rows) as row, each(t, t.b.lshr(columns, whole(3))) as column:
        place = at(t, value, (t.b.mul(row.index, stride), 4), (column.index, 32))
        bits = load(t, place, eight(32))
        top = t.compare("==", t.and_(bits, 0x7F800000), 0x7F800000)
        t.b.store(t.b.or_(t.b.load(found), t.resize(top, 32)), found)
        size, power = _parts(t, bits, lowest)
        size = t.b.lshr(size, down)
        power = t.select(t.compare("==", size, 0), _FAR, power)
        place = t.b.add(place, behind)
        store(t, place, _signed(t, t.b.shl(size, up), bits))
        store(t, t.b.add(place, behind), power)
    lanes = t.b.bitcast(t.resize(t.b.load(found), 1), ir.IntType(eight(1).count))
    store(t, special, t.b.or_(load(t, special, I64), t.b.zext(lanes, I64)))


# f(value, behind, stride, rows, columns, left, right, least exponent, special)
split: Any = word(9, _split)


def _cut(t: Lanes, size: Any, down: Any, like: Any) -> Any:
    """A size, moved down and cut toward zero, with a sign."""
    return _signed(t, t.b.lshr(size, _up_to_31(t, down)), like)


def _accumulator(t: Lanes, bits: Any, least: Any) -> tuple[Any, Any]:
    size, power = _parts(t, bits, least)
    return size, t.select(t.compare("==", size, 0), _FARTHER, power)


def _scaled(t: Lanes, sums: Sequence[Any], power: Any) -> Any:
    """The sum of whole numbers times 2^power, of f64: exact."""
    kind = eight_floats(64)
    total = t.b.fadd(*(t.b.sitofp(one, kind) for one in sums))
    field = t.add(t.resize(power, 64, True), 1023)
    return t.b.fmul(total, t.floats(t.shl(field, 52)))


def _towards_zero(t: Lanes, exact: Any) -> tuple[Any, Any]:
    """Bits of f32, cut, with Inf from 2^128 on; where something was cut off."""
    near = t.b.fptrunc(exact, eight_floats(32))
    back, size = t.call("fabs", t.wide(near)), t.call("fabs", exact)
    large = t.b.fcmp_ordered(">=", size, t.const(size, 2.0**128))
    past = t.b.and_(t.b.fcmp_ordered(">", back, size), t.b.not_(large))
    bits = t.b.sub(t.integers(near), t.resize(past, 32))
    return bits, t.b.fcmp_ordered("!=", back, size)


def _nearest_f16(t: Lanes, bits: Any, cut: Any) -> Any:
    """Bits of f32 that are those of an f16, to nearest even, a zero being +0. `cut`: something lies
    below them."""
    sign = t.and_(bits, 0x80000000)
    size = t.b.or_(t.and_(bits, 0x7FFFFFFF), t.resize(cut, 32))
    odd = t.and_(t.lshr(size, 13), 1)
    normal = t.and_(t.add(t.b.add(size, odd), 0xFFF), 0xFFFFE000)
    normal = t.select(t.compare(">=", normal, 0x47800000), 0x7F800000, normal)
    step = t.const(eight_floats(32), 0.75)  # one unit in its last place is f16's least number
    low = t.integers(t.b.fsub(t.b.fadd(t.floats(size), step), step))
    made = t.b.select(t.compare("<", size, 0x38800000), low, normal)
    return t.b.select(t.compare("==", made, 0), made, t.b.or_(made, sign))  # a zero is +0


def _lifted(t: Lanes, greatest: Any) -> Any:
    """The greatest exponent, or one that is as good where all factors are zero."""
    return t.call("smax", greatest, t.const(greatest, _LOW))


def _near(t: Lanes, greatest: Any) -> Any:
    """Whether products of f32 numbers, and these by 2 to the window less the greatest exponent, are
    exact in all lanes where they are not far below 1."""
    low = t.compare("<", greatest, _LOW, True)
    some = t.compare(">", greatest, _FAR // 2, True)
    odd = t.b.or_(t.b.and_(low, some), t.compare(">", greatest, _HIGH, True))
    bits = t.b.bitcast(odd, ir.IntType(eight(1).count))
    return t.b.icmp_unsigned("==", bits, ir.Constant(bits.type, 0))


def _sums(t: Lanes, args: Sequence[Any]) -> None:
    """D += A B for `pairs` pairs of elements from `first` on, `apart` elements from pair to pair.
    `window`: bits behind the greatest exponent, and behind the point of a product; `mask`: of the
    bits that an f32 result keeps, 0 for a result of f16."""
    temp, columns, first, pairs, apart, window, mask = args
    half = t.b.icmp_unsigned("==", mask, whole(0))
    least = _splat(t, t.b.select(half, whole(-14), whole(-126)))
    wide = t.b.icmp_signed(">", window, whole(23))
    up = _splat(t, t.b.select(wide, t.b.sub(window, whole(23)), whole(0)))
    down = _splat(t, t.b.select(wide, whole(0), t.b.sub(whole(23), window)))
    kept = _splat(t, mask)
    with each(t, m.ROWS) as row, each(t, t.b.lshr(columns, whole(3))) as column:
        into = at(t, temp, (row.index, 4 * m.COLUMNS), (column.index, 32))
        into = t.b.add(into, whole(m.D_VALUE))
        a_first = at(t, temp, (row.index, 4 * m.DEPTH), (first, 4))
        b_first = at(t, temp, (column.index, 32), (first, 4 * m.COLUMNS))
        c = load(t, into, eight(32))
        c_size, c_power = _accumulator(t, c, least)
        most = cgutils.alloca_once(t.b, eight(32))
        t.b.store(c_power, most)

        def places(pair: Any, odd: int) -> tuple[Any, Any]:
            deep = t.b.add(t.b.mul(pair.index, apart), whole(odd))
            return at(t, a_first, (deep, 4)), at(t, b_first, (deep, 4 * m.COLUMNS))

        def power_of(a: Any, b: Any) -> Any:
            power = load(t, t.b.add(b, whole(m.B_POWER)), eight(32))
            return t.b.add(spread(t, t.b.add(a, whole(m.A_POWER))), power)

        with each(t, pairs) as pair:
            for odd in range(2):
                power = power_of(*places(pair, odd))
                t.b.store(t.call("smax", power, t.b.load(most)), most)
        greatest = t.b.load(most)
        sums = [cgutils.alloca_once(t.b, eight(32)) for _ in range(2)]
        moved = t.b.add(t.b.sub(greatest, c_power), down)
        t.b.store(_cut(t, t.b.shl(c_size, up), moved, c), sums[0])
        t.b.store(t.const(c, 0), sums[1])
        with t.b.if_else(_near(t, greatest)) as (near, far):
            with near, each(t, pairs) as pair:
                # Cut by the conversion: a product is exact, and far from any end that matters.
                scale = t.b.sub(_splat(t, t.b.add(window, whole(127))), _lifted(t, greatest))
                scale = t.floats(t.shl(scale, 23))
                for odd in range(2):
                    a, b = places(pair, odd)
                    one = t.floats(spread(t, t.b.add(a, whole(m.A_VALUE))))
                    product = t.b.fmul(one, load(t, t.b.add(b, whole(m.B_VALUE)), eight_floats(32)))
                    part = t.b.fptosi(t.b.fmul(product, scale), eight(32))
                    t.b.store(t.b.add(t.b.load(sums[odd]), part), sums[odd])
            with far, each(t, pairs) as pair:
                for odd in range(2):
                    a, b = places(pair, odd)
                    one = spread(t, t.b.add(a, whole(m.A_WHOLE)))
                    product = t.b.mul(one, load(t, t.b.add(b, whole(m.B_WHOLE)), eight(32)))
                    moved = t.b.sub(greatest, power_of(a, b))
                    size = t.b.select(t.compare("<", product, 0, True), t.b.neg(product), product)
                    part = _cut(t, size, moved, product)
                    t.b.store(t.b.add(t.b.load(sums[odd]), part), sums[odd])
        power = t.call("smax", greatest, t.const(c, _LEAST))
        power = t.b.sub(power, _splat(t, window))
        bits, cut = _towards_zero(t, _scaled(t, [t.b.load(one) for one in sums], power))
        made = t.b.select(half, _nearest_f16(t, bits, cut), t.b.and_(bits, kept))
        store(t, into, t.select(t.compare("==", made, 0x80000000), 0, made))


# f(temp, columns, first, pairs, apart, window, mask)
exact_sums: Any = word(7, _sums)
