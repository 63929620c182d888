"""The `.approx` functions as an H200 gives them: what ptxas puts around the multifunction unit.

The model is arithmetic/approx.py. All work on words of bits; sources are `b32` and `b16`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.ptx.arithmetic.approx import LARGE, LEAST, TURN
from mlagen.emulator.ptx.values import formats as f
from mlagen.emulator.ptx.values.lanes import LaneOperation, Lanes, operation, real
from mlagen.emulator.ptx.values.multifunction import unit

Function = Callable[[Lanes, Any], Any]
_UP = 2.0**24


def _times(t: Lanes, x: Any, y: Any) -> Any:
    """The rounded product of words; the hardware knows one NaN."""
    return t.integers(t.canonical(t.b.fmul(t.floats(x), t.floats(y))))


def _scale(t: Lanes, x: Any, number: float) -> Any:
    return _times(t, x, _bits(t, number))


def _bits(t: Lanes, number: float) -> Any:
    """Words of a number."""
    return t.integers(t.const(real(32), number))


def _size(t: Lanes, x: Any) -> Any:
    return t.call("fabs", t.floats(x))


def _tiny(t: Lanes, x: Any) -> Any:
    return t.b.fcmp_ordered("<", _size(t, x), t.const(real(32), float(LEAST)))


def _large(t: Lanes, x: Any) -> Any:
    return t.b.fcmp_ordered(">", _size(t, x), t.const(real(32), float(LARGE)))


def _alone(name: str) -> Function:
    return lambda t, x: unit(t, name, x)


def _scaled(name: str, after: Function) -> Function:
    def build(t: Lanes, x: Any) -> Any:
        tiny = _tiny(t, x)
        found = unit(t, name, t.b.select(tiny, _scale(t, x, _UP), x))
        return t.b.select(tiny, after(t, found), found)

    return build


def _minus_24(t: Lanes, x: Any) -> Any:
    return t.integers(t.canonical(t.b.fadd(t.floats(x), t.const(real(32), -24.0))))


def _rcp(t: Lanes, x: Any) -> Any:
    factor = t.b.select(_large(t, x), _bits(t, 0.25), _bits(t, 1.0))
    factor = t.b.select(_tiny(t, x), _bits(t, _UP), factor)
    return _times(t, unit(t, "rcp", _times(t, x, factor)), factor)


def _ex2(t: Lanes, x: Any) -> Any:
    low = t.b.fcmp_ordered("<", t.floats(x), t.const(real(32), -126.0))
    found = unit(t, "ex2", t.b.select(low, _scale(t, x, 0.5), x))
    return t.b.select(low, _times(t, found, found), found)


def _turns(name: str) -> Function:
    def build(t: Lanes, x: Any) -> Any:
        wide = t.wide(t.floats(x))
        exact = t.b.fmul(wide, t.const(wide, float(TURN)))
        near = t.b.fptrunc(exact, real(32))
        back = t.call("fabs", t.wide(near))
        past = t.b.fcmp_ordered(">", back, t.call("fabs", exact))
        return unit(t, name, t.b.sub(t.integers(near), t.resize(past, 32)))

    return build


def _f16(name: str) -> Function:
    def build(t: Lanes, x: Any) -> Any:
        words = t.integers(f.widen(t, t.resize(x, 16), f.F16))
        found = unit(t, name, words)
        size, sign = t.and_(found, 0x7FFFFFFF), t.and_(t.lshr(found, 16), 0x8000)
        normal = t.lshr(t.sub(size, 0x38000000), 13)
        full = t.or_(t.and_(size, 0x7FFFFF), 0x800000)
        down = t.b.sub(t.const(size, 126), t.lshr(size, 23))
        low = t.b.lshr(full, t.call("umin", down, t.const(size, 31)))
        made = t.b.select(t.compare("<", size, 0x38800000), low, normal)
        made = t.select(t.compare(">=", size, 0x47800000), 0x7C00, made)
        nan = t.compare(">", size, 0x7F800000)
        return t.select(nan, 0x7FFF, t.b.or_(made, sign))

    return build


def _bf16(name: str) -> Function:
    return lambda t, x: t.lshr(unit(t, name, t.shl(x, 16)), 16)


def _flush(t: Lanes, x: Any) -> Any:
    return t.integers(t.flush(t.floats(x)))


def _divided(ftz: bool, full: bool) -> Callable[..., Any]:
    def build(t: Lanes, a: Any, b: Any) -> Any:
        if ftz:
            a, b = _flush(t, a), _flush(t, b)
        one = _bits(t, 1.0)
        factor = one if ftz else t.b.select(_tiny(t, b), _bits(t, _UP), one)
        if full:
            factor = t.b.select(_large(t, b), _bits(t, 0.25), factor)
        used = t.b.icmp_unsigned("!=", factor, one)
        a, b = (t.b.select(used, _times(t, x, factor), x) for x in (a, b))
        if ftz:
            a, b = _flush(t, a), _flush(t, b)
        found = _times(t, unit(t, "rcp", b), a)
        return _flush(t, found) if ftz else found

    return build


def _narrow(function: Function) -> LaneOperation:
    def build(t: Lanes, x: Any) -> Any:
        return t.resize(function(t, t.resize(x, 32)), 16)

    return operation("b16 = b16", build)


def _halves(function: Function) -> LaneOperation:
    def build(t: Lanes, x: Any) -> Any:
        low, high = function(t, t.and_(x, 0xFFFF)), function(t, t.lshr(x, 16))
        return t.b.or_(low, t.shl(high, 16))

    return operation("b32 = b32", build)


def measured() -> dict[str, LaneOperation]:
    """By opcode without `.approx`, all that there is a model of."""
    found: dict[str, Function] = {
        "rcp.ftz.f32": _alone("rcp"),
        "rcp.f32": _rcp,
        "rsqrt.ftz.f32": _alone("rsq"),
        "rsqrt.f32": _scaled("rsq", lambda t, x: _scale(t, x, 4096.0)),
        "sqrt.ftz.f32": _alone("sqrt"),
        "sqrt.f32": _scaled("sqrt", lambda t, x: _scale(t, x, 2.0**-12)),
        "ex2.ftz.f32": _alone("ex2"),
        "ex2.f32": _ex2,
        "lg2.ftz.f32": _alone("lg2"),
        "lg2.f32": _scaled("lg2", _minus_24),
        "tanh.f32": _alone("tanh"),
    }
    for name in ("sin", "cos"):
        found[f"{name}.f32"] = found[f"{name}.ftz.f32"] = _turns(name)
    made = {name: operation("b32 = b32", function) for name, function in found.items()}
    for name, function in (
        ("ex2.f16", _f16("ex2")),
        ("tanh.f16", _f16("tanh")),
        ("ex2.ftz.bf16", _bf16("ex2")),
        ("tanh.bf16", _bf16("tanh")),
    ):
        made[name], made[f"{name}x2"] = _narrow(function), _halves(function)
    for how in ("approx", "full"):
        for ftz in (False, True):
            key = f"div.{how}{'.ftz' if ftz else ''}.f32"
            made[key] = operation("b32 = b32 b32", _divided(ftz, how == "full"))
    return made
