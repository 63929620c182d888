"""The arithmetic of attention: what an instruction can be off by, and what scores can."""

from __future__ import annotations

import numpy as np

from mlagen.problem.formats import Floats

LN2 = float(np.log(2.0))

# ex2.approx, lg2.approx, rcp.approx and div.approx are accurate to 2 ulp, lg2.approx to 2^-22 where
# its result is near 0 (CUDA C++ Programming Guide, mathematical functions: exp2f, __log2f,
# __fdividef; PTX ISA). 2 ulp are at most 2 * 2^-23 of the result.
EX2, LG2, DIVISION = 2.0**-22, 2.0**-22, 2.0**-22


# What one matrix instruction can be off by, as one wgmma of bf16 and 16 columns, relative to the
# largest number that takes part: accumulator, product, or a partial sum of them. Its arithmetic is
# not documented. Published bit-accurate models of Hopper (MMA-Sim, arXiv:2511.10909; likewise
# Khattak and Mikaitis, arXiv:2512.07004) agree on it: products are exact; they and the accumulator,
# 17 terms, are aligned to the largest exponent among them and cut off 25 bits below it; their sum
# is exact; it is cut to fp32, toward zero. A term loses less than 2^-25, the sum less than 2^-23.
# All cuts go the same way, so their worst case is taken: they are not independent of each other.
# Models of Blackwell (MMA-Sim; sf-tensor/tcgen05) have the same sum, of 32 products of e4m3 a step.
def step_error(depth: int) -> float:
    """The error of an instruction of so many products."""
    return (depth + 1) * 2.0**-25 + 2.0**-23


def serial_error(depth: int) -> float:
    """The same of an instruction that adds its products one by one, each with one rounding to fp32:
    gfx950's, as the emulator has it. What it rounds is a partial sum."""
    return depth * 2.0**-24


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
