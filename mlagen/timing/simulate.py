"""The entry: streams of a launch to a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from mlagen.binary import KernelCode
from mlagen.emulator.streams import ExecutedStream
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.timing.activity import Activity, activity_of
from mlagen.timing.constants import Machine, machine
from mlagen.timing.corners import Corner, corners, model_error
from mlagen.timing.costs import memory_bytes
from mlagen.timing.loops import flops_of
from mlagen.timing.model import CornerResult, Estimate, Interval, Place, Simulation
from mlagen.timing.power import Rates, clock_of, watts
from mlagen.timing.roles import (
    hot_loops,
    loop_rows,
    roles_of,
    stall_lines,
    stall_parts,
    utilisation,
)
from mlagen.timing.unit import UnitTimes, memory_share, residents, time_unit
from mlagen.timing.whole import durations, makespan

_ROUNDS = 6  # of clock and cycles; each moves the clock by less than the one before
_SETTLED = 0.002


@dataclass(frozen=True, eq=False)
class Job:
    """A launch to be judged. `streams`: of some of its workgroups; `grid`: of all of them.

    `lds_bytes`: that a workgroup has. `footprint`: bytes of all its buffers, 0 where nobody knows:
    what is read more often than that comes from the L2. `flops`: of the launch, where the caller
    knows better than its matrix instructions. `tiles`: of a loop iteration. `place`: names the
    source of an offset.
    """

    kernel: KernelCode
    streams: tuple[ExecutedStream, ...]
    grid: tuple[int, int, int]
    lds_bytes: int
    footprint: int = 0
    flops: float | None = None
    tiles: int | None = None
    place: Place | None = None

    @property
    def workgroups(self) -> int:
        x, y, z = self.grid
        return x * y * z

    def active(self, on: Machine) -> int:
        """Compute units that get a workgroup."""
        return min(on.cus, self.workgroups)

    def residents(self, on: Machine) -> int:
        """Workgroups that a compute unit holds, and gets from this grid."""
        held = residents(self.kernel, self.streams[0].waves, self.lds_bytes)
        return max(1, min(held, -(-self.workgroups // on.cus)))


@dataclass(frozen=True, eq=False)
class Timed:
    """Simulated units of a job, one a stream, and what the whole launch takes. `cycles` were
    counted at `clock`, GHz; `rates`: what a compute unit does in one, mean over the launch."""

    units: tuple[UnitTimes, ...]
    reuse: float
    cycles: float
    clock: float
    rates: Rates

    def seconds(self, on: Machine) -> float:
        """The launch at its clock, its start and end included."""
        return self.cycles / (self.clock * 1e9) + on.launch * 1e-6


def time_job(job: Job, on: Machine, clock: float | None = None) -> Timed:
    """Simulate a job's streams on one machine at a clock, the maximum by default: the bound by
    issue, whatever power it takes. ConfigError for a job without streams."""
    if not job.streams:
        raise ConfigError("no workgroup was recorded", hint="name some of the grid")
    requested = _requested(job)
    reuse = requested / job.footprint if job.footprint else 1e9
    held = job.residents(on)
    at = clock or on.max_clock
    units = tuple(
        time_unit(
            stream, job.kernel, on, workgroups=held, reuse=reuse, clock=at, active=job.active(on)
        )
        for stream in job.streams
    )
    known = {s.workgroup: float(u.cycles) for s, u in zip(job.streams, units, strict=True)}
    cycles = makespan(durations(known, job.workgroups), held, on)
    done = replace(_work(job), hbm=min(requested, job.footprint))
    return Timed(units, reuse, cycles, at, Rates.of(done, cycles, on))


def sustained(job: Job, on: Machine, bound: Timed | None = None) -> Timed:
    """The launch at the clock that the power limit allows: what it does a cycle decides the clock,
    and where the HBM limits it, the clock decides what it does a cycle. `bound`: its `time_job`."""
    timed = bound or time_job(job, on)
    for _ in range(_ROUNDS):
        clock = clock_of(timed.rates, on)
        active = job.active(on)
        shares = {memory_share(on, timed.reuse, each, active) for each in (clock, timed.clock)}
        if len(shares) == 1 or abs(clock / timed.clock - 1) < _SETTLED:
            return replace(timed, clock=clock)
        timed = time_job(job, on, clock)
    return timed


def longest(timed: Timed) -> UnitTimes:
    """The unit with the most instructions: of a causal grid the one with the most tiles."""
    return max(timed.units, key=lambda unit: unit.instructions)


def _requested(job: Job) -> float:
    """Bytes that all workgroups ask for, by those that were recorded."""
    total = 0
    for stream in job.streams:
        rows = stream.row[stream.access >= 0]
        accesses = stream.access[stream.access >= 0]
        wide = np.array([memory_bytes(ins) for ins in job.kernel.instructions])
        lanes = (stream.addresses[accesses] >= 0).sum(axis=1)
        total += int((wide[rows] * lanes).sum())
    return total / len(job.streams) * job.workgroups


def _work(job: Job) -> Activity:
    """What all workgroups do, by those that were recorded."""
    counts = {s.workgroup: activity_of(s, job.kernel) for s in job.streams}
    places = durations({number: float(number) for number in counts}, job.workgroups)
    numbers, times = np.unique(places.astype(np.int64), return_counts=True)
    return Activity.sum(counts[int(n)] * float(t) for n, t in zip(numbers, times, strict=True))


def matrix_flops(job: Job) -> float:
    """Operations of all matrix instructions of the launch, by the workgroups recorded."""
    each = np.array([flops_of(ins) for ins in job.kernel.instructions], dtype=np.float64)
    known = {s.workgroup: float(each[s.row].sum()) for s in job.streams}
    return float(durations(known, job.workgroups).sum())


def simulate(
    job: Job,
    on: Machine | None = None,
    *,
    grid: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Judge a launch. `on`: the machine, the table's by default. `grid`: try the corners too;
    `progress(done, total)` is called as they are done.

    UnsupportedError for instructions without timing and for kernels without a loop.
    """
    base = on or machine()
    started = time.perf_counter()
    timed = time_job(job, base)
    unit = longest(timed)
    try:
        loops = hot_loops(unit, job.tiles)
    except UnsupportedError as why:
        raise UnsupportedError(
            why.message, hint="cycles per tile need a loop: launch on longer sequences"
        ) from None
    roles = roles_of(unit, loops, job.place)
    rows = loop_rows(unit, loops)
    under_load = sustained(job, base, timed)
    seconds = under_load.seconds(base)
    tried = _corners(job, base, seconds, progress) if grid else ()
    flops = job.flops if job.flops is not None else matrix_flops(job)
    requested = _requested(job)
    near = [c.ratio for c in tried if c.plausible] + [1.0]
    error = model_error(seconds)
    low, high = min(near) * (1 - error), max(near) * (1 + error)
    busy = utilisation(unit, loops)
    conflicts = int((unit.costs.lds - unit.costs.ideal).clip(0).sum())
    return Simulation(
        kernel=job.kernel.name,
        instructions=sum(u.instructions for u in timed.units),
        seconds=time.perf_counter() - started,
        workgroup_cycles=float(np.mean([u.cycles for u in timed.units])),
        cycles_per_tile=roles[0].cycles,
        matrix_utilisation=busy["matrix"],
        roles=roles,
        utilisation=busy,
        stalls=stall_parts(unit, rows),
        lines=stall_lines(unit, rows, job.place),
        lds_conflict_cycles=float(conflicts),
        estimate=Estimate(
            workgroups=job.workgroups,
            simulated=len(job.streams),
            residents=job.residents(base),
            rounds=job.workgroups / (base.cus * job.residents(base)),
            cycles=timed.cycles,
            clock=under_load.clock,
            watts=watts(under_load.rates, under_load.clock, base),
            seconds=Interval(seconds, seconds * low, seconds * high),
            flops=flops,
            tflops=Interval(*(flops / 1e12 / (seconds * x) for x in (1.0, high, low))),
            bound_seconds=timed.seconds(base),
            bound_tflops=flops / 1e12 / timed.seconds(base),
            memory_bytes=requested,
            reuse=timed.reuse,
            memory_seconds=(job.footprint or requested) / (base.hbm * 1e9),
        ),
        corners=tried,
        constants={name: float(value) for name, value in asdict(base).items()},
        warnings=tuple(_warnings(job, unit)),
    )


def _corners(
    job: Job, base: Machine, seconds: float, progress: Callable[[int, int], None] | None
) -> tuple[CornerResult, ...]:
    found: list[CornerResult] = []
    every = list(corners())
    for corner in every:
        on = corner.machine(base)
        found.append(_result(corner, on, sustained(job, on), seconds))
        if progress is not None:
            progress(len(found), len(every))
    return tuple(found)


def _result(corner: Corner, on: Machine, timed: Timed, seconds: float) -> CornerResult:
    ratio = timed.seconds(on) / seconds
    return CornerResult(
        corner.name, timed.cycles, timed.clock, corner.misfit, corner.plausible, ratio
    )


def _warnings(job: Job, unit: UnitTimes) -> list[str]:
    found = []
    for name, count in unit.program.assumed.items():
        found.append(f"{name} ({count} in the code): timed as others of its format")
    for name, count in unit.costs.unmeasured.items():
        found.append(f"{name} ({count} executed): nobody measured its LDS phases")
    if len(job.streams) < job.workgroups:
        found.append(
            f"{len(job.streams)} of {job.workgroups} workgroups were simulated; the others take "
            f"as long as the nearest of them"
        )
    if not job.footprint:
        found.append("sizes of buffers unknown: all reads are taken to hit the L2")
    return found
