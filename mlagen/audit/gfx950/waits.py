"""Results in flight: every register use against the waits on all paths, and what each wait needs.

This is a dataflow over the code. For each load that may be outstanding the state keeps how many
later operations of its queue were issued at least; s_waitcnt N covers it iff N is no more than
that. What a wait has covered stays in the state until it is used: the use is then what the wait is
needed for, and tells how weak it could be. A result that two waits cover needs neither of them
alone.

That more operations are outstanding than a counter can count covers nothing: whether a full counter
holds the wave back is not published, and code that relied on it was wrong (docs/audit.md).

Sources: CDNA4 ISA guide, S_WAITCNT; LLVM AMDGPUUsage, memory model of gfx942/gfx950: vmcnt counts
loads, stores and loads to LDS in order, lgkmcnt DS instructions in order and scalar loads in any.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.fixpoint import follow
from mlagen.audit.gfx950.steps import MEMORY, Queue, Step, covers
from mlagen.binary.flow import Flow

_FAR = 64  # more later operations than any counter can count

Key = tuple[int, int]  # the load's index, and the wait that covered it, or PENDING
PENDING = -1


@dataclass(frozen=True, slots=True)
class PendingResult:
    """`stamp`: its queue's count when it was issued (the latest on any path). `margin`: later
    operations when a wait covered it. `mask`: registers, and MEMORY, that still matter."""

    stamp: int
    margin: int
    mask: int

    def joined(self, other: PendingResult) -> PendingResult:
        """What holds where two paths meet."""
        return PendingResult(
            max(self.stamp, other.stamp), min(self.margin, other.margin), self.mask | other.mask
        )


@dataclass(frozen=True, slots=True)
class Unwaited:
    """An instruction that uses (`overwrites` False) or overwrites registers still in flight.

    `newer`: later operations of the queue on the worst path: the counter value that would do.
    """

    step: int
    load: int
    mask: int
    newer: int
    overwrites: bool


@dataclass
class WaitUse:
    """Weakest counts that would do for a wait; None: nothing relies on that counter here.

    `covered`: whether anything was outstanding that the given count covers, a counter each.
    """

    vm: int | None = None
    lgkm: int | None = None
    covered: set[str] = field(default_factory=set)

    def demand(self, queue: Queue, count: int) -> None:
        if queue == "vm":
            self.vm = count if self.vm is None else min(self.vm, count)
        else:
            self.lgkm = count if self.lgkm is None else min(self.lgkm, count)


@dataclass
class WaitReport:
    """`unwaited` by (step, load); `uses` by the index of the s_waitcnt."""

    unwaited: dict[tuple[int, int], Unwaited] = field(default_factory=dict)
    uses: dict[int, WaitUse] = field(default_factory=dict)


State = dict[Key, PendingResult]


def check_waits(steps: tuple[Step, ...], flow: Flow, budget: Budget) -> WaitReport:
    """Follow all paths from the entry until nothing changes, then report.

    Raises OutOfSteps when `budget` is spent first.
    """

    def walk(state: State, report: WaitReport | None) -> _Walk:
        return _Walk(steps, state, report, budget)

    states = follow(flow, lambda at, state: walk(state, None).run(flow, at), _merge, budget)
    report = WaitReport()
    for step in steps:
        if step.wait is not None:
            report.uses[step.index] = WaitUse()
    for at in flow.order:
        budget.spend(flow.blocks[at].last - flow.blocks[at].first + 1)
        walk(states[at], report).run(flow, at)
    return report


def _merge(known: State, new: State) -> bool:
    """Add the entries of another path; whether that changed anything."""
    changed = False
    for key, entry in new.items():
        old = known.get(key)
        merged = entry if old is None else old.joined(entry)
        if merged != old:
            known[key] = merged
            changed = True
    return changed


class _Walk:
    """One pass over a block. Counts start at 0, so what comes in has stamps of at most 0."""

    def __init__(
        self,
        steps: tuple[Step, ...],
        state: State,
        report: WaitReport | None,
        budget: Budget,
    ) -> None:
        self.steps = steps
        self.state = dict(state)
        self.report = report
        self.budget = budget
        self.counts: dict[str, int] = {"vm": 0, "lds": 0, "smem": 0}

    def run(self, flow: Flow, block: int) -> State:
        watched = self._watched()
        one = flow.blocks[block]
        for index in range(one.first, one.last + 1):
            step = self.steps[index]
            if watched & (step.reads | step.writes):
                self._use(step)
                watched = self._watched()
            if step.memory or step.is_barrier:
                self._touch_memory(step)
            if step.wait is not None:
                self._wait(step, step.wait)
                watched = self._watched()
            elif step.queue:
                self._issue(step)
                watched |= step.results
        return {
            key: PendingResult(
                max(entry.stamp - self.counts[self.steps[key[0]].queue], -_FAR),
                entry.margin,
                entry.mask,
            )
            for key, entry in self.state.items()
        }

    def _watched(self) -> int:
        mask = 0
        for entry in self.state.values():
            mask |= entry.mask
        return mask

    def _newer(self, key: Key, entry: PendingResult) -> int:
        return self.counts[self.steps[key[0]].queue] - entry.stamp

    def _use(self, step: Step) -> None:
        self.budget.spend(len(self.state))
        for key, entry in list(self.state.items()):
            read, written = entry.mask & step.reads, entry.mask & step.writes
            if not read and not written:
                continue
            load = self.steps[key[0]]
            in_order = load.queue == step.queue and load.queue != "smem"
            late = step.results if in_order else 0  # arrives after the load, whatever happens
            if read or written & ~late:
                if self.report is not None and key[1] == PENDING:
                    mask, newer = read or written & ~late, self._newer(key, entry)
                    found = Unwaited(step.index, key[0], mask, newer, not read)
                    self.report.unwaited[step.index, key[0]] = found
                elif self.report is not None:
                    self.report.uses[key[1]].demand(load.queue, entry.margin)
            self._keep(key, entry, entry.mask & ~(step.reads | step.writes))

    def _touch_memory(self, step: Step) -> None:
        """What waits may be needed for besides registers. Without addresses every barrier may
        publish what was done before it, and LDS may be the same LDS."""
        self.budget.spend(len(self.state))
        for key, entry in list(self.state.items()):
            if not entry.mask & MEMORY or key[1] == PENDING:
                continue
            load = self.steps[key[0]]
            relies = (
                step.is_barrier
                or (load.memory == "dma" and step.memory == "lds")
                or (load.memory == "lds" and step.memory == "dma")
                or (load.memory == "store" and step.memory == "store")
            )
            if relies:
                if self.report is not None:
                    self.report.uses[key[1]].demand(load.queue, entry.margin)
                self._keep(key, entry, entry.mask & ~MEMORY)

    def _keep(self, key: Key, entry: PendingResult, mask: int) -> None:
        if mask:
            self.state[key] = PendingResult(entry.stamp, entry.margin, mask)
        else:
            self.state.pop(key, None)

    def _wait(self, step: Step, wait: tuple[int, int]) -> None:
        self.budget.spend(len(self.state))
        for key, entry in list(self.state.items()):
            queue = self.steps[key[0]].queue
            newer = self._newer(key, entry)
            if not covers(wait, queue, newer):
                continue
            margin = 0 if queue == "smem" else newer
            if key[1] == PENDING:
                del self.state[key]
                covered, here = (key[0], step.index), PendingResult(entry.stamp, margin, entry.mask)
                old = self.state.get(covered)
                self.state[covered] = here if old is None else old.joined(here)
                if self.report is not None:
                    self.report.uses[step.index].covered.add("vm" if queue == "vm" else "lgkm")
            elif key[1] == step.index:
                self.state[key] = PendingResult(entry.stamp, max(entry.margin, margin), entry.mask)
            else:
                del self.state[key]  # two waits cover it: neither is needed alone

    def _issue(self, step: Step) -> None:
        self.counts[step.queue] += 1
        mask = step.results | (MEMORY if step.memory in ("lds", "dma", "store") else 0)
        self._keep((step.index, PENDING), PendingResult(self.counts[step.queue], 0, mask), mask)
