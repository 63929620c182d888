"""What generates code for a target: the value `TARGET` of its folder's module `target`, imported
when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mlagen.artifact import Artifact
from mlagen.codegen.templates import Templates
from mlagen.dsl import Config, ScheduleFunction
from mlagen.dsl.knobs import joined
from mlagen.targets.registry import TARGETS


class Target(Protocol):
    """What a target's folder gives."""

    @property
    def limits(self) -> Any:
        """The table of its capacities; `limits.name` is the target's name."""

    @property
    def template_folders(self) -> tuple[str, ...]:
        """Folders below `templates/` in which its templates are looked up: its own first, then
        those of the targets that it extends."""

    @property
    def tools(self) -> Any:
        """Where what assembles for it is looked for: a `mlagen.codegen.tools.Search`."""

    def schedule(self, function: Any, problem: Any, knobs: Mapping[str, Any]) -> Any:
        """What the `ScheduleFunction` says for a problem and a choice of knobs, as a value."""

    def build(self, schedule: Any, templates: Any, *, allow_unproved: bool = False) -> Artifact:
        """The artifact of such a value; see `mlagen.codegen.build`."""

    def view(self, schedule: Any, templates: Any) -> Any:
        """The `mlagen.schedule_view.ScheduleView` of such a value."""


def target_of(name: str) -> Target:
    """The target of that name, with all that generates code for it."""
    target: Target = importlib.import_module(f"{TARGETS[name].folder}.target").TARGET
    return target


def schedule_of(function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any]) -> Any:
    """What a schedule function says for one problem and one choice of knobs: the schedule as a
    value of its target. The function runs once. A config is a problem and knobs. ConfigError:
    `knobs` says something else of one of them, or names one that the function does not declare."""
    if isinstance(problem, Config):
        problem, chosen = problem.parts()
        knobs = joined(chosen, knobs)
    return target_of(function.target).schedule(function, problem, knobs)


def templates_for(target: str, *directories: Path | None) -> Templates:
    """The templates of a target, which are looked up in these directories before ours."""
    return Templates(target, target_of(target).template_folders, *directories)
