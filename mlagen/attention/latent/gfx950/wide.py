"""The loop over latent rows on gfx950 with 32 query rows a wave: what differs from 16.

O takes 256 registers of a lane and Q 144, more than there are vector registers: a wave has a SIMD
to itself, and Q, the bands and the last columns of O are accumulation registers. Products, LDS
reads and loads take these as they are; to be multiplied, O goes by way of vector registers.

So M seldom moves: it is a whole number of log2 units, and stays until a score is more than `SLACK`
above it. P rounds the same whichever of such M it has, and exp2(M - M') is a power of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.shape import QUAD
from mlagen.attention.prefill.gfx950.float_literals import hex_float
from mlagen.dsl import Extent, Operation, Tile, Value, exactly
from mlagen.targets.gfx950.dsl import Regs

SLACK = 8.0  # log2 units: P is at most 2^8


class SeldomMoved(LatentLoop):
    """An M that seldom moves."""

    @property
    def more(self) -> Mapping[str, Any]:
        return {"slack": hex_float(SLACK)}

    def maximum(self, tile: Tile) -> Operation:
        """The rows' maxima, and which are too far above M."""
        uses = (Value("S", tile),)
        return self._record("maximum", tile, uses=uses, template="maximum_seldom")

    def rescale(self, tile: Tile) -> Operation:
        """M, O and l follow the maxima, where one is too far above M."""
        return self._record("rescale", tile, guarded=True, template="rescale_seldom")


class WideOutput(SeldomMoved):
    """The same with an output of which the first columns are in O and the last ones in OA."""

    def _output_extents(self, columns: int) -> dict[str, Extent]:
        first, width = len(self.tiles["O"].regs()), self.shape.result
        return {
            "O": exactly("registers", range(width, columns, width), "blocks of columns"),
            "OA": exactly("registers", columns - first, "the other columns"),
        }

    @property
    def accumulated(self) -> tuple[Regs, ...]:  # type: ignore[override]
        """Quads of O in accumulation registers."""
        held = self.tiles["OA"].regs()
        return tuple(held.part(quad, QUAD) for quad in range(len(held) // QUAD))

    def _output(self, block: int) -> Regs:
        first, width = self.tiles["O"].regs(), self.shape.result
        blocks = len(first) // width
        if block < blocks:
            return first.part(block, width)
        return self.tiles["OA"].regs().part(block - blocks, width)


class TwoTiles(LatentLoop):
    """S in two slots: K of one tile is read between two reads of V of another, so that each has its
    addresses."""

    def _more_lane(self) -> dict[str, tuple[str, int, str]]:
        return super()._more_lane() | {"value_address": ("VADR", 4, "the same for V")}

    def _addresses(self, name: str) -> Regs:
        return self.lane["address" if name == "key" else "value_address"]
