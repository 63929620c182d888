"""What a simulation says, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScheduleSource:
    """What an instruction comes from: `where` in a schedule ("mha.py:97"), the cluster's name, and
    the operation as the schedule says it ("pv(i - 1)"). Empty where nobody knows."""

    where: str = ""
    cluster: str = ""
    operation: str = ""

    def __str__(self) -> str:
        return f"{self.where} {self.cluster}".strip()


Place = Callable[[int], ScheduleSource]  # of an instruction's offset in the kernel


@dataclass(frozen=True, slots=True)
class StallLine:
    """Wave-cycles in which a wave's next instruction was this one and did not issue.

    `place`: the schedule's line where somebody knows it, else the instruction's offset.
    """

    place: str
    offset: int
    text: str
    reason: str
    cycles: int


@dataclass(frozen=True, slots=True)
class ClusterTimes:
    """What stands between two barriers of a role's hot loop. Cycles of one wave an iteration:
    from the issue of its first instruction to that of the next cluster's first."""

    number: int
    first: int  # offset
    last: int
    instructions: int
    matrix: int
    cycles: float
    issuing: float
    stalls: Mapping[str, float]
    place: str = ""


@dataclass(frozen=True, slots=True)
class RoleTimes:
    """Waves that share a hot loop. `loop`: offset of its head. `tiles`: of an iteration. Counts
    are of one wave and tile; `cycles` of a tile in the steady state."""

    waves: tuple[int, ...]
    loop: int
    iterations: int
    instructions: float
    tiles: int
    cycles: float
    matrix: float
    matrix_cycles: float
    flops: float
    clusters: tuple[ClusterTimes, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted number: at the table's constants, and the least and most over the plausible
    corners of the sensitivity grid, widened by the validation's error."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CornerResult:
    """One corner of the grid. `clock`: GHz that its energies allow; `ratio`: time there, in units
    of the prediction."""

    name: str
    cycles: float
    clock: float
    misfit: float
    plausible: bool
    ratio: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A whole launch. `workgroups` of which `simulated` were simulated; `residents` a compute
    unit; `rounds`: workgroups a place takes one after the other. `seconds` and `tflops` are the
    prediction: under load for more than a second, at the `clock` (GHz) that the power limit allows,
    where the chip takes `watts`. `bound_seconds` and `bound_tflops`: by issue, at the maximum clock
    for as long as nothing limits it. `flops`: of its matrix instructions (tiles are whole ones:
    masked and padded work counts), or as the caller said."""

    workgroups: int
    simulated: int
    residents: int
    rounds: float
    cycles: float
    clock: float
    watts: float
    seconds: Interval
    flops: float
    tflops: Interval
    bound_seconds: float
    bound_tflops: float
    memory_bytes: float
    reuse: float
    memory_seconds: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """The report of `mlagen simulate`. `utilisation`: by pipe, in the steady state of the first
    role. `stalls`: wave-cycles by reason, in all hot loops, as a part of all their wave-cycles.
    `warnings`: what was assumed where nothing is known."""

    kernel: str
    instructions: int
    seconds: float
    workgroup_cycles: float
    cycles_per_tile: float
    matrix_utilisation: float
    roles: tuple[RoleTimes, ...]
    utilisation: Mapping[str, float]
    stalls: Mapping[str, float]
    lines: tuple[StallLine, ...]
    lds_conflict_cycles: float
    estimate: Estimate
    corners: tuple[CornerResult, ...]
    constants: Mapping[str, float]
    warnings: tuple[str, ...]
