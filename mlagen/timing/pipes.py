"""The pipes that all waves of a unit share: LDS, addresses, memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from mlagen.timing.cycle_state import ARRIVALS, B_LDS, B_MEMORY, compiled

# In `Pipes.free`.
_LDS: Final = 0
_TA: Final = 1
_MEMORY: Final = 2


@compiled
def land(t, pipes):  # type: ignore[no-untyped-def]
    """Loads to LDS that have arrived by cycle t take their cycles of it."""
    while pipes.ring[0] < pipes.ring[1] and pipes.arrivals[pipes.ring[0] % ARRIVALS] <= t:
        place = pipes.ring[0] % ARRIVALS
        pipes.free[_LDS] = max(pipes.free[_LDS], pipes.arrivals[place]) + pipes.costs[place]
        pipes.ring[0] += 1


@compiled
def access_lds(t, cost, pipes, numbers):  # type: ignore[no-untyped-def]
    """An LDS instruction of `cost` cycles; when its result is there."""
    pipes.free[_LDS] = max(pipes.free[_LDS], float(t)) + cost
    return int(np.ceil(pipes.free[_LDS] + numbers.lds_latency))


@compiled
def move_bytes(t, size, lines, store, pipes, numbers, busy):  # type: ignore[no-untyped-def]
    """A load or store of `size` bytes in `lines` cache lines; when it is done."""
    address = max(size / numbers.ta_bytes, float(lines), 4.0)
    pipes.free[_TA] = max(pipes.free[_TA], float(t)) + address
    spent = (float(size) if store else lines * 128.0) / numbers.memory_bytes
    pipes.free[_MEMORY] = max(pipes.free[_MEMORY], pipes.free[_TA]) + spent
    busy[B_MEMORY] += int(spent)
    return int(pipes.free[_MEMORY] + numbers.memory_latency)


@compiled
def arrive(done, size, pipes, numbers, busy):  # type: ignore[no-untyped-def]
    """`size` bytes for LDS are there at cycle `done`; when they are in it."""
    cost = size / numbers.dma_bytes
    place = pipes.ring[1] % ARRIVALS
    pipes.arrivals[place] = done
    pipes.costs[place] = cost
    pipes.ring[1] += 1
    busy[B_LDS] += int(cost)
    return done + int(cost)
