"""Records what a schedule function calls, with the line of each call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from mlagen.dsl.operation import Operation, Step, operations_of
from mlagen.dsl.roles import Roles
from mlagen.dsl.tile import Tile
from mlagen.dsl.wait import Wait
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
    wait: Wait | None
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


class Builder:
    """Collects the steps of the schedule that is being written."""

    def __init__(self, author: Author) -> None:
        self.author: Author = (
            author  # whose table it is; another's, where the problem was passed on
        )
        self.roles: Roles | None = None
        self.clusters: list[Cluster] = []
        self.sections: dict[str, list[Operation]] = {"prologue": [], "item": [], "epilogue": []}
        self.steps: list[Step] | None = None
        self.section: str | None = None
        self.movers: dict[str, Mover] = {}
        self.limit: tuple[str, ...] = ()  # names of the roles that `only` names

    @property
    def file(self) -> str:
        """The file whose lines errors name."""
        return self.author.source

    def enter_loop(self, waves: Any, step: int) -> None:
        """The tile loop begins."""
        if step != 1:
            raise ScheduleError(f"{self.file}:{self.line()}: clusters are written for one tile")
        if self.roles is not waves:
            raise ScheduleError("tiles() takes the roles of this schedule")
        if self.clusters:
            raise ScheduleError(f"{self.file}: a second tile loop in one schedule")

    def enter_section(self, name: Section, role: Any) -> None:
        """Operations before or after the loop begin."""
        if role is not None:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {name}() takes no role here",
                hint=f"`with only(ROLE)` inside it limits operations of the {name} to a role",
            )
        self.section = name

    def leave(self) -> None:
        """A loop or section ends."""
        self.section = None

    def enter_only(self, members: tuple[Any, ...]) -> None:
        """What follows is for these roles alone."""
        where = f"{self.file}:{self.line()}"
        known = self.roles.members if self.roles is not None else ()
        if not members or any(member not in known for member in members):
            raise ScheduleError(
                f"{where}: only() takes roles of this schedule",
                hint='`waves = roles(...)` declares them; waves["NAME"] is one',
            )
        if self.limit:
            raise ScheduleError(f"{where}: only() stands inside another only()")
        if self.steps is None and self.section is None:
            raise ScheduleError(
                f"{where}: only() stands inside a cluster, prologue, item or epilogue",
                hint="all roles pass all clusters; in one, a role may have nothing to do",
            )
        self.limit = tuple(member.name for member in members)

    def leave_only(self) -> None:
        """What follows is for all roles again."""
        self.limit = ()

    def limited(self, operation: Operation) -> Operation:
        """The operation as it is recorded here: for the roles that `only` and its maker name."""
        known = {role.name for role in self.roles.members} if self.roles is not None else set()
        unknown = sorted(set(operation.roles) - known)
        if unknown:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {operation} is for role {unknown[0]!r}, which is none",
                hint="roles: " + (", ".join(sorted(known)) or "none declared before it"),
            )
        if not self.limit:
            return operation
        kept = tuple(name for name in self.limit if operation.belongs(name))
        if not kept:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {operation} is for {', '.join(operation.roles)}, "
                f"not for {', '.join(self.limit)}"
            )
        return replace(operation, roles=kept)

    def line(self) -> int:
        """Line of the schedule file that is being executed."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back  # type: ignore[assignment]
        return frame.f_lineno if frame is not None else 0

    def add(self, step: Step) -> None:
        if self.steps is not None:
            self.steps.append(step)
        elif self.section is not None and isinstance(step, Operation):
            self.sections[self.section].append(step)
        else:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {step} stands outside any cluster",
                hint="put it inside `with cluster(...)`, `with prologue()`, `with each_item()` or "
                "`with epilogue()`",
            )


_current: list[Builder] = []


@contextmanager
def listening(builder: Builder) -> Iterator[None]:
    """What is called inside is recorded by `builder`."""
    _current.append(builder)
    try:
        yield
    finally:
        _current.pop()


def current() -> Builder:
    """Who records what is called now."""
    if not _current:
        raise ScheduleError("schedule words are only understood inside a @schedule function")
    return _current[-1]
