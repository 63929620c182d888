"""Registers that are used while a load into them may still be in flight, in one wave's program
order, on the printed program.

A persistent kernel runs the paths of single work items one after another. What an item finds in
flight is what the setup or some item left: the states are followed until no new one comes, each
with all tile counts, so every sequence of items is covered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mlagen.targets.gfx950.codegen.program import (
    Flights,
    Layout,
    PathStep,
    ProgramInstruction,
    RoleStream,
)
from mlagen.targets.gfx950.codegen.violation import Violation, waited
from mlagen.targets.gfx950.dsl import Schedule
from mlagen.targets.gfx950.limits import GFX950

KEPT = GFX950.vmcnt_max  # a wait for fewer than these leaves no older entry in flight
Queue = tuple[
    ProgramInstruction | None, ...
]  # oldest first; None: nothing that a register is loaded by
Found = tuple[tuple[str, str], Violation]


@dataclass(frozen=True, slots=True)
class QueuesInFlight:
    """Issued operations of each counter that no wait has covered yet. `scalar`: scalar loads are
    among them, which return out of order."""

    vm: Queue = ()
    lgkm: Queue = ()
    scalar: bool = False


def check_loads(
    schedule: Schedule, layout: Layout, flights: Flights, stream: RoleStream, tiles: Iterable[int]
) -> tuple[list[Found], bool]:
    """Violations of one stream for all tile counts, and whether a work item may begin while scalar
    loads are in flight."""
    problems: list[Found] = []
    walker = _Loads(schedule, layout, flights, stream, QueuesInFlight())
    problems += walker.run(layout.once.get(stream.role, []), 0)
    seen, work, counts = {walker.left}, [walker.left], list(tiles)
    while work:
        before = work.pop()
        for n in counts:
            walker = _Loads(schedule, layout, flights, stream, before)
            problems += walker.run(layout.paths(n, stream.role), n)
            if layout.persistent and walker.left not in seen:
                seen.add(walker.left)
                work.append(walker.left)
    return problems, any(state.scalar for state in seen)


@dataclass(frozen=True, eq=False, slots=True)
class _Issued:
    """An operation on its way. The same instruction may be so several times."""

    load: ProgramInstruction | None


class _Loads:
    """Follows one wave of a stream."""

    def __init__(
        self,
        schedule: Schedule,
        layout: Layout,
        flights: Flights,
        stream: RoleStream,
        before: QueuesInFlight,
    ) -> None:
        self.schedule, self.pieces, self.flights = schedule, layout.by_key(), flights
        self.who = f" of role {stream.role}" if stream.role else ""
        self.scalar = before.scalar
        self.queues: dict[str, deque[_Issued]] = {"vm": deque(), "lgkm": deque()}
        self.flying: dict[int, _Issued] = {}
        for counter, queue in (("vm", before.vm), ("lgkm", before.lgkm)):
            for load in queue:
                self._issue(counter, load)

    def run(self, path: Sequence[PathStep], n: int) -> Iterator[Found]:
        for step in path:
            for _, x, touched in self.flights[step.piece]:
                if x.pipe == "wait":
                    for counter, count in waited(x):
                        self._settle(counter, count)
                    continue
                if not self.flying.keys().isdisjoint(touched):
                    yield from self._use(x, n)
                if x.counter:
                    self.scalar |= x.pipe == "smem"
                    self._issue(x.counter, x)
            for x in self.pieces[step.piece].control:
                yield from self._use(x, n)

    @property
    def left(self) -> QueuesInFlight:
        """What is in flight now, without what no later wait can tell apart."""
        return QueuesInFlight(self._queue("vm"), self._queue("lgkm"), self.scalar)

    def _queue(self, counter: str) -> Queue:
        flying = set(self.flying.values())
        entries = [(x.load if x in flying else None) for x in self.queues[counter]]
        old, new = entries[:-KEPT], entries[-KEPT:]
        kept = [*(x for x in old if x is not None), *new]
        while kept and kept[0] is None:
            del kept[0]
        return tuple(kept)

    def _issue(self, counter: str, load: ProgramInstruction | None) -> None:
        issued = _Issued(load)
        self.queues[counter].append(issued)
        for register in load.writes if load is not None else ():
            self.flying[register] = issued

    def _settle(self, counter: str, count: int) -> None:
        queue = self.queues[counter]
        if counter == "lgkm" and self.scalar and count:
            return  # scalar loads return out of order: only 0 says anything
        while len(queue) > count:
            done = queue.popleft()
            for register in done.load.writes if done.load is not None else ():
                if self.flying.get(register) is done:
                    del self.flying[register]
        if counter == "lgkm" and count == 0:
            self.scalar = False

    def _use(self, x: ProgramInstruction, n: int) -> Iterator[Found]:
        for register in (*x.reads, *x.writes, *x.skips):
            issued = self.flying.get(register)
            load = issued.load if issued is not None else None
            if load is None or issued is None or load.origin is None or x.origin is None:
                continue
            queue = self.queues[load.counter]
            text = (
                f"error[wait-missing] {self.schedule.file}:{x.origin.schedule_line} "
                f"{x.origin.operation}{self.who}: `{x.text}` uses a register that `{load.text}` of "
                f"{load.origin.operation} (:{load.origin.schedule_line}) may still be loading. "
                f"Needs {load.counter}cnt({len(queue) - 1 - queue.index(issued)}) before it. "
                f"First at N = {n}."
            )
            yield (load.origin.operation, x.origin.operation), Violation("wait-missing", text, n)
            return
