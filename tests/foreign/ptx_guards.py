"""Pages that nobody may touch around every array that the PTX engine reaches by address.

Under `guarded(end)` each array of a run lies between two pages without access: against the upper
one where `end`, else against the lower one. A read or a write across that edge ends the process; a
write into what is left of the page on the other side raises `Overrun` after the run. What it cannot
see: accesses that stay inside the same array, and those far outside that hit other memory.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from guards import PATTERN, Overrun

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.host import grid
from mlagen.emulator.ptx.machine import CheckedLaunch, ClusterState, Shared
from mlagen.emulator.ptx.order.tables import GridTables

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_NAMES = {value: name for name, value in vars(y).items() if name.startswith("C_")}


class Fences:
    """Arrays between pages without access."""

    def __init__(self, end: bool) -> None:
        self._end = end
        self._held: list[tuple[str, np.ndarray]] = []

    def house(self, name: str, array: np.ndarray, filled: bool) -> np.ndarray:
        """A copy of `array` (zeros unless `filled`) with a closed page at either side."""
        room = -(-max(array.nbytes, 1) // PAGE) * PAGE
        memory = mmap.mmap(-1, room + 2 * PAGE)
        raw = np.frombuffer(memory, np.uint8)
        for page in (raw.ctypes.data, raw.ctypes.data + PAGE + room):
            if _LIBC.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        body = raw[PAGE : PAGE + room]
        first = room - array.nbytes if self._end else 0
        rest = body[:first] if self._end else body[array.nbytes :]
        rest[:] = PATTERN
        inside = body[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        if filled:
            inside[...] = array
        self._held.append((name, rest))
        return inside

    def check(self) -> None:
        """Overrun for a write beside an array."""
        for name, rest in self._held:
            if (rest != PATTERN).any():
                place = int(np.argmax(rest != PATTERN))
                raise Overrun(f"byte {place} of {rest.size} beside {name} was written")


_now: Fences | None = None


def _house_tables(tables: GridTables) -> None:
    """Move the arrays of `tables`, whose addresses are among its words."""
    assert _now is not None
    for number, array in enumerate(tables.arrays):
        if not array.size:
            continue
        (word,) = np.flatnonzero(tables.words == array.ctypes.data)
        housed = _now.house(f"order table {number}", array, False)
        tables.words[word] = housed.ctypes.data


class FencedShared(Shared):
    """What a launch's clusters share, moved between closed pages; buffers are copies."""

    def __init__(self, setup: CheckedLaunch) -> None:
        super().__init__(setup)
        assert _now is not None
        for number, buffer in enumerate(self.buffers):
            housed = _now.house(f"buffer {buffer.name}", buffer.array, True)
            self.arrays[y.C_BUFFERS][number, y.B_HOST] = housed.ctypes.data
        if self.order is not None:
            _house_tables(self.order)
        for slot, array in self.arrays.items():
            self.arrays[slot] = _now.house(_NAMES[slot], array, True)
        self.grid = self.arrays[y.C_GRID]


class FencedState(ClusterState):
    """A cluster whose arrays lie between closed pages."""

    def __init__(self, setup: CheckedLaunch, shared: Shared, number: int) -> None:
        self._shared_slots = set(shared.arrays)
        super().__init__(setup, shared, number)
        assert _now is not None
        self.context = _now.house("context", self.context, True)

    def _place(self, slot: int, array: np.ndarray) -> None:
        assert _now is not None
        if slot not in self._shared_slots:
            array = _now.house(_NAMES[slot], array, bool(array.any()))
        super()._place(slot, array)


@contextmanager
def guarded(end: bool) -> Iterator[None]:
    """Every run of PTX inside has its arrays between closed pages."""
    global _now
    _now = Fences(end)
    plain: tuple[Any, Any] = grid.ClusterState, grid.Shared
    grid.ClusterState, grid.Shared = FencedState, FencedShared  # type: ignore[misc]
    try:
        yield
        _now.check()
    finally:
        grid.ClusterState, grid.Shared = plain  # type: ignore[misc]
        _now = None
