"""tcgen05.mma: types, shapes, descriptors and operands, against sums of the arithmetic's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tensor_products import B_AT, Product, descriptor, image, plain, swizzled, word

from mlagen.emulator.ptx.arithmetic.dot import dot, rule_of

TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
FIELDS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4",
         "s8": "i8", "u8": "i8"}  # fmt: skip
PLAIN = descriptor(128, 256), plain(128, 256)  # two chunks of K, one behind the other


def drawn(seed: int, rows: int, kind: str) -> np.ndarray:
    """Rows of 32 bytes."""
    draw = np.random.default_rng(seed)
    depth = 32 // np.dtype(TYPES[kind]).itemsize
    if kind in ("s8", "u8"):
        return draw.integers(0, 128, (rows, depth)).astype(TYPES[kind])
    made = (draw.standard_normal((rows, depth)) * 2.0 ** draw.integers(-4, 4)).astype(TYPES[kind])
    if kind == "tf32":  # the low bits are not read
        made = (made.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return made


def words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(WORDS[values.itemsize]).astype(np.uint32)


def raw(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)


def expected(a: np.ndarray, b: np.ndarray, kinds: tuple[str, str], c: Any = None) -> np.ndarray:
    """D's words, of f32."""
    return dot(rule_of("tcgen05", kinds[0], "f32"), (*kinds, "f32"), words(a), words(b), c)


def product(m: int, n: int, kinds: tuple[str, str], seed: int = 1, **more: Any) -> Any:
    """A one-CTA product with A and B without a swizzle, and its A and B."""
    a, b = drawn(seed, m, kinds[0]), drawn(seed + 1, n, kinds[1])
    made = Product(
        word(m, n, a=FIELDS[kinds[0]], b=FIELDS[kinds[1]]), n, PLAIN[0], PLAIN[0],
        (image(raw(a), PLAIN[1], raw(b), PLAIN[1]),), KINDS[kinds[0]], **more,
    )  # fmt: skip
    return made, a, b


@pytest.mark.parametrize(
    "kinds", [("bf16", "bf16"), ("f16", "f16"), ("tf32", "tf32"), ("e4m3", "e5m2")]
)
def test_types(kinds: tuple[str, str]) -> None:
    """All products with D in one sum, cut 25 bits below the greatest; added to D or not."""
    made, a, b = product(128, 32, kinds)
    out, ran = made.run()
    assert ran.ended and not ran.findings
    assert np.array_equal(out[0], expected(a, b, kinds))
    before = np.random.default_rng(7).standard_normal((128, 32)).astype(np.float32)
    for mode in ("latest", "earliest", "drawn"):
        added = replace(made, before=before.view(np.uint32), settings={"mode": mode})
        out, ran = added.run()
        assert ran.ended and not ran.findings
        assert np.array_equal(out[0], expected(a, b, kinds, before.view(np.uint32)))
    fast, _ = replace(made, settings={"exact": False}).run()
    true = a.astype(np.float64) @ b.astype(np.float64).T
    error = np.abs(fast[0].view(np.float32) - true)
    assert (error <= 2.0**-19 * (np.abs(a.astype(float)) @ np.abs(b.astype(float)).T)).all()


def test_whole_numbers_and_f16_sums() -> None:
    made, a, b = product(128, 32, ("s8", "u8"))
    out, ran = replace(made, word=word(128, 32, c=2, a=1)).run()
    assert not ran.findings
    assert np.array_equal(out[0].view(np.int32), a.astype(int) @ b.astype(int).T)
    made, a, b = product(128, 32, ("f16", "f16"))
    out, _ = replace(made, word=word(128, 32, c=0)).run()
    rule = rule_of("tcgen05", "f16", "f16")
    assert np.array_equal(out[0], dot(rule, ("f16",) * 3, words(a), words(b)))


def test_rows_of_64_lie_in_the_first_half_of_each_32_lanes() -> None:
    made, a, b = product(64, 24, ("bf16", "bf16"), before=np.full((128, 32), 5, np.uint32))
    made = replace(made, columns=32)
    out, ran = replace(made, before=np.zeros((128, 32), np.uint32)).run()
    assert not ran.findings
    lanes = [32 * (r // 16) + r % 16 for r in range(64)]
    assert np.array_equal(out[0][lanes, :24], expected(a, b, ("bf16", "bf16")))
    assert not out[0][np.setdiff1d(range(128), lanes)].any() and not out[0][:, 24:].any()


@pytest.mark.parametrize(("width", "mode"), [(128, 2), (64, 4), (32, 6)])
def test_swizzles(width: int, mode: int) -> None:
    a, b = drawn(3, 128, "bf16"), drawn(4, 64, "bf16")
    place = swizzled(width)
    rows = descriptor(16, 8 * width, mode)
    made = Product(word(128, 64, a=1, b=1), 64, rows, rows, (image(raw(a), place, raw(b), place),))
    out, ran = made.run()
    assert not ran.findings
    assert np.array_equal(out[0], expected(a, b, ("bf16", "bf16")))


def test_b_that_lies_along_n() -> None:
    """MN-major, 128 bytes: 64 elements of N a row, eight rows of K a pattern."""
    a, b = drawn(5, 128, "bf16"), drawn(6, 128, "bf16")
    turned = image(raw(a), PLAIN[1], np.zeros((0, 0), np.uint8), PLAIN[1])
    bits = raw(b).view(np.uint16)
    for n in range(128):
        for k in range(16):
            at = n // 64 * 4096 + k // 8 * 1024 + k % 8 * 128 + n % 64 * 2
            at ^= (at >> 7 & 7) << 4
            turned[B_AT + at : B_AT + at + 2] = np.frombuffer(bits[n, k].tobytes(), np.uint8)
    made = Product(
        word(128, 128, a=1, b=1, major=2), 128, PLAIN[0], descriptor(4096, 1024, 2), (turned,)
    )
    out, ran = made.run()
    assert not ran.findings
    assert np.array_equal(out[0], expected(a, b, ("bf16", "bf16")))


def test_a_in_tensor_memory() -> None:
    for kind in ("bf16", "tf32", "e4m3"):
        made, a, b = product(128, 32, (kind, kind))
        cells = np.ascontiguousarray(raw(a).view(np.uint32))
        out, ran = replace(made, cells=cells).run()
        assert not ran.findings, kind
        assert np.array_equal(out[0], expected(a, b, (kind, kind)))


def test_lanes_that_are_not_written_and_a_divided_d() -> None:
    before = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)
    made, a, b = product(128, 32, ("bf16", "bf16"), before=before.view(np.uint32))
    masks = (1, 0x80000000, 0, 6)
    out, ran = replace(made, masks=masks).run()
    assert not ran.findings
    left = [0, 63, 97, 98]
    rest = np.setdiff1d(range(128), left)
    want = expected(a, b, ("bf16", "bf16"), before.view(np.uint32))
    assert np.array_equal(out[0][rest], want[rest])
    assert np.array_equal(out[0][left], before.view(np.uint32)[left])
    out, _ = replace(made, scale=3).run()
    want = expected(a, b, ("bf16", "bf16"), (before / 8).view(np.uint32))
    assert np.array_equal(out[0], want)


@pytest.mark.parametrize("rows", [32, 64, 128])
def test_weights_fold_columns_into_lanes(rows: int) -> None:
    made, a, b = product(rows, 64, ("bf16", "bf16"))
    folds = 128 // rows
    made = replace(made, weights=True, columns=64 // folds)
    out, ran = made.run()
    assert not ran.findings
    want = expected(a, b, ("bf16", "bf16")).reshape(rows, folds, 64 // folds)
    assert np.array_equal(out[0], want.transpose(1, 0, 2).reshape(128, -1))
    # A in tensor memory is read at the lane of D.
    cells = np.ascontiguousarray(raw(drawn(9, 128, "bf16")).view(np.uint32))
    out, _ = replace(made, cells=cells).run()
    lanes = cells.view(np.uint16).astype(np.uint32)
    for lane in (0, 40, 100, 127):
        part = b[lane // rows * (64 // folds) :][: 64 // folds]
        row = lanes[lane : lane + 1].astype(np.uint16).view(TYPES["bf16"])
        assert np.array_equal(out[0][lane], expected(row, part, ("bf16", "bf16"))[0])


@pytest.mark.parametrize("rows", [128, 256])
def test_a_pair_of_ctas_shares_b(rows: int) -> None:
    a, b = drawn(11, rows, "bf16"), drawn(12, 64, "bf16")
    halves = [
        image(raw(a[rows // 2 * i :][: rows // 2]), PLAIN[1], raw(b[32 * i :][:32]), PLAIN[1])
        for i in range(2)
    ]
    columns = 64 if rows == 256 else 32
    made = Product(word(rows, 64, a=1, b=1), columns, PLAIN[0], PLAIN[0], tuple(halves), group=2)
    want = expected(a, b, ("bf16", "bf16"))
    for mode in ("latest", "earliest"):
        out, ran = replace(made, settings={"mode": mode}).run()
        assert ran.ended and not ran.findings
        if rows == 256:
            assert np.array_equal(out.reshape(256, 64), want)
        else:  # each CTA has 64 rows, and the second half of the columns in its upper lanes
            folded = want.reshape(2, 64, 2, 32).transpose(0, 2, 1, 3).reshape(2, 128, 32)
            assert np.array_equal(out, folded)
    mask = (1,) * 8
    out, ran = replace(made, masks=mask, before=np.zeros((2, 128, columns), np.uint32)).run()
    assert not out[:, [0, 32, 64, 96]].any() and out[:, [1, 33]].all() and not ran.findings


@pytest.mark.parametrize(
    ("name", "field", "bits"), [("e2m3", 3, 6), ("e3m2", 4, 6), ("e2m1", 5, 4)]
)
def test_small_types_lie_in_sixteens_with_room_behind(name: str, field: int, bits: int) -> None:
    codes = np.random.default_rng(field).integers(0, 1 << bits, (128, 32))
    packed = np.zeros((128, 32), np.uint8)
    for half in range(2):
        for row in range(128):
            number = sum(int(c) << bits * i for i, c in enumerate(codes[row, 16 * half :][:16]))
            packed[row, 16 * half : 16 * half + 16] = list(number.to_bytes(16, "little"))
    b = drawn(13, 32, "e4m3")
    made = Product(
        word(128, 32, a=field, b=0), 32, PLAIN[0], PLAIN[0],
        (image(packed, PLAIN[1], raw(b), PLAIN[1]),), "f8f6f4",
    )  # fmt: skip
    out, ran = made.run()
    assert not ran.findings
    kinds = (name, "e4m3", "f32")
    assert np.array_equal(out[0], dot(rule_of("tcgen05", *kinds[::2]), kinds, codes, words(b)))
    kind = {"e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn,
            "e2m1": ml_dtypes.float4_e2m1fn}[name]  # fmt: skip
    values = codes.astype(np.uint8).view(kind).astype(np.float64)
    error = np.abs(out[0].view(np.float32) - values @ b.astype(np.float64).T)
    assert (error <= 2.0**-20 * (np.abs(values) @ np.abs(b.astype(float)).T)).all()


WRONG = {
    "m 96": {"word": word(96, 32, a=1, b=1)},
    "n 40 of 128 rows": {"word": word(128, 40, a=1, b=1)},
    "tf32 for kind f16": {"word": word(128, 32, a=2, b=2)},
    "sparse": {"word": word(128, 32, a=1, b=1) | 4},
    "no version": {"b": PLAIN[0] & ~(1 << 46)},
    "base offset": {"b": PLAIN[0] | 1 << 49},
    "swizzle of 32 bytes": {"b": PLAIN[0] | 1 << 61},
    "odd mode": {"a": PLAIN[0] | 3 << 61},
    "b beside its swizzle's pattern": {"b": descriptor(16, 1024, 2) + 512 // 16},
    "b leads out": {"b": descriptor(128, 65536 // 4)},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_descriptors_end_the_run(wrong: dict[str, int]) -> None:
    made, _, _ = product(128, 32, ("bf16", "bf16"))
    _, ran = replace(made, **wrong).run()
    assert ran.fault in ("FAULT_TENSOR", "FAULT_DESCRIPTOR")
    assert ran.fault_text.startswith("tcgen05.mma")


def test_64_rows_begin_at_the_first_or_the_second_half_of_32_lanes() -> None:
    made, a, b = product(64, 16, ("bf16", "bf16"), before=np.zeros((128, 16), np.uint32))
    lanes = np.array([32 * (r // 16) + r % 16 for r in range(64)])
    second = "tcgen05.mma.cta_group::1.kind::f16 [%r10+0x100000]"
    out, ran = replace(made, instead=("tcgen05.mma.cta_group::1.kind::f16 [%r10]", second)).run()
    assert not ran.findings
    assert np.array_equal(out[0][lanes + 16], expected(a, b, ("bf16", "bf16")))
    other = second.replace("0x100000", "0x80000")
    _, ran = replace(made, instead=("tcgen05.mma.cta_group::1.kind::f16 [%r10]", other)).run()
    assert ran.fault == "FAULT_TENSOR" and ran.fault_text.startswith("tcgen05.mma")


# What is taken out or changed → kind of the finding; severity 1 is by the letter.
MUTANTS = {
    "wait": ("AGAIN:", ("", ""), ("RACE", 2)),
    "wait::st": ("wait::st", ("", ""), ("RACE", 2)),
    "wait::ld": ("wait::ld", ("", ""), ("REGISTER_IN_FLIGHT", 1)),
    "fence before": ("fence::before_thread_sync;  // stored", ("", ""), ("RACE", 1)),
    "fence after": ("fence::after_thread_sync;  // product", ("", ""), ("RACE", 1)),
    "fence after, read": ("fence::after_thread_sync;  // read", ("", ""), ("RACE", 1)),
    "barrier": ("// stored", ("", ""), ("RACE", 2)),
    "dealloc": ("tcgen05.dealloc", ("", ""), ("TENSOR_MISUSE", 2)),
    "proxy fence": ("fence.proxy.async", ("", ""), ("RACE", 2)),
    "other lanes": ("", ("shl.b32 %r7, %r7, 21", "shl.b32 %r7, %r7, 22"), ("TENSOR_MISUSE", 2)),
    "wait::ld, before it is freed": ("wait::ld", ("", ""), ("RACE", 2)),
    "fewer columns": ("", ("[where], 512", "[where], 32"), ("TENSOR_MISUSE", 2)),
    "D over A": ("", ("%r11, %r10, 256", "%r11, %r10, 31"), ("TENSOR_MISUSE", 2)),
    "freed twice as much": ("", ("%r10, 512;", "%r10, 256;"), ("TENSOR_MISUSE", 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_defects_are_found(name: str) -> None:
    without, instead, wanted = MUTANTS[name]
    made, a, _ = product(128, 32, ("bf16", "bf16"))
    cells = np.ascontiguousarray(raw(a).view(np.uint32))
    made = replace(made, cells=cells, without=without, instead=instead)
    for mode in ("latest", "earliest"):
        _, ran = replace(made, settings={"mode": mode}).run()
        found = [(f.kind, f.c if f.kind in ("RACE", "TENSOR_MISUSE", "REGISTER_IN_FLIGHT") else 2)
                 for f in ran.findings]  # fmt: skip
        assert wanted in found, (mode, ran.findings)


def test_d_may_lie_beside_a() -> None:
    made, a, b = product(128, 32, ("bf16", "bf16"))
    cells = np.ascontiguousarray(raw(a).view(np.uint32))
    beside = replace(made, cells=cells, instead=(", 256;", ", 32;"))
    out, ran = beside.run()
    assert not ran.findings
    assert np.array_equal(out[0], expected(a, b, ("bf16", "bf16")))


def test_a_missing_commit_is_a_deadlock_and_a_missing_wait_does_harm() -> None:
    made, a, b = product(128, 32, ("bf16", "bf16"))
    _, ran = replace(made, without="tcgen05.commit").run()
    assert not ran.ended
    out, _ = replace(made, without="AGAIN:").run()
    assert np.isnan(out[0].view(np.float32)).all()
    both = [image(raw(a[:64]), PLAIN[1], raw(b[16 * i :][:16]), PLAIN[1]) for i in range(2)]
    pair = Product(word(128, 32, a=1, b=1), 16, PLAIN[0], PLAIN[0], tuple(both), group=2)
    assert pair.run()[1].ended
    for mask in (1, 2):  # leaves out a CTA, which waits for ever
        _, ran = replace(pair, instead=("mov.u16 %h1, 3", f"mov.u16 %h1, {mask}")).run()
        assert not ran.ended and not ran.fault
    _, ran = replace(pair, instead=("mov.u16 %h1, 3", "mov.u16 %h1, 7")).run()
    assert ran.fault == "FAULT_SHARED"  # there is no third
