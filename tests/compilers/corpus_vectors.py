"""Cases of the kernels on rows, vectors and counters."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import triton_atomics as atomics
import triton_vectors as vectors
from bounds import APPROX, U32, summed
from compiler_case import Arrays, Case, Expected

BF16 = ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
Generator = np.random.Generator


def normal(rng: Generator, shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def _add() -> Case:
    def expect(a: Arrays) -> dict[str, Expected]:
        return {"out": Expected((a["x"] + a["y"]).astype(np.float64))}

    return Case(
        "add_masked",
        vectors.add_masked,
        {"x": "x", "y": "y", "out": "out", "n": 1000},
        lambda rng: {
            "x": normal(rng, (1000,)),
            "y": normal(rng, (1000,)),
            "out": np.full(1000, np.nan, np.float32),
        },
        expect,
        (4, 1, 1),
        {"BLOCK": 256},
    )


def _softmax() -> Case:
    def expect(a: Arrays) -> dict[str, Expected]:
        x = a["x"][:, :777].astype(np.float64)
        away = x - x.max(1, keepdims=True)
        powers = np.exp(away)
        value = powers / powers.sum(1, keepdims=True)
        # The difference, log2(e) and the product are each rounded: 3 u of the exponent.
        each = math.log(2) * 3 * U32 * np.abs(away * math.log2(math.e)) + APPROX
        worst = each.max(1, keepdims=True)
        inner = Expected(value, value * (each + worst + 778 * U32 + APPROX))
        return {"out": inner.beside(a["out"])}

    return Case(
        "softmax_row",
        vectors.softmax_row,
        {"x": "x", "out": "out", "columns": 777, "pitch": 780},
        lambda rng: {
            "x": normal(rng, (3, 780)) * np.float32(3),
            "out": np.zeros((3, 780), np.float32),
        },
        expect,
        (3, 1, 1),
        {"BLOCK": 1024},
        approximate=("ex2.approx.f32", "div.full.f32"),
    )


def _layer_norm() -> Case:
    columns, eps = 300, 1e-5

    def expect(a: Arrays) -> dict[str, Expected]:
        x, w, b = (a[name].astype(np.float64) for name in ("x", "weight", "bias"))
        mean = x.mean(1, keepdims=True)
        away = x - mean
        spread = np.sqrt((away**2).mean(1, keepdims=True) + eps)
        norm = away / spread
        mean_off = summed(columns + 1, np.abs(x).mean(1, keepdims=True))
        away_off = mean_off + U32 * np.abs(away)
        # Half of the relative error of the sum of squares, and of what follows it.
        spread_off = (columns + 6) * U32 / 2 + np.abs(away_off / spread).max(1, keepdims=True)
        norm_off = away_off / spread + np.abs(norm) * (spread_off + 3 * U32)
        value = norm * w + b
        return {
            "out": Expected(
                value, norm_off * np.abs(w) + 2 * U32 * (np.abs(norm * w) + np.abs(value))
            )
        }

    return Case(
        "layer_norm",
        vectors.layer_norm,
        {
            "x": "x",
            "weight": "weight",
            "bias": "bias",
            "out": "out",
            "columns": columns,
            "eps": eps,
        },
        lambda rng: {
            "x": normal(rng, (3, columns), BF16),
            "weight": normal(rng, (columns,), BF16),
            "bias": normal(rng, (columns,), BF16),
            "out": np.zeros((3, columns), np.float32),
        },
        expect,
        (3, 1, 1),
        {"BLOCK": 256},
        {"num_warps": 2},
    )


def _scans() -> Case:
    rows, n, block = 2, 300, 512

    def expect(a: Arrays) -> dict[str, Expected]:
        x = a["x"]
        best = np.empty_like(x)
        for row, line in enumerate(x):
            place = 0
            for i, value in enumerate(line):
                place = i if value > line[place] else place
                best[row, i] = place
        state = np.empty_like(x)
        for row, line in enumerate(x):
            padded = np.zeros(block, np.int64)
            padded[:n] = line
            shift = 0
            for i in reversed(range(block)):
                shift = (shift * (int(padded[i]) | 1) + i * 3 + 1) & 0xFFFFFFFF
                if i < n:
                    state[row, i] = np.uint32(shift).astype(np.int32)
        return {
            "sums": Expected(np.cumsum(x, 1).astype(np.int32)),
            "best": Expected(best),
            "state": Expected(state),
        }

    return Case(
        "scans",
        vectors.scans,
        {"x": "x", "sums": "sums", "best": "best", "state": "state", "n": n},
        lambda rng: {
            "x": rng.integers(-1000, 1000, (rows, n), np.int32),
            **{name: np.full((rows, n), -1, np.int32) for name in ("sums", "best", "state")},
        },
        expect,
        (rows, 1, 1),
        {"BLOCK": block},
    )


def _gather() -> Case:
    n, rows, width = 50, 90, 48

    def make(rng: Generator) -> Arrays:
        wanted = rng.integers(0, rows, n)
        wanted[::7] = -1
        return {
            "table": normal(rng, (rows, width)),
            "wanted": wanted,
            "places": rng.permutation(rows)[:n].astype(np.int64),
            "out": np.full((rows, width), -5, np.float32),
        }

    def expect(a: Arrays) -> dict[str, Expected]:
        out = a["out"].astype(np.float64)
        for source, target in zip(a["wanted"], a["places"], strict=True):
            if source >= 0:
                out[target] = a["table"][source]
        return {"out": Expected(out)}

    arguments = {"table": "table", "wanted": "wanted", "places": "places", "out": "out"}
    return Case(
        "gather_scatter",
        vectors.gather_scatter,
        {**arguments, "n": np.int64(n), "width": width},
        make,
        expect,
        (2, 1, 1),
        {"BLOCK": 32, "COLS": 64},
    )


def _sorted() -> Case:
    def expect(a: Arrays) -> dict[str, Expected]:
        down = -np.sort(-a["x"], 1)
        least = np.argmin(a["x"], 1).astype(np.int32)
        return {"out": Expected(down), "top": Expected(down[:, :8]), "arg": Expected(least)}

    return Case(
        "sorted_rows",
        vectors.sorted_rows,
        {"x": "x", "out": "out", "top": "top", "arg": "arg"},
        lambda rng: {
            "x": rng.integers(-50, 50, (2, 256), np.int32),
            "out": np.full((2, 256), 99, np.int32),
            "top": np.full((2, 8), 99, np.int32),
            "arg": np.full(2, -1, np.int32),
        },
        expect,
        (2, 1, 1),
        {"BLOCK": 256, "K": 8},
        {"num_warps": 2},
    )


def _transposed() -> Case:
    def expect(a: Arrays) -> dict[str, Expected]:
        moved = np.take_along_axis(a["x"].T, a["index"].astype(np.int64), 1)[:, ::-1]
        return {"out": Expected(moved.astype(np.float64))}

    return Case(
        "transposed_gather",
        vectors.transposed_gather,
        {"x": "x", "index": "index", "out": "out"},
        lambda rng: {
            "x": normal(rng, (64, 32), np.float16),
            "index": rng.integers(0, 64, (32, 64), np.int32),
            "out": np.full((32, 64), np.nan, np.float16),
        },
        expect,
        (1, 1, 1),
        {"ROWS": 64, "COLS": 32},
    )


def philox(counter: np.ndarray, seed: int) -> np.ndarray:
    """The first word that Philox-4x32-10 makes of (counter, 0, 0, 0) under a 64-bit seed."""
    words = [counter.astype(np.uint64), *(np.zeros(counter.shape, np.uint64) for _ in range(3))]
    key, low = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]),
            second & low,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0].astype(np.uint32)


def _dropout() -> Case:
    n, seed, keep = 1000, 1234567, 1500000000

    def expect(a: Arrays) -> dict[str, Expected]:
        kept = philox(np.arange(n), seed) < keep
        return {"out": Expected(np.where(kept, a["x"], 0).astype(np.float64))}

    return Case(
        "dropout",
        vectors.dropout,
        {"x": "x", "out": "out", "seed": seed, "keep": keep, "n": n},
        lambda rng: {"x": normal(rng, (n,)), "out": np.full(n, np.nan, np.float32)},
        expect,
        (4, 1, 1),
        {"BLOCK": 256},
    )


def _collatz() -> Case:
    def steps(value: int) -> int:
        count = 0
        while value != 1:
            value, count = (value // 2 if value % 2 == 0 else 3 * value + 1), count + 1
        return count

    return Case(
        "collatz",
        vectors.collatz,
        {"first": "first", "out": "out", "limit": 500},
        lambda rng: {"first": np.array([27, 1, 97], np.int32), "out": np.full(3, -1, np.int32)},
        lambda a: {"out": Expected(np.array([steps(int(v)) for v in a["first"]], np.int32))},
        (3, 1, 1),
        options={"num_warps": 1},
    )


def _packed() -> Case:
    n = 1500

    def expect(a: Arrays) -> dict[str, Expected]:
        x, y = a["x"].astype(np.uint64), a["y"].astype(np.uint64)
        left, right = x * np.uint64(0x01010101), y * np.uint64(0x00010203)
        whole = left * right
        high = (whole >> np.uint64(32)) ^ (left < right)
        return {
            "out": Expected(((x + y) // np.uint64(2)).astype(np.uint8)),
            "high": Expected(high.astype(np.uint32)),
            "low": Expected((whole & np.uint64(0xFFFFFFFF)).astype(np.uint32)),
        }

    return Case(
        "packed_assembly",
        vectors.packed_assembly,
        {"x": "x", "y": "y", "out": "out", "high": "high", "low": "low", "n": n},
        lambda rng: {
            "x": rng.integers(0, 256, n, np.uint8),
            "y": rng.integers(0, 256, n, np.uint8),
            "out": np.full(n, 255, np.uint8),
            "high": np.full(n, 0xFFFFFFFF, np.uint32),
            "low": np.full(n, 0xFFFFFFFF, np.uint32),
        },
        expect,
        (3, 1, 1),
        {"BLOCK": 512},
    )


def _quantised() -> Case:
    columns = 300

    def expect(a: Arrays) -> dict[str, Expected]:
        greatest = np.maximum(np.abs(a["x"]).max(1, keepdims=True), np.float32(1e-4))
        scale = greatest / np.float32(448)
        small = a["x"] / scale
        fine = small.astype(E4M3)
        # Both are exact in fp16; their sum is rounded there.
        back = fine.astype(np.float16) + small.astype(E5M2).astype(np.float16)
        return {
            "out": Expected(fine.astype(np.float64)),
            "scales": Expected(scale[:, 0].astype(np.float64)),
            "back": Expected(back.astype(np.float64)),
        }

    return Case(
        "quantised_rows",
        vectors.quantised_rows,
        {"x": "x", "out": "out", "scales": "scales", "back": "back", "columns": columns},
        lambda rng: {
            "x": normal(rng, (3, columns)),
            "out": np.full((3, columns), np.nan, E4M3),
            "scales": np.full(3, np.nan, np.float32),
            "back": np.full((3, columns), np.nan, np.float16),
        },
        expect,
        (3, 1, 1),
        {"BLOCK": 512},
    )


def _special() -> Case:
    n = 500

    def expect(a: Arrays) -> dict[str, Expected]:
        x = a["x"].astype(np.float64)
        scaled = (a["x"] * np.float32(0.001)).astype(np.float64)
        base = (np.abs(a["x"]) + np.float32(0.5)).astype(np.float64)
        waves, errors = np.sin(x), np.array([math.erf(v) for v in scaled])
        roots = base ** float(np.float32(1 / 3))
        # CUDA's mathematical functions: sinf and erff 2 ulp, powf 4 ulp; an ulp is at most 2 u.
        return {
            "waves": Expected(waves, 4 * U32 * np.abs(waves) + 1e-37),
            "errors": Expected(errors, 4 * U32 * np.abs(errors) + 1e-37),
            "roots": Expected(roots, 8 * U32 * roots),
        }

    return Case(
        "special_functions",
        vectors.special_functions,
        {"x": "x", "waves": "waves", "errors": "errors", "roots": "roots", "n": n},
        lambda rng: {
            "x": (normal(rng, (n,)) * 10.0 ** rng.integers(-3, 8, n)).astype(np.float32),
            **{name: np.full(n, np.nan, np.float32) for name in ("waves", "errors", "roots")},
        },
        expect,
        (2, 1, 1),
        {"BLOCK": 256},
        approximate=("ex2.approx.ftz.f32", "rcp.approx.ftz.f32"),
    )


def _column_totals() -> Case:
    rows, cols = 100, 90

    def expect(a: Arrays) -> dict[str, Expected]:
        x = a["x"].astype(np.float64)
        most = (a["x"].max(0) * np.float32(1024)).astype(np.int32)
        return {
            "sums": Expected(x.sum(0), summed(rows + 2, np.abs(x).sum(0))),
            "most": Expected(np.maximum(most, a["most"])),
            "least": Expected(np.minimum(x.min(0), a["least"])),
        }

    return Case(
        "column_totals",
        atomics.column_totals,
        {"x": "x", "sums": "sums", "most": "most", "least": "least", "rows": rows, "cols": cols},
        lambda rng: {
            "x": normal(rng, (rows, cols)),
            "sums": np.zeros(cols, np.float32),
            "most": np.full(cols, 1500, np.int32),
            "least": np.full(cols, -2, np.float32),
        },
        expect,
        (2, 2, 1),
        {"ROWS": 64, "COLS": 64},
        unordered=True,
    )


def _locked() -> Case:
    n = 1000
    return Case(
        "locked_total",
        atomics.locked_total,
        {"x": "x", "lock": "lock", "total": "total", "count": "count", "n": n},
        lambda rng: {
            "x": rng.integers(-99, 99, n, np.int32),
            **{name: np.zeros(1, np.int32) for name in ("lock", "total", "count")},
        },
        lambda a: {
            "total": Expected(a["x"].sum(keepdims=True, dtype=np.int32)),
            "count": Expected(np.array([4], np.int32)),
            "lock": Expected(np.array([0], np.int32)),
        },
        (4, 1, 1),
        {"BLOCK": 256},
    )


def _histogram() -> Case:
    n, bins = 2500, 64

    def expect(a: Arrays) -> dict[str, Expected]:
        counts = np.bincount(a["x"], minlength=bins).astype(np.int32)
        return {"bins": Expected(counts + a["bins"])}

    return Case(
        "histogram_bins",
        atomics.histogram_bins,
        {"x": "x", "bins": "bins", "n": n},
        lambda rng: {
            "x": np.minimum(rng.geometric(0.1, n), bins - 1).astype(np.int32),
            "bins": np.arange(bins, dtype=np.int32),
        },
        expect,
        (3, 1, 1),
        {"BINS": bins, "BLOCK": 1024},
    )


def _last_one() -> Case:
    n, programs = 3500, 4

    def expect(a: Arrays) -> dict[str, Expected]:
        x = a["x"].astype(np.float64)
        parts = np.array([x[i : i + 1024].sum() for i in range(0, n, 1024)])
        bounds = summed(1024, np.array([np.abs(x[i : i + 1024]).sum() for i in range(0, n, 1024)]))
        return {
            "parts": Expected(parts, bounds),
            "out": Expected(parts.sum(keepdims=True), summed(1030, np.abs(x).sum(keepdims=True))),
            "done": Expected(np.zeros(1, np.int32)),
        }

    return Case(
        "last_one_sums",
        atomics.last_one_sums,
        {"x": "x", "parts": "parts", "done": "done", "out": "out", "n": n},
        lambda rng: {
            "x": normal(rng, (n,)),
            "parts": np.full(programs, np.nan, np.float32),
            "done": np.zeros(1, np.int32),
            "out": np.full(1, np.nan, np.float32),
        },
        expect,
        (programs, 1, 1),
        {"PROGRAMS": programs, "BLOCK": 1024},
    )


def _bitmaps() -> Case:
    n = 300

    def expect(a: Arrays) -> dict[str, Expected]:
        at = np.arange(n)
        flags = np.zeros(16, np.uint32)
        np.bitwise_or.at(flags, at // 32, np.uint32(1) << (at % 32).astype(np.uint32))
        marks = np.zeros(16, np.uint32)
        np.bitwise_xor.at(marks, at % 16, at.astype(np.uint32))
        words = a["words"].copy()
        np.maximum.at(words, at % 4, at * 2654435761 - (1 << 39))
        return {
            "bits": Expected(np.concatenate([flags, marks]).view(np.int32)),
            "words": Expected(words),
            "count": Expected(np.array([n], np.int32)),
            "drawn": Expected(np.ones(n, np.int32)),
        }

    return Case(
        "tickets",
        atomics.tickets,
        {"count": "count", "drawn": "drawn", "bits": "bits", "words": "words", "n": n},
        lambda rng: {
            "count": np.zeros(1, np.int32),
            "drawn": np.zeros(n, np.int32),
            "bits": np.zeros(32, np.int32),
            "words": np.full(4, -(1 << 50), np.int64),
        },
        expect,
        (3, 1, 1),
        {"BLOCK": 128},
    )


def _half_sums() -> Case:
    n, cols = 1000, 64

    def expect(a: Arrays) -> dict[str, Expected]:
        out = np.zeros(cols)
        np.add.at(out, np.arange(n) % cols, a["x"].astype(np.float64))
        return {"out": Expected(out)}

    return Case(
        "half_sums",
        atomics.half_sums,
        {"x": "x", "out": "out", "n": n},
        # No sum of 16 of these leaves the integers that fp16 has, in whatever order.
        lambda rng: {
            "x": rng.integers(-100, 100, n).astype(np.float16),
            "out": np.zeros(cols, np.float16),
        },
        expect,
        (2, 1, 1),
        {"COLS": cols, "BLOCK": 512},
    )


def _dependent() -> Case:
    return Case(
        "dependent_scale",
        atomics.dependent_scale,
        {"x": "x", "out": "out", "n": 1000},
        lambda rng: {"x": normal(rng, (1000,)), "out": np.full(1000, np.nan, np.float32)},
        lambda a: {"out": Expected((a["x"] * np.float32(3)).astype(np.float64))},
        (2, 1, 1),
        {"BLOCK": 512},
        {"launch_pdl": True},
    )


CASES = (
    _add(), _softmax(), _layer_norm(), _scans(), _gather(), _sorted(), _transposed(), _dropout(),
    _collatz(), _packed(), _quantised(), _special(), _column_totals(), _locked(), _histogram(),
    _last_one(), _bitmaps(), _half_sums(), _dependent(),
)  # fmt: skip
