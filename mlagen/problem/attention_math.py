"""What both oracles of attention compute with: blocks of scores, their fp32 error, weighted sums.

Scores are in log2 units. Key ranges are those that a block of rows can see at all, so work on
masked problems is proportional to what is visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.problem.formats import U_FP32, Floats
from mlagen.problem.mha_inputs import MhaInputs

ROWS = 256  # rows a block: a [256, keys] fp64 matrix stays near the cache for a few thousand keys
MFMA_K = 16  # products that one v_mfma_f32_32x32x16_bf16 adds to each accumulator

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HeadData:
    """One batch entry's query head with the K/V head it attends to, in fp64.

    `k`, `v`: [num_keys, depth]. `v` has zeros where the data is not finite, and `bad_v` is 1 there
    (None where all is finite): a hidden key must not matter, whatever lies in it.
    """

    k: Floats
    v: Floats
    abs_v: Floats
    bad_v: Floats | None

    @staticmethod
    def of(inputs: MhaInputs, batch: int, kv_head: int) -> HeadData:
        k = inputs.k[batch, : inputs.keys, kv_head].astype(np.float64)
        v = inputs.v[batch, : inputs.keys, kv_head].astype(np.float64)
        finite = np.isfinite(v)
        bad = None if finite.all() else (~finite).astype(np.float64)
        v = np.where(finite, v, 0.0)
        return HeadData(k, v, np.abs(v), bad)

    def weighted(self, weights: Floats, keys: slice) -> Floats:
        """`weights @ v` over `keys`; NaN where a weight is not 0 on a V that is not finite."""
        total = weights @ self.v[keys]
        if self.bad_v is not None:
            total[(weights != 0).astype(np.float64) @ self.bad_v[keys] > 0] = np.nan
        return total


def row_blocks(inputs: MhaInputs, rows: Ints, size: int = ROWS) -> Iterator[tuple[slice, slice]]:
    """`rows` (ascending) in blocks: where the block lies in `rows`, and the keys it can see."""
    for start in range(0, len(rows), size):
        block = slice(start, min(start + size, len(rows)))
        first, last = int(rows[block.start]), int(rows[block.stop - 1])
        position = inputs.start_pos + first
        seen = inputs.config.mask.keys(position, last - first + 1, inputs.keys)
        yield block, slice(seen.start, seen.stop)


def visible(inputs: MhaInputs, rows: Ints, keys: slice) -> Bools:
    """[rows, keys]: which of the keys each row sees."""
    q = (inputs.start_pos + rows)[:, None]
    k = np.arange(keys.start, keys.stop)[None, :]
    return np.asarray(inputs.config.mask.visible(q, k))


def score_error(q: Floats, k: Floats, factor: float) -> Floats:
    """Bound of the fp32 error of the scores `q @ k.T`, [rows, keys], in the scores' units.

    The kernel adds products of bf16 numbers, which fp32 holds exactly, in depth // 16 steps (one
    MFMA each) in ascending order; the order inside a step is not published, so any is allowed. Each
    of a step's 16 roundings is at most u times the largest partial sum that any order can reach:
    the accumulator with all the step's positive or all its negative products.

    Evaluated in fp32, hence the last factor: its own error is far below one part in a thousand.
    """
    q32, k32 = q.astype(np.float32), k.astype(np.float32)
    shape = (len(q), len(k))
    total = np.zeros(shape, np.float32)  # of the accumulator, after the steps so far
    worst, squares = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    abs_q, abs_k = np.abs(q32), np.abs(k32)
    for step in range(0, q.shape[1], MFMA_K):
        part = slice(step, step + MFMA_K)
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
    worst *= MFMA_K
    np.sqrt(squares, out=squares)
    squares *= factor * MFMA_K**0.5
    return np.minimum(worst, squares).astype(np.float64) * (U_FP32 * 1.001)
