"""Scales of columns that multiply sums: what oracles need of kernels that compute so.

Numbers are multiplied as they are stored. The sums of the columns that share a scale are added up
by themselves, and added to S times the key's scale, one after another, each with one rounding. Q is
f16 for them, times a power of two that brings the row's largest number up to below 2^16: numbers
below 2^-32 of the largest one are off by 2^-40 of it. P times a group's scale is f16, times 2^14
over the largest power of two that is not above a scale of the group so far, or 2^-100.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlagen.attention.latent.arithmetic import score_error
from mlagen.attention.latent.order import Order
from mlagen.problem.formats import F16_NORMAL, F16_STEP, U_FP32, Floats, round_f16

LEAST_SCALE = 2.0**-100
LIFT = 2.0**14  # of P times the largest scale
SMALL_QUERY, QUERY_STEP = 2.0**-32, 2.0**-40  # relative to a row's largest number


def scaled_score_error(q: Floats, k: Floats, order: Order) -> Floats:
    """Bound of the error of `q @ k.T`, [rows, keys], `k` with its scales."""
    partial = np.zeros((len(q), len(k)))
    bound = np.zeros(partial.shape)
    for columns in order.sums(q.shape[1]):
        own_q, own_k = q[:, columns], k[:, columns]
        bound += score_error(own_q, own_k, 0, order.depth, order.step)
        partial += own_q @ own_k.T
        bound += U_FP32 * np.abs(partial)
    return bound * (1.0 + 2 * U_FP32) + lifted_error(q, k)


def lifted_error(q: Floats, k: Floats) -> Floats:
    """What f16 takes from small numbers of `q`, in `q @ k.T`, [rows, keys]."""
    largest = np.abs(q).max(axis=1, keepdims=True)
    small = np.where((q != 0) & (np.abs(q) < SMALL_QUERY * largest), QUERY_STEP * largest, 0.0)
    return small @ np.abs(k).T


@dataclass(frozen=True, slots=True, eq=False)
class OfColumns:
    """The `scales` [keys] of a group of columns, and what P times a scale is multiplied by at last,
    `lift`: before, it is more."""

    scales: Floats
    lift: float

    @staticmethod
    def of(scales: Floats) -> OfColumns:
        largest = max(float(scales.max(initial=0.0)), LEAST_SCALE)
        return OfColumns(scales, LIFT / 2.0 ** (np.frexp(largest)[1] - 1))

    def rounded(self, p: Floats, eta: Floats) -> tuple[Floats, Floats]:
        """P times their scales [.., keys] as it is stored, and how far a kernel's may be from that
        whose product is off by `eta`: below the normal range by a step, wherever that is."""
        stored = round_f16(p)
        low, high = (round_f16(p * (1.0 + sign * eta)) for sign in (-1, 1))
        flip = np.maximum(high - stored, stored - low)
        return stored, flip + self.small(p * (1.0 + eta), np.ones(1))

    def small(self, p: Floats, scale: Floats) -> Floats:
        """What P times their scales may be off by below f16's normal range, relative to weights
        that are `scale` times P."""
        normal = p * self.lift >= F16_NORMAL * scale
        return np.where(normal | (p == 0), 0.0, F16_STEP / self.lift * scale)


def scaled_groups(v: Floats, scales: Floats, order: Order) -> Iterator[tuple[Floats, OfColumns]]:
    """Of each group of columns of `v` [keys, columns] the numbers that are stored, and scales."""
    for _, numbers, of_keys in exact_groups(v, scales, order):
        yield numbers, of_keys


def exact_groups(
    v: Floats, scales: Floats, order: Order
) -> Iterator[tuple[Floats, Floats, OfColumns]]:
    """The same with the columns themselves before them."""
    for group in range(scales.shape[1]):
        own = scales[:, group]
        part = v[:, order.scaled_columns * group : order.scaled_columns * (group + 1)]
        numbers = np.divide(part, own[:, None], out=np.zeros(part.shape), where=own[:, None] > 0)
        yield part, numbers, OfColumns.of(own)
