"""Approximate functions: ex2, lg2, rcp, rsqrt, sqrt, tanh, sin, cos, div.

The ISA gives bounds of their errors. At the level "fast" each is computed in f64 and rounded once
more, to f32: the result is the correctly rounded one but for about one case in 2^27. At the level
"exact" it is the chip's own word (see `measured`), but for rcp and rsqrt of f64, which nobody has
measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import place, program_row
from mlagen.emulator.ptx.values import formats as f
from mlagen.emulator.ptx.values.half import FORMATS, flush_codes, halves
from mlagen.emulator.ptx.values.lanes import (
    LaneOperation,
    Lanes,
    numbered,
    operation,
    operations,
    vector,
)
from mlagen.emulator.ptx.values.measured import measured

Build = Callable[..., Any]
_EXP2_TERMS = [math.log(2.0) ** n / math.factorial(n) for n in range(14)]


def ex2(t: Lanes, x: Any) -> Any:
    """2 to the x, of f64."""
    low, high = t.const(x, -200.0), t.const(x, 200.0)
    inside = t.b.select(t.b.fcmp_ordered(">", x, low), x, low)
    inside = t.b.select(t.b.fcmp_ordered("<", inside, high), inside, high)
    whole = t.call("floor", t.b.fadd(inside, t.const(x, 0.5)))
    r = t.b.fsub(inside, whole)
    p = t.const(x, _EXP2_TERMS[-1])
    for term in reversed(_EXP2_TERMS[:-1]):
        p = t.call("fma", p, r, t.const(x, term))
    exponent = t.add(t.b.fptosi(whole, vector(32, x.type.count)), 1023)
    scale = t.floats(t.shl(t.resize(exponent, 64), 52))
    return t.b.select(t.is_nan(x), x, t.b.fmul(p, scale))


def lg2(t: Lanes, x: Any) -> Any:
    """The logarithm to base 2, of f64."""
    return t.call("log2", x)


def rcp(t: Lanes, x: Any) -> Any:
    """1 / x, of f64."""
    return t.b.fdiv(t.const(x, 1.0), x)


def rsqrt(t: Lanes, x: Any) -> Any:
    """1 / sqrt(x), of f64."""
    return rcp(t, t.call("sqrt", x))


def sqrt(t: Lanes, x: Any) -> Any:
    """The square root, of f64."""
    return t.call("sqrt", x)


def sin(t: Lanes, x: Any) -> Any:
    """The sine, of f64."""
    return t.call("sin", x)


def cos(t: Lanes, x: Any) -> Any:
    """The cosine, of f64."""
    return t.call("cos", x)


def tanh(t: Lanes, x: Any) -> Any:
    """The hyperbolic tangent, of f64: through exp2 of a negative number; itself where small."""
    size = t.call("fabs", x)
    e = ex2(t, t.b.fmul(size, t.const(x, -2.0 / math.log(2.0))))
    one = t.const(x, 1.0)
    large = t.b.fdiv(t.b.fsub(one, e), t.b.fadd(one, e))
    square = t.b.fmul(x, x)
    series = t.const(x, 62.0 / 2835.0)
    for term in (-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0):
        series = t.call("fma", series, square, t.const(x, term))
    small = t.call("fma", t.b.fmul(size, square), series, size)
    found = t.b.select(t.b.fcmp_ordered("<", size, t.const(x, 0.01)), small, large)
    return t.b.select(t.is_nan(x), x, t.call("copysign", found, x))


FUNCTIONS: dict[str, Callable[[Lanes, Any], Any]] = {
    "ex2": ex2,
    "lg2": lg2,
    "rcp": rcp,
    "rsqrt": rsqrt,
    "sqrt": sqrt,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}


def _of_f32(function: Callable[[Lanes, Any], Any], ftz: bool) -> Build:
    def build(t: Lanes, x: Any) -> Any:
        if ftz:
            x = t.flush(x)
        found = t.b.fptrunc(function(t, t.wide(x)), x.type)
        return t.canonical(t.flush(found) if ftz else found)

    return build


def _div(ftz: bool, approximate: bool) -> Build:
    """a / b. For |b| in 2^126 … 2^128 .approx gives 0, and a NaN where a is infinite."""

    def build(t: Lanes, a: Any, b: Any) -> Any:
        if ftz:
            a, b = t.flush(a), t.flush(b)
        found = t.b.fdiv(a, b)
        if approximate:
            size = t.and_(t.integers(b), 0x7FFFFFFF)
            large = t.compare(">", size, 0x7E800000)
            large = t.b.and_(large, t.compare("<", size, 0x7F800000))
            found = t.b.select(large, t.b.fmul(a, t.const(a, 0.0)), found)
        return t.canonical(t.flush(found) if ftz else found)

    return build


def _of_half(function: Callable[[Lanes, Any], Any], form: f.FloatFormat, ftz: bool) -> Build:
    def build(t: Lanes, x: Any) -> Any:
        if ftz:
            x = flush_codes(t, x, form)
        found = function(t, t.wide(f.widen(t, x, form)))
        codes = t.resize(f.narrow(t, found, form), 16)
        return flush_codes(t, codes, form) if ftz else codes

    return build


def _of_f64(function: Callable[[Lanes, Any], Any]) -> Build:
    """.approx.ftz.f64 of the upper half: the lower half of the result is 0."""

    def build(t: Lanes, x: Any) -> Any:
        keep = t.floats(t.and_(t.integers(x), 0xFFFFFFFF00000000))
        found = t.integers(function(t, _flush_f64(t, keep)))
        nan = t.is_nan(t.floats(found))
        high = t.and_(found, 0xFFFFFFFF00000000)
        return _flush_f64(t, t.floats(t.select(nan, 0x7FFFFFFF00000000, high)))

    return build


def _flush_f64(t: Lanes, x: Any) -> Any:
    bits = t.integers(x)
    small = t.compare("==", t.and_(bits, 0x7FF0000000000000), 0)
    return t.floats(t.select(small, t.and_(bits, 1 << 63), bits))


def _table() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}
    for ftz in (False, True):
        tail = ".ftz" if ftz else ""
        for name, function in FUNCTIONS.items():
            if ftz and name == "tanh":
                continue
            made[f"{name}{tail}.f32"] = operation("f32 = f32", _of_f32(function, ftz))
        made[f"div.full{tail}.f32"] = operation("f32 = f32 f32", _div(ftz, False))
        made[f"div.approx{tail}.f32"] = operation("f32 = f32 f32", _div(ftz, True))
    for name in ("rcp", "rsqrt"):
        made[f"{name}.ftz.f64"] = operation("f64 = f64", _of_f64(FUNCTIONS[name]))
    for name, kind, ftz in (
        ("ex2", "f16", False),
        ("ex2.ftz", "bf16", True),
        ("tanh", "f16", False),
        ("tanh", "bf16", False),
    ):
        build = _of_half(FUNCTIONS[name.partition(".")[0]], FORMATS[kind], ftz)
        made[f"{name}.{kind}"] = operation("b16 = b16", build)
        made[f"{name}.{kind}x2"] = operation("b32 = b32", halves(build))
    return made


APPROXIMATE = _table()
NUMBERS = numbered(APPROXIMATE)
_MEASURED = measured()
_approx = operations(APPROXIMATE)
_exactly = operations({name: _MEASURED.get(name, one) for name, one in APPROXIMATE.items()})


@compiled
def run_approx(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits."""
    p = program_row(context, row)
    registers = place(context, warp, 0)
    number = load_i64(p, y.P_OP)
    if load_i64(context, y.C_EXACT) != 0:
        _exactly(number, p, registers, load_i64(context, y.C_CONSTANTS), mask)
    else:
        _approx(number, p, registers, load_i64(context, y.C_CONSTANTS), mask)
    return y.NEXT
