"""The exact oracle of the reduce kernel: the merge in fp64, and how far a right kernel may be off.

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

from dataclasses import dataclass

import numpy as np

from mlagen.attention.prefill.scores import LN2
from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_partials import merge_partials
from mlagen.problem.expected import Expected
from mlagen.problem.formats import SMALLEST_NORMAL, TRANSCENDENTAL, U_FP32, Floats

FAR = 128.0  # natural units: weights that far below the largest are flushed, whatever their error


@dataclass(frozen=True, eq=False)
class MlaReduceExpected:
    """The answer for the merged groups' rows: `output` and `lse` are for `compare` with O and LSE
    of the whole call, as [1, rows, heads, depth] and [1, rows, heads, 1]."""

    output: Expected
    lse: Expected


def exact(inputs: MlaReduceInputs) -> MlaReduceExpected:
    """The merge of all groups in fp64 with the bounds above. ConfigError: there is no group with
    partials."""
    groups = inputs.merged
    if not groups:
        raise ConfigError("no group has a partial: there is nothing to merge")
    made = [merged(*(np.stack(parts).astype(np.float64) for parts in inputs.parts(g)))
            for g in groups]  # fmt: skip
    rows = np.concatenate([np.arange(group.first, group.end) for group in groups])
    heads = np.arange(inputs.config.num_heads)
    output, bounds, lse, lse_bounds = (
        np.concatenate(arrays)[None] for arrays in zip(*made, strict=True)
    )
    return MlaReduceExpected(
        Expected("exact", output, bounds, rows, heads),
        Expected("exact LSE", lse[..., None], lse_bounds[..., None], rows, heads, output="lse"),
    )


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
