"""The model against published measurements; the fit of the clock for every corner of the grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

from mlagen.binary import KernelCode
from mlagen.emulator.streams import Stream
from mlagen.timing.aiter import KERNELS, Prefill, load, record
from mlagen.timing.constants import Machine, machine
from mlagen.timing.corners import Corner, corners
from mlagen.timing.loops import find_loop
from mlagen.timing.points import POINTS, Point, Shape
from mlagen.timing.roles import hot_loops, utilisation
from mlagen.timing.unit import time_unit
from mlagen.timing.whole import makespan

_SHORT = 8  # tiles of queries of 256 rows: 2048 tokens, and half of that


@dataclass(frozen=True, eq=False)
class Recorded:
    """A kernel's streams by tokens of the sequence, two lengths."""

    kernel: Prefill
    code: KernelCode
    streams: Mapping[int, Stream]


@dataclass(frozen=True, slots=True)
class Growth:
    """Cycles of a workgroup: `base` + `slope` a token of the sequence."""

    base: float
    slope: float

    def at(self, tokens: int) -> float:
        return self.base + self.slope * tokens


@dataclass(frozen=True, slots=True)
class Verdict:
    """A point and its prediction, TFLOP/s."""

    point: Point
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.point.measured - 1


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two kernels on launches of one source: measured and predicted ratio of their TFLOP/s."""

    first: Point
    second: Point
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel in the table: per tile of keys, at a shape."""

    name: str
    cycles_per_tile: float
    matrix: float
    tflops: float


class Library:
    """Kernels of a folder, recorded when they are asked for.

    `history`: a folder with `<commit>/hsa/gfx950/…` of older objects; where it lacks the object of
    a commit, the folder's own stands in (`substitutes` names them).
    """

    def __init__(
        self,
        folder: str | Path,
        history: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.history = Path(history) if history is not None else None
        self.progress = progress
        self.substitutes: set[tuple[str, str]] = set()
        self._held: dict[Path, Recorded] = {}

    def _place(self, kernel: Prefill, commit: str | None) -> Path:
        if commit is None:
            return self.folder
        if self.history is not None:
            place = self.history / commit / "hsa" / "gfx950"
            if (place / kernel.path).is_file():
                return place
        self.substitutes.add((kernel.name, commit))
        return self.folder

    def recorded(self, name: str, commit: str | None = None) -> Recorded:
        """The kernel's streams. MissingError where its object is not in the folder."""
        kernel = KERNELS[name]
        place = self._place(kernel, commit)
        key = place / kernel.path
        if key not in self._held:
            if self.progress:
                self.progress(str(key))
            code = load(place, kernel)
            streams = {n: record(code, kernel, n) for n in (128 * _SHORT, 256 * _SHORT)}
            self._held[key] = Recorded(kernel, code.kernel(), streams)
        return self._held[key]

    def growth(self, name: str, on: Machine, commit: str | None = None) -> Growth:
        """Cycles of a workgroup by length, from two of them."""
        mine = self.recorded(name, commit)
        (short, long), cycles = (
            sorted(mine.streams),
            {n: time_unit(s, mine.code, on).cycles for n, s in mine.streams.items()},
        )
        slope = (cycles[long] - cycles[short]) / (long - short)
        return Growth(cycles[short] - slope * short, slope)

    def row(self, name: str, shape: Shape, on: Machine) -> KernelRow:
        """What the table of kernels says."""
        mine = self.recorded(name)
        unit = time_unit(mine.streams[max(mine.streams)], mine.code, on)
        loops = hot_loops(unit, None)
        loop = find_loop(mine.code, unit.waves[0])
        seconds = launch_seconds(self.growth(name, on), mine.kernel, shape, on)
        return KernelRow(
            name,
            loop.cycles(unit.waves[0].issued) / loop.tiles,
            utilisation(unit, loops)["matrix"],
            shape.flops(mine.kernel.depth, mine.kernel.causal) / seconds / 1e12,
        )


def launch_seconds(growth: Growth, kernel: Prefill, shape: Shape, on: Machine) -> float:
    """A launch of AITER's grid: every workgroup takes as long (with a mask it does a query tile
    and its mirror image; where their number is odd, one in the middle has half)."""
    tiles = -(-shape.length // kernel.tile[0])
    per_head = -(-tiles // kernel.tiles_of_queries)
    cycles = growth.at(max(shape.length, kernel.tile[1]))
    lengths = np.full(per_head * shape.heads * shape.batch, cycles)
    if kernel.tiles_of_queries == 2 and tiles % 2:
        lengths[per_head - 1 :: per_head] /= 2
    return makespan(lengths, 1, on) / (on.clock * 1e9) + on.launch * 1e-6


def predict(library: Library, point: Point, on: Machine) -> float:
    """TFLOP/s of a point."""
    chip = on.changed(max_clock=point.max_clock)
    kernel = KERNELS[point.shape.kernel]
    seconds = launch_seconds(
        library.growth(kernel.name, on, point.commit), kernel, point.shape, chip
    )
    return point.shape.flops(kernel.depth, kernel.causal) / seconds / 1e12


def fit(library: Library, on: Machine) -> tuple[float, float]:
    """(sustain, misfit): the clock that explains the calibration points best, as their geometric
    mean, and the largest error that it leaves."""
    full = on.changed(sustain=1.0)
    ratios = [p.measured / predict(library, p, full) for p in POINTS if p.calibrates]
    sustain = float(np.exp(np.mean(np.log(ratios))))
    return sustain, max(abs(sustain / ratio - 1) for ratio in ratios)


def fit_corners(library: Library) -> list[tuple[Corner, float, float]]:
    """Every corner with the fit that its entry in `corners` should have."""
    base = machine()
    return [(c, *fit(library, base.changed(**dict(c.values)))) for c in corners()]


def verdicts(library: Library, on: Machine) -> list[Verdict]:
    """All points."""
    growths = cache(lambda name, commit: library.growth(name, on, commit))
    found = []
    for point in POINTS:
        kernel = KERNELS[point.shape.kernel]
        chip = on.changed(max_clock=point.max_clock)
        seconds = launch_seconds(growths(kernel.name, point.commit), kernel, point.shape, chip)
        flops = point.shape.flops(kernel.depth, kernel.causal)
        found.append(Verdict(point, flops / seconds / 1e12))
    return found


def ratios(found: list[Verdict]) -> list[Ratio]:
    """Pairs of different kernels that one source measured at the same batch, heads and length."""
    pairs = []
    for a, b in combinations(found, 2):
        p, q = a.point, b.point
        same = (p.shape.batch, p.shape.heads, p.shape.length) == (
            q.shape.batch, q.shape.heads, q.shape.length)  # fmt: skip
        if same and p.source == q.source and p.shape.kernel != q.shape.kernel:
            pairs.append(Ratio(p, q, p.measured / q.measured, a.predicted / b.predicted))
    return pairs
