"""Registers that are read before they are written, or while the tensor core has them."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled


@compiled
def check_registers(context: int, warp: int, row: int, active: int) -> None:
    """Report what an instruction does to registers that it may not; note what it writes."""
