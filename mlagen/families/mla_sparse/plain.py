"""Attention of the numbers that are stored, in fp64 and with nothing rounded."""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.order import D_V
from mlagen.attention.latent.walk import QueryRows
from mlagen.families.mla_sparse.lists import ListedKeys
from mlagen.problem.formats import Floats


def plain(rows: QueryRows, keys: ListedKeys, scale: float) -> tuple[Floats, Floats, Floats]:
    """O [rows, 512], the LSE and the largest score [rows] of rows that see a key each."""
    numbers = keys.exact * keys.kernel.scales[:, None]
    scores = np.where(rows.seen, scale * rows.scales[:, None] * (rows.q @ numbers.T), -np.inf)
    top = scores.max(axis=1)
    weights = np.exp(scores - top[:, None])
    total = weights.sum(axis=1)
    return weights @ numbers[:, :D_V] / total[:, None], top + np.log(total), top
