"""One wave's registers while its path is followed, and what it does to LDS on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import numpy as np

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds.exchanges import LaneExchange, Taken
from mlagen.audit.gfx950.lds.expressions import Expressions, Node, Scalar, Vector
from mlagen.audit.gfx950.lds.footprints import Footprint
from mlagen.audit.gfx950.lds.sites import Site
from mlagen.audit.gfx950.lds.sources import Source, Written
from mlagen.binary.integers import MASK
from mlagen.binary.operand import EXEC, SCALARS
from mlagen.targets.gfx950.limits import GFX950

LANES = GFX950.wave_size
VECTOR_REGISTERS = 512
NEVER = 1 << 60  # done in no epoch
REPEATED = -1  # done when the same was, which an earlier operation stands for


@dataclass(slots=True)
class LdsOperation:
    """One execution of an LDS instruction. It may happen in the barrier epochs `issued` to
    `done`: the one in which a wait of its own wave covered it. `place`: its number in the wave.
    `source`: where a load to LDS takes its bytes from, or what a write puts there, if that is
    followed. `serial`: its number among all that its counter counted."""

    site: Site
    footprint: Footprint
    issued: int
    place: int
    done: int = NEVER
    source: Source | Written | None = None
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Waited:
    """One execution of an s_waitcnt: at byte offset `pc`, in a barrier epoch, after the wave's
    first `place` operations. `left` and `issued`: the counts that it asks for (None: not at all)
    and the operations so far, of vmcnt and lgkmcnt."""

    pc: int
    epoch: int
    place: int
    left: tuple[int | None, int | None]
    issued: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Clash:
    """Two operations of one wave that no wait orders."""

    earlier: LdsOperation
    later: LdsOperation
    newer: int
    """Operations after the earlier one on its counter: what the missing wait may leave."""


class InFlight:
    """What one counter of a wave counts. `mask`: the bytes of LDS that it may still touch.

    `issued`: how many there were.

    A wait leaves less than the counter's highest count: whatever more newer operations follow is
    covered by every wait. Of such old operations only the first of all that do the same is kept,
    since it may happen whenever they may; so a loop without a wait stays small.
    """

    def __init__(self, highest: int) -> None:
        self.mask = 0
        self.issued = 0
        self._most = highest - 1
        self._recent: deque[LdsOperation | None] = deque()
        self._old: dict[tuple[object, ...], LdsOperation] = {}
        self._met: dict[tuple[int, Footprint], int] = {}  # how many old ones it was held against

    def issue(self, operation: LdsOperation | None) -> None:
        """Count an operation; None for what does not touch LDS."""
        self._recent.append(operation)
        if operation is not None:
            self.mask |= operation.footprint.mask
            operation.serial = self.issued
        self.issued += 1
        if len(self._recent) > self._most:
            old = self._recent.popleft()
            if old is not None:
                key = (old.site.pc, old.footprint, old.source)
                if self._old.setdefault(key, old) is not old:
                    old.done = REPEATED

    def touching(self, newer: LdsOperation, budget: Budget) -> Iterator[tuple[LdsOperation, int]]:
        """Operations that touch bytes which a newer one, of the other counter, touches, and the
        weakest count that covers each. Old ones are told once."""
        mask = newer.footprint.mask
        if not self.mask & mask:
            return
        key = (newer.site.pc, newer.footprint)
        met = self._met.get(key, 0)
        self._met[key] = len(self._old)
        budget.spend(len(self._recent) + len(self._old) - met)
        for old in islice(self._old.values(), met, None):
            if old.footprint.mask & mask:
                yield old, self._most
        for place, operation in enumerate(self._recent):
            if operation is not None and operation.footprint.mask & mask:
                yield operation, len(self._recent) - place - 1

    def wait(self, left: int, epoch: int) -> None:
        """All but the newest `left` are done."""
        covered: list[LdsOperation | None] = list(self._old.values())
        while len(self._recent) > left:
            covered.append(self._recent.popleft())
        self._old.clear()
        self._met.clear()
        changed = False
        for operation in covered:
            if operation is not None:
                operation.done = epoch
                changed = True
        if changed:
            self.mask = 0
            for operation in self._recent:
                if operation is not None:
                    self.mask |= operation.footprint.mask


@dataclass(frozen=True, slots=True)
class Masked:
    """A vector that was written while only some lanes were on: valid under the same EXEC."""

    value: Vector
    mask: tuple[Scalar, Scalar]


@dataclass
class Wave:
    """Registers, counters and history. `s`: by encoded number; `v`: physical registers.

    `touched`: the last epoch in which it did something in LDS. `vm`, `ds`: what is in flight.
    `path`: the blocks that it went through; `passed`: how many of
    them when it passed each barrier. `masked`: EXEC at reads that need all lanes, where it is not
    known to be all ones. `taken`: of exchanges between lanes, what lanes took from others that
    were off. `clashes`: by the two places in the code, the one whose repair
    is the strictest. A full counter is not taken for a wait. Scalar loads may end before any DS
    instruction: they cover nothing.
    """

    number: int
    expressions: Expressions
    s: list[Scalar]
    v: list[Any]
    budget: Budget
    epoch: int = 0
    touched: int = 0
    place: int = 0
    history: list[LdsOperation] = field(default_factory=list)
    clashes: dict[tuple[int, int], Clash] = field(default_factory=dict)
    path: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    masked: dict[Site, set[tuple[Scalar, Scalar]]] = field(default_factory=dict)
    taken: dict[LaneExchange, set[Taken]] = field(default_factory=dict)
    waits: list[Waited] = field(default_factory=list)
    vm: InFlight = field(default_factory=lambda: InFlight(GFX950.vmcnt_max))
    ds: InFlight = field(default_factory=lambda: InFlight(GFX950.lgkmcnt_max))

    @property
    def full(self) -> bool:
        return self.s[EXEC] == MASK and self.s[EXEC + 1] == MASK

    def read(self, register: int) -> Vector:
        value = self.v[register]
        if isinstance(value, Masked):
            if value.mask == (self.s[EXEC], self.s[EXEC + 1]):
                return value.value
            return self.expressions.opaque("masked", self.number, register, value.value)
        return cast(Vector, value)

    def write(self, register: int, value: Vector) -> None:
        """A vector write as EXEC allows it."""
        if self.full:
            self.v[register] = value
            return
        mask = (self.s[EXEC], self.s[EXEC + 1])
        old = self.v[register]
        low, high = mask
        if (
            isinstance(value, Node)
            or isinstance(low, Node)
            or isinstance(high, Node)
            or isinstance(old, Node | Masked)
        ):
            self.v[register] = Masked(value, mask)
        else:
            self.v[register] = np.where(lanes_of(low, high), value, old)

    def issue(self, operation: LdsOperation) -> None:
        """Count a load to LDS, or a DS access, and look for operations of this wave that it may
        overtake: those of the other counter. On one counter they execute in order."""
        loads = operation.site.kind == "dma"
        mine, others = (self.vm, self.ds) if loads else (self.ds, self.vm)
        self.history.append(operation)
        mine.issue(operation)
        for other, newer in others.touching(operation, self.budget):
            key = (other.site.pc, operation.site.pc)
            known = self.clashes.get(key)
            if known is None or newer < known.newer:
                self.clashes[key] = Clash(other, operation, newer)

    def wait(self, pc: int, vm: int | None, ds: int | None) -> None:
        """An s_waitcnt: all but the newest so many are done, None: whatever is in flight stays."""
        issued = (self.vm.issued, self.ds.issued)
        self.waits.append(Waited(pc, self.epoch, self.place, (vm, ds), issued))
        if vm is not None:
            self.vm.wait(vm, self.epoch)
        if ds is not None:
            self.ds.wait(ds, self.epoch)

    def finish(self) -> None:
        """The end of the program: hardware frees LDS only when everything has come back."""
        self.vm.wait(0, self.epoch)
        self.ds.wait(0, self.epoch)


def lanes_of(low: int, high: int) -> Any:
    """64 booleans of an EXEC mask."""
    bits = low | high << 32
    return np.array([bits >> lane & 1 for lane in range(LANES)], dtype=bool)


def new_wave(
    number: int,
    block: tuple[int, int, int],
    scalars: dict[int, Scalar],
    expressions: Expressions,
    budget: Budget,
) -> Wave:
    """A wave at the kernel's entry. v0: the packed work-item id, 10 bits each of x, y, z (LLVM
    AMDGPUUsage, gfx90a+). `scalars`: what the loader sets up."""
    unknown: Scalar = expressions.leaf("undefined")
    s: list[Scalar] = [expressions.leaf("undefined", number) for number in range(SCALARS)]
    for register, value in scalars.items():
        s[register] = value
    s[EXEC] = s[EXEC + 1] = MASK
    v: list[Any] = [unknown] * VECTOR_REGISTERS
    thread = np.arange(LANES, dtype=np.int64) + number * LANES
    x, y, _ = block
    v[0] = thread % x | (thread // x % y) << 10 | (thread // (x * y)) << 20
    return Wave(number, expressions, s, v, budget)
