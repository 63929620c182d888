"""Partial results of a row merged in fp64, and how far a kernel that merges them may be off.

Partial p of a row is (O_p, LSE_p), O_p normalised by its own row sum. With L = ln Σ exp(LSE_p):
O = Σ exp(LSE_p - L) O_p. A partial whose LSE is -inf or NaN has seen no key (its O may be anything,
NaN too): it is left out, not multiplied by 0. Where all are left out, O = 0 and L = -inf.

It knows that a kernel takes the n partials of a group one after another, in any order, in fp32:
M' = max(M, LSE), L' = a L + b, O' = a O + b O_p with a = exp(M - M'), b = exp(LSE - M'), and at the
end O / L and M + ln L. The bound, with w_p the exact weights, which sum to 1, and d_p = max LSE -
LSE_p, u = 2^-24:

* **Weights.** The weight of p in the end is exp of steps that climb from LSE_p to the maximum: they
  sum to d_p exactly. Each is a difference and a product with log2(e), itself rounded: 3 u of the
  step, so 3 u d_p of all. Each of at most n powers is off by 1 ulp, 2^-23. O and L have the same
  weights, off by a factor 1 + η_p: O moves by at most (Σ w_p η_p |O_p| + |O| Σ w_p η_p) /
  (1 - Σ w_p η_p).
* **Sums.** A partial passes at most n steps: of O, a product and a fused multiply-add, 2 n u Σ w_p
  |O_p|; of L two roundings at most as well, 2 n u |O|. The reciprocal is off by 1 ulp, and its own
  rounding is in that; the product by u.
* **Flushed.** What is below 2^-126 is flushed: a weight, an O_p, a product, a sum. L is at least 1
  (nearly: the largest LSE has weight 1 when it comes, and what follows leaves it), so each of the 4
  n is worth at most 2^-126 (1 + Σ |O_p|) of the sum, and L, at most n, lets each count n times.
* **LSE.** M is exact. ln L is off by what L is relative to itself, v_log_f32 by 1 ulp of log2 L,
  taken of 1 where that is smaller; a product with ln 2, itself rounded, and a sum.

Terms are first order; products of two errors are covered by one factor on the total. Nothing here
is fitted to what a kernel does. A line that no partial saw is 0 and -inf, exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.scores import LN2
from mlagen.errors import ConfigError
from mlagen.problem.formats import SMALLEST_NORMAL, TRANSCENDENTAL, U_FP32, Floats

FAR = 128.0  # natural units: weights that far below the largest are flushed, whatever their error


def merge_partials(outputs: npt.ArrayLike, lses: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Merges `outputs` [partials, rows, ..., depth] with `lses` [partials, rows, ...], in fp64.

    Gives O [rows, ..., depth] and LSE [rows, ...].
    """
    parts, logs = np.asarray(outputs, np.float64), np.asarray(lses, np.float64)
    if parts.shape[:-1] != logs.shape:
        raise ConfigError(f"outputs have shape {parts.shape}, but lses have {logs.shape}")
    seen = ~(np.isnan(logs) | np.isneginf(logs))
    logs = np.where(seen, logs, -np.inf)
    top = logs.max(axis=0, initial=-np.inf)
    base = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp(logs - base)
    total = weights.sum(axis=0)
    weights /= np.where(total > 0, total, 1.0)
    merged = (np.where(seen[..., None], parts, 0.0) * weights[..., None]).sum(axis=0)
    with np.errstate(divide="ignore"):
        return merged, base + np.log(total)


def merged(parts: Floats, logs: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """O and its bound [rows, heads, depth], LSE and its bound [rows, heads], of partials
    [n, rows, heads, depth] and [n, rows, heads]."""
    output, lse = merge_partials(parts, logs)
    count = len(parts)
    seen = ~(np.isnan(logs) | np.isneginf(logs))
    parts = np.where(seen[..., None], np.abs(parts), 0.0)
    logs = np.where(seen, logs, -np.inf)
    any_seen = np.asarray(seen.any(axis=0))
    top = logs.max(axis=0)
    top = np.where(any_seen, top, 0.0)
    distance = np.where(seen, np.minimum(top - logs, FAR), 0.0)
    weights = np.exp(np.where(seen, logs - np.where(any_seen, lse, 0.0), -np.inf))
    eta = np.expm1(3 * U_FP32 * distance) + count * TRANSCENDENTAL

    def summed(factors: Floats) -> Floats:
        return (factors[..., None] * parts).sum(axis=0)

    off = (weights * eta).sum(axis=0)
    magnitude = np.abs(output)
    bound = (summed(weights * eta) + magnitude * off[..., None]) / (1.0 - off[..., None])
    sums = 2 * count * U_FP32
    bound += sums * summed(weights)
    bound += magnitude * (sums + TRANSCENDENTAL + U_FP32)
    bound *= (1.0 + eta.max(axis=0, initial=0.0))[..., None] ** 2
    bound += 4 * count * count * SMALLEST_NORMAL * (1.0 + parts.sum(axis=0))
    bound = np.where(np.asarray(any_seen)[..., None], bound, 0.0)

    log_sum = np.where(any_seen, lse - top, 0.0)
    relative = off + sums
    lse_bound = relative / (1.0 - relative)
    lse_bound += LN2 * TRANSCENDENTAL * np.maximum(1.0, log_sum / LN2)
    lse_bound += U_FP32 * (3 * log_sum + np.abs(np.where(any_seen, lse, 0.0)))
    lse_bound += 4 * count * count * SMALLEST_NORMAL
    return output, bound, lse, np.where(any_seen, lse_bound, 0.0)
