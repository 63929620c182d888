"""Times of calls that take turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.errors import ConfigError
from mlagen.family.benchmark import DeviceClock

WARM_UP = 3
SUSTAINED = 0.15  # seconds of back-to-back calls
MOST_IN_A_ROW = 400


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one call: over single calls with a flushed cache, and the mean of calls back to
    back, where clocks settle at what the power allows."""

    median: float
    least: float
    p90: float
    sustained: float


def interleaved(
    calls: Mapping[str, Callable[[], Any]], clock: DeviceClock, *, repeats: int
) -> dict[str, Times]:
    """Times of all calls, round by round; who begins a round changes. ConfigError: no repeats."""
    if repeats < 1:
        raise ConfigError(f"repeats={repeats} is not at least 1")
    names = list(calls)
    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    for round_ in range(WARM_UP + repeats):
        first = round_ % len(names) if names else 0
        for name in names[first:] + names[:first]:
            clock.flush()
            begin = clock.mark()
            calls[name]()
            end = clock.mark()
            if round_ >= WARM_UP:
                marks[name].append((begin, end))
            elif round_ == WARM_UP - 1:
                clock.seconds(begin, end)
    found = {}
    for name in names:
        times = sorted(clock.seconds(*pair) for pair in marks[name])
        median = statistics.median(times)
        ninth = times[int(0.9 * (len(times) - 1))]
        found[name] = Times(median, times[0], ninth, _sustained(calls[name], clock, median))
    return found


def _sustained(call: Callable[[], Any], clock: DeviceClock, median: float) -> float:
    count = max(3, min(MOST_IN_A_ROW, int(SUSTAINED / max(median, 1e-6))))
    begin = clock.mark()
    for _ in range(count):
        call()
    return clock.seconds(begin, clock.mark()) / count
