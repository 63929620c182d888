"""Exact gradients of attention in fp64, with bounds for kernels with 16-bit P and dS.

The kernel is given Q, K, V, dO as stored, and in fp32 LSE and D, the row sums of dO * O. It
computes S = scale * Q K^T, P = exp(S - LSE), dP = dO V^T, dS = P * (dP - D) in fp32, rounds P and
dS to 16 bits, and multiplies again: dV = P^T dO, dK = scale * dS^T Q, dQ = scale * dS K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.attention.prefill.scores import LN2, relative, score_error
from mlagen.problem.formats import TRANSCENDENTAL, U_FP32, Floats, accumulated, confidence


@dataclass(frozen=True, slots=True)
class Narrow:
    """A 16-bit format and how the kernel rounds to it. `bits`: of the significand; `smallest`: the
    spacing of its denormals (what fp32 flushes, for bf16)."""

    bits: int
    smallest: float
    truncated: bool = False

    @property
    def unit(self) -> float:
        """Largest relative error of one rounding."""
        return 2.0 ** (1 - self.bits) if self.truncated else 2.0**-self.bits

    def error(self, x: Floats) -> Floats:
        """Largest error of rounding numbers of these magnitudes."""
        return np.maximum(self.unit * np.abs(x), self.smallest)


F16, F16_RTZ = Narrow(11, 2.0**-24), Narrow(11, 2.0**-24, truncated=True)
BF16, BF16_RTZ = Narrow(8, 2.0**-126), Narrow(8, 2.0**-126, truncated=True)


@dataclass(frozen=True, eq=False)
class Head:
    """One head in fp64: `q`, `do` [rows, d], `k`, `v` [keys, d], `seen` [rows, keys]."""

    q: Floats
    k: Floats
    v: Floats
    do: Floats
    seen: np.ndarray
    scale: float
    narrow: Narrow
    tile: int  # keys of a workgroup: dQ is added up tile by tile


@dataclass(frozen=True, eq=False)
class Gradients:
    """Values and bounds before the outputs' rounding, and what the kernel is given: `lse`, `d`.
    `added`: bound of the magnitude of any partial sum of dQ over the workgroups."""

    dq: tuple[Floats, Floats]
    dk: tuple[Floats, Floats]
    dv: tuple[Floats, Floats]
    lse: Floats
    d: Floats
    added: Floats


def _product(
    x: Floats, exact: Floats, rounding: Floats, y: Floats, narrow: Narrow, factor: float
) -> Floats:
    """Bound of the error of x^T y; `exact` bounds errors of x that may conspire, `rounding` those
    of its rounding to 16 bits, which do not unless it truncates."""
    size = np.abs(y)
    worst = rounding.T @ size
    if not narrow.truncated:
        worst = np.minimum(worst, factor * np.sqrt(np.square(rounding).T @ np.square(y)))
    return np.asarray(
        exact.T @ size + worst + accumulated(len(x), factor) * ((np.abs(x) + rounding).T @ size)
    )


def gradients(h: Head, elements: int) -> Gradients:
    """Of one head; `elements`: that are compared in all. Every row must see a key."""
    factor = confidence(elements * (len(h.q) + len(h.k) + h.q.shape[1]))
    scores = np.where(h.seen, h.q @ h.k.T * h.scale, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    lse = top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
    p = np.exp(scores - lse)
    o = p @ h.v
    d = (h.do * o).sum(axis=1, keepdims=True)
    dp = h.do @ h.v.T
    ds = p * (dp - d)

    finite = np.where(h.seen, scores, 0.0)
    # Roundings on the way to the exponent: the factor, both products and their difference, LSE.
    size = np.abs(finite) + np.abs(lse)
    off = score_error(h.q, h.k, factor) * abs(h.scale) / LN2 + 4 * U_FP32 * size / LN2
    of_p = p * (relative(np.where(h.seen, off, 0.0)) + 2 * TRANSCENDENTAL)
    of_dp = score_error(h.do, h.v, factor) + 2 * U_FP32 * (np.abs(dp) + np.abs(d))
    of_ds = of_p * (np.abs(dp - d) + of_dp) + p * of_dp + 2 * U_FP32 * np.abs(ds)

    p_rounding = np.where(h.seen, h.narrow.error(p + of_p), 0.0)
    ds_rounding = np.where(h.seen, h.narrow.error(np.abs(ds) + of_ds), 0.0)
    scale = abs(h.scale)
    dv = _product(p, of_p, p_rounding, h.do, h.narrow, factor)
    dk = scale * _product(ds, of_ds, ds_rounding, h.q, h.narrow, factor)
    dq = scale * _product(ds.T, of_ds.T, ds_rounding.T, h.k, h.narrow, factor)
    added = scale * (np.abs(ds) @ np.abs(h.k))
    tiles = -(-len(h.k) // h.tile)
    dk_exact, dq_exact = ds.T @ h.q * h.scale, ds @ h.k * h.scale
    dk += 2 * U_FP32 * np.abs(dk_exact)
    dq += U_FP32 * (2 + tiles) * added
    return Gradients((dq_exact, dq), (dk_exact, dk), (p.T @ h.do, dv), lse, d, added)
