"""The exact oracle of prefill: attention in fp64, and how far a right kernel may be from it.

It knows nothing of how a kernel works but the formats (`arithmetic`): bf16 kernels multiply Q by
c = scale * log2(e) in fp32 and round it to bf16, P is rounded to the inputs' format, everything
else is fp32, and no row maximum lags by more than `rescale_threshold`. The bound, with w the
softmax weights of the rounded Q:

* **Q.** What rounding Q does to O is not bounded but computed: |O(rounded Q) - O(Q)|.
* **P.** Each P_j is off by a factor 1 + e_j, |e_j| <= 2^-8 (2^-4 for e4m3), while the row sum is
  taken before the rounding: O moves by Σ w_j e_j v_j. The smaller of Σ |.| and Hoeffding's bound
  (`formats`). For e4m3 a P below 2^-6 is off by 2^-10 or by itself: Σ |.|.
* **Scores.** Errors of fp32 accumulation (`score_error`), of S - M, of exp2 and of every rescaling
  change the weights of numerator and row sum alike, by a factor 1 + η_j: O moves by at most
  (Σ w_j η_j |v_j| + |O| Σ w_j η_j) / (1 - Σ w_j η_j). A sink is one more weight of the row sum.
* **Sums.** fp32 accumulation of O and of the row sum, the reciprocal and the last product.

The LSE is M + log2(row sum), times ln 2, where M cancels: its bound is what rounding Q does to it,
Σ w_j η_j, the accumulation of the row sum, and the last three operations (`lse_error`).

The terms are first order in the errors that they are about; products of two errors are covered by
one factor on the total. Nothing here is fitted to what a kernel does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlagen.attention.prefill.arithmetic import Arithmetic
from mlagen.attention.prefill.expected import Answer, PrefillExpected
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.scores import (
    LN2,
    HeadData,
    Ints,
    log_moved,
    lse_error,
    relative,
    row_blocks,
    score_error,
    sink_error,
    visible,
)
from mlagen.attention.prefill.selection import HeadRows, Selection, Workgroup
from mlagen.problem.formats import (
    TRANSCENDENTAL,
    U_FP32,
    Floats,
    accumulated,
    scale_log2e,
)

Pair = tuple[Floats, Floats]  # values and their bounds


def exact(
    inputs: PrefillInputs,
    *,
    rows: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    workgroups: Sequence[Workgroup] | None = None,
) -> PrefillExpected:
    """Attention of `inputs` in fp64 with the bounds above, for some rows and heads or for all, or
    for the rows of some workgroups of the grid.

    A row that sees no key has O = 0, exactly, and its sink as LSE, or -inf. ConfigError: a
    dtype whose roundings are not known.
    """
    answer = Answer(inputs, Selection.of(inputs, rows, heads, workgroups))
    for part, data in answer.with_data():
        for block, keys in row_blocks(inputs.config, part.sequence, part.rows):
            if keys.stop > keys.start:
                made = _block(inputs, part, data, part.rows[block], keys, answer.factor)
                answer.put(part.at(block), *made)
    return answer.expected("exact")


def _block(
    inputs: PrefillInputs, part: HeadRows, data: HeadData, rows: Ints, keys: slice, factor: float
) -> tuple[Pair, Pair]:
    """O with its bound [rows, depth] and the LSE with its bound [rows, 1] of some rows."""
    config, arithmetic = inputs.config, inputs.arithmetic
    q = inputs.queries(part.sequence, rows, part.head)
    k = data.k[keys]
    seen = visible(config, part.sequence, rows, keys)
    count = seen.sum(axis=1, keepdims=True)
    sink = inputs.sink_of(part.head)
    level = scale_log2e(sink)  # of the sink among the scores

    scores = q.astype(np.float64) @ k.T
    scores *= scale_log2e(inputs.score_scale)
    weights, top, total, _ = _softmax(np.where(seen, scores, -np.inf), level)
    output = data.weighted(weights, keys)
    with np.errstate(divide="ignore"):
        lse = LN2 * (top + np.log2(total))

    rounded_q, unit = arithmetic.scaled(q, inputs.score_scale)
    scores = np.where(seen, unit * (rounded_q @ k.T), -np.inf)
    weights, top, total, of_sink = _softmax(scores, level)
    rounded = data.weighted(weights, keys)

    tiles = -(-count // config.kv_block) + 1  # that hold visible keys
    # Below the last maximum, or above a maximum that lags; M grows by no more than that either.
    below = np.where(seen, top, 0.0) - np.where(seen, scores, 0.0)
    near = seen & ~(weights == 0.0)  # a weight of 0 in fp64 is one in fp32
    distance = np.where(near, below + config.rescale_threshold, 0.0)
    of_dots = unit * score_error(rounded_q, k, factor, arithmetic.products)
    score_errors = np.where(seen, of_dots, 0.0)
    # M rounded on its own may be another in P than in what rescales O.
    largest = np.where(seen, np.abs(scores), 0.0).max(axis=1, keepdims=True)
    of_maxima = 2 * arithmetic.maximum_ulps * U_FP32 * largest
    eta = relative(
        score_errors + (1 + arithmetic.distance_ulps) * U_FP32 * distance + of_maxima * near
    )
    eta += np.where(seen, (tiles + 1) * TRANSCENDENTAL, 0.0)
    weighted_eta = weights * eta
    moved = weighted_eta.sum(axis=1, keepdims=True)
    off = moved.copy()  # the same for the logarithm
    of_level = np.zeros(top.shape)
    if not np.isneginf(sink):
        below = np.where(of_sink > 0.0, top - level + config.rescale_threshold, 0.0)
        error = sink_error(sink) + 2 * U_FP32 * below
        off += of_sink * (tiles + 1) * TRANSCENDENTAL
        moved += of_sink * (relative(error) + (tiles + 1) * TRANSCENDENTAL)
        of_level = log_moved(of_sink, error)

    magnitude = weights @ data.abs_v[keys]
    of_scores = (weighted_eta @ data.abs_v[keys] + np.abs(rounded) * moved) / (1.0 - moved)
    of_p = _rounding_p(arithmetic, weights, total, data, keys, factor)
    rescales = tiles * U_FP32
    of_output = (accumulated(count, factor) + rescales) * magnitude
    of_sum = accumulated(config.kv_block + tiles + 1, factor) + rescales
    last = TRANSCENDENTAL + (1 + arithmetic.output_ulps) * U_FP32
    bound = of_scores + of_p + of_output + np.abs(rounded) * (of_sum + last)
    bound *= (1.0 + arithmetic.p_unit) * (1.0 + eta.max(axis=1, keepdims=True)) ** 2
    bound += np.abs(rounded - output)
    bound += data.flushed(count)

    off += of_sum
    empty = total == 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        lse_bound = np.abs(LN2 * (top + np.log2(total)) - lse) + off / (1.0 - off) + of_level
        highest = np.abs(top) + config.rescale_threshold
        lse_bound += lse_error(highest, np.log2(total) + config.rescale_threshold)
        lse_bound += LN2 * (arithmetic.scale_ulps + arithmetic.maximum_ulps) * U_FP32 * highest
    return (output, bound), (lse, np.where(empty, 0.0, lse_bound))


def _rounding_p(
    arithmetic: Arithmetic,
    weights: Floats,
    total: Floats,
    data: HeadData,
    keys: slice,
    factor: float,
) -> Floats:
    """What rounding P may move O by, [rows, depth]."""
    safe = np.where(total == 0.0, 1.0, total)
    unrelated, biased = (part / safe for part in arithmetic.p_error(weights * safe))
    v = data.v[keys]
    spread = factor * np.sqrt((unrelated * unrelated) @ (v * v))
    of_unrelated = np.minimum(unrelated @ data.abs_v[keys], spread)
    return np.asarray(of_unrelated + biased @ data.abs_v[keys])


def _softmax(scores: Floats, sink: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights, maximum, sum and the sink's weight by row, the last three [rows, 1], base 2.

    Neither a visible key nor a sink: weights and sum are 0, the maximum -inf.
    """
    top = np.maximum(scores.max(axis=1, keepdims=True), sink)
    base = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp2(scores - base)
    of_sink = np.exp2(sink - base)
    total = weights.sum(axis=1, keepdims=True) + of_sink
    safe = np.where(total == 0.0, 1.0, total)
    weights /= safe
    return weights, top, total, of_sink / safe
