"""MLA decode on Blackwell over rows of e4m3: a feeder makes bf16 of them.

Each thread loads 16 columns of every 64 of a row to registers, and stores them as bf16 where
products have given a slot back. While it waits for that, the next tile's rows are on their way. It
looks up the page of its row itself, so pages of all sizes take one path. Rows past the sequence's
end, and of pages out of the pool, are 0. One scale of all rows is in the numbers of the call. A
rope-aware row's own scale multiplies S, and P before it is rounded, in the softmax, where a lane
looks up the page of its key and loads the scale, a tile ahead.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.sm_100a.piece import Piece
from mlagen.dsl import Tile, Value, bind
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.operations import Decode
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace

STORED = "keys stored"  # a tile's numbers in registers


def row_form(k: MlaDecodeConfig) -> RowForm:
    """How the cache's rows lie in memory."""
    if k.rope_aware:
        return RowForm(k.d_v, rope=k.d_rope, rope_at=k.d_v, scales="key")
    return RowForm(k.d_qk)


class FedDecode(Decode):
    """The operations of one kernel over rows that a feeder converts."""

    converts = True

    def _feeding(self, s: PipelineSpace) -> None:
        boxes = tuple((tile, COLUMNS * n) for n, tile in enumerate(self.keys.tiles))
        piece = Piece(self.keys, row_form(self.k), self.feeder.threads, boxes, half="")
        self.supply["piece"] = piece
        self.supply["place"] = s.named("place", ".b32", 1, "page of this thread's row")
        self.supply["words"] = s.named("words", ".b32", piece.words, "the row's stored numbers")
        bind(self.keys, self._mover(self.keys, "convert", Value(STORED)))

    def _fetched(self) -> tuple[str, ...]:
        return "look_up keys", "fetch keys", "copy keys"

    def look_up_for(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load which page this thread's row lies in."""
        self._fed("look_up", pipeline, tile)

    def fetch(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load the row's stored numbers to registers."""
        self._fed("fetch", pipeline, tile, defines=(Value(STORED, tile),))

    def _fed(self, name: str, pipeline: Pipeline, tile: Tile, **more: Any) -> None:
        self._record(name, tile, template=f"fed_{name}", of=pipeline.name, **more)
