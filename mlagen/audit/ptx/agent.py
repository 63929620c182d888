"""A group of lanes of one warp that run together, with what they know of the block's events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlagen.audit.ptx.shared import Event, Knowledge
from mlagen.audit.ptx.syntax import Instruction
from mlagen.audit.ptx.values import UNKNOWN, Lanes, Linear, Value, is_number, plain, take

LANES = 32


def thread_set(threads: Lanes) -> int:
    """Thread numbers as a bit set."""
    found = 0
    for thread in threads.tolist():
        found |= 1 << thread
    return found


@dataclass(slots=True, eq=False)
class Sink:
    """What arrivals at a synchronisation bring along, until it completes."""

    over: int = 0
    fenced: int = 0
    done: dict[int, int] = field(default_factory=dict)  # own events -> threads that brought them
    done_fenced: dict[int, int] = field(default_factory=dict)

    def settle(self, events: list[Event]) -> tuple[int, int]:
        """The sets that whoever waits learns: (over, fenced)."""
        over, fenced = self.over, self.fenced
        for number, threads in self.done.items():
            if not events[number].threads & ~threads:
                over |= 1 << number
        for number, threads in self.done_fenced.items():
            if not events[number].threads & ~threads:
                fenced |= 1 << number
        return over, fenced


@dataclass(slots=True, eq=False)
class Copies:
    """Asynchronous copies by group; the last list is still open."""

    groups: list[list[Event]] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)

    def commit(self) -> None:
        """Closes the open group."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int) -> list[Event]:
        """The events that are over when at most `pending` groups remain."""
        count = max(len(self.groups) - pending, 0)
        done = [event for group in self.groups[:count] for event in group]
        self.groups = self.groups[count:]
        return done

    def all(self) -> list[Event]:
        """Every event that is not known to be over."""
        return [event for group in (*self.groups, self.open) for event in group]

    def clone(self) -> Copies:
        """An independent copy."""
        return Copies([list(group) for group in self.groups], list(self.open))

    def join(self, other: Copies) -> None:
        """Groups of lanes that meet again: whichever has more, as both count the same commits."""
        if len(other.all()) > len(self.all()):
            self.groups, self.open = other.groups, other.open


@dataclass(slots=True, eq=False)
class Agent:
    """Some lanes of a warp at one place of the program."""

    warp: int
    threads: Lanes  # of the block, ascending
    registers: dict[str, Value] = field(default_factory=dict)
    pc: int = 0
    over: int = 0
    fenced: int = 0
    own: dict[int, bool] = field(default_factory=dict)
    # What only some of the lanes know: (threads, over, fenced).
    partial: list[tuple[int, int, int]] = field(default_factory=list)
    cp_async: Copies = field(default_factory=Copies)
    bulk: Copies = field(default_factory=Copies)
    failed: int = -1  # pc of the try_wait that just returned false
    blocked: Any = None  # what it waits for; None: it can run
    exited: bool = False
    wgmma_issued: int = 0
    wgmma_open: list[int] = field(default_factory=list)
    wgmma_groups: list[list[int]] = field(default_factory=list)
    guesses: dict[int, int] = field(default_factory=dict)
    set: int = 0  # the threads as a bit set

    def __post_init__(self) -> None:
        self.set = thread_set(self.threads)

    @property
    def who(self) -> str:
        """For a finding."""
        lanes = self.threads % LANES
        if len(lanes) == LANES:
            return f"warp {self.warp}"
        shown = f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {lanes[0]}-{lanes[-1]}"
        return f"warp {self.warp}, {shown}"

    def knowledge(self, threads: int | None = None, thread: int = -1) -> Knowledge:
        """What some of the lanes (a bit set; all by default) know."""
        over, fenced = self.over, self.fenced
        for subset, more, more_fenced in self.partial:
            if threads is not None and not threads & ~subset:
                over |= more
                fenced |= more_fenced
        return Knowledge(over, fenced, self.own, thread)

    def learn(self, over: int, fenced: int) -> None:
        """Events are known to be over."""
        self.over |= over
        self.fenced |= fenced

    def release(self, sink: Sink, threads: int | None = None) -> None:
        """Passes on what some of the lanes know and did."""
        threads = self.set if threads is None else threads
        sink.over |= self.over
        sink.fenced |= self.fenced
        for subset, over, fenced in self.partial:
            if subset & threads:
                sink.over |= over
                sink.fenced |= fenced
        for number, seen in self.own.items():
            sink.done[number] = sink.done.get(number, 0) | threads
            if seen:
                sink.done_fenced[number] = sink.done_fenced.get(number, 0) | threads

    def forget(self) -> None:
        """Drops own events that are known to all anyway."""
        self.own = {n: f for n, f in self.own.items() if not self.over >> n & 1}

    def fence(self) -> None:
        """fence.proxy.async: all that these threads know is visible to asynchronous accesses."""
        self.fenced |= self.over
        self.partial = [(s, over, fenced | over) for s, over, fenced in self.partial]
        for number in self.own:
            self.own[number] = True

    def part(self, lanes: Lanes) -> Agent:
        """A new agent for some of the lanes (indices among this agent's)."""
        threads = self.threads[lanes]
        child = Agent(
            warp=self.warp,
            threads=threads,
            registers={name: take(value, lanes) for name, value in self.registers.items()},
            pc=self.pc,
            own=dict(self.own),
            partial=list(self.partial),
            cp_async=self.cp_async.clone(),
            bulk=self.bulk.clone(),
            failed=self.failed,
            wgmma_issued=self.wgmma_issued,
            wgmma_open=list(self.wgmma_open),
            wgmma_groups=[list(group) for group in self.wgmma_groups],
            guesses=dict(self.guesses),
        )
        knows = self.knowledge(child.set)
        child.over, child.fenced = knows.over, knows.fenced
        return child

    @staticmethod
    def merge(parts: list[Agent]) -> Agent:
        """Lanes of a warp that meet at a warp-wide instruction."""
        order = np.argsort(np.concatenate([part.threads for part in parts]))
        threads = np.concatenate([part.threads for part in parts])[order]
        first = max(parts, key=lambda part: len(part.threads))
        merged = Agent(warp=first.warp, threads=threads, pc=first.pc)
        for name in set().union(*(part.registers for part in parts)):
            merged.registers[name] = _merged(
                [part.registers.get(name, UNKNOWN) for part in parts],
                [len(part.threads) for part in parts],
                order,
            )
        merged.over, merged.fenced = first.over, first.fenced
        known: dict[int, tuple[int, int]] = {}
        for part in parts:
            merged.over &= part.over
            merged.fenced &= part.fenced
            for subset, over, fenced in (*part.partial, (part.set, part.over, part.fenced)):
                before = known.get(subset & part.set, (0, 0))
                known[subset & part.set] = (before[0] | over, before[1] | fenced)
            for number, fenced in part.own.items():
                merged.own[number] = merged.own.get(number, True) and fenced
            merged.cp_async.join(part.cp_async)
            merged.bulk.join(part.bulk)
        merged.partial = [
            (subset, over, fenced)
            for subset, (over, fenced) in known.items()
            if subset and (over & ~merged.over or fenced & ~merged.fenced)
        ]
        merged.wgmma_issued = first.wgmma_issued
        merged.wgmma_open, merged.wgmma_groups = first.wgmma_open, first.wgmma_groups
        merged.guesses = {**first.guesses}
        return merged

    def at(self, instruction: Instruction) -> dict[str, Any]:
        """Fields of a finding at an instruction."""
        return {"line": instruction.line, "text": instruction.text, "who": self.who}


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
    return UNKNOWN
