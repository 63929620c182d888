"""Records what a schedule function calls, with the line of each call."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from mlagen.dsl.operation import Operation, Step, operations_of
from mlagen.dsl.tile import Tile
from mlagen.errors import ScheduleError

AccessKind = Literal["copy", "read", "release"]
Mover = Callable[[AccessKind, Tile], Operation]
Section = Literal["prologue", "item", "epilogue"]


@dataclass(frozen=True)
class Cluster:
    """Steps that end in one barrier."""

    name: str
    steps: tuple[Step, ...]
    priority: int
    wait: Any  # placed by hand before the barrier, in the target's terms; None: the derived one
    line: int

    def operations(self) -> tuple[Operation, ...]:
        return operations_of(self.steps)


class Named(Protocol):
    """Anything with the name of a ring or pipeline."""

    @property
    def name(self) -> str: ...


class Author(Protocol):
    """The schedule function that is being executed."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def templates(self) -> Path | None: ...
    @property
    def path(self) -> Path: ...
    @property
    def source(self) -> str: ...
    @property
    def line(self) -> int: ...


class Builder(ABC):
    """Collects what a schedule says while it is being written. Each target has one of its own."""

    def __init__(self, author: Author) -> None:
        self.author: Author = author  # whose table it is; another's, if the problem was passed on
        self.movers: dict[str, Mover] = {}

    @property
    def file(self) -> str:
        """The file whose lines errors name."""
        return self.author.source

    @abstractmethod
    def enter_loop(self, waves: Any, step: int) -> None:
        """The tile loop of some roles begins."""

    @abstractmethod
    def enter_section(self, name: Section, role: Any) -> None:
        """Operations before or after the loop begin."""

    @abstractmethod
    def leave(self) -> None:
        """A loop or section ends."""

    @abstractmethod
    def limited(self, operation: Operation) -> Operation:
        """The operation as it is recorded here: for the roles whose code is open."""

    @abstractmethod
    def add(self, step: Step) -> None:
        """Record a step where it is called."""

    def line(self) -> int:
        """Line of the schedule file that is being executed."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back  # type: ignore[assignment]
        return frame.f_lineno if frame is not None else 0


_current: list[Builder] = []


@contextmanager
def listening(builder: Builder) -> Iterator[None]:
    """What is called inside is recorded by `builder`."""
    _current.append(builder)
    try:
        yield
    finally:
        _current.pop()


def listener() -> Builder | None:
    """Who records what is called now; None outside of schedule functions."""
    return _current[-1] if _current else None


def current() -> Builder:
    """Who records what is called now."""
    if not _current:
        raise ScheduleError("schedule words are only understood inside a @schedule function")
    return _current[-1]
