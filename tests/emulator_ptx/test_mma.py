"""mma.sync against exact sums of its own words."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator.ptx.arithmetic.dot import dot, rule_of

LANES = np.arange(32)
GROUP, PLACE = LANES // 4, LANES % 4
SHAPES = {"m8n8k4": (8, 4), "m16n8k4": (16, 4), "m16n8k8": (16, 8), "m16n8k16": (16, 16)}


def lanes_of(name: str, register: str, count: int, width: int) -> str:
    """Loads of `count` registers a lane, from a table of [register][lane]."""
    text = f"ld.param.u64 %rd1, [{name}]; mad.wide.u32 %rd1, %r40, {width // 8}, %rd1;"
    for number in range(count):
        at = f"[%rd1+{32 * width // 8 * number}]"
        text += f"ld.global.b{width} {register.format(number)}, {at};"
    return text


def stored(name: str, register: str, count: int, width: int) -> str:
    return lanes_of(name, register, count, width).replace("ld.global", "st.global")


def flipped(text: str) -> str:
    """Stores with the address first."""
    head, *rest = text.split("st.global")
    for part in rest:
        kind, register, at = part.replace(";", "").replace(",", "").split()
        head += f"st.global{kind} {at}, {register};"
    return head


def listed(register: str, count: int) -> str:
    return "{" + ", ".join(register.format(number) for number in range(count)) + "}"


@pytest.mark.parametrize("shape", SHAPES)
def test_doubles_are_added_one_after_the_other(shape: str) -> None:
    """Numbers of very different sizes, so that any other order gives other bits."""
    m, k = SHAPES[shape]
    rng = np.random.default_rng(k)
    a, b, c = (
        rng.standard_normal(size) * 2.0 ** rng.integers(-20, 20, size)
        for size in ((m, k), (k, 8), (m, 8))
    )
    wanted = np.empty((m, 8))
    for row, column in np.ndindex(m, 8):
        total = Fraction(float(c[row, column]))
        for deep in range(k):
            product = Fraction(float(a[row, deep])) * Fraction(float(b[deep, column]))
            total = Fraction(float(product + total))
        wanted[row, column] = float(total)
    halves = m // 8
    in_a = np.stack(
        [a[GROUP + 8 * (n % halves), PLACE + 4 * (n // halves)] for n in range(halves * k // 4)]
    )
    in_b = np.stack([b[PLACE + 4 * n, GROUP] for n in range(k // 4)])
    in_c = np.stack([c[GROUP + 8 * (n // 2), 2 * PLACE + n % 2] for n in range(m // 4)])
    result = np.zeros_like(in_c)
    counts = {"d{}": len(in_a), "d2{}": len(in_b), "d4{}": len(in_c)}
    names = [f"%{name}" for name in counts]
    items = [listed(f"%{name}", count) for name, count in counts.items()]
    loads = "".join(
        lanes_of(p, name, count, 64)
        for p, name, count in zip("abc", names, counts.values(), strict=True)
    )
    text = kernel(
        f"""mov.u32 %r40, %laneid; {loads}
        mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {items[2]}, {items[0]}, {items[1]},
        {items[2]}; {flipped(stored("o", names[2], len(in_c), 64))} ret;""",
        "a, b, c, o",
    )
    ran = run(text, {"a": in_a, "b": in_b, "c": in_c, "o": result})
    assert ran.ended and not ran.findings
    given = np.stack([wanted[GROUP + 8 * (n // 2), 2 * PLACE + n % 2] for n in range(m // 4)])
    assert result.tobytes() == given.tobytes()


def test_sums_in_f16_are_rounded_to_nearest() -> None:
    """The bits of `dot`, which words of an H200 hold to be right."""
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(s).astype(np.float16) for s in ((16, 16), (8, 16), (16, 8)))
    a[3], c[3] = 0, np.float16(-3e-7)  # a denormal accumulator alone
    a[4], c[4] = 0, 0
    a[4, 0], b[:, 0] = np.float16(-1e-7), np.abs(b[:, 0]) / 8  # rounds to -0, which is +0
    words = [x.view(np.uint16).astype(np.uint32) for x in (a, b, c)]
    wanted = dot(rule_of("mma", "f16", "f16"), ("f16", "f16", "f16"), *words)

    def pairs(x: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        return x[row, column] | x[row, column + 1] << 16

    in_a = np.stack(
        [pairs(words[0], GROUP + 8 * (n % 2), 2 * PLACE + 8 * (n // 2)) for n in range(4)]
    )
    in_b = np.stack([pairs(words[1], GROUP, 2 * PLACE + 8 * n) for n in range(2)])
    in_c = np.stack([pairs(words[2], GROUP + 8 * n, 2 * PLACE) for n in range(2)])
    result = np.zeros((2, 32), np.uint32)
    text = kernel(
        f"""mov.u32 %r40, %laneid; {lanes_of("a", "%r{}", 4, 32)} {lanes_of("b", "%r1{}", 2, 32)}
        {lanes_of("c", "%r2{}", 2, 32)}
        mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {{%r20, %r21}}, {{%r0, %r1, %r2, %r3}},
        {{%r10, %r11}}, {{%r20, %r21}}; {flipped(stored("o", "%r2{}", 2, 32))} ret;""",
        "a, b, c, o",
    )
    ran = run(text, {"a": in_a, "b": in_b, "c": in_c, "o": result})
    assert ran.ended and not ran.findings
    given = np.stack([pairs(wanted, GROUP + 8 * n, 2 * PLACE) for n in range(2)])
    assert np.array_equal(result, given)
