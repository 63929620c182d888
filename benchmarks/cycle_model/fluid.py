"""Workgroups that share the memory: each goes at its own speed until all together ask for too much.

A workgroup is a row of phases. A phase takes `cycles` when nobody else asks, and asks for `bytes`
in them. Where those that run ask for more than there is, what is there is filled up evenly: nobody
gets more than it asks for, and the others the same. So a tail of few workgroups is faster than
many, and a launch of few is limited by how much each has on its way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mlagen.timing.constants import Machine
from mlagen.timing.whole import XCDS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_DONE: Final = 1e-6  # cycles left of a phase that has ended


@dataclass(frozen=True, slots=True)
class Phase:
    """Cycles of a workgroup alone, and the bytes that it asks for in them."""

    cycles: float
    bytes: float


Group = tuple[Phase, ...]


def level(demands: Floats, counts: Floats, capacity: float) -> float:
    """Bytes a cycle that nobody gets more than, so that all together get `capacity`; the largest
    demand where there is enough. `counts`: how many ask for each of `demands`."""
    if (demands * counts).sum() <= capacity:
        return float(demands.max(initial=0.0))
    order = np.argsort(demands)
    ordered, many = demands[order], counts[order]
    before = np.concatenate([[0.0], np.cumsum(ordered * many)[:-1]])
    left = (capacity - before) / np.cumsum(many[::-1])[::-1]
    # The first one that asks for more than an even part of what those before it leave.
    return float(left[np.argmax(ordered > left)])


class _Running:
    """What is running: by place its workgroup's phases that are left, and the present one.

    `xcd`: the queue of each place; `counts`: how many places alike it stands for.
    """

    def __init__(self, queues: list[deque[Group]], xcd: Ints, counts: Floats) -> None:
        self.queues, self.xcd, self.counts = queues, xcd, counts
        self.phases: list[deque[Phase]] = [deque() for _ in self.xcd]
        self.left = np.zeros(len(self.xcd))
        self.demand = np.zeros(len(self.xcd))
        self.live = np.ones(len(self.xcd), dtype=bool)
        for place in range(len(self.xcd)):
            self.next(place)

    def next(self, place: int) -> None:
        """A place's next phase, of its workgroup or of the next one of its XCD."""
        while not self.phases[place]:
            queue = self.queues[self.xcd[place]]
            if not queue:
                self.live[place] = False
                self.left[place] = np.inf
                self.demand[place] = 0.0
                return
            self.phases[place].extend(queue.popleft())
        phase = self.phases[place].popleft()
        self.left[place] = max(phase.cycles, _DONE)
        self.demand[place] = phase.bytes / self.left[place]


def finish(
    groups: Sequence[Sequence[Phase]], residents: int, capacity: float, on: Machine
) -> float:
    """Cycles until the last workgroup has ended. `capacity`: bytes a cycle for all together.

    Workgroups go to the XCDs in turn, inside one to whichever place is free first.
    """
    start = Phase(float(on.dispatch), 0.0)
    every: list[Group] = [(start, *group) for group in groups]
    places = max(1, on.cus // XCDS) * residents
    if len(every) <= places * XCDS:  # nobody waits for a place: those alike go together
        alike = Counter(every)
        counts = np.array(list(alike.values()), dtype=np.float64)
        running = _Running([deque([group]) for group in alike], np.arange(len(alike)), counts)
    else:
        queues = [deque(every[xcd::XCDS]) for xcd in range(XCDS)]
        xcd = np.repeat(np.arange(XCDS), places)
        running = _Running(queues, xcd, np.ones(len(xcd)))
    now = 0.0
    while running.live.any():
        live = running.live
        most = level(running.demand[live], running.counts[live], capacity)
        speed = np.ones_like(running.demand)
        slowed = running.demand > most
        speed[slowed] = most / running.demand[slowed]
        step = float((running.left / speed)[live].min())
        now += step
        running.left -= step * speed
        for place in np.flatnonzero(live & (running.left <= _DONE)):
            running.next(int(place))
    return now
