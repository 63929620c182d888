"""Rows of e4m3 on gfx950 that become bf16 on their way to LDS: each number is converted once for
all waves, and what follows is that of bf16 rows.

Eight lanes have a row, each 8 columns of every 64: an *area* of a tile in LDS has 64 columns of all
its keys as bf16. A lane loads its numbers and their scales to accumulation registers; a tile later
they are converted and stored. Columns of bf16 are stored as they are.

With one scale a key, S is multiplied by it before the softmax, and P after the row sum has it. Each
lane loads the scale of one key; the lanes that have its score take it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mlagen.attention.latent.gfx950.key_tile import Bf16Tile
from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Request
from mlagen.attention.latent.gfx950.queries import BF16, ColumnGroup
from mlagen.dsl import Access, Binding, Extent, Operation, Tile, Value, at_least
from mlagen.families.mla_sparse.gfx950.listed import Listed, named
from mlagen.families.mla_sparse.gfx950.scale_sources import (
    AREA,
    DWORD,
    SOURCES,
    AsStored,
    Load,
    ScaleSource,
)

WIDE = 8  # registers in which numbers are converted


class Dequantized:
    """The rows of a format that is not bf16. How a lane comes to scales of columns is a
    `ScaleSource`."""

    look_up, page_slots, scale_bytes, apart = 2, 2, 0, False
    staging = (("WIDE", WIDE, "numbers that become bf16; scales of keys"),)

    def __init__(self, loop: LatentLoop) -> None:
        self.loop, self.row = loop, loop.k.row_format
        self.tile = Bf16Tile(loop.shape, (ColumnGroup(loop.k.d_qk, BF16, loop.k.dtype),))
        by_key = self.row.scale == "side" and not self.row.block
        self.scales = LaneScales(loop) if by_key else None
        self.fetching = ("fetch", "load_scales") if by_key else ("fetch",)

    @property
    def plain_areas(self) -> int:
        """Areas of e4m3 columns."""
        return self.row.content(self.loop.k.d_qk) // AREA

    @cached_property
    def source(self) -> ScaleSource | None:
        """Of scales that multiply numbers before they are rounded to bf16."""
        first = 2 * self.plain_areas + (DWORD if self.row.rope else 0)
        made = SOURCES[self.row.scale, self.row.behind > 0] if self.row.once else None
        return made(self.row, self.loop.k.d_qk, first) if made else None

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """All of a tile, by address."""
        found = [Load("column", 2 * n, 2, AREA * n) for n in range(self.plain_areas)]
        if self.row.rope:
            at = self.row.content(self.loop.k.d_qk) + (
                self.source.before_rope if self.source else 0
            )
            found.append(Load("rope", 2 * self.plain_areas, DWORD, at))
        return (*found, *(self.source.loads if self.source else ()))

    @property
    def fetched(self) -> tuple[Request, ...]:
        count = max(load.first + load.count for load in self.loads)
        return (("RAW", count, "rows as they are stored"),)

    def lane(self) -> dict[str, Request]:
        return {}

    def extents(self) -> dict[str, Extent]:
        ((_, count, _),) = self.fetched
        raw = at_least("registers", count, "a tile's rows as they are stored")
        return {"RAW": raw, "WIDE": at_least("registers", WIDE, "numbers in conversion")}

    def declare(self) -> None:
        if self.scales:
            self.scales.declare()

    def context(self) -> Mapping[str, Any]:
        raw = self.loop.tiles["RAW"].regs()
        return {
            "dequantized": True,
            "source": self.source,
            "conversion": (self.source or AsStored).conversion,
            "RAW": raw,
            "WIDE": self.loop.tiles["WIDE"].regs(),
            "loads": [(raw[load.first : load.first + load.count], load) for load in self.loads],
            "weights": self.scales.weights if self.scales else None,
        }

    # ---- operations ---------------------------------------------------------------------------

    def fetch(self, tile: Tile) -> None:
        """Load a tile's rows, as they are stored, to registers."""
        rows = self.loop.rows
        self.loop.record(
            "fetch", tile, "storage/fetch", rows.row, uses=rows.found(tile),
            defines=(Value("RAW", tile),),
        )  # fmt: skip

    def copy(self, tile: Tile) -> Operation:
        """The tile from registers, as bf16, where the DMA of bf16 rows would put it."""
        return self.loop.operation(
            "copy", tile, "storage/convert", self._converted,
            access=Access("copy", self.loop.ring.at(tile)), uses=(Value("RAW", tile),),
        )  # fmt: skip

    def _converted(self, at: Binding) -> dict[str, Any]:
        """Of each area its place, its bf16 numbers or words of e4m3, and register and first bit of
        a scale that is not there yet."""
        raw, before = self.loop.tiles["RAW"].regs(), None
        areas = []
        for n, place in enumerate(self.loop.ring.areas):
            rope = n >= self.plain_areas
            scale = self.source.of_area(n) if self.source and not rope else None
            areas.append(
                {
                    "at": place.start,
                    "rope": raw[2 * n : 2 * n + 4] if rope else None,
                    "words": list(raw[2 * n : 2 * n + 2]),
                    "scale": raw[scale[0]] if scale and scale != before else None,
                    "bit": scale[1] if scale else 0,
                }
            )
            before = scale
        return {"slot": self.loop.ring.slot_base(at.phase), "areas": areas}


class LaneScales:
    """A scale a key, in the lane that has the key in the mask."""

    weights = "latent/storage/lane_scale_weights.s.j2"

    def __init__(self, loop: LatentLoop) -> None:
        self.loop = loop

    def declare(self) -> None:
        what = "scale of the key that this lane has in the mask"
        self.held = self.loop.space.registers.block("SCALES", 1, what, slots=2, align=1)

    def load(self, tile: Tile) -> None:
        """Load the scale of the key that each lane has in the mask."""
        rows = self.loop.rows
        assert isinstance(rows, Listed)
        listed = rows.listed

        def context(at: Binding) -> dict[str, Any]:
            return {**named(listed, at), "scales": self.held.regs(at.phase)}

        self.loop.record(
            "load_scales", tile, "storage/lane_scales", context,
            uses=tuple(block.at(tile) for block in listed), defines=(self.held.at(tile),),
        )  # fmt: skip

    def scale_scores(self, tile: Tile) -> None:
        def context(at: Binding) -> dict[str, Any]:
            return {"scales": self.held.regs(at.phase), "rows": self.loop.score_keys}

        self.loop.record(
            "scale_scores", tile, "storage/lane_scale_scores", context,
            uses=(Value("S", tile), self.held.at(tile)), defines=(Value("WIDE", tile),),
        )  # fmt: skip

    def weighing(self, tile: Tile) -> dict[str, Any]:
        return {"uses": (Value("WIDE", tile),)}
