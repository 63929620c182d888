"""Moves, packs, permutations, addresses, clocks, approximate functions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rounding as x
from lane_values import codes, edges, flushed
from registers import OLD, evaluate, lanes
from running import kernel, run

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate import values
from mlagen.emulator.ptx.translate.rows import Translator
from mlagen.errors import MlagenError, UnsupportedError
from mlagen.ptx import read_ptx

MASK = 0xFFFF7F01


def test_moves_keep_other_lanes() -> None:
    for width, name in ((16, "h"), (32, "r"), (64, "rd")):
        a = edges(width, 1)
        found = evaluate(f"mov.b{width} %{name}0, %{name}1;", {f"%{name}1": a}, MASK)[f"%{name}0"]
        assert (found == np.where(lanes(MASK), a, OLD & (1 << width) - 1)).all()
    found = evaluate("mov.u32 %r0, %tid.x;", {})["%r0"]
    assert (found == np.arange(32)).all()
    assert (evaluate("mov.f32 %f0, 0f3F800000;", {})["%f0"] == 0x3F800000).all()
    assert (evaluate("mov.b64 %rd0, -2;", {})["%rd0"] == np.uint64(2**64 - 2)).all()


def test_packs_and_unpacks() -> None:
    wide = edges(64, 1)
    low, high = (wide & np.uint64(0xFFFFFFFF)), wide >> np.uint64(32)
    found = evaluate("mov.b64 {%r1, %r2}, %rd1;", {"%rd1": wide}, MASK)
    for name, want in (("%r1", low), ("%r2", high)):
        assert (found[name] == np.where(lanes(MASK), want, OLD & y.ALL)).all()
    found = evaluate("mov.b64 {_, %r2}, %rd1;", {"%rd1": wide})
    assert (found["%r2"] == high).all()
    given = {"%r1": low.astype(np.uint32), "%r2": high.astype(np.uint32)}
    assert (evaluate("mov.b64 %rd0, {%r1, %r2};", given)["%rd0"] == wide).all()
    quarters = [(wide >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.uint32) for i in range(4)]
    found = evaluate("mov.b64 {%h1, %h2, %h3, %h4}, %rd1;", {"%rd1": wide})
    assert all((found[f"%h{i + 1}"] == quarters[i]).all() for i in range(4))
    given = {f"%h{i + 1}": quarters[i] for i in range(4)}
    assert (evaluate("mov.b64 %rd0, {%h1, %h2, %h3, %h4};", given)["%rd0"] == wide).all()
    assert (evaluate("mov.b32 %r0, {%h1, %h2};", given)["%r0"] == low).all()
    found = evaluate("mov.b32 {%h1, %h2}, %r1;", {"%r1": low.astype(np.uint32)})
    assert (found["%h1"] == quarters[0]).all() and (found["%h2"] == quarters[1]).all()
    extra = ".reg .b8 %b<4>;"
    found = evaluate(
        "mov.b32 {%b0, %b1, %b2, %b3}, %r1;", {"%r1": low.astype(np.uint32)}, registers=extra
    )
    parts = [found[f"%b{i}"].astype(np.uint64) for i in range(4)]
    assert (sum(part << np.uint64(8 * i) for i, part in enumerate(parts)) == low).all()


def test_128_bits_are_two_rows() -> None:
    a, b = edges(64, 1), edges(64, 2)
    found = evaluate("mov.b128 %q1, {%rd1, %rd2};", {"%rd1": a, "%rd2": b}, MASK)["%q1"]
    for half, row in ((0, a), (1, b)):
        want = np.where(lanes(MASK), row, np.uint64(OLD))
        assert (found.reshape(2, 32)[half] == want).all()
    found = evaluate("mov.b128 {%rd3, %rd4}, %q1;", {"%q1": np.stack([a, b])})
    assert (found["%rd3"] == a).all() and (found["%rd4"] == b).all()
    found = evaluate("mov.b128 %q2, %q1;", {"%q1": np.stack([a, b])})["%q2"]
    assert (found == np.concatenate([a, b])).all()


PERMUTED: dict[str, Callable[[int], list[int]]] = {
    "f4e": lambda n: [n, n + 1, n + 2, n + 3],
    "b4e": lambda n: [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
    "rc8": lambda n: [n] * 4,
    "ecl": lambda n: [max(n, i) for i in range(4)],
    "ecr": lambda n: [min(n, i) for i in range(4)],
    "rc16": lambda n: [n % 2 * 2, n % 2 * 2 + 1] * 2,
}


def test_permutations_of_bytes() -> None:
    a, b, c = (edges(32, seed) for seed in (1, 2, 3))
    c[:16] = np.random.default_rng(1).integers(0, 1 << 16, 16)
    given = {"%r1": a, "%r2": b, "%r3": c}
    found = evaluate("prmt.b32 %r0, %r1, %r2, %r3;", given, MASK)["%r0"]
    for lane in range(32):
        eight = [int(word[lane]) >> 8 * i & 255 for word in (a, b) for i in range(4)]
        want = 0
        for i in range(4):
            chosen = int(c[lane]) >> 4 * i & 15
            byte = eight[chosen & 7]
            want |= (255 * (byte >> 7) if chosen & 8 else byte) << 8 * i
        assert int(found[lane]) == (want if MASK >> lane & 1 else OLD & y.ALL)
    for mode, places in PERMUTED.items():
        found = evaluate(f"prmt.b32.{mode} %r0, %r1, %r2, %r3;", given)["%r0"]
        for lane in range(32):
            eight = [int(word[lane]) >> 8 * i & 255 for word in (a, b) for i in range(4)]
            bytes_ = [eight[at] for at in places(int(c[lane]) & 3)]
            assert int(found[lane]) == sum(byte << 8 * i for i, byte in enumerate(bytes_)), mode


def test_addresses() -> None:
    a = np.arange(32, dtype=np.uint64) * 16 + 1024
    for space, base in (("shared", y.GENERIC_SHARED), ("local", y.GENERIC_LOCAL), ("global", 0)):
        generic = evaluate(f"cvta.{space}.u64 %rd0, %rd1;", {"%rd1": a})["%rd0"]
        assert (generic == a + np.uint64(base)).all()
        back = evaluate(f"cvta.to.{space}.u64 %rd0, %rd1;", {"%rd1": generic})["%rd0"]
        assert (back == a).all()
    found = evaluate("createpolicy.fractional.L2::evict_last.b64 %rd0, 0f3F800000;", {})["%rd0"]
    assert (found == 0).all()


def test_clocks_go_on() -> None:
    for clock, name in (("%clock64", "rd"), ("%globaltimer", "rd"), ("%clock", "r")):
        bits = 64 if name == "rd" else 32
        lines = f"mov.u{bits} %{name}0, {clock};\nmov.u{bits} %{name}1, {clock};"
        found = evaluate(lines, {})
        assert (found[f"%{name}1"] > found[f"%{name}0"]).all()


def test_sleep_lets_others_run() -> None:
    ran = run(kernel("nanosleep.u32 100;\nnanosleep.u32 %r1;\nret;"), block=(96, 1, 1))
    assert ran.ended


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda v: 1 / v,
    "rsqrt": lambda v: 1 / np.sqrt(v),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("ftz", [False, True])
def test_approximate(name: str, ftz: bool) -> None:
    """The fast level, within one unit of the last place of f64's function, rounded: two roundings
    may differ."""
    if name == "tanh" and ftz:
        return
    for seed in range(20):
        a = codes(x.F32, seed).astype(np.uint32)
        if name in ("ex2", "tanh", "sin", "cos"):
            a[:16] = (
                np.random.default_rng(seed).normal(0, 40, 16).astype(np.float32).view(np.uint32)
            )
        line = f"{name}.approx{'.ftz' if ftz else ''}.f32 %f0, %f1;"
        found = evaluate(line, {"%f1": a}, MASK, exact=False)["%f0"]
        given = np.array([flushed(int(v), x.F32) if ftz else int(v) for v in a], np.uint32)
        with np.errstate(all="ignore"):
            wide = FUNCTIONS[name](given.view(np.float32).astype(np.float64)).astype(np.float32)
        for lane in range(32):
            made, want = int(found[lane]), int(wide.view(np.uint32)[lane])
            if not MASK >> lane & 1:
                assert made == OLD & y.ALL
                continue
            want = flushed(want, x.F32) if ftz else want
            if math.isnan(wide[lane]):
                assert made == 0x7FFFFFFF
            else:
                assert abs(made - want) <= 1, (line, hex(int(a[lane])), hex(made), hex(want))


def test_division() -> None:
    for seed in range(4):
        a, b = (codes(x.F32, seed + at).astype(np.uint32) for at in (0, 9))
        with np.errstate(all="ignore"):
            quotient = a.view(np.float32) / b.view(np.float32)
        for how in ("full", "approx"):
            line = f"div.{how}.f32 %f0, %f1, %f2;"
            found = evaluate(line, {"%f1": a, "%f2": b}, exact=False)["%f0"]
            for lane in range(32):
                size = int(b[lane]) & 0x7FFFFFFF
                if how == "approx" and 0x7E800000 < size < 0x7F800000:
                    continue
                want = quotient[lane]
                bits = 0x7FFFFFFF if np.isnan(want) else int(want.view(np.uint32))
                assert int(found[lane]) == bits


def test_approximate_halves() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).reshape(-1, 32)[::37]
    for kind, form in (("f16", x.F16), ("bf16", x.BF16)):
        for name in ("ex2", "tanh"):
            ftz = ".ftz" if (kind, name) == ("bf16", "ex2") else ""
            for row in every:
                line = f"{name}.approx{ftz}.{kind} %h0, %h1;"
                found = evaluate(line, {"%h1": row}, exact=False)["%h0"]
                for lane in range(32):
                    code = flushed(int(row[lane]), form) if ftz else int(row[lane])
                    number = x.value(code, form)
                    if number == x.NAN:
                        assert int(found[lane]) == 0x7FFF
                    elif not isinstance(number, str) and abs(number) < 100:
                        exact = FUNCTIONS[name](np.float64(float(number)))
                        want = x.code(x.Fraction(float(exact)), form, "rn", code >= 0x8000)
                        want = flushed(want, form) if ftz else want
                        assert int(found[lane]) == want, (kind, name, hex(code))


def test_half_of_f64() -> None:
    a = codes(x.F64, 1)
    for name in ("rcp", "rsqrt"):
        found = evaluate(f"{name}.approx.ftz.f64 %d0, %d1;", {"%d1": a})["%d0"]
        assert (found & np.uint64(0xFFFFFFFF) == 0).all()
        high = np.array([flushed(int(v), x.F64) & ~0xFFFFFFFF for v in a], np.uint64)
        with np.errstate(all="ignore"):
            want = FUNCTIONS[name](high.view(np.float64))
        for lane in range(32):
            made = found[lane : lane + 1].view(np.float64)[0]
            if np.isnan(want[lane]):
                assert int(found[lane]) == 0x7FFFFFFF00000000
            elif abs(want[lane]) > 3e-308:
                assert made == want[lane] or abs(made / want[lane] - 1) < 2.0**-19


@pytest.mark.parametrize(
    "line",
    [
        "mov.u32 %rd0, %r1;",
        "mov.u32 %r0, %clock64;",
        "cvta.shared.u32 %r0, %r1;",
        "prmt.b32.odd %r0, %r1, %r2, %r3;",
        "mov.b64 %rd0, {%r1, %h2};",
    ],
)
def test_what_is_not_modelled_is_refused(line: str) -> None:
    with pytest.raises(UnsupportedError):
        evaluate(line, {})


def test_all_of_a_corpus_is_translated() -> None:
    """Whatever kernels of others have of these opcodes; their folder is named by a variable."""
    folder = os.environ.get("MLAGEN_PTX_CORPUS", "")
    files = sorted(Path(folder).glob("**/*.ptx")) if folder else []
    if not files:
        pytest.skip("MLAGEN_PTX_CORPUS names no folder of PTX files")
    refused = []
    for path in files:
        module = read_ptx(path.read_text())
        for entry in module.entries:
            symbols = {v.name: (v.space, 0) for v in entry.variables}
            symbols |= {p.name: ("param", 0) for p in entry.parameters}
            t = Translator(entry, symbols)
            for i in entry.instructions:
                if i.name in values.TRANSLATIONS:
                    try:
                        t.encode(i, values.TRANSLATIONS[i.name](t, i))
                    except MlagenError as error:
                        refused.append(f"{path.name}: {error}")
    assert not refused
