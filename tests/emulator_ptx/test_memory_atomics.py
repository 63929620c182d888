"""atom and red against numpy, lane after lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from lane_rows import SHARED, copied
from running import kernel, run

NUMBERS = {
    "u32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "s64": np.int64,
    "b32": np.uint32,
    "b64": np.uint64,
}
WHOLE: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, own: old + own,
    "min": min,
    "max": max,
    "and": lambda old, own: old & own,
    "or": lambda old, own: old | own,
    "xor": lambda old, own: old ^ own,
    "exch": lambda old, own: own,
    "inc": lambda old, own: 0 if old >= own else old + 1,
    "dec": lambda old, own: own if old == 0 or old > own else old - 1,
}
FORMS = [(op, kind) for op in ("add", "min", "max") for kind in ("u32", "s32", "u64", "s64")]
FORMS += [(op, kind) for op in ("and", "or", "xor", "exch") for kind in ("b32", "b64")]
FORMS += [("inc", "u32"), ("dec", "u32")]
TARGETS = {
    "global": ("atom.global", "%rd41"),
    "generic": ("atom", "%rd41"),
    "shared": ("atom.shared", "%rd42"),
}


def exchanged(
    line: str, values: np.ndarray, start: np.ndarray, where: str = "global"
) -> tuple[np.ndarray, np.ndarray]:
    """Run `line` with a lane's operand in %rd10 (or %r10, %h10) for the word at %rd41, which begins
    as `start`; the word afterwards, and what each lane got in %rd11, %r11 or %h11."""
    bytes_ = values.dtype.itemsize
    name = {2: "h", 4: "r", 8: "rd"}[bytes_]
    held = start.copy()
    got = np.zeros(values.size, values.dtype).reshape(32, -1)
    bits = 8 * bytes_
    before, after = "", ""
    if where == "shared":
        before = f"""mov.u64 %rd42, sh; ld.global.b{bits} %{name}12, [%rd41];
            st.shared.b{bits} [sh], %{name}12; bar.warp.sync 0xffffffff;"""
        after = "bar.warp.sync 0xffffffff;"
        after += f"ld.shared.b{bits} %{name}12, [sh]; st.global.b{bits} [%rd41], %{name}12;"
    ran = copied(
        f"""mov.u64 %rd41, 0x40000000; ld.global.b{bits} %{name}10, [%rd1]; {before}
        {line} st.global.b{bits} [%rd2], %{name}11; {after}""",
        values.reshape(32, 1),
        got,
        buffers=[(0x4000_0000, held)],
    )
    assert ran.ended and ran.kinds() == []
    return held, got[:, 0]


@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize(("op", "kind"), FORMS)
def test_integers(op: str, kind: str, where: str) -> None:
    number = NUMBERS[kind]
    random = np.random.default_rng(len(op) + int(kind[1:]))
    low = -50 if kind[0] == "s" else 0
    values = random.integers(low, 60, 32).astype(number)
    values[::5] = np.iinfo(number).max
    values[3] = np.iinfo(number).min
    start = np.array([7], number)
    name = "r" if values.dtype.itemsize == 4 else "rd"
    opcode, address = TARGETS[where]
    line = f"{opcode}.{op}.{kind} %{name}11, [{address}], %{name}10;"
    held, got = exchanged(line, values, start, where)
    now, bits = int(start[0]), 8 * values.dtype.itemsize
    for lane in range(32):
        assert got[lane] == np.array(now, dtype=object)
        now = WHOLE[op](now, int(values[lane])) & ((1 << bits) - 1)
        if kind[0] == "s" and now >> (bits - 1):
            now -= 1 << bits
    assert int(held[0]) == now


@pytest.mark.parametrize(("bits", "name"), [(16, "h"), (32, "r"), (64, "rd")])
def test_compare_and_swap(bits: int, name: str) -> None:
    """Lane l swaps in l + 1 where it finds l: all of them do, one after another, but for one."""
    values = np.arange(32).astype(f"u{bits // 8}")
    values[20] = 99
    one = f"add.u{bits} %{name}13, %{name}10, 1;"
    line = f"{one} atom.global.cas.b{bits} %{name}11, [%rd41], %{name}10, %{name}13;"
    held, got = exchanged(line, values, np.zeros(1, values.dtype))
    assert held[0] == 20
    assert got.tolist() == [*range(20), *[20] * 12]


def test_sixteen_bytes() -> None:
    held = np.array([[1, 2], [3, 4]], np.uint64)
    result = np.zeros((4, 2), np.uint64)
    text = kernel(
        """ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [o]; ld.global.b128 %q1, [%rd1+16];
        ld.global.b128 %q2, [%rd1]; atom.global.cas.b128 %q3, [%rd1], %q1, %q1;
        st.global.b128 [%rd2], %q3;
        atom.global.cas.b128 %q3, [%rd1], %q2, %q1; st.global.b128 [%rd2+16], %q3;
        atom.global.exch.b128 %q3, [%rd1], %q2; st.global.b128 [%rd2+32], %q3;
        ld.global.b128 %q4, [%rd1]; st.global.b128 [%rd2+48], %q4; ret;""",
        "p, o",
    )
    ran = run(text, {"p": held, "o": result}, block=(1, 1, 1))
    assert ran.ended and not ran.findings
    assert result.tolist() == [[1, 2], [1, 2], [3, 4], [1, 2]]


def test_f32_sums_in_the_order_of_lanes() -> None:
    values = np.random.default_rng(1).standard_normal(32).astype(np.float32) * 1e3
    held, got = exchanged(
        "atom.global.add.f32 %r11, [%rd41], %r10;", values, np.zeros(1, np.float32)
    )
    now = np.float32(0)
    for lane in range(32):
        assert got[lane] == now
        now = np.float32(now + values[lane])
    assert held[0] == now


def test_f64_sums() -> None:
    values = np.random.default_rng(1).standard_normal(32) * 1e9
    held, _ = exchanged("atom.global.add.f64 %rd11, [%rd41], %rd10;", values, np.zeros(1))
    now = np.float64(0)
    for value in values:
        now += value
    assert held[0] == now


def test_denormal_f32_are_zeros_in_global_memory_alone() -> None:
    """PTX ISA 9.0, atom: atom.add.f32 flushes on global memory, not on shared memory."""
    values = np.full(32, 1e-40, np.float32)
    start = np.zeros(1, np.float32)
    held, _ = exchanged("atom.global.add.f32 %r11, [%rd41], %r10;", values, start)
    assert held[0] == 0
    held, _ = exchanged("atom.shared.add.f32 %r11, [%rd42], %r10;", values, start, "shared")
    assert held.view(np.uint32)[0] == 32 * values.view(np.uint32)[0]


def narrowed(x: np.ndarray, bf16: bool) -> np.ndarray:
    """f64 to 16 bits, to nearest even: their codes."""
    if not bf16:
        return x.astype(np.float16).view(np.uint16)
    words = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def widened(codes: np.ndarray, bf16: bool) -> np.ndarray:
    if not bf16:
        return codes.view(np.float16).astype(np.float64)
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f16x2", "bf16x2"])
def test_sums_of_halves(kind: str) -> None:
    """Each rounds once: f16 sums in f64 are exact; of bf16 the exponents here are near enough."""
    bf16 = kind.startswith("b")
    halves = 2 if kind.endswith("x2") else 1
    random = np.random.default_rng(4)
    drawn = random.standard_normal((32, halves)) * np.exp2(random.integers(-12, 6, (32, halves)))
    if not bf16:
        drawn[4] = 6e-8  # denormal
    codes = narrowed(drawn, bf16)
    name = "h" if halves == 1 else "r"
    values = codes.view(np.uint16 if halves == 1 else np.uint32)[:, 0]
    line = f"atom.global.add.noftz.{kind} %{name}11, [%rd41], %{name}10;"
    held, _ = exchanged(line, values, np.zeros(1, values.dtype))
    now = np.zeros(halves, np.uint16)
    for lane in range(32):
        now = narrowed(widened(now, bf16) + widened(codes[lane], bf16), bf16)
    assert held.view(np.uint16).tolist() == now.tolist()


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [(0x7BFF, 0x7BFF, 0x7C00), (0x7C00, 0xFC00, 0x7FFF), (0x0001, 0x0001, 0x0002),
     (0x8000, 0x8000, 0x8000),
     (0x03FF, 0x0001, 0x0400), (0x7E01, 0x3C00, 0x7FFF), (0x0001, 0x8001, 0x0000)],
)  # fmt: skip
def test_edges_of_f16_sums(one: int, other: int, total: int) -> None:
    held = np.array([one, 0], np.uint16)
    text = kernel(
        f"ld.param.u64 %rd1, [p]; mov.b16 %h1, {other}; red.global.add.noftz.f16 [%rd1], %h1; ret;",
        "p",
    )
    run(text, {"p": held}, block=(1, 1, 1))
    assert held[0] == total


def test_vectors() -> None:
    """red.add.v4.f32, and min of v2.f16x2 where a NaN loses."""
    held = np.arange(4, dtype=np.float32)
    halves = np.array([1.0, np.nan, -0.0, 4.0], np.float16)
    text = kernel(
        """ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [h]; mov.f32 %f1, 0f3F800000;
        mov.f32 %f2, 0f40000000;
        red.relaxed.gpu.global.add.v4.f32 [%rd1], {%f1, %f2, %f1, %f2};
        mov.b32 %r1, 0x40004000; mov.b32 %r2, 0x3C000000;
        atom.global.min.noftz.v2.f16x2 {%r3, %r4}, [%rd2], {%r1, %r2}; ret;""",
        "p, h",
    )
    ran = run(text, {"p": held, "h": halves}, block=(32, 1, 1))
    assert ran.ended and not ran.findings
    assert held.tolist() == [0 + 32, 1 + 64, 2 + 32, 3 + 64]
    assert halves.tolist() == [1.0, 2.0, 0.0, 1.0] and np.signbit(halves[2])


def test_only_lanes_of_the_guard() -> None:
    held = np.zeros(1, np.uint32)
    text = kernel(
        """ld.param.u64 %rd1, [p]; mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 5;
        @%p1 red.global.add.u32 [%rd1], %r1; ret;""",
        "p",
    )
    run(text, {"p": held})
    assert held[0] == 10


@pytest.mark.parametrize("mode", ["latest", "earliest", "drawn"])
def test_a_lock_that_warps_of_several_ctas_take(mode: str) -> None:
    """Spinning on cas lets others run: warps and CTAs take turns, and nothing is lost."""
    held = np.zeros(2, np.uint32)
    text = kernel(
        """ld.param.u64 %rd1, [p]; mov.u32 %r9, %laneid; setp.ne.u32 %p3, %r9, 0; @%p3 ret;
        TRY: atom.global.acquire.gpu.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0;
        @%p1 bra TRY;
        ld.relaxed.gpu.global.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, 1;
        st.relaxed.gpu.global.u32 [%rd1+4], %r2;
        atom.global.release.gpu.exch.b32 %r3, [%rd1], 0; ret;""",
        "p",
        head=SHARED,
    )
    ran = run(text, {"p": held}, grid=(3, 1, 1), block=(128, 1, 1), mode=mode)
    assert ran.ended and held.tolist() == [0, 12]


def test_a_flag_that_another_warp_sets() -> None:
    """The first warp polls what the last one writes."""
    result = np.zeros(1, np.uint32)
    for poll, tell in (
        ("ld.acquire.cta.shared.u32 %r1, [sh];", "st.release.cta.shared.u32 [sh], 5;"),
        ("ld.volatile.shared.u32 %r1, [sh];", "st.volatile.shared.u32 [sh], 5;"),
        ("atom.shared.or.b32 %r1, [sh], 0;", "atom.shared.exch.b32 %r1, [sh], 5;"),
    ):
        result[:] = 0
        text = kernel(
            f"""ld.param.u64 %rd1, [p]; mov.u32 %r9, %tid.x; setp.gt.u32 %p3, %r9, 95;
            @%p3 bra TELL;
            setp.ne.u32 %p3, %r9, 0; @%p3 ret;
            POLL: {poll} setp.ne.u32 %p1, %r1, 5; @%p1 bra POLL; st.global.u32 [%rd1], %r1; ret;
            TELL: {tell} ret;""",
            "p",
            head=SHARED,
        )
        for mode in ("latest", "earliest", "drawn"):
            ran = run(text, {"p": result}, block=(128, 1, 1), mode=mode)
            assert ran.ended and result[0] == 5
