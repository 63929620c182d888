"""Comparisons, choices, predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import cta_of, place, program_row
from mlagen.emulator.ptx.values import formats as f
from mlagen.emulator.ptx.values.half import flush_codes
from mlagen.emulator.ptx.values.lanes import (
    LaneOperation,
    Lanes,
    Relation,
    numbered,
    operation,
    operations,
    relations,
)

# P_OP; numbers from CHOICE on are those of CHOICES.
SETP, SET, LOGIC, SPACE, CHOICE = range(5)
# P_FLAGS of a comparison: the bits of `relations`. P_IMM: how it joins the predicate P_C.
LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8
ALONE, AND, OR, XOR = range(4)
# P_TYPE2, bits: which of P_A, P_B, P_C is negated.
NOT_A, NOT_B, NOT_C = 1, 2, 4
# P_AUX of a comparison: the relation of the upper halves (-1: none), what `set` writes for true.
UPPER: int = y.P_AUX
TRUE: int = y.P_AUX + 1
# P_AUX of isspacep: first and last address; 1: addresses outside; 1: of this CTA alone.
FIRST: int = y.P_AUX
END: int = y.P_AUX + 1
OUTSIDE: int = y.P_AUX + 2
OWN: int = y.P_AUX + 3


def _integers(signed: bool) -> Relation:
    return lambda t, a, b: (t.compare("<", a, b, signed), t.compare("==", a, b))


def _floats(t: Lanes, a: Any, b: Any) -> tuple[Any, ...]:
    ordered = t.b.fcmp_ordered
    return ordered("<", a, b), ordered("==", a, b), t.b.fcmp_unordered("uno", a, b)


def _flushed(t: Lanes, a: Any, b: Any) -> tuple[Any, ...]:
    return _floats(t, t.flush(a), t.flush(b))


def _halves(form: f.FloatFormat, ftz: bool, upper: bool | None) -> Relation:
    def build(t: Lanes, *x: Any) -> tuple[Any, ...]:
        if upper is not None:
            x = tuple(t.resize(t.lshr(one, 16) if upper else one, 16) for one in x)
        if ftz:
            x = tuple(flush_codes(t, one, form) for one in x)
        return _floats(t, *(f.widen(t, one, form) for one in x))

    return build


def _kind(name: str, width: int) -> Relation:
    """testp: the kind of a float, as "less"."""
    mantissa = 23 if width == 32 else 52
    top = (1 << width - 1) - (1 << mantissa)

    def build(t: Lanes, a: Any, b: Any) -> tuple[Any, ...]:
        size = t.and_(a, (1 << width - 1) - 1)
        test = {
            "finite": lambda: t.compare("<", size, top),
            "infinite": lambda: t.compare("==", size, top),
            "number": lambda: t.compare("<=", size, top),
            "notanumber": lambda: t.compare(">", size, top),
            "normal": lambda: t.b.and_(
                t.compare("<", size, top), t.compare(">=", size, 1 << mantissa)
            ),
            "subnormal": lambda: t.b.and_(
                t.compare("!=", size, 0), t.compare("<", size, 1 << mantissa)
            ),
        }[name]
        return (test(),)

    return build


def _relations() -> dict[str, tuple[str, Relation]]:
    made: dict[str, tuple[str, Relation]] = {}
    for width in (16, 32, 64):
        for sign in "us":
            made[f"{sign}{width}"] = f"b{width}", _integers(sign == "s")
    made["f32"], made["f32.ftz"], made["f64"] = (
        ("f32", _floats),
        ("f32", _flushed),
        ("f64", _floats),
    )
    for name, form in (("f16", f.F16), ("bf16", f.BF16)):
        for ftz in (False, True) if name == "f16" else (False,):
            tail = ".ftz" if ftz else ""
            made[f"{name}{tail}"] = "b16", _halves(form, ftz, None)
            made[f"{name}x2{tail}"] = "b32", _halves(form, ftz, False)
            made[f"{name}x2{tail}.upper"] = "b32", _halves(form, ftz, True)
    for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for width in (32, 64):
            made[f"testp.{name}.f{width}"] = f"b{width}", _kind(name, width)
    return made


def _choices() -> dict[str, LaneOperation]:
    made: dict[str, LaneOperation] = {}
    for width in (16, 32, 64):
        k = f"b{width}"
        made[f"selp{width}"] = operation(
            f"{k} = {k} {k} pred", lambda t, a, b, c: t.select(c, a, b)
        )
        for name, kind, test in _TESTS:
            made[f"slct{width}.{name}"] = operation(f"{k} = {k} {k} {kind}", _slct(test))
    return made


def _slct(test: Callable[[Lanes, Any], Any]) -> Callable[..., Any]:
    return lambda t, a, b, c: t.select(test(t, c), a, b)


def _at_least_zero(t: Lanes, c: Any) -> Any:
    return t.b.fcmp_ordered(">=", c, t.const(c, 0.0))


_TESTS: tuple[tuple[str, str, Callable[[Lanes, Any], Any]], ...] = (
    ("s32", "b32", lambda t, c: t.compare(">=", c, 0, True)),
    ("f32", "f32", _at_least_zero),
    ("f32.ftz", "f32", lambda t, c: _at_least_zero(t, t.flush(c))),
)

RELATIONS = _relations()
RELATION_NUMBERS = numbered(RELATIONS)
CHOICES = _choices()
NUMBERS = numbered(CHOICES)
_relation = relations(RELATIONS)
_choice = operations(CHOICES)


@compiled
def write_predicate(context: int, warp: int, where: int, value: int, mask: int) -> None:
    """Set a predicate's lanes that are in the mask; a sink is left out."""
    if where != y.NONE:
        address = place(context, warp, where)
        store_i64(address, 0, (load_i64(address, 0) & ~mask) | (value & mask))


@compiled
def predicate(context: int, warp: int, where: int, negated: int) -> int:
    """The lanes in which a predicate, or its opposite, is true."""
    value = load_i64(place(context, warp, where), 0)
    return value ^ y.ALL if negated != 0 else value


@compiled
def joined(context: int, warp: int, p: int, value: int) -> int:
    """What a comparison gives with its predicate operand."""
    how = load_i64(p, y.P_IMM)
    if how == ALONE:
        return value
    other = predicate(context, warp, load_i64(p, y.P_C), load_i64(p, y.P_TYPE2) & NOT_C)
    if how == AND:
        return value & other
    return value | other if how == OR else value ^ other


@compiled
def compare(context: int, warp: int, p: int, mask: int) -> None:
    """setp and set."""
    a = place(context, warp, load_i64(p, y.P_A))
    b = place(context, warp, load_i64(p, y.P_B))
    code = load_i64(p, y.P_FLAGS)
    first = _relation(load_i64(p, y.P_TYPE), a, b, code)
    upper = load_i64(p, UPPER)
    second = first ^ y.ALL
    if upper >= 0:
        second = _relation(upper, a, b, code)
    first = joined(context, warp, p, first)
    second = joined(context, warp, p, second)
    if load_i64(p, y.P_OP) == SETP:
        write_predicate(context, warp, load_i64(p, y.P_DST), first, mask)
        write_predicate(context, warp, load_i64(p, y.P_DST2), second, mask)
        return
    true = load_i64(p, TRUE)
    row = place(context, warp, load_i64(p, y.P_DST))
    for lane in range(y.LANES):
        made = true if (first >> lane) & 1 else 0
        if upper >= 0 and (second >> lane) & 1:
            made |= true << 16
        old = int64(load_u32(row, lane))
        store_u32(row, lane, uint32(made if (mask >> lane) & 1 else old))


@compiled
def logic(context: int, warp: int, p: int, mask: int) -> None:
    """A function of two predicates: P_IMM has its values for 00, 01, 10, 11 (P_A, P_B)."""
    negated = load_i64(p, y.P_TYPE2)
    a = predicate(context, warp, load_i64(p, y.P_A), negated & NOT_A)
    b = predicate(context, warp, load_i64(p, y.P_B), negated & NOT_B)
    table = load_i64(p, y.P_IMM)
    found = 0
    if table & 1:
        found |= ~a & ~b
    if table & 2:
        found |= ~a & b
    if table & 4:
        found |= a & ~b
    if table & 8:
        found |= a & b
    write_predicate(context, warp, load_i64(p, y.P_DST), found & y.ALL, mask)


@compiled
def in_space(context: int, warp: int, p: int, mask: int) -> None:
    """isspacep: whether generic addresses lie in a window."""
    row = place(context, warp, load_i64(p, y.P_A))
    first = load_i64(p, FIRST)
    end = load_i64(p, END)
    own = load_i64(p, OWN)
    found = 0
    for lane in range(y.LANES):
        address = load_i64(row, lane)
        inside = first <= address and address < end
        if inside and (own == 0 or (address - first) >> y.RANK_SHIFT == cta_of(context, warp)):
            found |= 1 << lane
    if load_i64(p, OUTSIDE) != 0:
        found ^= y.ALL
    write_predicate(context, warp, load_i64(p, y.P_DST), found, mask)


@compiled
def run_select(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT: nothing waits."""
    p = program_row(context, row)
    which = load_i64(p, y.P_OP)
    if which >= CHOICE:
        registers = place(context, warp, 0)
        _choice(which - CHOICE, p, registers, load_i64(context, y.C_CONSTANTS), mask)
    elif which == LOGIC:
        logic(context, warp, p, mask)
    elif which == SPACE:
        in_space(context, warp, p, mask)
    else:
        compare(context, warp, p, mask)
    return y.NEXT
