"""The exact oracle's part: attention in fp64, and how far a right kernel may be from it.

It knows the formats, the GPU's arithmetic and that tiles of keys are walked in their order with a
maximum that moves at once (`latent.walk`). The bound, with w the softmax weights:

* **P.** Each P_j is rounded to bf16, a factor 1 + e_j, |e_j| <= 2^-8, while the row sum is taken
  before the rounding: O moves by Σ w_j e_j v_j. The smaller of Σ |.| and Hoeffding's bound
  (`formats`), in which copies of a row are one: the same number is rounded in the same way. Where
  rows have scales P_j is multiplied by its row's first, in fp32. In e4m3 |e_j| <= 2^-4, and where
  P_j is no normal number it moves by half of their step at most, and not by more than itself. In
  f16, where scales of columns multiply it or an order says so, |e_j| <= 2^-11, and below the
  normal range a step. Many of these become 0 alike: so their errors are not taken for independent.
* **Weights.** Errors of fp32 scores, of rounding c = scale * log2(e), of c S - c M, of exp2 and of
  every move of M change numerator and row sum alike, by a factor 1 + η_j: O moves by at most
  (Σ w_j η_j |v_j| + |O| Σ w_j η_j) / (1 - Σ w_j η_j).
* **Sums.** The matrix instruction's error at each of its steps, relative to Σ w_j |v_j|. Where an
  order says how few bits its products keep, what scores lose by it is not bounded but known
  (`latent.cut_sums`), and errors of P V are relative to what sets their windows. fp32
  accumulation of the row sum; the division.

The terms are first order in the errors that they are about; products of two errors are covered by
one factor on the total. Nothing here is fitted to what a kernel does.
"""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.arithmetic import DIVISION, LN2
from mlagen.attention.latent.attended import Attended, top_error
from mlagen.attention.latent.cut_sums import largest_terms
from mlagen.attention.latent.grains import over_largest
from mlagen.attention.latent.order import D_V, Order
from mlagen.attention.latent.scaled_columns import exact_groups
from mlagen.attention.latent.walk import (
    Keys,
    QueryRows,
    ScoreWalk,
    log_sum_exp,
    lse_error,
    row_factors,
)
from mlagen.attention.latent.weights import smallest_error
from mlagen.problem.formats import (
    E4M3_NORMAL,
    E4M3_STEP,
    F16_STEP,
    SMALLEST_NORMAL,
    U_BF16,
    U_E4M3,
    U_F16,
    U_FP32,
    Floats,
)


def exact(rows: QueryRows, keys: Keys, scale: float, order: Order, factor: float) -> Attended:
    """Of `rows` that attend to `keys`; a `Block`."""
    stored = keys.stored[:, :D_V]
    v = stored * keys.scales[:, None]
    c, exactly = row_factors(scale, rows)
    walk = ScoreWalk.of(rows, keys, c, order)
    reach = rows.reach
    of_additions = np.inf if keys.repeated else factor
    count, existing = len(rows.q), len(keys)

    # The exact scores; c's own rounding is not bounded but known.
    off = abs(c / exactly - 1.0)
    scores = walk.scores * (exactly / c)[:, None, None]
    top = scores.max(axis=(1, 2))
    base = np.where(reach > 0, top, 0.0)
    shares = np.exp2(scores - base[:, None, None])
    total = shares.sum(axis=(1, 2))
    shares /= np.where(total > 0, total, 1.0)[:, None, None]
    of_last = np.where(total > 0, np.exp2(walk.base[:, -1] - base) / np.maximum(total, 1.0), 0.0)
    weights = shares.reshape(count, -1)[:, :existing]
    output = weights @ v
    lse = log_sum_exp(LN2 * base, total)

    hidden = np.isneginf(walk.scores)
    to_last = np.where(hidden, 0.0, walk.base[:, -1, None, None] - walk.scores)
    eta = np.where(hidden, 0.0, walk.key_error() + np.expm1(LN2 * off[:, None, None] * to_last))
    weighted_eta = shares * eta
    moved = weighted_eta.sum(axis=(1, 2))[:, None]
    abs_v = np.abs(v)
    magnitude = weights @ abs_v
    of_weights = weighted_eta.reshape(count, -1)[:, :existing] @ abs_v
    of_weights = (of_weights + np.abs(output) * moved) / (1.0 - moved)
    of_p = _stored_error(walk, order, weights, of_last, keys, factor)
    of_p += keys.rounding * magnitude
    steps = walk.tiles * (order.tile // order.depth)
    largest = magnitude if not order.kept else _windows(walk, order, weights, of_last, keys)
    of_sum = walk.sum_error(of_additions) + DIVISION + U_FP32
    bound = of_weights + of_p + steps * order.step * largest + np.abs(output) * of_sum
    bound *= (1.0 + (U_E4M3 if order.bias else U_BF16)) * (1.0 + eta.max(axis=(1, 2))[:, None]) ** 2
    # Products and results below the normal range are flushed.
    most = max(abs_v.max(), np.abs(stored).max())
    if keys.of_columns is not None:
        most = max(most, keys.of_columns.max())
    flushed = SMALLEST_NORMAL * (reach[:, None] + 1) * (1.0 + most)
    bound += np.where(reach[:, None] > 0, flushed, 0.0)

    lse_bound = lse_error(walk, shares, total, lse, of_additions)
    scaled = LN2 * (np.abs(walk.base[:, -1]) + (shares * to_last).sum(axis=(1, 2)))
    lse_bound += np.where(reach > 0, (off + U_FP32) * scaled, 0.0)
    return Attended((output, bound, lse, lse_bound), LN2 * top, top_error(walk, off))


def _stored_error(
    walk: ScoreWalk,
    order: Order,
    weights: Floats,
    scale: Floats,
    keys: Keys,
    factor: float,
) -> Floats:
    """What the rounding of P moves O by, [rows, columns]. `scale` [rows]: exp2(M) of the last M
    among `weights` [rows, keys]."""
    if keys.of_columns is not None:
        return np.concatenate([
            U_F16 * np.minimum(weights @ np.abs(part), factor * _spread(weights, part, keys))
            + U_FP32 * weights @ np.abs(part)
            + of_keys.small(weights * of_keys.scales, scale[:, None]) @ np.abs(numbers)
            for part, numbers, of_keys in exact_groups(keys.stored[:, :D_V], keys.of_columns, order)
        ], axis=1)  # fmt: skip
    v, weights = keys.stored[:, :D_V], weights * keys.scales
    unit, small = U_BF16, np.zeros(weights.shape)
    if order.bias:
        unit = U_E4M3
        steps = smallest_error(walk, keys, order) * scale[:, None]
        small = np.repeat(steps, order.tile, axis=1)[:, : len(keys)]
    if order.halves:
        step = np.ones(len(keys))
        if keys.grains is not None:
            share, grown = over_largest(keys.grains, walk.tiles, order.tile)
            late = grown if order.late_columns < D_V else np.ones(walk.tiles)
            step = 1.0 / (share * late[:, None]).reshape(-1)[: len(keys)]
        unit, small = U_F16, small + F16_STEP / 2 * scale[:, None] * step
    normal = np.where(unit * weights >= small, weights, 0.0)
    few = np.minimum(normal @ np.abs(v), factor * _spread(normal, v, keys))
    many = np.where(normal > 0, 0.0, np.minimum(weights, small)) @ np.abs(v)
    return unit * few + many


def _windows(walk: ScoreWalk, order: Order, weights: Floats, scale: Floats, keys: Keys) -> Floats:
    """What sets the windows of cut sums, at most, [rows, columns]: all products together, of P and
    v that are at least the least normal number. `weights` and `scale` as for `_stored_error`."""
    normal = 2 * E4M3_NORMAL / E4M3_STEP * smallest_error(walk, keys, order) * scale[:, None]
    least = np.repeat(normal, order.tile, axis=1)[:, : len(keys)]
    terms = np.where(weights > 0, np.maximum(weights, least), 0.0)
    return terms * (1.0 + U_E4M3) @ largest_terms(keys.stored[:, :D_V])


def _spread(weights: Floats, v: Floats, keys: Keys) -> Floats:
    """The root of the sum of squares of `weights` [rows, keys] times `v`, copies of a row taken
    together, [rows, columns]."""
    if keys.rows is not None:
        _, first, which = np.unique(keys.rows, return_index=True, return_inverse=True)
        together = np.zeros((len(first), len(weights)))
        np.add.at(together, which, weights.T)
        weights, v = together.T, v[first]
    return np.sqrt((weights * weights) @ (v * v))
