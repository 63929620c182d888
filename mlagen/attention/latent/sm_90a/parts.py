"""Parts of a row block that the blocks of a CTA cluster put together, on Hopper.

Each block leaves its part of O, normalised, and its LSE in its own SMEM, in place of tiles that it
is done with. Behind a barrier of all blocks each of them adds up 1/n of the columns of all n parts,
in the order of the blocks, and stores them as bf16. A second barrier keeps all of them until the
others have read. So no part goes to memory, and there is no second launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.artifact.manifest import CLUSTER_MAX
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.split_work import TOGETHER
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole
from mlagen.targets.nvidia.dsl.smem import Scratch, TmaTile

FOUR = 4  # columns that a thread loads at once
AT_ONCE = 8  # of such loads that it has in flight, or as many as there are parts


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a block leaves its part of `rows` rows: as many of its `columns` in each of `rooms`,
    one a role, whose `threads` write it. A room has the rows in fp32, `pitch` bytes apart so that
    no two of a warp's stores meet in a bank, their LSE, and the weights of all parts. Threads of
    all roles, from `first_thread` on, add parts up."""

    rooms: tuple[Scratch, ...]
    rows: int
    columns: int
    threads: int
    first_thread: int

    @property
    def pitch(self) -> int:
        return FLOAT * (self.columns // len(self.rooms) + FOUR)

    def rows_at(self, role: int = 0) -> int:
        return self.rooms[role].base

    @property
    def logs_at(self) -> int:
        """In the first role's room."""
        return self.rows_at() + self.rows * self.pitch

    def weights_at(self, role: int = 0) -> int:
        return self.rows_at(role) + self.rows * (self.pitch + FLOAT)

    @property
    def counts(self) -> tuple[int, ...]:
        """Blocks of a CTA cluster, one or other of which a launch has."""
        return TOGETHER[1:]

    def places(self, count: int) -> int:
        """Rows, so many apart as all threads have at a time, that a thread has loads of in flight
        where there are so many parts."""
        rows = self.threads * count * FOUR // self.columns
        return min(max(AT_ONCE // count, 1), -(-self.rows // rows))

    @staticmethod
    def log2(number: int) -> int:
        return number.bit_length() - 1

    @staticmethod
    def distances(count: int) -> list[int]:
        """Of lanes, by which so many lanes that follow each other exchange numbers."""
        return [1 << n for n in range(count.bit_length() - 1)]


def parts_over(
    s: PipelineSpace, tiles: Sequence[TmaTile], rows: int, columns: int, *roles: WarpRole
) -> Parts:
    """Parts that `roles`, warps after each other, leave in place of as many of `tiles`, which
    follow each other, as they take."""
    rooms, left = [], list(tiles)
    need = rows * FLOAT * (columns // len(roles) + FOUR + 1 + CLUSTER_MAX)
    for role in roles:
        over: list[TmaTile] = []
        while sum(tile.bytes * tile.slots for tile in over) < need:
            over.append(left.pop(0))
        rooms.append(s.smem.scratch(f"part of {role.name}", *over))
    threads = sum(role.threads for role in roles)
    return Parts(tuple(rooms), rows, columns, threads, roles[0].first_thread)
