"""Comparisons, choices and predicates."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import rounding as x
from lane_values import FORMS, NAMES, codes, edges, flushed, order, signed
from registers import OLD, evaluate, lanes

from mlagen.emulator.ptx import layout as y
from mlagen.errors import UnsupportedError

MASK = 0xFFFF7F01
SIGNED = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": SIGNED["lt"], "ls": SIGNED["le"], "hi": SIGNED["gt"], "hs": SIGNED["ge"]}


def masked(want: int, old: int = OLD & y.ALL) -> int:
    return want & MASK | old & ~MASK


def truth(flags: list[bool]) -> int:
    return sum(1 << lane for lane, flag in enumerate(flags) if flag)


@pytest.mark.parametrize("kind", [f"{s}{w}" for s in "usb" for w in (16, 32, 64)])
def test_integers(kind: str) -> None:
    width = int(kind[1:])
    name = {16: "h", 32: "r", 64: "rd"}[width]
    relations = {"s": SIGNED, "u": {**SIGNED, **UNSIGNED}}.get(kind[0])
    relations = relations or {name: SIGNED[name] for name in ("eq", "ne")}
    a, b = edges(width, 1), edges(width, 2)
    b[::5] = a[::5]
    word = np.uint64 if width == 64 else np.uint32
    values = {f"%{name}1": a.astype(word), f"%{name}2": b.astype(word)}
    for relation, test in relations.items():
        line = f"setp.{relation}.{kind} %p0, %{name}1, %{name}2;"
        sign = (lambda v: signed(int(v), width)) if kind[0] == "s" else int
        want = truth([test(sign(p), sign(q)) for p, q in zip(a, b, strict=True)])
        assert int(evaluate(line, values, MASK)["%p0"][0]) == masked(want), line


def compared(name: str, a: int, b: int, form: x.Form, ftz: bool = False) -> bool:
    """A comparison of floats by the ISA's table."""
    if ftz:
        a, b = flushed(a, form), flushed(b, form)
    unordered = x.NAN in (x.value(a, form), x.value(b, form))
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return len(name) == 3
    return SIGNED[name[:2]](order(a, form)[0], order(b, form)[0])


FLOATING = [*SIGNED, *(f"{name}u" for name in SIGNED), "num", "nan"]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("ftz", [False, True])
def test_floats(kind: str, ftz: bool) -> None:
    if ftz and kind not in ("f32", "f16"):
        return
    form, name = FORMS[kind], NAMES[kind]
    a, b = codes(form, 1), codes(form, 2)
    b[::5] = a[::5]
    word = np.uint64 if kind == "f64" else np.uint32
    values = {f"%{name}1": a.astype(word), f"%{name}2": b.astype(word)}
    for relation in FLOATING:
        line = f"setp.{relation}{'.ftz' if ftz else ''}.{kind} %p0, %{name}1, %{name}2;"
        flags = [compared(relation, int(p), int(q), form, ftz) for p, q in zip(a, b, strict=True)]
        assert int(evaluate(line, values, MASK)["%p0"][0]) == masked(truth(flags)), line


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_pairs_give_two_predicates_or_halves(kind: str) -> None:
    form = FORMS[kind.removesuffix("x2")]
    rows = [[codes(form, 10 * at + half) for half in (0, 1)] for at in (1, 2)]
    values = {
        f"%r{1 + at}": (low | high << np.uint64(16)).astype(np.uint32)
        for at, (low, high) in enumerate(rows)
    }
    for relation in ("lt", "neu", "nan"):
        want = [
            truth([compared(relation, int(p), int(q), form) for p, q in zip(*halves, strict=True)])
            for halves in zip(*rows, strict=True)
        ]
        found = evaluate(
            f"setp.{relation}.and.{kind} %p0|%p1, %r1, %r2, %p2;", {**values, "%p2": 0xFF00FF}
        )
        assert [int(found[p][0]) for p in ("%p0", "%p1")] == [w & 0xFF00FF for w in want]
        found = evaluate(f"set.{relation}.{kind}.{kind} %r0, %r1, %r2;", values, MASK)["%r0"]
        one = form.bias << form.mantissa
        made = one * lanes(want[0]) + (one << 16) * lanes(want[1])
        assert (found == np.where(lanes(MASK), made, OLD & y.ALL)).all()


def test_joining_a_predicate_and_two_destinations() -> None:
    a, b = edges(32, 3), edges(32, 4)
    less = truth([signed(int(p), 32) < signed(int(q), 32) for p, q in zip(a, b, strict=True)])
    joins: dict[str, Callable[[int, int], int]] = {
        "and": lambda p, q: p & q,
        "or": lambda p, q: p | q,
        "xor": lambda p, q: p ^ q,
    }
    values = {"%r1": a, "%r2": b, "%p2": 0x12345678}
    for name, negated in itertools.product(joins, ("", "!")):
        other = 0x12345678 ^ (y.ALL if negated else 0)
        line = f"setp.lt.{name}.s32 %p0|%p1, %r1, %r2, {negated}%p2;"
        found = evaluate(line, values, MASK)
        assert int(found["%p0"][0]) == masked(joins[name](less, other)), line
        assert int(found["%p1"][0]) == masked(joins[name](less ^ y.ALL, other)), line
        line = f"setp.lt.{name}.s32 %p2, %r1, %r2, {negated}%p2;"
        found = evaluate(line, values, MASK)
        assert int(found["%p2"][0]) == masked(joins[name](less, other), 0x12345678)
    found = evaluate("setp.lt.s32 %p0|%p1, %r1, %r2;", values)
    assert (int(found["%p0"][0]), int(found["%p1"][0])) == (less, less ^ y.ALL)
    found = evaluate("setp.lt.s32 _|%p1, %r1, %r2;", values)
    assert int(found["%p1"][0]) == less ^ y.ALL


def test_set_writes_numbers() -> None:
    a, b = edges(32, 5), edges(32, 6)
    less = a < b
    values = {"%r1": a, "%r2": b, "%p2": 0xFFFF0000}
    for to, name, true in (("u32", "r", y.ALL), ("s32", "r", y.ALL), ("f32", "f", 0x3F800000)):
        found = evaluate(f"set.lt.{to}.u32 %{name}0, %r1, %r2;", values, MASK)[f"%{name}0"]
        assert (found == np.where(lanes(MASK), less * true, OLD & y.ALL)).all()
    found = evaluate("set.lt.and.u32.u32 %r0, %r1, %r2, %p2;", values)["%r0"]
    assert (found == (less & lanes(0xFFFF0000)) * y.ALL).all()
    h = codes(x.F16, 1).astype(np.uint32)
    nan = [x.value(int(code), x.F16) == x.NAN for code in h]
    for to, true in (("f16", 0x3C00), ("u16", 0xFFFF), ("u32", y.ALL)):
        name = "r" if to == "u32" else "h"
        found = evaluate(f"set.nan.{to}.f16 %{name}0, %h1, %h1;", {"%h1": h})[f"%{name}0"]
        assert (found == np.array(nan) * true).all()


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_kinds_of_floats(kind: str) -> None:
    form, name = FORMS[kind], NAMES[kind]
    a = codes(form, 9)

    def tests(code: int) -> dict[str, bool]:
        size = code & form.sign - 1
        finite = size < form.infinity
        return {
            "finite": finite,
            "infinite": size == form.infinity,
            "number": size <= form.infinity,
            "notanumber": size > form.infinity,
            "normal": finite and size >= 1 << form.mantissa,
            "subnormal": 0 < size < 1 << form.mantissa,
        }

    values = {f"%{name}1": a.astype(np.uint64 if kind == "f64" else np.uint32)}
    for test in tests(0):
        want = truth([tests(int(code))[test] for code in a])
        found = evaluate(f"testp.{test}.{kind} %p0, %{name}1;", values)["%p0"]
        assert int(found[0]) == want, test


def test_choices() -> None:
    for width, name in ((16, "h"), (32, "r"), (64, "rd")):
        a, b = edges(width, 1), edges(width, 2)
        values = {f"%{name}1": a, f"%{name}2": b, "%p1": 0x0FF0F00F}
        for sign, chosen in (("", lanes(0x0FF0F00F)), ("!", ~lanes(0x0FF0F00F))):
            line = f"selp.b{width} %{name}2, %{name}1, %{name}2, {sign}%p1;"
            found = evaluate(line, values, MASK)[f"%{name}2"]
            assert (found == np.where(chosen & lanes(MASK), a, b)).all()
        c = edges(32, 3)
        line = f"slct.u{width}.s32 %{name}0, %{name}1, %{name}2, %r9;"
        found = evaluate(line, {**values, "%r9": c})[f"%{name}0"]
        assert (found == np.where(c.view(np.int32) >= 0, a, b)).all()
    c = codes(x.F32, 1).astype(np.uint32)
    a, b = edges(32, 1), edges(32, 2)
    for ftz in (False, True):
        line = f"slct{'.ftz' if ftz else ''}.u32.f32 %r0, %r1, %r2, %f3;"
        found = evaluate(line, {"%r1": a, "%r2": b, "%f3": c})["%r0"]
        chosen = [compared("ge", int(code), 0, x.F32, ftz) for code in c]
        assert (found == np.where(chosen, a, b)).all()


def test_predicates() -> None:
    p, q = 0x12345678, 0x0FF00FF0
    values = {"%p1": p, "%p2": q}
    for line, want in (
        ("and.pred %p0, %p1, %p2;", p & q),
        ("or.pred %p0, %p1, %p2;", p | q),
        ("xor.pred %p0, %p1, %p2;", p ^ q),
        ("not.pred %p0, %p1;", ~p),
        ("mov.pred %p0, %p1;", p),
        ("mov.pred %p0, 1;", y.ALL),
        ("mov.pred %p0, -1;", y.ALL),
        ("mov.pred %p0, 0;", 0),
    ):
        assert int(evaluate(line, values, MASK)["%p0"][0]) == masked(want), line


def test_spaces() -> None:
    bases = {
        "global": 0x10000,
        "shared::cta": y.GENERIC_SHARED,
        "local": y.GENERIC_LOCAL,
        "param": y.GENERIC_PARAM,
        "const": y.GENERIC_CONST,
    }
    a = np.array([list(bases.values())[lane % 5] + lane for lane in range(32)], np.uint64)
    for at, space in enumerate(bases):
        found = evaluate(f"isspacep.{space} %p0, %rd1;", {"%rd1": a})["%p0"]
        assert int(found[0]) == truth([lane % 5 == at for lane in range(32)]), space
    other = np.full(32, y.GENERIC_SHARED + (1 << y.RANK_SHIFT) + 64, np.uint64)
    for space, want in (("shared", y.ALL), ("shared::cluster", y.ALL), ("shared::cta", 0)):
        found = evaluate(f"isspacep.{space} %p0, %rd1;", {"%rd1": other})["%p0"]
        assert int(found[0]) == want


@pytest.mark.parametrize(
    "line",
    [
        "setp.lt.b32 %p0, %r1, %r2;",
        "setp.lo.s32 %p0, %r1, %r2;",
        "setp.ltu.s32 %p0, %r1, %r2;",
        "setp.lt.ftz.f64 %p0, %d1, %d2;",
        "selp.b32 %r0, %r1, %r2, %r3;",
        "set.lt.f64.f32 %d0, %f1, %f2;",
    ],
)
def test_what_is_not_modelled_is_refused(line: str) -> None:
    with pytest.raises(UnsupportedError):
        evaluate(line, {})
