"""How the work of one MLA decode call is dealt out: work items, their splits, and what is merged.

A *row block* is up to 64 query rows of a sequence: with one KV head rows are heads of one token
after the other, so that several new tokens share a block; with more, a block has heads of one KV
head and one token. Its keys, in tiles of 64, may be split. A *work item* is a row block and a range
of tiles, and takes one block of threads. Items that are a part of their row block leave partial
results in *slots*, which a merge adds up.

Items are in descending order of their work, row blocks of the same keys side by side: blocks are
started in this order as others end, which deals the work out evenly (longest first).

The last split of a sequence has no end: a plan is right for any lengths, whatever those that it was
made for. Only how even it is depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.mla_decode import TILE, MlaDecodeConfig
from mlagen.problem.mla_decode_even import boundaries, even_counts

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

BLOCK_ROWS = 64
H200_SMS = 132  # also of an H100 SXM
# Columns of an item: sequence, first row in q seen as [tokens * H, 576], rows, first row in the
# sequence, tokens of the sequence before its last, first tile, end tile, slot or -1, index in lse
# of the sequence's head 0 and token 0, KV head; two unused.
ITEM_INTS, ITEM_BYTES = 12, 48
# Columns of a merge, which is what one block of the merge kernel adds up: first slot, slots, first
# row in q, rows, first row in the sequence, index in lse as in an item, all of the row block; the
# block's first line, log2 of the warps that share a line.
MERGE_INTS, MERGE_BYTES = 8, 32
MERGE_WARPS = 16
LINES_A_ROW = 2
# Splits up to which one warp, or four, have a line: then each has at most four, which it loads at
# once. Up to 512 blocks come of what 132 SMs compute at once.
SPLITS_OF_WARPS = ((4, 0), (16, 2))
OPEN_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Query rows that one block of threads computes."""

    sequence: int
    kv_head: int
    query_row: int  # in q seen as [tokens * H, 576]
    rows: int
    above: int  # rows of the sequence before the first
    behind: int  # tokens of the sequence before its last, those that a causal mask tells apart
    lse_at: int


@dataclass(frozen=True, eq=False)
class MlaDecodeWork:
    """The work of one call: `items` int32 [items, 12], `merges` int32 [merges, 8], the number of
    slots, and of each sequence the first tile of each split. `lse_stride`: from head to head.

    A merge is a block's share of a row block: lines, each half a row, that follow each other."""

    items: Ints32
    merges: Ints32
    slots: int
    splits: tuple[tuple[int, ...], ...]
    lse_stride: int


def plan_work(
    config: MlaDecodeConfig,
    lengths: Sequence[int] | npt.NDArray[Any],
    *,
    q_lens: Sequence[int] | npt.NDArray[Any] | None = None,
    blocks: int = H200_SMS,
    split_keys: int | None = None,
) -> MlaDecodeWork:
    """The work of a call for sequences of `lengths` keys.

    `q_lens`: new tokens of each sequence, 0 .. q_len, where q is packed as [tokens, H, 576] (and
    lse as [H, tokens]); without them each has q_len. `blocks`: blocks of threads that run at once,
    one an SM. `split_keys`: split every so many keys, a multiple of 64, instead of evenly: the same
    row then gets the same bits whatever else is in the batch.

    Raises ConfigError for lengths, tokens and numbers that do not fit.
    """
    keys = _counts("lengths", lengths, 0, OPEN_END)
    tokens = (
        np.full(len(keys), config.q_len)
        if q_lens is None
        else _counts("q_lens", q_lens, 0, config.q_len)
    )
    if len(tokens) != len(keys):
        raise ConfigError(f"{len(keys)} lengths, but q_lens of {len(tokens)} sequences")
    if blocks < 1:
        raise ConfigError(f"blocks={blocks} is not at least 1")
    splits = _splits(config, keys, tokens, blocks, split_keys)
    starts = np.concatenate([[0], np.cumsum(tokens)])
    packed = q_lens is not None
    groups: list[tuple[int, list[list[int]]]] = []  # work and items that belong side by side
    merges: list[Ints] = []
    slots = 0
    for sequence, own in enumerate(splits):
        ends = [*own[1:], OPEN_END]
        tiles = -(-int(keys[sequence]) // TILE)
        of_split: list[list[list[int]]] = [[] for _ in own]
        for block in _row_blocks(config, sequence, starts, packed):
            head = [block.sequence, block.query_row, block.rows, block.above, block.behind]
            for index, (first, end) in enumerate(zip(own, ends, strict=True)):
                slot = slots + index if len(own) > 1 else -1
                of_split[index].append([*head, first, end, slot, block.lse_at, block.kv_head, 0, 0])
            if len(own) > 1:
                merges.append(_merges_of(block, slots, len(own)))
                slots += len(own)
        for first, end, items in zip(own, ends, of_split, strict=True):
            groups.append((max(min(end, tiles) - first, 0), items))
    groups.sort(key=lambda group: -group[0])
    rows = [item for _, items in groups for item in items]
    return MlaDecodeWork(
        np.array(rows, np.int32).reshape(-1, ITEM_INTS),
        np.concatenate([np.zeros((0, MERGE_INTS), np.int64), *merges]).astype(np.int32),
        slots,
        splits,
        int(starts[-1]) if packed else config.q_len,
    )


def _counts(name: str, values: Any, least: int, most: int) -> Ints:
    found = np.asarray(values)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise ConfigError(f"{name} is no list of integers")
    found = found.astype(np.int64)
    wrong = np.flatnonzero((found < least) | (found > most))
    if wrong.size:
        raise ConfigError(f"{name}[{wrong[0]}]={found[wrong[0]]} is not in {least} .. {most}")
    return found


def _row_blocks(
    config: MlaDecodeConfig, sequence: int, starts: Ints, packed: bool
) -> Iterator[RowBlock]:
    """The row blocks of a sequence whose tokens in q are `starts[sequence] ..`."""
    first, tokens = int(starts[sequence]), int(starts[sequence + 1] - starts[sequence])
    heads = config.num_heads
    lse_at = first if packed else sequence * heads * config.q_len
    if config.num_kv_heads == 1:
        runs = [(0, 0, tokens * heads)]
    else:
        runs = [
            (kv_head, token * heads + kv_head * config.group, config.group)
            for kv_head in range(config.num_kv_heads)
            for token in range(tokens)
        ]
    for kv_head, above, count in runs:
        for at in range(0, count, BLOCK_ROWS):
            yield RowBlock(
                sequence, kv_head, first * heads + above + at, min(count - at, BLOCK_ROWS),
                above + at, tokens - 1, lse_at,
            )  # fmt: skip


def _merges_of(block: RowBlock, slot: int, splits: int) -> Ints:
    """The merges [blocks, 8] of a row block whose parts are in `slot` and those behind it."""
    share = next((log2 for most, log2 in SPLITS_OF_WARPS if splits <= most), 4)
    first_lines = np.arange(0, block.rows * LINES_A_ROW, MERGE_WARPS >> share)
    found = np.empty((len(first_lines), MERGE_INTS), np.int64)
    found[:] = slot, splits, block.query_row, block.rows, block.above, block.lse_at, 0, share
    found[:, 6] = first_lines
    return found


def merge_blocks(slots: int, row_blocks: int) -> int:
    """No plan with so many slots and row blocks has more merges."""
    most = LINES_A_ROW * BLOCK_ROWS  # a line a block
    return min(8 * slots, most * row_blocks)


def _splits(
    config: MlaDecodeConfig, keys: Ints, tokens: Ints, blocks: int, split_keys: int | None
) -> tuple[tuple[int, ...], ...]:
    """The first tile of each split of each sequence."""
    low = np.zeros(len(keys), np.int64)  # tiles that a window hides
    if config.window:
        low = np.maximum(keys - (tokens - 1) - config.window, 0) // TILE
    tiles = np.maximum(-(-keys // TILE) - low, 0)
    if split_keys is not None:
        if split_keys < TILE or split_keys % TILE:
            raise ConfigError(
                f"split_keys={split_keys} is no positive multiple of {TILE}",
                hint=f"tiles of {TILE} keys are not cut; 2048 is usual",
            )
        step = split_keys // TILE
        ends = low + tiles
        return tuple(
            (0, *range((int(a) // step + 1) * step, int(b), step))
            for a, b in zip(low, ends, strict=True)
        )
    per_sequence = np.array(
        [sum(1 for _ in _row_blocks(config, 0, np.array([0, n]), False)) for n in tokens], np.int64
    )
    counts = even_counts(config, tiles, per_sequence, blocks)
    return tuple(
        (0, *(a + first for first in boundaries(n, count)))
        for a, n, count in zip(low.tolist(), tiles.tolist(), counts.tolist(), strict=True)
    )
