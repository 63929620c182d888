"""What threads pass on at a synchronisation, and which asynchronous copies their groups cover.

The order between accesses is a set of events known to be over, one bit each (see `shared`). A
thread passes on what it knows; what it did itself is over for whoever waits once every thread that
took part has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.audit.ptx.shared import Event
from mlagen.audit.ptx.weak import WeakWait
from mlagen.ptx import Instruction

_WARP = 32  # threads


@dataclass(slots=True, eq=False)
class Sink:
    """What arrivals at a synchronisation bring along, until it completes."""

    over: int = 0
    fenced: int = 0
    done: dict[int, int] = field(default_factory=dict)  # own events -> threads that brought them
    done_fenced: dict[int, int] = field(default_factory=dict)

    parts: bool = False  # a warp or more brought its part of what a warpgroup did together

    def settle(self, events: list[Event]) -> tuple[int, int]:
        """The sets that whoever waits learns: (over, fenced)."""
        over, fenced = self.over, self.fenced
        for number, threads in self.done.items():
            did = events[number].threads
            if not did & ~threads:
                over |= 1 << number
            elif (did & threads).bit_count() >= _WARP:
                self.parts = True
        for number, threads in self.done_fenced.items():
            if not events[number].threads & ~threads:
                fenced |= 1 << number
        return over, fenced

    def clone(self) -> Sink:
        """An independent copy."""
        return Sink(self.over, self.fenced, dict(self.done), dict(self.done_fenced), self.parts)


@dataclass(slots=True, eq=False)
class Copies:
    """Asynchronous copies by group; the last list is still open."""

    groups: list[list[Event]] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)

    def commit(self) -> None:
        """Closes the open group."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int, at: Instruction) -> list[Event]:
        """The events that are over when a wait leaves at most `pending` groups."""
        count = max(len(self.groups) - pending, 0)
        done = [event for group in self.groups[:count] for event in group]
        self.groups = self.groups[count:]
        for event in done:
            event.waited = at
        for younger, group in enumerate(reversed(self.groups)):
            for event in group:
                event.left(WeakWait(at, pending, younger))
        return done

    def all(self) -> list[Event]:
        """Every event that is not known to be over."""
        return [event for group in (*self.groups, self.open) for event in group]

    def clone(self) -> Copies:
        """An independent copy."""
        return Copies([list(group) for group in self.groups], list(self.open))

    def of(self, threads: int) -> Copies:
        """The copies of some of the threads: groups belong to those that committed them."""
        return Copies(
            [[event for event in group if event.by & threads] for group in self.groups],
            [event for event in self.open if event.by & threads],
        )

    def join(self, other: Copies) -> None:
        """Lanes that meet again: a group is over when it is for either, the youngest aligned."""
        longest = max(len(self.groups), len(other.groups))
        mine: list[list[Event]] = [[] for _ in range(longest - len(self.groups))] + self.groups
        theirs: list[list[Event]] = [[] for _ in range(longest - len(other.groups))] + other.groups
        self.groups = [_union(a, b) for a, b in zip(mine, theirs, strict=True)]
        self.open = _union(self.open, other.open)


def _union(a: list[Event], b: list[Event]) -> list[Event]:
    return a + [event for event in b if event not in a]
