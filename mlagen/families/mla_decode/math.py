"""What both oracles of MLA decode compute with: Hopper's arithmetic, scores and what rescales them.

A kernel walks tiles of 64 keys in their order. S = q k in fp32, times the row's scale where rows
have scales; M, the row maximum so far, moves at
every tile; P = exp2(c S - c M) with c = fp32(scale * log2 e); O and the row sum are multiplied by
exp2(c M_old - c M_new) where M has moved. Where it has not, that factor is exactly 1.

Tiles go in pairs, an even and an odd one. An even tile's scores add up the columns in ascending
order; an odd tile's begin with column 256 and end with column 255.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.problem import TILE
from mlagen.problem.formats import SMALLEST_NORMAL, U_FP32, Floats, accumulated, scale_log2e

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

LN2 = float(np.log(2.0))
ROWS = 128  # query rows a block: [128, keys] fp64 matrices stay small for thousands of keys

# ex2.approx, lg2.approx, rcp.approx and div.approx are accurate to 2 ulp, lg2.approx to 2^-22 where
# its result is near 0 (CUDA C++ Programming Guide, mathematical functions: exp2f, __log2f,
# __fdividef; PTX ISA). 2 ulp are at most 2 * 2^-23 of the result.
EX2, LG2, DIVISION = 2.0**-22, 2.0**-22, 2.0**-22

# What one wgmma of bf16 and 16 columns can be off by, relative to the largest number that takes
# part: accumulator, product, or a partial sum of them. The instruction's arithmetic is not
# documented. Published bit-accurate models of Hopper (MMA-Sim, arXiv:2511.10909; likewise Khattak
# and Mikaitis, arXiv:2512.07004) agree on it: products are exact; they and the accumulator, 17
# terms, are aligned to the largest exponent among them and cut off 25 bits below it; their sum is
# exact; it is cut to fp32, toward zero. A term loses less than 2^-25, the sum less than 2^-23.
# All cuts go the same way, so their worst case is taken: they are not independent of each other.
WGMMA_K = 16
WGMMA = (WGMMA_K + 1) * 2.0**-25 + 2.0**-23


ODD_FIRST_COLUMN = 256  # where the scores of odd tiles begin


def score_error(q: Floats, k: Floats, first_column: int = 0) -> Floats:
    """Bound of the error of the fp32 scores `q @ k.T`, [rows, keys], in their own units.

    The kernel adds the products in steps of 16 columns (one wgmma each), from `first_column` to the
    last and then from 0 on. The largest number that takes part in a step is the accumulator with
    all its positive or all its negative products, whatever the order inside the step.

    Evaluated in fp32, hence the last factor: its own error is far below one part in a thousand.
    """
    q32, k32 = q.astype(np.float32), k.astype(np.float32)
    abs_q, abs_k = np.abs(q32), np.abs(k32)
    shape = (len(q), len(k))
    total, bound = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    steps = range(0, q.shape[1], WGMMA_K)
    for step in sorted(steps, key=lambda at: (at < first_column, at)):
        part = slice(step, step + WGMMA_K)
        half = (q32[:, part] @ k32[:, part].T) / 2
        total += half
        # largest of |total + positive products| and |total + negative products|
        bound += (abs_q[:, part] @ abs_k[:, part].T) / 2
        bound += np.abs(total)
        total += half
    return bound.astype(np.float64) * (WGMMA * 1.001)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some query rows of one sequence: `q` [rows, 576] as they are stored and `scales` [rows], the
    rows' own, and the keys `first .. seen - 1` that each of them sees, [rows]."""

    at: Ints  # in [q_len * heads], flattened
    q: Floats
    scales: Floats
    first: Ints
    seen: Ints

    def within(self, start: int, stop: int) -> Rows:
        """The same rows over the keys `start .. stop - 1`, counted from `start`."""
        first, seen = (np.clip(ends, start, stop) - start for ends in (self.first, self.seen))
        return replace(self, first=first, seen=np.where(seen > first, seen, 0))


def sequence_rows(
    inputs: MlaDecodeInputs, sequence: int, heads: Ints
) -> Iterator[tuple[int, Rows]]:
    """The query rows of a sequence with their KV head, [q_len, heads] flattened, in blocks."""
    config = inputs.config
    q = inputs.queries(sequence)[:, heads].reshape(-1, config.d_qk)
    scales = np.ones(config.q_len)
    if inputs.q_scales is not None:
        scales = inputs.q_scales[sequence].astype(np.float64)
    seen = config.visible(int(inputs.cache_lengths[sequence]))
    first, end = (
        np.repeat(np.array([getattr(keys, name) for keys in seen], dtype=np.int64), len(heads))
        for name in ("start", "stop")
    )
    if not np.isfinite(q).all():
        raise ConfigError(f"q of sequence {sequence} is not finite: nothing is expected of it")
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise ConfigError(f"q_scales of sequence {sequence} are not all positive and finite")
    scales = np.repeat(scales, len(heads))
    of_head = np.tile(heads // config.group, config.q_len)
    for kv_head in np.unique(of_head).tolist():
        rows = np.flatnonzero(of_head == kv_head)
        for start in range(0, len(rows), ROWS):
            at = rows[start : start + ROWS]
            yield kv_head, Rows(at, q[at], scales[at], first[at], end[at])


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Rows of a sequence as they are stored, [keys, 576], and the rows' scales, [keys]: both
    multiply S, and of the leading columns V. `scaled`: whether the kernel multiplies by them."""

    stored: Floats
    scales: Floats
    scaled: bool

    def __len__(self) -> int:
        return len(self.stored)

    def within(self, start: int, stop: int) -> Keys:
        """The keys `start .. stop - 1`."""
        return replace(self, stored=self.stored[start:stop], scales=self.scales[start:stop])

    @property
    def rounding(self) -> float:
        """Relative error of a product with a row's scale."""
        return U_FP32 if self.scaled else 0.0


def sequence_keys(inputs: MlaDecodeInputs, sequence: int, kv_head: int) -> Keys:
    """The keys of a sequence. ConfigError where a row is not finite, or its scale negative or not
    finite."""
    rows, scales = inputs.rows(sequence, kv_head), inputs.row_scales(sequence)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1) | ~(np.isfinite(scales) & (scales >= 0)))
    if bad.size:
        of = f", or its scale {scales[bad[0]]} is none," if inputs.kv_scales is not None else ","
        raise ConfigError(
            f"row {bad[0]} of sequence {sequence} is not finite{of} and it is one of its "
            f"{len(rows)} keys: nothing is expected of it"
        )
    return Keys(rows, scales, inputs.kv_scales is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Scores of some rows, tile by tile, in log2 units, with their errors and the running maximum.

    `scores`, `errors` [rows, tiles, 64]: -inf and 0 where a key is not seen. `base`, `base_error`
    [rows, tiles]: M after each tile, 0 before the first key that is seen; how far the kernel's may
    be from it. `moves` [rows, tiles]: whether M may have moved at that tile, from another M that
    is not -inf. `carried` [rows, tiles]: what all later moves multiply a tile's part of O and of
    the row sum by; `carried_error`: its relative error.
    """

    scores: Floats
    errors: Floats
    base: Floats
    base_error: Floats
    moves: Bools
    carried: Floats
    carried_error: Floats

    @staticmethod
    def of(rows: Rows, keys: Keys, c: Floats) -> Walk:
        """The walk of `rows` over `keys` with each row's factor `c` from dot products to log2
        units."""
        c = c[:, None]
        count = len(rows.q)
        tiles = -(-len(keys) // TILE)
        index = np.arange(len(keys))
        seen = (index < rows.seen[:, None]) & (index >= rows.first[:, None])
        scores = np.full((count, tiles, TILE), -np.inf)
        errors = np.zeros(scores.shape)
        products = (rows.q @ keys.stored.T) * keys.scales
        scores.reshape(count, -1)[:, : len(keys)] = np.where(seen, c * products, -np.inf)
        of_scores = np.empty((count, len(keys)))
        odd = np.arange(len(keys)) // TILE % 2 == 1
        of_scores[:, ~odd] = score_error(rows.q, keys.stored[~odd])
        of_scores[:, odd] = score_error(rows.q, keys.stored[odd], ODD_FIRST_COLUMN)
        of_scores = of_scores * np.abs(keys.scales) + keys.rounding * np.abs(products)
        errors.reshape(count, -1)[:, : len(keys)] = np.where(seen, c * of_scores, 0.0)

        high = (scores + errors).max(axis=2)
        low = np.maximum.accumulate((scores - errors).max(axis=2), axis=1)
        top = np.maximum.accumulate(scores.max(axis=2), axis=1)
        some = ~np.isneginf(top)
        base = np.where(some, top, 0.0)
        with np.errstate(invalid="ignore"):
            spread = np.maximum(np.maximum.accumulate(high, axis=1) - top, top - low)
        base_error = np.where(some, spread, 0.0)

        moves = np.zeros(base.shape, np.bool_)
        moves[:, 1:] = some[:, :-1] & (high[:, 1:] > low[:, :-1])
        # exp2 of the difference, whether c M_old is rounded once more or not; the product with it.
        of_move = np.zeros(base.shape)
        of_move[:, 1:] = EX2 + U_FP32 + LN2 * U_FP32 * (np.diff(base, axis=1) + abs(base[:, :-1]))
        of_move *= moves
        later = np.cumsum(of_move[:, ::-1], axis=1)[:, ::-1] - of_move
        carried = np.where(some, np.exp2(base - base[:, -1:]), 0.0)
        return Walk(scores, errors, base, base_error, moves, carried, later)

    @property
    def tiles(self) -> int:
        return int(self.base.shape[1])

    @property
    def distance(self) -> Floats:
        """M - S at each key's own tile, [rows, tiles, 64]; inf where a key is not seen."""
        return self.base[:, :, None] - self.scores

    def finite_distance(self) -> Floats:
        """`distance`, 0 where a key is not seen."""
        return np.where(np.isneginf(self.scores), 0.0, self.distance)

    def key_error(self) -> Floats:
        """Relative error of a key's unrounded P, rescaled to the end, [rows, tiles, 64].

        That of the last M is left out. It is that of its score, of the subtraction, of exp2 and
        of the moves.
        """
        subtraction = U_FP32 * self.finite_distance()
        own = np.expm1(LN2 * (self.errors + subtraction)) + EX2
        return own + self.carried_error[:, :, None]

    def sum_error(self, factor: float) -> Floats:
        """Relative error of adding up the row sum in fp32: 64 keys a tile, then tile by tile."""
        return np.asarray(accumulated(TILE + self.tiles, factor))


def log_sum_exp(maximum: Floats, total: Floats) -> Floats:
    """LSE from the maximum, in natural units, and the sum relative to it; -inf where that is 0."""
    with np.errstate(divide="ignore"):
        return np.where(total > 0, maximum, 0.0) + np.log(total)


def lse_error(walk: Walk, shares: Floats, total: Floats, lse: Floats, factor: float) -> Floats:
    """Bound of the error of a kernel's `LSE = (c M + log2(row sum)) ln 2`, [rows].

    `shares` [rows, tiles, 64]: each key's share of the row sum `total` [rows]. The last c M's own
    error, its rounding too, cancels: the row sum is relative to the same number.
    """
    of_sum = (shares * walk.key_error()).sum(axis=(1, 2)) + walk.sum_error(factor)
    safe = np.where(total > 0, total, 1.0)
    of_log = LN2 * LG2 * np.maximum(1.0, np.abs(np.log2(safe)))
    # The last sum, the factor ln 2 and the product with it.
    rounding = 3 * U_FP32 * np.abs(np.where(total > 0, lse, 0.0))
    bound = of_sum / (1.0 - of_sum) + of_log + rounding
    return np.where(total > 0, bound * (1.0 + U_FP32) + SMALLEST_NORMAL, 0.0)


def row_factors(scale: float, rows: Rows) -> tuple[Floats, Floats]:
    """c of each row, what multiplies its dot products: as the kernel has it, `fp32(scale * log2 e)`
    times the row's scale in fp32, and exactly."""
    given = np.float32(scale_log2e(scale)) * rows.scales.astype(np.float32)
    return given.astype(np.float64), scale_log2e(scale) * rows.scales
