"""Splits of different lengths, where items are more than run at once.

Equal splits of equal sequences leave SMs idle in the last round: 128 items on 74 CTA pairs take two
rounds, for 1.73. So all tiles are put on one line, as for persistent blocks, and cut where a share
ends; pieces are items that start longest first. That is taken where the estimate says that they end
earlier than the best equal splits, with what each further item and the merge cost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlagen.families.mla_decode.even_splits import GAIN, SECOND, Ints, costs_of, end, longest_first
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.shares import ITEM, LEAST, PARTS, cut_line
from mlagen.families.mla_decode.unit import Unit

STEP = 3  # tiles from one share that is tried to the next
# Microseconds that an H200's item takes less where it follows another one on its SM: 256 whole
# items of 64 to 512 tiles took 247, 473, 974 and 1969 us, and 512 of 64 took 467.
FOLLOWS = 12.0
# Few rows must be estimated to end earlier by this factor: memory limits them, so that an item is
# faster than estimated while other SMs are idle, as in the last round of equal splits.
FEW_GAIN = 0.92


def uneven_ends(
    config: MlaDecodeConfig, tiles: Ints, row_blocks: Ints, unit: Unit, counts: Ints
) -> list[list[int]] | None:
    """Tiles after each sequence's first at which its pieces but the last end; None where `counts`
    equal splits are estimated to end earlier, or sequences have different numbers of row blocks."""
    gang = int(row_blocks.max(initial=0))
    if not gang or np.any(row_blocks != gang) or not tiles.any():
        return None
    crowded = int(row_blocks.sum()) > unit.blocks
    if not _gains(config, unit, gang, crowded=crowded):
        return None
    gangs, lengths, costs = unit.blocks // gang, tiles.tolist(), costs_of(config, unit)
    if not gangs:
        return None
    if unit.target == "sm_90a" and not unit.few:  # a beginning is in all choices
        costs = replace(costs, start=costs.start - FOLLOWS)
    earliest = end(costs, tiles, row_blocks, counts, unit.blocks)
    earliest = (earliest - SECOND * bool((counts == 1).all())) * (FEW_GAIN if unit.few else GAIN)
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


def _gains(config: MlaDecodeConfig, unit: Unit, gang: int, *, crowded: bool) -> bool:
    """Whether pieces that are estimated to end earlier do. `crowded`: there are more row blocks
    than SMs. On an H200 each of 103 calls then ended earlier, by up to 35 %; with fewer row blocks,
    where memory limits these and each has keys of its own, up to 16 % later. Those of a B200 are
    predictions."""
    if unit.target == "sm_90a" and unit.few:
        return crowded
    if unit.target == "sm_90a":
        return crowded or gang > 1 or config.cache_dtype != "bf16"
    return unit.target == "sm_100a"
