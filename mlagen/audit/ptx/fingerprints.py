"""Which write each read of shared memory sees, as a fingerprint that does not depend on the turn
in which threads went, or on synchronisations.

Two kernels of which every path has this in common, and in which all accesses are ordered, compute
the same: it is what says that a mutant is equivalent. An access is named by its line, its warp and
how often that warp came to the line.
"""

from __future__ import annotations

import numpy as np

from mlagen.audit.ptx.agent import LANES, Agent
from mlagen.audit.ptx.shared import Array, Event
from mlagen.audit.ptx.state import State

_MASK = (1 << 64) - 1


def wrote(state: State, agent: Agent, event: Event, *, single: int = -1) -> None:
    """Names a write; `single`: of an asynchronous one by this thread."""
    if state.setting.flow:
        state.names[event.number] = _named(state, agent, event, single)


def read(
    state: State, agent: Agent, event: Event, where: slice | Array, *, single: int = -1
) -> None:
    """Adds to the fingerprint who wrote the cells that an access is about to read."""
    if not state.setting.flow or not state.memory.writer[where].size:
        return
    names = _named(state, agent, event, single)
    seen = state.memory.writer[where].astype(np.int64) << 16
    seen |= (state.memory.thread[where] // LANES).astype(np.int64) & 0xFFFF
    kinds = seen[:1] if (seen == seen[0]).all() else np.unique(seen)
    first = where.start if isinstance(where, slice) else int(where[0])
    for warp, name in names.items():
        total = 0
        for both in kinds.tolist():
            number, by = both >> 16, both & 0xFFFF
            writers = state.names.get(number, {})
            total += writers.get(by, next(iter(writers.values()), 0)) if number >= 0 else 0
        state.flow = (state.flow + hash((name, warp, total & _MASK, first))) & _MASK


def _named(state: State, agent: Agent, event: Event, single: int) -> dict[int, int]:
    line = event.instruction.line
    found = {}
    for warp in (single // LANES,) if single >= 0 else agent.warps:
        count = state.counts[line, warp] = state.counts.get((line, warp), 0) + 1
        found[warp] = hash((line, warp, count))
    return found
