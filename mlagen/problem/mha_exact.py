"""The exact oracle of MHA / GQA: attention in fp64, and how far a right kernel may be from it.

It knows nothing of how a kernel works but the formats: Q is multiplied by c = scale * log2(e) in
fp32 and rounded to bf16, P is rounded to bf16, everything else is fp32, and no row maximum lags by
more than `rescale_threshold`. The bound, with w the softmax weights of the rounded Q:

* **Q.** What rounding Q does to O is not bounded but computed: |O(rounded Q) - O(Q)|.
* **P.** Each P_j is off by a factor 1 + e_j, |e_j| <= 2^-8, while the row sum is taken before the
  rounding: O moves by Σ w_j e_j v_j. The smaller of Σ |.| and Hoeffding's bound (`formats`).
* **Scores.** Errors of fp32 accumulation (`score_error`), of S - M, of exp2 and of every rescaling
  change the weights of numerator and row sum alike, by a factor 1 + η_j: O moves by at most
  (Σ w_j η_j |v_j| + |O| Σ w_j η_j) / (1 - Σ w_j η_j).
* **Sums.** fp32 accumulation of O and of the row sum, the reciprocal and the last product.

The terms are first order in the errors that they are about; products of two errors are covered by
one factor on the total. Nothing here is fitted to what a kernel does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.errors import ConfigError
from mlagen.problem.attention_math import HeadData, Ints, row_blocks, score_error, visible
from mlagen.problem.expected import Expected
from mlagen.problem.formats import (
    SMALLEST_NORMAL,
    TRANSCENDENTAL,
    U_BF16,
    U_FP32,
    Floats,
    accumulated,
    confidence,
    prescaled,
    scale_log2e,
)
from mlagen.problem.mha_inputs import MhaInputs

LN2 = float(np.log(2.0))


@dataclass(frozen=True, eq=False)
class MhaExact:
    """The exact answer. `lse` [batch, rows, heads], natural logarithm; -inf for an empty row."""

    expected: Expected
    lse: Floats


def exact(
    inputs: MhaInputs, *, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> MhaExact:
    """Attention of `inputs` in fp64 with the bound above, for some rows and heads or for all.

    A row that sees no key has O = 0, exactly, and LSE = -inf. ConfigError: no bf16 problem.
    """
    require_bf16(inputs)
    chosen_rows, chosen_heads = inputs.rows(rows), inputs.heads(heads)
    shape = (inputs.batch, len(chosen_rows), len(chosen_heads), inputs.config.depth)
    values, bounds = np.zeros(shape), np.zeros(shape)
    lse = np.full(shape[:3], -np.inf)
    factor = confidence(lse.size * (inputs.keys + inputs.config.depth))  # scores and outputs
    for batch in range(inputs.batch):
        for index, head in enumerate(chosen_heads):
            data = HeadData.of(inputs, batch, inputs.config.kv_head_of(int(head)))
            for block, keys in row_blocks(inputs, chosen_rows):
                if keys.stop > keys.start:
                    at = (batch, block, index)
                    values[at], bounds[at], lse[at] = _block(
                        inputs, data, batch, int(head), chosen_rows[block], keys, factor
                    )
    return MhaExact(Expected("exact", values, bounds, chosen_rows, chosen_heads), lse)


def require_bf16(inputs: MhaInputs) -> None:
    """Raises ConfigError unless the roundings of the oracles are those of the problem."""
    if inputs.config.dtype != "bf16":
        raise ConfigError(
            f"dtype={inputs.config.dtype}: the oracles know the roundings of bf16 kernels only",
            hint="dtype=bf16",
        )


def _block(
    inputs: MhaInputs,
    data: HeadData,
    batch: int,
    head: int,
    rows: Ints,
    keys: slice,
    factor: float,
) -> tuple[Floats, Floats, Floats]:
    """O, its bound [rows, depth] and the LSE [rows] of some rows of one head."""
    config = inputs.config
    q = inputs.q[batch, rows, head]
    k = data.k[keys]
    seen = visible(inputs, rows, keys)
    count = seen.sum(axis=1, keepdims=True)

    scores = q.astype(np.float64) @ k.T
    scores *= scale_log2e(inputs.scale)
    weights, top, total = _softmax(np.where(seen, scores, -np.inf))
    output = data.weighted(weights, keys)
    with np.errstate(divide="ignore"):
        lse = LN2 * (top + np.log2(total))[:, 0]

    rounded_q = prescaled(q, inputs.scale)
    scores = np.where(seen, rounded_q @ k.T, -np.inf)
    weights, top, _ = _softmax(scores)
    rounded = data.weighted(weights, keys)

    tiles = -(-count // config.kv_block) + 1  # that hold visible keys
    # Below the last maximum, or above a maximum that lags; M grows by no more than that either.
    below = np.where(seen, top, 0.0) - np.where(seen, scores, 0.0)
    distance = np.where(seen, below + config.rescale_threshold, 0.0)
    score_errors = np.where(seen, score_error(rounded_q, k, factor), 0.0)
    eta = np.expm1(LN2 * (score_errors + 2 * U_FP32 * distance))
    eta += np.where(seen, (tiles + 1) * TRANSCENDENTAL, 0.0)
    weighted_eta = weights * eta
    moved = weighted_eta.sum(axis=1, keepdims=True)

    magnitude = weights @ data.abs_v[keys]
    of_scores = (weighted_eta @ data.abs_v[keys] + np.abs(rounded) * moved) / (1.0 - moved)
    spread = np.sqrt((weights * weights) @ (data.v[keys] * data.v[keys]))
    of_p = U_BF16 * np.minimum(magnitude, factor * spread)
    rescales = tiles * U_FP32
    of_output = (accumulated(count, factor) + rescales) * magnitude
    of_sum = accumulated(config.kv_block + tiles, factor) + rescales + TRANSCENDENTAL + U_FP32
    bound = of_scores + of_p + of_output + np.abs(rounded) * of_sum
    bound *= (1.0 + U_BF16) * (1.0 + eta.max(axis=1, keepdims=True)) ** 2
    bound += np.abs(rounded - output)
    # Products and results below the normal range are flushed.
    bound += np.where(count > 0, SMALLEST_NORMAL * (count + 1), 0.0)
    return output, bound, lse


def _softmax(scores: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights, maximum and sum by row, [rows, 1], base 2; no visible key: weights and sum are 0."""
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp2(scores - np.where(np.isneginf(top), 0.0, top))
    total = weights.sum(axis=1, keepdims=True)
    weights /= np.where(total == 0.0, 1.0, total)
    return weights, top, total
