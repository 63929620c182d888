"""How the items of an MLA decode call are distributed to persistent blocks, which take several.

An item is taken to cost `ITEM` tiles besides its own, for its beginning and its end, and `TAKES`
where it takes in a part. Cut and not cut, 128 sequences of 128 heads took on an H200 459 and 453 us
(8192 keys), 1991 and 2033 (32768), 932 and 952 (8192, two new tokens), 465 and 472 (4096, two): by
these numbers the second and the third are cut.

Row blocks of a sequence are taken by blocks side by side, a *gang*, at the same time, so that tiles
are read from L2 once they are there.

* Few row blocks: what `mlagen.families.mla_decode.even_splits` splits them into, one item a block.
* Many: whole, longest first to whom has least; or all tiles on one line, which is cut into equal
  shares where a share ends, if that is estimated to end earlier with what it costs to put parts
  together. A block begins with its end of the line: what it leaves to the next is stored long
  before that one, which has it last, takes it in.
* Splits of fixed keys, sequences with different numbers of row blocks: longest first.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.families.mla_decode.even_splits import SECOND
from mlagen.families.mla_decode.unit import Unit

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

ITEM = 5  # tiles that an item costs besides
LEAST = 4  # tiles of a part that is cut off
TAKES = 3  # tiles that it costs to take in a part
PARTS = 2  # of a row block whose last one takes in the other; the merge kernel has more
USED = 0.94  # share of the blocks that gangs must fill


@dataclass(frozen=True, slots=True)
class Cut:
    """Pieces of sequences, in their order: `ends` tiles after a sequence's first at which each of
    its pieces but the last ends, and the gang, of `gang` blocks, that has each piece."""

    ends: list[list[int]]
    gangs: list[int]
    gang: int

    def splits(self, low: Ints) -> tuple[tuple[int, ...], ...]:
        """The first tile of each split of each sequence, of which `low` are hidden."""
        return tuple(
            (0, *(first + end for end in own))
            for first, own in zip(low.tolist(), self.ends, strict=True)
        )

    def items(self, blocks: int) -> tuple[Ints, Ints, Ints32]:
        """The piece and the row block of each item, in the order of blocks, and `shares`."""
        pieces = np.bincount(self.gangs, minlength=-(-blocks // self.gang))
        of_block = np.repeat(pieces, self.gang)[:blocks]
        of_block[blocks // self.gang * self.gang :] = 0
        shares = np.append(0, np.cumsum(of_block)).astype(np.int32)
        first = np.cumsum(pieces) - pieces
        order = np.lexsort((-np.arange(len(self.gangs)), np.array(self.gangs)))
        block = np.repeat(np.arange(blocks), of_block)
        nth = np.arange(len(block)) - shares[block]
        return order[first[block // self.gang] + nth], block % self.gang, shares


def cut_shares(tiles: Ints, row_blocks: Ints, unit: Unit) -> Cut | None:
    """Which gang has which pieces of the sequences; None where these have different numbers of row
    blocks, or gangs of theirs would leave too many blocks idle."""
    gang, blocks = int(row_blocks.max(initial=0)), unit.blocks
    if not tiles.any() or np.any(row_blocks != gang) or blocks // gang * gang < USED * blocks:
        return None
    gangs, lengths = blocks // gang, tiles.tolist()
    load, _ = _longest_first([n + ITEM for n in lengths], gangs)
    whole = whole_sequences(lengths, gangs, gang)
    low = -(-int(tiles.sum() + ITEM * len(lengths)) // gangs)
    high, best = low + 2 * (ITEM + LEAST), None
    costs = unit.costs
    a_tile = costs.tile + costs.crowd[-1][1]
    while low < high:
        share = (low + high) // 2
        found = cut_line(lengths, gangs, gang, share)
        if found is None:
            low = share + 1
        else:
            high, best = share, found
    if best is None:
        return whole
    parts = gang * sum(len(own) + 1 for own in best.ends if len(own) >= PARTS)
    merge = SECOND + costs.merge + costs.part * parts if parts else 0.0
    return best if high * a_tile + merge < load * a_tile else whole


def whole_sequences(lengths: list[int], gangs: int, gang: int) -> Cut:
    """Each sequence whole, longest first, to the gang that has least."""
    _, of_gang = _longest_first([n + ITEM for n in lengths], gangs)
    return Cut([[] for _ in lengths], of_gang, gang)


def cut_line(
    lengths: list[int], gangs: int, gang: int, share: int, *, item: int = ITEM, takes: int = TAKES
) -> Cut | None:
    """All tiles in one line, cut after `share` of them and of what items cost, at even tiles; None
    where the gangs do not suffice. `item` and `takes`: tiles that an item costs besides, and that
    it costs to take in a part."""
    ends: list[list[int]] = []
    held: list[int] = []
    now, room = 0, share
    for length in lengths:
        own: list[int] = []
        at = 0
        while length - at + item + takes * len(own) > room:
            taken = min(room - item, length - at - LEAST) // 2 * 2
            if taken >= LEAST:
                held.append(now)
                at += taken
                own.append(at)
            elif room == share:
                return None
            now, room = now + 1, share
            if now == gangs:
                return None
        held.append(now)
        room -= length - at + item + takes * len(own)
        ends.append(own)
    return Cut(ends, held, gang)


def _longest_first(costs: list[int], bins: int) -> tuple[int, list[int]]:
    """The bin of each, always the emptiest, and what the fullest holds."""
    free = [(0, index) for index in range(bins)]
    of_bin = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, chosen = free[0]
        of_bin[index] = chosen
        heapq.heapreplace(free, (load + costs[index], chosen))
    return max(load for load, _ in free), of_bin


def deal(row_blocks: Ints, tiles: Ints, blocks: int) -> tuple[Ints, Ints32]:
    """The order of items by block, and `shares`, of pieces in descending order of their `tiles`,
    each of so many row blocks: always to the blocks that have least."""
    costs = np.repeat(tiles + ITEM, row_blocks).tolist()
    _, of_block = _longest_first(costs, blocks)
    owner = np.array(of_block, np.int64)
    counts = np.bincount(owner, minlength=blocks)
    return np.argsort(owner, kind="stable"), np.append(0, np.cumsum(counts)).astype(np.int32)
