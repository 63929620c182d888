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
from mlagen.targets.nvidia.dsl import PipelineSpace
from mlagen.targets.nvidia.dsl.smem import Scratch, TmaTile

FOUR = 4  # columns that a thread loads at once
AT_ONCE = 16  # of such loads that it has in flight


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a block leaves its part: `rows` rows of `columns` fp32, `pitch` bytes apart so that no
    two of a warp's stores meet in a bank, then their LSE and the weights of all parts. `threads`
    from `first_thread` on add parts up."""

    room: Scratch
    rows: int
    columns: int
    threads: int
    first_thread: int

    @property
    def pitch(self) -> int:
        return FLOAT * (self.columns + FOUR)

    @property
    def rows_at(self) -> int:
        return self.room.base

    @property
    def logs_at(self) -> int:
        return self.rows_at + self.rows * self.pitch

    @property
    def weights_at(self) -> int:
        return self.logs_at + self.rows * FLOAT

    @property
    def most(self) -> int:
        """Parts at most."""
        return CLUSTER_MAX

    @property
    def at_once(self) -> int:
        return AT_ONCE

    @property
    def batches(self) -> int:
        """Of loads: for as many parts as there may be, and each thread's share of all rows."""
        places = -(-self.rows * self.columns // FOUR // (self.threads * self.most))
        return max(places * self.most, self.rows * self.columns // FOUR // self.threads) // AT_ONCE

    @property
    def fours_log2(self) -> int:
        """Of the loads that a row takes."""
        return (self.columns // FOUR).bit_length() - 1


def parts_over(
    s: PipelineSpace, tiles: Sequence[TmaTile], rows: int, columns: int, threads: range
) -> Parts:
    """Parts in place of as many of `tiles` as they take."""
    need = rows * (FLOAT * (columns + FOUR) + FLOAT + FLOAT * CLUSTER_MAX)
    over: list[TmaTile] = []
    for tile in tiles:
        if need <= 0:
            break
        over.append(tile)
        need -= tile.bytes * tile.slots
    room = s.smem.scratch("parts", *over)
    return Parts(room, rows, columns, len(threads), threads.start)
