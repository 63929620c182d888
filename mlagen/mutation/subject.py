"""What is mutated and judged: a kernel with whatever runs it.

A `SubjectSource` says where a subject comes from; processes that judge are given one, and make a
subject of their own. Each target has its subject in a folder of its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from mlagen.errors import ConfigError
from mlagen.mutation.verdict import Planted, Verdict


class Subject(ABC):
    """One kernel, its mutants, and their judge."""

    text: str  # that mutants are made of
    kernel: str
    problem: str  # what it is run on, for people
    suffix: str  # of a file of its text
    judges: tuple[str, ...] = ("emulator",)

    @abstractmethod
    def mutants(self, classes: Sequence[str]) -> Sequence[Any]:
        """The mutants of some classes that can be judged."""

    @abstractmethod
    def judge(self, mutant: Any) -> Verdict:
        """Runs a mutant until it is decided."""


class SubjectSource(ABC):
    """Where a subject comes from; fit to be sent to another process."""

    @property
    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """The classes of mutants whose defects the checkers must see."""

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes."""
        return (*self.order, "values")

    @abstractmethod
    def subject(self) -> Subject:
        """Made now."""

    def checked(self, classes: Iterable[str]) -> tuple[str, ...]:
        """The classes asked for, in their order; all of `order` for none. ConfigError: unknown."""
        wanted = list(classes) or list(self.order)
        for name in wanted:
            if name not in self.classes:
                raise ConfigError(
                    f"unknown class of mutants {name!r}",
                    hint=f"classes: {', '.join(self.classes)}",
                )
        return tuple(name for name in self.classes if name in wanted)


def described(verdict: Verdict) -> tuple[str, str]:
    """A line of a report: what and where, why."""
    mutant: Planted = verdict.mutant
    return mutant.described, verdict.why
