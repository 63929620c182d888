"""From workgroups to a launch: which compute unit takes which, and when the last one is done."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from mlagen.timing.constants import Machine

XCDS = 8  # AMD: MI355X has 8 XCDs; workgroups go to them in turn


def durations(known: Mapping[int, float], total: int) -> np.ndarray:
    """Cycles of every workgroup of a grid: of those not simulated, those of the nearest one."""
    numbers = sorted(known)
    places = np.array(numbers)
    every = np.arange(total)
    right = np.clip(np.searchsorted(places, every), 0, len(places) - 1)
    left = np.maximum(right - 1, 0)
    near = np.where(every - places[left] < places[right] - every, left, right)
    near = np.where(places[right] == every, right, near)
    return np.array([known[number] for number in numbers])[near]


def makespan(cycles: Sequence[float] | np.ndarray, residents: int, machine: Machine) -> float:
    """Cycles until the last workgroup has ended.

    Workgroups go to the XCDs in turn, inside one to whichever place is free first; a place takes
    `dispatch` cycles from one workgroup to the next.
    """
    places = max(1, machine.cus // XCDS) * residents
    last = 0.0
    for xcd in range(XCDS):
        mine = cycles[xcd::XCDS]
        heap = [0.0] * min(places, max(len(mine), 1))
        for length in mine:
            free = heap[0] + float(length) + machine.dispatch
            heapq.heapreplace(heap, free)
            last = max(last, free)
    return last
