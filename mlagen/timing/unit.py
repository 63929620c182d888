"""One compute unit with a workgroup's stream on it: from a stream to cycles by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.binary import KernelCode
from mlagen.emulator.streams import ExecutedStream
from mlagen.errors import UnsupportedError
from mlagen.targets.gfx950.limits import GFX950
from mlagen.timing import engine
from mlagen.timing.constants import Machine
from mlagen.timing.costs import AccessCosts, access_costs
from mlagen.timing.cycle_program import TimedKernel, read_program
from mlagen.timing.cycle_state import (
    B_SIZE,
    REASONS,
    Counts,
    Ints,
    MachineNumbers,
    Steps,
    compute_unit,
)


@dataclass(frozen=True, eq=False)
class WaveTimes:
    """A wave's instructions: rows of the program, the cycles in which they were issued, and the
    cycles for which they keep the LDS."""

    wave: int
    workgroup: int
    rows: Ints
    issued: Ints
    lds: Ints


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """A simulated compute unit. `cycles`: until its last wave has ended. `stalls`: wave-cycles by
    program row and `state.REASONS`. `busy`: cycles by pipe; the four SIMDs' add up for vector,
    transcendental (part of vector) and matrix."""

    program: TimedKernel
    machine: Machine
    costs: AccessCosts
    workgroups: int
    cycles: int
    waves: tuple[WaveTimes, ...]
    stalls: Ints
    busy: Ints

    @property
    def instructions(self) -> int:
        return sum(len(wave.rows) for wave in self.waves)


def residents(kernel: KernelCode, waves: int, lds_bytes: int) -> int:
    """Workgroups of `waves` waves that a compute unit holds: registers, LDS, barriers' room."""
    per_simd = GFX950.waves_per_simd(kernel.descriptor.vgprs)
    slots = per_simd * GFX950.simds_per_cu
    granule = GFX950.lds_granule_bytes
    by_lds = GFX950.lds_bytes // (-(-lds_bytes // granule) * granule) if lds_bytes else slots
    return max(1, min(slots // max(waves, 1), by_lds))


def memory_share(machine: Machine, reuse: float, clock: float, active: int | None = None) -> float:
    """Bytes a cycle that a CU gets from beyond its L1 while `active` CUs ask, all by default: the
    L2's share, or the HBM's times how often each of its bytes is asked for, at a clock in GHz."""
    hbm = machine.hbm / clock / (active or machine.cus)
    return min(machine.l2_bytes, hbm * max(reuse, 1.0))


def memory_latency(machine: Machine, reuse: float, clock: float) -> int:
    """Cycles of a load at a clock in GHz: of every `reuse` of them one is the first to ask for its
    bytes, and waits for the HBM."""
    first = machine.hbm_latency * clock - machine.l2_latency
    return round(machine.l2_latency + max(first, 0.0) / max(reuse, 1.0))


def time_unit(
    stream: ExecutedStream,
    kernel: KernelCode,
    machine: Machine,
    *,
    workgroups: int = 1,
    reuse: float = 1e9,
    clock: float | None = None,
    active: int | None = None,
) -> UnitTimes:
    """Simulate `workgroups` copies of a stream side by side on one compute unit.

    `reuse`: how often each byte of memory is asked for by all CUs together (L2 and HBM share).
    `clock`: GHz, the maximum by default; a cycle of a slower clock brings more of the HBM's bytes.
    `active`: CUs that share the HBM with this one, itself among them; all by default.
    UnsupportedError for instructions without timing and for waves that wait for ever.
    """
    program = read_program(kernel, machine)
    costs = access_costs(stream, kernel, machine)
    order = np.argsort(stream.wave, kind="stable")
    counts = np.bincount(stream.wave, minlength=stream.waves)
    rows = np.tile(stream.row[order].astype(np.int64), workgroups)
    access = stream.access[order]
    none = access < 0

    def by_step(values: Ints) -> Ints:
        if not len(values):
            return np.zeros(len(access) * workgroups, dtype=np.int64)
        return np.tile(np.where(none, 0, values[access]), workgroups)

    lds = by_step(costs.lds)
    steps = Steps(
        rows=program.rows,
        ranges=program.ranges,
        first=np.cumsum([0, *np.tile(counts, workgroups)]).astype(np.int64),
        row=rows,
        lds=lds,
        bytes=by_step(costs.bytes),
        lines=by_step(costs.lines),
        group=np.repeat(np.arange(workgroups), stream.waves),
        simd=np.arange(stream.waves * workgroups) % GFX950.simds_per_cu,
    )
    counted = Counts(
        when=np.zeros(len(rows), dtype=np.int64),
        stalls=np.zeros((len(program.rows), len(REASONS)), dtype=np.int64),
        busy=np.zeros(B_SIZE, dtype=np.int64),
    )
    cycles = engine.simulate(compute_unit(_numbers(machine, reuse, clock, active), steps, counted))
    if cycles < 0:
        raise UnsupportedError(f"kernel {kernel.name}: its waves wait for one another for ever")
    waves = tuple(
        WaveTimes(
            wave % stream.waves,
            wave // stream.waves,
            rows[steps.first[wave] : steps.first[wave + 1]],
            counted.when[steps.first[wave] : steps.first[wave + 1]],
            lds[steps.first[wave] : steps.first[wave + 1]] * 256 // machine.lds_bytes,
        )
        for wave in range(len(steps.group))
    )
    return UnitTimes(program, machine, costs, workgroups, int(cycles), waves, counted.stalls,
                     counted.busy)  # fmt: skip


def _numbers(
    machine: Machine, reuse: float, clock: float | None, active: int | None
) -> MachineNumbers:
    return MachineNumbers(
        slot=machine.slot,
        lds_scale=256 / machine.lds_bytes,
        lds_latency=machine.lds_latency,
        lgkm_limit=machine.lgkm_limit,
        ta_bytes=machine.ta_bytes,
        memory_bytes=float(memory_share(machine, reuse, clock or machine.max_clock, active)),
        memory_latency=memory_latency(machine, reuse, clock or machine.max_clock),
        smem_latency=machine.smem_latency,
        vm_limit=machine.vm_limit,
        barrier=machine.barrier,
        taken=machine.branch_taken,
        not_taken=machine.branch_not_taken,
        co_issue=machine.co_issue,
        dma_bytes=machine.lds_dma_bytes,
    )
