"""What math roles ask of the part that brings rows to SMEM."""

from __future__ import annotations

from typing import Literal, Protocol

from mlagen.attention.latent.sm_90a.plain import Fetched
from mlagen.dsl import Tile
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole
from mlagen.targets.nvidia.dsl.smem import Scratch


class SeesawRows(Protocol):
    """`left` and `right`: pipelines of the columns that the left warpgroup is the last to use
    (0..255), and of those that the right one is. `weights`: where what S and P are multiplied by
    lies, a room a slot, or nothing; `counts`: or which keys of a tile count. `does`: what the
    feeder does, of the plain order. `zeroes_tail`: rows past a sequence's end must become 0."""

    left: tuple[Pipeline, ...]
    right: tuple[Pipeline, ...]
    weights: tuple[Scratch, ...]
    counts: tuple[Scratch, ...]
    zeroes_tail: bool

    @property
    def does(self) -> Literal["convert", "gather", "feed", "measure"]: ...

    @property
    def loads_scales(self) -> bool:
        """Whether the feeder loads scales of rows, a tile's at once."""

    def fetched(self, half: tuple[Pipeline, ...], role: WarpRole) -> Fetched:
        """What a role does for some columns, of the plain order."""

    def looks_up(self, role: WarpRole) -> bool:
        """Whether the role looks up where tiles lie."""

    def refill(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Fetch the columns of `half` of `tile`, or give their place back to the one who does."""

    def prefetch(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Prefetch to L2 the columns of `half` of the tile that is fetched a pass after `tile`."""


def spans(kinds: list[tuple[int, int]], boxes: int) -> list[tuple[int, int]]:
    """Tiles, by number, that share a barrier: `boxes` of them, of one type in memory each."""
    return [(first, min(first + boxes, stop)) for start, stop in kinds
            for first in range(start, stop, boxes)]  # fmt: skip
