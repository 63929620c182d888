"""One wave's registers while its path is followed, and what it does to LDS on the way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from mlagen.audit.gfx950.lds.expressions import Expressions, Node, Scalar, Vector
from mlagen.audit.gfx950.lds.footprints import Footprint
from mlagen.audit.gfx950.lds.sites import Site
from mlagen.binary.instruction import EXEC, SCALARS
from mlagen.binary.integers import MASK
from mlagen.targets import GFX950

LANES = GFX950.wave_size
VECTOR_REGISTERS = 512
NEVER = 1 << 60  # done in no epoch


@dataclass(slots=True)
class Operation:
    """One execution of an LDS instruction. It may happen in the barrier epochs `issued` to
    `done`: the one in which a wait of its own wave covered it. `place`: its number in the wave."""

    site: Site
    footprint: Footprint
    issued: int
    place: int
    done: int = NEVER
    newer: int = -1  # operations issued after it, on its counter, when its race was seen


@dataclass(frozen=True, slots=True)
class Clash:
    """Two operations of one wave that no wait orders."""

    earlier: Operation
    later: Operation
    newer: int
    """Operations behind the earlier one on its counter: what the missing wait may leave."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A vector that was written while only some lanes were on: valid under the same EXEC."""

    value: Vector
    mask: tuple[Scalar, Scalar]


@dataclass
class Wave:
    """Registers, counters and history. `s`: by encoded number; `v`: physical registers.

    `vm`, `ds`: what is in flight, oldest first; None for what does not touch LDS. A full counter
    is not taken for a wait. Scalar loads may end before any DS instruction: they cover nothing.
    """

    number: int
    expressions: Expressions
    s: list[Scalar]
    v: list[Any]
    epoch: int = 0
    place: int = 0
    history: list[Operation] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)
    vm: deque[Operation | None] = field(default_factory=deque)
    ds: deque[Operation | None] = field(default_factory=deque)
    dma_mask: int = 0
    """Bytes that loads to LDS on their way may still write."""

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

    def issue_dma(self, operation: Operation) -> None:
        """Count a load to LDS and look for operations of this wave that it overtakes."""
        mask = operation.footprint.mask
        for place, other in enumerate(self.ds):
            if other is not None and other.footprint.mask & mask:
                self.clashes.append(Clash(other, operation, len(self.ds) - place - 1))
        self.history.append(operation)
        self.count_vm(operation)
        self.dma_mask |= mask

    def issue_ds(self, operation: Operation) -> None:
        """Count a DS access; those of one wave execute in order among themselves."""
        if operation.footprint.mask & self.dma_mask:
            for place, other in enumerate(self.vm):
                if other is not None and other.footprint.mask & operation.footprint.mask:
                    self.clashes.append(Clash(other, operation, len(self.vm) - place - 1))
        self.history.append(operation)
        self.count_ds(operation)

    def count_vm(self, operation: Operation | None) -> None:
        self.vm.append(operation)

    def count_ds(self, operation: Operation | None) -> None:
        self.ds.append(operation)

    def wait_vm(self, left: int) -> None:
        changed = False
        while len(self.vm) > left:
            operation = self.vm.popleft()
            if operation is not None:
                operation.done = self.epoch
                changed = True
        if changed:
            self.dma_mask = 0
            for other in self.vm:
                if other is not None:
                    self.dma_mask |= other.footprint.mask

    def wait_ds(self, left: int) -> None:
        while len(self.ds) > left:
            operation = self.ds.popleft()
            if operation is not None:
                operation.done = self.epoch

    def finish(self) -> None:
        """The end of the program: hardware frees LDS only when everything has come back."""
        self.wait_vm(0)
        self.wait_ds(0)


def lanes_of(low: int, high: int) -> Any:
    """64 booleans of an EXEC mask."""
    bits = low | high << 32
    return np.array([bits >> lane & 1 for lane in range(LANES)], dtype=bool)


def new_wave(
    number: int, block: tuple[int, int, int], scalars: dict[int, Scalar], expressions: Expressions
) -> Wave:
    """A wave at the kernel's entry. v0: the packed work-item id, 10 bits each of x, y, z (LLVM
    AMDGPUUsage, gfx90a+). `scalars`: what the loader sets up."""
    unknown: Scalar = expressions.leaf("undefined")
    s: list[Scalar] = [unknown] * SCALARS
    for register, value in scalars.items():
        s[register] = value
    s[EXEC] = s[EXEC + 1] = MASK
    v: list[Any] = [unknown] * VECTOR_REGISTERS
    thread = np.arange(LANES, dtype=np.int64) + number * LANES
    x, y, _ = block
    v[0] = thread % x | (thread // x % y) << 10 | (thread // (x * y)) << 20
    return Wave(number, expressions, s, v)
