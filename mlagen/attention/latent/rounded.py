"""The rounding oracle's part: rounds where the kernel rounds, and is exact in between.

What it follows, for each query row:

* S = q k^T, unscaled. Tiles of keys, in their order; at every tile M = max(M, max S).
* P = bf16(exp2(c S - c M)) with c = fp32(scale * log2 e); the row sum adds P before the rounding.
  Of an order with `halves` it is f16(..); of one with a bias it is e4m3(exp2(c S - c M + bias)),
  relative to the kernel's own M (`latent.weights`).
  Where rows have scales, S is multiplied by its row's, and so is P before it is rounded. Where an
  order multiplies sums of columns by scales, P is f16, for each group of columns by its own.
* O and the row sum are multiplied by exp2(c M_old - c M_new) before a tile is added.
* Tiles go in pairs. For the order's late columns of the output, the first tile's P is stored
  after the pair's second maximum is known: P, unrounded, is multiplied by exp2(c M_1 - c M_2) and
  then rounded. For the columns before them it is rounded before.
* O = Σ P v / row sum; LSE = (c M + log2(row sum)) ln 2.

What is left between this and a right kernel is fp32 arithmetic. The bound is its sum:

* P whose fp32 error interval holds a boundary between two bf16 numbers may be either of them: that
  difference times |v|. Below e4m3's normal range it may be what follows from any M that errors of
  scores leave open. The interval comes from the errors of S, M, c M, c S - c M and exp2.
* a tile before a move of M carries exp2 of the difference of two maxima, each with its errors;
* the row sum carries the errors of its keys and that of the last maximum;
* each step of the matrix instruction that adds to O, relative to what O and the tile can be;
* accumulation of the row sum, the division, the products of rescaling.

Where an order says how many bits its products keep, sums are cut as they are, step by step
(`latent.cut_sums`), and nothing is left of the matrix instruction's error; but in a row whose P may
be another number, all later cuts may fall otherwise.

Nothing is decided by a threshold, so there is one right answer: near a tie of two maxima both give
the same numbers within these errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlagen.attention.latent.arithmetic import DIVISION, EX2, LN2
from mlagen.attention.latent.attended import Attended, top_error
from mlagen.attention.latent.cut_sums import cut_columns, largest_terms
from mlagen.attention.latent.grains import over_largest
from mlagen.attention.latent.order import D_V, Order
from mlagen.attention.latent.scaled_columns import scaled_groups
from mlagen.attention.latent.walk import (
    Ints,
    Keys,
    QueryRows,
    ScoreWalk,
    log_sum_exp,
    lse_error,
    row_factors,
)
from mlagen.attention.latent.weights import RoundedWeights
from mlagen.problem.formats import SMALLEST_NORMAL, U_FP32, Floats, round_e4m3


def rounded(rows: QueryRows, keys: Keys, scale: float, order: Order, factor: float) -> Attended:
    """Of `rows` that attend to `keys`; a `Block`."""
    c, _ = row_factors(scale, rows)
    walk = ScoreWalk.of(rows, keys, c, order, cut=True)
    of_additions = np.inf if keys.repeated else factor
    p = np.exp2(-walk.distance)
    unrounded = p * walk.carried[:, :, None]
    total = unrounded.sum(axis=(1, 2))
    shares = unrounded / np.where(total > 0, total, 1.0)[:, None, None]
    reach = rows.reach
    output, bound = _output(walk, p, shares, total, keys, order, reach, of_additions)
    lse = log_sum_exp(LN2 * walk.base[:, -1], total)
    error = lse_error(walk, shares, total, lse, of_additions)
    top = np.where(reach > 0, LN2 * walk.top, -np.inf)
    return Attended((output, bound, lse, error), top, top_error(walk, np.zeros(len(top))))


def _output(
    walk: ScoreWalk,
    p: Floats,
    shares: Floats,
    total: Floats,
    keys: Keys,
    order: Order,
    reach: Ints,
    factor: float,
) -> tuple[Floats, Floats]:
    """O and its bound, [rows, 512]."""
    v = keys.stored[:, :D_V]
    sigma = np.zeros(walk.tiles * order.tile)
    sigma[: len(keys)] = keys.scales
    # fp32: the score's error, the maximum's, that of c M, of the subtraction, exp2's.
    of_base = walk.base_error + U_FP32 * np.abs(walk.base)
    of_p = walk.errors + of_base[:, :, None] + U_FP32 * walk.finite_distance()
    eta = np.expm1(LN2 * of_p) + EX2 + keys.rounding
    if not order.scaled_columns:
        p = p * sigma.reshape(walk.tiles, order.tile)
    # A tile before a move is relative to another maximum than the last.
    moved = walk.carried_error > 0
    of_carried = walk.carried_error + np.where(moved, LN2 * (of_base + of_base[:, -1:]), 0.0)

    rounding = RoundedWeights.of(walk, keys, order)
    if keys.of_columns is not None:
        acc, off = _groups(walk, of_carried, (p, eta + U_FP32), keys.of_columns, v, order)
    elif order.kept:
        acc, off = _cut_sums(walk, rounding, rounding.rounded(p, eta), v, order)
    else:
        acc, off = _halves(walk, (of_base, of_carried), (p, eta), rounding, keys, order)

    safe = np.where(total > 0, total, 1.0)[:, None]
    of_sum = (shares * walk.key_error()).sum(axis=(1, 2))[:, None]
    of_sum = of_sum + np.expm1(LN2 * of_base[:, -1:])
    of_sum = of_sum + walk.sum_error(factor) + DIVISION + U_FP32
    output = acc / safe
    bound = off / safe + np.abs(output) * of_sum
    # Products of two of these errors.
    bound *= (1.0 + of_sum) * (1.0 + eta.max(axis=(1, 2)))[:, None] ** 2
    # Products and results below the normal range are flushed.
    largest = np.abs(v).max() * max(1.0, sigma.max())
    if keys.of_columns is not None:
        largest = max(largest, keys.of_columns.max())
    flushed = SMALLEST_NORMAL * (reach[:, None] + 1) * (1.0 + largest)
    return output, np.where(reach[:, None] > 0, bound + flushed, 0.0)


def _halves(
    walk: ScoreWalk,
    of_moves: tuple[Floats, Floats],
    p: tuple[Floats, Floats],
    rounding: RoundedWeights,
    keys: Keys,
    order: Order,
) -> tuple[Floats, Floats]:
    """Sums of P v and their bounds, of columns whose tiles go in order, and of those in pairs.
    `of_moves`: errors of M and of what a tile carries; `p`: unrounded P and its error."""
    late, v = order.late_columns, keys.stored[:, :D_V]
    # P is rounded as a multiple of its key's grain over the largest one so far.
    share, grown = np.ones((walk.tiles, order.tile)), np.ones(walk.tiles)
    if keys.grains is not None:
        share, grown = over_largest(keys.grains, walk.tiles, order.tile)
    of_base, of_carried = of_moves
    parts = [
        _accumulated(walk.carried, of_carried, _shared(rounding, *p, share), v[:, :late],
                     range(walk.tiles), order),
    ]  # fmt: skip
    if late < v.shape[1]:
        swapped = sorted(range(walk.tiles), key=lambda tile: (tile // 2, -tile))
        carried, error, late_p, late_eta = _rescaled_p(walk, of_base, of_carried, *p)
        stored = _shared(rounding, late_p, late_eta, share * grown[:, None])
        parts.append(_accumulated(carried, error, stored, v[:, late:], swapped, order))
    acc, off = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
    return acc, off


def _shared(
    rounding: RoundedWeights, p: Floats, eta: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """P as it is stored, where what is rounded is P times `share` [tiles, keys a tile]."""
    stored, flip = rounding.rounded(p * share, eta)
    share = np.where(share > 0, share, 1.0)
    return stored / share, flip / share


def _groups(
    walk: ScoreWalk,
    of_carried: Floats,
    p: tuple[Floats, Floats],
    scales: Floats,
    v: Floats,
    order: Order,
) -> tuple[Floats, Floats]:
    """Sums of P v and their bounds, where `scales` [keys, groups] of columns multiply P. `p`:
    unrounded P and the error of its product with one."""
    parts = []
    for columns, of_keys in scaled_groups(v, scales, order):
        own = np.zeros(walk.tiles * order.tile)
        own[: len(of_keys.scales)] = of_keys.scales
        stored = of_keys.rounded(p[0] * own.reshape(walk.tiles, order.tile), p[1])
        parts.append(_accumulated(walk.carried, of_carried, stored, columns, range(walk.tiles),
                                  order))  # fmt: skip
    acc, off = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
    return acc, off


def _cut_sums(
    walk: ScoreWalk,
    rounding: RoundedWeights,
    p: tuple[Floats, Floats],
    v: Floats,
    order: Order,
) -> tuple[Floats, Floats]:
    """Sums of stored P v in the steps of the kernel, with its cuts, and their bounds, [rows,
    columns]. Where a P may be another number, all later cuts of its row may differ. M moves by
    whole numbers: what its moves do to a sum is exact."""
    stored, flip = p
    place = rounding.places[0]
    open_ = np.zeros(place.shape, np.bool_)
    for other in rounding.places[1:]:
        open_ |= other != place
    maxima, lift = walk.base - place, np.exp2(place)[:, :, None]
    acc = np.zeros((len(stored), v.shape[1]))
    off = np.zeros(acc.shape)
    apart = np.zeros(len(acc), np.bool_)
    for tile in range(walk.tiles):
        if tile:
            move = np.exp2(maxima[:, tile - 1] - maxima[:, tile])[:, None]
            acc, off = acc * move, off * move
        apart |= open_[:, tile] | flip[:, tile].any(axis=1)
        for first in range(0, min(order.tile, len(v) - tile * order.tile), order.depth):
            keys = v[tile * order.tile + first :][: order.depth]
            part = slice(first, first + len(keys))
            weights, may = (x[:, tile, part] * lift[:, tile] for x in (stored, flip))
            weights = round_e4m3(weights)  # the number itself, where the factor is no power of two
            size = np.abs(acc) + off + largest_terms(weights + may) @ largest_terms(keys)
            off += may @ np.abs(keys) + np.where(apart[:, None], 2 * order.step * size, 0.0)
            acc = cut_columns(acc, weights, keys.T, order.kept)
    return acc / lift[:, -1], off / lift[:, -1]


def _accumulated(
    carried: Floats,
    of_carried: Floats,
    p: tuple[Floats, Floats],
    v: Floats,
    tiles: Sequence[int],
    order: Order,
) -> tuple[Floats, Floats]:
    """Sum of stored P * `carried` over the `tiles` in their order, times `v`, and its bound, [rows,
    columns]. `p`: P as it is stored, and how far it may be off.

    All in units of the last maximum, as `carried` is.
    """
    stored, flip = p
    width = stored.shape[2]
    acc = np.zeros((len(stored), v.shape[1]))
    off = np.zeros(acc.shape)
    for tile in tiles:
        keys = v[tile * width : (tile + 1) * width]
        exist = slice(0, len(keys))
        carry = carried[:, tile, None]
        weights = stored[:, tile, exist] * carry
        size = np.abs(acc) + weights @ np.abs(keys)
        off += (flip[:, tile, exist] * carry + weights * of_carried[:, tile, None]) @ np.abs(keys)
        off += width // order.depth * order.step * size
        acc += weights @ keys
    return acc, off


def _rescaled_p(
    walk: ScoreWalk, of_base: Floats, of_carried: Floats, p: Floats, eta: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """`carried`, its error, P and its error as they are where a pair's first tile follows the
    maximum of the second before its P is rounded."""
    first = slice(0, walk.tiles - 1, 2)
    second = slice(1, walk.tiles, 2)
    carried, error, p, eta = (np.array(values) for values in (walk.carried, of_carried, p, eta))
    factor = np.exp2(walk.base[:, first] - walk.base[:, second])
    moves = walk.moves[:, second]
    of_factor = EX2 + 2 * U_FP32 + LN2 * (of_base[:, first] + of_base[:, second])
    p[:, first] *= factor[:, :, None]
    eta[:, first] += np.where(moves, of_factor, 0.0)[:, :, None]
    carried[:, first] = walk.carried[:, second]
    error[:, first] = of_carried[:, second]
    return carried, error, p, eta
