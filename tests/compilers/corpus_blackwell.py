"""Cases for sm_100a: Triton's own of Hopper, compiled for it, and Gluon kernels of its own."""

from __future__ import annotations

from dataclasses import replace

import gluon_blackwell as blackwell
import ml_dtypes
import numpy as np
from compiler_case import Case, Expected, Tiles
from corpus import CASES as HOPPER_CASES
from corpus_matrices import dot, normal
from triton.experimental.gluon import language as gl

MACHINE = 100
# Of Triton's own kernels those whose products are tcgen05.mma there.
_SHARED = (
    "matmul_bf16", "matmul_tf32", "matmul_f16_sums", "matmul_cluster", "matmul_e4m3",
    "matmul_e5m2", "matmul_int8", "matmul_host_maps", "matmul_specialised", "matmul_device_maps",
    "matmul_persistent", "matmul_flattened", "matmul_split", "attention", "attention_causal",
)  # fmt: skip


def _tiles(buffer: str, block: tuple[int, ...], ctas: list[list[int]] | None) -> Tiles:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), gl.bfloat16, cga_layout=ctas)
    return Tiles(buffer, block, layout)


def _ring(name: str, ctas: int, n: int, stages: int) -> Case:
    rows, depth, steps = 128 * ctas, 64, 5
    m, k = 2 * rows - 20, depth * steps
    halves = [[1, 0]] if ctas == 2 else None
    return Case(
        name,
        blackwell.tensor_ring,
        {
            "a": _tiles("a", (rows, depth), halves),
            "b": _tiles("b", (n, depth), halves),
            "c": _tiles("c", (rows, n), halves),
            "steps": steps,
        },
        lambda rng: {
            "a": normal(rng, (m, k)),
            "b": normal(rng, (n, k)),
            "c": np.full((m, n), np.nan, ml_dtypes.bfloat16),
        },
        lambda a: {"c": dot(a["a"], a["b"].T, a["c"])},
        (2, 1, 1),
        {"STAGES": stages, "CTAS": ctas, "CGA": halves or []},
        {"num_warps": 4, "num_ctas": ctas},
        gluon=True,
        machine=MACHINE,
    )


def _copied() -> Case:
    rows, cols = 128, 64
    return Case(
        "copied_cells",
        blackwell.copied_cells,
        {"x": "x", "out": "out"},
        lambda rng: {
            "x": normal(rng, (rows, cols), np.float32),
            "out": np.full((rows, cols), np.nan, np.float32),
        },
        lambda a: {"out": Expected(a["x"].astype(np.float64))},
        (1, 1, 1),
        {"ROWS": rows, "COLS": cols},
        {"num_warps": 4},
        gluon=True,
        machine=MACHINE,
    )


def _taken() -> Case:
    return Case(
        "taken_work",
        blackwell.taken_work,
        {"out": "out", "n": 24},
        lambda rng: {"out": np.zeros(24, np.int32)},
        lambda a: {"out": Expected(np.ones(24, np.int64))},
        (24, 1, 1),
        options={"num_warps": 4},
        gluon=True,
        machine=MACHINE,
    )


CASES = (
    *(replace(case, machine=MACHINE, flaw="") for case in HOPPER_CASES if case.name in _SHARED),
    _ring("tensor_ring", 1, 128, 3),
    _ring("tensor_pair", 2, 128, 2),
    _copied(),
    _taken(),
)
