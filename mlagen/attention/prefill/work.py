"""Work items of a persistent prefill kernel: what is legal in them, checked one by one.

A fixed number of workgroups shares all query tiles of all heads. Workgroup g walks items
`work_indptr[g] .. work_indptr[g + 1] - 1` of `work_info`, int32 [items, 8]. An item is one query
tile of one head against one range of its sequence's keys, in blocks (pages of the page list). The
layout is that of AITER's kernel `mla_pfl_qh192_vh128_m32x8_n128x1`.

An item that covers all keys of its tile writes O (`partial_o_loc` -1). The others write an fp32 O,
normalised, and its LSE to rows `partial_o_loc .. partial_o_loc + tile_q - 1` of partial buffers
[rows, heads, 128] and [rows, heads], which are merged afterwards by another kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.arrays import check_int32, check_offsets

Ints = npt.NDArray[np.int32]

FINAL = -1  # partial_o_loc of an item that writes O itself
WORDS = 8  # int32 an item
MAX_HEAD = 2**15  # heads are packed as two 16-bit numbers


@dataclass(frozen=True, slots=True, order=True)
class WorkItem:
    """One query tile of one head against some of its keys; see the module."""

    batch: int
    partial_o_loc: int
    qo_start: int  # rows of the packed Q and O
    qo_end: int
    kv_start: int  # blocks, as `kv_indptr` counts them
    kv_end: int
    kv_offset: int  # keys of the sequence after kv_end; 0 where the tile's end is reached
    head: int

    @property
    def partial(self) -> bool:
        """Whether it writes a part of O that is to be merged."""
        return self.partial_o_loc != FINAL

    def words(self) -> tuple[int, ...]:
        """As the kernel reads it."""
        heads = self.head | (self.head + 1) << 16
        return (
            self.batch, self.partial_o_loc, self.qo_start, self.qo_end, self.kv_start, self.kv_end,
            self.kv_offset, heads,
        )  # fmt: skip

    @staticmethod
    def of_words(words: Sequence[int]) -> WorkItem:
        """From what `words` makes. ConfigError for an item of several heads."""
        *fields, heads = (int(word) for word in words)
        head, end = heads & 0xFFFF, heads >> 16 & 0xFFFF
        if end != head + 1:
            raise ConfigError(
                f"the item {[*fields, heads]} is for heads {head} .. {end - 1}: an item is for one"
            )
        batch, slot, qo_start, qo_end, kv_start, kv_end, offset = fields
        return WorkItem(batch, slot, qo_start, qo_end, kv_start, kv_end, offset, head)


def work_arrays(groups: Iterable[Sequence[WorkItem]]) -> tuple[Ints, Ints]:
    """`work_indptr` [workgroups + 1] and `work_info` [items, 8] of each workgroup's items."""
    indptr, words = [0], []
    for items in groups:
        words += [item.words() for item in items]
        indptr.append(len(words))
    return np.array(indptr, np.int32), np.array(words, np.int32).reshape(-1, WORDS)


@dataclass(frozen=True, slots=True)
class WorkShape:
    """The call that work items are for.

    `qo_indptr` [batch + 1]: rows of the packed Q; `kv_indptr` [batch + 1]: blocks of keys, so that
    sequence b has some of `kv_indptr[b] .. kv_indptr[b + 1] - 1` of the page list, the first ones;
    `kv_lengths` [batch]: keys; `start_pos` [batch]: position of each sequence's first row. Where
    `causal`, a row sees keys up to its own position.
    """

    qo_indptr: tuple[int, ...]
    kv_indptr: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    start_pos: tuple[int, ...]
    heads: int
    causal: bool
    tile_q: int = 256
    block_size: int = 1

    def keys_of(self, batch: int, qo_start: int, qo_end: int) -> int:
        """Keys that rows `qo_start .. qo_end - 1` of a sequence see, at most."""
        keys = self.kv_lengths[batch]
        if not self.causal:
            return keys
        end = self.start_pos[batch] + qo_end - self.qo_indptr[batch]
        return min(end, keys)

    def blocks_of(self, batch: int) -> tuple[int, int]:
        """First and last + 1 block that hold a sequence's keys."""
        first = self.kv_indptr[batch]
        return first, first - (-self.kv_lengths[batch] // self.block_size)

    def tiles_of(self, batch: int) -> list[tuple[int, int]]:
        """First and last + 1 row of each query tile of a sequence, of the packed Q."""
        first, end = self.qo_indptr[batch : batch + 2]
        return [(at, min(at + self.tile_q, end)) for at in range(first, end, self.tile_q)]


def check_work(
    shape: WorkShape, work_indptr: Any, work_info: Any, *, partial_rows: int
) -> tuple[tuple[WorkItem, ...], ...]:
    """Each workgroup's items. ConfigError unless they do all the work once.

    What is refused: offsets that fall or do not end at the items; an item that is no query tile of
    its sequence, of no head, or that runs past its sequence's blocks; a tile whose items overlap,
    leave keys out that it sees, or of which one writes O though there are several; a partial O
    past `partial_rows`, the rows of the partial buffers, or written twice.
    """
    check_int32("work_indptr", work_indptr, (None,), least=2)
    check_int32("work_info", work_info, (None, WORDS))
    check_offsets("work_indptr", work_indptr, len(work_info), "work_info")
    items = [WorkItem.of_words(words) for words in work_info]
    tiles: dict[tuple[int, int, int], list[tuple[int, WorkItem]]] = defaultdict(list)
    slots: dict[tuple[int, int], int] = {}
    legal = {(b, *t): None for b in range(len(shape.kv_lengths)) for t in shape.tiles_of(b)}
    for index, item in enumerate(items):
        _check_item(shape, index, item, legal)
        tiles[item.head, item.qo_start, item.qo_end].append((index, item))
        if item.partial:
            _check_slot(shape, index, item, slots, partial_rows)
    for batch, start, end in legal:
        for head in range(shape.heads):
            _check_tile(shape, batch, head, start, end, tiles.get((head, start, end), []))
    return tuple(tuple(items[first:end]) for first, end in pairwise(work_indptr.tolist()))


def _check_item(shape: WorkShape, index: int, item: WorkItem, legal: Iterable[Any]) -> None:
    if not 0 <= item.batch < len(shape.kv_lengths):
        raise ConfigError(
            f"work_info[{index}]: batch {item.batch} is not in 0 .. {len(shape.kv_lengths) - 1}"
        )
    if not 0 <= item.head < shape.heads:
        raise ConfigError(f"work_info[{index}]: head {item.head} is not in 0 .. {shape.heads - 1}")
    if (item.batch, item.qo_start, item.qo_end) not in legal:
        raise ConfigError(
            f"work_info[{index}]: rows {item.qo_start} .. {item.qo_end - 1} are no query tile of "
            f"sequence {item.batch}, which has rows {shape.qo_indptr[item.batch]} .. "
            f"{shape.qo_indptr[item.batch + 1] - 1} in tiles of {shape.tile_q}"
        )
    first, end = shape.blocks_of(item.batch)
    if not first <= item.kv_start <= item.kv_end <= end:
        raise ConfigError(
            f"work_info[{index}]: blocks {item.kv_start} .. {item.kv_end - 1} run out of those of "
            f"sequence {item.batch}, {first} .. {end - 1}"
        )


def _check_slot(
    shape: WorkShape,
    index: int,
    item: WorkItem,
    slots: dict[tuple[int, int], int],
    partial_rows: int,
) -> None:
    """A slot is written whole, by one item of each head."""
    at = item.partial_o_loc
    if at < 0 or at % shape.tile_q:
        raise ConfigError(
            f"work_info[{index}]: partial_o_loc={at} is neither {FINAL} nor a multiple of "
            f"{shape.tile_q}"
        )
    if at + shape.tile_q > partial_rows:
        raise ConfigError(
            f"work_info[{index}]: partial_o_loc={at} needs {at + shape.tile_q} rows, the partial "
            f"buffers have {partial_rows}",
            hint=f"all {shape.tile_q} rows of a tile are written, those beyond the sequence too",
        )
    known = slots.setdefault((at, item.head), index)
    if known != index:
        raise ConfigError(
            f"work_info[{index}] and work_info[{known}] both write partial_o_loc={at} of head "
            f"{item.head}"
        )


def _check_tile(
    shape: WorkShape, batch: int, head: int, start: int, end: int, own: list[tuple[int, WorkItem]]
) -> None:
    """The items of a tile cover the blocks that it sees, once."""
    what = f"rows {start} .. {end - 1} of head {head}"
    if not own:
        raise ConfigError(f"no work item computes {what}")
    own.sort(key=lambda entry: (entry[1].kv_start, entry[1].kv_end))
    if len(own) > 1:
        for index, item in own:
            if not item.partial:
                raise ConfigError(
                    f"work_info[{index}] writes O of {what}, which {len(own)} items compute",
                    hint="items of a split tile need a partial_o_loc",
                )
    first = shape.kv_indptr[batch]
    seen = max(shape.keys_of(batch, start, end), 0)
    reached = first
    for index, item in own:
        if item.kv_start != reached:
            how = "overlap" if item.kv_start < reached else "leave a gap"
            raise ConfigError(
                f"work_info[{index}]: the items of {what} {how}: blocks begin at {item.kv_start}, "
                f"those before end at {reached}"
            )
        reached = item.kv_end
    if (reached - first) * shape.block_size < seen:
        raise ConfigError(
            f"work_info[{own[-1][0]}]: the items of {what} end at block {reached}, but the tile "
            f"sees {seen} keys, to block {first - (-seen // shape.block_size)}"
        )
