"""Runs of a grid: its clusters in turns, on one thread of the host or on several.

A cluster runs until it ends or can go nowhere. One that waits for what another has to write gives
way: those that wait already are asked again, and then the next one begins. When nobody gets
anywhere and no other can begin, the kernel before this one ends; after that it is a *deadlock*.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents.agent_records import GRID_END, GRID_NEXT
from mlagen.emulator.ptx.host.meetings import Meetings
from mlagen.emulator.ptx.machine import CheckedLaunch, ClusterState, Shared
from mlagen.emulator.ptx.starting import STARTER

_SLICE = 1 << 19  # instructions between two looks of Python's
_VAINLY = 64  # rounds in which no cluster gets anywhere before a deadlock is told
_LANES_TURN = 8  # such rounds before other lanes of a warp that asks in vain go first
_LONG = 16  # slices after which a cluster lets others go on
_GRACE = 2_000_000  # instructions that a cluster may go on for after its first finding
RESIDENT_BYTES = 1 << 31  # of the clusters that are under way at a time
CUT, LIMIT = "cut", "limit"


@dataclass
class ClusterEnd:
    """How the run of one cluster ended.

    `code`: an R_ number of `layout`; R_YIELD is a deadlock, and `stuck` the clusters that wait.
    R_BUDGET: it was stopped, `why` being LIMIT (of instructions) or CUT (it ran on for long after
    a finding). `findings`: rows of F_ words; `counts`: executions of each row of the program.
    `state` is there unless the cluster came to its end.
    """

    number: int
    code: int
    findings: np.ndarray
    dropped: int
    counts: np.ndarray
    why: str = ""
    state: ClusterState | None = None
    stuck: tuple[ClusterState, ...] = field(default=())


Ended = Callable[[ClusterState], None]
Looked = Callable[[int], None]


class _Stopped(Exception):
    """The run ended elsewhere; nobody is told."""


class Turns:
    """Clusters that one thread runs: those under way, in turns."""

    def __init__(self, setup: CheckedLaunch, shared: Shared, numbers: Iterator[int]) -> None:
        self._setup, self._shared, self._numbers = setup, shared, numbers
        self._run = STARTER.start()
        self._waiting: deque[ClusterState] = deque()
        self._room: int | None = None
        self.stop = threading.Event()
        self.meetings: Meetings | None = None
        self.ended: Ended | None = None  # called with the state of each that came to its end
        self.looked: Looked | None = None  # called with the instructions of one that goes on

    def __iter__(self) -> Iterator[ClusterEnd]:
        """Ends, as they come. The last one may be no R_DONE: nothing is run after it."""
        vain = 0  # turns, one after another, that got nowhere
        while True:
            begun = vain >= len(self._waiting)
            state = self._begin() if begun else None
            if state is None:
                if not self._waiting:
                    return
                if begun and self._shared.end_before():
                    vain = 0
                if vain > _VAINLY * len(self._waiting):
                    yield self._end(self._waiting[0], y.R_YIELD, stuck=tuple(self._waiting))
                    return
                state = self._waiting.popleft()
            before = int(state.context[y.C_PROGRESS])
            state.context[y.C_TURN] = int(vain > _LANES_TURN * (len(self._waiting) + 1))
            code, why = self._turn(state)
            if code == y.R_DONE:
                vain = 0
                if self.ended is not None:
                    self.ended(state)
                yield self._end(state, code)
            elif code == y.R_FAULT or why:
                yield self._end(state, code, why)
                return
            else:
                moved = code == y.R_BUDGET or int(state.context[y.C_PROGRESS]) != before
                vain = 0 if moved else vain + 1
                if code == y.R_YIELD and stands_still(state):
                    yield self._end(state, code, stuck=(state,))
                    return
                self._waiting.append(state)

    def _begin(self) -> ClusterState | None:
        """The next cluster, where there is one and memory for it."""
        if self._room is not None and len(self._waiting) >= self._room:
            return None
        number = next(self._numbers, None)
        if number is None:
            return None
        state = ClusterState(self._setup, self._shared, number)
        if self._room is None:
            self._room = max(RESIDENT_BYTES // state.bytes, 1)
        return state

    def _turn(self, state: ClusterState) -> tuple[int, str]:
        """Run a cluster until it ends, gives way, or has had its share."""
        limit = self._setup.max_instructions
        ends: int | None = None
        for _ in range(_LONG):
            if self.stop.is_set():
                raise _Stopped
            executed = int(state.context[y.C_EXECUTED])
            budget = _SLICE if limit is None else max(min(_SLICE, limit + 1 - executed), 1)
            code = self._run(state.context.ctypes.data, budget)
            if code in (y.R_DONE, y.R_FAULT):
                return code, ""
            executed = int(state.context[y.C_EXECUTED])
            if self.looked is not None:
                self.looked(executed)
            if limit is not None and executed > limit:
                return y.R_BUDGET, LIMIT
            if int(state.context[y.C_FIND_COUNT]):
                # A loop count that was poison or garbage can keep a warp busy for hours.
                ends = state.cut_after if state.cut_after is not None else executed + _GRACE
                state.cut_after = ends
                if executed >= ends:
                    return y.R_BUDGET, CUT
            if code == y.R_YIELD:
                return code, ""
        return y.R_BUDGET, ""

    def _end(
        self, state: ClusterState, code: int, why: str = "", stuck: tuple[ClusterState, ...] = ()
    ) -> ClusterEnd:
        count = int(state.context[y.C_FIND_COUNT])
        done = code == y.R_DONE
        findings = state.words(y.C_FIND, y.F_SIZE)[:count].copy()
        if done and self.meetings is not None:
            findings = np.concatenate([findings, self.meetings.end(state)])
        return ClusterEnd(
            number=state.number,
            code=code,
            findings=findings,
            dropped=int(state.context[y.C_DROPPED]),
            counts=state.arrays[y.C_COUNT].view(np.int64)[: len(self._setup.program.rows)].copy(),
            why=why,
            state=None if done else state,
            stuck=stuck,
        )


def stands_still(state: ClusterState) -> bool:
    """Whether no warp of a cluster that gave way can ever go on: each waits for what only another
    warp of the cluster brings."""
    for words in state.words(y.C_WARPS, y.W_SIZE):
        if words[y.W_STATE] == y.ENDED:
            continue
        if words[y.W_STATE] == y.RUNNING:  # it asks for something in memory
            return False
        blocked = int(words[y.W_BLOCKED])
        for lane in range(y.LANES):
            if blocked >> lane & 1 and int(words[y.W_WAIT + lane]) >> 32 == y.WAIT_GRID:
                return False
    return True


def run_grid(
    setup: CheckedLaunch,
    *,
    ended: Ended | None = None,
    looked: Looked | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[ClusterEnd]:
    """Run the clusters of a launch; their ends by number. Where one is no R_DONE, it is the last.

    `ended` is called with the state of each that came to its end, `progress` with how many have,
    `looked` with the instructions so far of one that goes on.
    """
    shared = Shared(setup)
    numbers = _Handed(_dealt(shared.grid) if shared.grid[GRID_END] else setup.numbers())
    workers = min(setup.threads, len(setup.numbers())) if setup.apart else 1
    turns = [Turns(setup, shared, iter(numbers)) for _ in range(max(workers, 1))]
    if shared.alone and len(setup.numbers()) > 1:
        meetings = Meetings(setup, shared)
        for one in turns:
            one.meetings = meetings
    ends: list[ClusterEnd] = []
    lock = threading.Lock()

    def work(mine: Turns) -> None:
        mine.ended, mine.looked = ended, looked
        for end in mine:
            with lock:
                ends.append(end)
                if end.code != y.R_DONE:
                    numbers.close()  # those before it go on to their end: it may not be the first
                elif progress is not None:
                    progress(len(ends))

    if len(turns) == 1:
        work(turns[0])
    else:
        _in_threads(work, turns, numbers)
    ends.sort(key=lambda end: end.number)
    broken = [n for n, end in enumerate(ends) if end.code != y.R_DONE]
    return _last(ends, broken[0]) if broken else ends


def _last(ends: list[ClusterEnd], broken: int) -> list[ClusterEnd]:
    """The ends with the first that is no R_DONE as the last; on one thread others may have ended
    before it did."""
    return [end for end in ends if end.code == y.R_DONE] + [ends[broken]]


def _in_threads(work: Callable[[Turns], None], turns: list[Turns], numbers: _Handed) -> None:
    """`work` on each, and Ctrl-C ends them all: threads cannot be interrupted."""
    with ThreadPoolExecutor(len(turns)) as pool:
        futures = [pool.submit(work, mine) for mine in turns]
        try:
            for future in futures:
                future.result()
        finally:
            numbers.close()
            for mine in turns:
                mine.stop.set()


def _dealt(grid: np.ndarray) -> Iterator[int]:
    """Numbers of clusters that no other cluster has taken."""
    while grid[GRID_NEXT] < grid[GRID_END]:
        grid[GRID_NEXT] += 1
        yield int(grid[GRID_NEXT]) - 1


class _Handed:
    """Numbers, each handed to one thread."""

    def __init__(self, numbers: object) -> None:
        self._rest = iter(numbers)  # type: ignore[call-overload]
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self._lock:
            if self._closed:
                raise StopIteration
            return int(next(self._rest))
