"""bar, barrier and barrier.cluster."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import fault


@compiled
def run_barrier(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    fault(context, row, y.FAULT_UNMODELLED, 0, 0)
    return y.NEXT


@compiled
def barrier_over(context: int, slot: int, generation: int) -> bool:
    """Whether a named barrier has completed more than `generation` times."""
    return True


@compiled
def cluster_over(context: int, generation: int) -> bool:
    """Whether the cluster's barrier has completed more than `generation` times."""
    return True
