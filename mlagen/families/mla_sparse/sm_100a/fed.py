"""Top-k sparse MLA on Blackwell over rows of e4m3: feeders make bf16 of them.

A feeder loads rows to registers, and stores them as bf16 where products have given a slot back.
While it waits for that, the next tile's rows are on their way. Four threads have a row, 16 of its
columns each of every 64. Of a CTA pair one feeder makes a block's K, half of a tile's rows, and
another one its V, half of each 256 columns of all rows.

Scales of columns multiply numbers before these are rounded to bf16. A row's scale multiplies S and
P, which the softmax does, that loads it: it knows the list of its keys anyway. One scale for all is
in the numbers of the call.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.sm_100a.in_tensor import check_roles
from mlagen.attention.latent.sm_100a.piece import Piece, fed_in_turn, threads_of
from mlagen.dsl import Tile, Value, bind
from mlagen.dsl.plain import Part
from mlagen.errors import ScheduleError
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.sm_100a.operations import Config, Sparse
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, WarpRole, filled
from mlagen.targets.nvidia.dsl.smem import TmaTile

FLOAT = 4  # bytes of a scale


class FedSparse(Sparse):
    """The operations of one kernel over rows that feeders convert, each to one pipeline."""

    converts = True

    def _row_scales(self, k: Config) -> bool:
        form = row_form(k)
        if form is None:
            raise ScheduleError("rows of bf16 are not converted", hint="Sparse copies them")
        self.stored = form
        return form.scales == "key"

    def _check_roles(self, s: PipelineSpace, softmax: WarpRole, feeder: WarpRole) -> None:
        legal = {softmax.name: (128,)}
        for name in ("keys", "values"):
            if pipeline := s.smem.pipelines.get(name):
                legal[pipeline.producer] = (128,) if s.smem.pair else (256,)
        check_roles(s, legal)

    def _feeding(self, s: PipelineSpace) -> None:
        keys = tuple((tile, COLUMNS * n) for n, tile in enumerate(self.keys.tiles))
        self.pieces = {self.keys.name: self._piece(s, self.keys, keys, "rows" if self.pair else "")}
        if self.pair:
            apart = self.supply["value_columns"]
            values = tuple(
                (tile, apart * (n // 2) + COLUMNS * (n % 2))
                for n, tile in enumerate(self.values.tiles)
            )
            self.pieces[self.values.name] = self._piece(
                s, self.values, values, "columns", apart // 2
            )
        pieces = self.pieces.values()
        held = max(x.held for x in pieces)
        self.supply |= {"stored": self.stored, "float_bytes": FLOAT}
        for operand, type, count, why in (
            ("place", ".b32", held, "rows of the next tile of this thread"),
            ("place_where", ".b32", held * self.supply["causal"], "their positions"),
            ("words", ".b32", max(x.held * x.words for x in pieces), "their stored numbers"),
            ("by", ".f32", max(x.held * x.scales for x in pieces), "and scales"),
            ("exponents", ".b32", max(x.held * x.exponents for x in pieces), "or their exponents"),
        ):
            self.supply[operand] = s.named(operand, type, count, why) if count else []
        for name, piece in self.pieces.items():
            filled(piece.pipeline, threads=piece.threads, arrive="fenced")
            bind(piece.pipeline, self._mover(piece.pipeline, "convert", Value(name + " stored"),
                                             piece=piece))  # fmt: skip

    def _piece(
        self, s: PipelineSpace, pipeline: Pipeline, boxes: tuple[tuple[TmaTile, int], ...],
        half: str, apart: int = 0,
    ) -> Piece:  # fmt: skip
        return Piece(pipeline, self.stored, threads_of(s, pipeline), boxes, half, apart)

    def _fetched(self) -> tuple[Part, ...]:
        return fed_in_turn(self._rows())

    # ---- keys -------------------------------------------------------------------------------

    def look_up_for(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load what the list names of the rows that this thread converts for `pipeline`."""
        self._fed("look_up", pipeline, tile)

    def fetch(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load stored numbers of these rows, and their scales, to registers."""
        self._fed("fetch", pipeline, tile, defines=(Value(pipeline.name + " stored", tile),))

    def _fed(self, name: str, pipeline: Pipeline, tile: Tile, **more: Any) -> None:
        self._record(name, tile, template=f"fed/{name}", of=pipeline.name,
                     piece=self.pieces[pipeline.name], **more)  # fmt: skip
