"""Launches of decode kernels, which the memory limits: from two recorded lengths to any plan.

A workgroup takes parts of sequences one after another. A part takes a base (its queries, the first
pages, its results) and as many more cycles and bytes for every key. What the HBM delivers is what
the workgroups read, less what they share: workgroups that read the same keys at the same time take
them from the L2 where they are on one XCD, and from the Infinity Cache where they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from cycle_model.fluid import Phase, finish
from cycle_model.ladder import Growth, line, work_line

from mlagen.binary import KernelCode
from mlagen.emulator.streams import ExecutedStream
from mlagen.timing.activity import Activity
from mlagen.timing.constants import Machine
from mlagen.timing.costs import LINE, SECTOR, access_costs
from mlagen.timing.cycle_program import STORE, UNIT, VMEM, read_program
from mlagen.timing.cycle_state import Ints
from mlagen.timing.power import Rates, clock_of
from mlagen.timing.unit import residents, time_unit
from mlagen.timing.whole import XCDS

_WINDOW = 128  # keys within which a compute unit finds a cache line again in the L2
_D_V = 512  # columns of a row of O
_SHARES = 1.1  # times the cycles alone, from which on the memory is what limits
_ROUNDS, _SETTLED = 20, 0.001  # of clock and cycles
_LOOKUPS = 4  # reads of a merge that wait for one another: whose parts, where, LSE, O


@dataclass(frozen=True, slots=True)
class Part:
    """Keys of a sequence that a workgroup goes through. `sequence` and `first` say which: parts
    that agree in both read the same keys. `partial`: its result is merged with others."""

    sequence: int
    first: int
    keys: int
    partial: bool = False


Groups = Sequence[Sequence[Part]]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of keys: that all workgroups ask for, that the XCDs' L2s fetch, and that the HBM
    delivers."""

    asked: float
    fetched: float
    delivered: float

    def capacity(self, on: Machine, clock: float) -> float:
        """Bytes a cycle that all workgroups together can ask for, at a clock in GHz."""
        hbm = min(on.hbm * on.hbm_rows, on.hbm_pin) * self.asked / self.delivered
        return min(hbm, on.mall * self.asked / self.fetched) / clock


def traffic(
    groups: Groups, asked_bytes: float, row_bytes: float, places: int, on: Machine
) -> Traffic:
    """Of a launch whose compute units have `places` workgroups at a time. `asked_bytes`: that a
    workgroup asks for a key, `row_bytes`: in the cache lines that a key lies in."""
    asked = 0
    fetched: dict[tuple[int, int, int, int], int] = {}  # by sequence, first key, round and XCD
    delivered: dict[tuple[int, int, int], int] = {}
    unique: dict[tuple[int, int], int] = {}
    for number, group in enumerate(groups):
        together, xcd = number // places, number % XCDS
        for part in group:
            asked += part.keys
            same = (part.sequence, part.first)
            unique[same] = max(unique.get(same, 0), part.keys)
            delivered[*same, together] = unique[same]
            fetched[*same, together, xcd] = unique[same]
    fits = sum(unique.values()) * row_bytes <= on.mall_bytes
    from_hbm = sum(unique.values()) if fits else sum(delivered.values())
    return Traffic(asked * asked_bytes, sum(fetched.values()) * row_bytes, from_hbm * row_bytes)


def fetches(addresses: Ints, window: int) -> int:
    """Cache lines that loads [accesses, lanes], -1 for lanes without one, get from beyond the L2:
    those that nobody asked for in the `window` accesses before."""
    access, lane = np.nonzero(addresses >= 0)
    lines = addresses[access, lane] // LINE
    order = np.lexsort((access, lines))
    again = np.diff(lines[order], prepend=-1) == 0
    near = np.diff(access[order], prepend=-1) <= window
    return int((~(again & near)).sum())


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """A call: `cycles` of its first launch at `clock` GHz, and microseconds of what it takes
    besides: `launches`, their start and end, and `merge`, moving the parts' results.
    `hbm_bytes`: of keys. `alone`: cycles that its workgroups would take without sharing."""

    cycles: float
    clock: float
    hbm_bytes: float
    launches: float
    merge: float
    alone: float

    @property
    def shares(self) -> bool:
        """The memory limits it: workgroups wait for one another's bytes."""
        return self.cycles > _SHARES * self.alone

    @property
    def us(self) -> float:
        return self.cycles / self.clock * 1e-3 + self.launches + self.merge

    @property
    def rate(self) -> float:
        """TB/s of keys over the whole call."""
        return self.hbm_bytes / self.us * 1e-6


@dataclass(frozen=True, eq=False)
class DecodeKernel:
    """A decode kernel's streams by keys, two lengths, a workgroup with one part each. `rows`: of
    queries that a part has results of; `tile`: keys that it does together."""

    name: str
    code: KernelCode
    streams: Mapping[int, ExecutedStream]
    rows: int
    tile: int

    def growth(self, on: Machine, held: int = 1) -> Growth:
        """Cycles of a part by keys, on a compute unit that has the HBM to itself and `held`
        workgroups side by side."""
        return line({
            n: time_unit(s, self.code, on, workgroups=held, reuse=1.0, active=1).cycles
            for n, s in self.streams.items()
        })  # fmt: skip

    @cached_property
    def bytes(self) -> Growth:
        """That a part asks for beyond the L1, by keys."""
        rows = read_program(self.code, Machine()).rows
        moved = {}
        for n, stream in self.streams.items():
            costs = access_costs(stream, self.code, Machine())
            steps = stream.access >= 0
            stores = rows[stream.row[steps], STORE] == 1
            access = stream.access[steps]
            asked = np.where(stores, costs.bytes[access], costs.sectors[access] * SECTOR)
            moved[n] = float(asked.sum())
        return line(moved)

    @cached_property
    def line_bytes(self) -> float:
        """In the cache lines that a key lies in: what the HBM delivers for it."""
        rows = read_program(self.code, Machine()).rows
        lines = {}
        for n, stream in self.streams.items():
            steps = stream.access >= 0
            steps &= (rows[stream.row, UNIT] == VMEM) & (rows[stream.row, STORE] == 0)
            addresses = stream.addresses[stream.access[steps]]
            window = _WINDOW * len(addresses) // n
            lines[n] = float(fetches(addresses, window) * LINE)
        return line(lines).slope

    @cached_property
    def work(self) -> tuple[Activity, Activity]:
        """What a part does: whatever the keys, and more for every key."""
        return work_line(self.streams, self.code)

    @property
    def residents(self) -> int:
        """Workgroups that a compute unit holds."""
        stream = next(iter(self.streams.values()))
        return residents(self.code, stream.waves, self.code.descriptor.lds_bytes)

    def held(self, groups: Groups, on: Machine) -> int:
        """Workgroups of these that a compute unit has at a time."""
        return max(1, min(self.residents, -(-len(groups) // on.cus)))

    def _keys(self, part: Part) -> int:
        """With those of the last tile that nobody asked for."""
        return -(-part.keys // self.tile) * self.tile

    def call(self, groups: Groups, on: Machine, growth: Growth | None = None) -> DecodeTime:
        """A call of these workgroups, under load. `growth`: of this machine and as many workgroups
        side by side, where it is known."""
        held = self.held(groups, on)
        grown, moved = growth or self.growth(on, held), self.bytes
        flow = traffic(groups, moved.slope, self.line_bytes, on.cus * held, on)
        parts = sum(part.partial for group in groups for part in group)
        results = float(parts * self.rows * (_D_V + 1) * 4)  # in fp32
        near = min(on.hbm * on.hbm_rows / on.mall, 1.0) if results <= on.mall_bytes else 1.0
        phases = [
            [phase for part in group for phase in self._phases(part, grown, moved, near)]
            for group in groups
        ]
        done = self._done(groups, flow)
        clock = on.max_clock
        for _ in range(_ROUNDS):  # fewer cycles at a slower clock, where the HBM limits
            cycles = finish(phases, held, flow.capacity(on, clock), on)
            allowed = clock_of(Rates.of(done, cycles, on), on)
            if abs(allowed / clock - 1) < _SETTLED:
                break
            clock = allowed
        launches = on.launch * (2 if parts else 1)
        merge = results * near / (on.hbm * on.hbm_rows * 1e3)
        merge += _LOOKUPS * on.hbm_latency * 1e-3 if parts else 0.0
        alone = finish(phases, held, np.inf, on)
        return DecodeTime(cycles, clock, flow.delivered, launches, merge, alone)

    def _phases(self, part: Part, grown: Growth, moved: Growth, near: float) -> tuple[Phase, Phase]:
        """`near`: what a byte takes that stays in the Infinity Cache, such as those of results that
        a second launch reads, in units of one of the HBM."""
        keys = self._keys(part)
        return (
            Phase(max(grown.base, 0.0), max(moved.base, 0.0) * near),
            Phase(grown.slope * keys, moved.slope * keys),
        )

    def _done(self, groups: Groups, flow: Traffic) -> Activity:
        base, slope = self.work
        parts = [part for group in groups for part in group]
        total = base * len(parts) + slope * float(sum(self._keys(part) for part in parts))
        return replace(total, hbm=flow.delivered)
