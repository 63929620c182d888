"""Shares of persistent blocks, by what a further item of a block costs.

Whole sequences go to whom has least; or all tiles are put on one line, which is cut where a share
ends; or equal splits have a block each. That is taken which is estimated to end first, with what
each further item of a block costs, and the merge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.attention.latent.costs import Costs
from mlagen.families.mla_decode.even_splits import GAIN, SECOND, Ints, end
from mlagen.families.mla_decode.shares import LEAST, PARTS, Cut, cut_line, whole_sequences
from mlagen.families.mla_decode.unit import Unit


@dataclass(frozen=True, slots=True)
class _Timed:
    """Which gang has what, and when that is estimated to end."""

    cut: Cut
    time: float


def merged_shares(
    tiles: Ints, row_blocks: Ints, unit: Unit, counts: Ints, further: float
) -> Cut | None:
    """Which gang has which pieces of the sequences; None where `counts` equal splits, an item a
    block, are estimated to end first, or sequences have different numbers of row blocks."""
    gang = int(row_blocks.max(initial=0))
    if not gang or np.any(row_blocks != gang) or not tiles.any() or unit.blocks < gang:
        return None
    costs, gangs, lengths = unit.costs, unit.blocks // gang, tiles.tolist()
    found = [_timed(costs, further, lengths, whole_sequences(lengths, gangs, gang))]
    a_tile = costs.item(1, 1.0) - costs.start
    item = max(round(further / a_tile), 1)
    low = -(-int(tiles.sum() + item * len(lengths)) // gangs)
    for share in range(low, low + 2 * (item + LEAST)):
        cut = cut_line(lengths, gangs, gang, share, item=item, takes=0)
        if cut is not None:
            timed = _timed(costs, further, lengths, cut)
            found.append(_Timed(timed.cut, (timed.time + SECOND) / GAIN))
            break
    best = min(found, key=lambda one: one.time)
    if (counts * row_blocks).sum() > unit.blocks:
        return best.cut
    even = end(costs, tiles, row_blocks, counts, unit.blocks) + SECOND * bool((counts > 1).any())
    return best.cut if best.time < even else None


def _timed(costs: Costs, further: float, lengths: list[int], cut: Cut) -> _Timed:
    """When shares are estimated to end."""
    pieces = [np.diff([0, *own, n]) for own, n in zip(cut.ends, lengths, strict=True)]
    tiles = np.concatenate(pieces)
    items = np.bincount(cut.gangs)
    alone = np.bincount(cut.gangs, weights=costs.item(tiles, 1.0) - costs.start + further)
    ended = float((alone[items > 0] + costs.start - further).max())
    parts = cut.gang * sum(len(own) * (1 + (len(own) == PARTS)) for own in pieces if len(own) > 1)
    return _Timed(cut, ended + costs.once(2, parts))
