"""f32 and f64 arithmetic.

`mul` and `add` without a rounding are rounded to nearest even, each by itself: ptxas may contract
them to an fma. A NaN of f32 is the canonical 0x7fffffff. Where two NaNs of f64 meet, which payload
goes on is this machine's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import place, program_row
from mlagen.emulator.ptx.values import formats as f
from mlagen.emulator.ptx.values.lanes import LaneOperation, Lanes, numbered, operation, operations

Build = Callable[..., Any]
_COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "rcp": 1, "sqrt": 1}


def exact_or_nearest(t: Lanes, name: str, x: tuple[Any, ...]) -> Any:
    """The operation, rounded to nearest even."""
    if name in ("fma", "sqrt"):
        return t.call(name, *x)
    if name == "rcp":
        return t.b.fdiv(t.const(x[0], 1.0), x[0])
    return getattr(t.b, f"f{name}")(*x)


def _finish(t: Lanes, value: Any, ftz: bool, sat: bool) -> Any:
    if ftz:
        value = t.flush(value)
    return t.saturate(value) if sat else t.canonical(value)


def nearest(name: str, ftz: bool, sat: bool = False) -> Build:
    """f32, rounded to nearest even."""

    def build(t: Lanes, *x: Any) -> Any:
        if ftz:
            x = tuple(t.flush(one) for one in x)
        return _finish(t, exact_or_nearest(t, name, x), ftz, sat)

    return build


def _directed(name: str, ftz: bool, sat: bool) -> Build:
    """f32, rounded as P_FLAGS says: through f64, rounded to odd."""

    def build(t: Lanes, *x: Any) -> Any:
        if ftz:
            x = tuple(t.flush(one) for one in x)
        rounding = t.word(y.P_FLAGS, t.integers(t.wide(x[0])).type)
        found = odd(t, name, tuple(t.wide(one) for one in x))
        if name in ("add", "sub", "fma"):
            found = _zero_sum(t, name, x, found, rounding)
        return _finish(t, f.f32_of_odd(t, found, rounding), ftz, sat)

    return build


def _zero_sum(t: Lanes, name: str, x: tuple[Any, ...], found: Any, rounding: Any) -> Any:
    """A sum that is exactly zero, of numbers of both signs, is -0 where it is rounded down."""
    a, b = (t.wide(one) for one in x[-2:])
    if name == "fma":
        a = t.b.fmul(t.wide(x[0]), a)
    if name == "sub":
        b = t.b.fneg(b)
    signs = t.xor(t.integers(a), t.integers(b))
    zero = t.b.fcmp_ordered("==", found, t.const(found, 0.0))
    minus = t.b.and_(zero, t.compare("<", signs, 0, True))
    minus = t.b.and_(minus, t.compare("==", rounding, f.RM))
    return t.b.select(minus, t.const(found, -0.0), found)


def odd(t: Lanes, name: str, x: tuple[Any, ...]) -> Any:
    """The operation on f64 that hold f32 or less, rounded to odd."""
    if name == "add":
        return f.odd_sum(t, *x)
    if name == "sub":
        return f.odd_sum(t, x[0], t.b.fneg(x[1]))
    if name == "mul":
        return t.b.fmul(*x)
    if name == "fma":
        return f.odd_fma(t, *x)
    if name == "sqrt":
        root = t.call("sqrt", x[0])
        return f.to_odd(t, root, t.call("fma", t.b.fneg(root), root, x[0]))
    over, under = (t.const(x[0], 1.0), x[0]) if name == "rcp" else x
    quotient = t.b.fdiv(over, under)
    rest = t.call("fma", t.b.fneg(quotient), under, over)
    # What is left has the sign of the divisor, too.
    sign = t.and_(t.integers(under), 1 << 63)
    return f.to_odd(t, quotient, t.floats(t.b.xor(t.integers(rest), sign)))


def _pairs(build: Build) -> Build:
    """Of 64 bits each half as an f32 by itself."""

    def both(t: Lanes, *x: Any) -> Any:
        made = build(t, *(t.floats(t.bits(one, 32)) for one in x))
        return t.bits(t.integers(made), 64)

    return both


def extremum(t: Lanes, larger: bool, nan: bool, a: Any, b: Any) -> Any:
    """min or max: a NaN loses (`nan`: wins); -0 lies under +0."""
    best = t.b.select(t.b.fcmp_ordered(">" if larger else "<", a, b), a, b)
    x, z = t.integers(a), t.integers(b)
    both = t.floats(t.b.and_(x, z) if larger else t.b.or_(x, z))
    best = t.b.select(t.b.fcmp_ordered("==", a, b), both, best)
    if nan:
        best = t.b.select(t.is_nan(b), b, best)
        return t.b.select(t.is_nan(a), a, best)
    best = t.b.select(t.is_nan(b), a, best)
    return t.b.select(t.is_nan(a), b, best)


def magnitude(t: Lanes, x: Any) -> Any:
    """Without the sign."""
    return t.floats(t.and_(t.integers(x), (1 << t.width(x) - 1) - 1))


def _extremum(larger: bool, ftz: bool, nan: bool, absolute: str) -> Build:
    def build(t: Lanes, *x: Any) -> Any:
        if ftz:
            x = tuple(t.flush(one) for one in x)
        values = tuple(magnitude(t, one) for one in x) if absolute else x
        best = values[0]
        for other in values[1:]:
            best = extremum(t, larger, nan, best, other)
        best = t.canonical(best)
        if absolute != "xorsign":
            return best
        signs = t.and_(t.b.xor(t.integers(x[0]), t.integers(x[1])), 0x80000000)
        signed = t.floats(t.b.or_(t.integers(best), signs))
        return t.b.select(t.is_nan(best), best, signed)

    return build


def _sign(name: str, ftz: bool) -> Build:
    def build(t: Lanes, x: Any) -> Any:
        if ftz:
            x = t.flush(x)
        top = 1 << t.width(x) - 1
        bits = t.integers(x)
        return t.floats(t.and_(bits, top - 1) if name == "abs" else t.xor(bits, top))

    return build


def _copysign(t: Lanes, a: Any, b: Any) -> Any:
    """The sign of a, the rest of b."""
    top = 1 << t.width(a) - 1
    return t.b.or_(t.and_(a, top), t.and_(b, top - 1))


def _table() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}
    for ftz in (False, True):
        tail = ".ftz" if ftz else ""
        for name, count in _COUNTS.items():
            kinds = "f32 = " + "f32 " * count
            for sat in (False, True) if name in ("add", "sub", "mul", "fma") else (False,):
                key = f"{name}{tail}{'.sat' if sat else ''}"
                made[f"{key}.f32"] = operation(kinds, nearest(name, ftz, sat))
                made[f"{key}.rounded.f32"] = operation(kinds, _directed(name, ftz, sat))
            if name in ("add", "sub", "mul", "fma"):
                pairs = _pairs(nearest(name, ftz))
                made[f"{name}{tail}.f32x2"] = operation("b64 = " + "b64 " * count, pairs)
        for name in ("abs", "neg"):
            made[f"{name}{tail}.f32"] = operation("f32 = f32", _sign(name, ftz))
        for name in ("min", "max"):
            for nan in (False, True):
                key = f"{name}{tail}{'.nan' if nan else ''}"
                larger = name == "max"
                build = _extremum(larger, ftz, nan, "")
                made[f"{key}.f32"] = operation("f32 = f32 f32", build)
                made[f"{key}3.f32"] = operation("f32 = f32 f32 f32", build)
                build = _extremum(larger, ftz, nan, "abs")
                made[f"{key}.abs3.f32"] = operation("f32 = f32 f32 f32", build)
                build = _extremum(larger, ftz, nan, "xorsign")
                made[f"{key}.xorsign.f32"] = operation("f32 = f32 f32", build)
    for name, count in _COUNTS.items():
        made[f"{name}.f64"] = operation("f64 = " + "f64 " * count, _f64(name))
        made[f"{name}.rounded.f64"] = operation("f64 = " + "f64 " * count, _directed_f64(name))
    for name in ("abs", "neg"):
        made[f"{name}.f64"] = operation("f64 = f64", _sign(name, False))
    for name in ("min", "max"):
        made[f"{name}.f64"] = operation("f64 = f64 f64", _extremum_f64(name == "max"))
    for width in (32, 64):
        made[f"copysign.f{width}"] = operation(f"b{width} = b{width} b{width}", _copysign)
    return made


def _f64(name: str) -> Build:
    return lambda t, *x: exact_or_nearest(t, name, x)


def _directed_f64(name: str) -> Build:
    """f64, rounded as P_FLAGS says: by the machine."""

    def build(t: Lanes, *x: Any) -> Any:
        mode = f.machine_rounding(t, y.P_FLAGS)
        if name in ("fma", "sqrt"):
            return t.rounded(name, mode, *x)
        if name == "rcp":
            return t.rounded("fdiv", mode, t.const(x[0], 1.0), x[0])
        return t.rounded(f"f{name}", mode, *x)

    return build


def _extremum_f64(larger: bool) -> Build:
    return lambda t, a, b: extremum(t, larger, False, a, b)


FLOATS = _table()
NUMBERS = numbered(FLOATS)
_float = operations(FLOATS)


@compiled
def run_float(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits."""
    p = program_row(context, row)
    registers = place(context, warp, 0)
    _float(load_i64(p, y.P_OP), p, registers, load_i64(context, y.C_CONSTANTS), mask)
    return y.NEXT
