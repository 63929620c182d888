"""Hopper's multifunction unit on eight words at a time: arithmetic/multifunction.py says what it
does, and has its tables.

Each function is one function of the compiled code, which all forms call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from mlagen.emulator.ptx.arithmetic.multifunction import (
    FRACTION,
    INF,
    LOG_CUT,
    NAN,
    ONE,
    SIGN,
    TANH_DROPPED,
    TANH_FIRST,
    tables,
)
from mlagen.emulator.ptx.values.lanes import Lanes, vector

_I64 = ir.IntType(64)
_KEPT = 15  # columns of the squarer
_TOP = 0x7FFFFF


def _constants(t: Lanes, name: str, values: Any) -> Any:
    """The address of a table of 64-bit words in the compiled code."""
    module, name = t.b.module, f"multifunction.{name}"
    if name not in module.globals:
        words = [int(value) & ((1 << 64) - 1) for value in values]
        kind = ir.ArrayType(_I64, len(words))
        table = ir.GlobalVariable(module, kind, name)
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(kind, words)
    return t.b.ptrtoint(module.globals[name], _I64)


def _looked_up(t: Lanes, name: str, values: Any, places: Any) -> Any:
    """The words of a table at eight places, which lie inside it."""
    base = _constants(t, name, values)
    found = ir.Constant(vector(64), ir.Undefined)
    for lane in range(places.type.count):
        number = ir.Constant(ir.IntType(32), lane)
        place = t.b.zext(t.b.extract_element(places, number), _I64)
        where = t.b.add(base, t.b.shl(place, ir.Constant(_I64, 3)))
        one = t.b.load(t.b.inttoptr(where, _I64.as_pointer()), align=8)
        found = t.b.insert_element(found, one, number)
    return found


def _squared(t: Lanes, low: int, x: Any) -> Any:
    """x^2 of the folded squarer in units of 2^cut, where it keeps 15 columns."""
    cut = 2 * low - _KEPT
    total = t.const(x, 0)
    for i in range((cut + 1) // 2, low):
        bit = t.ashr(t.shl(x, 31 - i), 31)
        below = t.lshr(t.and_(x, (1 << i) - 1), cut - i - 1)
        total = t.b.add(total, t.b.and_(bit, t.add(below, 1 << (2 * i - cut))))
    return total


def _at(t: Lanes, name: str, argument: Any, other: tuple[str, Any] | None = None) -> Any:
    """A table's value, of 64 bits. `other`: a table like it, and the lanes that use that one."""
    table = tables()[name]
    low, cut = table.low, 2 * table.low - _KEPT
    names = [name] + ([other[0]] if other else [])
    both = [tables()[one] for one in names]
    assert all((one.low, one.c2_shift) == (low, table.c2_shift) for one in both)
    place = t.lshr(argument, low)
    if other:
        place = t.b.add(place, t.select(other[1], len(table.c0), t.const(place, 0)))
    c0 = np.concatenate([one.c0 for one in both])
    c1 = np.concatenate([one.c1 << one.c1_shift for one in both])
    c2 = np.concatenate([one.c2 << (cut - one.c2_shift) for one in both])
    rest = (c2 << 32) | (c1 & 0xFFFFFFFF)
    x = t.and_(argument, (1 << low) - 1)
    factors = _looked_up(t, f"{name}.factors", rest, place)
    first, second = t.ashr(t.shl(factors, 32), 32), t.ashr(factors, 32)
    total = _looked_up(t, f"{name}.c0", c0, place)
    total = t.b.add(total, t.b.mul(first, t.resize(x, 64)))
    return t.b.add(total, t.b.mul(second, t.resize(_squared(t, low, x), 64)))


def _packed(t: Lanes, value: Any, base: Any) -> Any:
    """f32 words of numbers in units of 2^-20 ulp of the exponent field `base`, cut."""
    zeros = t.call("umin", t.count_zeros("ctlz", value), t.const(value, 63))
    mantissa = t.and_(t.resize(t.lshr(t.b.shl(value, zeros), 40), 32), _TOP)
    field = t.b.sub(t.add(base, 40 - FRACTION), t.resize(zeros, 32))
    words = t.b.or_(t.shl(field, 23), mantissa)
    words = t.select(t.compare(">=", field, 255, True), INF, words)
    none = t.b.or_(t.compare("<=", value, 0, True), t.compare("<=", field, 0, True))
    return t.select(none, 0, words)


def _fields(t: Lanes, x: Any) -> tuple[Any, Any, Any]:
    """Exponent's field, mantissa, and the sign where it stands."""
    return t.and_(t.lshr(x, 23), 0xFF), t.and_(x, _TOP), t.and_(x, SIGN)


def _is(t: Lanes, x: Any, number: int) -> Any:
    return t.compare("==", x, number)


def _nan(t: Lanes, x: Any, found: Any) -> Any:
    return t.select(t.compare(">", t.and_(x, ~SIGN), INF), NAN, found)


def rcp(t: Lanes, x: Any) -> Any:
    """1 / x."""
    field, mantissa, sign = _fields(t, x)
    found = _packed(t, _at(t, "rcp", mantissa), t.b.sub(t.const(x, 253), field))
    found = t.select(_is(t, field, 0), INF, found)
    found = t.select(_is(t, field, 255), 0, found)
    return _nan(t, x, t.b.or_(found, sign))


def _of_root(t: Lanes, x: Any, found: Any, zero: int, large: int) -> Any:
    field, _, sign = _fields(t, x)
    found = t.select(_is(t, field, 255), large, found)
    found = t.select(_is(t, sign, 0), found, NAN)
    return _nan(t, x, t.b.select(_is(t, field, 0), t.or_(sign, zero), found))


def _half(t: Lanes, field: Any) -> tuple[Any, Any]:
    """Where the exponent is odd, and half of the even one below."""
    odd = _is(t, t.and_(field, 1), 0)
    return odd, t.ashr(t.sub(field, 127), 1)


def rsq(t: Lanes, x: Any) -> Any:
    """1 / sqrt(x)."""
    field, mantissa, _ = _fields(t, x)
    odd, half = _half(t, field)
    value = _at(t, "rsq0", mantissa, ("rsq1", odd))
    exact = t.b.and_(t.b.not_(odd), _is(t, mantissa, 0))
    value = t.select(exact, 1 << 44, value)
    return _of_root(t, x, _packed(t, value, t.b.sub(t.const(x, 126), half)), INF, 0)


def sqrt(t: Lanes, x: Any) -> Any:
    """sqrt(x)."""
    field, mantissa, _ = _fields(t, x)
    odd, half = _half(t, field)
    value = _at(t, "sqrt0", mantissa, ("sqrt1", odd))
    return _of_root(t, x, _packed(t, value, t.add(half, 127)), 0, INF)


def _fixed(t: Lanes, mantissa: Any, shift: Any) -> Any:
    """1.mantissa moved left or right; 31 bits at most."""
    full, zero, most = t.or_(mantissa, 1 << 23), t.const(shift, 0), t.const(shift, 31)
    left = t.call("smin", t.call("smax", shift, zero), most)
    right = t.call("smin", t.call("smax", t.b.neg(shift), zero), most)
    return t.b.lshr(t.b.shl(full, left), right)


def ex2(t: Lanes, x: Any) -> Any:
    """2^x."""
    field, mantissa, sign = _fields(t, x)
    negative = _is(t, sign, SIGN)
    fixed = _fixed(t, mantissa, t.sub(field, 127))
    whole, rest = t.lshr(fixed, 23), t.and_(fixed, _TOP)
    some = t.compare("!=", rest, 0)
    complement = t.select(some, t.b.sub(t.const(rest, _TOP), rest), 0)
    below = t.b.neg(t.b.add(whole, t.resize(some, 32)))
    exponent = t.b.select(negative, below, whole)
    argument = t.b.select(negative, complement, rest)
    found = _packed(t, _at(t, "ex2", argument), t.add(exponent, 127))
    large = t.select(negative, 0, t.const(x, INF))
    found = t.b.select(t.compare(">=", field, 135), large, found)
    return _nan(t, x, t.select(_is(t, field, 0), ONE, found))


def lg2(t: Lanes, x: Any) -> Any:
    """log2(x)."""
    field, mantissa, sign = _fields(t, x)
    power = t.shl(t.resize(t.sub(field, 127), 64, True), 44 - LOG_CUT)
    value = t.b.add(t.ashr(_at(t, "lg2", mantissa), LOG_CUT), power)
    below = t.compare("<", value, 0, True)
    size = t.b.select(below, t.b.not_(value), value)
    found = _packed(t, size, t.const(x, 126 + LOG_CUT))
    found = t.b.or_(found, t.shl(t.resize(below, 32), 31))
    found = t.select(_is(t, x, ONE), 0, found)
    found = t.select(_is(t, field, 255), INF, found)
    found = t.select(_is(t, sign, 0), found, NAN)
    return _nan(t, x, t.select(_is(t, field, 0), SIGN | INF, found))


def _wave(t: Lanes, x: Any, ahead: int) -> tuple[Any, Any]:
    """The sine's magnitude, of turns that are `ahead` quarters further, and its sign's bit."""
    field, mantissa, _ = _fields(t, x)
    fixed = _fixed(t, mantissa, t.sub(field, 125))
    quarter, rest = t.add(t.lshr(fixed, 23), ahead), t.and_(fixed, _TOP)
    backward = _is(t, t.and_(quarter, 1), 1)
    rest = t.b.select(backward, t.b.sub(t.const(rest, _TOP), rest), rest)
    found = _packed(t, _at(t, "sin", rest), t.const(x, 126))
    return found, t.and_(t.shl(quarter, 30), SIGN)


def sin(t: Lanes, x: Any) -> Any:
    """sin(2 pi x)."""
    field, _, sign = _fields(t, x)
    found, turned = _wave(t, x, 0)
    found = t.b.or_(found, t.b.xor(turned, sign))
    found = t.b.select(_is(t, field, 0), sign, found)
    return t.select(_is(t, field, 255), NAN, found)


def cos(t: Lanes, x: Any) -> Any:
    """cos(2 pi x)."""
    field, _, _ = _fields(t, x)
    found, turned = _wave(t, x, 1)
    found = t.select(_is(t, field, 0), ONE, t.b.or_(found, turned))
    return t.select(_is(t, field, 255), NAN, found)


def tanh(t: Lanes, x: Any) -> Any:
    """tanh(x). Denormal numbers are kept."""
    field, mantissa, sign = _fields(t, x)
    low = tables()["tanh"].low
    last = len(TANH_DROPPED) - 1
    which = t.call("smax", t.sub(field, TANH_FIRST), t.const(x, 0))
    which = t.call("smin", which, t.const(x, last))
    starts, first = [], 0
    for dropped in TANH_DROPPED:
        starts.append(first << low << 8 | dropped)
        first += 1 << (6 - dropped)
    segment = t.resize(_looked_up(t, "tanh.segments", starts, which), 32)
    argument = t.b.lshr(mantissa, t.and_(segment, 0xFF))
    value = _at(t, "tanh", t.b.add(argument, t.lshr(segment, 8)))
    value = t.shl(t.ashr(value, FRACTION), FRACTION)
    base = t.select(t.compare(">=", field, 127), 126, t.sub(field, 1))
    found = _packed(t, value, base)
    found = t.select(t.compare(">", field, TANH_FIRST + last), ONE, found)
    found = t.b.or_(found, sign)
    return _nan(t, x, t.b.select(t.compare("<", field, TANH_FIRST), x, found))


UNIT: dict[str, Callable[[Lanes, Any], Any]] = {
    "rcp": rcp, "rsq": rsq, "sqrt": sqrt, "ex2": ex2, "lg2": lg2, "sin": sin, "cos": cos,
    "tanh": tanh,
}  # fmt: skip


def unit(t: Lanes, name: str, x: Any) -> Any:
    """A call of a function of UNIT on eight words."""
    module, full = t.b.module, f"multifunction.{name}"
    if full not in module.globals:
        function = ir.Function(module, ir.FunctionType(x.type, [x.type]), full)
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        builder.ret(UNIT[name](Lanes(builder), function.args[0]))
    return t.b.call(module.globals[full], [x])
