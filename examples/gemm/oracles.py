"""What a right kernel must compute, twice: exactly, and with the roundings of the matrix pipe.

Products of two bf16 numbers are exact in fp32; only sums are rounded, and the output's own rounding
is undone by the comparison (`mlagen.problem.expected`). So both oracles bound fp32 sums:

* `exact`: the product in fp64. Every term passes at most K additions in whatever order, each with a
  relative error of 2^-24: the bound is relative to the sum of the terms' magnitudes.
* `rounded`: an fp32 accumulator that takes 16 terms at a time in ascending K, as the instruction
  does. How the instruction adds its 16 products and the accumulator is not documented: each of up
  to 17 roundings has an error of at most 2^-24 of a partial sum, which is no larger than the
  accumulator before it plus the magnitudes of the step's products. The bound follows the actual
  accumulator, which is far smaller than the sum of magnitudes where terms cancel.

Both take the smaller of the worst case and Hoeffding's bound (`mlagen.problem.formats`).
"""

from __future__ import annotations

import numpy as np

from gemm.problem import GemmInputs
from mlagen.problem.expected import Expected
from mlagen.problem.formats import SMALLEST_NORMAL, U_FP32, Floats, accumulated, confidence

STEP = 16  # terms of one v_mfma_f32_32x32x16_bf16 (or one wgmma k16)
ROUNDINGS = STEP + 1


def exact(inputs: GemmInputs) -> Expected:
    """A . B^T in fp64."""
    a, b = _operands(inputs)
    terms = a.shape[1]
    bounds = accumulated(terms, confidence(_elements(inputs))) * (np.abs(a) @ np.abs(b).T)
    return _expected("exact", a @ b.T, bounds + _flushed(terms))


def rounded(inputs: GemmInputs) -> Expected:
    """A . B^T in an fp32 accumulator, 16 terms of K at a time."""
    a, b = _operands(inputs)
    accumulator: Floats = np.zeros((a.shape[0], b.shape[0]))
    worst, squares = np.zeros_like(accumulator), np.zeros_like(accumulator)
    for first in range(0, a.shape[1], STEP):
        part_a, part_b = a[:, first : first + STEP], b[:, first : first + STEP]
        error = U_FP32 * (np.abs(accumulator) + np.abs(part_a) @ np.abs(part_b).T)
        worst += ROUNDINGS * error
        squares += ROUNDINGS * error * error
        accumulator = (accumulator + part_a @ part_b.T).astype(np.float32).astype(np.float64)
    bounds = np.minimum(worst, confidence(_elements(inputs)) * np.sqrt(squares))
    # The accumulators differ by the errors before: second order, at most a factor on the bound.
    bounds *= 1.0 + ROUNDINGS * U_FP32 * -(-a.shape[1] // STEP)
    return _expected("rounding", accumulator, bounds + _flushed(a.shape[1]))


def _operands(inputs: GemmInputs) -> tuple[Floats, Floats]:
    return inputs.a.astype(np.float64), inputs.b.astype(np.float64)


def _elements(inputs: GemmInputs) -> int:
    return inputs.a.shape[0] * inputs.b.shape[0]


def _flushed(terms: int) -> float:
    """Products and sums below the normal range count as zero."""
    return SMALLEST_NORMAL * (terms + 1)


def _expected(name: str, values: Floats, bounds: Floats) -> Expected:
    """As one batch entry of M rows with one head of N columns."""
    rows, heads = np.arange(values.shape[0]), np.arange(1)
    return Expected(name, values[None, :, None], bounds[None, :, None], rows, heads)
