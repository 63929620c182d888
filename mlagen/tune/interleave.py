"""Timing calls against each other so that a drifting clock cancels.

Each round times every call once, in an order that turns round; what is compared is a round's times
with each other. Calls are enqueued ahead of the device, so that a short one is not timed with the
host's gaps, and go round over copies of their buffers, so that none finds its data in the L2 cache
because the call before it left it there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlagen.family.benchmark import DeviceClock

Calls = Mapping[str, Sequence[Callable[[], Any]]]
_BATCH = 8  # rounds enqueued at once
SLOWER, FEW_ROUNDS = 1.2, 16  # a call that much slower after so many rounds is not timed further


def interleaved(
    calls: Calls, clock: DeviceClock, *, rounds: int = 60, warm_up: int = 4, keep: str | None = None
) -> dict[str, list[float]]:
    """Seconds of each call by round. `calls`: by name, one for each copy of the buffers. `keep`:
    end early once the others are clearly slower than this one."""
    names = list(calls)
    for number in range(warm_up):
        for name in names:
            calls[name][number % len(calls[name])]()
    clock.wait()
    found: dict[str, list[float]] = {name: [] for name in names}
    turn = used = 0
    while len(found[names[0]]) < rounds:
        events = []
        clock.hold()
        for _ in range(min(_BATCH, rounds - len(found[names[0]]))):
            order = names[turn % len(names) :] + names[: turn % len(names)]
            turn += 1
            for name in order:
                call = calls[name][used % len(calls[name])]
                used += 1  # whoever is next has another copy
                begin = clock.mark()
                call()
                events.append((name, begin, clock.mark()))
        clock.wait()
        for name, begin, end in events:
            found[name].append(clock.seconds(begin, end))
        if keep is not None and len(found[keep]) >= FEW_ROUNDS:
            rest = [name for name in names if name != keep]
            if all(ratio(found[name], found[keep]) > SLOWER for name in rest):
                break
    return found


def ratio(seconds: Sequence[float], reference: Sequence[float]) -> float:
    """How many times longer: the median over the rounds, of times in one round."""
    return statistics.median(a / b for a, b in zip(seconds, reference, strict=True))
