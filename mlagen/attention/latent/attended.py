"""What an oracle says of some query rows and the keys that they attend to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlagen.attention.latent.arithmetic import LN2
from mlagen.attention.latent.order import Order
from mlagen.attention.latent.splits import Partial
from mlagen.attention.latent.walk import Keys, QueryRows, ScoreWalk
from mlagen.problem.formats import SMALLEST_NORMAL, U_FP32, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Attended:
    """`partial`: O, its bound, the LSE and its bound; `top` and `top_bound` [rows]: the largest
    score in natural units, -inf and 0 for a row that sees no key."""

    partial: Partial
    top: Floats
    top_bound: Floats


# Of rows and keys, with the factor of dot products of stored numbers, the order in which they are
# walked, and the factor of `mlagen.problem.formats.confidence`.
Block = Callable[[QueryRows, Keys, float, Order, float], Attended]


def top_error(walk: ScoreWalk, off: Floats) -> Floats:
    """Bound of the error of a kernel's largest score, [rows]: c M in fp32, times ln 2, which is
    rounded, too. `off` [rows]: how far c is off, relative to it."""
    size = LN2 * np.abs(walk.top)
    bound = LN2 * walk.top_spread * (1.0 + 3 * U_FP32) + (off + 3 * U_FP32) * size
    seen = ~np.isneginf(walk.scores).all(axis=(1, 2))
    return np.where(seen, bound + SMALLEST_NORMAL, 0.0)
