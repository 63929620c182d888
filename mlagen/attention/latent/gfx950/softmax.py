"""The softmax of a tile over latent rows on gfx950: P from S in place, and what follows M."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Request
from mlagen.attention.latent.gfx950.queries import E4M3
from mlagen.attention.prefill.gfx950.float_literals import hex_float
from mlagen.dsl import Operation, Tile, Value
from mlagen.problem.dtypes import E4M3_MAX

SLACK = 8.0  # log2 units: P is at most 2^8
# Log2 units by which M is lower where P is e4m3: small weights are normal numbers then. A score may
# be SLACK - BIAS above M. The row sum has the same factor, which the division takes out.
BIAS = 6.0

assert 2**SLACK <= E4M3_MAX


class PerTile:
    """M is the largest score so far; O and the row sum follow where that of some row moved."""

    template: ClassVar[str] = ""

    def __init__(self, loop: LatentLoop) -> None:
        self.loop = loop

    def lane(self) -> dict[str, Request]:
        return {}

    def context(self) -> Mapping[str, Any]:
        return {"largest": None, "minus_bias": None}

    def maximum(self, tile: Tile) -> Operation:
        """The rows' maxima, and which of them O has to follow."""
        template, uses = f"softmax/maximum{self.template}", (Value("S", tile),)
        return self.loop.record("maximum", tile, template, uses=uses)

    def rescale(self, tile: Tile) -> Operation:
        """M, O and l follow them."""
        template = f"softmax/rescale{self.template}"
        return self.loop.record("rescale", tile, template, guarded=True)

    def exponent(self, tile: Tile) -> Operation:
        """P, its sum, and P packed, times the scales of keys where these have one."""
        scales, uses = self.loop.storage.scales, (Value("S", tile),)
        more = scales.weighing(tile) if scales else {}
        more["uses"] = (*uses, *more.get("uses", ()))
        return self.loop.record("exponent", tile, "softmax/exponent", **more)


class LazyRescale(PerTile):
    """M seldom moves: it is a whole number of log2 units, and stays until a score is more than
    `SLACK` above it. P rounds the same whichever of such M it has, and exp2(M - M') is a power of
    two. Where P is e4m3, what a lane keeps of M is `BIAS` lower."""

    template = "_lazy"

    def lane(self) -> dict[str, Request]:
        """M need not be the largest score: that has a register of its own where it is stored."""
        what = "largest score of the row, log2 units"
        return {"largest": ("TOP", 1, what)} if self.loop.rows.keeps_largest else {}

    def context(self) -> Mapping[str, Any]:
        bias = hex_float(-BIAS) if self.loop.products.multiplied == E4M3 else None
        largest = self.loop.lane.get("largest")
        return {"slack": hex_float(SLACK), "minus_bias": bias, "largest": largest}
