"""What both oracles of attention compute with: blocks of scores, their fp32 error, weighted sums.

Scores are in log2 units. Key ranges are those that a block of rows can see at all, so work on
masked problems is proportional to what is visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.inputs import PrefillInputs, PrefillSequence
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.problem.formats import (
    SMALLEST_NORMAL,
    TRANSCENDENTAL,
    U_FP32,
    Floats,
    scale_log2e,
)

SCORES = 2**21  # a block's: a matrix of them in fp64 is 16 MiB
MFMA_K = 16  # products that one v_mfma_f32_32x32x16_bf16 adds to each accumulator
LN2 = float(np.log(2.0))

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HeadData:
    """The keys and values of one sequence and K/V head, in fp64.

    `k` [keys, qk_width]; `v` [keys, v_width], multiplied with its scale `unit`. `v` has zeros where
    the data is not finite, and `bad_v` is 1 there (None where all is finite): a hidden key must not
    matter, whatever lies in it. `largest_v` [v_width]: of the magnitudes.
    """

    k: Floats
    v: Floats
    abs_v: Floats
    bad_v: Floats | None
    largest_v: Floats
    unit: float

    @staticmethod
    def of(inputs: PrefillInputs, sequence: PrefillSequence, kv_head: int) -> HeadData:
        k, v = (array.astype(np.float64) for array in inputs.key_rows(sequence, kv_head))
        finite = np.isfinite(v)
        bad = None if finite.all() else (~finite).astype(np.float64)
        v = np.where(finite, v, 0.0) * inputs.v_scale
        abs_v = np.abs(v)
        return HeadData(k, v, abs_v, bad, abs_v.max(axis=0, initial=0.0), inputs.v_scale)

    def weighted(self, weights: Floats, keys: slice) -> Floats:
        """`weights @ v` over `keys`; NaN where a weight is not 0 on a V that is not finite."""
        total = weights @ self.v[keys]
        if self.bad_v is not None:
            total[(weights != 0).astype(np.float64) @ self.bad_v[keys] > 0] = np.nan
        return total

    def flushed(self, count: Floats) -> Floats:
        """What a row may lose to numbers below the normal range, [rows, depth], from the keys it
        sees [rows, 1]: of every P, of every product with a V, and of their sums. The row sum is at
        least 1."""
        lost = SMALLEST_NORMAL * (count + 1) * (self.unit + self.largest_v)
        return np.where(count > 0, lost, 0.0)


def row_blocks(
    config: PrefillConfig, sequence: PrefillSequence, rows: Ints
) -> Iterator[tuple[slice, slice]]:
    """Local `rows` (ascending) in blocks: where the block lies in `rows`, and the keys it sees."""
    size = max(1, min(256, SCORES // max(sequence.keys, 1)))
    for start in range(0, len(rows), size):
        block = slice(start, min(start + size, len(rows)))
        first, last = int(rows[block.start]), int(rows[block.stop - 1])
        position = sequence.start_pos + first
        seen = config.mask.keys(position, last - first + 1, sequence.keys)
        yield block, slice(seen.start, seen.stop)


def visible(config: PrefillConfig, sequence: PrefillSequence, rows: Ints, keys: slice) -> Bools:
    """[rows, keys]: which of the keys each row sees."""
    q = (sequence.start_pos + rows)[:, None]
    k = np.arange(keys.start, keys.stop)[None, :]
    return np.asarray(config.mask.visible(q, k))


MOST_ERROR = 64.0  # log2 units


def relative(log2_error: Floats) -> Floats:
    """What an error of an exponent makes of its power of two, relative to it.

    Errors above 64 are cut to it: in fp32 they are those of numbers beyond 2^29 (a sink), beside
    which every other power is 0, or which are 0 beside every other.
    """
    return np.expm1(LN2 * np.minimum(log2_error, MOST_ERROR))


def log_moved(share: Floats, log2_error: Floats) -> Floats:
    """What ln of a sum moves by when the exponent of one of its terms, whose share is given, is off
    by `log2_error`: ln(1 + w (e^x - 1)) <= min(w (e^x - 1), x)."""
    return np.minimum(
        np.where(log2_error > MOST_ERROR, np.inf, share * relative(log2_error)),
        np.where(share > 0.0, LN2 * log2_error, 0.0),
    )


def sink_error(sink: float) -> float:
    """Bound of the error of a sink in log2 units: a product in fp32 with log2(e), itself rounded.
    0 where there is none. `sink` is in natural units."""
    return 0.0 if np.isneginf(sink) else 2 * U_FP32 * abs(scale_log2e(sink))


def lse_error(maximum: Floats, log2_sum: Floats) -> Floats:
    """Bound of the error of (M + log2 l) ln 2 in fp32, for exact M and l.

    v_log_f32 is accurate to 1 ulp (AMD's ISA documents), taken of 1 where the result is smaller;
    then the sum, and a product with ln 2, itself rounded, before the sum or after it.
    """
    size = np.abs(log2_sum)
    return LN2 * (TRANSCENDENTAL * np.maximum(1.0, size) + 3 * U_FP32 * (np.abs(maximum) + size))


def score_error(q: Floats, k: Floats, factor: float, products: int = MFMA_K) -> Floats:
    """Bound of the fp32 error of the scores `q @ k.T`, [rows, keys], in the scores' units.

    The kernel adds products of bf16 numbers (or narrower), which fp32 holds exactly, in steps of
    one MFMA each (`products`: 16 for bf16) in ascending order; the order inside a step is not
    published, so any is allowed. Each of a step's roundings is at most u times the largest partial
    sum that any order can reach: the accumulator with all the step's positive or all its negative
    products.

    Evaluated in fp32, hence the last factor: its own error is far below one part in a thousand.
    """
    q32, k32 = q.astype(np.float32), k.astype(np.float32)
    shape = (len(q), len(k))
    total = np.zeros(shape, np.float32)  # of the accumulator, after the steps so far
    worst, squares = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    abs_q, abs_k = np.abs(q32), np.abs(k32)
    for step in range(0, q.shape[1], products):
        part = slice(step, step + products)
        half = (q32[:, part] @ k32[:, part].T) / 2
        # largest of |total + positive products| and |total + negative products|
        partial = abs_q[:, part] @ abs_k[:, part].T
        partial /= 2
        total += half
        partial += np.abs(total)
        total += half
        worst += partial
        partial *= partial
        squares += partial
    worst *= products
    np.sqrt(squares, out=squares)
    squares *= factor * products**0.5
    return np.minimum(worst, squares).astype(np.float64) * (U_FP32 * 1.001)
