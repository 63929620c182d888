"""The proof of pipelines: every access to SMEM comes after those it needs, for all roles, every N.

It reads the final operation sequences (waits in place, group waits as printed) and runs the roles
against each other for N = 1, 2, ... with clocks of what each warp knows to be over; where blocks
are persistent, for items of N = 0, 1, 2, ... tiles in every order (from 1 on in tensor memory). It
checks that

* a tile or exchange that is used is there: filled, for this tile, and known to be complete;
* nothing is overwritten before all that read or wrote it are known to be done, matrix instructions
  by their group wait, on every warp of a role;
* what ordinary instructions wrote is fenced before a matrix instruction or a copy touches it; what
  they load has been used, or fenced, before a release that a copy waits for (`loads`);
* what one warp, or the tensor pipe, did in tensor memory is fenced on both sides of the barrier by
  which another learns that it is over, before that one goes on there;
* ordinary code touches registers of a matrix group only when the group is done;
* of a CTA cluster, all of this holds for what a block writes and releases in the others: its bytes
  there complete a fill, and tell nothing else of the block that they come from; of a CTA pair,
  products of the leader read and write both blocks, and its commits arrive where they are sent;
* no barrier is arrived at again before all have left it, and no slot is filled again before all
  that wait for its content have seen it; each tile is filled and released once;
* the roles end: no wait is left without its arrival.

From one loop pass to the next only the tile number changes, so N up to two passes beyond the
deepest ring stands for all. What an item leaves to the next comes after the last use of what that
one has, so pairs of items of all N, and triples of short ones, stand for all sequences. Where roles
go apart, as many items are under way at once as rings have slots for their tiles: pairs of N up to
where loops run, triples of short ones, fours of the shortest, and items of one tile twice around
the deepest ring stand for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.targets.nvidia.codegen.actors import RoleEvent
from mlagen.targets.nvidia.codegen.loads import PrintedLoads
from mlagen.targets.nvidia.codegen.proof_run import ProofRun
from mlagen.targets.nvidia.codegen.proof_state import NO_LOADS
from mlagen.targets.nvidia.codegen.runs import ItemRun, Loop, apart_runs, item_runs
from mlagen.targets.nvidia.codegen.tracks import Tracks
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule


@dataclass(frozen=True)
class Way:
    """A run as it was proved: the operations of all roles in one possible order. Every other
    possible order has the same effect on SMEM."""

    line: ItemRun
    steps: tuple[tuple[str, RoleEvent], ...]  # role, what it does

    def of(self, role: str) -> list[RoleEvent]:
        """What one role does."""
        return [event for name, event in self.steps if name == role]


@dataclass(frozen=True, slots=True)
class PipelineProof:
    """`checked`: accesses looked at; `tiles`: largest N; of a proof that found nothing, `ways`: the
    runs that were looked at, and `idle`: ids of operations that wait for no tile that their warp
    did not know to be full already."""

    violations: tuple[str, ...]
    checked: int
    tiles: int
    ways: tuple[Way, ...] = ()
    idle: frozenset[int] = frozenset()


class Prover:
    """The proofs of a schedule's streams, with what they share."""

    def __init__(self, schedule: PipelineSchedule) -> None:
        self.schedule, self.tracks = schedule, Tracks(schedule)
        self._lines: dict[tuple[tuple[int, ...], int], ItemRun] = {}

    def prove(
        self, loops: Sequence[Loop], *, quick: bool = False, loads: PrintedLoads = NO_LOADS
    ) -> PipelineProof:
        """Check all accesses of all roles for every N. `quick`: fewer N, so it may miss some.
        `loads`: what the printed operations leave unused."""
        runs = _runs(self.schedule, loops, quick=quick)
        largest = max(n for counts in runs for n in counts)
        checked = 0
        busy: set[int] = set()
        ways: list[Way] = []
        for counts in runs:
            step = max(loop.edge.step for loop in loops)
            line = self._lines.setdefault((counts, step), ItemRun(counts, step))
            run = ProofRun(self.tracks, loops, line, loads)
            run.run()
            ways.append(Way(line, tuple(run.steps)))
            checked += run.checked
            busy |= run.busy
            if run.problems:
                return PipelineProof(tuple(run.problems), checked, largest)
        waits = (op for loop in loops for op in loop.operations if op.name == "wait_full")
        idle = frozenset(map(id, waits)) - busy
        return PipelineProof((), checked, largest, tuple(ways), idle)


def prove_pipelines(
    schedule: PipelineSchedule, loops: Sequence[Loop], *, quick: bool = False
) -> PipelineProof:
    """`Prover.prove` of one set of streams."""
    return Prover(schedule).prove(loops, quick=quick)


def _runs(
    schedule: PipelineSchedule, loops: Sequence[Loop], *, quick: bool
) -> list[tuple[int, ...]]:
    """Tiles of the items of each run that is looked at."""
    step = max(loop.edge.step for loop in loops)
    if schedule.persistent == "ahead":
        return item_runs(max(loop.edge.high for loop in loops), step, quick=quick)
    looped = max(loop.edge.first_looped for loop in loops)
    deepest = max((p.depth for p in schedule.smem.pipelines.values()), default=1)
    largest = looped + deepest + (0 if quick else 2 * step)
    # Where nothing was multiplied, no sums lie in TMEM: such a run traps.
    runs: list[tuple[int, ...]] = [(n,) for n in range(bool(schedule.tmem.regions), largest + 1)]
    return runs + apart_runs(looped + 1, deepest, quick=quick) if schedule.persistent else runs
