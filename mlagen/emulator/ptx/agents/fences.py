"""Fences: what they order is kept in `order`."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import fault


@compiled
def run_fence(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    fault(context, row, y.FAULT_UNMODELLED, 0, 0)
    return y.NEXT
