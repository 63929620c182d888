"""Waits that ask for too little: which of them is to change, and what it has to say.

Between a result and its use there may be several waits on its counter, none of which covers it.
Most of them wait for something older. The one that lacks least is taken to be the one that was
meant for the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SHOWN = 2  # of the other waits


@dataclass(frozen=True, slots=True)
class WeakWait:
    """An s_waitcnt at byte offset `pc` that lets a result stay in flight. `asked`: the count that
    it leaves; `newer`: operations issued after the result when the wait comes, at least: the
    highest count that would cover it."""

    pc: int
    counter: str
    asked: int
    newer: int

    @property
    def needs(self) -> str:
        """What it has to say: `vmcnt(8)`."""
        return f"{self.counter}({self.newer})"


def weakest(waits: Sequence[WeakWait]) -> WeakWait | None:
    """The wait that lacks least, the last of equals; None of none."""
    return min(reversed(waits), key=lambda wait: wait.asked - wait.newer, default=None)


def let_through(chosen: WeakWait, waits: Sequence[WeakWait]) -> str:
    """How the waits between a result and its use let it stay in flight, in words."""
    told = (
        f"the waits between them let it stay in flight: {chosen.counter}({chosen.asked}) at "
        f"{chosen.pc:#x} must be {chosen.newer}"
    )
    others = [wait for wait in dict.fromkeys(waits) if wait.pc != chosen.pc]
    if not others:
        return told.replace("the waits between them let", "the wait between them lets")
    early = [
        f"{wait.counter}({wait.asked}) at {wait.pc:#x}, {wait.newer} later operations"
        for wait in others[-_SHOWN:]
    ]
    more = f", {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return f"{told} (too early: {'; '.join(early)}{more})"
