"""The warpgroup that turns an e4m3 cache into bf16 tiles, as operations a schedule arranges.

A *unit* is what shares a barrier: a few columns of a tile. Its numbers are fetched to registers,
then converted and stored when its slot is free. Two sets of registers take turns, so that a unit is
on its way while the one before it waits for its slot or is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from mlagen.dsl import Handoff, Operation, PipelineSpace, Tile, Value
from mlagen.kernels.mla_decode_feed import Feed

COLUMNS = 64
WORDS = 4  # registers of the 16 numbers that a thread has of 64 columns
SETS = 2


class Feeder:
    """`left` and `right`: hand-offs of the halves of a tile's columns, of which an even tile's left
    half is free first and an odd tile's right one. `record` makes an operation of the kernel's."""

    def __init__(
        self,
        s: PipelineSpace,
        feed: Feed,
        left: Sequence[Handoff],
        right: Sequence[Handoff],
        record: Callable[..., Operation],
        columns_of: Callable[[Handoff], list[int]],
    ) -> None:
        self.record, self.columns_of = record, columns_of
        self.units = [
            *((unit, 0) for unit in left), *((unit, 1) for unit in right),
            *((unit, 0) for unit in right), *((unit, 1) for unit in left),
        ]  # fmt: skip
        boxes = max(len(unit.tiles) for unit, _ in self.units)
        words = s.named(
            "raw", ".b32", SETS * feed.passes * boxes * WORDS, "e4m3 numbers of two units"
        )
        each = len(words) // SETS
        self.words = [words[index * each : (index + 1) * each] for index in range(SETS)]
        rows = s.named(
            "place", ".b32", 2 * feed.passes, "rows in the pool, of the even and odd tile"
        )
        self.rows = [rows[: feed.passes], rows[feed.passes :]]
        self.raw = words

    def words_of(self, unit: Handoff, tile: Tile) -> list[str]:
        """The registers of a unit. A pass has an even number of units."""
        return self.words[self.units.index((unit, tile.offset % 2)) % SETS]

    def order(self, tile: Tile) -> list[tuple[tuple[Handoff, Tile], tuple[Handoff, Tile]]]:
        """Units of `tile` and the next as their slots become free, each with the one behind it."""
        mine = [(unit, tile + odd) for unit, odd in self.units]
        return list(pairwise([*mine, (self.units[0][0], tile + 2)]))

    def fetch(self, unit: Handoff, tile: Tile) -> None:
        """A unit to registers; with a tile's first one, where the tile lies, and the look-up of the
        tile two further."""
        odd = tile.offset % 2
        rows = self.rows[odd]
        if (unit, odd) in (self.units[0], next(u for u in self.units if u[1])):
            self.record("locate", tile, index=odd, rows=rows)
        self.record("fetch", tile, columns=self.columns_of(unit), rows=rows,
                    words=self.words_of(unit, tile))  # fmt: skip
