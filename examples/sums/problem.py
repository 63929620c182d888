"""The problem: out[m] = sum of x[m, :], or of its magnitudes. x is fp32 [m, k], contiguous."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlagen.family import register
from mlagen.family.arrays import ArrayFamily
from mlagen.problem.expected import Expected


@dataclass(frozen=True)
class RowSums:
    family: ClassVar[str] = "sums"
    absolute: bool = False


def exact(arrays, problem):
    x = arrays["x"].astype(np.float64)
    magnitudes = np.abs(x).sum(axis=1)
    values = magnitudes if problem["absolute"] else x.sum(axis=1)
    bound = x.shape[1] * 2.0**-24 * magnitudes  # k additions, each rounds once
    return Expected.of("exact", values, bound, output="out")


# Each number of tiles that the text has code of its own for: one is 16 columns, on Hopper 32.
register(
    ArrayFamily(
        "sums",
        sizes={"m": 300, "k": 80},
        inputs={"x": ("fp32", "m", "k")},
        outputs={"out": ("fp32", "m")},
        oracles=[exact],
        calls=[{"m": 257, "k": 16 * tiles} for tiles in range(1, 9)],
    )
)
