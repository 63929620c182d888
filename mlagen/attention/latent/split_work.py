"""Work over latent rows that is split: how many SMs it is for, and the merges of its parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

H200_SMS = 132  # also of an H100 SXM
BLOCK_ROWS = 64  # query rows that a part has room for
# Parts of a row block that their blocks put together on Hopper, and slices of columns that these
# have at most: one a part and role.
TOGETHER, MOST_SLICES = (1, 2, 4, 8, 16, 32), 32
# Columns of a merge, which is what one block of the merge kernel adds up: first slot, slots, first
# row in q, rows, first row in the sequence, index in lse as in an item, all of the row block; the
# block's first line, log2 of the warps that share a line.
MERGE_INTS, MERGE_BYTES = 8, 32
MERGE_WARPS = 16
LINES_A_ROW = 2
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
