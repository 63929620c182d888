"""Rows of comparisons, choices and predicates."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.emulator.ptx.translate.values.floats import is_float
from mlagen.emulator.ptx.translate.values.value_operands import (
    Modifiers,
    bits_of,
    number,
    predicate,
    result,
    source,
)
from mlagen.emulator.ptx.values import select as s
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Operand, Vector

_JOINS = {"and": s.AND, "or": s.OR, "xor": s.XOR}
_ORDERED = {
    "eq": s.EQUAL,
    "ne": s.LESS | s.GREATER,
    "lt": s.LESS,
    "le": s.LESS | s.EQUAL,
    "gt": s.GREATER,
    "ge": s.GREATER | s.EQUAL,
}
_UNSIGNED = {"lo": _ORDERED["lt"], "ls": _ORDERED["le"], "hi": _ORDERED["gt"], "hs": _ORDERED["ge"]}
_FLOATING = {
    **_ORDERED,
    **{f"{name}u": code | s.UNORDERED for name, code in _ORDERED.items()},
    "num": s.LESS | s.EQUAL | s.GREATER,
    "nan": s.UNORDERED,
}
_RESULTS = ("u32", "s32", "f32", "u16", "s16", "f16", "bf16")
_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f16x2": 0x3C00, "bf16x2": 0x3F80}
_TABLES = {"and": 0b1000, "or": 0b1110, "xor": 0b0110, "not": 0b0011, "mov": 0b1100}
_WINDOWS = {
    "shared": (y.GENERIC_SHARED, y.GENERIC_END),
    "shared::cluster": (y.GENERIC_SHARED, y.GENERIC_END),
    "shared::cta": (y.GENERIC_SHARED, y.GENERIC_END),
    "local": (y.GENERIC_LOCAL, y.GENERIC_SHARED),
    "param": (y.GENERIC_PARAM, y.GENERIC_LOCAL),
    "param::entry": (y.GENERIC_PARAM, y.GENERIC_LOCAL),
    "const": (y.GENERIC_CONST, y.GENERIC_PARAM),
    "global": (y.GENERIC_CONST, y.GENERIC_END),
}


def _code(i: Instruction, name: str, kind: str) -> int:
    """The relation's bits for a type."""
    if is_float(kind):
        table = _FLOATING
    elif kind[0] == "u":
        table = {**_ORDERED, **_UNSIGNED}
    elif kind[0] == "b":
        table = {"eq": _ORDERED["eq"], "ne": _ORDERED["ne"]}
    else:
        table = _ORDERED
    if name not in table:
        raise not_modelled(i, f".{name} of {kind}")
    return table[name]


def _comparison(t: Translator, i: Instruction, m: Modifiers, operands: tuple[Operand, ...]) -> Row:
    """What setp and set share; the destinations are left out."""
    comparison = m.left.pop(0)
    joining = m.one(_JOINS)
    ftz = ".ftz" if m.flag("ftz") else ""
    m.end()
    kind = m.type
    code = _code(i, comparison, kind)
    name = kind if is_float(kind) else f"{'u' if kind[0] == 'b' else kind[0]}{bits_of(kind)}"
    packed = kind.endswith("x2")
    if len(operands) != (3 if joining else 2):
        raise not_modelled(i, f"{len(i.operands)} operands")
    width = bits_of(kind)
    a, b = (
        source(t, i, o, width, is_float(kind) and width > 16 and not packed) for o in operands[:2]
    )
    c, negated = predicate(t, i, operands[2]) if joining else (y.NONE, False)
    upper = number(s.RELATION_NUMBERS, f"{name}{ftz}.upper", i) if packed else -1
    return Row(
        y.X_SELECT,
        s.SETP,
        a=a,
        b=b,
        c=c,
        type=number(s.RELATION_NUMBERS, f"{name}{ftz}", i),
        type2=s.NOT_C if negated else 0,
        flags=code,
        immediate=_JOINS.get(joining, s.ALONE),
        aux=(upper, 0),
    )


def _setp(t: Translator, i: Instruction) -> Row:
    found = _comparison(t, i, Modifiers(i), i.operands[1:])
    first = i.operands[0]
    both = first.items if isinstance(first, Vector) else (first,)
    places = [y.NONE if o == "_" else result(t, i, o, 1) for o in both]
    found.dst = places[0]
    found.dst2 = places[1] if len(places) > 1 else y.NONE
    return found


def _set(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i, types=2)
    kind = m.types[0]
    packed = m.type.endswith("x2")
    found = _comparison(t, i, m, i.operands[1:])
    width = bits_of(kind)
    allowed = ("f16x2", "bf16x2") if packed else _RESULTS
    if kind not in allowed:
        raise not_modelled(i, f"to .{kind}")
    found.op = s.SET
    ones = 0xFFFF if width == 16 or packed else y.ALL
    found.aux = (found.aux[0], _ONES.get(kind, ones))
    found.dst = result(t, i, i.operands[0], width)
    return found


def _testp(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    name = m.left.pop(0)
    m.end()
    width = bits_of(m.type)
    where = source(t, i, i.operands[1], width, True)
    relation = number(s.RELATION_NUMBERS, f"testp.{name}.{m.type}", i)
    found = Row(y.X_SELECT, s.SETP, a=where, b=where, type=relation, flags=s.LESS, aux=(-1, 0))
    found.dst = result(t, i, i.operands[0], 1)
    return found


def _selp(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i)
    m.end()
    width = bits_of(m.type)
    real = is_float(m.type)
    a, b = (source(t, i, o, width, real) for o in i.operands[1:3])
    c, negated = predicate(t, i, i.operands[3])
    if negated:
        a, b = b, a
    op = s.CHOICE + number(s.NUMBERS, f"selp{width}", i)
    return Row(y.X_SELECT, op, result(t, i, i.operands[0], width), a, b, c)


def _slct(t: Translator, i: Instruction) -> Row:
    m = Modifiers(i, types=2)
    ftz = ".ftz" if m.flag("ftz") else ""
    m.end()
    width = bits_of(m.types[0])
    a, b = (source(t, i, o, width, is_float(m.types[0])) for o in i.operands[1:3])
    c = source(t, i, i.operands[3], 32, m.type == "f32")
    op = s.CHOICE + number(s.NUMBERS, f"slct{width}.{m.type}{ftz}", i)
    return Row(y.X_SELECT, op, result(t, i, i.operands[0], width), a, b, c)


def logic(t: Translator, i: Instruction) -> Row:
    """and, or, xor, not and mov of predicates."""
    Modifiers(i).end()
    a, not_a = predicate(t, i, i.operands[1])
    b, not_b = predicate(t, i, i.operands[-1])
    return Row(
        y.X_SELECT,
        s.LOGIC,
        result(t, i, i.operands[0], 1),
        a,
        b,
        type2=(s.NOT_A if not_a else 0) | (s.NOT_B if not_b else 0),
        immediate=_TABLES[i.name],
    )


def _space(t: Translator, i: Instruction) -> Row:
    space = i.parts[1]
    if len(i.parts) != 2 or space not in _WINDOWS:
        raise not_modelled(i)
    first, end = _WINDOWS[space]
    aux = (first, end, int(space == "global"), int(space == "shared::cta"))
    where = source(t, i, i.operands[1], 64)
    return Row(y.X_SELECT, s.SPACE, result(t, i, i.operands[0], 1), where, aux=aux)


TRANSLATIONS: dict[str, Translation] = {
    "setp": _setp,
    "set": _set,
    "testp": _testp,
    "selp": _selp,
    "slct": _slct,
    "isspacep": _space,
}
