"""Two jobs against one another, in every corner of the sensitivity grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mlagen.timing.constants import Machine, machine
from mlagen.timing.corners import corners
from mlagen.timing.simulate import Job, sustained, time_job

RATIO_ERROR: Final = 0.086  # worst published ratio between attention kernels (docs/timing.md)


@dataclass(frozen=True, slots=True)
class CornerPair:
    """Seconds of both in one corner under load; `gain`: how many times faster the first is."""

    name: str
    plausible: bool
    first: float
    second: float
    gain: float


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """`gain`: the second's time / the first's at the table's constants, both at the clock that
    their power allows; `bound_gain`: by issue alone. `low`, `high`: of `gain` over the plausible
    corners. `same_sign`: they all agree on who is faster. `counts`: they do, and each by
    more than the error of ratios."""

    first: str
    second: str
    seconds: tuple[float, float]
    gain: float
    bound_gain: float
    low: float
    high: float
    same_sign: bool
    counts: bool
    ratio_error: float
    corners: tuple[CornerPair, ...]


def compare(
    first: Job,
    second: Job,
    on: Machine | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> SpeedComparison:
    """Which of two jobs takes less time, and whether that hangs on what nobody has measured.
    `progress(done, total)` is called as corners are done."""
    base = on or machine()

    def seconds(job: Job, there: Machine) -> float:
        return sustained(job, there).seconds(there)

    a, b = seconds(first, base), seconds(second, base)
    bounds = [time_job(job, base).seconds(base) for job in (first, second)]
    pairs: list[CornerPair] = []
    every = list(corners())
    for corner in every:
        there = corner.machine(base)
        x, y = seconds(first, there), seconds(second, there)
        pairs.append(CornerPair(corner.name, corner.plausible, x, y, y / x))
        if progress is not None:
            progress(len(pairs), len(every))
    gains = [b / a, *(pair.gain for pair in pairs if pair.plausible)]
    low, high = min(gains), max(gains)
    return SpeedComparison(
        first.kernel.name,
        second.kernel.name,
        (a, b),
        b / a,
        bounds[1] / bounds[0],
        low,
        high,
        same_sign=low > 1 or high < 1,
        counts=low > 1 + RATIO_ERROR or high < 1 / (1 + RATIO_ERROR),
        ratio_error=RATIO_ERROR,
        corners=tuple(pairs),
    )
