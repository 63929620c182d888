"""Number formats and how far arithmetic in them can be from exact: every bound starts here.

Rounding is to nearest, ties to even, and f32 denormals are flushed to zero: the modes that the
kernels' descriptors set.

Two kinds of bound on a sum of roundings are used, and the smaller of the two is taken:

* the worst case, in which all errors have the same sign;
* Hoeffding's: n independent errors of mean zero, each within ±b_i, exceed t in sum with a
  probability of at most `2 exp(-t² / (2 Σ b_i²))`. Rounding errors of unrelated numbers are such
  errors; those of the same number again and again (a key repeated hundreds of times) are not, so
  such data is not for these bounds. `confidence` turns a probability over all elements into the
  factor on sqrt(Σ b_i²).
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlagen.problem.dtypes import E4M3_MAX

Floats = npt.NDArray[np.float64]

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
FP32 = np.dtype(np.float32)
ELEMENT_TYPES = {"bf16": BF16, "fp8_e4m3": E4M3, "fp32": FP32}  # as problems call them

# Of the significand, the implicit one included.
E4M3_BITS, BF16_BITS, F16_BITS, FP32_BITS = 4, 8, 11, 24
# Half of the spacing at 1: the largest relative error of one rounding.
U_E4M3, U_BF16, U_FP32 = 2.0**-E4M3_BITS, 2.0**-BF16_BITS, 2.0**-FP32_BITS
U_F16 = 2.0**-F16_BITS
# e4m3fn (OCP 8-bit floating point 1.0): smallest normal, and the spacing below it.
E4M3_NORMAL, E4M3_STEP = 2.0**-6, 2.0**-9
F16_NORMAL, F16_STEP = 2.0**-14, 2.0**-24  # the same of f16 (IEEE 754 binary16)
SMALLEST_NORMAL = 2.0**-126  # of fp32 and of bf16; what is smaller is flushed

# v_exp_f32 and v_rcp_f32 are accurate to 1 ulp (AMD's ISA documents), at most 2^-23 of the result.
TRANSCENDENTAL = 2.0**-23

FAILURE_PROBABILITY = 1e-12  # that a right result exceeds a bound anywhere in a comparison


def confidence(elements: int) -> float:
    """Hoeffding's factor: n errors within ±b_i sum to less than this times sqrt(Σ b_i²).

    Fails for one or more of `elements` such sums with probability FAILURE_PROBABILITY at most.
    """
    return math.sqrt(2.0 * math.log(2.0 * max(elements, 1) / FAILURE_PROBABILITY))


def accumulated(roundings: Any, factor: float) -> Any:
    """Relative bound of a sum in which every term passes at most `roundings` fp32 additions.

    `factor` is that of `confidence`. Relative to the sum of the terms' magnitudes.
    """
    worst = np.minimum(roundings, factor * np.sqrt(roundings)) * U_FP32
    return worst / (1.0 - worst)


def round_bf16(x: Floats) -> Floats:
    """`x` rounded to the 8 significant bits of bf16, without a detour through fp32.

    Veltkamp's splitting: exact for |x| < 2^970; overflow and denormals are not modelled.
    """
    return _rounded(x, BF16_BITS)


def round_f16(x: Floats) -> Floats:
    """`x` rounded to the 11 significant bits of f16, in the same way."""
    return _rounded(x, F16_BITS)


def round_half(x: Floats) -> Floats:
    """`x` rounded to f16, denormals included; what is above its end is not modelled."""
    return np.where(np.abs(x) < F16_NORMAL, np.rint(x / F16_STEP) * F16_STEP, round_f16(x))


def _rounded(x: Floats, bits: int) -> Floats:
    shifted = x * (2.0 ** (53 - bits) + 1.0)
    return shifted - (shifted - x)


def round_e4m3(x: Floats) -> Floats:
    """`x` rounded to e4m3fn, denormals included, without a detour through fp32.

    NaN where the rounded number is above 448, as `v_cvt_pk_fp8_f32` makes it without clamping.
    """
    _, exponent = np.frexp(np.maximum(np.abs(x), E4M3_NORMAL))
    step = np.ldexp(1.0, exponent - E4M3_BITS)
    made = np.rint(x / step) * step
    return np.where(np.abs(made) > E4M3_MAX, np.nan, made)


def prescaled(q: npt.NDArray[Any], scale: float) -> Floats:
    """Q as the first product sees it: `bf16(fp32(q) * fp32(scale * log2 e))`, in fp64."""
    factor = np.float32(scale_log2e(scale))
    return (q.astype(np.float32) * factor).astype(BF16).astype(np.float64)


def scale_log2e(scale: float) -> float:
    """The factor that takes dot products to scores in log2 units."""
    return scale * math.log2(math.e)


def rounds_from(x: Floats, bits: int) -> tuple[Floats, Floats]:
    """The interval of numbers that round to `x`, a value of `bits` significant bits.

    NaN gives NaN on both sides.
    """
    magnitude = np.abs(x)
    fraction, exponent = np.frexp(magnitude)
    up = np.ldexp(1.0, exponent - bits - 1)
    down = np.where(fraction == 0.5, up / 2, up)  # below a power of two the spacing halves
    # Zero holds everything that is flushed to it.
    up = np.where(magnitude < SMALLEST_NORMAL, SMALLEST_NORMAL, up)
    down = np.where(magnitude < SMALLEST_NORMAL, SMALLEST_NORMAL, down)
    negative = np.signbit(x)
    return x - np.where(negative, up, down), x + np.where(negative, down, up)
