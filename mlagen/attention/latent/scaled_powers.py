"""Scales of columns of which the power of two goes into numbers, exactly, and the rest multiplies
sums: what oracles need of kernels that compute so.

A tile's scores add up one group of columns after another, and are multiplied in between by what is
left of this group's scale over that of the next one, and at last by the last group's; then the
columns follow that have no scale. The even tiles of a pair begin with the first half of the groups,
the odd ones with the second. P times what is left of a group's scale, a product of these quotients,
is rounded to bf16, as any P. So all errors are relative: no range is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlagen.attention.latent.arithmetic import DIVISION, score_error
from mlagen.attention.latent.order import D_V, Order
from mlagen.problem.formats import U_FP32, Floats

MOST_POWER = 7  # of what goes into numbers: beyond, it is left
QUOTIENT = DIVISION + U_FP32  # a reciprocal, and the product with it


def powers_score_error(q: Floats, k: Floats, order: Order) -> Floats:
    """Bound of the error of `q @ k.T`, [rows, keys], `k` with its scales."""
    bound = np.empty((len(q), len(k)))
    turn = np.arange(len(k)) // order.tile % len(order.first_columns)
    wide = order.scaled_columns
    for which, first in enumerate(order.first_columns):
        own = turn == which
        groups = [range(at, at + wide) for at in (*range(first, D_V, wide), *range(0, first, wide))]
        columns = [column for group in groups for column in group]
        columns += range(D_V, q.shape[1])
        keys = k[own]
        found = score_error(q[:, columns], keys[:, columns], 0, order.depth, order.step)
        partial = np.zeros(found.shape)
        for group in groups:
            partial += q[:, list(group)] @ keys[:, list(group)].T
            found += (QUOTIENT + U_FP32) * np.abs(partial)
        bound[:, own] = found
    return bound * (1.0 + 8 * QUOTIENT)


def what_is_left(scales: Floats) -> Floats:
    """Of `scales` over the powers of two that go into numbers; 1 of those that are 0."""
    powers = np.minimum(np.frexp(scales)[1] - 1, MOST_POWER)
    return np.where(scales > 0, scales / np.exp2(powers), 1.0)


def of_quotients(scales: Floats | None, order: Order) -> float:
    """Relative error of P times what is left of a scale; 0 where an order has none."""
    return 0.0 if scales is None or not order.powers else (
        U_FP32 + scales.shape[1] * (QUOTIENT + U_FP32)
    )  # fmt: skip


def weighed_groups(v: Floats, scales: Floats, order: Order) -> Iterator[tuple[int, Floats, Floats]]:
    """Of each group of columns of `v` [keys, columns]: the first one, the numbers as they are
    multiplied, and what is left of their scales, [keys]."""
    for group in range(scales.shape[1]):
        own = slice(order.scaled_columns * group, order.scaled_columns * (group + 1))
        left = what_is_left(scales[:, group])
        yield own.start, v[:, own] / left[:, None], left
