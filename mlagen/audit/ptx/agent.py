"""Threads that run together: lanes of one warp, or whole warps of a warpgroup in step.

Warps that execute the same instructions need not be followed one by one. What only some of an
agent's threads know or did is kept by thread, so that nothing is taken to be ordered because of
the grouping: a wait is seen warp by warp, an access thread by thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from mlagen.audit.ptx.load_waits import Loading
from mlagen.audit.ptx.order import Copies, Sink
from mlagen.audit.ptx.shared import Event, Knowledge, Release
from mlagen.audit.ptx.values import (
    UNKNOWN,
    Compare,
    Lanes,
    Linear,
    Logic,
    Mixed,
    Value,
    expanded,
    is_number,
    logic,
    mixed,
    plain,
    take,
)
from mlagen.ptx import Instruction

LANES = 32
WARPS = 4  # of a warpgroup
_WARP = (1 << LANES) - 1


def thread_set(threads: Lanes) -> int:
    """Thread numbers as a bit set."""
    return _thread_set(threads.tobytes())


@lru_cache(maxsize=4096)  # keys are up to 8 KiB
def _thread_set(raw: bytes) -> int:
    found = 0
    for thread in np.frombuffer(raw, np.int64).tolist():
        found |= 1 << thread
    return found


@lru_cache(maxsize=65536)
def whole_warps(threads: int) -> int:
    """All threads (a bit set) of the warps that have one in `threads`."""
    found, warp = 0, _WARP
    while warp <= threads:
        if threads & warp:
            found |= warp
        warp <<= LANES
    return found | (warp if threads & warp else 0)


@dataclass(frozen=True, slots=True)
class Blocked:
    """What an agent waits for; `target` is an mbarrier's address or a named barrier's number."""

    what: str  # "mbarrier", "bar", "lanes", "wgmma", "registers"
    instruction: Instruction
    target: int = 0
    value: int = 0


@dataclass(slots=True, eq=False)
class Agent:
    """Some threads at one place of the program."""

    unit: int  # warpgroup, or warp where warps are followed one by one
    threads: Lanes  # of the block, ascending
    registers: dict[str, Value] = field(default_factory=dict)
    pc: int = 0
    over: int = 0
    fenced: int = 0
    own: dict[int, bool] = field(default_factory=dict)  # own event -> fenced, or read, since
    loads: dict[int, Event] = field(default_factory=dict)  # own loads that may not have read
    loading: Loading = field(default_factory=Loading)  # the same, and where their values are
    waits: set[int] = field(default_factory=set)  # own waits that not all threads know of
    # What only some of the threads know: set of threads -> (over, fenced).
    partial: dict[int, tuple[int, int]] = field(default_factory=dict)
    cp_async: Copies = field(default_factory=Copies)
    bulk: Copies = field(default_factory=Copies)
    failed: int = -1  # pc of the try_wait that just returned false
    blocked: Blocked | None = None  # None: it can run
    wgmma_issued: int = 0
    wgmma_open: list[int] = field(default_factory=list)
    wgmma_groups: list[list[int]] = field(default_factory=list)
    guesses: dict[int, int] = field(default_factory=dict)
    block: int = 0  # rank in the CTA cluster
    first_warp: int = 0  # of that block
    cluster: int = -1  # generation of the CTA cluster barrier arrived at
    set: int = 0  # the threads as a bit set
    warps: tuple[int, ...] = ()
    version: int = 0  # counts changes of what the threads know

    def __post_init__(self) -> None:
        self.threads = np.asarray(self.threads, np.int64)
        self.set = thread_set(self.threads)
        self.warps = tuple(dict.fromkeys((self.threads // LANES).tolist()))

    @property
    def who(self) -> str:
        """For a finding."""
        whose = f"block {self.block}, " if self.first_warp else ""
        return whose + self._warps()

    def _warps(self) -> str:
        first, last = self.warps[0] - self.first_warp, self.warps[-1] - self.first_warp
        if len(self.threads) == LANES * len(self.warps):
            return f"warp {first}" if first == last else f"warps {first}-{last}"
        if first != last:
            return f"some lanes of warps {first}-{last}"
        lanes = self.threads % LANES
        shown = f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]}-{lanes[-1]}"
        return f"warp {first}, {shown}"

    def knowledge(self, threads: int | None = None, thread: int = -1) -> Knowledge:
        """What all of some of the threads (a bit set; the agent's by default) know."""
        over, fenced = self.over, self.fenced
        for subset, (more, more_fenced) in self.partial.items():
            if threads is not None and not threads & ~subset:
                over |= more
                fenced |= more_fenced
        return Knowledge(over, fenced, self.own, thread)

    def learn(self, over: int, fenced: int) -> None:
        """Events are known to be over."""
        self.over |= over
        self.fenced |= fenced
        self.version += 1

    def learn_some(self, threads: int, over: int) -> None:
        """Some of the threads (a bit set) know that events are over."""
        if not self.set & ~threads:
            self.learn(over, 0)
            return
        known, fenced = self.partial.get(threads, (0, 0))
        self.partial[threads] = (known | over, fenced)
        self.version += 1

    def loads_to(self, event: Event, registers: tuple[str, ...]) -> None:
        """An ordinary load of these threads."""
        self.did(event, False)
        self.loads[event.number] = event
        self.loading.begin(event.number, registers)

    def have_read(self, numbers: Iterable[int]) -> None:
        """Own loads are over, and not only issued."""
        for number in numbers:
            event = self.loads.pop(number)
            self.own[number] = True
            if not event.threads & ~self.set and self.over >> number & 1:
                self.fenced |= event.bit
            self.version += 1

    def did(self, event: Event, fenced: bool) -> None:
        """An access of these threads."""
        self.own[event.number] = fenced
        self.version += 1

    def saw(self, event: Event) -> None:
        """A wait that each warp has come through by itself."""
        self.version += 1
        if len(self.warps) == 1:
            self.over |= event.bit
        else:
            self.waits.add(event.number)

    def release(self, sink: Sink, threads: int | None = None) -> None:
        """Passes on what some of the threads know and did."""
        threads = self.set if threads is None else threads
        self.pass_on(sink, threads)
        for number, seen in self.own.items():
            sink.done[number] = sink.done.get(number, 0) | threads
            if seen:
                sink.done_fenced[number] = sink.done_fenced.get(number, 0) | threads

    def tells(self, instruction: Instruction, released: dict[int, Release]) -> None:
        """An instruction releases what these threads did: their loads, which may not have read, are
        noted in `released`."""
        for number in self.loads.keys() - released.keys():
            released[number] = Release(instruction, self.loading.holders(number))

    def pass_on(self, sink: Sink, threads: int) -> None:
        """Passes on what some of the threads know, and not what they did."""
        sink.over |= self.over
        sink.fenced |= self.fenced
        for subset, (over, fenced) in self.partial.items():
            if subset & threads:
                sink.over |= over
                sink.fenced |= fenced
        if self.waits:
            warps = whole_warps(threads)
            for number in self.waits:
                sink.done[number] = sink.done.get(number, 0) | warps

    def forget(self) -> None:
        """Drops what all threads know by now from what some know."""
        known, fenced = self.over, self.fenced
        loads = self.loads
        self.own = {n: f for n, f in self.own.items() if not known >> n & 1 or n in loads}
        self.waits = {n for n in self.waits if not known >> n & 1}
        self.partial = {
            subset: (over & ~known, more & ~fenced)
            for subset, (over, more) in self.partial.items()
            if over & ~known or more & ~fenced
        }

    def fence(self, loads: int, beyond: int) -> None:
        """fence.proxy.async: all that these threads know is visible to asynchronous accesses, and
        their own loads have read. `loads`: events that are loads, for those of others of which it
        does not wait; `beyond`: events in memory that the fence is not for."""
        self.have_read(self.loading.end({n for n in self.loads if not beyond >> n & 1}))
        left = loads | beyond
        self.fenced |= self.over & ~left
        self.partial = {
            s: (over, fenced | over & ~left) for s, (over, fenced) in self.partial.items()
        }
        for number in self.own:
            self.own[number] |= not beyond >> number & 1
        self.version += 1

    def idle_fence(self, generic: int) -> bool:
        """Whether `fence` would show asynchronous accesses nothing more; `generic`: the events
        that are ordinary writes."""
        return (
            not self.over & ~self.fenced & generic
            and all(self.own.values())
            and not any(
                over & ~(fenced | self.fenced) & generic for over, fenced in self.partial.values()
            )
        )

    def clone(self) -> Agent:
        """An independent copy."""
        return replace(
            self,
            registers=dict(self.registers),
            own=dict(self.own),
            loads=dict(self.loads),
            loading=self.loading.clone(),
            waits=set(self.waits),
            partial=dict(self.partial),
            cp_async=self.cp_async.clone(),
            bulk=self.bulk.clone(),
            wgmma_open=list(self.wgmma_open),
            wgmma_groups=[list(group) for group in self.wgmma_groups],
            guesses=dict(self.guesses),
        )

    def part(self, lanes: Lanes, live: frozenset[str]) -> Agent:
        """A new agent for some of the threads (indices among this agent's). `live`: the registers
        that may be read from here on."""
        child = self.clone()
        child.threads = self.threads[lanes]
        child.__post_init__()
        child.registers = {
            name: take(value, lanes) for name, value in self.registers.items() if name in live
        }
        child.blocked = None
        knows = self.knowledge(child.set)
        child.over, child.fenced = knows.over, knows.fenced
        child.partial = _among(self.partial, child.set)
        child.bulk, child.cp_async = self.bulk.of(child.set), self.cp_async.of(child.set)
        child.forget()
        child.version += 1
        return child

    @staticmethod
    def merge(parts: list[Agent], live: frozenset[str]) -> Agent:
        """Threads of a unit that meet at one instruction; `live`: the registers that may be read
        from there on."""
        order = np.argsort(np.concatenate([part.threads for part in parts]))
        threads = np.concatenate([part.threads for part in parts])[order]
        first = max(parts, key=lambda part: len(part.threads))
        merged = Agent(unit=first.unit, threads=threads, pc=first.pc)
        merged.block, merged.first_warp = first.block, first.first_warp
        sizes = [len(part.threads) for part in parts]
        for name in live.intersection(*(part.registers for part in parts)):
            merged.registers[name] = _merged([part.registers[name] for part in parts], sizes, order)
        merged.over, merged.fenced = first.over, first.fenced
        known: dict[int, tuple[int, int]] = {}
        for part in parts:
            merged.over &= part.over
            merged.fenced &= part.fenced
            for subset, (over, fenced) in (
                *part.partial.items(),
                (part.set, (part.over, part.fenced)),
            ):
                before = known.get(subset, (0, 0))
                known[subset] = (before[0] | over, before[1] | fenced)
            for number, fenced_since in part.own.items():
                merged.own[number] = merged.own.get(number, True) and fenced_since
            merged.loads.update(part.loads)
            merged.loading.join(part.loading)
            merged.waits |= part.waits
            merged.cp_async.join(part.cp_async)
            merged.bulk.join(part.bulk)
        for event in merged.cp_async.all():  # waited for by some of its threads alone
            merged.own.pop(event.number, None)
        merged.partial = known
        merged.forget()
        merged.wgmma_issued = first.wgmma_issued
        merged.wgmma_open, merged.wgmma_groups = first.wgmma_open, first.wgmma_groups
        merged.guesses = dict(first.guesses)
        merged.cluster = first.cluster
        merged.failed = first.failed
        merged.version = max(part.version for part in parts) + 1
        return merged


def _among(known: dict[int, tuple[int, int]], threads: int) -> dict[int, tuple[int, int]]:
    """What sets of threads know, of those that have some of `threads`."""
    found: dict[int, tuple[int, int]] = {}
    for subset, (over, fenced) in known.items():
        if mine := subset & threads:
            before = found.get(mine, (0, 0))
            found[mine] = (before[0] | over, before[1] | fenced)
    return found


def _merged(values: list[Value], sizes: list[int], order: Lanes) -> Value:
    if all(is_number(value) for value in values):
        if all(isinstance(value, int) and value == values[0] for value in values):
            return values[0]
        try:
            pieces = [
                value if isinstance(value, np.ndarray) else np.full(size, value, np.int64)
                for value, size in zip(values, sizes, strict=True)
            ]
        except OverflowError:
            return UNKNOWN
        return plain(np.concatenate(pieces)[order])
    first = values[0]
    if isinstance(first, Linear) and all(
        isinstance(value, Linear) and value.terms == first.terms for value in values
    ):
        constant = _merged([value.constant for value in values], sizes, order)  # type: ignore[union-attr]
        return Linear(first.terms, constant)  # type: ignore[arg-type]
    if all(value is first for value in values):
        return first
    if isinstance(first, (Compare, Logic)):
        return _merged_predicate(values, sizes, order)
    if any(isinstance(value, (Linear, Mixed)) for value in values):
        each: list[Value] = []
        for value, size in zip(values, sizes, strict=True):
            each += expanded(value, size)
        return mixed([each[at] for at in order.tolist()])
    return UNKNOWN


def _merged_predicate(values: list[Value], sizes: list[int], order: Lanes) -> Value:
    """One predicate on unknowns that threads have computed before they parted."""
    first = values[0]
    if isinstance(first, Compare):
        if not all(isinstance(value, Compare) and value.op == first.op for value in values):
            return UNKNOWN
        inner = _merged([value.value for value in values], sizes, order)  # type: ignore[union-attr]
        return Compare(inner, first.op) if isinstance(inner, Linear) else UNKNOWN
    assert isinstance(first, Logic)
    if not all(
        isinstance(value, Logic) and value.op == first.op and len(value.args) == len(first.args)
        for value in values
    ):
        return UNKNOWN
    args = zip(*(value.args for value in values), strict=True)  # type: ignore[union-attr]
    return logic(first.op, *(_merged(list(each), sizes, order) for each in args))
