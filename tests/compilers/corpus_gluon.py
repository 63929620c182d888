"""Cases of the Gluon kernels: what is asynchronous is written by hand there."""

from __future__ import annotations

from typing import Any

import gluon_pipelines as pipelines
import ml_dtypes
import numpy as np
from bounds import summed
from compiler_case import Arrays, Case, Expected, Tiles
from corpus_matrices import dot, normal
from triton.experimental.gluon import language as gl

BF16 = ml_dtypes.bfloat16
Block = tuple[int, ...]
Generator = np.random.Generator


def _tiles(buffer: str, block: Block, dtype: Any = gl.bfloat16, ctas: Any = None) -> Tiles:
    """`ctas`: how a cluster's CTAs share the tile, as Gluon's bases of their ranks' bits."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), dtype, cga_layout=ctas)
    return Tiles(buffer, block, layout)


def _product(name: str, kernel: Any, n: int, ctas: int, stages: int, **options: int) -> Case:
    """C = A Bᵀ by two programs of 64 rows each CTA; the last rows are outside of C."""
    rows, depth, steps = 64 * ctas, 64, 5
    m, k = 2 * rows - 20, depth * steps
    halves, both = ([[1, 0]], [[0, 0]]) if ctas == 2 else (None, None)
    return Case(
        name,
        kernel,
        {
            "a": _tiles("a", (rows, depth), ctas=halves),
            "b": _tiles("b", (n, depth), ctas=both),
            "c": _tiles("c", (rows, n), ctas=halves),
            "steps": steps,
        },
        lambda rng: {
            "a": normal(rng, (m, k)),
            "b": normal(rng, (n, k)),
            "c": np.full((m, n), np.nan, BF16),
        },
        lambda a: {"c": dot(a["a"], a["b"].T, a["c"])},
        (2, 1, 1),
        {"STAGES": stages},
        {"num_warps": 4, "num_ctas": ctas, **options},
        gluon=True,
    )


def _copied_rows() -> Case:
    n, rows, cols = 100, 16, 64

    def expect(a: Arrays) -> dict[str, Expected]:
        whole = np.zeros((-(-n // rows) * rows, cols))
        whole[:n] = a["x"]
        parts = whole.reshape(-1, rows, cols)
        return {"out": Expected(parts.sum(0), summed(len(parts), np.abs(parts).sum(0)))}

    return Case(
        "copied_rows",
        pipelines.copied_rows,
        {"x": "x", "out": "out", "n": n, "pitch": cols},
        lambda rng: {
            "x": normal(rng, (n, cols), np.float32),
            "out": np.full((rows, cols), np.nan, np.float32),
        },
        expect,
        (1, 1, 1),
        {"ROWS": rows, "COLS": cols, "STAGES": 3},
        {"num_warps": 4},
        gluon=True,
    )


def _grouped_copies() -> Case:
    m, n, k = 64, 64, 128
    return Case(
        "grouped_copies",
        pipelines.grouped_copies,
        {"a": "a", "b": "b", "c": "c", "k": k},
        lambda rng: {
            "a": normal(rng, (m, k), np.float16),
            "b": normal(rng, (k, n), np.float16),
            "c": np.full((m, n), np.nan, np.float32),
        },
        lambda a: {"c": dot(a["a"], a["b"], a["c"])},
        (1, 1, 1),
        {"M": m, "N": n, "K": 32},
        {"num_warps": 4},
        gluon=True,
    )


def _reduced_tiles() -> Case:
    programs, tiles, rows, cols = 3, 2, 16, 32

    def expect(a: Arrays) -> dict[str, Expected]:
        parts = a["x"].reshape(programs * tiles, rows, cols)
        return {"out": Expected(parts.sum(0, dtype=np.int32) + a["out"])}

    return Case(
        "reduced_tiles",
        pipelines.reduced_tiles,
        {
            "x": _tiles("x", (rows, cols), gl.int32),
            "out": _tiles("out", (rows, cols), gl.int32),
        },
        lambda rng: {
            "x": rng.integers(-1000, 1000, (programs * tiles * rows, cols), np.int32),
            "out": rng.integers(-1000, 1000, (rows, cols), np.int32),
        },
        expect,
        (programs, 1, 1),
        {"TILES": tiles},
        {"num_warps": 4},
        gluon=True,
    )


def _dealt_pairs() -> Case:
    return Case(
        "dealt_pairs",
        pipelines.dealt_pairs,
        {"x": "x", "out": "out"},
        lambda rng: {
            "x": rng.integers(-1000, 1000, 512, np.int32),
            "out": np.full(512, 0, np.int32),
        },
        lambda a: {"out": Expected(a["x"][::-1] * 2 + 1)},
        (1, 1, 1),
        options={"num_warps": 4, "num_ctas": 2},
        gluon=True,
    )


def _boxes(name: str, shape: Block, box: Block, first: Block, dtype: Any, swizzle: int) -> Case:
    """`first`: where the box begins, outside of the array perhaps; `swizzle`: bytes."""
    rank, floats = len(shape), np.dtype(dtype).kind == "f"
    layout = gl.NVMMASharedLayout(swizzle, np.dtype(dtype).itemsize * 8, rank=rank)
    size = int(np.prod(box))

    def make(rng: Generator) -> Arrays:
        x = normal(rng, shape, dtype) if floats else rng.integers(1, 255, shape).astype(dtype)
        return {"x": x, "out": np.full(size, 0xAA).astype(dtype)}

    def expect(a: Arrays) -> dict[str, Expected]:
        wide = a["x"].astype(np.float64) if floats else a["x"]
        inner = np.full(box, np.nan if floats else 0, wide.dtype)
        spans = [(max(f, 0), min(f + b, n)) for f, b, n in zip(first, box, shape, strict=True)]
        source = tuple(slice(*span) for span in spans)
        target = tuple(slice(lo - f, hi - f) for (lo, hi), f in zip(spans, first, strict=True))
        inner[target] = wide[source]
        return {"out": Expected(inner.reshape(-1))}

    blocked = gl.BlockedLayout(
        [1] * rank, [1] * (rank - 1) + [32], [4] + [1] * (rank - 1), list(range(rank))[::-1]
    )
    return Case(
        name,
        pipelines.boxes,
        {"x": Tiles("x", box, layout, nan=floats), "out": "out"},
        make,
        expect,
        (1, 1, 1),
        {"FIRST": first, "layout": blocked, "SIZE": size},
        {"num_warps": 4},
        gluon=True,
    )


CASES = (
    _product("tma_ring", pipelines.tma_ring, 128, 1, 3),
    # Without a number ptxas ignores the compiler's, 256, and what setmaxnreg moves is not there.
    _product("roles", pipelines.roles, 128, 1, 3, maxnreg=128),
    _product("multicast_pair", pipelines.multicast_pair, 64, 2, 2),
    _copied_rows(),
    _grouped_copies(),
    _reduced_tiles(),
    _dealt_pairs(),
    _boxes("boxes_1d", (100,), (64,), (60,), np.float32, 0),
    _boxes("boxes_2d", (30, 40), (16, 32), (-4, 16), np.float32, 128),
    _boxes("boxes_4d", (3, 5, 20, 40), (1, 4, 16, 16), (1, 3, -2, 32), np.float16, 32),
    _boxes("boxes_5d", (2, 3, 4, 20, 80), (2, 2, 2, 8, 64), (1, 2, -1, 14, 32), np.uint8, 64),
)
