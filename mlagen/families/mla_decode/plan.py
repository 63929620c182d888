"""How the work of one MLA decode call is distributed: work items, their splits, and what is merged.

A *row block* is up to 64 query rows of a sequence, or as many as a kernel's block of threads has
(`mlagen.families.mla_decode.unit`): with one KV head rows are heads of one token after the other,
so that several new tokens share a block; with more, a block has heads of one KV head and one token.
Its keys, in tiles of 64, may be split. A *work item* is a row block and a range of tiles, and takes
one block of threads. Items that are a part of their row block leave partial results in *slots*,
which a merge adds up.

Where persistent blocks take parts in and a row block is in two, the second one takes in the first,
when all keys of its own are done. It has a later block than the first one, so that it waits for
what was started before it. Fixed splits, more parts, and what is distributed longest first are
merged.

Items are in descending order of their work, row blocks of the same keys side by side: blocks are
started in this order as others end, which distributes the work evenly (longest first). Where blocks
are persistent, the plan distributes the items itself: `mlagen.families.mla_decode.shares`.

The last split of a sequence has no end: a plan is right for any lengths, whatever those that it was
made for. Only how even it is depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.dealing import check_blocks
from mlagen.attention.latent.block_sizes import LINES_A_ROW, TOGETHER
from mlagen.attention.latent.split_work import Ints, Ints32, merge_table, within
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.even_splits import boundaries, even_counts, parts_together
from mlagen.families.mla_decode.merged_shares import merged_shares
from mlagen.families.mla_decode.problem import ITEM_BYTES, TILE, MlaDecodeConfig
from mlagen.families.mla_decode.shares import PARTS, Cut, cut_shares, deal
from mlagen.families.mla_decode.uneven_splits import uneven_ends
from mlagen.families.mla_decode.unit import HOPPER, Unit

# Columns of an item: sequence, first row in q seen as [tokens * H, 576], rows, first row in the
# sequence, tokens of the sequence before its last, first tile, end tile, slot or -1, index in lse
# of the sequence's head 0 and token 0, KV head; 1 where it takes in the part before it, -1 where
# its own part is taken in, the parts of its row block where their blocks put these together, else
# 0; the slot of what it takes in, or of the row block's first part.
ITEM_INTS = ITEM_BYTES // 4
OPEN_END = 2**31 - 1


@dataclass(frozen=True, eq=False)
class MlaDecodeWork:
    """The work of one call: `items` int32 [items, 12], `merges` int32 [merges, 8], the number of
    slots, and of each sequence the first tile of each split. `lse_stride`: from head to head.
    `slot_rows`: query rows that a slot has room for.

    A merge is a block's share of a row block: lines, each half a row, that follow each other.
    `shares`: of persistent blocks, int32 [blocks + 1], block b's items are those from shares[b] to
    shares[b + 1]. `together`: the parts of every row block that the blocks which have them
    put together; 1: what is in parts is merged."""

    items: Ints32
    merges: Ints32
    slots: int
    splits: tuple[tuple[int, ...], ...]
    lse_stride: int
    shares: Ints32 | None = None
    slot_rows: int = HOPPER.rows
    together: int = 1


def plan_work(
    config: MlaDecodeConfig,
    lengths: Sequence[int] | npt.NDArray[Any],
    *,
    q_lens: Sequence[int] | npt.NDArray[Any] | None = None,
    blocks: int | None = None,
    split_keys: int | None = None,
    persistent: bool = False,
    takes_in: bool = True,
    unit: Unit = HOPPER,
    together: int | None = 1,
) -> MlaDecodeWork:
    """The work of a call for sequences of `lengths` keys.

    `q_lens`: new tokens of each sequence, 0 .. q_len, where q is packed as [tokens, H, 576] (and
    lse as [H, tokens]); without them each has q_len. `blocks`: blocks of threads that run at once,
    those of a whole GPU if nothing else. `split_keys`: split every so many keys, a multiple of 64,
    instead of evenly: the same row then gets the same bits whatever else is in the batch.
    `persistent`: for blocks that take several items, as many blocks as there are; `takes_in`: where
    a row block is in two parts, the block with the second takes in the first, and not a merge.
    `unit`: the kernel's block. `together`: every row block is in so many parts, which their blocks
    put together, not with `split_keys` or `persistent`; None: as estimated.

    Raises ConfigError for lengths, tokens and numbers that do not fit.
    """
    keys = _counts("lengths", lengths, 0, OPEN_END)
    tokens = np.full(len(keys), config.q_len)
    if q_lens is not None:
        tokens = _counts("q_lens", q_lens, 0, config.q_len)
    if len(tokens) != len(keys):
        raise ConfigError(f"{len(keys)} lengths, but q_lens of {len(tokens)} sequences")
    blocks = unit.blocks if blocks is None else blocks
    check_blocks("blocks", blocks)
    rows = _QueryRows.of(config, tokens, unit.rows, packed=q_lens is not None)
    low, tiles = _tiles(config, keys, tokens)
    apart = split_keys is not None or persistent
    device = replace(unit, blocks=blocks)
    if together is None:
        together = 1 if apart else parts_together(tiles, rows.blocks, device)
    _check_together(together, apart=apart)
    if together > 1:
        splits, cut = _even_splits(low, tiles, np.full(len(tiles), together)), None
    elif split_keys is not None:
        splits, cut = _fixed_splits(low, tiles, split_keys), None
    else:
        splits, cut = _splits(low, tiles, rows.blocks, device, persistent=persistent)
    counts = np.array([len(own) for own in splits], np.int64)
    few = bool((counts * rows.blocks).sum() <= blocks)
    one_each = persistent and split_keys is None and cut is None and few
    taken_in = (counts == PARTS) & (takes_in and (cut is not None or one_each))
    pieces = _Pieces.of(splits, counts, rows.blocks, taken_in, together)
    shares = None
    if cut is not None:
        piece, row_block, shares = cut.items(blocks)
    else:
        end = np.minimum(pieces.end, -(-keys // TILE)[pieces.sequence])
        work = np.maximum(end - pieces.first, 0)
        order = np.arange(len(work)) if one_each else np.argsort(-work, kind="stable")
        each = rows.blocks[pieces.sequence[order]]
        piece, row_block = np.repeat(order, each), within(each)
        if one_each:
            shares = np.minimum(np.arange(blocks + 1), len(piece)).astype(np.int32)
        elif persistent:
            moved, shares = deal(each, work[order], blocks)
            piece, row_block = piece[moved], row_block[moved]
    parted = np.flatnonzero((counts > 1) & ~taken_in & (together == 1))
    each = rows.blocks[parted]
    firsts = np.repeat((np.cumsum(counts) - counts)[parted], each)
    merged = pieces.items(rows, firsts, within(each))
    return MlaDecodeWork(
        pieces.items(rows, piece, row_block).astype(np.int32),
        _merges(merged, np.repeat(counts[parted], each)).astype(np.int32),
        pieces.slots,
        tuple(tuple(dict.fromkeys(own)) for own in splits),  # without parts that have no tile
        rows.lse_stride,
        shares,
        unit.rows,
        together,
    )


def _check_together(together: int, *, apart: bool) -> None:
    """ConfigError for a number of parts that blocks do not put together."""
    if together not in TOGETHER:
        raise ConfigError(
            f"together={together} parts of a row block",
            hint=f"one of {', '.join(map(str, TOGETHER))}; 1: the merge kernel merges them",
        )
    if together > 1 and apart:
        raise ConfigError(
            f"together={together} with split_keys or persistent blocks",
            hint="blocks put even parts together",
        )


@dataclass(frozen=True, slots=True, eq=False)
class _QueryRows:
    """Query rows of each sequence: its `tokens`, its row `blocks`, its first row in q, and where
    its head 0 and token 0 are in lse. `templates` [tokens, row blocks, 3]: what the row blocks of a
    sequence of so many tokens have: rows of the sequence before the first, rows, KV head."""

    tokens: Ints
    blocks: Ints
    first: Ints
    lse_at: Ints
    lse_stride: int
    templates: Ints

    @staticmethod
    def of(config: MlaDecodeConfig, tokens: Ints, most: int, *, packed: bool) -> _QueryRows:
        """`most`: rows of a row block. `packed`: sequences follow each other in q and lse, each
        with its own tokens alone."""
        heads, many = config.num_heads, range(config.q_len + 1)
        found: list[list[tuple[int, int, int]]] = []
        for n in many:
            runs = [(0, 0, n * heads)]
            if config.num_kv_heads > 1:
                runs = [
                    (kv_head, token * heads + kv_head * config.group, config.group)
                    for kv_head in range(config.num_kv_heads)
                    for token in range(n)
                ]
            found.append([
                (above + at, min(rows - at, most), kv_head)
                for kv_head, above, rows in runs
                for at in range(0, rows, most)
            ])  # fmt: skip
        templates = np.zeros((len(many), max(map(len, found)), 3), np.int64)
        for n, own in enumerate(found):
            templates[n, : len(own)] = np.array(own, np.int64).reshape(-1, 3)
        starts = np.cumsum(tokens) - tokens
        return _QueryRows(
            tokens,
            np.array([len(own) for own in found])[tokens],
            starts * heads,
            starts if packed else np.arange(len(tokens)) * heads * config.q_len,
            int(tokens.sum()) if packed else config.q_len,
            templates,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """The splits of all sequences, one after the other, each of which is an item a row block:
    `sequence`, `first` tile and `end` tile, the `index` among its sequence's, and `taken` as in an
    item. `stored`: parts of a row block in slots, of which `slot` is the sequence's first."""

    sequence: Ints
    first: Ints
    end: Ints
    index: Ints
    taken: Ints
    stored: Ints
    slot: Ints
    slots: int  # of all
    together: int

    @staticmethod
    def of(
        splits: Sequence[Sequence[int]],
        counts: Ints,
        row_blocks: Ints,
        taken_in: npt.NDArray[Any],
        together: int,
    ) -> _Pieces:
        """`counts`: splits of each sequence; `taken_in`: whether its last takes in the other."""
        sequence = np.repeat(np.arange(len(counts)), counts)
        first = np.array([tile for own in splits for tile in own], np.int64)
        end = np.append(first[1:], 0)
        end[np.cumsum(counts) - 1] = OPEN_END
        index = within(counts)
        last = index == counts[sequence] - 1
        kept = np.where(counts > 1, counts - taken_in, 0)
        slots = row_blocks * kept
        return _Pieces(
            sequence, first, end, index, np.where(taken_in[sequence], np.where(last, 1, -1), 0),
            kept[sequence], (np.cumsum(slots) - slots)[sequence], int(slots.sum()), together,
        )  # fmt: skip

    def items(self, rows: _QueryRows, piece: Ints, row_block: Ints) -> Ints:
        """Items [.., 12] of pieces and row blocks."""
        s, taken, stored = self.sequence[piece], self.taken[piece], self.stored[piece]
        above, height, kv_head = rows.templates[rows.tokens[s], row_block].T
        slots = self.slot[piece] + row_block * stored
        left = (stored > 0) & (taken <= 0)  # it stays in a slot
        made = np.zeros((len(piece), ITEM_INTS), np.int64)
        for column, values in enumerate((
            s, rows.first[s] + above, height, above, rows.tokens[s] - 1, self.first[piece],
            self.end[piece], np.where(left, slots + self.index[piece], -1), rows.lse_at[s], kv_head,
            taken if self.together == 1 else self.together,
            np.where((taken > 0) | (self.together > 1), slots, 0),
        )):  # fmt: skip
            made[:, column] = values
        return made


def _counts(name: str, values: Any, least: int, most: int) -> Ints:
    found = np.asarray(values)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise ConfigError(f"{name} is no list of integers")
    found = found.astype(np.int64)
    wrong = np.flatnonzero((found < least) | (found > most))
    if wrong.size:
        raise ConfigError(f"{name}[{wrong[0]}]={found[wrong[0]]} is not in {least} .. {most}")
    return found


def _merges(firsts: Ints, splits: Ints) -> Ints:
    """The merges [blocks, 8] of row blocks with so many parts, of which `firsts` are the first."""
    _, row, rows, above, _, _, _, slot, lse_at, *_ = firsts.T
    return merge_table(slot=slot, splits=splits, row=row, rows=rows, above=above, lse_at=lse_at)


def merge_blocks(slots: int, row_blocks: int, rows: int = HOPPER.rows) -> int:
    """No plan with so many slots and row blocks, of so many rows, has more merges."""
    most = LINES_A_ROW * rows  # a line a block
    return min(8 * slots, most * row_blocks)


def _tiles(config: MlaDecodeConfig, keys: Ints, tokens: Ints) -> tuple[Ints, Ints]:
    """Tiles of each sequence that a window or a chunk hides, and how many it sees."""
    low = np.zeros(len(keys), np.int64)
    if config.window:
        low = np.maximum(keys - (tokens - 1) - config.window, 0) // TILE
    if config.chunk:
        low = np.maximum(keys - tokens, 0) // config.chunk * config.chunk // TILE
    return low, np.maximum(-(-keys // TILE) - low, 0)


def _splits(
    low: Ints, tiles: Ints, row_blocks: Ints, unit: Unit, *, persistent: bool
) -> tuple[tuple[tuple[int, ...], ...], Cut | None]:
    """The first tile of each split of each sequence, and who has them where that is said."""
    counts, cut = _shares(tiles, row_blocks, unit) if persistent else (None, None)
    if cut is not None:
        return cut.splits(low), cut
    if counts is None:
        counts = even_counts(tiles, row_blocks, unit)
    ends = None if persistent else uneven_ends(tiles, row_blocks, unit, counts)
    if ends is None:
        return _even_splits(low, tiles, counts), None
    return tuple(
        (0, *(a + first for first in own)) for a, own in zip(low.tolist(), ends, strict=True)
    ), None


def _shares(tiles: Ints, row_blocks: Ints, unit: Unit) -> tuple[Ints | None, Cut | None]:
    """Of persistent blocks: even splits of each sequence, where these are known, and who has which
    pieces, where blocks do not have an item each."""
    if unit.costs.further is not None:
        counts = even_counts(tiles, row_blocks, unit)
        return counts, merged_shares(tiles, row_blocks, unit, counts, unit.costs.further)
    if row_blocks.sum() > unit.blocks:
        return None, cut_shares(tiles, row_blocks, unit)
    counts = even_counts(tiles, row_blocks, unit)
    few = (counts * row_blocks).sum() <= unit.blocks
    return counts, None if few else cut_shares(tiles, row_blocks, unit)


def _even_splits(low: Ints, tiles: Ints, counts: Ints) -> tuple[tuple[int, ...], ...]:
    """The first tile of each of `counts` even splits of each sequence."""
    return tuple(
        (0, *(a + first for first in boundaries(n, count)))
        for a, n, count in zip(low.tolist(), tiles.tolist(), counts.tolist(), strict=True)
    )


def _fixed_splits(low: Ints, tiles: Ints, split_keys: int) -> tuple[tuple[int, ...], ...]:
    """The first tile of each split of each sequence, every so many keys."""
    if split_keys < TILE or split_keys % TILE:
        raise ConfigError(
            f"split_keys={split_keys} is no positive multiple of {TILE}",
            hint=f"tiles of {TILE} keys are not cut; 2048 is usual",
        )
    step = split_keys // TILE
    return tuple(
        (0, *range((int(a) // step + 1) * step, int(b), step))
        for a, b in zip(low, low + tiles, strict=True)
    )
