"""A path that shows a missing wait: from the load to the use, past no wait that covers it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.steps import CAPACITY, Step, covers
from mlagen.audit.gfx950.weak import WeakWait, weakest
from mlagen.binary.effects import is_matrix
from mlagen.binary.flow import Flow
from mlagen.binary.hazards import passes_of

_TRIED = 3  # waits of which each is asked whether ways go around it


@dataclass(frozen=True, slots=True)
class Witness:
    """The shortest such path.

    `branches`: (byte offset, taken) of the conditional branches on it. `instructions` and
    `barriers` between the two. `matrix_cycles`: the cycles that the matrix instructions between
    them take at least (4 a pass), which is time the load has to come back. `waits`: those on its
    counter that stand between, but ask for too little: the step, the count asked for, and how many
    later operations there are by then.
    """

    branches: tuple[tuple[int, bool], ...]
    instructions: int
    barriers: int
    matrix_cycles: int
    waits: tuple[tuple[int, int, int], ...]

    def __str__(self) -> str:
        ways = [f"{pc:#x} {'taken' if taken else 'not taken'}" for pc, taken in self.branches]
        path = f"past the branches at {', '.join(ways)}" if ways else "with no branch between them"
        return (
            f"{path}, {self.instructions} instructions ({self.barriers} barriers, at least "
            f"{self.matrix_cycles} cycles of matrix instructions) later"
        )


class Ways:
    """The ways through the code that waits leave open."""

    def __init__(self, steps: tuple[Step, ...], flow: Flow, budget: Budget) -> None:
        self._steps, self._flow, self._budget = steps, flow, budget
        self._block_of = _block_of(flow)

    def find(self, load: int, use: int) -> Witness | None:
        """The shortest way from a load to a use, past no wait that covers it. Registers that a
        newer load fills are not followed further."""
        steps = self._steps
        queue = steps[load].queue
        came: dict[int, int] = {load: -1}
        newer = {load: 0}
        work = deque([load])
        while work:
            at = work.popleft()
            self._budget.spend(1)
            for following in self._after(at):
                if following == use:
                    return _told(steps, came, at, use, queue)
                if following in came or _ends(steps[following], steps[load], newer[at]):
                    continue
                came[following] = at
                newer[following] = newer[at] + (steps[following].queue == queue)
                work.append(following)
        return None

    def weak_waits(self, witness: Witness, loads: Sequence[int], use: int) -> list[WeakWait]:
        """The waits of the shortest way that cover none of the loads, which are of one queue; the
        first load is the one of that way. Empty where none of those that lack least would mend the
        use: some way to it goes around each."""
        steps = self._steps
        queue = steps[loads[0]].queue
        counter = "vmcnt" if queue == "vm" else "lgkmcnt"
        found = [
            WeakWait(steps[index].ins.offset, counter, asked, newer)
            for index, asked, newer in witness.waits
        ]
        index_of = {steps[index].ins.offset: index for index, _, _ in witness.waits}
        left = list(found)
        for _ in range(_TRIED):
            wait = weakest(left)
            if wait is None:
                break
            at = index_of[wait.pc]
            if all(self._least(load, use, blocked=at) is None for load in loads):
                every = [self._least(load, at) for load in loads]
                newer = 0 if queue == "smem" else min(n for n in every if n is not None)
                return [other for other in found if other.pc != wait.pc] + [
                    WeakWait(wait.pc, counter, wait.asked, newer)
                ]
            left = [other for other in left if other.pc != wait.pc]
        return []

    def _least(self, load: int, to: int, blocked: int = -1) -> int | None:
        """The fewest operations of a load's queue that are issued after it on a way to a step, past
        no wait that covers it; None where no way leads there."""
        steps = self._steps
        queue = steps[load].queue
        least = {load: 0}
        work = deque([load])
        best: int | None = None
        while work:
            at = work.popleft()
            self._budget.spend(1)
            for following in self._after(at):
                newer = least[at] + (at != load and steps[at].queue == queue)
                if following == to:
                    best = newer if best is None else min(best, newer)
                    continue
                if following == blocked or newer >= least.get(following, newer + 1):
                    continue
                if _ends(steps[following], steps[load], newer):
                    continue
                least[following] = newer
                work.append(following)
        return best

    def waits_between(self, loads: Set[int], uses: Set[int]) -> set[int]:
        """The waits on ways from any of the loads, which are of one queue, to any of the uses,
        as far as no wait covers all of them."""
        steps = self._steps
        came: dict[int, set[int]] = {}
        work = deque(sorted(loads))
        newer = dict.fromkeys(loads, 0)
        queue = steps[work[0]].queue
        while work:
            at = work.popleft()
            self._budget.spend(1)
            for following in self._after(at):
                wait = steps[following].wait
                if wait is not None and covers(wait, queue, newer[at]):
                    continue
                came.setdefault(following, set()).add(at)
                if following not in newer and following not in uses:
                    newer[following] = newer[at] + (steps[following].queue == queue)
                    work.append(following)
        back = deque(use for use in uses if use in came)
        between = set(back)
        while back:
            for before in came.get(back.popleft(), ()):
                if before not in between and before not in loads:
                    between.add(before)
                    back.append(before)
        return {index for index in between if steps[index].wait is not None}

    def first_covers(self, loads: Set[int]) -> set[int]:
        """The waits that cover these operations, which are of one queue, first on some way."""
        newer = dict.fromkeys(loads, 0)
        work = deque(sorted(loads))
        queue = self._steps[work[0]].queue
        found: set[int] = set()
        while work:
            at = work.popleft()
            self._budget.spend(1)
            for following in self._after(at):
                wait = self._steps[following].wait
                if wait is not None and covers(wait, queue, newer[at]):
                    found.add(following)
                elif following not in newer:
                    newer[following] = newer[at] + (self._steps[following].queue == queue)
                    work.append(following)
        return found

    def _after(self, at: int) -> list[int]:
        block = self._flow.blocks[self._block_of[at]]
        if at < block.last:
            return [at + 1]
        return [self._flow.blocks[number].first for number in block.successors]


def _ends(step: Step, load: Step, newer: int) -> bool:
    """Whether the load is covered, or issued again, at this step."""
    if step.index == load.index:
        return True
    return step.wait is not None and covers(step.wait, load.queue, newer)


def _block_of(flow: Flow) -> list[int]:
    found = [0] * len(flow.instructions)
    for block in flow.blocks:
        found[block.first : block.last + 1] = [block.index] * (block.last + 1 - block.first)
    return found


def _told(
    steps: tuple[Step, ...], came: dict[int, int], last: int, use: int, queue: str
) -> Witness:
    path = [use]
    at = last
    while at != -1:
        path.append(at)
        at = came[at]
    path.reverse()
    branches = []
    for here, there in pairwise(path):
        ins = steps[here].ins
        if ins.mnemonic.startswith("s_cbranch"):
            branches.append((ins.offset, there != here + 1))
    between = [steps[index] for index in path[1:-1]]
    return Witness(
        tuple(branches),
        len(between),
        sum(step.is_barrier for step in between),
        sum(4 * passes_of(step.ins) for step in between if is_matrix(step.ins)),
        tuple(_weak(between, queue)),
    )


def _weak(between: Sequence[Step], queue: str) -> Iterator[tuple[int, int, int]]:
    newer = 0
    for step in between:
        if step.wait is not None:
            asked = step.wait[queue != "vm"]
            if asked < CAPACITY["vm" if queue == "vm" else "lds"]:
                yield step.index, asked, newer
        newer += step.queue == queue
