"""The walk of a kernel over tiles of keys, as both oracles follow it: scores, what rescales them.

S = q k in fp32, times the row's scale where rows have scales; M, the row maximum so far, moves at
every tile; P = exp2(c S - c M) with c = fp32(scale * log2 e); O and the row sum are multiplied by
exp2(c M_old - c M_new) where M has moved. Where it has not, that factor is exactly 1. If an order
has `slack`, c M is rounded up, and the factor is exactly a power of two.

Which keys make a tile, and in which order its columns are added up, an `Order` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.arithmetic import EX2, LG2, LN2, score_error
from mlagen.attention.latent.cut_sums import cut_products
from mlagen.attention.latent.order import LEAST_POWER, Order
from mlagen.attention.latent.scaled_columns import lifted_error, scaled_score_error
from mlagen.problem.formats import SMALLEST_NORMAL, U_FP32, Floats, accumulated, scale_log2e

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class QueryRows:
    """Some query rows that attend to the same keys: `q` [rows, columns] as they are stored and
    `scales` [rows], the rows' own, and which keys each of them sees, `seen` [rows, keys]."""

    q: Floats
    scales: Floats
    seen: Bools

    def within(self, start: int, stop: int) -> QueryRows:
        """The same rows over the keys `start .. stop - 1`, counted from `start`."""
        return replace(self, seen=self.seen[:, start:stop])

    @property
    def reach(self) -> Ints:
        """One more than the last key that a row sees, [rows]; 0 where it sees none."""
        keys = self.seen.shape[1]
        last = keys - self.seen[:, ::-1].argmax(axis=1) if keys else np.zeros(len(self.seen))
        return np.where(self.seen.any(axis=1), last, 0).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Keys as they are stored, [keys, columns], and the rows' scales, [keys]: both multiply S, and
    of the leading columns V. `scaled`: whether the kernel multiplies by them.

    `rows` [keys]: which row each key is, where a row is there more than once. None: none is.
    `of_columns` [keys, groups]: where an order multiplies sums of columns by their scales, these;
    `stored` are the products.
    `grains` [keys]: where an order has a key's numbers as multiples of one, these; `stored` are the
    numbers that they stand for.
    """

    stored: Floats
    scales: Floats
    scaled: bool
    rows: Ints | None = None
    of_columns: Floats | None = None
    grains: Floats | None = None

    def __len__(self) -> int:
        return len(self.stored)

    def within(self, start: int, stop: int) -> Keys:
        """The keys `start .. stop - 1`."""
        rows = None if self.rows is None else self.rows[start:stop]
        columns = None if self.of_columns is None else self.of_columns[start:stop]
        return replace(
            self, stored=self.stored[start:stop], scales=self.scales[start:stop], rows=rows,
            of_columns=columns,
        )  # fmt: skip

    @property
    def repeated(self) -> bool:
        """Whether a row is there more than once: roundings of its copies are not independent."""
        return self.rows is not None

    @property
    def rounding(self) -> float:
        """Relative error of a product with a row's scale."""
        return U_FP32 if self.scaled else 0.0

    @property
    def powers(self) -> Ints:
        """Log2 of the power of two above each row's scale, [keys]; LEAST_POWER at least."""
        powers = np.where(self.scales > 0, np.frexp(self.scales)[1], LEAST_POWER)
        return np.maximum(powers, LEAST_POWER).astype(np.int64)

    def behind(self, order: Order) -> int:
        """Log2 units that M of that order may be away from the largest score, rounded up."""
        if not (self.scaled and order.bias):
            return order.behind
        return order.behind + int(np.abs(self.powers).max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class ScoreWalk:
    """Scores of some rows, tile by tile, in log2 units, with their errors and the running maximum.

    `scores`, `errors` [rows, tiles, keys a tile]: -inf and 0 where a key is not seen. `base`,
    `base_error` [rows, tiles]: M after each tile, 0 before the first key that is seen; how far the
    kernel's may be from it. `moves` [rows, tiles]: whether M may have moved at that tile, from
    another M that is not -inf. `carried` [rows, tiles]: what all later moves multiply a tile's part
    of O and of the row sum by; `carried_error`: its relative error. `top`, `top_spread` [rows]: the
    largest score, 0 without one, and how far the kernel's may be from it. `behind`: what a kernel's
    M may be away from `base` besides, by a whole number.
    """

    scores: Floats
    errors: Floats
    base: Floats
    base_error: Floats
    moves: Bools
    carried: Floats
    carried_error: Floats
    top: Floats
    top_spread: Floats
    behind: int

    @staticmethod
    def of(rows: QueryRows, keys: Keys, c: Floats, order: Order, *, cut: bool = False) -> ScoreWalk:
        """The walk of `rows` over `keys` with each row's factor `c` from dot products to log2
        units. `cut`: scores are what an order's products leave of them, where it says what these
        keep; otherwise they are exact, and off by that."""
        c = c[:, None]
        count = len(rows.q)
        tiles = -(-len(keys) // order.tile)
        seen = rows.seen
        scores = np.full((count, tiles, order.tile), -np.inf)
        errors = np.zeros(scores.shape)
        products, of_scores = _scores(rows, keys, order, cut=cut)
        scores.reshape(count, -1)[:, : len(keys)] = np.where(seen, c * products, -np.inf)
        errors.reshape(count, -1)[:, : len(keys)] = np.where(seen, c * of_scores, 0.0)

        high = (scores + errors).max(axis=2)
        low = np.maximum.accumulate((scores - errors).max(axis=2), axis=1)
        top = np.maximum.accumulate(scores.max(axis=2), axis=1)
        some = ~np.isneginf(top)
        maximum = np.where(some, top, 0.0)
        with np.errstate(invalid="ignore"):
            spread = np.maximum(np.maximum.accumulate(high, axis=1) - top, top - low)
        spread = np.where(some, spread, 0.0)
        last = maximum[:, -1], spread[:, -1]
        if order.slack:
            base = np.ceil(maximum)
            carried = np.where(some, np.exp2(base - base[:, -1:]), 0.0)
            none = np.zeros(base.shape)
            still = np.zeros(base.shape, np.bool_)
            return ScoreWalk(
                scores, errors, base, none, still, carried, none, *last, keys.behind(order)
            )
        base, base_error = maximum, spread

        moves = np.zeros(base.shape, np.bool_)
        moves[:, 1:] = some[:, :-1] & (high[:, 1:] > low[:, :-1])
        # exp2 of the difference, whether c M_old is rounded once more or not; the product with it.
        of_move = np.zeros(base.shape)
        of_move[:, 1:] = EX2 + U_FP32 + LN2 * U_FP32 * (np.diff(base, axis=1) + abs(base[:, :-1]))
        of_move *= moves
        later = np.cumsum(of_move[:, ::-1], axis=1)[:, ::-1] - of_move
        carried = np.where(some, np.exp2(base - base[:, -1:]), 0.0)
        return ScoreWalk(scores, errors, base, base_error, moves, carried, later, *last, 0)

    @property
    def tiles(self) -> int:
        return int(self.base.shape[1])

    @property
    def distance(self) -> Floats:
        """M - S at each key's own tile, as `scores` are; inf where a key is not seen."""
        return self.base[:, :, None] - self.scores

    def finite_distance(self) -> Floats:
        """`distance` from a kernel's M, at most; 0 where a key is not seen."""
        return np.where(np.isneginf(self.scores), 0.0, self.distance + self.behind)

    def key_error(self) -> Floats:
        """Relative error of a key's unrounded P, rescaled to the end, as `scores` are.

        That of the last M is left out. It is that of its score, of the subtraction, of exp2 and
        of the moves.
        """
        subtraction = U_FP32 * self.finite_distance()
        own = np.expm1(LN2 * (self.errors + subtraction)) + EX2
        return own + self.carried_error[:, :, None]

    def sum_error(self, factor: float) -> Floats:
        """Relative error of adding up the row sum in fp32: the keys of a tile, then the tiles."""
        return np.asarray(accumulated(self.scores.shape[2] + self.tiles, factor))


def _scores(rows: QueryRows, keys: Keys, order: Order, *, cut: bool) -> tuple[Floats, Floats]:
    """q k times the row's scale, and how far a kernel's may be from it, [rows, keys] each."""
    products = (rows.q @ keys.stored.T) * keys.scales
    if order.kept:
        kept = cut_products(rows.q, keys.stored, order.depth, order.kept) * keys.scales
        return (kept, np.zeros(kept.shape)) if cut else (products, np.abs(kept - products))
    if keys.of_columns is not None:
        return products, scaled_score_error(rows.q, keys.stored, order)
    errors = np.empty(products.shape)
    added = order.added()
    q = rows.q[:, added]
    turn = np.arange(len(keys)) // order.tile % len(order.first_columns)
    for which, column in enumerate(order.first_columns):
        own = turn == which
        errors[:, own] = score_error(q, keys.stored[own][:, added], column, order.depth, order.step)
    if order.lifted:
        errors += lifted_error(rows.q, keys.stored)
    return products, errors * np.abs(keys.scales) + keys.rounding * np.abs(products)


def log_sum_exp(maximum: Floats, total: Floats) -> Floats:
    """LSE from the maximum, in natural units, and the sum relative to it; -inf where that is 0."""
    with np.errstate(divide="ignore"):
        return np.where(total > 0, maximum, 0.0) + np.log(total)


def lse_error(walk: ScoreWalk, shares: Floats, total: Floats, lse: Floats, factor: float) -> Floats:
    """Bound of the error of a kernel's `LSE = (c M + log2(row sum)) ln 2`, [rows].

    `shares` [rows, tiles, keys a tile]: each key's share of the row sum `total` [rows]. The last
    c M's own error, its rounding too, cancels: the row sum is relative to the same number.
    """
    of_sum = (shares * walk.key_error()).sum(axis=(1, 2)) + walk.sum_error(factor)
    safe = np.where(total > 0, total, 1.0)
    of_log = LN2 * LG2 * np.maximum(1.0, np.abs(np.log2(safe)) + walk.behind)
    # The last sum, the factor ln 2 and the product with it.
    rounding = 3 * U_FP32 * np.abs(np.where(total > 0, lse, 0.0))
    bound = of_sum / (1.0 - of_sum) + of_log + rounding
    return np.where(total > 0, bound * (1.0 + U_FP32) + SMALLEST_NORMAL, 0.0)


def row_factors(scale: float, rows: QueryRows) -> tuple[Floats, Floats]:
    """c of each row, what multiplies its dot products: as the kernel has it, `fp32(scale * log2 e)`
    times the row's scale in fp32, and exactly."""
    given = np.float32(scale_log2e(scale)) * rows.scales.astype(np.float32)
    return given.astype(np.float64), scale_log2e(scale) * rows.scales
