"""MLA decode on Blackwell over rows of e4m3: a feeder makes bf16 of them.

Each thread loads 16 columns of every 64 of a row to registers, and stores them as bf16 where
products have given a slot back. Of a CTA pair one feeder makes a block's K, half of a tile's rows,
and another one its V, half of each 256 columns of all rows. While it waits for that, the next
tile's rows are on their way. It looks up the page of its row itself, so pages of all sizes take one
path. Rows past the sequence's end, and of pages out of the pool, are 0. One scale of all rows is in
the numbers of the call. A rope-aware row's own scale multiplies S, and P before it is rounded, in
the softmax, where a lane looks up the page of its key and loads the scale, a tile ahead.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.sm_100a.piece import Piece, fed_in_turn, threads_of
from mlagen.dsl import Tile, Value, bind
from mlagen.dsl.plain import Part
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.operations import Decode
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, filled

STORED = " stored"  # what a pipeline's tile is in registers


def row_form(k: MlaDecodeConfig) -> RowForm:
    """How the cache's rows lie in memory."""
    if k.rope_aware:
        return RowForm(k.d_v, rope=k.d_rope, rope_at=k.d_v, scales="key")
    return RowForm(k.d_qk)


class FedDecode(Decode):
    """The operations of one kernel over rows that a feeder converts."""

    converts = True

    def _feeding(self, s: PipelineSpace) -> None:
        self.pieces = {
            pipeline.name: Piece(
                pipeline, row_form(self.k), threads_of(s, pipeline),
                self._boxes(pipeline, COLUMNS), self._half(pipeline),
            )
            for pipeline in self._rows()
        }  # fmt: skip
        pieces = self.pieces.values()
        for operand, count, why in (
            ("place", max(x.held for x in pieces), "pages of this thread's rows"),
            ("words", max(x.held * x.words for x in pieces), "their stored numbers"),
        ):
            self.supply[operand] = s.named(operand, ".b32", count, why)
        for name, piece in self.pieces.items():
            filled(piece.pipeline, threads=piece.threads, arrive="fenced")
            bind(piece.pipeline, self._mover(piece.pipeline, "convert", Value(name + STORED),
                                             piece=piece))  # fmt: skip

    def _feeders(self, s: PipelineSpace) -> dict[str, tuple[int, ...]]:
        pair = s.smem.pair
        names = ("keys", "values") if pair else ("keys",)
        return {s.smem.pipelines[name].producer: (128,) if pair else (256,) for name in names}

    def _fetched(self) -> tuple[Part, ...]:
        return fed_in_turn(self._rows())

    def look_up_for(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load which pages the rows lie in that this thread converts for `pipeline`."""
        self._fed("look_up", pipeline, tile)

    def fetch(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load stored numbers of these rows to registers."""
        self._fed("fetch", pipeline, tile, defines=(Value(pipeline.name + STORED, tile),))

    def _fed(self, name: str, pipeline: Pipeline, tile: Tile, **more: Any) -> None:
        self._record(name, tile, template=f"fed_{name}", of=pipeline.name,
                     piece=self.pieces[pipeline.name], **more)  # fmt: skip
