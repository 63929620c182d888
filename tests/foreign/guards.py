"""Guard zones around every array that the emulator's compiled code reaches by address.

Under `guarded()` the state of each workgroup lies between bytes of a known pattern; after every
run, ended or refused, a changed one raises `Overrun`. What it cannot see: writes that stay inside
the same array, writes beyond a guard zone (those usually end the process), reads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import machine
from mlagen.emulator.gfx950.memory import BufferArena, build_memory

ZONE = 1 << 14  # bytes on either side
PATTERN = 0xC5
_SMALL = 1 << 16  # elements; larger arrays start as zeros
_FILLED = (
    y.C_PROGRAM, y.C_ARENA, y.C_BUFFERS, y.C_HAZARD, y.C_LONGEST, y.C_TEMP, y.C_ATOMIC, y.C_PLAIN,
)  # fmt: skip


class Overrun(Exception):
    """Compiled code wrote outside an array."""


class Zones:
    """Arrays between guard zones."""

    def __init__(self) -> None:
        self._held: list[tuple[str, np.ndarray]] = []

    def house(self, name: str, array: np.ndarray, filled: bool) -> np.ndarray:
        """A copy of `array` (zeros unless `filled`) with a guard zone before and after it."""
        raw = np.zeros(array.nbytes + 2 * ZONE + 64, np.uint8)
        first = -raw.ctypes.data % 64 + ZONE
        raw[:first] = PATTERN
        raw[first + array.nbytes :] = PATTERN
        inside = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        if filled:
            inside[...] = array
        self._held.append((f"before {name}", raw[:first]))
        self._held.append((f"after {name}", raw[first + array.nbytes :]))
        return inside

    def check(self) -> None:
        for name, zone in self._held:
            if (zone != PATTERN).any():
                place = int(np.argmax(zone != PATTERN))
                zone[:] = PATTERN
                raise Overrun(f"byte {place} of {zone.size} {name} was written")


_NAMES = {value: name for name, value in vars(y).items() if name.startswith("C_")}


class GuardedMachine(machine.WorkgroupState):
    """The machine with all arrays moved between guard zones."""

    def __init__(
        self, launch: Any, program: Any, memory: BufferArena, shadow: Any, accesses: Any
    ) -> None:
        super().__init__(launch, program, memory, shadow, accesses)
        self.zones = Zones()
        for slot, array in self._arrays.items():
            if slot in (y.C_ARENA, y.C_BUFFERS, y.C_UNSET):
                continue  # shared by all machines of a run: see _guarded_memory
            filled = slot in _FILLED or (array.size < _SMALL and bool(array.any()))
            housed = self.zones.house(_NAMES[slot], array, filled)
            self._arrays[slot] = housed
            self.context[slot] = housed.ctypes.data
        self.context = self.zones.house("context", self.context, True)

    def execute(self, group: tuple[int, int, int], stop: threading.Event) -> machine.Outcome:
        try:
            return super().execute(group, stop)
        finally:
            self.zones.check()
            _shared.check()


_shared = Zones()


def _guarded_memory(*arguments: Any, **_: Any) -> BufferArena:
    """With all buffers in the arena, however large."""
    global _shared
    _shared = Zones()
    memory = build_memory(*arguments)
    arena = _shared.house("arena", memory.arena, True)
    table = _shared.house("buffer table", memory.table, True)
    held = tuple(
        arena[int(row[y.B_ARENA]) :][: part.size]
        for row, part in zip(table, memory.held, strict=True)
    )
    return replace(memory, arena=arena, origin=arena.ctypes.data, table=table, held=held)


@contextmanager
def guarded() -> Iterator[None]:
    """Every launch inside runs between guard zones."""
    plain = machine.WorkgroupState, machine.build_memory
    machine.WorkgroupState, machine.build_memory = GuardedMachine, _guarded_memory  # type: ignore[misc]
    try:
        yield
    finally:
        machine.WorkgroupState, machine.build_memory = plain  # type: ignore[misc]
