"""f16 and bf16 arithmetic, one number or two in a register.

Sums and products are made in f64, rounded to odd, and then rounded once to the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import place, program_row
from mlagen.emulator.ptx.values import formats as f
from mlagen.emulator.ptx.values.floats import odd
from mlagen.emulator.ptx.values.lanes import LaneOperation, Lanes, numbered, operation, operations

Build = Callable[..., Any]
FORMATS = {"f16": f.F16, "bf16": f.BF16}
_OOB = 0xFFFF  # the NaN that .oob takes for a missing operand
_COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3}


def flush_codes(t: Lanes, codes: Any, form: f.FloatFormat) -> Any:
    """Denormals as zeros of their sign."""
    top = (1 << form.exponent) - 1 << form.mantissa
    small = t.compare("==", t.and_(codes, top), 0)
    return t.select(small, t.and_(codes, 0x8000), codes)


def is_nan(t: Lanes, codes: Any, form: f.FloatFormat) -> Any:
    """Whether a code is a NaN."""
    assert form.infinity is not None
    return t.compare(">", t.and_(codes, 0x7FFF), form.infinity)


def _arithmetic(name: str, form: f.FloatFormat, ftz: bool, last: str) -> Build:
    def build(t: Lanes, *x: Any) -> Any:
        if ftz:
            x = tuple(flush_codes(t, one, form) for one in x)
        wide = tuple(t.wide(f.widen(t, one, form)) for one in x)
        made = t.resize(f.narrow(t, odd(t, name, wide), form), 16)
        if ftz:
            made = flush_codes(t, made, form)
        made = _last(t, made, form, last)
        if last.startswith("oob"):
            for one in x:
                made = t.select(t.compare("==", one, _OOB), 0, made)
        return made

    return build


def _last(t: Lanes, made: Any, form: f.FloatFormat, last: str) -> Any:
    """.sat: to 0 … 1; .relu: to 0 and more. A NaN: +0, or stays."""
    if last == "sat":
        one = form.bias << form.mantissa
        made = t.select(t.compare(">", made, one, True), one, made)
        return t.select(t.compare("<", made, 0, True), 0, made)
    if last.endswith("relu"):
        return t.select(t.compare("<", made, 0, True), 0, made)
    return made


def _saturated(name: str, form: f.FloatFormat, ftz: bool) -> Build:
    inner = _arithmetic(name, form, ftz, "")

    def build(t: Lanes, *x: Any) -> Any:
        made = inner(t, *x)
        clamped = _last(t, made, form, "sat")
        return t.select(is_nan(t, made, form), 0, clamped)

    return build


def _key(t: Lanes, codes: Any) -> Any:
    """Integers in the order of the numbers: -0 under +0."""
    return t.b.xor(codes, t.and_(t.ashr(codes, 15), 0x7FFF))


def _extremum(form: f.FloatFormat, larger: bool, ftz: bool, nan: bool, xorsign: bool) -> Build:
    def pick(t: Lanes, a: Any, b: Any) -> Any:
        first = t.compare(">" if larger else "<", _key(t, a), _key(t, b), True)
        best = t.b.select(first, a, b)
        if nan:
            either = t.b.or_(is_nan(t, a, form), is_nan(t, b, form))
            return t.select(either, form.nan, best)
        best = t.b.select(is_nan(t, b, form), a, best)
        best = t.b.select(is_nan(t, a, form), b, best)
        return t.select(is_nan(t, best, form), form.nan, best)

    def build(t: Lanes, *x: Any) -> Any:
        if ftz:
            x = tuple(flush_codes(t, one, form) for one in x)
        values = tuple(t.and_(one, 0x7FFF) for one in x) if xorsign else x
        best = values[0]
        for other in values[1:]:
            best = pick(t, best, other)
        if not xorsign:
            return best
        signs = t.and_(t.b.xor(*x), 0x8000)
        return t.b.select(is_nan(t, best, form), best, t.b.or_(best, signs))

    return build


def _sign(name: str, form: f.FloatFormat, ftz: bool) -> Build:
    def build(t: Lanes, x: Any) -> Any:
        if ftz:
            x = flush_codes(t, x, form)
        return t.and_(x, 0x7FFF) if name == "abs" else t.xor(x, 0x8000)

    return build


def halves(build: Build) -> Build:
    """Of 32 bits each half by itself."""
    return lambda t, *x: t.bits(build(t, *(t.bits(one, 16) for one in x)), 32)


def _table() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}

    def put(name: str, count: int, build: Build) -> None:
        made[name] = operation("b16 = " + "b16 " * count, build)
        made[f"{name}x2"] = operation("b32 = " + "b32 " * count, halves(build))

    for kind, form in FORMATS.items():
        for ftz in (False, True) if kind == "f16" else (False,):
            tail = ".ftz" if ftz else ""
            for name, count in _COUNTS.items():
                put(f"{name}{tail}.{kind}", count, _arithmetic(name, form, ftz, ""))
                if kind == "f16":
                    put(f"{name}{tail}.sat.{kind}", count, _saturated(name, form, ftz))
            for last in ("relu", "oob", "oobrelu"):
                put(f"fma{tail}.{last}.{kind}", 3, _arithmetic("fma", form, ftz, last))
            for name in ("abs", "neg"):
                put(f"{name}{tail}.{kind}", 1, _sign(name, form, ftz))
            for name in ("min", "max"):
                for nan in (False, True):
                    key = f"{name}{tail}{'.nan' if nan else ''}"
                    build = _extremum(form, name == "max", ftz, nan, False)
                    put(f"{key}.{kind}", 2, build)
                    put(f"{key}3.{kind}", 3, build)
                    signed = _extremum(form, name == "max", ftz, nan, True)
                    put(f"{key}.xorsign.{kind}", 2, signed)
    return made


HALVES = _table()
NUMBERS = numbered(HALVES)
_half = operations(HALVES)


@compiled
def run_half(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits."""
    p = program_row(context, row)
    registers = place(context, warp, 0)
    _half(load_i64(p, y.P_OP), p, registers, load_i64(context, y.C_CONSTANTS), mask)
    return y.NEXT
