"""Rows of the cache that are stored in e4m3, or partly so, on gfx950, and come to LDS as they are
stored: what is multiplied in bf16 is converted on its way to the products.

Rows with scales: each of the lanes that fetch a row fetches its scale, to behind the tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.gfx950.bf16 import dma_passes
from mlagen.attention.latent.gfx950.key_tile import E4m3Tile
from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Request
from mlagen.attention.latent.gfx950.products import AHEAD
from mlagen.attention.latent.gfx950.queries import BF16, E4M3, ColumnGroup
from mlagen.attention.latent.gfx950.shape import FRAGMENT, GROUP, LANES, QUAD
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.dsl import Access, Binding, Extent, Operation, Tile, Value, at_least

COPIES = 4  # of a key's scale in LDS: one of each lane that fetches its row

assert E4m3Tile.keys * COPIES == WAVES * LANES, "each lane fetches a part of one row"


class Quantized:
    """Four lanes fetch a row, 64 bytes of it a pass."""

    look_up, fetched, fetching = 1, (), ()

    def __init__(self, loop: LatentLoop) -> None:
        self.loop = loop
        self.tile = E4m3Tile(loop.shape, self._columns(), loop.products.multiplied)
        self.scales = LdsScales(loop) if loop.k.rope_aware else None
        self.scale_bytes = self.tile.keys * 4 * COPIES if self.scales else 0

    def _columns(self) -> tuple[ColumnGroup, ...]:
        """A row's: those of one type, or latent and rotary ones. With 32 rows one instruction adds
        four steps of e4m3, which two reads bring where nothing is converted."""
        k, wide = self.loop.k, self.loop.shape.rows > GROUP
        latent, rotary = (E4M3, BF16) if k.rope_aware_queries else (k.dtype, k.dtype)
        joined = 4 if latent == E4M3 and wide else 1
        if not k.rope_aware:
            pieces = joined // 2 if wide and self.loop.products.multiplied == E4M3 else joined
            return (ColumnGroup(k.d_qk, E4M3, latent, pieces, joined),)
        return ColumnGroup(k.d_v, E4M3, latent, joined, joined), ColumnGroup(
            k.d_rope, BF16, rotary, 2
        )

    @property
    def page_slots(self) -> int:
        return self.loop.ring.slots

    @property
    def few_registers(self) -> bool:
        """Whether queries are multiplied in bf16, which takes twice the registers, or a wave has 32
        of them."""
        return self.tile.columns[0].product == BF16 or self.loop.shape.rows > GROUP

    @property
    def apart(self) -> bool:
        return not self.few_registers

    @property
    def staging(self) -> tuple[Request, ...]:
        """Scales of all of a lane's keys; of some of them after another where registers are few."""
        wide = ("WIDE", AHEAD * FRAGMENT, "operands of bf16 that were stored in e4m3")
        if not self.scales:
            return (wide,)
        count = self.tile.score_registers
        if self.few_registers:
            count = max(AHEAD * FRAGMENT, self.loop.shape.result)
        return wide, ("SCALES", count, "scales of the keys whose scores this lane has")

    def lane(self) -> dict[str, Request]:
        what = "what makes the row's dot products log2 units"
        return {"factor": ("FACTOR", 1, what)} if self.loop.k.rope_aware_queries else {}

    def extents(self) -> dict[str, Extent]:
        return {"SCALES": at_least("registers", 1, "scales of some keys")} if self.scales else {}

    def declare(self) -> None: ...

    def context(self) -> Mapping[str, Any]:
        return {"weights": self.scales.weights} if self.scales else {}

    def copy(self, tile: Tile) -> Operation:
        """Passes of the areas; and M0 of the scales, 4 bytes a lane."""
        loop, ring = self.loop, self.loop.ring

        def context(at: Binding) -> Mapping[str, Any]:
            scales_at = ring.slot_base(at.phase) + ring.extra_start if ring.extra else None
            passes = dma_passes(loop, at, self.tile.span)
            return {**loop.rows.row(at), "passes": passes, "scales_at": scales_at}

        return loop.operation(
            "copy", tile, f"storage/copy_quantized_{loop.rows.name}", context,
            access=Access("copy", ring.at(tile)), uses=loop.rows.found(tile),
        )  # fmt: skip

    def fetch(self, tile: Tile) -> None: ...


class LdsScales:
    """A scale a key, behind the tile in LDS."""

    weights = "latent/storage/lds_scale_weights.s.j2"

    def __init__(self, loop: LatentLoop) -> None:
        self.loop = loop

    def load(self, tile: Tile) -> None: ...

    def scale_scores(self, tile: Tile) -> None:
        more = {"access": self.loop.read(tile), "uses": (Value("S", tile),)}
        self.loop.record(
            "scale_scores", tile, "storage/lds_scale_scores", self._groups,
            defines=(Value("SCALES", tile),), **more,
        )  # fmt: skip

    def weighing(self, tile: Tile) -> dict[str, Any]:
        uses = (Value("SCALES", tile),)
        return {"context": self._groups, "access": self.loop.read(tile), "uses": uses}

    def _groups(self, at: Binding) -> dict[str, Any]:
        """A tile's scales in LDS, and which registers of S they go with, as many at once as there
        are registers for. Each further part of a row is four keys on."""
        loop = self.loop
        held, keys = loop.tiles["SCALES"].regs(), loop.score_keys
        return {
            "scales": held,
            "scales_at": loop.ring.slot_base(at.phase) + loop.ring.extra_start,
            "part_stride": QUAD * COPIES * 4,
            "groups": [
                [(r, 4 * COPIES * keys[r]) for r in range(len(keys))[first : first + len(held)]]
                for first in range(0, len(keys), len(held))
            ],
        }
