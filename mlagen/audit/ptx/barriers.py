"""The state of mbarriers and named barriers.

Phases, pending arrivals and the transaction count: PTX ISA 9.0, "mbarrier". Named barriers:
"bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.audit.ptx.agent import Sink
from mlagen.audit.ptx.shared import Event
from mlagen.audit.ptx.syntax import Instruction


@dataclass(slots=True, eq=False)
class Copy:
    """A bulk copy that completes on an mbarrier."""

    event: Event
    size: int
    box: str  # the tensor map's name; "" where the instruction tells the bytes
    landed: bool = False


@dataclass(slots=True, eq=False)
class Mbarrier:
    """One mbarrier object. `phase` counts completed phases; its parity is what waits test."""

    address: int
    count: int
    init: Event
    pending: int
    phase: int = 0
    expected: int = 0  # bytes announced in this phase
    landed: int = 0  # bytes that arrived in this phase
    copies: list[Copy] = field(default_factory=list)  # of this phase, and not landed older ones
    expects: list[Instruction] = field(default_factory=list)
    arrivals: list[Instruction] = field(default_factory=list)
    sink: Sink = field(default_factory=Sink)
    # What waiting for the last completed phase teaches.
    over: int = 0
    fenced: int = 0
    completion: Event | None = None
    observers: list[tuple[Event, Instruction]] = field(default_factory=list)

    def passed(self, parity: int) -> bool:
        """Whether try_wait.parity returns true."""
        return self.phase & 1 != parity & 1

    def full(self) -> bool:
        """Whether the current phase is complete."""
        return self.pending == 0 and self.expected == self.landed

    def state(self) -> str:
        """For a finding."""
        parts = [f"phase {self.phase}"]
        if self.pending:
            came = self.count - self.pending
            parts.append(f"{came} of {self.count} arrivals came")
        else:
            parts.append(f"all {self.count} arrivals came")
        if self.expected or self.landed:
            parts.append(f"{self.expected} bytes expected, {self.landed} arrived")
        return ", ".join(parts)


@dataclass(slots=True, eq=False)
class NamedBarrier:
    """One of the 16 named barriers, in its current generation."""

    number: int
    count: int = 0  # threads of this generation; 0 before the first arrival
    arrived: int = 0
    first: Instruction | None = None
    sink: Sink = field(default_factory=Sink)
    generation: int = 0
    completion: Event | None = None
    over: int = 0
    fenced: int = 0


@dataclass(slots=True, eq=False)
class WgmmaOperation:
    """A wgmma of a warpgroup; each of its four warps issues it."""

    instruction: Instruction
    event: Event
    warps: int = 0  # bit set of the warps that issued
    over: int = 0
    fenced: int = 0
