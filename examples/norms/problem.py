"""The problem: out[m, :] = w * x[m, :] / sqrt(mean of x[m, :]^2 + 1e-6), all of them bf16.

Rows have up to 2048 columns, a multiple of 8: what a lane fetches are 16 bytes.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlagen.family import register
from mlagen.family.arrays import ArrayFamily
from mlagen.problem.expected import Expected

EPS, MAX_COLUMNS = 1e-6, 2048


@dataclass(frozen=True)
class RmsNorm:
    family: ClassVar[str] = "norms"


def exact(arrays):
    """In float64. The bound counts roundings of fp32, u = 2^-24 each, to first order.

    The mean: up to 64 products and sums in a lane, 9 sums across lanes and waves, 1 / n (v_rcp_f32:
    1 ulp, 2 u), the product with it, epsilon: 77 u. Its root has half of that, v_rsq_f32 has 2 u
    more, and two products follow: 43 u. What is below 2^-126 may be flushed.
    """
    x, w = arrays["x"].astype(np.float64), arrays["w"].astype(np.float64)
    values = w * x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPS)
    return Expected.of("exact", values, 43 * 2.0**-24 * np.abs(values) + 2.0**-126, output="out")


def near_zero(rng, tensor, shape):
    """Rows whose mean square is far below epsilon: without it, they would be scaled to 1."""
    return rng.standard_normal(shape) * (1e-5 if tensor == "x" else 1)


# Each number of rows that a workgroup has code of its own for, rows of several lengths.
register(
    ArrayFamily(
        "norms",
        sizes={"m": 33, "n": 1000},
        inputs={"x": ("bf16", "m", "n"), "w": ("bf16", "n")},
        outputs={"out": ("bf16", "m", "n")},
        oracles=[exact],
        calls=[*({"m": m} for m in range(1, 9)), {"n": 2048}, {"m": 3, "n": 8},
               {"data": "near zero"}],
        data={"near zero": near_zero},
    )
)  # fmt: skip
