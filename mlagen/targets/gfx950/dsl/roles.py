"""Roles of a gfx950 workgroup: groups of its waves, how far one lags another."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Role:
    """Waves that run the same stream, lagging the foremost role by `stagger` barriers."""

    name: str
    waves: range
    stagger: int


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a workgroup, in wave order. `apart`: each has code of its own, even where no
    operation is limited to one; what an operation's context supplies may then differ by role."""

    members: tuple[Role, ...]
    apart: bool = False

    def __getitem__(self, name: str) -> Role:
        """The role of that name; ScheduleError where there is none."""
        for role in self.members:
            if role.name == name:
                return role
        raise ScheduleError(
            f"there is no role {name!r}", hint="roles: " + ", ".join(r.name for r in self.members)
        )

    @property
    def names(self) -> str:
        return "+".join(role.name for role in self.members)

    @property
    def waves(self) -> int:
        return sum(len(role.waves) for role in self.members)

    @property
    def stagger(self) -> int:
        """Barriers between the foremost and the last role."""
        return max(role.stagger for role in self.members)
