"""What the mla objects must compute, in fp64, and how far a right kernel may be from it.

Attention of query rows over keys. Dot products and sums in fp32, in any order; P = exp2(s - m) for
a running maximum m of some of the keys before, rounded to bf16 or to e4m3 without a scale; the row
sum of the P before that rounding. What is not published about a kernel is not assumed: which keys
share a tile, when m moves, how waves and splits divide the keys. The bound, with w the weights:

* **P.** A factor 1 + e, |e| <= 2^-8 (bf16) or 2^-4 (e4m3), and below the normal range of e4m3
  2^-10 at most. P is relative to an m that is at most the last one, so relative to the last one the
  errors are at most these. The worst sum, or Hoeffding's (`mlagen.problem.formats`).
  Where all scores of a row are whole numbers in log2 units ("dyadic" data), close enough that no P
  is below the smallest number of its format, P is a power of two and rounding it gives that power
  of two exactly: the term is 0, and one key too few is far outside the bound.
* **Weights.** Errors of scores, of the factor, of differences, exp2 and rescaling: η a key.
* **Sums** of at most that many fp32 additions, the reciprocal, the scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.scores import LN2
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

U_E4M3, HALF_STEP_E4M3 = 2.0**-4, 2.0**-10  # half of a unit in the last place at 1 and below 2^-6
ROUNDINGS = 8  # of the factor (four), of c s, of c m, of their difference, of the last product
SMALLEST_TILE = 16  # keys; m moves once a tile at most

Format = Literal["bf16", "e4m3"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows' expected output [rows, d_v] and LSE [rows], with their bounds.

    `magnitude` [rows, d_v]: Σ w |v|. `part` [rows]: the bound on the LSE of any part of the keys.
    A row that sees no key has O = 0 and LSE = -inf.
    """

    o: Floats
    o_bound: Floats
    lse: Floats
    lse_bound: Floats
    magnitude: Floats
    part: Floats


def attention(
    q: Floats,
    k: Floats,
    v: Floats,
    visible: npt.NDArray[np.bool_],
    *,
    scale: float,
    p_format: Format,
    v_scale: float = 1.0,
) -> Rows:
    """Rows `q` [rows, d] over keys `k` [keys, d], `v` [keys, d_v]; `visible` [rows, keys].

    `scale` takes dot products to natural units and holds the scales of q and k too.
    """
    rows, keys = visible.shape
    factor = confidence(rows * v.shape[1])
    c = scale_log2e(scale)
    seen = visible.any(axis=1)
    scores = np.where(visible, c * (q @ k.T), -np.inf)
    top = np.where(seen, scores.max(axis=1, initial=-np.inf), 0.0)[:, None]
    p = np.exp2(scores - top)
    total = p.sum(axis=1, keepdims=True)
    safe = np.where(total > 0, total, 1.0)
    w = p / safe
    magnitude, o = w @ np.abs(v), w @ v

    finite = np.where(visible, scores, 0.0)
    off = c * accumulated(q.shape[1], factor) * (np.abs(q) @ np.abs(k.T))
    off += ROUNDINGS * U_FP32 * (np.abs(finite) + np.abs(top))
    moves = -(-keys // SMALLEST_TILE)
    eta = np.expm1(LN2 * off) + TRANSCENDENTAL + moves * (TRANSCENDENTAL + 2 * U_FP32)
    weighted = np.where(visible, w * eta, 0.0)
    moved = weighted.sum(axis=1, keepdims=True)
    bound = (weighted @ np.abs(v) + np.abs(o) * moved) / (1.0 - moved)

    error = _p_error(p, finite, visible, p_format)
    spread = factor * np.sqrt((error * error) @ (v * v))
    bound += np.minimum(error @ np.abs(v), spread) / safe
    bound += accumulated(keys + moves, factor) * magnitude
    bound += (accumulated(keys + 64, factor) + TRANSCENDENTAL + 4 * U_FP32) * np.abs(o)
    bound *= (1.0 + U_BF16) * (1.0 + eta.max(initial=0.0)) ** 2  # products of two errors
    flushed = SMALLEST_NORMAL * (keys + 1) * (1.0 + np.abs(v).max(initial=0.0))
    bound += np.where(seen[:, None], flushed, 0.0)

    log2_sum = np.log2(safe)
    with np.errstate(divide="ignore"):
        lse = np.where(seen, LN2 * (top + log2_sum)[:, 0], -np.inf)
    of_log = accumulated(keys + 64, factor)
    of_log += LN2 * TRANSCENDENTAL * np.maximum(1.0, np.abs(log2_sum))
    of_log += LN2 * ROUNDINGS * U_FP32 * (np.abs(finite).max(axis=1, keepdims=True) + log2_sum)
    lse_bound = np.where(seen, (moved / (1.0 - moved) + of_log)[:, 0] + SMALLEST_NORMAL, 0.0)
    largest = np.where(visible, eta, 0.0).max(axis=1, keepdims=True, initial=0.0)
    part = np.where(seen, (largest / (1.0 - largest) + of_log)[:, 0] + SMALLEST_NORMAL, 0.0)
    return Rows(v_scale * o, v_scale * bound, lse, lse_bound, v_scale * magnitude, part)


def _p_error(p: Floats, scores: Floats, visible: npt.NDArray[np.bool_], p_format: Format) -> Floats:
    """The largest error of rounding each P, relative to the last maximum, [rows, keys]."""
    if p_format == "bf16":
        error, smallest = U_BF16 * p, SMALLEST_NORMAL
    else:
        error, smallest = np.maximum(U_E4M3 * p, HALF_STEP_E4M3), 2 * HALF_STEP_E4M3
    whole = (np.abs(scores - np.rint(scores)) < 1e-5) | ~visible
    least = np.where(visible, p, 1.0).min(axis=1, initial=1.0)
    exact = whole.all(axis=1) & (least > 0.75 * smallest)
    return np.where(exact[:, None] | ~visible, 0.0, error)


def merged(parts_o: Floats, parts_lse: Floats) -> tuple[Floats, Floats]:
    """The reduce kernel: O [rows, d] and LSE [rows] of parts [parts, rows, d] and [parts, rows].

    As AITER's: a NaN for an LSE counts as -inf, and such a part's O is not used.
    """
    lse = np.where(np.isnan(parts_lse), -np.inf, parts_lse).astype(np.float64)
    top = lse.max(axis=0)
    base = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp(lse - base)
    total = weights.sum(axis=0)
    safe = np.where(total > 0, total, 1.0)
    used = np.where(weights[..., None] > 0, parts_o.astype(np.float64), 0.0)
    with np.errstate(divide="ignore"):
        return (weights[..., None] * used).sum(axis=0) / safe[:, None], base + np.log(total)


def of_merged(rows: Rows) -> Rows:
    """The expectation of parts merged in fp64: the LSE that weigh them have errors too."""
    weights = (2.0 * rows.part)[:, None]
    extra = weights * (rows.magnitude + np.abs(rows.o)) + 2 * U_FP32 * rows.magnitude
    return Rows(rows.o, rows.o_bound + extra, rows.lse, rows.part, rows.magnitude, rows.part)
