"""Work over latent rows that is split: how many SMs it is for, and the merges of its parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.block_sizes import LINES_A_ROW, MERGE_INTS, MERGE_WARPS

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

# Splits up to which 2^n warps have a line: each has at most four, which it loads at once. What 132
# SMs compute at once, in three parts and more, makes up to 256 blocks, which run at once too.
SPLITS_OF_WARPS = ((4, 0), (8, 1), (16, 2), (32, 3))


def merge_table(
    *, slot: Ints, splits: Ints, row: Ints, rows: Ints, above: Ints, lse_at: Ints
) -> Ints:
    """The merges [blocks, 8] of row blocks, by the columns of a merge that are a row block's."""
    share = np.select([splits <= most for most, _ in SPLITS_OF_WARPS],
                      [np.full_like(splits, log2) for _, log2 in SPLITS_OF_WARPS], 4)  # fmt: skip
    lines = MERGE_WARPS >> share
    each = -(-rows * LINES_A_ROW // lines)
    found = np.empty((int(each.sum()), MERGE_INTS), np.int64)
    of_block = (slot, splits, row, rows, above, lse_at, lines, share)
    for column, values in enumerate(of_block):
        found[:, column] = np.repeat(values, each)
    found[:, 6] *= within(each)
    return found


def within(counts: Ints) -> Ints:
    """0 .. count - 1 for each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
