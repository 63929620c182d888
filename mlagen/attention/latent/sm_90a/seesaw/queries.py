"""Q of an item, 64 rows: most of its columns in SMEM, the last ones as operand A in registers."""

from __future__ import annotations

from collections.abc import Iterable

from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.sm_90a.registers import SLOTS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.dsl import Tile, Value
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole

TOGETHER = 6  # 16-byte loads of an e4m3 Q that a thread has in flight


class SeesawQueries:
    """`query`: the columns that stay in SMEM; `held`: those that go to registers. Where a block has
    several items, P of the item before lies in the place of these until then."""

    def __init__(self, kernel: SeesawKernel) -> None:
        self.kernel, tiles, held = kernel, kernel.queries, kernel.knobs.held
        self.query, self.held = (
            kernel.s.smem.pipeline(
                name, *some, producer=kernel.left.name, consumer=kernel.names, resident=True,
                producer_threads=0 if kernel.reads_queries == "load_queries"
                else kernel.left.threads,
            )
            for name, some in (("query", tiles[:-held]), ("query held", tiles[-held:]))
        )  # fmt: skip
        both = (self.query, self.held)
        self.loads = ((self.query,), (self.held,)) if kernel.persistent else (both,)

    def load(self, tile: Tile, role: WarpRole) -> None:
        """Load the item's 64 rows, once, with the first tile, and convert e4m3 to bf16. Rows past
        the item's own are of others or zero. The columns of `load_held` are left out."""
        self._load(tile, role, self.loads[0])

    def load_held(self, tile: Tile, role: WarpRole) -> None:
        """Load the columns that go to registers, where a block has several items."""
        for pipelines in self.loads[1:]:
            self._load(tile, role, pipelines)

    def _load(self, tile: Tile, role: WarpRole, pipelines: tuple[Pipeline, ...]) -> None:
        tiles = self.kernel.queries
        self.kernel.record(
            self.kernel.reads_queries, tile, name="load_queries", role=role, domain="first",
            ahead="fetches",
            loads=[(p, [(tile, COLUMNS * tiles.index(tile)) for tile in p.tiles])
                   for p in pipelines],
            pipelines=pipelines, tiles_=[tile for p in pipelines for tile in p.tiles],
            first_column=COLUMNS * tiles.index(pipelines[0].tiles[0]),
            together=TOGETHER, of=names(pipelines),
            defines=tuple(Value(pipeline.name) for pipeline in pipelines),
        )  # fmt: skip

    def hold(self, tile: Tile) -> None:
        """Read the last columns to registers, when the role's first tile is on its way."""
        self.kernel.record("hold_queries", tile, tiles_=self.held.tiles,
                           domain="second" if tile.offset % SLOTS else "first",
                           uses=(Value(self.held.name),), defines=(Value("Q held"),))  # fmt: skip


def names(pipelines: Iterable[Pipeline]) -> str:
    """How operations and the plain order name some columns."""
    return ", ".join(pipeline.name for pipeline in pipelines)
