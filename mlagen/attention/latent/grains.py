"""Rows of e4m3 whose columns have scales, as numbers of f16 that are multiples of a key's grain.

A key's grain is 2^-6 of the power of two that is not above its largest scale; 2^-38 at least. A
scale over the grain, r, is below 128, so a number e r is below f16's end. r is cut to 7 bits, whose
product with e is exact, and what is left of it, rounded to f16, is multiplied and added with the
one rounding of a fused instruction. So a scale that is a power of two rounds nothing, and numbers
below 2^-14 grains are multiples of 2^-24. Scales that are not finite have no part in a grain.

Scores are multiplied by their key's grain in fp32, and so is P, over the largest grain of a tile so
far, before it is rounded to f16; O is in multiples of that. All are powers of two.
"""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.order import D_V
from mlagen.problem.formats import Floats, round_half

LIFT = 6  # log2 of the largest scale's power of two over the grain
LEAST_SCALE = -32  # log2 of the least one for that: so bf16 columns of up to 2^69 are finite
CUT_BITS = 7  # of a scale, whose product with the 4 bits of an e4m3 number f16 holds


def grains_of(scales: Floats) -> Floats:
    """The grain of each key, [keys], of its `scales` [keys, groups]."""
    largest = np.abs(scales).max(axis=1)
    powers = np.where(largest > 0, np.frexp(largest)[1] - 1, LEAST_SCALE)
    return np.asarray(np.exp2(np.maximum(powers, LEAST_SCALE) - LIFT))


def grained(numbers: Floats, scales: Floats, grains: Floats) -> Floats:
    """What stands for rows [keys, columns] whose first columns are `numbers` times their `scales`
    [keys, groups] already, in multiples of each key's grain `grains` [keys]."""
    found = numbers.copy()
    each = D_V // scales.shape[1]
    for group in range(scales.shape[1]):
        own = slice(each * group, each * (group + 1))
        scale = scales[:, group]
        stored = np.divide(
            numbers[:, own], scale[:, None], out=np.zeros((len(scale), each)),
            where=scale[:, None] != 0,
        )  # fmt: skip
        high, low = cut(scale / grains)
        first = round_half(stored * high[:, None])
        found[:, own] = round_half(stored * low[:, None] + first) * grains[:, None]
    return found


def cut(ratios: Floats) -> tuple[Floats, Floats]:
    """The first bits of `ratios`, and what is left, as f16 both."""
    fraction, exponent = np.frexp(ratios)
    high = np.ldexp(np.trunc(np.ldexp(fraction, CUT_BITS)), exponent - CUT_BITS)
    return round_half(high), round_half(ratios - high)


def over_largest(grains: Floats, tiles: int, tile: int) -> tuple[Floats, Floats]:
    """Of keys with these `grains` [keys] in tiles of `tile`: each one's over the largest so far,
    [tiles, keys a tile], and what the growth at the second tile of a pair does to the first one's,
    [tiles]."""
    padded = np.zeros((tiles, tile))
    padded.flat[: len(grains)] = grains
    largest = np.maximum.accumulate(padded.max(axis=1))
    grown = np.ones(tiles)
    grown[: tiles - 1 : 2] = largest[: tiles - 1 : 2] / largest[1:tiles:2]
    return padded / largest[:, None], grown
