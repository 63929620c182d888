"""How Q comes to SMEM: as it is stored, by TMA, or made bf16 of e4m3 by threads."""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.sm_100a.kernel import TensorMemoryKernel
from mlagen.dsl import Tile, Value, bind
from mlagen.targets.nvidia.dsl import WarpRole, filled, release


class Queries:
    """64 rows of Q: rows past the block's own are of others, or zero. `template`: how they come;
    `softmax`: the role that makes bf16 of them, which waits for scores anyway. Where blocks have
    several items, Q comes with an item's first tile, and is given back."""

    def __init__(self, kernel: TensorMemoryKernel, template: str, softmax: WarpRole) -> None:
        pipeline, stored = kernel.s.smem.pipelines["query"], kernel.k.as_stored
        filled(
            pipeline, threads=0 if stored else softmax.threads, arrive="" if stored else "fenced"
        )
        self.kernel, self.pipeline, self.template = kernel, pipeline, template
        self.several = bool(kernel.s.persistent)
        if self.several:
            bind(pipeline, kernel.mover(pipeline, ""))

    def load(self, role: WarpRole) -> None:
        """Load Q, in the role that fills the pipeline, of a block of one item."""
        if not self.several:
            self._load(role, None)

    def load_item(self, role: WarpRole, tile: Tile) -> None:
        """The same with an item's first tile, of a block of several."""
        if self.several:
            self._load(role, tile, domain="first")

    def release(self, tile: Tile) -> None:
        """Give Q back after an item's last scores, where another item's may follow."""
        if self.several:
            release(self.pipeline, tile)

    def _load(self, role: WarpRole, tile: Tile | None, **more: Any) -> None:
        if role.name == self.pipeline.producer:
            self.kernel.record(
                self.template, tile, name="load_queries", pipeline=self.pipeline,
                defines=(Value(self.pipeline.name),), **more,
            )  # fmt: skip
