"""Paged K and V: which page each DMA instruction of a tile fetches from, and its registers.

A page of 64 keys or more holds whole tiles: a tile has one page, one buffer resource, and a byte
offset inside the page. A page of 16 or 32 keys is a part of a tile, but never less than the rows
of one wave's DMA instruction: each wave looks up the pages of its own instructions. Either way a
resource starts at its page and ends with the page's last key of the sequence, so that rows behind
it arrive as zeros whatever the pool holds there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.dsl import Regs, Ring, Space
from mlagen.dsl.layout import BitMap
from mlagen.errors import ScheduleError
from mlagen.kernels.division import Divider
from mlagen.kernels.fragments import BF16
from mlagen.problem import MhaConfig

_LANE_BITS = 6


@dataclass(frozen=True)
class Part:
    """What one lookup serves: the DMA passes `passes` of a tile, whose rows of this wave start
    `row` keys behind `RingPages.next_key`; the page's number and resource in scalar registers."""

    row: int
    passes: tuple[int, ...]
    page: Regs
    buffer: Regs


@dataclass(frozen=True)
class RingPages:
    """Lookups of one ring. `next_key`: key that this wave's part of the next tile starts at, and
    `entry`: byte offset of its page in the table's row. `inside`: key of its page that the tile
    starts at; None where pages are not larger than a tile.
    `lane_row`: row in its page that a thread fetches. `wave_row`: where a wave's page starts in the
    tile, as a map of the thread."""

    next_key: Regs
    entry: Regs
    parts: tuple[Part, ...]
    inside: Regs | None
    lane_row: BitMap
    wave_row: BitMap


class Pages:
    """Page lookups of K and V. Raises ScheduleError where an instruction would need two pages."""

    def __init__(
        self, k: MhaConfig, s: Space, rings: tuple[Ring, ...], buffers: Mapping[str, Regs]
    ) -> None:
        self.k = k
        self.row_bytes = k.num_kv_heads * k.depth * BF16
        self.page_bytes = k.page_size * self.row_bytes
        self.divider = Divider.of(k.page_size)
        self.last_entry = (
            s.registers.scalar("LASTPAGE", 1, "byte offset of the last page in the table's row")
            if self.small
            else None
        )
        self.rings = {ring.name: self._ring(s, ring, buffers[ring.name]) for ring in rings}

    @property
    def small(self) -> bool:
        """Whether a tile lies in several pages."""
        return self.k.page_size < self.k.kv_block

    @property
    def buffers(self) -> tuple[Regs, ...]:
        """Every resource that pages are fetched through."""
        return tuple(part.buffer for ring in self.rings.values() for part in ring.parts)

    def lookup(self, ring: Ring, table: Regs, scratch: Regs) -> dict[str, Any]:
        """Operands of `mha/find_pages`."""
        pages = self.rings[ring.name]
        return {
            "parts": pages.parts,
            "entry": pages.entry,
            "last_entry": self.last_entry,
            "page_size": self.k.page_size,
            "table": table,
            "scratch": scratch,
        }

    def _ring(self, s: Space, ring: Ring, buffer: Regs) -> RingPages:
        scalar = s.registers.scalar
        name, size = ring.name, self.k.page_size
        offsets = ring.dma.row_offsets
        next_key = scalar(f"{name}NEXT", 1, f"key of the next {name} tile, or of this wave's part")
        entry = scalar(f"{name}ENTRY", 1, f"byte offset of its {name} page in the table's row")
        if not self.small:
            page = scalar(f"{name}PAGE", 1, f"page of the next {name} tile")
            inside = None
            if size > self.k.kv_block:
                inside = scalar(f"{name}IN", 1, f"key of its page that the next {name} tile is at")
            parts = (Part(0, tuple(range(len(offsets))), page, buffer),)
            images = (0,) * len(ring.dma.row.images)
            return RingPages(next_key, entry, parts, inside, ring.dma.row, BitMap(images))
        lane_row, wave_row = split_rows(ring, size)
        numbers = scalar(f"{name}PAGE", len(offsets), f"pages of the next {name} tile")
        more = [
            scalar(f"SRD{name}{index}", 4, f"buffer resource of {name}, pass {index}", align=4)
            for index in range(1, len(offsets))
        ]
        found = tuple(
            Part(row, (index,), numbers[index], resource)
            for index, (row, resource) in enumerate(zip(offsets, (buffer, *more), strict=True))
        )
        return RingPages(next_key, entry, found, None, lane_row, wave_row)


def split_rows(ring: Ring, page_size: int) -> tuple[BitMap, BitMap]:
    """The rows that a tile's DMA fetches, as (row in its page, page's first row) of the thread.

    ScheduleError unless the lanes of each instruction lie in one page.
    """
    row = ring.dma.row
    inside, outside = page_size - 1, ~(page_size - 1)
    apart = any(image & outside for image in row.images[:_LANE_BITS])
    if apart or row.constant & outside or any(row_ & inside for row_ in ring.dma.row_offsets):
        raise ScheduleError(
            f"ring {ring.name!r}: an LDS-DMA instruction fetches rows of more than one page of "
            f"{page_size} keys"
        )
    return (
        BitMap(tuple(image & inside for image in row.images), row.constant),
        BitMap(tuple(image & outside for image in row.images)),
    )
