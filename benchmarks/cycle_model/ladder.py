"""A kernel at two lengths: what every other length takes.

A workgroup of attention takes as many more cycles for every further tile of keys, so that two
short sequences, executed in a second, tell those of a long one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mlagen.binary import KernelCode
from mlagen.emulator.streams import ExecutedStream
from mlagen.timing.activity import Activity, activity_of
from mlagen.timing.constants import Machine
from mlagen.timing.corners import corners, model_error
from mlagen.timing.loops import find_loop
from mlagen.timing.model import Interval
from mlagen.timing.power import Rates, clock_of
from mlagen.timing.roles import hot_loops, utilisation
from mlagen.timing.unit import time_unit
from mlagen.timing.whole import makespan


@dataclass(frozen=True, slots=True)
class Shape:
    """A launch: a kernel's name, batch, query heads, tokens of queries and keys."""

    kernel: str
    batch: int
    heads: int
    length: int

    def flops(self, depth: tuple[int, int], causal: bool) -> float:
        """Useful operations: 2·B·H·N²·(D + D_v), half of it under a mask."""
        whole = 2.0 * self.batch * self.heads * self.length**2 * sum(depth)
        return whole / 2 if causal else whole


@dataclass(frozen=True, slots=True)
class Growth:
    """Cycles of a workgroup: `base` + `slope` a token of the sequence."""

    base: float
    slope: float

    def at(self, tokens: int) -> float:
        return self.base + self.slope * tokens


def line(cycles: Mapping[int, float]) -> Growth:
    """Through two lengths."""
    short, long = sorted(cycles)
    slope = (cycles[long] - cycles[short]) / (long - short)
    return Growth(cycles[short] - slope * short, slope)


def work_line(streams: Mapping[int, ExecutedStream], code: KernelCode) -> tuple[Activity, Activity]:
    """What a workgroup does: whatever the length, and more for every token."""
    short, long = sorted(streams)
    done = {n: activity_of(stream, code) for n, stream in streams.items()}
    slope = (done[long] + done[short] * -1) * (1 / (long - short))
    return done[short] + slope * -short, slope


@dataclass(frozen=True, slots=True)
class Launch:
    """A whole launch: `cycles` of it, and the `clock` in GHz that its power allows."""

    cycles: float
    clock: float

    def seconds(self, on: Machine) -> float:
        """Under load, its start and end included."""
        return self.cycles / (self.clock * 1e9) + on.launch * 1e-6

    def bound_seconds(self, on: Machine) -> float:
        """By issue, at the maximum clock."""
        return self.cycles / (on.max_clock * 1e9) + on.launch * 1e-6


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel in a table: cycles of a tile of keys, matrix units' busy part, useful TFLOP/s by
    issue at the maximum clock, and under load at `clock` (GHz)."""

    name: str
    tile: tuple[int, int]
    cycles_per_tile: float
    matrix: float
    bound: float
    clock: float
    tflops: Interval


@dataclass(frozen=True, eq=False)
class Ladder:
    """A kernel's streams by tokens of the sequence, two lengths, one workgroup each.

    `tile`: rows of queries and of keys; `depth`: of Q·K and of V. `tiles_of_queries`: that a
    workgroup does; two are a query tile and its mirror image.
    """

    name: str
    code: KernelCode
    streams: Mapping[int, ExecutedStream]
    tile: tuple[int, int]
    depth: tuple[int, int]
    causal: bool = False
    tiles_of_queries: int = 1

    def growth(self, on: Machine) -> Growth:
        """Cycles of a workgroup by length."""
        return line({n: time_unit(s, self.code, on).cycles for n, s in self.streams.items()})

    @cached_property
    def work(self) -> tuple[Activity, Activity]:
        """What a workgroup does: whatever the length, and more for every token."""
        return work_line(self.streams, self.code)

    def launch(self, growth: Growth, shape: Shape, on: Machine) -> Launch:
        """A launch, one workgroup on a compute unit at a time. Under a mask, where the number of
        query tiles is odd, the workgroup in the middle has half of the work. What each byte of the
        HBM takes is left out: prefill reads it often."""
        cycles = makespan(self._parts(shape) * growth.at(self._tokens(shape)), 1, on)
        return Launch(cycles, clock_of(Rates.of(self.done(shape), cycles, on), on))

    def done(self, shape: Shape) -> Activity:
        """What all workgroups of a launch do."""
        base, slope = self.work
        return (base + slope * self._tokens(shape)) * float(self._parts(shape).sum())

    def _tokens(self, shape: Shape) -> int:
        return max(shape.length, self.tile[1])

    def _parts(self, shape: Shape) -> npt.NDArray[np.float64]:
        """Of its work, by workgroup."""
        tiles = -(-shape.length // self.tile[0])
        per_head = -(-tiles // self.tiles_of_queries)
        parts = np.ones(per_head * shape.heads * shape.batch)
        if self.tiles_of_queries == 2 and tiles % 2:
            parts[per_head - 1 :: per_head] /= 2
        return parts

    def flops(self, shape: Shape) -> float:
        """Useful operations of a launch."""
        return shape.flops(self.depth, self.causal)

    def tflops(self, growth: Growth, shape: Shape, on: Machine) -> float:
        """Useful TFLOP/s of a launch, under load."""
        return self.flops(shape) / self.launch(growth, shape, on).seconds(on) / 1e12

    def bound_tflops(self, growth: Growth, shape: Shape, on: Machine) -> float:
        """Useful TFLOP/s of a launch by issue, at the maximum clock."""
        return self.flops(shape) / self.launch(growth, shape, on).bound_seconds(on) / 1e12

    def at_corners(self, shape: Shape, on: Machine) -> dict[str, float]:
        """Useful TFLOP/s in every plausible corner of the grid, by its name."""
        found = {}
        for corner in corners():
            if corner.plausible:
                there = corner.machine(on)
                found[corner.name] = self.tflops(self.growth(there), shape, there)
        return found

    def row(self, shape: Shape, on: Machine) -> KernelRow:
        """What a table says of it; the interval is over the plausible corners."""
        unit = time_unit(self.streams[max(self.streams)], self.code, on)
        loops = hot_loops(unit, None)
        loop = find_loop(self.code, unit.waves[0])
        growth = self.growth(on)
        value = self.tflops(growth, shape, on)
        error = model_error(self.flops(shape) / value / 1e12)
        tried = [value, *self.at_corners(shape, on).values()]
        return KernelRow(
            self.name,
            self.tile,
            loop.cycles(unit.waves[0].issued) / loop.tiles,
            utilisation(unit, loops)["matrix"],
            self.bound_tflops(growth, shape, on),
            self.launch(growth, shape, on).clock,
            Interval(value, min(tried) * (1 - error), max(tried) * (1 + error)),
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """Two kernels on the same launch: how many times faster the first is under load, at the table's
    constants and by plausible corner. `bound`, `bound_corners`: the same by issue alone."""

    first: str
    second: str
    gain: float
    corners: Mapping[str, float]
    bound: float
    bound_corners: Mapping[str, float]

    @property
    def low(self) -> float:
        return min(self.gain, *self.corners.values())

    @property
    def high(self) -> float:
        return max(self.gain, *self.corners.values())


def beside(first: Ladder, second: Ladder, shape: Shape, on: Machine) -> Beside:
    """Compare two kernels of the same problem."""

    def both(there: Machine) -> tuple[float, float]:
        a, b = (ladder.launch(ladder.growth(there), shape, there) for ladder in (first, second))
        work = [ladder.flops(shape) for ladder in (first, second)]
        share = work[0] / work[1]
        return (
            share * b.seconds(there) / a.seconds(there),
            share * b.bound_seconds(there) / a.bound_seconds(there),
        )

    gain, bound = both(on)
    tried = {c.name: both(c.machine(on)) for c in corners() if c.plausible}
    return Beside(
        first.name, second.name, gain, {name: each[0] for name, each in tried.items()},
        bound, {name: each[1] for name, each in tried.items()},
    )  # fmt: skip
