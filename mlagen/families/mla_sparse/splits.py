"""Into how many parts decode divides a query's keys, and what the merge of these parts is told."""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.order import D_V
from mlagen.attention.latent.split_work import BLOCK_ROWS, Ints32, merge_table

TILE = 64
SLOT = (BLOCK_ROWS, D_V)  # what a part leaves
BLOCKS_AN_SM = 2  # of the kernels with keys as rows: registers and shared memory leave room for two
LEAST_TILES = 2  # of a part: with fewer, its prologue and its merge take longer than its keys


def split_count(queries: int, tiles: int, sms: int) -> int:
    """Parts of each of so many queries, whose lists have room for `tiles` tiles of 64 keys.

    A call's shape and the GPU's SMs decide, and nothing that only the GPU knows: so the host waits
    for nothing, and a graph can hold the call. Lists are taken to be full.

    As many parts as there are places for blocks, no more: a second wave would cost a prologue for
    each block, and each part another 128 KB of results to write and to read. Where queries alone
    fill the places nothing is split. Parts are even in whole tiles, so that all of them have keys
    where the list is full: 10 tiles in 4 parts are 3, 3, 3 and 1, those of 5 parts 2 each.

    This is reasoned, not measured.
    """
    most = min(BLOCKS_AN_SM * sms // max(queries, 1), tiles // LEAST_TILES)
    if most <= 1:
        return 1
    each = -(-tiles // most)
    return -(-tiles // each)


def merges(batch: int, q_len: int, heads: int, splits: int) -> Ints32:
    """The table of the merge kernel for queries in `splits` parts each: query n has the slots from
    n * splits on, and all heads of its token."""
    query = np.arange(batch * q_len)
    entry, token = query // q_len, query % q_len
    return merge_table(
        slot=query * splits,
        splits=np.full_like(query, splits),
        row=query * heads,
        rows=np.full_like(query, heads),
        above=token * heads,
        lse_at=entry * heads * q_len,
    ).astype(np.int32)
