"""How near an output is: within the oracles' bounds, and by its relative error."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.family.benchmark import Judgement
from mlagen.problem.expected import Comparison, Expected

# Relative errors that peers may have, as a norm: their arithmetic is not ours, so no bound of the
# oracles is theirs. A number in bf16 is off by some 2^-9, one in e4m3 by some 2^-5.
PEER_LIMIT = {"bf16": 2.0**-7, "fp8_e4m3": 2.0**-4}


def outside(*found: Comparison) -> str:
    """The comparisons that did not pass, in words; "" where all did."""
    return "; ".join(
        f"{one.failures} of {one.elements} numbers ({one.nans} NaN) are outside the {one.oracle} "
        "oracle's bounds"
        for one in found
        if not one.passed
    )


def relative(exact: Expected, output: npt.NDArray[Any], limit: float = np.inf) -> Judgement:
    """The output's relative error, wrong where it is above `limit` or a number is NaN."""
    values, got = exact.values, exact.select(output).astype(np.float64)
    nans = int(np.isnan(got).sum())
    if nans:
        return Judgement(float("inf"), f"{nans} of {got.size} numbers are NaN")
    error = float(np.linalg.norm(got - values)) / max(float(np.linalg.norm(values)), 1e-300)
    return Judgement(error, f"its relative error is above {limit:.3g}" if error > limit else "")
