"""Rows of a paged cache, which the math roles fetch: each the columns that it used last.

An e4m3 cache is fetched the same way into half of the SMEM of its tiles, and the feeder converts it
to bf16 in place.
"""

from __future__ import annotations

from typing import Any, Literal

from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.sm_90a.paged_copy import check_ahead
from mlagen.attention.latent.sm_90a.plain import Fetched
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.attention.latent.sm_90a.seesaw.rows import spans
from mlagen.dsl import Operation, Tile, Value, bind, copy
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole
from mlagen.targets.nvidia.dsl.smem import Scratch


class SeesawPaged:
    """Over `PagedCopy`'s pages of any size. Where rows have scales the feeder loads them, too."""

    does: Literal["convert"] = "convert"
    counts: tuple[Scratch, ...] = ()

    def __init__(self, kernel: SeesawKernel) -> None:
        self.kernel, k, s, feeder = kernel, kernel.k, kernel.s, kernel.feeder
        if feeder and k.cache_dtype == "bf16":
            raise ScheduleError(
                f"{feeder.place}: " * bool(feeder.place)
                + f"role {feeder.name!r} converts rows to bf16, and these are bf16"
            )
        if feeder and kernel.knobs.boxes != 2:
            raise ScheduleError(
                f"boxes={kernel.knobs.boxes} with cache_dtype={k.cache_dtype}",
                hint="128 columns of e4m3 become two tiles of bf16: boxes=2",
            )
        check_ahead(kernel.paged, kernel.knobs.ahead)
        # Where rows are fetched one by one, what does not exist arrived as 0, but not what a window
        # hides; e4m3 is finite here.
        self.zeroes_tail = not feeder and bool(k.window or not kernel.paged.producer_threads)
        self.raw: dict[str, Pipeline] = {}
        middle = kernel.value_parts // 2
        self.left, self.right = (
            tuple(self._columns(role, *span) for span in spans([kinds], kernel.knobs.boxes))
            for role, kinds in zip(
                kernel.roles, ((0, middle), (middle, kernel.parts)), strict=True
            )
        )  # fmt: skip
        self.weights = tuple(
            s.smem.room(f"row scales {slot}", TILE * FLOAT)
            for slot in range(SLOTS if k.rope_aware else 0)
        )

    def _columns(self, role: WarpRole, first: int, stop: int) -> Pipeline:
        """The pipeline of some columns that `role` fetches; all become bf16."""
        kernel, paged, tiles = self.kernel, self.kernel.paged, self.kernel.keys[first:stop]
        # Rotary columns of rope-aware rows are bf16 as they are.
        rotary = kernel.value_parts if kernel.k.rope_aware else kernel.parts
        feeder = kernel.feeder if first < rotary else None
        columns = kernel.s.smem.pipeline(
            f"cache {first}", *tiles, producer=(feeder or role).name, consumer=kernel.names,
            producer_threads=feeder.threads if feeder else paged.producer_threads,
            by_warps=feeder is not None,
        )  # fmt: skip
        if not feeder:
            bind(columns, self._fetched(columns, columns, role))
            return columns
        # The e4m3 numbers have the place of the first tile.
        numbers = kernel.s.smem.tile(f"R{first}", "cache", rows=TILE, row_bytes=2 * COLUMNS,
                                     slots=SLOTS, over=tiles[0])  # fmt: skip
        raw = self.raw[columns.name] = kernel.s.smem.pipeline(
            f"raw {first}", numbers, producer=role.name, consumer=feeder.name,
            producer_threads=paged.producer_threads, within=columns,
        )  # fmt: skip
        bind(raw, self._fetched(raw, columns, role))
        bind(columns, self._moved(columns, "convert", Value("raw"), role=feeder,
                                  boxes=kernel.boxes(columns)))  # fmt: skip
        return columns

    def _fetched(self, pipeline: Pipeline, columns: Pipeline, role: WarpRole) -> Mover:
        """How `role` fetches the numbers of some columns."""
        return self._moved(
            pipeline, "gather" if self.kernel.paged.producer_threads else "copy", role=role,
            ahead="fetches", boxes=self.kernel.boxes(columns, pipeline.tiles),
        )  # fmt: skip

    def _moved(self, pipeline: Pipeline, template: str, *uses: Value, **more: Any) -> Mover:
        def mover(kind: AccessKind, tile: Tile) -> Operation:
            slot, known = tile.offset % SLOTS, self.kernel.context
            moves = self.kernel.mover(pipeline, template, *uses, places=known["pages"][slot],
                                      later=known["ahead"][slot], **more)  # fmt: skip
            return moves(kind, tile)

        return mover

    @property
    def loads_scales(self) -> bool:
        return bool(self.weights)

    def fetched(self, half: tuple[Pipeline, ...], role: WarpRole) -> Fetched:
        raw = {p.name: self.raw[p.name].name for p in half if p.name in self.raw}
        return Fetched(role.name, tuple(p.name for p in half), raw)

    def looks_up(self, role: WarpRole) -> bool:
        return role is not self.kernel.feeder

    def refill(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Fetch the columns of `half` of `tile`, and look up where the one lies that is next in
        these slots."""
        for columns in half:
            copy(self.raw.get(columns.name, columns), tile)
        self.kernel.record("next_page", tile, index=tile.offset % SLOTS, ahead="fetches",
                           role=self.kernel.roles[half is self.right])  # fmt: skip

    def prefetch(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Prefetch to L2 the columns of `half` of the tile that is fetched a pass after `tile`.
        `refill`, which looks up where it lies, comes before; for copies by box only, and where a
        knob asks for it."""
        if not self.kernel.knobs.ahead:
            return
        kernel, slot = self.kernel, tile.offset % SLOTS
        first = COLUMNS * kernel.keys.index(half[0].tiles[0])
        end = COLUMNS * (kernel.keys.index(half[-1].tiles[-1]) + 1)
        kernel.record(
            "prefetch", tile, role=kernel.roles[half is self.right],
            columns=list(range(first, end, kernel.paged.box_columns)),
            places=kernel.context["pages"][slot], later=kernel.context["ahead"][slot],
        )  # fmt: skip

    # ---- the feeder -------------------------------------------------------------------------

    def convert(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Convert columns of an e4m3 tile to bf16 in place: read all to registers, then write."""
        for columns in (columns for columns in half if columns.name in self.raw):
            raw = self.raw[columns.name]
            self.kernel.record("read_e4m3", tile, tile_=raw.tiles[0],
                               narrow=len(columns.tiles) == 1, of=raw.name,
                               uses=(Value(raw.name, tile),), defines=(Value("raw"),))  # fmt: skip
            copy(columns, tile)

    def load_scales(self, tile: Tile) -> None:
        """Store the tile's row scales to SMEM, where rows have them, and load the next ones."""
        if self.weights:
            index = tile.offset % SLOTS
            self.kernel.record("load_scales", tile, index=index, room=self.weights[index],
                               defines=(Value(self.weights[index].name, tile),))  # fmt: skip
