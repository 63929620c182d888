"""f32, f64, f16 and bf16 arithmetic against exact fractions."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
import rounding as x
from lane_values import FORMS, NAMES, codes, flushed, negative, order, saturated
from registers import OLD, evaluate
from rounding import Form, Number

from mlagen.errors import UnsupportedError

WORDS = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint32, "bf16": np.uint32}


def added(a: Number, b: Number) -> Number:
    if x.NAN in (a, b):
        return x.NAN
    infinite = [n for n in (a, b) if isinstance(n, str)]
    if infinite:
        return infinite[0] if len(set(infinite)) == 1 else x.NAN
    return a + b  # type: ignore[operator]


def minus(a: Number) -> Number:
    if isinstance(a, str):
        return {"nan": "nan", "inf": "-inf", "-inf": "inf"}[a]
    return -a


def multiplied(a: Number, b: Number, sign: int) -> Number:
    if x.NAN in (a, b):
        return x.NAN
    if isinstance(a, str) or isinstance(b, str):
        return x.NAN if 0 in (a, b) else ("inf" if sign > 0 else "-inf")
    return a * b


def divided(a: Number, b: Number, sign: int) -> Number:
    if x.NAN in (a, b) or (isinstance(a, str) and isinstance(b, str)) or (a == 0 and b == 0):
        return x.NAN
    if isinstance(b, str):
        return Fraction(0)
    if isinstance(a, str) or b == 0:
        return "inf" if sign > 0 else "-inf"
    return a / b


def root(a: Number, is_minus: bool) -> Number:
    """A number on the same side of all that a format can tell apart as the root."""
    if a == x.NAN or (is_minus and a != 0):
        return x.NAN
    if isinstance(a, str) or a == 0:
        return a
    scaled = a * Fraction(4) ** 700  # denominators of all formats go
    assert scaled.denominator == 1
    whole = isqrt(scaled.numerator)
    exact = whole * whole == scaled.numerator
    return (Fraction(whole) + (0 if exact else Fraction(1, 2))) / Fraction(2) ** 700


def expected(name: str, given: list[int], form: Form, mode: str, ftz: bool) -> int:
    """The code of a result, before .sat."""
    if ftz:
        given = [flushed(code, form) for code in given]
    v = [x.value(code, form) for code in given]
    down = mode == "rm"
    signs = [-1 if negative(code, form) else 1 for code in given]
    if name == "sub":
        v[1], signs[1] = minus(v[1]), -signs[1]
    if name in ("add", "sub"):
        total = added(v[0], v[1])
        zero = min(signs[:2]) < 0 if down else max(signs[:2]) < 0
        if v[0] != 0 or v[1] != 0:
            zero = down
    elif name in ("mul", "fma"):
        sign = signs[0] * signs[1]
        total, zero = multiplied(v[0], v[1], sign), sign < 0
        if name == "fma":
            product = total
            total = added(product, v[2])
            both_zero = product == 0 and v[2] == 0
            zero = (sign < 0 and signs[2] < 0) if both_zero else False
            if down and not (both_zero and sign > 0 and signs[2] > 0):
                zero = True
    elif name == "div":
        total, zero = divided(v[0], v[1], signs[0] * signs[1]), signs[0] * signs[1] < 0
    elif name == "rcp":
        total, zero = divided(Fraction(1), v[0], signs[0]), signs[0] < 0
    else:
        total, zero = root(v[0], signs[0] < 0), signs[0] < 0
    found = x.code(total, form, mode, zero)
    return flushed(found, form) if ftz else found


def check(
    line: str, count: int, kind: str, want: Callable[[list[int]], int], runs: int = 6
) -> None:
    """`line` with %z0 for the result, %z1 … for the sources."""
    form, name = FORMS[kind], NAMES[kind]
    seed = zlib.crc32(line.encode())
    for run in range(runs):
        rows = [codes(form, seed + 7 * run + at) for at in range(count)]
        mask = 0xFFFFFFFF if run else 0x7F00FF01
        values = {f"%{name}{1 + at}": row.astype(WORDS[kind]) for at, row in enumerate(rows)}
        found = evaluate(line.replace("%z", f"%{name}"), values, mask)[f"%{name}0"]
        for lane in range(32):
            given = [int(row[lane]) for row in rows]
            if not mask >> lane & 1:
                assert int(found[lane]) == OLD & (2 * form.sign - 1)
                continue
            made, asked = int(found[lane]), want(given)
            if kind == "f64" and asked == form.nan:
                assert x.value(made, form) == x.NAN, (line, lane)
                continue
            assert made == asked, (line, lane, [hex(g) for g in given], hex(made), hex(asked))


OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "rcp": 1, "sqrt": 1}


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("mode", ["", "rn", "rz", "rm", "rp"])
def test_f32(name: str, mode: str) -> None:
    count = OPERANDS[name]
    if not mode and name not in ("add", "sub", "mul"):
        return
    operands = ", ".join(f"%z{i}" for i in range(count + 1))
    for ftz in (False, True):
        modifiers = f"{'.' if mode else ''}{mode}{'.ftz' if ftz else ''}"

        def want(given: list[int], ftz: bool = ftz) -> int:
            return expected(name, given, x.F32, mode or "rn", ftz)

        check(f"{name}{modifiers}.f32 {operands};", count, "f32", want)
        if name in ("add", "sub", "mul", "fma"):
            check(
                f"{name}{modifiers}.sat.f32 {operands};",
                count,
                "f32",
                lambda given, w=want: saturated(w(given), x.F32),
                runs=3,
            )


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f64(name: str, mode: str) -> None:
    count = OPERANDS[name]
    operands = ", ".join(f"%z{i}" for i in range(count + 1))
    check(
        f"{name}.{mode}.f64 {operands};",
        count,
        "f64",
        lambda given: expected(name, given, x.F64, mode, False),
    )


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_half(kind: str, name: str) -> None:
    count, form = OPERANDS[name], FORMS[kind]
    operands = ", ".join(f"%z{i}" for i in range(count + 1))

    def want(given: list[int], ftz: bool = False) -> int:
        return expected(name, given, form, "rn", ftz)

    check(f"{name}.rn.{kind} {operands};", count, kind, want, runs=8)
    if kind == "f16":
        check(f"{name}.ftz.f16 {operands};", count, kind, lambda g: want(g, True))
        check(f"{name}.sat.f16 {operands};", count, kind, lambda g: saturated(want(g), form))
    if name == "fma":

        def relu(given: list[int]) -> int:
            found = want(given)
            return 0 if negative(found, form) else found

        def oob(given: list[int]) -> int:
            return 0 if 0xFFFF in given else want(given)

        check(f"fma.rn.relu.{kind} {operands};", 3, kind, relu)
        check(f"fma.rn.oob.{kind} {operands};", 3, kind, oob)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2", "f32x2"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_pairs(kind: str, name: str) -> None:
    if (kind, name) == ("f32x2", "sub"):
        return
    single = kind.removesuffix("x2")
    form, count = FORMS[single], OPERANDS[name]
    width = form.sign.bit_length()
    r, word = ("rd", np.uint64) if width == 32 else ("r", np.uint32)
    rows = [[codes(form, 10 * at + half) for half in (0, 1)] for at in range(count)]
    values = {
        f"%{r}{1 + at}": (low | high << np.uint64(width)).astype(word)
        for at, (low, high) in enumerate(rows)
    }
    operands = ", ".join(f"%{r}{i}" for i in range(count + 1))
    found = evaluate(f"{name}.rn.{kind} {operands};", values)[f"%{r}0"]
    for lane in range(32):
        want = 0
        for half in (0, 1):
            given = [int(row[half][lane]) for row in rows]
            want |= expected(name, given, form, "rn", False) << width * half
        assert int(found[lane]) == want


def extremum(name: str, form: Form, nan: bool, ftz: bool = False) -> Callable[[list[int]], int]:
    def want(given: list[int]) -> int:
        if ftz:
            given = [flushed(code, form) for code in given]
        known = [code for code in given if x.value(code, form) != x.NAN]
        if not known or (nan and len(known) < len(given)):
            return form.nan
        return (max if name == "max" else min)(known, key=lambda code: order(code, form))

    return want


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema(kind: str, name: str) -> None:
    form = FORMS[kind]
    check(f"{name}.{kind} %z0, %z1, %z2;", 2, kind, extremum(name, form, False))
    if kind == "f64":
        return
    check(f"{name}.NaN.{kind} %z0, %z1, %z2;", 2, kind, extremum(name, form, True))
    if kind != "bf16":
        check(f"{name}.ftz.{kind} %z0, %z1, %z2;", 2, kind, extremum(name, form, False, True))
    if kind == "f32":
        check(f"{name}.f32 %z0, %z1, %z2, %z3;", 3, kind, extremum(name, form, False))
        check(f"{name}.NaN.f32 %z0, %z1, %z2, %z3;", 3, kind, extremum(name, form, True))

    def signed(given: list[int]) -> int:
        found = extremum(name, form, False)([code & form.sign - 1 for code in given])
        if x.value(found, form) == x.NAN:
            return found
        return found | (given[0] ^ given[1]) & form.sign

    check(f"{name}.xorsign.abs.{kind} %z0, %z1, %z2;", 2, kind, signed)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_signs(kind: str) -> None:
    form = FORMS[kind]
    check(f"abs.{kind} %z0, %z1;", 1, kind, lambda g: g[0] & form.sign - 1)
    if kind != "f64":
        check(f"neg.{kind} %z0, %z1;", 1, kind, lambda g: g[0] ^ form.sign)
    if kind in ("f32", "f64"):
        want = lambda g: g[0] & form.sign | g[1] & form.sign - 1  # noqa: E731
        if kind == "f32":
            check("copysign.f32 %z0, %z1, %z2;", 2, kind, want)
    if kind == "f32":
        check("abs.ftz.f32 %z0, %z1;", 1, kind, lambda g: flushed(g[0], form) & form.sign - 1)
        check("neg.ftz.f32 %z0, %z1;", 1, kind, lambda g: flushed(g[0], form) ^ form.sign)


@pytest.mark.parametrize(
    "line",
    [
        "add.f32 %f0, %f1, 1;",
        "div.f32 %f0, %f1, %f2;",
        "add.ftz.f64 %d0, %d1, %d2;",
        "mul.sat.bf16 %h0, %h1, %h2;",
        "fma.rn.f32.bf16 %f0, %h1, %h2, %f3;",
        "ex2.f32 %f0, %f1;",
    ],
)
def test_what_is_not_modelled_is_refused(line: str) -> None:
    with pytest.raises(UnsupportedError):
        evaluate(line, {})
