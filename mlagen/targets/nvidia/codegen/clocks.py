"""Happens-before, for the proof of pipeline schedules: clocks, accesses to SMEM, barriers.

Who acts: the warps of each role, and each slot of a pipeline as the engine that fills it. Two warps
stand for all of a role: the first, which issues its copies, and another. A clock says how far in
each actor's own order an actor knows everything to be over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.loads import Open

Clock = list[int]


def join(clock: Clock, other: Clock) -> None:
    """Learn what `other` knows."""
    clock[:] = [a if a > b else b for a, b in zip(clock, other, strict=True)]


@dataclass(slots=True)
class RegionAccess:
    """A read or write of a region: whose, when it is over, and how."""

    actor: int
    over: int | None  # the actor's time at which it is over; None: not yet
    tile: int
    op: Operation
    key: tuple[str, int, int]  # role, operation, tile: the warps of a role share an operation
    generic: bool  # by ordinary instructions, not through the async proxy
    regions: frozenset[str] = frozenset()  # that a matrix group reads
    fenced: int | None = None  # the actor's time of its proxy fence after a generic write
    # The actor's time of its tcgen05 fence after an access of TMEM; a commit of products fences.
    left: int | None = None
    # Of an operation that may skip itself: times, by actor, of the meeting that follows it where it
    # is done, behind a fence. Who knows one of them knows all that came before.
    met: Mapping[int, int] | None = None
    # Loads that may not have read yet, though the operation is over; the actor's time at which all
    # have.
    loads: tuple[Open, ...] = ()
    read: int = 0

    def has_read(self, clock: Clock) -> bool:
        """Whether someone with this clock, who knows it to be over, knows that its loads are."""
        return not self.loads and clock[self.actor] >= self.read

    def known(self, clock: Clock) -> bool:
        """Whether someone with this clock knows it to be over."""
        if self.over is not None and clock[self.actor] >= self.over:
            return True
        return self.met is not None and self._left(self.met, clock)

    @staticmethod
    def _left(met: Mapping[int, int], clock: Clock) -> bool:
        return any(clock[actor] >= time for actor, time in met.items())

    def fenced_for(self, clock: Clock, fence: Clock | None) -> bool:
        """Whether a proxy fence lies between it and someone with this clock, who knew `fence` at
        its own last one."""
        if not self.generic or (self.fenced is not None and clock[self.actor] >= self.fenced):
            return True
        if fence is not None and self.known(fence):
            return True
        return self.met is not None and self._left(self.met, clock)


@dataclass(slots=True)
class Region:
    """Bytes of SMEM that are used as one: a slot of a tile, or an exchange."""

    name: str
    base: int
    bytes: int
    writes: list[RegionAccess] = field(default_factory=list)  # the last ones
    reads: list[RegionAccess] = field(default_factory=list)  # since then
    skipped: list[RegionAccess] = field(
        default_factory=list
    )  # writes since then that may not be done
    over: tuple[Region, ...] = ()  # others that share bytes with it
    lost: str | None = None  # the one of these that was written since
    # Who may read what is there, by actor, tile and proxy: what was once known stays known.
    seen: set[tuple[int, int, bool]] = field(default_factory=set)

    def overlaps(self, other: Region) -> bool:
        return self.base < other.base + other.bytes and other.base < self.base + self.bytes

    def pending(self) -> list[tuple[Region, list[RegionAccess], bool]]:
        """What a write must come after: (region, accesses, whether they write)."""
        return [
            (region, accesses, writes)
            for region in (self, *self.over)
            for accesses, writes in (
                (region.writes, True),
                (region.skipped, True),
                (region.reads, False),
            )
            if accesses
        ]

    def clear(self) -> None:
        """Forget all, for another run."""
        self.writes, self.reads, self.skipped, self.lost, self.seen = [], [], [], None, set()

    def write(self, access: RegionAccess) -> None:
        """Take a write that comes after everything before it; one that may not be done leaves there
        what was there before."""
        self.seen = set()
        if access.op.guarded:
            same = [old for old in self.skipped if old.key == access.key]
            self.skipped.append(access)
        else:
            same = [old for old in self.writes if old.key == access.key]
            self.writes = [*same, access]
            if not same:
                self.reads, self.skipped, self.lost = [], [], None
        if not same:
            for other in self.over:
                other.lost, other.skipped, other.seen = self.name, [], set()


@dataclass(slots=True)
class BarrierClock:
    """A named barrier: `members` actors arrive, some of them waiting."""

    members: int
    generation: int = 0
    arrived: dict[int, Clock] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)  # arrivals of the last generation
    merged: Clock = field(default_factory=list)

    def overtaken(self, actor: int, clock: Clock) -> int | None:
        """An actor whose arrival of the generation before `actor` does not know of, or itself."""
        if actor in self.arrived:
            return actor
        return next((a for a, time in self.before.items() if clock[a] < time), None)

    def arrive(self, actor: int, clock: Clock) -> None:
        self.arrived[actor] = list(clock)
        if len(self.arrived) == self.members:
            self.merged = list(clock)
            for other in self.arrived.values():
                join(self.merged, other)
            self.before = {a: held[a] for a, held in self.arrived.items()}
            self.arrived = {}
            self.generation += 1
