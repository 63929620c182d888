"""A kernel at two lengths: what every other length takes.

A workgroup of attention takes as many more cycles for every further tile of keys, so that two
short sequences, executed in a second, tell those of a long one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlagen.binary import KernelCode
from mlagen.emulator.streams import Stream
from mlagen.timing.constants import Machine
from mlagen.timing.corners import MODEL_ERROR, corners
from mlagen.timing.loops import find_loop
from mlagen.timing.model import Interval
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


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel in a table: cycles of a tile of keys, matrix units' busy part, TFLOP/s."""

    name: str
    tile: tuple[int, int]
    cycles_per_tile: float
    matrix: float
    tflops: Interval


@dataclass(frozen=True, eq=False)
class Ladder:
    """A kernel's streams by tokens of the sequence, two lengths, one workgroup each.

    `tile`: rows of queries and of keys; `depth`: of Q·K and of V. `tiles_of_queries`: that a
    workgroup does; two are a query tile and its mirror image.
    """

    name: str
    code: KernelCode
    streams: Mapping[int, Stream]
    tile: tuple[int, int]
    depth: tuple[int, int]
    causal: bool = False
    tiles_of_queries: int = 1

    def growth(self, on: Machine) -> Growth:
        """Cycles of a workgroup by length."""
        short, long = sorted(self.streams)
        cycles = {n: time_unit(s, self.code, on).cycles for n, s in self.streams.items()}
        slope = (cycles[long] - cycles[short]) / (long - short)
        return Growth(cycles[short] - slope * short, slope)

    def seconds(self, growth: Growth, shape: Shape, on: Machine) -> float:
        """A launch, one workgroup on a compute unit at a time. Under a mask, where the number of
        query tiles is odd, the workgroup in the middle has half of the work."""
        tiles = -(-shape.length // self.tile[0])
        per_head = -(-tiles // self.tiles_of_queries)
        cycles = growth.at(max(shape.length, self.tile[1]))
        lengths = np.full(per_head * shape.heads * shape.batch, cycles)
        if self.tiles_of_queries == 2 and tiles % 2:
            lengths[per_head - 1 :: per_head] /= 2
        return makespan(lengths, 1, on) / (on.clock * 1e9) + on.launch * 1e-6

    def tflops(self, growth: Growth, shape: Shape, on: Machine) -> float:
        """Useful TFLOP/s of a launch."""
        work = shape.flops(self.depth, self.causal)
        return work / self.seconds(growth, shape, on) / 1e12

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
        value = self.tflops(self.growth(on), shape, on)
        tried = [value, *self.at_corners(shape, on).values()]
        return KernelRow(
            self.name,
            self.tile,
            loop.cycles(unit.waves[0].issued) / loop.tiles,
            utilisation(unit, loops)["matrix"],
            Interval(value, min(tried) * (1 - MODEL_ERROR), max(tried) * (1 + MODEL_ERROR)),
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """Two kernels on the same launch: how many times faster the first is, at the table's constants
    and by plausible corner."""

    first: str
    second: str
    gain: float
    corners: Mapping[str, float]

    @property
    def low(self) -> float:
        return min(self.gain, *self.corners.values())

    @property
    def high(self) -> float:
        return max(self.gain, *self.corners.values())


def beside(first: Ladder, second: Ladder, shape: Shape, on: Machine) -> Beside:
    """Compare two kernels of the same problem."""
    a, b = (ladder.tflops(ladder.growth(on), shape, on) for ladder in (first, second))
    theirs = second.at_corners(shape, on)
    ours = first.at_corners(shape, on)
    return Beside(
        first.name, second.name, a / b, {name: ours[name] / theirs[name] for name in ours}
    )
