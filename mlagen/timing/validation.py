"""The model against published measurements; the fit of the clock for every corner of the grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from mlagen.timing.aiter import KERNELS, Prefill, load, record
from mlagen.timing.constants import Machine, machine
from mlagen.timing.corners import Corner, corners
from mlagen.timing.ladder import Growth, Ladder
from mlagen.timing.points import POINTS, Point

_LENGTHS = (1024, 2048)  # tokens of the two runs


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
        self._held: dict[Path, Ladder] = {}

    def _place(self, kernel: Prefill, commit: str | None) -> Path:
        if commit is None:
            return self.folder
        if self.history is not None:
            place = self.history / commit / "hsa" / "gfx950"
            if (place / kernel.path).is_file():
                return place
        self.substitutes.add((kernel.name, commit))
        return self.folder

    def ladder(self, name: str, commit: str | None = None) -> Ladder:
        """A kernel's streams. MissingError where its object is not in the folder."""
        kernel = KERNELS[name]
        key = self._place(kernel, commit) / kernel.path
        if key not in self._held:
            if self.progress:
                self.progress(str(key))
            code = load(key)
            self._held[key] = Ladder(
                name,
                code.kernel(),
                {length: record(code, kernel, length) for length in _LENGTHS},
                kernel.tile,
                kernel.depth,
                kernel.causal,
                kernel.tiles_of_queries,
            )
        return self._held[key]


def _predict(library: Library, points: Sequence[Point], on: Machine) -> list[Verdict]:
    growths: dict[Ladder, Growth] = {}
    found = []
    for point in points:
        ladder = library.ladder(point.shape.kernel, point.commit)
        if ladder not in growths:
            growths[ladder] = ladder.growth(on)
        chip = on.changed(max_clock=point.max_clock)
        found.append(Verdict(point, ladder.tflops(growths[ladder], point.shape, chip)))
    return found


def fit(library: Library, on: Machine) -> tuple[float, float]:
    """(sustain, misfit): the clock that explains the calibration points best, as their geometric
    mean, and the largest error that it leaves."""
    full = on.changed(sustain=1.0)
    points = [point for point in POINTS if point.calibrates]
    ratios = [v.point.measured / v.predicted for v in _predict(library, points, full)]
    sustain = float(np.exp(np.mean(np.log(ratios))))
    return sustain, max(abs(sustain / ratio - 1) for ratio in ratios)


def fit_corners(library: Library) -> list[tuple[Corner, float, float]]:
    """Every corner with the fit that its entry in `corners` should have."""
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
