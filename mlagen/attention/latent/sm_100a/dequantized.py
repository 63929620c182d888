"""Storage that is dequantized: feeders load quantised rows to registers, and store them as bf16.

Four threads have a row, 16 of its columns each of every 64. A feeder stores a tile where products
have given a slot back; while it waits for that, the next tile's rows are on their way. Of a CTA
pair one feeder makes a block's K, half of a tile's rows, and another one its V, half of each 256
columns of all rows. Scales of columns multiply numbers before these are rounded to bf16. A row's
one scale multiplies S and P, which the softmax does, that loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.sm_100a.kernel import VALUES, TensorMemoryKernel
from mlagen.attention.latent.sm_100a.parts import Rows
from mlagen.attention.latent.sm_100a.scales import scales_of
from mlagen.dsl import Tile, Value, bind, by
from mlagen.dsl.plain import Part
from mlagen.targets.nvidia.dsl import Pipeline, filled
from mlagen.targets.nvidia.dsl.smem import TmaTile

BOX_WORDS = 4  # registers of a thread's 16 numbers of e4m3


class Dequantized:
    """Rows of the form `rows.form`. Templates of `look_up` and `fetch` know where rows lie."""

    converts, lands = True, False

    def __init__(self, kernel: TensorMemoryKernel, rows: Rows) -> None:
        self.kernel, self.templates = kernel, f"storage/{rows.name}"
        self.pieces = {
            pipeline.name: ProducerShare(
                pipeline, rows.form, kernel.producer_threads(pipeline),
                column_boxes(kernel, pipeline, COLUMNS), kernel.half(pipeline),
            )
            for pipeline in kernel.rows
        }  # fmt: skip
        pieces = self.pieces.values()
        held = max(x.held for x in pieces)
        scales = scales_of(rows.form)
        kernel.context |= {
            "stored": rows.form, "scales": f"storage/scales/{scales.template}.ptx.j2",
        }  # fmt: skip
        for operand, type, count, why in (
            ("place", ".b32", held, "places of this thread's rows of the next tile"),
            ("place_where", ".b32", held * rows.positions, "their positions"),
            ("words", ".b32", max(x.held * x.words for x in pieces), "their stored numbers"),
            ("by", scales.type, max(x.held * x.scales for x in pieces), "and scales"),
        ):
            kernel.context[operand] = kernel.s.named(operand, type, count, why) if count else []
        for name, piece in self.pieces.items():
            filled(piece.pipeline, threads=piece.threads, arrive="fenced")
            bind(piece.pipeline, kernel.mover(piece.pipeline, "storage/convert",
                                              loaded=name + " stored", piece=piece))  # fmt: skip

    @staticmethod
    def threads(ctas: int) -> int:
        """Of a feeder: of K and V, or of one of both."""
        return 256 // ctas

    @staticmethod
    def fills(ctas: int) -> dict[str, Any]:
        return {"producer_threads": 256 // ctas, "by_warps": "fenced"}

    @property
    def steps(self) -> tuple[Part, ...]:
        """How a tile's rows come to SMEM, of the plain order."""
        return tuple(
            part
            for piece in self.pieces.values()
            for part in by(
                piece.pipeline.producer,
                *(f"{step} {piece.pipeline.name}" for step in ("look_up", "fetch", "copy")),
            )
        )

    def look_up(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load where the rows lie that this thread converts for `pipeline`."""
        self._record("look_up", pipeline, tile)

    def fetch(self, pipeline: Pipeline, tile: Tile) -> None:
        """Load stored numbers of these rows, and their scales, to registers."""
        self._record("fetch", pipeline, tile, defines=(Value(pipeline.name + " stored", tile),))

    def _record(self, name: str, pipeline: Pipeline, tile: Tile, **more: Any) -> None:
        self.kernel.record(f"{self.templates}/{name}", tile, of=pipeline.name,
                           piece=self.pieces[pipeline.name], **more)  # fmt: skip


def column_boxes(
    kernel: TensorMemoryKernel, pipeline: Pipeline, width: int
) -> tuple[tuple[TmaTile, int], ...]:
    """Tiles of `width` columns with the first of these, of a pair in the first block."""
    if kernel.half(pipeline) != "columns":
        return tuple((tile, width * n) for n, tile in enumerate(pipeline.tiles))
    starts = [at + n for at in range(0, kernel.k.d_v, VALUES) for n in range(0, VALUES // 2, width)]
    return tuple(zip(pipeline.tiles, starts, strict=True))


@dataclass(frozen=True)
class ProducerShare:
    """What one feeder of `threads` makes of a tile: `rows` rows of `boxes`, tiles of 64 columns
    with the first of these. `half`: what the second block of a CTA pair has instead: the other
    "rows", or "columns", those `apart` further. "": there is no other block."""

    pipeline: Pipeline
    stored: RowForm
    threads: int
    boxes: tuple[tuple[TmaTile, int], ...]
    half: str

    @property
    def apart(self) -> int:
        """Columns from a box of the first block to that of the second."""
        return VALUES // 2 if self.half == "columns" else 0

    @property
    def rows(self) -> int:
        return self.pipeline.tiles[0].rows

    @property
    def rows_apart(self) -> int:
        """Rows from one of a thread to the next."""
        return self.threads // LANES

    @property
    def held(self) -> int:
        """Rows that a thread has."""
        return self.rows // self.rows_apart

    @property
    def latent(self) -> tuple[tuple[TmaTile, int], ...]:
        """The boxes that are stored as e4m3."""
        return tuple(box for box in self.boxes if box[1] < self.stored.latent)

    @property
    def rope(self) -> tuple[tuple[TmaTile, int], ...]:
        return self.boxes[len(self.latent) :]

    @property
    def either(self) -> bool:
        """Whether the last box of e4m3 is one of bf16 in the second block."""
        return bool(self.latent) and self.latent[-1][1] + self.apart >= self.stored.latent

    @property
    def words(self) -> int:
        """Registers of a row's numbers."""
        return BOX_WORDS * (len(self.latent) + 2 * len(self.rope) + self.either)

    @property
    def scales(self) -> int:
        """Registers of a row's scales."""
        columns = (column for _, column in self.latent)
        return scales_of(self.stored).count(self.stored, columns)

    def scale_of(self, column: int) -> int:
        """Which of a row's scales a box of e4m3 has; of two the first thread's."""
        return column // self.stored.block

    def register_of(self, column: int) -> int:
        """The place of that scale among those that a thread has."""
        every = sorted({self.scale_of(column) for _, column in self.latent})
        return every.index(self.scale_of(column))
