"""Operations of agents that are on their way, and when their effects happen.

An operation is issued by an instruction, and recorded. In mode "earliest" its effects happen at
once; in "latest" when a completion that it belongs to is observed; in "drawn" some time before.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled


@compiled
def land_needed(context: int) -> bool:
    """Nobody can run: let the effects of an operation happen that a blocked lane waits for, or of
    the oldest one. False when none is on its way."""
    return False


@compiled
def land_some(context: int) -> None:
    """Mode "drawn": perhaps let the effects of some operation happen."""


@compiled
def end_of_warp(context: int, warp: int) -> None:
    """A warp has ended: what it issued still happens; nobody waits for it any more."""
