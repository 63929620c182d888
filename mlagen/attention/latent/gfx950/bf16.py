"""Rows of bf16 on gfx950, which DMA brings to LDS as they are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.gfx950.key_tile import Bf16Tile
from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Request
from mlagen.attention.latent.gfx950.queries import BF16, ColumnGroup
from mlagen.dsl import Access, Binding, Extent, Operation, Tile


class Bf16Rows:
    """Eight lanes fetch a row, 128 bytes of it a pass."""

    look_up, page_slots, scale_bytes, scales = 2, 4, 0, None
    staging: tuple[Request, ...] = ()
    fetched: tuple[Request, ...] = ()
    fetching: tuple[str, ...] = ()
    apart = False

    def __init__(self, loop: LatentLoop) -> None:
        self.loop = loop
        self.tile = Bf16Tile(loop.shape, (ColumnGroup(loop.k.d_qk, BF16, loop.k.dtype),))

    def lane(self) -> dict[str, Request]:
        return {}

    def extents(self) -> dict[str, Extent]:
        return {}

    def declare(self) -> None: ...

    def context(self) -> Mapping[str, Any]:
        return {"dequantized": False}

    def copy(self, tile: Tile) -> Operation:
        loop = self.loop

        def context(at: Binding) -> Mapping[str, Any]:
            passes = dma_passes(loop, at, self.tile.span)
            return {**loop.rows.row(at), "passes": passes}

        return loop.operation(
            "copy", tile, f"storage/copy_{loop.rows.name}", context,
            access=Access("copy", loop.ring.at(tile)), uses=loop.rows.found(tile),
        )  # fmt: skip

    def fetch(self, tile: Tile) -> None: ...


def dma_passes(loop: LatentLoop, at: Binding, span: int) -> list[tuple[int, int]]:
    """Passes (M0, offset), one for each span of a row. The instruction's offset moves the LDS
    side too: M0 makes up for it."""
    slot = loop.ring.slot_base(at.phase)
    return [(slot + area.start - span * n, span * n) for n, area in enumerate(loop.ring.areas)]
