"""What a schedule function of roles in one stream calls is recorded here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlagen.dsl.builder import Author, Builder, Cluster, Section, current
from mlagen.dsl.operation import Operation, Step
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.roles import Roles


class ClusterBuilder(Builder):
    """Collects clusters, which all roles pass."""

    def __init__(self, author: Author) -> None:
        super().__init__(author)
        self.roles: Roles | None = None
        self.clusters: list[Cluster] = []
        self.sections: dict[str, list[Operation]] = {"prologue": [], "item": [], "epilogue": []}
        self.steps: list[Step] | None = None
        self.section: str | None = None
        self.limit: tuple[str, ...] = ()  # names of the roles that `only` names

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


def clusters_of(word: str) -> ClusterBuilder:
    """Who records `word`; ScheduleError in a schedule whose target does not know it."""
    builder = current()
    if not isinstance(builder, ClusterBuilder):
        raise ScheduleError(
            f"{builder.file}:{builder.line()}: {word}() is a word of gfx950; "
            f"{builder.author.name} is for {builder.author.target}",
            hint="here every role has a loop of its own: `for i in tiles(ROLE)`",
        )
    return builder
