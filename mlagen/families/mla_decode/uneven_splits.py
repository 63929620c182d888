"""Splits of different lengths, where items are more than run at once.

Equal splits of equal sequences leave SMs idle in the last round: 128 items on 74 CTA pairs take two
rounds, for 1.73. So all tiles are put on one line, as for persistent blocks, and cut where a share
ends; pieces are items that start longest first. That is taken where the estimate says that they end
earlier than the best equal splits, with what each further item and the merge cost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlagen.attention.latent.costs import Uneven
from mlagen.families.mla_decode.even_splits import SECOND, Ints, end, longest_first
from mlagen.families.mla_decode.shares import ITEM, LEAST, PARTS, cut_line
from mlagen.families.mla_decode.unit import Unit

STEP = 3  # tiles from one share that is tried to the next


def uneven_ends(tiles: Ints, row_blocks: Ints, unit: Unit, counts: Ints) -> list[list[int]] | None:
    """Tiles after each sequence's first at which its pieces but the last end; None where `counts`
    equal splits are estimated to end earlier, or sequences have different numbers of row blocks."""
    gang = int(row_blocks.max(initial=0))
    if not gang or np.any(row_blocks != gang) or not tiles.any():
        return None
    if not _tried(unit.costs.uneven, gang, crowded=int(row_blocks.sum()) > unit.blocks):
        return None
    gangs, lengths = unit.blocks // gang, tiles.tolist()
    if not gangs:
        return None
    # A beginning is in all choices.
    costs = replace(unit.costs, start=unit.costs.start - unit.costs.follows)
    earliest = end(costs, tiles, row_blocks, counts, unit.blocks)
    earliest = (earliest - SECOND * bool((counts == 1).all())) * costs.gain
    best = None
    low = -(-int(tiles.sum() + ITEM * len(lengths)) // gangs)
    for share in range(low, low + 2 * (ITEM + LEAST), STEP):
        cut = cut_line(lengths, gangs, gang, share)
        if cut is None:
            continue
        pieces = [np.diff([0, *ends, n]) for ends, n in zip(cut.ends, lengths, strict=True)]
        times = np.repeat(costs.item(np.concatenate(pieces), 1.0), gang)
        parts = gang * sum(len(own) * (1 + (len(own) == PARTS)) for own in pieces if len(own) > 1)
        ended = longest_first(times, unit.blocks) + costs.once(2, parts)
        if ended < earliest:
            earliest, best = ended, cut.ends
    return best


def _tried(uneven: Uneven, gang: int, *, crowded: bool) -> bool:
    """Whether pieces of different lengths are tried. `crowded`: there are more row blocks than run
    at once; `gang`: row blocks of a sequence."""
    several = uneven == "shared" and gang > 1
    return uneven == "always" or (uneven != "never" and crowded) or several
