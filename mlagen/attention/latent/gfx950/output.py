"""O over latent rows on gfx950: where it lies in registers, and where it goes.

With 32 query rows a wave O takes 256 registers of a lane and Q 144, more than there are vector
registers: a wave has a SIMD to itself, and the last columns of O are accumulation registers.
Products take these as they are; to be multiplied, they go by way of vector registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.shape import QUAD
from mlagen.dsl import Extent, exactly
from mlagen.targets.gfx950.dsl import Regs


class LatentOutput:
    """`columns`: those in vector registers, O; the others are in OA. None: all are in O."""

    def __init__(self, loop: LatentLoop, columns: int | None = None) -> None:
        self.loop, self.own = loop, loop.k.d_v // loop.shape.parts
        self.registers = (columns or loop.k.d_v) // loop.shape.parts

    @property
    def rest(self) -> int:
        """Accumulation registers of a lane's columns."""
        return self.own - self.registers

    def extents(self) -> dict[str, Extent]:
        """All columns of a lane, whole blocks of them in each of both files."""
        if not self.rest:
            return {"O": exactly("registers", self.own, "a lane's columns")}
        first, width = len(self.loop.tiles["O"].regs()), self.loop.shape.result
        return {
            "O": exactly("registers", range(width, self.own, width), "blocks of columns"),
            "OA": exactly("registers", self.own - first, "the other columns"),
        }

    @cached_property
    def quads(self) -> tuple[Regs, ...]:
        if not self.rest:
            return ()
        held = self.loop.tiles["OA"].regs()
        return tuple(held.part(quad, QUAD) for quad in range(len(held) // QUAD))

    def block(self, number: int) -> Regs:
        first, width = self.loop.tiles["O"].regs(), self.loop.shape.result
        blocks = len(first) // width
        if number < blocks or not self.rest:
            return first.part(number, width)
        return self.loop.tiles["OA"].regs().part(number - blocks, width)

    def normalise(self) -> None:
        """O *= 1 / l; a row without a visible key gets 0."""
        self.loop.record("normalise", None, f"output/{self.loop.rows.name}/normalise")

    def store(self) -> None:
        """O and the LSE: to a slot where the item is a part of its sequence, otherwise as they
        are. Rows past the item's last are dropped by the range check."""
        ways = self.loop.rows.storing
        for name in ways:
            template = f"output/{self.loop.rows.name}/{name}"
            self.loop.record(name, None, template, guarded=len(ways) > 1)


def first_columns(count: int) -> Callable[[LatentLoop], LatentOutput]:
    """An output whose first `count` columns are in vector registers."""
    return partial(LatentOutput, columns=count)
