"""Where prefill kernels round: all that the oracles know of how a kernel of some dtype computes.

What all have in common: scores are sums of exact products in fp32, M lags the row maximum by
no more than the threshold, P = exp2(score - M) in log2 units, the row sum adds P in fp32 before P
is rounded for the second product, whose sums are fp32.

fp8 does not multiply Q by c = scale * log2(e), which would round it to 4 bits once more: c is
applied to the fp32 scores, in one fused `c * dot - M` or as `(dot - m) * c`. The bounds hold for
both, and for every order in which c is multiplied out of the softmax scale, the scales of Q and K
and log2(e).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.problem.formats import (
    E4M3_NORMAL,
    E4M3_STEP,
    U_BF16,
    U_E4M3,
    Floats,
    prescaled,
    round_bf16,
    round_e4m3,
    scale_log2e,
)


@dataclass(frozen=True)
class Arithmetic:
    """The roundings of one kind of kernel. `*_ulps` count half units in the last place of fp32,
    relative to what they are named after."""

    products: int  # that one MFMA adds to each accumulator
    prescales: bool  # Q is multiplied by c and rounded to bf16 before the first product
    round_p: Callable[[Floats], Floats]
    p_unit: float  # largest relative error of rounding a normal P
    p_normal: float  # smallest normal P
    p_step: float  # spacing of P below that
    scale_ulps: int  # of c
    distance_ulps: int  # of score - M, those of c included
    maximum_ulps: int  # of M itself, where a score's product with c is rounded for it
    output_ulps: int  # of what O is multiplied with besides the reciprocal of the row sum

    def scaled(self, q: npt.NDArray[Any], scale: float) -> tuple[Floats, float]:
        """Q as the first product sees it, fp64, and what its scores are multiplied with then."""
        if self.prescales:
            return prescaled(q, scale), 1.0
        return q.astype(np.float64), scale_log2e(scale)

    def p_error(self, p: Floats) -> tuple[Floats, Floats]:
        """What rounding may do to each P, for `p` relative to the row's last maximum, in two parts.

        The first may have either sign and is the error of unrelated numbers; the second - of P
        below the normal range - leans to one side, so that only its worst case is a bound. M never
        exceeds the last maximum, so an actual P is at least `p` and its spacing, in units of the
        last maximum, at most that of `p`.
        """
        normal = p >= self.p_normal
        small = np.minimum(p, max(self.p_unit * self.p_normal, self.p_step / 2))
        return np.where(normal, self.p_unit * p, 0.0), np.where(normal, 0.0, small)


BF16_PRESCALED = Arithmetic(
    products=16,
    prescales=True,
    round_p=round_bf16,
    p_unit=U_BF16,
    p_normal=0.0,  # its range is fp32's: what is below counts as flushed
    p_step=0.0,
    scale_ulps=0,
    distance_ulps=1,
    maximum_ulps=0,
    output_ulps=0,
)

FP8 = Arithmetic(
    products=64,
    prescales=False,
    round_p=round_e4m3,
    p_unit=U_E4M3,
    p_normal=E4M3_NORMAL,
    p_step=E4M3_STEP,
    scale_ulps=5,  # the scale's own, two products with scales, log2(e)'s own, the product with it
    distance_ulps=2 + 5,
    maximum_ulps=1,
    output_ulps=1,  # v_scale
)


def arithmetic_of(dtype: str) -> Arithmetic:
    """That of kernels whose Q, K and V are of this type."""
    return BF16_PRESCALED if dtype == "bf16" else FP8
