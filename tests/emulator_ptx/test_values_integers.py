"""Integer instructions against Python's integers."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest
from lane_values import WORDS, edges, signed
from registers import OLD, evaluate, lanes, mask_of

from mlagen.errors import UnsupportedError

NAMES = {16: "h", 32: "r", 64: "rd"}


def check(
    line: str, widths: tuple[int, ...], expected: Callable[..., int], kinds: str = "", runs: int = 6
) -> None:
    """`line` has {d}, {a}, {b}, {c}, {e} for operands; widths: of the result, of the sources.
    `kinds`: letters by source; "s" gives the reference a signed number."""
    seed = zlib.crc32(line.encode())
    names = {"d": f"%{NAMES[widths[0]]}0"}
    for at, (letter, width) in enumerate(zip("abce", widths[1:], strict=False), 1):
        names[letter] = f"%{NAMES[width]}{at}"
    text = line.format(**names)
    for run in range(runs):
        rows = [edges(width, seed + 10 * run + at) for at, width in enumerate(widths[1:])]
        mask = 0xFFFFFFFF if run < runs - 2 else (0x80000001, 0x0F0F1234)[run - runs + 2]
        values = {names[letter]: row for letter, row in zip("abce", rows, strict=False)}
        found = evaluate(text, values, mask)[names["d"]]
        for lane in range(32):
            given = [int(row[lane]) for row in rows]
            for at, kind in enumerate(kinds):
                if kind == "s":
                    given[at] = signed(given[at], widths[1 + at])
            want = expected(*given) & (1 << widths[0]) - 1
            if not mask >> lane & 1:
                want = OLD & (1 << widths[0]) - 1
            assert int(found[lane]) == want, (text, lane, [hex(x) for x in given])


def quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(x, high))


TWO: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": quotient,
    "rem": remainder,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("sign", "us")
def test_arithmetic(width: int, sign: str) -> None:
    kind = f"{sign}{width}"
    for name, expected in TWO.items():
        check(f"{name}.{kind} {{d}}, {{a}}, {{b}};", (width,) * 3, expected, sign * 2, runs=4)
    check(
        f"mul.hi.{kind} {{d}}, {{a}}, {{b}};", (width,) * 3, lambda a, b: a * b >> width, sign * 2
    )
    check(
        f"mad.lo.{kind} {{d}}, {{a}}, {{b}}, {{c}};",
        (width,) * 4,
        lambda a, b, c: a * b + c,
        sign * 3,
    )
    check(
        f"mad.hi.{kind} {{d}}, {{a}}, {{b}}, {{c}};",
        (width,) * 4,
        lambda a, b, c: (a * b >> width) + c,
        sign * 3,
    )
    check(
        f"sad.{kind} {{d}}, {{a}}, {{b}}, {{c}};",
        (width,) * 4,
        lambda a, b, c: abs(a - b) + c,
        sign * 3,
    )
    if width < 64:
        check(
            f"mul.wide.{kind} {{d}}, {{a}}, {{b}};",
            (2 * width, width, width),
            lambda a, b: a * b,
            sign * 2,
        )
        check(
            f"mad.wide.{kind} {{d}}, {{a}}, {{b}}, {{c}};",
            (2 * width, width, width, 2 * width),
            lambda a, b, c: a * b + c,
            sign * 3,
        )


@pytest.mark.parametrize("width", [16, 32, 64])
def test_logic_and_shifts(width: int) -> None:
    two = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    for name, expected in two.items():
        check(f"{name}.b{width} {{d}}, {{a}}, {{b}};", (width,) * 3, expected, runs=3)
    check(f"not.b{width} {{d}}, {{a}};", (width,) * 2, lambda a: ~a, runs=3)
    check(f"cnot.b{width} {{d}}, {{a}};", (width,) * 2, lambda a: int(a == 0), runs=3)
    check(f"neg.s{width} {{d}}, {{a}};", (width,) * 2, lambda a: -a, runs=3)
    check(f"abs.s{width} {{d}}, {{a}};", (width,) * 2, abs, "s", runs=3)
    shape = (width, width, 32)
    check(f"shl.b{width} {{d}}, {{a}}, {{b}};", shape, lambda a, n: a << n if n < 999 else 0)
    check(f"shr.u{width} {{d}}, {{a}}, {{b}};", shape, lambda a, n: a >> n)
    check(f"shr.b{width} {{d}}, {{a}}, {{b}};", shape, lambda a, n: a >> n)
    check(f"shr.s{width} {{d}}, {{a}}, {{b}};", shape, lambda a, n: a >> n, "s")


def bfe(width: int, sign: bool) -> Callable[[int, int, int], int]:
    """As the ISA's text has it, bit by bit."""

    def expected(a: int, b: int, c: int) -> int:
        at, size, msb = b & 255, c & 255, width - 1
        last = a >> min(at + size - 1, msb) & 1 if sign and size else 0
        bits = (a >> at + i & 1 if i < size and at + i <= msb else last for i in range(width))
        return sum(bit << i for i, bit in enumerate(bits))

    return expected


def bfi(width: int) -> Callable[[int, int, int, int], int]:
    def expected(a: int, b: int, c: int, d: int) -> int:
        at, size = c & 255, d & 255
        for i in range(size):
            if at + i < width:
                b = b & ~(1 << at + i) | (a >> i & 1) << at + i
        return b

    return expected


def bfind(width: int, sign: bool) -> Callable[[int], int]:
    def expected(a: int) -> int:
        if sign and a < 0:
            a = ~a
        return a.bit_length() - 1

    return expected


@pytest.mark.parametrize("width", [32, 64])
def test_bits(width: int) -> None:
    check(f"popc.b{width} {{d}}, {{a}};", (32, width), lambda a: a.bit_count())
    check(f"clz.b{width} {{d}}, {{a}};", (32, width), lambda a: width - a.bit_length())
    flip = lambda a: int(f"{a:0{width}b}"[::-1], 2)  # noqa: E731
    check(f"brev.b{width} {{d}}, {{a}};", (width, width), flip)
    for sign in "us":
        kind, found = f"{sign}{width}", bfind(width, sign == "s")
        check(f"bfind.{kind} {{d}}, {{a}};", (32, width), found, sign)
        check(
            f"bfind.shiftamt.{kind} {{d}}, {{a}};",
            (32, width),
            lambda a, f=found: -1 if f(a) < 0 else width - 1 - f(a),
            sign,
        )
        shape = (width, width, 32, 32)
        check(f"bfe.{kind} {{d}}, {{a}}, {{b}}, {{c}};", shape, bfe(width, sign == "s"), runs=20)
    shape = (width, width, width, 32, 32)
    check(f"bfi.b{width} {{d}}, {{a}}, {{b}}, {{c}}, {{e}};", shape, bfi(width), runs=20)


def fns(mask: int, base: int, offset: int) -> int:
    """The ISA's text."""
    if base > 31:
        return -2
    if offset == 0:
        return base if mask >> base & 1 else -1
    at, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= at < 32:
        if mask >> at & 1:
            if count == 0:
                return at
            count -= 1
        at += step
    return -1


def test_fns() -> None:
    r = np.random.default_rng(1)
    for _ in range(8):
        mask = r.integers(0, 1 << 32, 32, dtype=np.uint32)
        base, offset = r.integers(0, 32, 32, dtype=np.uint32), r.integers(-20, 21, 32, np.int32)
        found = evaluate("fns.b32 %r0, %r1, %r2, %r3;", {"%r1": mask, "%r2": base, "%r3": offset})
        want = [fns(*map(int, x)) & 0xFFFFFFFF for x in zip(mask, base, offset, strict=True)]
        assert found["%r0"].tolist() == want


def bmsk(wrap: bool) -> Callable[[int, int], int]:
    def expected(a: int, b: int) -> int:
        if wrap:
            a, b = a & 31, b & 31
        return sum(1 << i for i in range(32) if a <= i < a + b)

    return expected


def szext(wrap: bool, sign: bool) -> Callable[[int, int], int]:
    def expected(a: int, n: int) -> int:
        n = n & 31 if wrap else min(n, 32)
        low = a & (1 << n) - 1
        return signed(low, n) if sign and n else low

    return expected


def funnel(left: bool, wrap: bool) -> Callable[[int, int, int], int]:
    def expected(a: int, b: int, c: int) -> int:
        n = c & 31 if wrap else min(c, 32)
        both = b << 32 | a
        return both << n >> 32 if left else both >> n

    return expected


def test_of_32_bits() -> None:
    two, three = (32,) * 3, (32,) * 4
    for mode in ("clamp", "wrap"):
        wrap = mode == "wrap"
        check(f"bmsk.{mode}.b32 {{d}}, {{a}}, {{b}};", two, bmsk(wrap))
        for sign in "us":
            check(f"szext.{mode}.{sign}32 {{d}}, {{a}}, {{b}};", two, szext(wrap, sign == "s"))
        for side in "lr":
            check(
                f"shf.{side}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};",
                three,
                funnel(side == "l", wrap),
            )
    low, high = -(1 << 31), (1 << 31) - 1
    check("add.sat.s32 {d}, {a}, {b};", two, lambda a, b: clamp(a + b, low, high), "ss")
    check("sub.sat.s32 {d}, {a}, {b};", two, lambda a, b: clamp(a - b, low, high), "ss")
    check(
        "mad.hi.sat.s32 {d}, {a}, {b}, {c};",
        three,
        lambda a, b, c: clamp((a * b >> 32) + c, low, high),
        "sss",
    )
    for table in (0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):
        check(
            f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};",
            three,
            lambda a, b, c, t=table: sum(
                (t >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i
                for i in range(32)
            ),
            runs=3,
        )


def test_24_bits() -> None:
    for sign in "us":
        cut = (lambda x: signed(x & 0xFFFFFF, 24)) if sign == "s" else (lambda x: x & 0xFFFFFF)
        for part, shift in (("lo", 0), ("hi", 16)):
            check(
                f"mul24.{part}.{sign}32 {{d}}, {{a}}, {{b}};",
                (32,) * 3,
                lambda a, b, n=shift, c=cut: c(a) * c(b) >> n,
            )
            check(
                f"mad24.{part}.{sign}32 {{d}}, {{a}}, {{b}}, {{c}};",
                (32,) * 4,
                lambda a, b, c, n=shift, k=cut: (k(a) * k(b) >> n) + c,
            )


def test_dot_products() -> None:
    def part(x: int, at: int, size: int, sign: str) -> int:
        found = x >> at & (1 << size) - 1
        return signed(found, size) if sign == "s" else found

    for x in "us":
        for z in "us":
            check(
                f"dp4a.{x}32.{z}32 {{d}}, {{a}}, {{b}}, {{c}};",
                (32,) * 4,
                lambda a, b, c, x=x, z=z: (
                    c + sum(part(a, 8 * i, 8, x) * part(b, 8 * i, 8, z) for i in range(4))
                ),
            )
            for mode, first in (("lo", 0), ("hi", 16)):
                check(
                    f"dp2a.{mode}.{x}32.{z}32 {{d}}, {{a}}, {{b}}, {{c}};",
                    (32,) * 4,
                    lambda a, b, c, x=x, z=z, n=first: (
                        c + sum(part(a, 16 * i, 16, x) * part(b, n + 8 * i, 8, z) for i in range(2))
                    ),
                )


def test_pairs_of_16_bits() -> None:
    def both(function: Callable[..., int], sign: bool) -> Callable[..., int]:
        def expected(*x: int) -> int:
            halves = [[v >> at & 0xFFFF for v in x] for at in (0, 16)]
            if sign:
                halves = [[signed(v, 16) for v in half] for half in halves]
            low, high = (function(*half) & 0xFFFF for half in halves)
            return high << 16 | low

        return expected

    for sign in "us":
        kind = f"{sign}16x2"
        check(f"add.{kind} {{d}}, {{a}}, {{b}};", (32,) * 3, both(lambda a, b: a + b, False))
        check(f"min.{kind} {{d}}, {{a}}, {{b}};", (32,) * 3, both(min, sign == "s"))
        check(f"max.{kind} {{d}}, {{a}}, {{b}};", (32,) * 3, both(max, sign == "s"))
    relu = lambda a, b: max(0, min(a, b))  # noqa: E731
    check("min.relu.s16x2 {d}, {a}, {b};", (32,) * 3, both(relu, True))
    check("min.relu.s32 {d}, {a}, {b};", (32,) * 3, relu, "ss")


@pytest.mark.parametrize("width", [32, 64])
def test_carry_goes_through_several_words(width: int) -> None:
    """Numbers of three words, added, subtracted, multiplied and added."""
    name, word = NAMES[width], WORDS[width]
    a, b = ([edges(width, 5 * n + k) for n in range(3)] for k in (1, 2))

    def number(words: list[np.ndarray], lane: int) -> int:
        return sum(int(w[lane]) << width * i for i, w in enumerate(words))

    registers = {f"%{name}{1 + i}": x for i, x in enumerate(a)}
    registers |= {f"%{name}{11 + i}": x for i, x in enumerate(b)}
    top = (1 << 3 * width) - 1
    for op, expected in (("add", lambda x, z: x + z), ("sub", lambda x, z: x - z)):
        lines = f"{op}.cc.u{width} %{name}21, %{name}1, %{name}11;\n"
        lines += f"{op}c.cc.u{width} %{name}22, %{name}2, %{name}12;\n"
        lines += f"{op}c.u{width} %{name}23, %{name}3, %{name}13;"
        found = evaluate(lines, registers)
        made = [found[f"%{name}{21 + i}"].astype(word) for i in range(3)]
        for lane in range(32):
            want = expected(number(a, lane), number(b, lane)) & top
            assert number(made, lane) == want
    lines = f"mad.lo.cc.u{width} %{name}21, %{name}1, %{name}11, %{name}3;\n"
    lines += f"madc.hi.cc.u{width} %{name}22, %{name}1, %{name}11, %{name}13;\n"
    lines += f"addc.u{width} %{name}23, 0, 0;"
    found = evaluate(lines, registers)
    for lane in range(32):
        x, z = int(a[0][lane]), int(b[0][lane])
        want = x * z + int(a[2][lane]) + (int(b[2][lane]) << width)
        made = [found[f"%{name}{21 + i}"].astype(word) for i in range(3)]
        assert number(made, lane) == want


def test_a_destination_may_be_a_source_and_operands_may_be_numbers() -> None:
    a = edges(32, 3)
    found = evaluate("mad.lo.u32 %r1, %r1, %r1, 7;", {"%r1": a}, 0x00FFFF00)["%r1"]
    want = np.where(lanes(0x00FFFF00), a * a + np.uint32(7), a)
    assert (found == want).all()
    assert mask_of(lanes(0x00FFFF00)) == 0x00FFFF00
    found = evaluate("add.s64 %rd1, %rd1, -1;", {"%rd1": np.arange(32, dtype=np.uint64)})["%rd1"]
    assert (found.view(np.int64) == np.arange(32) - 1).all()


@pytest.mark.parametrize(
    "line",
    [
        "add.sat.u32 %r0, %r1, %r2;",
        "add.s32 %r0, %rd1, %r2;",
        "mul.s32 %r0, %r1, %r2;",
        "mul.wide.s64 %rd0, %rd1, %rd2;",
        "shl.b32.odd %r0, %r1, %r2;",
        "add.u32 %r0, %clock, %r2;",
        "add.u64 %rd0, %tid.x, %rd2;",
    ],
)
def test_what_is_not_modelled_is_refused(line: str) -> None:
    with pytest.raises(UnsupportedError):
        evaluate(line, {})
