"""Which pages the DMA of a tile needs: look-ups, and the rows that each of them serves.

A look-up serves `unit` consecutive keys, as many as divide both a page and a tile: keys of a unit
lie side by side in memory, other units anywhere. An LDS-DMA instruction of a wave must stay inside
a unit, because a wave has one buffer resource at a time. With units of one key every lane looks up
its own, and fetches from an address of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl import Ring
from mlagen.targets.gfx950.dsl.layout import BitMap
from mlagen.targets.gfx950.dsl.lds import DmaPlan

_LANE_BITS = 6


@dataclass(frozen=True, slots=True)
class WalkPlan:
    """Look-ups whose keys advance together: `start` is where the part of a tile that a thread
    fetches starts, in rows of the tile; `rows` are the look-ups' units, in rows after it."""

    start: BitMap
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AreaPlan:
    """What the passes of one area fetch. `lane_row`: the row in its unit that a thread fetches in
    the first pass; `walk`: number of the walk; of each pass its look-up in that walk, and the rows
    from the look-up's unit to the pass."""

    lane_row: BitMap
    walk: int
    lookups: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RingPlan:
    """Areas of a ring and the walks that they need: areas whose threads fetch the same rows share
    one."""

    areas: tuple[AreaPlan, ...]
    walks: tuple[WalkPlan, ...]

    @property
    def lookups(self) -> int:
        """Pages that are looked up for a tile."""
        return sum(len(walk.rows) for walk in self.walks)


def unit_of(k: PrefillConfig) -> int:
    """Keys that one look-up serves; a whole tile where K and V are contiguous. 1: only with pages
    of one key."""
    return math.gcd(k.page_size, k.kv_block)


def plan_pages(ring: Ring, unit: int) -> RingPlan:
    """The look-ups of a ring's tile; ScheduleError where an instruction would need two pages."""
    split = [split_rows(area.dma, unit, ring.name) for area in ring.areas]
    starts = list(dict.fromkeys(start for _, start in split))
    rows: list[dict[int, None]] = [{} for _ in starts]
    for area, (_, start) in zip(ring.areas, split, strict=True):
        rows[starts.index(start)] |= {row // unit * unit: None for row in area.dma.row_offsets}
    walks = [WalkPlan(start, tuple(sorted(of))) for start, of in zip(starts, rows, strict=True)]
    areas = []
    for area, (lane_row, start) in zip(ring.areas, split, strict=True):
        walk = starts.index(start)
        areas.append(
            AreaPlan(
                lane_row,
                walk,
                tuple(walks[walk].rows.index(row // unit * unit) for row in area.dma.row_offsets),
                tuple(row % unit for row in area.dma.row_offsets),
            )
        )
    return RingPlan(tuple(areas), tuple(walks))


def split_rows(dma: DmaPlan, unit: int, ring: str) -> tuple[BitMap, BitMap]:
    """The row that a thread fetches as (row in its unit, the unit's first row). ScheduleError
    unless the lanes of each instruction lie in one unit, or each has a unit of its own."""
    row = dma.row
    inside, outside = unit - 1, ~(unit - 1)
    within = row.constant & inside
    for image in row.images:
        within |= image & inside
    apart = any(image & outside for image in row.images[:_LANE_BITS])
    crossing = row.constant & outside or any(offset & within for offset in dma.row_offsets)
    if (apart and unit > 1) or crossing:
        raise ScheduleError(
            f"ring {ring!r}: an LDS-DMA instruction fetches rows of more than one page of "
            f"{unit} keys"
        )
    return (
        BitMap(tuple(image & inside for image in row.images), row.constant & inside, row.additive),
        BitMap(tuple(image & outside for image in row.images), 0, row.additive),
    )
