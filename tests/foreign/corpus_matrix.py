"""Launches and references of `llvm/matrix.c`: matrices as lanes hold them, and as numpy does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from llvm_corpus import Case, Expected, Maker, blank

_BF16, _E4M3, _E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
_STEPS = 5


def _small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Integers that every format holds and whose products add up exactly."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def _dealt(matrix: np.ndarray, elements: int, chunk: int, dtype: object) -> np.ndarray:
    """[rows][k] as [64 lanes][elements]: lane l holds row l % rows; k in chunks over the groups."""
    rows, depth = matrix.shape
    groups = 64 // rows
    assert depth == groups * elements
    result = np.empty((64, elements), np.float32)
    for lane in range(64):
        for e in range(elements):
            k = e // chunk * chunk * groups + lane // rows * chunk + e % chunk
            result[lane, e] = matrix[lane % rows, k]
    return result.astype(dtype)


def _result(matrix: np.ndarray) -> np.ndarray:
    """[rows][columns] as [registers][64 lanes] of an accumulator."""
    size = len(matrix)
    lane, register = np.arange(64), np.arange(size * size // 64)[:, None]
    if size == 32:
        row = 8 * (register // 4) + 4 * (lane // 32) + register % 4
    else:
        row = 4 * (lane // 16) + register
    return matrix[row, lane % size].astype(np.float32)


def _product(
    rng: np.random.Generator,
    size: int,
    elements: int,
    chunk: int,
    types: tuple[object, object],
    by_lane: bool,
) -> Case:
    depth = 64 // size * elements
    a, b = _small(rng, _STEPS, size, depth), _small(rng, _STEPS, size, depth)
    total = sum(x @ y.T for x, y in zip(a, b, strict=True))
    raw = [
        np.stack([_dealt(step, elements, chunk, kind) for step in side]).view(np.uint8)
        for side, kind in zip((a, b), types, strict=True)
    ]
    expected = _result(total)
    if by_lane:
        expected = np.ascontiguousarray(expected.T)
    arguments = (*raw, blank(expected.shape, np.float32), np.int32(_STEPS))
    return Case(arguments, {2: Expected(expected)})


def _bf16_16x16(rng: np.random.Generator) -> Case:
    a, b = _small(rng, 2, _STEPS, 16, 32)
    terms = [x @ y.T * (2 if k & 1 else 1) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    raw = [np.stack([_dealt(m, 8, 8, _BF16) for m in side]).view(np.uint8) for side in (a, b)]
    expected = np.ascontiguousarray(_result(sum(terms)).T)
    arguments = (*raw, blank((64, 4), np.float32), np.int32(_STEPS))
    return Case(arguments, {2: Expected(expected)})


def _many_accumulators(rng: np.random.Generator) -> Case:
    a, b = _small(rng, 3, 3, 32, 16), _small(rng, 3, 4, 32, 16)
    total = np.einsum("siak,sjbk->ijab", a, b)
    raw = [
        np.stack([[_dealt(m, 8, 8, _BF16) for m in step] for step in side]).view(np.uint8)
        for side in (a, b)
    ]
    expected = np.stack([[_result(m) for m in row] for row in total])
    arguments = (*raw, blank(expected.shape, np.float32), np.int32(3))
    return Case(arguments, {2: Expected(expected)})


def _chained_products(rng: np.random.Generator) -> Case:
    q = rng.integers(-1, 2, (16, 32)).astype(np.float32)
    k = rng.choice([-1, *[0] * 14, 1], (_STEPS, 2, 16, 32)).astype(np.float32)
    v = _small(rng, _STEPS, 16, 32)
    # Scores [key][query]; a lane's eight become its slice of the second product's k.
    total = np.zeros((16, 16))
    for step in range(_STEPS):
        low, high = (np.exp2(half @ q.T) for half in k[step])
        p = np.empty((32, 16))
        for group in range(4):
            p[8 * group : 8 * group + 4] = low[4 * group : 4 * group + 4]
            p[8 * group + 4 : 8 * group + 8] = high[4 * group : 4 * group + 4]
        total += v[step] @ p
    raw = [_dealt(q, 8, 8, _BF16).view(np.uint8)]
    raw.append(np.stack([[_dealt(m, 8, 8, _BF16) for m in s] for s in k]).view(np.uint8))
    raw.append(np.stack([_dealt(m, 8, 8, _BF16) for m in v]).view(np.uint8))
    arguments = (*raw, blank((4, 64), np.float32), np.int32(_STEPS))
    # Powers of two are exact in bf16; their sums are in f32 while they have 24 bits.
    scores = np.abs(k @ q.T).max()
    assert 2.0 ** (2 * scores) * 3 * 32 * _STEPS < 1 << 24, "the sums have to be exact"
    return Case(arguments, {3: Expected(_result(total))})


def _plain(
    size: int, elements: int, chunk: int, a: object, b: object, by_lane: bool = True
) -> Maker:
    return lambda rng: _product(rng, size, elements, chunk, (a, b), by_lane)


CASES: dict[str, Maker] = {
    "bf16_32x32": _plain(32, 8, 8, _BF16, _BF16, by_lane=False),
    "bf16_16x16": _bf16_16x16,
    "bf16_short": _plain(16, 4, 4, _BF16, _BF16),
    "fp8_16x16": _plain(16, 8, 8, _E4M3, _E5M2),
    "fp8_32x32x64": _plain(32, 32, 16, _E4M3, _E5M2, by_lane=False),
    "f32_32x32": _plain(32, 1, 1, np.float32, np.float32, by_lane=False),
    "f16_32x32": _plain(32, 4, 4, np.float16, np.float16, by_lane=False),
    "many_accumulators": _many_accumulators,
    "chained_products": _chained_products,
}
