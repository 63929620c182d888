"""How far results may be from exact ones: from formats, and from what instructions promise.

u is the unit roundoff of a format: half of the gap between 1 and the next number. Every function
gives an absolute error, elementwise, and takes magnitudes: sums of absolute values.
"""

from __future__ import annotations

import numpy as np

U32 = 2.0**-24
U16 = 2.0**-11
U_BF16 = 2.0**-8
# PTX ISA: ex2.approx.f32 and div.full.f32 are off by at most 2 ulp, lg2.approx.f32 by 2^-22.
APPROX = 2.0**-22


def summed(terms: int, magnitudes: np.ndarray, unit: float = U32) -> np.ndarray:
    """A sum of so many terms in any order, each addition rounded: (terms - 1) u, to first order.

    The terms themselves may carry one rounding each. Higher orders are covered by one more u.
    """
    return (terms + 1) * unit * magnitudes


def rounded(values: np.ndarray, unit: float) -> np.ndarray:
    """Rounding to nearest in a format of that unit roundoff, whose subnormals are not reached."""
    return unit * np.abs(values)


def product(magnitudes: np.ndarray, depth: int, per_step: int, unit: float = 2 * U32) -> np.ndarray:
    """A matrix product on tensor cores, `per_step` products an instruction.

    Terms of an instruction, the accumulator among them, are cut off 24 bits below the greatest
    one's exponent; the sum is rounded or cut to a format, by at most `unit` of it. No partial sum
    is greater than `magnitudes`.
    """
    steps = -(-depth // per_step)
    return steps * ((per_step + 1) * 2.0**-24 + unit) * magnitudes


def narrow_product(a: np.ndarray, b: np.ndarray, per_step: int, window: int) -> np.ndarray:
    """The same where an instruction cuts terms off `window` bits below the greatest, and its sum.

    Instructions come in the order of the inner dimension, and the greatest term of each is looked
    for, since the window is narrow: `a` [m, k] and `b` [k, n] in float64.
    """
    total = np.zeros((a.shape[0], b.shape[1]))
    off = np.zeros_like(total)
    for start in range(0, a.shape[1], per_step):
        left, right = a[:, start : start + per_step], b[start : start + per_step]
        greatest = np.abs(left[:, :, None] * right[None]).max(1)
        greatest = np.maximum(greatest, np.abs(total) + off)
        total += left @ right
        off += 2.0**-window * ((per_step + 1) * greatest + np.abs(total) + off)
    return off
