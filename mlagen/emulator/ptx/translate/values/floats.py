"""Rows of f32, f64, f16 and bf16 arithmetic, and of the approximate functions."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.emulator.ptx.translate.values.value_operands import (
    FLOATS,
    Modifiers,
    bits_of,
    number,
    result,
    row_of,
    source,
)
from mlagen.emulator.ptx.values import approx, floats, half
from mlagen.emulator.ptx.values.formats import ROUNDINGS
from mlagen.ptx import Instruction

_HALF = ("f16", "f16x2", "bf16", "bf16x2")
_DIRECTIONS = ("rn", "rz", "rm", "rp")
_ROUNDED = ("add", "sub", "mul", "fma", "div", "rcp", "sqrt")


def is_float(kind: str) -> bool:
    """Whether a type is a floating-point one, packed ones included."""
    return kind in FLOATS or kind in (*_HALF, "f32x2")


def _row(t: Translator, i: Instruction, kind: int, op: int, width: int, count: int) -> Row:
    if len(i.operands) != 1 + count:
        raise not_modelled(i, f"{len(i.operands)} operands")
    real = is_float(i.parts[-1]) and "x2" not in i.parts[-1] and width > 16
    places = [source(t, i, operand, width, real) for operand in i.operands[1:]]
    return row_of(kind, op, [result(t, i, i.operands[0], width)], places)


def _ftz(m: Modifiers) -> str:
    return ".ftz" if m.flag("ftz") else ""


def arithmetic(t: Translator, i: Instruction) -> Row:
    """add, sub, mul, fma, mad, div, rcp, sqrt with a rounding."""
    m = Modifiers(i)
    if m.type in _HALF:
        return _half(t, i, m)
    name = "fma" if i.name == "mad" else i.name
    rounding = m.one(_DIRECTIONS, "rn")
    ftz, sat = _ftz(m), ".sat" if m.flag("sat") else ""
    m.end()
    directed = ".rounded" if rounding != "rn" else ""
    key = f"{name}{ftz}{sat}{directed}.{m.type}"
    count = {"fma": 3, "rcp": 1, "sqrt": 1}.get(name, 2)
    found = _row(t, i, y.X_FLOAT, number(floats.NUMBERS, key, i), bits_of(m.type), count)
    found.flags = ROUNDINGS[rounding]
    return found


def _half(t: Translator, i: Instruction, m: Modifiers) -> Row:
    m.flag("rn")
    ftz = _ftz(m)
    last = "oob" * m.flag("oob") + "relu" * m.flag("relu") + "sat" * m.flag("sat")
    m.end()
    key = f"{i.name}{ftz}{'.' if last else ''}{last}.{m.type}"
    count = 3 if i.name == "fma" else 2
    return _row(t, i, y.X_HALF, number(half.NUMBERS, key, i), bits_of(m.type), count)


def extremum(t: Translator, i: Instruction) -> Row:
    """min and max."""
    m = Modifiers(i)
    ftz, nan = _ftz(m), ".nan" if m.flag("NaN") else ""
    sign = ".xorsign" if m.flag("xorsign") else ""
    absolute = m.flag("abs")
    m.end()
    three = "3" if len(i.operands) == 4 else ""
    if absolute and not sign:
        sign = ".abs"
    if sign == ".xorsign" and not absolute:
        raise not_modelled(i, ".xorsign without .abs")
    key = f"{i.name}{ftz}{nan}{sign}{three}.{m.type}"
    table, kind = (half.NUMBERS, y.X_HALF) if m.type in _HALF else (floats.NUMBERS, y.X_FLOAT)
    count = 3 if three else 2
    return _row(t, i, kind, number(table, key, i), bits_of(m.type), count)


def sign(t: Translator, i: Instruction) -> Row:
    """abs and neg."""
    m = Modifiers(i)
    key = f"{i.name}{_ftz(m)}.{m.type}"
    m.end()
    table, kind = (half.NUMBERS, y.X_HALF) if m.type in _HALF else (floats.NUMBERS, y.X_FLOAT)
    return _row(t, i, kind, number(table, key, i), bits_of(m.type), 1)


def _copysign(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    m.end()
    op = number(floats.NUMBERS, f"copysign.{m.type}", i)
    return _row(t, i, y.X_FLOAT, op, bits_of(m.type), 2)


def approximate(t: Translator, i: Instruction) -> Row:
    """The functions with .approx, and div.full."""
    m = Modifiers(i)
    approximately, full = m.flag("approx"), m.flag("full")
    ftz = _ftz(m)
    m.end()
    if i.name == "div":
        how = "full" if full else "approx"
        op = number(approx.NUMBERS, f"div.{how}{ftz}.{m.type}", i)
        return _row(t, i, y.X_APPROX, op, 32, 2)
    if not approximately or full:
        raise not_modelled(i, "without .approx")
    op = number(approx.NUMBERS, f"{i.name}{ftz}.{m.type}", i)
    return _row(t, i, y.X_APPROX, op, bits_of(m.type), 1)


def either(t: Translator, i: Instruction) -> Row:
    """div, rcp and sqrt: rounded, or approximate."""
    if "approx" in i.parts or "full" in i.parts:
        return approximate(t, i)
    if not set(i.parts) & set(_DIRECTIONS):
        if i.name == "div" and i.parts[-1] == "f32":
            raise not_modelled(i, "without a rounding or .approx")
        raise not_modelled(i, "without a rounding")
    return arithmetic(t, i)


TRANSLATIONS: dict[str, Translation] = {
    **dict.fromkeys(_ROUNDED, arithmetic),
    **dict.fromkeys(("div", "rcp", "sqrt"), either),
    **dict.fromkeys(("ex2", "lg2", "rsqrt", "sin", "cos", "tanh"), approximate),
    "mad": arithmetic,
    "min": extremum,
    "max": extremum,
    "abs": sign,
    "neg": sign,
    "copysign": _copysign,
}
