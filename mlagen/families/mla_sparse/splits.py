"""Into how many parts decode divides a query's keys, and what the merge of these parts is told."""

from __future__ import annotations

import numpy as np

from mlagen.attention.latent.block_sizes import BLOCK_ROWS, TOGETHER
from mlagen.attention.latent.split_work import Ints32, merge_table
from mlagen.errors import ConfigError

TILE = 64
WARPGROUP = 128  # threads
FEW_HEADS = 16  # of a query: more take longer to multiply than their keys to come
LONG_PARTS = ("e4m3",)  # rows of which one block of an SM takes the bandwidth of two


def groups_of(heads: int, rows: int = BLOCK_ROWS) -> int:
    """Blocks that share the heads of a query; `rows`: heads that one has at most."""
    return -(-heads // rows)


def blocks_an_sm(threads: int) -> int:
    """Blocks of so many threads that fit on an SM: two of one warpgroup, whose schedule leaves room
    for another; of more warpgroups one, which has all registers."""
    return 2 if threads <= WARPGROUP else 1


def split_count(units: int, tiles: int, sms: int, an_sm: int) -> int:
    """Parts of the keys of each unit, up to 64 heads of a query, where there are so many. Lists
    have room for `tiles` tiles of 64 keys; `an_sm`: blocks that an SM runs at once.

    A call's shape and the GPU's SMs decide, and nothing that only the GPU knows: so the host waits
    for nothing, and a graph can hold the call. Lists are taken to be full.

    As many parts as there are places for blocks, no more: a second wave would cost a prologue for
    each block, and each part another 128 KB of results to write and to read. Where units alone fill
    the places nothing is split. Parts are even in whole tiles, so that all of them have keys where
    the list is full: 10 tiles in 4 parts would be 3, 3, 3 and 1. A part of one tile has no other
    one to fetch meanwhile, which pays only where each block has an SM for itself.

    On an H200 (132 SMs, 16 heads, top-k 2048, rows of 656 bytes), us in 32, 16 and 8 parts: a batch
    of 1 takes 12.7, 14.9 and 20.4; of 4, 15.5, 16.5 and 21.2; of 8, 21.6, 18.9 and 22.3; of 16,
    34.7, 26.8 and 26.7; of 24, 49.4, 39.9 and 33.5, and 32.0 in 11.
    """
    most = min(sms * an_sm // max(units, 1), tiles)
    if most <= 1:
        return 1
    each = -(-tiles // most)
    if each == 1 and units * tiles > sms:
        each = 2
    return -(-tiles // each)


def by_bulk(blocks: int, sms: int) -> int:
    """Whether so many blocks fetch rows whole, by bulk copies: 1, or 0. Of a block half of a tile
    is on its way then, which is enough where an SM has two.

    On an H200 (16 heads, top-k 2048, rows of 656 bytes, 32768 keys a sequence) 256 blocks of a
    batch of 128 take 76.4 us, and 91.7 where they load rows; 128 blocks of a batch of 32 36.1 and
    33.6.
    """
    return int(blocks > sms)


def split_every(keys: int, tiles: int, splits: int | None) -> int:
    """Parts of so many keys each of lists with room for `tiles` tiles of 64. A shorter list is
    divided into as many: so its parts depend on it, its length and this room alone. ConfigError for
    no multiple of 64, and beside `splits`."""
    if splits is not None:
        raise ConfigError(
            f"splits={splits} and split_keys={keys} both say how keys are divided",
            hint="one of them: so many parts, or parts of so many keys",
        )
    if keys < TILE or keys % TILE:
        raise ConfigError(
            f"split_keys={keys}", hint=f"split_keys is a multiple of {TILE}, keys of a part"
        )
    return -(-tiles // (keys // TILE))


def parts_of(
    units: int,
    tiles: int,
    sms: int,
    an_sm: int,
    *,
    merges: bool,
    blocks: bool,
    heads: int,
    rows: str = "",
) -> tuple[int, int]:
    """Parts of the keys of each unit, and how many of them their blocks put together: all, or 1 for
    none. As `split_count`; `merges`: whether there is a merge kernel, `blocks`: whether blocks can,
    of a query of so many `heads` and these `rows`.

    A block an SM; two of them where both have work for a while, which is longer where one block
    takes the bandwidth of two: few heads, and rows that are loaded and bring all they need.

    On an H200 (16 heads, top-k 2048, rows of 656 bytes), us in 2, 4, 8 and 16 parts that blocks put
    together: a batch of 8 takes 43.7, 27.6, 19.9 and 17.7; of 16, 44.4, 28.2, 22.5 and 25.0; of 32,
    45.7, 32.6, 33.4 and 49.8; of 64, 50.4, 48.0 and 59.8 in 8. Of 1, 15.5 in 16 and 14.1 in 32,
    13.2 in 32 with the merge kernel: few blocks take longer to add up so many. 32 heads: a batch of
    1 takes 19.3 in 16 and 24.7 in 32, of 4 20.2 and 26.3, where another kernel ran before; of 32
    48.7 in 4 and 43.4 in 8. A batch of 32 over rows of
    `rope_aware`, 33.7 in 4 and 32.1 in 8; of bf16, 39.4 and 36.8; of e4m3, 29.4 and 30.0; of 656
    bytes, since 8 parts fetch them whole (`by_bulk`), 34.7 and 33.3.
    """
    if not blocks:
        return (split_count(units, tiles, sms, an_sm) if merges else 1), 1
    few = heads <= FEW_HEADS
    a_while = 8 if few and rows in LONG_PARTS else 4

    def fits(count: int) -> bool:
        return count <= (tiles if few else tiles - 1) and units * count <= sms

    count = max(n for n in TOGETHER if n == 1 or fits(n))
    twice, each = 2 * count, tiles // (2 * count)
    if twice in TOGETHER and units * twice <= sms * an_sm and each >= a_while:
        count = twice
    if count == TOGETHER[-1] and merges and few:
        return split_count(units, tiles, sms, an_sm), 1
    return count, count


def check_together(together: int, splits: int) -> None:
    """ConfigError unless blocks can put so many parts of a query together: all of them, or none
    (1)."""
    if together != 1 and (together != splits or together not in TOGETHER):
        raise ConfigError(
            f"together={together} of splits={splits}",
            hint=f"1, or as many as splits, which is then one of {TOGETHER[1:]}",
        )


def merges(batch: int, q_len: int, heads: int, splits: int, rows: int = BLOCK_ROWS) -> Ints32:
    """The table of the merge kernel for units in `splits` parts each: unit n, the units of a query
    after one another, has the slots from n * splits on. `rows`: heads of a unit, at most."""
    groups = groups_of(heads, rows)
    unit = np.arange(batch * q_len * groups)
    query, first = unit // groups, unit % groups * rows
    entry, token = query // q_len, query % q_len
    return merge_table(
        slot=unit * splits,
        splits=np.full_like(unit, splits),
        row=query * heads + first,
        rows=np.minimum(heads - first, rows),
        above=token * heads + first,
        lse_at=entry * heads * q_len,
    ).astype(np.int32)
