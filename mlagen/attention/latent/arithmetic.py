"""The arithmetic of attention: what an instruction can be off by, and what scores can."""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.step_errors import step_error
from mlagen.problem.formats import Floats

LN2 = float(np.log(2.0))

# ex2.approx, lg2.approx, rcp.approx and div.approx are accurate to 2 ulp, lg2.approx to 2^-22 where
# its result is near 0 (CUDA C++ Programming Guide, mathematical functions: exp2f, __log2f,
# __fdividef; PTX ISA). 2 ulp are at most 2 * 2^-23 of the result.
EX2, LG2, DIVISION = 2.0**-22, 2.0**-22, 2.0**-22


def score_error(
    q: Floats, k: Floats, first_column: int = 0, depth: int = 16, error: float | None = None
) -> Floats:
    """Bound of the error of the fp32 scores `q @ k.T`, [rows, keys], in their own units.

    The kernel adds the products in steps of `depth` columns (an instruction each), from
    `first_column` to the last and then from 0 on. The largest number that takes part in a step is
    the accumulator with all its positive or all its negative products, whatever the order inside
    the step. `error`: what a step can be off by, if not `step_error`.

    Evaluated in fp32, hence the last factor: its own error is far below one part in a thousand.
    """
    q32, k32 = q.astype(np.float32), k.astype(np.float32)
    abs_q, abs_k = np.abs(q32), np.abs(k32)
    shape = (len(q), len(k))
    total, bound = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    steps = range(0, q.shape[1], depth)
    for step in sorted(steps, key=lambda at: (at < first_column, at)):
        part = slice(step, step + depth)
        half = (q32[:, part] @ k32[:, part].T) / 2
        total += half
        # largest of |total + positive products| and |total + negative products|
        bound += (abs_q[:, part] @ abs_k[:, part].T) / 2
        bound += np.abs(total)
        total += half
    return bound.astype(np.float64) * ((step_error(depth) if error is None else error) * 1.001)
