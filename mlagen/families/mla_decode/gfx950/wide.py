"""MLA decode on gfx950 with 32 query rows a wave."""

from __future__ import annotations

from mlagen.attention.latent.gfx950.wide import TwoTiles, WideOutput
from mlagen.families.mla_decode.gfx950.operations import Decode


class WideDecode(WideOutput, TwoTiles, Decode):
    """The operations over a cache of bf16."""
