"""The model against published measurements; the fit of the energies for every corner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from cycle_model.aiter_prefill import KERNELS, load, record
from cycle_model.clocks import CLOCKS, ClockPoint
from cycle_model.energies import Observed, fit_energies
from cycle_model.ladder import Growth, Ladder
from cycle_model.object_folder import ObjectFolder
from cycle_model.points import POINTS, Point

from mlagen.timing.constants import Machine, machine
from mlagen.timing.corners import Corner, corners
from mlagen.timing.power import Rates, clock_of

_LENGTHS = (1024, 2048)  # tokens of the two runs


@dataclass(frozen=True, slots=True)
class Verdict:
    """A point and its prediction, TFLOP/s; `bound`: by issue at the maximum clock; `seconds`: that
    are predicted."""

    point: Point
    predicted: float
    bound: float = 0.0
    seconds: float = 0.0

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


class Library(ObjectFolder[Ladder]):
    """Prefill kernels of a folder, recorded when they are asked for."""

    def ladder(self, name: str, commit: str | None = None) -> Ladder:
        """A kernel's streams. MissingError where its object is not in the folder."""
        kernel = KERNELS[name]
        path = self.place(name, kernel.path, commit)

        def made() -> Ladder:
            code = load(path)
            return Ladder(
                name,
                code.kernel(),
                {length: record(code, kernel, length) for length in _LENGTHS},
                kernel.tile,
                kernel.depth,
                kernel.causal,
                kernel.tiles_of_queries,
            )

        return self.kept(path, path, made)


def _predict(library: Library, points: Sequence[Point], on: Machine) -> list[Verdict]:
    growths: dict[Ladder, Growth] = {}
    found = []
    for point in points:
        ladder = library.ladder(point.shape.kernel, point.commit)
        if ladder not in growths:
            growths[ladder] = ladder.growth(on)
        chip = _chip(point, on)
        launch = ladder.launch(growths[ladder], point.shape, chip)
        work = ladder.flops(point.shape) / 1e12
        seconds = launch.seconds(chip)
        found.append(Verdict(point, work / seconds, work / launch.bound_seconds(chip), seconds))
    return found


def _chip(point: Point, on: Machine) -> Machine:
    return on.changed(max_clock=point.max_clock, power_limit=point.watts)


@dataclass(frozen=True, slots=True)
class ClockVerdict:
    """A kernel of `clocks`: GHz that its measurement means, and that its power allows."""

    point: ClockPoint
    measured: float
    clock: float

    @property
    def predicted(self) -> float:
        """TFLOP/s, from its measured cycles."""
        return self.point.tflops * self.clock / self.measured

    @property
    def error(self) -> float:
        return self.clock / self.measured - 1


def clock_verdicts(on: Machine, points: Sequence[ClockPoint] = CLOCKS) -> list[ClockVerdict]:
    """What the power model says of kernels whose cycles were measured."""
    return [ClockVerdict(p, p.clock(on.cus), clock_of(p.rates, on)) for p in points]


@dataclass(frozen=True, slots=True)
class ScheduleRatio:
    """Two kernels that do the same in one source's measurements: ratios of cycles, of measured and
    of predicted speed."""

    first: ClockVerdict
    second: ClockVerdict

    @property
    def issue(self) -> float:
        return self.first.point.busy / self.second.point.busy

    @property
    def measured(self) -> float:
        return self.first.point.tflops / self.second.point.tflops

    @property
    def predicted(self) -> float:
        return self.first.predicted / self.second.predicted

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def schedule_ratios(found: Sequence[ClockVerdict]) -> list[ScheduleRatio]:
    """All such pairs, the one that needs fewer cycles first."""
    pairs = []
    for a, b in combinations(found, 2):
        if (a.point.source, a.point.launch) == (b.point.source, b.point.launch):
            pairs.append(
                ScheduleRatio(a, b) if a.point.busy > b.point.busy else ScheduleRatio(b, a)
            )
    return pairs


def fit(library: Library, on: Machine) -> tuple[dict[str, float], float]:
    """(energies, misfit): the energies that explain the clocks of `clocks` and the calibration
    points best, and the largest error that they leave at the latter. A point that would need more
    than the maximum clock in this corner is taken at the maximum."""
    seen = [Observed(p.rates, p.clock(on.cus), on) for p in CLOCKS if p.fits]
    points = [point for point in POINTS if point.calibrates]
    for point in points:
        chip, ladder = _chip(point, on), library.ladder(point.shape.kernel, point.commit)
        launch = ladder.launch(ladder.growth(on), point.shape, chip)
        bound = ladder.flops(point.shape) / 1e12 / launch.bound_seconds(chip)
        clock = min(chip.max_clock * point.measured / bound, chip.max_clock)
        done = ladder.done(point.shape)
        seen.append(Observed(Rates.of(done, launch.cycles, chip), clock, chip))
    energies = fit_energies(seen, on)
    errors = [v.error for v in _predict(library, points, on.changed(**energies))]
    return energies, max(abs(error) for error in errors)


def fit_corners(library: Library) -> list[tuple[Corner, dict[str, float], float]]:
    """Every corner with the fit that its entry in `fitted` should have."""
    base = machine()
    return [(c, *fit(library, base.changed(**dict(c.values)))) for c in corners()]


def verdicts(library: Library, on: Machine) -> list[Verdict]:
    """All points."""
    return _predict(library, POINTS, on)


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


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of some predictions. `worst`: the largest in magnitude."""

    count: int
    mean: float
    worst: float

    @staticmethod
    def of(errors: Sequence[float]) -> Score:
        sizes = [abs(error) for error in errors]
        return Score(len(sizes), float(np.mean(sizes)) if sizes else 0.0, max(sizes, default=0.0))


def rank_violations(found: Sequence[Ratio]) -> list[Ratio]:
    """Pairs that are predicted the wrong way round, though they were measured more than 2 % apart
    (measurements of one source repeat no better)."""
    return [
        ratio
        for ratio in found
        if abs(ratio.measured - 1) > 0.02 and (ratio.measured > 1) != (ratio.predicted > 1)
    ]
