"""Shared memory with its history: who wrote each cell last, who has read it since, and whether a
later access knows that these are over.

Order between accesses is a set of events known to be over, a bit each: a thread learns of events
by its waits and passes on what it knows by its arrivals. Nothing depends on the moment at which an
asynchronous copy happens to land.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlagen.audit.ptx.syntax import Instruction

Cells = np.ndarray[Any, np.dtype[Any]]
CELL = 4  # bytes


@dataclass(slots=True, eq=False)
class Event:
    """An access or a completed synchronisation. `threads` is a bit set, 0 for asynchronous ones."""

    number: int
    instruction: Instruction
    what: str
    threads: int = 0
    generic: bool = False  # ordinary proxy: asynchronous accesses see it only behind a fence

    @property
    def bit(self) -> int:
        """The event as a set of one."""
        return 1 << self.number


@dataclass(slots=True, eq=False)
class Read:
    """Cells that an event reads: a range, or cells with the thread that reads each."""

    event: Event
    low: int
    high: int  # exclusive
    cells: Cells | None = None
    threads: Cells | None = None


@dataclass(frozen=True, slots=True)
class Clash:
    """Two accesses to the same bytes without an order; `proxy`: ordered, but not fenced."""

    kind: str  # "smem-raw", "smem-war", "smem-waw", "proxy-fence"
    earlier: Event
    address: int


@dataclass(slots=True, eq=False)
class Knowledge:
    """What the accessing threads know: events over, and those seen by the asynchronous proxy."""

    over: int
    fenced: int
    own: dict[int, bool]  # events of these threads themselves -> fenced since
    thread: int = -1  # the one accessing thread of an asynchronous operation


@dataclass(slots=True, eq=False)
class SharedMemory:
    """`size` bytes of a block."""

    size: int
    events: list[Event]
    reads: list[Read] = field(default_factory=list)
    _writer: Cells = field(init=False)
    _thread: Cells = field(init=False)

    def __post_init__(self) -> None:
        cells = -(-self.size // CELL)
        self._writer = np.full(cells, -1, np.int32)
        self._thread = np.full(cells, -1, np.int32)

    def read_range(
        self, start: int, size: int, event: Event, knows: Knowledge, *, keep: bool = True
    ) -> list[Clash]:
        """An asynchronous read of `size` bytes."""
        low, high = start // CELL, -(-(start + size) // CELL)
        found = self._against_writes(slice(low, high), None, knows, "smem-raw", True)
        if keep:
            self.reads.append(Read(event, low, high))
        return found

    def write_range(self, start: int, size: int, event: Event, knows: Knowledge) -> list[Clash]:
        """An asynchronous write of `size` bytes."""
        low, high = start // CELL, -(-(start + size) // CELL)
        found = self._against_writes(slice(low, high), None, knows, "smem-waw", True)
        found += self._against_reads(low, high, None, None, knows)
        self._writer[low:high] = event.number
        self._thread[low:high] = -1
        return found

    def read_cells(
        self, cells: Cells, threads: Cells, event: Event, knows: Knowledge
    ) -> list[Clash]:
        """Ordinary loads: `threads[i]` reads `cells[i]`."""
        found = self._against_writes(cells, threads, knows, "smem-raw", False)
        low, high = int(cells.min()), int(cells.max()) + 1
        self.reads.append(Read(event, low, high, cells, threads))
        return found

    def write_cells(
        self, cells: Cells, threads: Cells, event: Event, knows: Knowledge
    ) -> list[Clash]:
        """Ordinary stores (and cp.async): `threads[i]` writes `cells[i]`."""
        found = self._against_writes(cells, threads, knows, "smem-waw", False)
        low, high = int(cells.min()), int(cells.max()) + 1
        found += self._against_reads(low, high, cells, threads, knows)
        self._writer[cells] = event.number
        self._thread[cells] = threads
        return found

    def _against_writes(
        self,
        where: slice | Cells,
        threads: Cells | None,
        knows: Knowledge,
        kind: str,
        asynchronous: bool,
    ) -> list[Clash]:
        writers = self._writer[where]
        if not writers.size:
            return []
        first = int(writers[0])
        numbers = [first] if (writers == first).all() else [int(w) for w in np.unique(writers)]
        found = []
        for number in numbers:
            if number < 0:
                continue
            event = self.events[number]
            over = knows.over >> number & 1
            fenced = knows.fenced >> number & 1
            if not over and number in knows.own:
                mine = writers == number
                by = self._thread[where][mine]
                if threads is not None:
                    over = bool((by == threads[mine]).all())
                elif knows.thread >= 0:
                    over = bool((by == knows.thread).all())
                fenced = knows.own[number]
            if not over:
                found.append(Clash(kind, event, self._address(where, writers == number)))
            elif asynchronous and event.generic and not fenced:
                address = self._address(where, writers == number)
                found.append(Clash("proxy-fence", event, address))
        return found

    @staticmethod
    def _address(where: slice | Cells, mask: Cells) -> int:
        at = int(np.argmax(mask))
        return CELL * (at + where.start if isinstance(where, slice) else int(where[at]))

    def _against_reads(
        self, low: int, high: int, cells: Cells | None, threads: Cells | None, knows: Knowledge
    ) -> list[Clash]:
        found, kept = [], []
        for read in self.reads:
            if read.high <= low or high <= read.low:
                kept.append(read)
                continue
            if not self._overlap(read, low, high, cells):
                kept.append(read)
                continue
            if knows.over >> read.event.number & 1:
                if low > read.low or high < read.high or cells is not None:
                    kept.append(read)
                continue
            kept.append(read)
            if read.event.number in knows.own and self._same_threads(read, cells, threads, knows):
                continue
            found.append(Clash("smem-war", read.event, CELL * max(low, read.low)))
        self.reads = kept
        return found

    @staticmethod
    def _overlap(read: Read, low: int, high: int, cells: Cells | None) -> bool:
        if read.cells is None and cells is None:
            return True
        if read.cells is None:
            assert cells is not None
            return bool(((cells >= read.low) & (cells < read.high)).any())
        if cells is None:
            return bool(((read.cells >= low) & (read.cells < high)).any())
        return bool(np.isin(read.cells, cells).any())

    @staticmethod
    def _same_threads(
        read: Read, cells: Cells | None, threads: Cells | None, knows: Knowledge
    ) -> bool:
        """Whether each byte is written by the very thread that read it (program order)."""
        if read.cells is None or read.threads is None:
            return False
        if cells is None or threads is None:
            return knows.thread >= 0 and bool((read.threads == knows.thread).all())
        writer = dict(zip(cells.tolist(), threads.tolist(), strict=True))
        return all(
            writer.get(cell, thread) == thread
            for cell, thread in zip(read.cells.tolist(), read.threads.tolist(), strict=True)
        )
