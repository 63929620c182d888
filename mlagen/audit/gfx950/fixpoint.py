"""Following a dataflow over the code until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mlagen.binary.flow import Flow

K = TypeVar("K")
V = TypeVar("V")


def follow(
    flow: Flow,
    run: Callable[[int, dict[K, V]], dict[K, V]],
    merge: Callable[[dict[K, V], dict[K, V]], bool],
) -> dict[int, dict[K, V]]:
    """The state at the start of each block that is reached; the entry's is empty.

    `run(block, state)`: the state behind a block. `merge(known, new)` adds what another path
    brings to a state in place and says whether that changed it.
    """
    states: dict[int, dict[K, V]] = {0: {}}
    position = {block: rank for rank, block in enumerate(flow.order)}
    work = {0}
    while work:
        at = min(work, key=position.__getitem__)
        work.discard(at)
        after = run(at, states[at])
        for following in flow.blocks[at].successors:
            known = states.get(following)
            if known is None:
                states[following] = dict(after)
                work.add(following)
            elif merge(known, after):
                work.add(following)
    return states
