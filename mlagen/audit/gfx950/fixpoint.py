"""Following a dataflow over the code until nothing changes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeVar

from mlagen.audit.gfx950.budget import Budget
from mlagen.binary.flow import Flow

K = TypeVar("K")
V = TypeVar("V")


def follow(
    flow: Flow,
    run: Callable[[int, dict[K, V]], dict[K, V]],
    merge: Callable[[dict[K, V], dict[K, V]], bool],
    budget: Budget,
) -> dict[int, dict[K, V]]:
    """The state at the start of each block that is reached; the entry's is empty.

    `run(block, state)`: the state after a block. `merge(known, new)` adds what another path
    brings to a state in place and says whether that changed it. OutOfSteps when `budget` is spent.
    """
    states: dict[int, dict[K, V]] = {0: {}}
    position = {block: rank for rank, block in enumerate(flow.order)}
    work, waiting = [(position[0], 0)], {0}
    while work:
        _, at = heapq.heappop(work)
        waiting.discard(at)
        block = flow.blocks[at]
        budget.spend(block.last - block.first + 1 + len(states[at]))
        after = run(at, states[at])
        for following in block.successors:
            known = states.get(following)
            if known is None:
                states[following] = dict(after)
            elif not merge(known, after):
                continue
            if following not in waiting:
                waiting.add(following)
                heapq.heappush(work, (position[following], following))
    return states
