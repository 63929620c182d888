"""Parts of a row block that the blocks which have them put together, on Hopper.

A role stores its columns of its part to a slot and counts itself in. When all parts are there, each
role of each block adds up one slice of the columns of all of them, in their order, and stores it as
bf16: there is no second launch. A role asks for the others a number of times; then it leaves its
slice to the last one to come, which finds that in the same atomic operation. So no block waits for
one that has not begun, whatever else runs on the GPU, and each number is added up the same way by
whoever does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.attention.latent.block_sizes import MOST_SLICES, TOGETHER
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole
from mlagen.targets.nvidia.dsl.smem import Scratch, TmaTile

FOUR = 4  # columns that a thread loads at once
AT_ONCE = 16  # of such loads that it has in flight
ASKS = 64  # times that a role asks, some 40 us of an H200
WORD = 4  # bytes of the slices that a role has


@dataclass(frozen=True, slots=True)
class CombinedSplits:
    """`rows` rows of `columns` columns that roles put together: a room of each holds the weights of
    all parts, a row after another, and which slices it has."""

    rooms: dict[str, Scratch]
    rows: int
    columns: int
    threads: int

    @property
    def roles(self) -> int:
        return len(self.rooms)

    @property
    def counts(self) -> tuple[int, ...]:
        """Of parts, for which there is code."""
        return tuple(n for n in TOGETHER[1:] if n * self.roles <= MOST_SLICES)

    @property
    def asks(self) -> int:
        return ASKS

    def index(self, role: WarpRole) -> int:
        return list(self.rooms).index(role.name)

    def told_at(self, role: WarpRole) -> int:
        """Which slices it has."""
        return self.rooms[role.name].base

    def weights_at(self, role: WarpRole) -> int:
        return self.rooms[role.name].base + FLOAT * FOUR

    def places(self, count: int) -> int:
        """Rows, so many apart as the threads have at a time, that a thread has loads of in flight
        where there are so many parts."""
        rows = self.threads * count * self.roles * FOUR // self.columns
        return min(max(AT_ONCE // count, 1), -(-self.rows // rows))

    def sharing(self, count: int) -> int:
        """Lanes that share a row's LSE where there are so many parts, a power of two."""
        return min(count, 1 << self.log2(self.threads // self.rows))

    @staticmethod
    def log2(number: int) -> int:
        return number.bit_length() - 1

    @staticmethod
    def distances(count: int) -> list[int]:
        """Of lanes, by which so many lanes that follow each other exchange numbers."""
        return [1 << n for n in range(count.bit_length() - 1)]


def parts_over(
    s: PipelineSpace, tiles: Sequence[TmaTile], rows: int, columns: int, *roles: WarpRole
) -> CombinedSplits:
    """Parts whose weights lie in place of `tiles`, one or more a role."""
    rooms, left = {}, list(tiles)
    need = FLOAT * (FOUR + rows * MOST_SLICES // len(roles))
    for role in roles:
        over: list[TmaTile] = []
        while sum(tile.bytes * tile.slots for tile in over) < need:
            over.append(left.pop(0))
        rooms[role.name] = s.smem.scratch(f"weights of {role.name}", *over)
    return CombinedSplits(rooms, rows, columns, roles[0].threads)
