"""Listed rows of bf16, which a third warpgroup fetches one by one for both halves."""

from __future__ import annotations

from typing import Literal

from mlagen.attention.latent.sm_90a.plain import Fetched
from mlagen.attention.latent.sm_90a.registers import SLOTS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.attention.latent.sm_90a.seesaw.rows import spans
from mlagen.dsl import Operation, Tile, bind, copy
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole, release
from mlagen.targets.nvidia.dsl.smem import Scratch


class SeesawGathered:
    """What a list does not name arrives as zeros. A math role gives the columns back that it used
    last, and keeps the list of its next tile."""

    does: Literal["gather"] = "gather"
    zeroes_tail = loads_scales = False
    weights: tuple[Scratch, ...] = ()
    counts: tuple[Scratch, ...] = ()

    def __init__(self, kernel: SeesawKernel) -> None:
        self.kernel, self.feeder = kernel, kernel.feeding
        middle = kernel.value_parts // 2
        self.left, self.right = (
            tuple(self._columns(role, *span) for span in spans([kinds], kernel.knobs.boxes))
            for role, kinds in zip(
                kernel.roles, ((0, middle), (middle, kernel.parts)), strict=True
            )
        )  # fmt: skip

    def _columns(self, role: WarpRole, first: int, stop: int) -> Pipeline:
        """Of some columns: `role`, which uses them last, knows that the other one is done."""
        kernel = self.kernel
        columns = kernel.s.smem.pipeline(
            f"cache {first}", *kernel.keys[first:stop], producer=self.feeder.name,
            consumer=kernel.names, producer_threads=self.feeder.threads,
            releases=(role.name, len(role.warps)),
        )  # fmt: skip
        bind(columns, self._mover(columns))
        return columns

    def _mover(self, columns: Pipeline) -> Mover:
        def mover(kind: AccessKind, tile: Tile) -> Operation:
            moves = self.kernel.mover(
                columns, "fetch_rows", role=self.feeder, boxes=self.kernel.boxes(columns),
                index=tile.offset % SLOTS, ahead="fetches",
            )  # fmt: skip
            return moves(kind, tile)

        return mover

    def fetched(self, half: tuple[Pipeline, ...], role: WarpRole) -> Fetched:
        return Fetched(role.name, tuple(p.name for p in half), {}, listed=True)

    def looks_up(self, role: WarpRole) -> bool:
        return role is self.feeder

    def refill(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Give the columns of `half` back, in which `tile` will be; load the tile's list, if the
        role has its scores."""
        for columns in half:
            release(columns, tile - SLOTS)
        role, index = self.kernel.roles[half is self.right], tile.offset % SLOTS
        if role is self.kernel.roles[index]:
            self.kernel.record("load_list", tile, role=role, ahead="fetches",
                               later=self.kernel.context["ahead"][index])  # fmt: skip

    def prefetch(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Rows that lie anywhere are in no box."""

    # ---- the feeder -------------------------------------------------------------------------

    def gather(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Fetch the columns of `half` of a tile's rows."""
        for columns in half:
            copy(columns, tile)

    def find_rows(self, tile: Tile) -> None:
        """Compute where the rows of the tile lie."""
        self._look("find_rows", tile)

    def look_up(self, tile: Tile) -> None:
        """Look up which rows the tile has that is next in these slots."""
        self._look("next_page", tile)

    def _look(self, template: str, tile: Tile) -> None:
        self.kernel.record(template, tile, index=tile.offset % SLOTS, role=self.feeder,
                           ahead="fetches")  # fmt: skip
