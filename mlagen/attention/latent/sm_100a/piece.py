"""What one feeder makes bf16 of, a tile at a time: four threads have a row, 16 of its columns each
of every 64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.dsl import by
from mlagen.dsl.plain import Part
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace
from mlagen.targets.nvidia.dsl.smem import TmaTile

BOX_WORDS = 4  # registers of a thread's 16 numbers of e4m3


@dataclass(frozen=True)
class Piece:
    """What one feeder of `threads` makes of a tile: `rows` rows of `boxes`, tiles of 64 columns
    with the first of these. `half`: what the second block of a CTA pair has instead: the other
    "rows", or "columns", those `apart` further. "": there is no other block."""

    pipeline: Pipeline
    stored: RowForm
    threads: int
    boxes: tuple[tuple[TmaTile, int], ...]
    half: str
    apart: int = 0

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
        """Registers of a row's scales in fp32."""
        if self.stored.scales != "blocks" or self.exponents:
            return 0
        return len({self.scale_of(column) for _, column in self.latent})

    @property
    def exponents(self) -> int:
        """Registers of a row's scales where these are exponents, all of them, a byte each."""
        return self.stored.paged_exponents // 4

    def scale_of(self, column: int) -> int:
        """Which of a row's scales a box of e4m3 has; of two the first thread's."""
        return column // self.stored.block

    def register_of(self, column: int) -> int:
        """The place of that scale among those that a thread has."""
        every = sorted({self.scale_of(column) for _, column in self.latent})
        return every.index(self.scale_of(column))


def fed_in_turn(pipelines: Iterable[Pipeline]) -> tuple[Part, ...]:
    """Of the plain order: each pipeline's producer looks rows up, loads and stores them."""
    return tuple(
        part for pipeline in pipelines
        for part in by(pipeline.producer, *(
            f"{step} {pipeline.name}" for step in ("look_up", "fetch", "copy")
        ))
    )  # fmt: skip


def threads_of(s: PipelineSpace, pipeline: Pipeline) -> int:
    """Threads of the role that fills a pipeline."""
    return next(role.threads for role in s.roles if role.name == pipeline.producer)
