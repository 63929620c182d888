"""Waits for groups that leave too many of them: which wait is to change, and what it has to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.ptx import Instruction


@dataclass(frozen=True, slots=True)
class WeakWait:
    """A wait_group that leaves a group in flight: it asks for `asked` groups to be left, where only
    `most` had been committed after that one."""

    at: Instruction
    asked: int
    most: int

    @property
    def needs(self) -> str:
        """What it has to say: `cp.async.wait_group 1`."""
        return f"{self._name} {self.most}"

    @property
    def told(self) -> str:
        """The same as a sentence."""
        return (
            f"the wait between them lets it stay in flight: {self._name} {self.asked} at line "
            f"{self.at.line} must be {self.most}"
        )

    @property
    def _name(self) -> str:
        return self.at.opcode.removesuffix(".sync.aligned")


def nearest(waits: Sequence[WeakWait]) -> WeakWait | None:
    """The wait that lacks least, the last of equals; None of none."""
    return min(reversed(waits), key=lambda wait: wait.asked - wait.most, default=None)
