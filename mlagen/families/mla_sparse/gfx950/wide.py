"""Top-k sparse MLA on gfx950 with 32 heads a wave, 128 a workgroup: what differs from 16."""

from __future__ import annotations

from mlagen.attention.latent.gfx950.wide import TwoTiles, WideOutput
from mlagen.families.mla_sparse.gfx950.form import is_decode
from mlagen.families.mla_sparse.gfx950.operations import Sparse


class WideSparse(WideOutput, TwoTiles, Sparse):
    """The operations over rows that lists name. M need not be the largest score, which prefill
    stores: that has a register of its own."""

    list_slots = 2

    def _more_lane(self) -> dict[str, tuple[str, int, str]]:
        held = super()._more_lane()
        if not is_decode(self.k):
            held["largest"] = ("TOP", 1, "largest score of the row, log2 units")
        return held
