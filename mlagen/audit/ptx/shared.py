"""Shared memory with its history: who wrote each cell last, who has read it since, and whether a
later access knows that these are over.

Order between accesses is a set of events known to be over, a bit each: a thread learns of events
by its waits and passes on what it knows by its arrivals. Nothing depends on the moment at which an
asynchronous copy happens to land.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlagen.audit.ptx.weak import WeakWait
from mlagen.ptx import Instruction

Array = np.ndarray[Any, np.dtype[Any]]
CELL = 4  # bytes


@dataclass(slots=True, eq=False)
class Event:
    """An access or a completed synchronisation. `threads` is a bit set, 0 for asynchronous ones."""

    number: int
    instruction: Instruction
    what: str
    threads: int = 0
    generic: bool = False  # ordinary proxy: asynchronous accesses see it only after a fence
    by: int = 0  # the threads (a bit set) whose group an asynchronous copy is in
    together: int = 0  # of an arrival: those (a set) of other lanes by the same instruction
    long_ago: bool = False  # of a load: its threads have waited for wgmma since
    # Of what is in a group: the wait that lacked least of it so far, and the one that covered it.
    weak: WeakWait | None = None
    waited: Instruction | None = None

    @property
    def bit(self) -> int:
        """The event as a set of one."""
        return 1 << self.number

    def left(self, wait: WeakWait) -> None:
        """A wait leaves its group in flight."""
        known = self.weak
        if known is None or wait.asked - wait.most <= known.asked - known.most:
            self.weak = wait

    def lets(self, access: Instruction) -> WeakWait | None:
        """The wait that lets it meet an access. None where its threads wait for it before they come
        by such an access themselves: then something else lacks."""
        early = self.waited is not None and self.waited.index < access.index
        return None if early else self.weak


@dataclass(frozen=True, slots=True)
class Release:
    """The first release of what a load read before its value was used, and the registers whose
    values came of it then."""

    instruction: Instruction
    held: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells that threads access, and the thread of each."""

    cells: Array
    threads: Array
    set: int  # the threads as a bit set
    low: int  # first cell
    high: int  # exclusive
    start: int  # first byte
    size: int  # bytes up to the last


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What an event reads: a range of cells, or cells with the thread that reads each."""

    event: Event
    low: int
    high: int  # exclusive
    cells: Cells | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What one thread stored at one place: the event, the value and its bytes."""

    number: int
    value: Any
    size: int


@dataclass(frozen=True, slots=True)
class Clash:
    """Two accesses to the same bytes without an order, or ordered but not fenced."""

    kind: str  # "smem-raw", "smem-war", "smem-waw", "proxy-fence", "smem-load-release"
    earlier: Event
    address: int


@dataclass(slots=True, eq=False)
class Knowledge:
    """What the accessing threads know: events over, and those seen by the asynchronous proxy; of
    ordinary loads the ones that have read."""

    over: int
    fenced: int
    own: dict[int, bool]  # events of these threads themselves -> fenced since
    thread: int = -1  # the one accessing thread of an asynchronous operation


_Key = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class SharedMemory:
    """`size` bytes of a block."""

    size: int
    events: list[Event]
    writer: Array  # of each cell: event number, -1 for none
    thread: Array  # of each cell: the thread that wrote it, -1 for an asynchronous write
    # By first cell, last cell and identity of the cells; a later read that knows of an earlier one
    # stands for both.
    reads: dict[_Key, list[Read]] = field(default_factory=dict)
    # What steers and was stored, by its first byte.
    held: dict[int, Stored] = field(default_factory=dict)

    @staticmethod
    def of(size: int, events: list[Event]) -> SharedMemory:
        """Memory that nobody has touched."""
        cells = -(-size // CELL)
        return SharedMemory(
            size, events, np.full(cells, -1, np.int32), np.full(cells, -1, np.int16)
        )

    def clone(self, events: list[Event]) -> SharedMemory:
        """An independent copy."""
        reads = {key: list(found) for key, found in self.reads.items()}
        return SharedMemory(
            self.size, events, self.writer.copy(), self.thread.copy(), reads, dict(self.held)
        )

    def read_range(
        self, start: int, size: int, event: Event, knows: Knowledge, *, keep: bool = True
    ) -> list[Clash]:
        """An asynchronous read of `size` bytes."""
        low, high = start // CELL, -(-(start + size) // CELL)
        found = self._against_writes(slice(low, high), None, knows, "smem-raw", True)
        if keep:
            self._keep(Read(event, low, high), knows)
        return found

    def write_range(self, start: int, size: int, event: Event, knows: Knowledge) -> list[Clash]:
        """An asynchronous write of `size` bytes."""
        low, high = start // CELL, -(-(start + size) // CELL)
        found = self._against_writes(slice(low, high), None, knows, "smem-waw", True)
        found += self._against_reads(low, high, None, knows)
        self.writer[low:high] = event.number
        self.thread[low:high] = -1
        return found

    def read_cells(self, cells: Cells, event: Event, knows: Knowledge) -> list[Clash]:
        """Ordinary loads."""
        found = self._against_writes(cells.cells, cells.threads, knows, "smem-raw", False)
        self._keep(Read(event, cells.low, cells.high, cells), knows)
        return found

    def write_cells(self, cells: Cells, event: Event, knows: Knowledge) -> list[Clash]:
        """Ordinary stores (and cp.async)."""
        found = self._against_writes(cells.cells, cells.threads, knows, "smem-waw", False)
        found += self._against_reads(cells.low, cells.high, cells, knows)
        self.writer[cells.cells] = event.number
        self.thread[cells.cells] = cells.threads
        return found

    def staged(self, start: int) -> int:
        """Bytes from `start` on that ordinary stores wrote last, without a gap."""
        low = start // CELL
        writers = self.writer[low:]
        if not writers.size:
            return 0
        generic = np.array([number for number in np.unique(writers) if self._stored(int(number))])
        stored = np.isin(writers, generic)
        return CELL * (int(np.argmin(stored)) if not stored.all() else len(stored))

    def _stored(self, number: int) -> bool:
        return number >= 0 and self.events[number].generic

    def _keep(self, read: Read, knows: Knowledge) -> None:
        key = (read.low, read.high, id(read.cells) if read.cells else 0)
        before = self.reads.get(key)
        if before is None:
            self.reads[key] = [read]
            return
        same = read.cells is not None
        self.reads[key] = [
            old
            for old in before
            if not (
                knows.over >> old.event.number & 1
                # The same threads at the same cells: program order.
                or (same and old.event.number in knows.own)
            )
        ]
        self.reads[key].append(read)

    def _against_writes(
        self,
        where: slice | Array,
        threads: Array | None,
        knows: Knowledge,
        kind: str,
        asynchronous: bool,
    ) -> list[Clash]:
        writers = self.writer[where]
        if not writers.size:
            return []
        found = []
        for number in _different(writers):
            if number < 0:
                continue
            event = self.events[number]
            over = knows.over >> number & 1
            fenced = knows.fenced >> number & 1
            if not over and number in knows.own:
                mine = writers == number
                by = self.thread[where][mine]
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
    def _address(where: slice | Array, mask: Array) -> int:
        at = int(np.argmax(mask))
        return CELL * (at + where.start if isinstance(where, slice) else int(where[at]))

    def _against_reads(
        self, low: int, high: int, cells: Cells | None, knows: Knowledge
    ) -> list[Clash]:
        found = []
        for key, reads in list(self.reads.items()):
            if key[1] <= low or high <= key[0]:
                continue
            if not _overlap(reads[0], low, high, cells):
                continue
            covered = cells is None and low <= key[0] and key[1] <= high
            kept = []
            for read in reads:
                number = read.event.number
                mine = number in knows.own and _same_threads(read, cells, knows)
                known = knows.over >> number & 1
                late = cells is None and not _has_read(read, knows)
                if not known or late or not covered:
                    kept.append(read)
                if not (known or mine):
                    found.append(Clash("smem-war", read.event, CELL * max(low, read.low)))
                elif late:
                    place = CELL * max(low, read.low)
                    found.append(Clash("smem-load-release", read.event, place))
            if kept:
                self.reads[key] = kept
            else:
                del self.reads[key]
        return found


def numbers(events: int) -> Iterator[int]:
    """The numbers of a set of events, ascending."""
    while events:
        lowest = events & -events
        yield lowest.bit_length() - 1
        events ^= lowest


def _different(writers: Array) -> list[int]:
    """The numbers in an array, ascending. Neighbours mostly have the same."""
    changes = np.flatnonzero(writers[1:] != writers[:-1])
    if not changes.size:
        return [int(writers[0])]
    return sorted({int(writers[0]), *writers[changes + 1].tolist()})


def _overlap(read: Read, low: int, high: int, cells: Cells | None) -> bool:
    if read.cells is None and cells is None:
        return True
    if read.cells is None:
        assert cells is not None
        return bool(((cells.cells >= read.low) & (cells.cells < read.high)).any())
    if cells is None:
        return bool(((read.cells.cells >= low) & (read.cells.cells < high)).any())
    return read.cells is cells or bool(np.isin(read.cells.cells, cells.cells).any())


def _has_read(read: Read, knows: Knowledge) -> bool:
    """Whether a read that is known to be issued is known to be over as well: all but ordinary loads
    are."""
    number = read.event.number
    return read.cells is None or bool(knows.fenced >> number & 1 or knows.own.get(number))


def _same_threads(read: Read, cells: Cells | None, knows: Knowledge) -> bool:
    """Whether each byte is written by the very thread that read it (program order)."""
    if read.cells is None:
        return False
    if cells is None:
        return knows.thread >= 0 and bool((read.cells.threads == knows.thread).all())
    writer = dict(zip(cells.cells.tolist(), cells.threads.tolist(), strict=True))
    return all(
        writer.get(cell, thread) == thread
        for cell, thread in zip(read.cells.cells.tolist(), read.cells.threads.tolist(), strict=True)
    )
