"""How Q comes to SMEM, once, with a block's first tile: by TMA, or by way of registers where its
e4m3 numbers become bf16, or f16.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel, check_width
from mlagen.dsl import Tile, Value
from mlagen.targets.nvidia.dsl import WarpRole, tiles_of


def converts_queries(k: LatentProblem) -> bool:
    """Whether Q is converted, to bf16 or f16, on its way to SMEM."""
    return k.dtype != "bf16" and k.compute != "fp8"


class SwapAbQueries:
    """Tiles of `columns` columns of Q, of which the role with the scores is the user. `ordered`: so
    many of those that are converted are f16, in the order in which operands A in registers have
    columns. Rows past an item's own are of other queries, or zero."""

    def __init__(
        self, kernel: SwapAbKernel, producer: WarpRole, columns: int = COLUMNS, ordered: int = 0
    ) -> None:
        k, user = kernel.k, kernel.scores
        check_width("queries", columns, k.product_bytes)
        self.kernel, self.producer, self.ordered = kernel, producer, ordered
        self.converts = converts_queries(k)
        tiles = kernel.tiles("q")
        tiles_of("Q", tiles, -(-k.d_qk // columns), rows=kernel.rows, slots=1)
        self.pipeline = kernel.s.smem.pipeline(
            "query", *tiles, producer=(user if self.converts else producer).name,
            consumer=user.name, resident=True,
            producer_threads=user.threads if self.converts else 0,
        )  # fmt: skip
        kernel.context |= {"queries": tiles, "query": self.pipeline, "box_columns": columns}
        if not self.converts:
            kernel.name(("map_q", ".b64", "tensor map of q"))

    @property
    def loads(self) -> tuple[str, ...]:
        """What the producer does for Q, of the plain order."""
        return () if self.converts else ("load_queries",)

    @property
    def reads(self) -> tuple[str, ...]:
        """What the role with the scores does for it."""
        return ("read_queries",) if self.converts else ()

    def load(self, tile: Tile) -> None:
        """Fetch the item's rows by TMA, where they stay what they are."""
        if not self.converts:
            self.kernel.record("swap_ab/queries/load_queries", tile, role=self.producer,
                               domain="first", defines=(Value(self.pipeline.name),))  # fmt: skip

    def read(self, tile: Tile) -> None:
        """Load them in the role that uses them, and convert them, where they are e4m3."""
        if not self.converts:
            return
        user = self.kernel.scores
        self.kernel.record(
            "swap_ab/queries/read_queries", tile, role=user, domain="first", apart=self.ordered,
            lanes=user.threads >> (self.kernel.rows - 1).bit_length(),
            defines=(Value(self.pipeline.name),),
        )  # fmt: skip


class OwnQueries:
    """Q that the warpgroup which multiplies brings to SMEM, by a template: by TMA, or by way of
    registers. `more`: what the template takes besides. Rows past the item's own are 0, or of other
    queries."""

    def __init__(self, kernel: SwapAbKernel, template: str, *, by_tma: bool = False) -> None:
        self.kernel, self.template, name = kernel, template, kernel.math.name
        self.tiles = kernel.tiles("q")
        tiles_of("Q", self.tiles, -(-kernel.k.d_qk // COLUMNS), rows=kernel.rows, slots=1)
        self.pipeline = kernel.s.smem.pipeline(
            "query", *self.tiles, producer=name, consumer=name, resident=True,
            producer_threads=0 if by_tma else kernel.math.threads,
        )  # fmt: skip
        self.more: dict[str, Any] = {}
        kernel.context |= {"queries": self.tiles, "query": self.pipeline}

    def load(self, tile: Tile, *, when: bool = True) -> None:
        """Load the item's rows of Q, once, with the first tile. `when`: or elsewhere."""
        if when:
            self.kernel.record(self.template, tile, name="load_queries", domain="first",
                               defines=(Value(self.pipeline.name),), **self.more)  # fmt: skip
