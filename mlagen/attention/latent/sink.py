"""Sinks: a score of each head's own that draws weight and has no value.

A kernel has l, the row sum relative to its maximum M in log2 units, and what P v adds up to. It
computes s = exp2(a log2(e) - M) from the sink a, in fp32, and divides by l + s instead of l. So O
is multiplied by g = l / (l + s) = 1 / (1 + exp(a - LSE)). Where work is split the merge does it:
with L, the LSE of all splits in log2 units, in the place of M, l is 1, and what the splits add up
to is multiplied by rcp(1 + s).

The bound: l, or L, is as far off as the LSE tells, s by the roundings of its product, difference
and exp2, and of both only the share 1 - g reaches O; then the sum's rounding, and in a merge those
of rcp and the product. Where s or 1 / (l + s) may leave fp32's normal range, g may become 0.
"""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.arithmetic import DIVISION, EX2, LN2
from mlagen.attention.latent.attended import Attended
from mlagen.problem.formats import SMALLEST_NORMAL, U_FP32, Floats

LARGE = 125.0  # log2 units: 1 / (l + s) may be below the normal range from here on


def with_sink(
    attended: Attended, sink: Floats, merged: bool, behind: int = 0
) -> tuple[Floats, Floats]:
    """O and its bound, [rows, 512], with each row's `sink` [rows] in the denominator; `merged`:
    whether these are several splits' results. `behind`: of the order."""
    output, bound, lse, lse_bound = attended.partial
    seen = ~np.isneginf(lse)
    lse = np.where(seen, lse, 0.0)
    top = lse if merged else np.where(seen, attended.top, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        odds = np.exp(sink - lse)  # s / l
        kept = np.where(np.isposinf(odds), 0.0, 1.0 / (1.0 + odds))
        lost = np.where(np.isposinf(odds), 1.0, odds / (1.0 + odds))
        of_s = EX2 + 2 * U_FP32 * np.abs(sink) + U_FP32 * (np.abs(sink - top) + LN2 * behind)
        of_s = of_s + lse_bound
        of_all = 2 * U_FP32 + DIVISION if merged else U_FP32
        part = kept * lost
        of_g = np.where(part > 0, part * np.expm1(of_s), 0.0)
        of_g = of_g + np.where(kept > 0, kept * of_all, 0.0) + SMALLEST_NORMAL * (kept < 1)
        leaves = (sink - top) / LN2 >= LARGE - behind
    of_g = np.where(leaves, np.maximum(of_g, kept), of_g)
    # A factor that is exactly 0 leaves nothing to be off by.
    of_g = np.where(np.isposinf(sink) | ~seen, 0.0, of_g)
    wide = kept[:, None]
    return output * wide, bound * np.minimum(wide + of_g[:, None], 1.0) + np.abs(output) * of_g[
        :, None
    ]
