"""The state of mbarriers, named barriers and wgmma operations.

Phases, pending arrivals and the transaction count: PTX ISA 9.0, "mbarrier". Named barriers:
"bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlagen.audit.ptx.order import Sink
from mlagen.audit.ptx.shared import Event
from mlagen.ptx import Instruction
from mlagen.targets.sm_90a.limits import SM_90A


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A bulk copy that completes on an mbarrier and has not landed."""

    event: Event
    size: int
    box: str  # the tensor map's name; "" where the instruction tells the bytes


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
    flying: list[Copy] = field(default_factory=list)
    arrived: int = 0  # copies (a set) that landed in this phase
    expects: list[Instruction] = field(default_factory=list)
    arrivals: list[Instruction] = field(default_factory=list)
    last_arrivals: list[Instruction] = field(default_factory=list)  # of the completed phase
    sink: Sink = field(default_factory=Sink)
    # What waiting for the last completed phase teaches.
    over: int = 0
    fenced: int = 0
    completion: Event | None = None
    came: int = 0  # arrivals (a set) of this phase
    made_of: int = 0  # those of the completed phase, where it had no others and no bytes
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

    def clone(self) -> Mbarrier:
        """An independent copy."""
        return replace(
            self,
            flying=list(self.flying),
            expects=list(self.expects),
            arrivals=list(self.arrivals),
            sink=self.sink.clone(),
            observers=list(self.observers),
        )


@dataclass(slots=True, eq=False)
class NamedBarrier:
    """One of the 16 named barriers of a block, in its current generation. Those of the second block
    of a CTA cluster are 16 to 31, and so on; -1 is the cluster's barrier."""

    number: int
    count: int = 0  # threads of this generation; 0 before the first arrival
    arrived: int = 0
    first: Instruction | None = None
    sink: Sink = field(default_factory=Sink)
    generation: int = 0
    completion: Event | None = None
    over: int = 0
    fenced: int = 0

    @property
    def title(self) -> str:
        """For a finding."""
        number = self.number % SM_90A.named_barriers
        return f"named barrier {number}" if self.number >= 0 else "the CTA cluster barrier"

    def clone(self) -> NamedBarrier:
        """An independent copy."""
        return replace(self, sink=self.sink.clone())


@dataclass(slots=True, eq=False)
class WgmmaOperation:
    """A wgmma of a warpgroup; each of its four warps issues it."""

    instruction: Instruction
    event: Event
    warps: int = 0  # bit set of the warps that issued
    sink: Sink = field(default_factory=Sink)
    settled: tuple[int, int] | None = None  # what its end teaches, once all four issued it

    @property
    def complete(self) -> bool:
        """Whether all four warps issued it."""
        return self.warps == 15

    def clone(self) -> WgmmaOperation:
        """An independent copy; what is complete does not change any more."""
        return self if self.settled else replace(self, sink=self.sink.clone())
