"""Launches and references of `llvm/elementwise.c`."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from llvm_corpus import Case, Expected, Maker, blank

_BF16 = ml_dtypes.bfloat16
_FP8 = ml_dtypes.float8_e4m3fn


def _vector_add(rng: np.random.Generator) -> Case:
    n = 600
    a, b = rng.standard_normal((2, 768)).astype(np.float32)
    out = blank(768, np.float32)
    expected = np.where(np.arange(768) < n, a + b, out)
    return Case((a, b, out, np.int32(n)), {2: Expected(expected)}, (3, 1, 1), (256, 1, 1))


def _grid_stride(rng: np.random.Generator) -> Case:
    n = 1337
    x, y = rng.integers(-99, 99, (2, n)).astype(np.float32)
    arguments = (x, y, np.float32(3), np.int32(n), np.int32(2))
    return Case(arguments, {1: Expected(3 * x + y)}, (2, 1, 1), (256, 1, 1))


def _polynomial(rng: np.random.Generator) -> Case:
    x = (rng.integers(-16, 17, (128, 4)) / 8).astype(np.float32)  # every step is exact
    r = x.astype(np.float64) * 0.25 + 1.5
    for _ in range(3):
        r = r * x - 0.125
    return Case((x, blank(x.shape, np.float32)), {1: Expected(r)}, (2, 1, 1))


def _gather(rng: np.random.Generator) -> Case:
    index, table = rng.integers(0, 999, 256), rng.standard_normal(999)
    out = blank(256, np.float64)
    return Case((index, table, out), {2: Expected(table[index])}, (2, 1, 1), (128, 1, 1))


def _divide_float(rng: np.random.Generator) -> Case:
    bits = rng.integers(0, 1 << 32, (2, 64 * 16), dtype=np.uint64).astype(np.uint32)
    a, b = bits.view(np.float32)
    special = np.array([0, -0.0, 1, -3, np.inf, -np.inf, 1e-45, -1e-40, 3e38, 2e-38], np.float32)
    a[:100], b[:100] = np.repeat(special, 10), np.tile(special, 10)
    a[np.isnan(a)], b[np.isnan(b)] = 1.0, 3.0
    with np.errstate(all="ignore"):
        quotient = a / b
    quotient[np.isnan(quotient)] = np.uint32(0xFFC00000).view(np.float32)
    return Case((a, b, blank(a.shape, np.float32)), {2: Expected(quotient)}, (16, 1, 1))


def _square_root(rng: np.random.Generator) -> Case:
    a = (10.0 ** rng.uniform(-44, 38, 512)).astype(np.float32)
    a[:4] = [0, 1, np.inf, 1e-45]
    return Case((a, blank(512, np.float32)), {1: Expected(np.sqrt(a))}, (8, 1, 1))


def _divide_integer(rng: np.random.Generator) -> Case:
    a, b = rng.integers(0, 1 << 32, (2, 256), dtype=np.uint64).astype(np.uint32)
    b >>= rng.integers(0, 31, 256).astype(np.uint32)
    b[b == 0] = 5
    x, y = a.view(np.int32).astype(np.int64), (b | 1).view(np.int32).astype(np.int64)
    signed = np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)
    remainder = np.abs(x) % 100 * np.sign(x)
    parts = [a // b, a % 7, signed, remainder]
    expected = np.stack([part.astype(np.int64).astype(np.uint32) for part in parts], 1)
    return Case((a, b, blank((256, 4), np.uint32)), {2: Expected(expected)}, (4, 1, 1))


def _divide_long(rng: np.random.Generator) -> Case:
    a, b = rng.integers(0, 1 << 64, (2, 256), dtype=np.uint64, endpoint=False)
    b >>= rng.integers(0, 63, 256).astype(np.uint64)
    b[b == 0] = 9
    expected = np.stack([a // b, a % b], 1)
    return Case((a, b, blank((256, 2), np.uint64)), {2: Expected(expected)}, (4, 1, 1))


def _long_arithmetic(rng: np.random.Generator) -> Case:
    a, b = rng.integers(-(1 << 63), 1 << 63, (2, 128), dtype=np.int64)
    u, v = a.view(np.uint64), b.view(np.uint64)
    shift, short = v & np.uint64(63), (v & np.uint64(31)).astype(np.int64)
    parts = [
        u * v,
        u - v,
        (u << shift) + (a >> short).view(np.uint64),
        (u >> shift) ^ ~v,
        np.minimum(a, b).view(np.uint64),
        np.where(u > v, u & v, u | v),
    ]
    expected = np.stack(parts, 1).view(np.int64)
    return Case((a, b, blank((128, 6), np.int64)), {2: Expected(expected)}, (2, 1, 1))


def _bit_tricks(rng: np.random.Generator) -> Case:
    a, b = rng.integers(0, 1 << 32, (2, 128), dtype=np.uint64).astype(np.uint32)
    a[:3], b[:3] = (0, 1, 0x80000000), (0x80000000, 0, 4)
    rows = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        swapped = int.from_bytes(y.to_bytes(4, "little"), "big")
        field = x << 9 & 0xFFFFFFFF
        field -= (field >> 31) << 32
        row = [
            2 * x.bit_count() + y.bit_count(),
            32 - x.bit_length(),
            (y & -y).bit_length() - 1 if y else 32,
            (x << 7 | x >> 25) ^ swapped,
            int(f"{x:032b}"[::-1], 2) + (x >> 5 & 0x3FF),
            x & y | ~x & 0x12345678,
            field >> 20,
            x * y >> 32,
        ]
        rows.append([value & 0xFFFFFFFF for value in row])
    expected = np.array(rows, np.uint32)
    return Case((a, b, blank((128, 8), np.uint32)), {2: Expected(expected)}, (2, 1, 1))


def _narrow_types(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 256, 128).astype(np.uint8)
    b = rng.integers(-32768, 32768, 128).astype(np.int16)
    sums = (a.astype(np.int32) * 3 + b).astype(np.uint16)
    halves = (a.view(np.int8) >> 1).view(np.uint8)
    outs = blank(128, np.uint16), blank(128, np.uint8)
    return Case((a, b, *outs), {2: Expected(sums), 3: Expected(halves)}, (2, 1, 1))


def _half_floats(rng: np.random.Generator) -> Case:
    codes = rng.integers(0, 0x7C00, 512).astype(np.uint16)
    codes |= rng.integers(0, 2, 512).astype(np.uint16) << 15
    a = codes.view(np.float16)
    b = (10.0 ** rng.uniform(-9, 5.5, 512) * rng.choice([-1, 1], 512)).astype(np.float32)
    b[:5] = [0, -0.0, np.inf, 65519.9, 65520]
    with np.errstate(over="ignore"):
        narrow = b.astype(np.float16)
    outs = blank(512, np.float16), blank(512, np.float32)
    wide = a.astype(np.float32) * 2
    return Case((a, b, *outs), {2: Expected(narrow), 3: Expected(wide)}, (8, 1, 1))


def _brain_floats(rng: np.random.Generator) -> Case:
    a = rng.standard_normal(256).astype(_BF16)
    b = rng.standard_normal(256).astype(np.float32)
    expected = (a.astype(np.float32) + b).astype(_BF16).view(np.uint16)
    return Case((a.view(np.uint16), b, blank(256, np.uint16)), {2: Expected(expected)}, (4, 1, 1))


def _small_floats(rng: np.random.Generator) -> Case:
    a = (2.0 ** rng.uniform(-10, 8, (128, 4)) * rng.choice([-1, 1], (128, 4))).astype(np.float32)
    codes = a.astype(_FP8)
    outs = blank((128, 1), np.uint32), blank((128, 4), np.float32)
    packed, back = codes.view(np.uint32), codes.astype(np.float32)
    return Case((a, *outs), {1: Expected(packed), 2: Expected(back)}, (2, 1, 1))


def _rounding(rng: np.random.Generator) -> Case:
    a = np.concatenate([rng.uniform(-9, 9, 120), [0.5, 1.5, 2.5, -0.5, 3.0, -2.0, 0.0, 7.99]])
    a = a.astype(np.float32)
    clamped = np.minimum(np.maximum(a, np.float32(-3)), np.float32(5))
    parts = [np.floor(a) + np.ceil(a), np.trunc(a) - np.rint(a), np.abs(a) * -a, clamped]
    whole = np.stack([np.trunc(a).astype(np.int32), np.abs(a).astype(np.int32)], 1)
    outs = blank((128, 4), np.float32), blank((128, 2), np.int32)
    return Case((a, *outs), {1: Expected(np.stack(parts, 1)), 2: Expected(whole)}, (2, 1, 1))


CASES: dict[str, Maker] = {
    "vector_add": _vector_add,
    "grid_stride": _grid_stride,
    "polynomial": _polynomial,
    "gather": _gather,
    "divide_float": _divide_float,
    "square_root": _square_root,
    "divide_integer": _divide_integer,
    "divide_long": _divide_long,
    "long_arithmetic": _long_arithmetic,
    "bit_tricks": _bit_tricks,
    "narrow_types": _narrow_types,
    "half_floats": _half_floats,
    "brain_floats": _brain_floats,
    "small_floats": _small_floats,
    "rounding": _rounding,
}
