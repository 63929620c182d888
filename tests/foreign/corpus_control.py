"""Launches and references of `llvm/control.c` and `llvm/wave.c`."""

from __future__ import annotations

import numpy as np
from llvm_corpus import Case, Expected, Maker, blank

_MASK = 0xFFFFFFFF


def _collatz(rng: np.random.Generator) -> Case:
    a = rng.integers(1, 60, 128).astype(np.uint32)
    counts = []
    for x in a.tolist():
        steps = 0
        while x != 1:
            x = 3 * x + 1 if x & 1 else x >> 1
            steps += 1
        counts.append(steps)
    expected = np.array(counts, np.uint32)
    return Case((a, blank(128, np.uint32)), {1: Expected(expected)}, (2, 1, 1))


def _nested_branches(rng: np.random.Generator) -> Case:
    a = rng.integers(-90, 90, 256).astype(np.int32)
    b = rng.integers(-200, 200, 64).astype(np.int32)
    results = []
    for x in a.tolist():
        if x > 0:
            if x & 1:
                y = int(b[x & 63]) + 3
                y = y - int(b[y & 63]) if y > 100 else y
            else:
                y = sum(int(b[k]) * k for k in range(x & 15))
        else:
            y = -x if x < -50 else int(b[-x]) ^ 7
        results.append(y)
    expected = np.array(results, np.int32)
    return Case((a, b, blank(256, np.int32)), {2: Expected(expected)}, (4, 1, 1))


def _switch_table(rng: np.random.Generator) -> Case:
    a = rng.integers(-99, 99, 128).astype(np.int32)
    ways = {0: a * 3, 1: a - 77, 2: a ^ 0x55, 3: a << 3, 5: ~a, 6: a >> 2}
    expected = np.ones_like(a)
    for way, values in ways.items():
        expected = np.where(a & 7 == way, values, expected)
    return Case((a, blank(128, np.int32)), {1: Expected(expected)}, (2, 1, 1))


def _binary_search(rng: np.random.Generator) -> Case:
    table = np.sort(rng.integers(0, 500, 77)).astype(np.int32)
    keys = rng.integers(-5, 505, 128).astype(np.int32)
    expected = np.searchsorted(table, keys).astype(np.int32)
    arguments = (table, keys, blank(128, np.int32), np.int32(77))
    return Case(arguments, {2: Expected(expected)}, (2, 1, 1))


def _early_exit(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 9, (40, 64)).astype(np.float32)
    over = np.cumsum(a, 0) > 90
    expected = np.where(over.any(0), over.argmax(0), 40).astype(np.int32)
    expected = np.tile(expected, 2)
    arguments = (a, blank(128, np.int32), np.int32(40), np.float32(90))
    return Case(arguments, {1: Expected(expected)}, (2, 1, 1))


def _scalar_work(rng: np.random.Generator) -> Case:
    table = rng.integers(0, 1 << 32, 37, dtype=np.uint64).astype(np.uint32)
    a, b, low, wide = 1, 0, _MASK, 0
    for k, t in enumerate(table.tolist()):
        a = (a * t + (t >> 3)) & _MASK
        b ^= t << (k & 31) & _MASK
        low = min(low, t)
        wide += t * a
        if t & 0x100:
            b = int(f"{b:032b}"[::-1], 2)
    rows = [[a + g & _MASK, b, low + a.bit_count(), wide >> 17 & _MASK] for g in (0, 1)]
    expected = np.repeat(np.array(rows, np.uint32), 64, 0)
    arguments = (table, blank((128, 4), np.uint32), np.int32(37))
    return Case(arguments, {1: Expected(expected)}, (2, 1, 1))


def _nested_loops(rng: np.random.Generator) -> Case:
    a = rng.integers(-9, 9, (5, 11)).astype(np.float32)
    b = rng.integers(-9, 9, (11, 128)).astype(np.float32)
    arguments = (a, b, blank((5, 128), np.float32), np.int32(5), np.int32(11))
    return Case(arguments, {2: Expected(a @ b)}, (2, 1, 1))


def _group_ids(rng: np.random.Generator) -> Case:
    z, y, x, inside = np.indices((2, 3, 2, 64))
    expected = (x + 10 * y + 100 * z + 1000 * inside).astype(np.uint32)
    return Case((blank((2, 3, 2, 64), np.uint32),), {0: Expected(expected)}, (2, 3, 2), (8, 4, 2))


def _dpp_reduce(rng: np.random.Generator) -> Case:
    a = rng.integers(-999, 999, (2, 64)).astype(np.int32)
    expected = np.cumsum(a, 1).astype(np.int32)  # an inclusive scan over the wave
    return Case((a, blank((2, 64), np.int32)), {1: Expected(expected)}, (2, 1, 1))


def _dpp_softmax(rng: np.random.Generator) -> Case:
    a = rng.uniform(-8, 8, (2, 4, 16)).astype(np.float32)
    e = np.exp2(a.astype(np.float64) - a.max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True)
    # The differences are rounded to 2^-20 of at most 16; 16 terms, a reciprocal, a product.
    return Case((a, blank(a.shape, np.float32)), {1: Expected(expected, 1e-5)}, (2, 1, 1))


def _lane_reads(rng: np.random.Generator) -> Case:
    a = rng.integers(-99, 99, (2, 64)).astype(np.int32)
    chosen = 45
    expected = a.copy()
    expected[:, 37] = a[:, chosen]
    again = a[np.arange(2), a[:, 0] & 63]
    expected += (a[:, 0] * again)[:, None]
    arguments = (a, blank((2, 64), np.int32), np.int32(chosen))
    return Case(arguments, {1: Expected(expected)}, (2, 1, 1))


def _compact(rng: np.random.Generator) -> Case:
    a = rng.integers(-99, 99, (3, 64)).astype(np.int32)
    out, count = blank((3, 64), np.int32), blank(3, np.int32)
    expected = out.copy()
    for row, kept in zip(expected, a, strict=True):
        row[: (kept > 0).sum()] = kept[kept > 0]
    counts = (a > 0).sum(1).astype(np.int32)
    return Case((a, out, count), {1: Expected(expected), 2: Expected(counts)}, (3, 1, 1))


def _permutes(rng: np.random.Generator) -> Case:
    a = rng.integers(-999, 999, (2, 64)).astype(np.int32)
    index = np.stack([rng.permutation(64) for _ in range(2)]).astype(np.int32)
    pulled = np.take_along_axis(a, index, 1)
    pushed = np.empty_like(a)
    np.put_along_axis(pushed, index, a, 1)
    expected = pulled + 3 * pushed + 5 * a[:, np.arange(64) ^ 1]
    return Case((a, index, blank((2, 64), np.int32)), {2: Expected(expected)}, (2, 1, 1))


def _swaps(rng: np.random.Generator) -> Case:
    x, y = rng.integers(0, 1 << 31, (2, 2, 64)).astype(np.uint32)
    x1, y1 = x.copy(), y.copy()
    x1[:, 32:], y1[:, :32] = y[:, :32], x[:, 32:]
    x1 += np.uint32(1)
    x2, y2 = x1.copy(), y1.copy()
    for row in (0, 32):
        x2[:, row + 16 : row + 32], y2[:, row : row + 16] = (
            y1[:, row : row + 16],
            x1[:, row + 16 : row + 32],
        )
    expected = np.stack([x2, y2], 2)
    return Case((x, y, blank((2, 64, 2), np.uint32)), {2: Expected(expected)}, (2, 1, 1))


def _atomic_sum(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 32, 192, np.uint32)
    total = np.array([7], np.uint32)
    return Case((a, total), {1: Expected(total + a.sum(dtype=np.uint32))}, (3, 1, 1))


CONTROL: dict[str, Maker] = {
    "collatz": _collatz,
    "nested_branches": _nested_branches,
    "switch_table": _switch_table,
    "binary_search": _binary_search,
    "early_exit": _early_exit,
    "scalar_work": _scalar_work,
    "nested_loops": _nested_loops,
    "group_ids": _group_ids,
    "atomic_sum": _atomic_sum,
}
WAVE: dict[str, Maker] = {
    "dpp_reduce": _dpp_reduce,
    "dpp_softmax": _dpp_softmax,
    "lane_reads": _lane_reads,
    "compact": _compact,
    "permutes": _permutes,
    "swaps": _swaps,
}
