"""P as kernels store it: rounded to bf16 or f16, or with a bias to e4m3.

A P of bf16 rounds the same wherever M moves, as long as two M differ by a power of two. One of e4m3
does so while it is a normal number. Below, its step is absolute: 2^-9 of exp2(M - bias). So there
it matters where M is, and oracles follow the kernel: M moves to the next whole number where a
tile's largest score is more than `slack` above it. Where errors of scores leave that open, M is one
of several whole numbers, `least` to `most`. Of an order with `fine` M moves by whole numbers from
where it begins; so where it begins decides all its P, of which two may be possible.

Where rows have scales P is multiplied by its row's first. So that it stays below e4m3's largest
number, M follows scores that are lifted by the whole number of log2 units above their row's scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.attention.latent.order import Order
from mlagen.attention.latent.walk import Keys, ScoreWalk
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import (
    E4M3_STEP,
    U_FP32,
    Floats,
    round_bf16,
    round_e4m3,
    round_half,
)


@dataclass(frozen=True, slots=True, eq=False)
class RoundedWeights:
    """How the P of a walk are rounded: `places` are log2 of what P, relative to `base` of the walk,
    is multiplied by before it is rounded to e4m3, [rows, tiles] each, one for each M that a
    kernel may have. Without any P is rounded to bf16, or to f16 (`halves`)."""

    places: tuple[Floats, ...] = ()
    halves: bool = False

    @staticmethod
    def of(walk: ScoreWalk, keys: Keys, order: Order) -> RoundedWeights:
        """Of a walk over `keys` in this order."""
        if not order.bias:
            return RoundedWeights(halves=order.halves)
        to_base, places = walk.base + order.bias, []
        for least, most in maxima(walk, keys, order):
            shifts = range(int(np.max(most - least, initial=0.0)) + 1)
            places += [to_base - np.minimum(least + shift, most) for shift in shifts]
        return RoundedWeights(tuple(places))

    def rounded(self, p: Floats, eta: Floats) -> tuple[Floats, Floats]:
        """P [rows, tiles, keys a tile] as it is stored, relative to the walk's `base`, and how far
        a kernel's may be from that whose P is off by `eta`."""
        ends = p * (1.0 - eta), p * (1.0 + eta)
        if not self.places:
            near = round_half if self.halves else round_bf16
            stored = near(p)
            low, high = (near(end) for end in ends)
            return stored, np.maximum(high - stored, stored - low)
        stored = _at(self.places[0], p)
        flip = np.zeros(p.shape)
        for place in self.places:
            low, high = (_at(place, end) for end in ends)
            flip = np.maximum(flip, np.maximum(high - stored, stored - low))
        return stored, flip


def _at(place: Floats, p: Floats) -> Floats:
    """`p` rounded to e4m3 where it is 2 to `place` times as large, to 448 where it is above."""
    scale = np.exp2(place)[:, :, None]
    return round_e4m3(np.minimum(p * scale, E4M3_MAX)) / scale


def smallest_error(walk: ScoreWalk, keys: Keys, order: Order) -> Floats:
    """Largest error of a P of e4m3 that is no normal number, times its row's scale, [rows, tiles],
    relative to exp2 of the last `base`: half of the step at the largest M that a kernel may have.
    """
    most = np.max([most for _, most in maxima(walk, keys, order)], axis=0)
    seen = ~np.isneginf(most)
    most = np.where(seen, most, 0.0)
    return np.where(seen, E4M3_STEP / 2 * np.exp2(most - walk.base[:, -1:] - order.bias), 0.0)


def maxima(walk: ScoreWalk, keys: Keys, order: Order) -> list[tuple[Floats, Floats]]:
    """The least and the largest M that a kernel may have at each tile, [rows, tiles], as whole
    numbers above where it begins; those of the walk's `base` before the first key that is seen. Of
    an order with `fine` for each place where it may begin."""
    lift = _lift(walk, keys, order)
    # The product with c is rounded, too, or its sum with what lifts it. So is how far it is above M
    # where that is what is rounded up, and that is not more than both.
    many = 3 if order.fine else 1
    off = np.where(np.isneginf(walk.scores), 0.0, np.abs(walk.scores) + np.abs(lift))
    low = (walk.scores - walk.errors + lift - many * U_FP32 * off).max(axis=2)
    high = (walk.scores + walk.errors + lift + many * U_FP32 * off).max(axis=2)
    if not order.fine:
        return [_moving(walk, low, high, order.slack)]
    at = (~np.isneginf(high)).argmax(axis=1)[:, None]
    begins = [
        np.ceil(np.take_along_axis(ends, at, axis=1) * order.fine) / order.fine
        for ends in (low, high)
    ]
    begins = [np.where(np.isneginf(begin), 0.0, begin) for begin in begins]
    apart = bool((begins[0] != begins[1]).any())
    return [_moving(walk, low, high, order.slack, begin) for begin in begins[: 1 + apart]]


def _moving(
    walk: ScoreWalk, low: Floats, high: Floats, slack: int, begin: Floats | None = None
) -> tuple[Floats, Floats]:
    """M after each tile of which the largest score is between `low` and `high`. `begin` [rows, 1]:
    where it begins, a whole number if that is not said."""
    origin = 0.0 if begin is None else begin
    low, high = low - origin, high - origin
    least, most = np.full((2, *low.shape), -np.inf)
    one = other = np.full(len(low), -np.inf)
    for tile in range(walk.tiles):
        down, up = low[:, tile], high[:, tile]
        first = np.isneginf(other) & ~np.isneginf(up) & (begin is not None)
        moves, may = down > other + slack, up > one + slack
        # An M that has not moved is at most the slack below the largest score.
        one = np.where(moves, np.ceil(down), np.maximum(one, np.ceil(down - slack)))
        other = np.where(may, np.maximum(other, np.ceil(up)), other)
        one, other = np.where(first, 0.0, one), np.where(first, 0.0, other)
        least[:, tile], most[:, tile] = one, other
    some = ~np.isneginf(most)
    return np.where(some, least + origin, walk.base), np.where(some, most + origin, walk.base)


def _lift(walk: ScoreWalk, keys: Keys, order: Order) -> Floats:
    """Log2 units that each score is lifted by for M, [tiles, keys a tile]."""
    powers = np.zeros(walk.tiles * order.tile)
    if keys.scaled:
        powers[: len(keys)] = keys.powers
    return powers.reshape(walk.tiles, order.tile)
