"""How many steps a part of the audit may take, so that every audit ends, and always the same way.

A step is about one instruction looked at on one path. What costs more is charged as more, and so is
memory that stays. Steps and not seconds: the same file gives the same report on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

DEFAULT_LIMIT = 20_000_000
"""Steps of each part (waits, wait states, LDS); measured in docs/audit.md."""

Watch = Callable[[str, int], None]
"""Told the part and the steps it took so far, now and then."""

_OFTEN = 200_000


class OutOfSteps(Exception):
    """The part has taken all its steps. Caught where the part begins, never seen outside."""


class Budget:
    """The steps of one part. `limit`: OutOfSteps beyond."""

    def __init__(self, part: str, limit: int = DEFAULT_LIMIT, watch: Watch | None = None) -> None:
        self.part, self.limit = part, limit
        self.spent = 0
        self._watch = watch
        self._next = 0 if watch is not None else limit + 1

    def spend(self, steps: int) -> None:
        """Charge so many steps."""
        self.spent += steps
        if self.spent > self.limit:
            raise OutOfSteps
        if self.spent >= self._next and self._watch is not None:
            self._next = self.spent + _OFTEN
            self._watch(self.part, self.spent)
