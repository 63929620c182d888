"""Splits of keys and how their results are merged, for both oracles.

A split's O is normalised by its own row sum, its LSE is in log2 units, both fp32. The merge kernel
takes L = max + log2(sum exp2(LSE_s - max)) and adds up exp2(LSE_s - L) O_s in fp32.

A *running* merge takes splits one after another: M' = max(M, LSE_s), the sum and O are multiplied
by exp2(M - M') before exp2(LSE_s - M') and that times O_s are added; O is divided by the sum at the
end. Each split's weight carries the factors of all later moves of M. What their subtractions are
off by is relative to differences that add up to the split's distance from the last M.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlagen.attention.latent.arithmetic import DIVISION, EX2, LG2, LN2
from mlagen.problem.formats import U_FP32, Floats

Partial = tuple[Floats, Floats, Floats, Floats]


def merged(partials: Sequence[Partial], *, running: bool = False) -> Partial:
    """O and its bound, [rows, d_v], the LSE and its bound, [rows], of splits' own ones.

    A split in which a row sees no key has O = 0 and LSE = -inf there. `running`: how they are
    merged.
    """
    if len(partials) == 1:
        return partials[0]
    output, bound, lse, lse_bound = (np.stack(values) for values in zip(*partials, strict=True))
    count = len(partials)
    top = lse.max(axis=0)
    some = ~np.isneginf(top)
    base = np.where(some, top, 0.0)
    shares = np.exp(lse - base)
    total = shares.sum(axis=0)
    shares = shares / np.where(some, total, 1.0)
    with np.errstate(divide="ignore"):
        whole = base + np.log(total)
    finite = np.where(some, whole, 0.0)

    # What L is off by: its parts, their exponentials and sum, the logarithm, and its rounding.
    of_sum = (
        EX2
        + count * U_FP32
        + LN2 * LG2 * np.maximum(1.0, np.abs(np.log2(np.where(some, total, 1.0))))
    )
    exist = ~np.isneginf(lse)
    distance = np.where(exist, np.abs(np.where(exist, lse, 0.0) - finite), 0.0)
    moves = count * (EX2 + 2 * U_FP32) if running else 0.0
    if running:
        of_sum = of_sum + moves + U_FP32 * (shares * distance).sum(axis=0)
    rounding = 3 * U_FP32 * (np.abs(finite) + np.abs(base))
    whole_bound = (shares * lse_bound).sum(axis=0) + of_sum + rounding
    # A weight: of its split's LSE and L, of the subtraction and of exp2.
    own = moves + DIVISION + U_FP32 if running else 0.0
    of_weight = np.expm1(lse_bound + whole_bound + U_FP32 * distance + own) + EX2
    weight = (shares * of_weight)[:, :, None]
    values = (shares[:, :, None] * output).sum(axis=0)
    size = np.abs(output) + bound
    bounds = (shares[:, :, None] * bound + weight * size).sum(axis=0)
    bounds += count * U_FP32 * (shares[:, :, None] * size).sum(axis=0)
    return values, bounds, whole, np.where(some, whole_bound, 0.0)
