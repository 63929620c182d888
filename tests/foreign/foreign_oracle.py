"""Exact attention with bounds for kernels whose number formats are not those of our own.

As `attention.prefill.exact`, from the same building blocks, with what differs a parameter: Q and K
are multiplied as they are stored and the scale is applied to the scores in fp32; P is rounded to
bf16 or, unscaled, to e4m3, whose numbers below 2^-6 are multiples of 2^-9; descales multiply the
scores and the output. Row sums are those of P before its rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.attention.prefill.scores import LN2, lse_error, relative, score_error
from mlagen.problem.expected import Expected
from mlagen.problem.formats import (
    SMALLEST_NORMAL,
    TRANSCENDENTAL,
    U_BF16,
    U_FP32,
    Floats,
    accumulated,
    confidence,
    scale_log2e,
)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Of P before the second product: half a unit in the last place relative to P, and the error
    of the smallest numbers. `products`: that one matrix instruction adds to an accumulator."""

    relative: float
    absolute: float
    products: int


BF16 = Rounding(U_BF16, SMALLEST_NORMAL, 16)
E4M3 = Rounding(2.0**-4, 2.0**-10, 64)


@dataclass(frozen=True, slots=True)
class Pattern:
    """2^x as the fp32 whose bits are `round(2^23 (x + 127 - shift))`: (1 + f - shift) / 2^f of 2^x,
    f the fraction of x. Used for weights of at most `weight`."""

    shift: float
    weight: float

    @property
    def mean(self) -> float:
        """Of the relative error, f being evenly spread."""
        return ((1.0 - self.shift) / 2.0 + (1.0 - (1.0 + LN2) / 2.0) / LN2) / LN2 - 1.0

    @property
    def worst(self) -> tuple[float, float]:
        """The smallest and the largest relative error: at f = 0, and where the ratio is flat."""
        flat = 1.0 / LN2 - 1.0 + self.shift
        return -self.shift, (1.0 + flat - self.shift) / 2.0**flat - 1.0


# fp32 roundings on the way from a score to its exponent: the factor scale * log2(e) (with two
# descales: four products), the scaled score, the scaled maximum and their difference.
FACTOR, SCALED = 4, 2


@dataclass(frozen=True, eq=False)
class Attention:
    """One sequence and head. `q` [rows, d], `k` [keys, d], `v` [keys, dv] in fp64, `seen`
    [rows, keys]. `scale` multiplies the scores, descales included; `v_scale` the output.
    `kv_tile`: keys between two updates of the row maximum."""

    q: Floats
    k: Floats
    v: Floats
    seen: np.ndarray
    scale: float
    v_scale: float
    rounding: Rounding
    kv_tile: int
    pattern: Pattern | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """O [rows, dv] and LSE [rows, 1] with their bounds. No visible key: O is 0, LSE -inf."""

    o: Floats
    o_bound: Floats
    lse: Floats
    lse_bound: Floats


def attend(a: Attention, elements: int) -> Answer:
    """The answer for one head; `elements`: that are compared in all."""
    keys = max(a.k.shape[0], 1)
    factor = confidence(elements * (keys + a.v.shape[1]))
    c = scale_log2e(a.scale)
    raw = a.q @ a.k.T
    scores = np.where(a.seen, raw * c, -np.inf)
    count = a.seen.sum(axis=1, keepdims=True)
    empty = count == 0
    top = np.where(empty, 0.0, scores.max(axis=1, keepdims=True, initial=-np.inf))
    weights = np.exp2(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    weights /= np.where(empty, 1.0, total)
    output = weights @ a.v

    # Relative error of every weight before P is rounded.
    near = a.seen & (weights > 0.0)
    distance = np.where(near, top - np.where(near, scores, 0.0), 0.0)
    size = np.where(near, np.abs(scores) + np.abs(top), 0.0)
    tiles = -(-count // a.kv_tile) + 1
    log2_error = np.where(near, score_error(a.q, a.k, factor, a.rounding.products) * abs(c), 0.0)
    # The maximum carries such an error too, but is the same number for a whole row: what is left
    # are the roundings of its product in every tile that had another maximum.
    log2_error += U_FP32 * (FACTOR * distance + SCALED * size + distance)
    eta = relative(log2_error) + np.where(near, (tiles + 1) * TRANSCENDENTAL, 0.0)
    weighted = weights * eta
    moved = weighted.sum(axis=1, keepdims=True)

    magnitude = weights @ np.abs(a.v)
    bound = (weighted @ np.abs(a.v) + np.abs(output) * moved) / (1.0 - moved)
    # P is rounded relative to a maximum that is at most the last one.
    small = a.rounding.absolute / np.where(empty, 1.0, total)
    of_p = np.where(near, np.maximum(a.rounding.relative * weights, small), 0.0)
    spread = np.sqrt((of_p * of_p) @ (a.v * a.v))
    bound += np.minimum(of_p @ np.abs(a.v), factor * spread)
    of_pattern: Floats | float = 0.0
    if a.pattern is not None:
        bound += _pattern(a.pattern, weights, a.v, output, factor)
        of_pattern = _pattern(a.pattern, weights, np.ones((len(a.v), 1)), 0.0, factor)
    rescales = tiles * U_FP32
    bound += (accumulated(count, factor) + rescales) * magnitude
    of_sum = accumulated(np.minimum(count, keys), factor) + rescales
    bound += np.abs(output) * (of_sum + TRANSCENDENTAL + 3 * U_FP32)
    bound *= (1.0 + a.rounding.relative) * (1.0 + eta.max(axis=1, keepdims=True, initial=0.0)) ** 2
    largest = np.abs(a.v).max(axis=0, initial=0.0)
    bound += np.where(empty, 0.0, SMALLEST_NORMAL * (count + 1) * (1.0 + largest))

    with np.errstate(divide="ignore"):
        log2_sum = np.where(empty, 0.0, np.log2(np.where(empty, 1.0, total)))
    off = moved + of_sum + of_pattern
    lse_bound = off / (1.0 - off) + lse_error(np.abs(top), log2_sum)
    lse_bound += LN2 * U_FP32 * (FACTOR + SCALED) * np.abs(top)
    return Answer(
        output * a.v_scale,
        bound * abs(a.v_scale),
        np.where(empty, -np.inf, LN2 * (top + log2_sum)),
        np.where(empty, 0.0, lse_bound),
    )


def _pattern(
    pattern: Pattern, weights: Floats, v: Floats, output: Floats | float, factor: float
) -> Floats:
    """What the errors of small weights move, Σ w e (v - output), [rows, depth]: their mean, and
    the smaller of worst case and Hoeffding's bound."""
    small = np.where(weights <= pattern.weight, weights, 0.0)
    total = small.sum(axis=1, keepdims=True)
    mean = abs(pattern.mean) * np.abs(small @ v - output * total)
    low, high = pattern.worst
    squares = small * small
    variance = squares @ (v * v) - 2.0 * output * (squares @ v)
    variance += np.square(output) * squares.sum(axis=1, keepdims=True)
    spread = (high - low) / 2.0 * np.sqrt(np.maximum(variance, 0.0))
    worst = max(-low, high) * (small @ np.abs(v) + np.abs(output) * total)
    return np.asarray(np.minimum(worst, mean + factor * spread))


def expected(name: str, values: Floats, bounds: Floats) -> Expected:
    """For `compare`: [rows, heads, depth] of one sequence."""
    return Expected(
        "exact",
        values[None],
        bounds[None],
        np.arange(values.shape[0]),
        np.arange(values.shape[1]),
        output=name,
    )
