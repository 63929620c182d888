"""Rows of integer instructions."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.emulator.ptx.translate.values.value_operands import (
    Modifiers,
    bits_of,
    number,
    result,
    row_of,
    source,
)
from mlagen.emulator.ptx.values.integers import NUMBERS
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Vector

_SIGNED = ("div", "rem", "min", "max", "sad")
_LOGIC = ("and", "or", "xor", "not", "cnot")


def row(t: Translator, i: Instruction, key: str, width: int, *sources: int) -> Row:
    """An operation whose destination and sources have these bits."""
    if len(i.operands) != 1 + len(sources):
        raise not_modelled(i, f"{len(i.operands)} operands")
    places = [source(t, i, o, w) for o, w in zip(i.operands[1:], sources, strict=True)]
    return row_of(
        y.X_INTEGER, number(NUMBERS, key, i), [result(t, i, i.operands[0], width)], places
    )


def _type(i: Instruction, kind: str, allowed: str = "us") -> tuple[str, int]:
    """Sign and bits of an integer type."""
    if kind[0] not in allowed:
        raise not_modelled(i, f"type .{kind}")
    return kind[0], bits_of(kind)


def _sum(t: Translator, i: Instruction) -> Row:
    """add and sub."""
    m = Modifiers(i)
    carry, sat = m.flag("cc"), m.flag("sat")
    m.end()
    if m.type in ("u16x2", "s16x2"):
        return row(t, i, f"{i.name}16x2", 32, 32, 32)
    _, width = _type(i, m.type, "us")
    if sat:
        if m.type != "s32":
            raise not_modelled(i, "with .sat")
        return row(t, i, f"{i.name}.sat", 32, 32, 32)
    if not carry:
        return row(t, i, f"{i.name}{width}", width, width, width)
    found = row(t, i, f"{i.name}.cc{width}", width, width, width)
    found.dst2 = _carry(t)
    return found


def _carry(t: Translator) -> int:
    return t.hidden("carry", 8)


def _carry_out(t: Translator, out: bool) -> int:
    return _carry(t) if out else t.hidden("lost carry", 8)


def _sum_with_carry(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    out = m.flag("cc")
    m.end()
    _, width = _type(i, m.type)
    found = row(t, i, f"{i.name}{width}", width, width, width)
    found.c, found.dst2 = _carry(t), _carry_out(t, out)
    return found


def _product(t: Translator, i: Instruction) -> Row:
    """mul and mad."""
    m = Modifiers(i)
    part = m.one(("lo", "hi", "wide"))
    sat, carry = m.flag("sat"), m.flag("cc")
    m.end()
    sign, width = _type(i, m.type)
    third = (2 * width if part == "wide" else width,) * (i.name == "mad")
    wide = 2 * width if part == "wide" else width
    if not part:
        raise not_modelled(i, "without .lo, .hi or .wide")
    tail = f".lo{width}" if part == "lo" else f".{part}.{sign}{width}"
    key = f"{i.name}{tail}"
    if sat:
        if (i.name, part, m.type) != ("mad", "hi", "s32") or carry:
            raise not_modelled(i, "with .sat")
        key = "mad.hi.sat"
    if not carry:
        return row(t, i, key, wide, width, width, *third)
    if i.name != "mad" or part == "wide":
        raise not_modelled(i, "with .cc")
    found = row(t, i, f"mad.{_half(part, sign)}.cc{width}", width, width, width, width)
    found.dst2 = _carry(t)
    return found


def _half(part: str, sign: str) -> str:
    return "lo" if part == "lo" else f"hi.{sign}"


def _product_with_carry(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    part, out = m.one(("lo", "hi")), m.flag("cc")
    m.end()
    sign, width = _type(i, m.type)
    found = row(t, i, f"madc.{_half(part, sign)}{width}", width, width, width, width)
    found.d, found.dst2 = _carry(t), _carry_out(t, out)
    return found


def _product24(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    part, sat = m.one(("lo", "hi")), m.flag("sat")
    m.end()
    sign, _ = _type(i, m.type)
    key = f"{i.name}.{part}.{sign}"
    if sat:
        if (part, m.type, i.name) != ("hi", "s32", "mad24"):
            raise not_modelled(i, "with .sat")
        key = "mad24.hi.sat"
    return row(t, i, key, 32, *(32,) * (3 if i.name == "mad24" else 2))


def _signed(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    relu = m.flag("relu")
    m.end()
    if i.name in ("min", "max"):
        three = "3" if len(i.operands) == 4 else ""
        sources = (32,) * (3 if three else 2)
        if m.type in ("u16x2", "s16x2") or relu:
            tail = ".relu" if relu else ""
            return row(t, i, f"{i.name}{three}{tail}.{m.type}", 32, *sources)
        if three:
            return row(t, i, f"{i.name}3.{m.type}", 32, *sources)
    sign, width = _type(i, m.type)
    count = 3 if i.name == "sad" else 2
    return row(t, i, f"{i.name}.{sign}{width}", width, *(width,) * count)


def _one(t: Translator, i: Instruction) -> Row:
    """neg, abs: signed numbers."""
    m = Modifiers(i)
    m.end()
    _, width = _type(i, m.type, "s")
    return row(t, i, f"{i.name}{width}", width, width)


def logic(t: Translator, i: Instruction) -> Row:
    """and, or, xor, not, cnot of bits."""
    m = Modifiers(i)
    m.end()
    _, width = _type(i, m.type, "b")
    sources = (width,) * (1 if i.name in ("not", "cnot") else 2)
    return row(t, i, f"{i.name}{width}", width, *sources)


def _count(t: Translator, i: Instruction) -> Row:
    """popc, clz, brev."""
    m = Modifiers(i)
    m.end()
    _, width = _type(i, m.type, "b")
    return row(t, i, f"{i.name}{width}", width if i.name == "brev" else 32, width)


def _bfind(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    tail = ".shiftamt" if m.flag("shiftamt") else ""
    m.end()
    sign, width = _type(i, m.type)
    return row(t, i, f"bfind{tail}.{sign}{width}", 32, width)


def _field(t: Translator, i: Instruction) -> Row:
    """bfe and bfi."""
    m = Modifiers(i)
    m.end()
    sign, width = _type(i, m.type, "b" if i.name == "bfi" else "us")
    if i.name == "bfi":
        return row(t, i, f"bfi{width}", width, width, width, 32, 32)
    return row(t, i, f"bfe.{sign}{width}", width, width, 32, 32)


def _shift(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    m.end()
    sign, width = _type(i, m.type, "b" if i.name == "shl" else "usb")
    tail = "" if i.name == "shl" else ".s" if sign == "s" else ".u"
    return row(t, i, f"{i.name}{tail}{width}", width, width, 32)


def _funnel(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    side, mode = m.one(("l", "r")), m.one(("wrap", "clamp"))
    m.end()
    return row(t, i, f"shf.{side}.{mode}", bits_of(m.type), 32, 32, 32)


def _extend(t: Translator, i: Instruction) -> Row:
    """bmsk and szext."""
    m = Modifiers(i)
    mode = m.one(("wrap", "clamp"))
    m.end()
    sign = f".{m.type[0]}" if i.name == "szext" else ""
    return row(t, i, f"{i.name}.{mode}{sign}", bits_of(m.type), 32, 32)


def _dot(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i, types=2)
    mode = "." + m.one(("lo", "hi")) if i.name == "dp2a" else ""
    m.end()
    return row(t, i, f"{i.name}{mode}.{m.types[0][0]}{m.types[1][0]}", 32, 32, 32, 32)


def _lop3(t: Translator, i: Instruction) -> Row:
    if isinstance(i.operands[0], Vector) or len(i.operands) != 5 or i.parts != ("lop3", "b32"):
        raise not_modelled(i, "with a predicate")
    table = i.operands[4]
    if not isinstance(table, int):
        raise not_modelled(i, "a table that is no number")
    places = [source(t, i, o, 32) for o in i.operands[1:4]]
    where = result(t, i, i.operands[0], 32)
    found = row_of(y.X_INTEGER, NUMBERS["lop3"], [where], places)
    found.immediate = table & 255
    return found


def _fns(t: Translator, i: Instruction) -> Row:
    Modifiers(i).end()
    return row(t, i, "fns", 32, 32, 32, 32)


TRANSLATIONS: dict[str, Translation] = {
    "add": _sum,
    "sub": _sum,
    "addc": _sum_with_carry,
    "subc": _sum_with_carry,
    "mul": _product,
    "mad": _product,
    "madc": _product_with_carry,
    "mul24": _product24,
    "mad24": _product24,
    "abs": _one,
    "neg": _one,
    "popc": _count,
    "clz": _count,
    "brev": _count,
    "bfind": _bfind,
    "bfe": _field,
    "bfi": _field,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "bmsk": _extend,
    "szext": _extend,
    "dp4a": _dot,
    "dp2a": _dot,
    "lop3": _lop3,
    "fns": _fns,
    **dict.fromkeys(_SIGNED, _signed),
    **dict.fromkeys(_LOGIC, logic),
}
