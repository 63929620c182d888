"""gfx950 as `mlagen.codegen` asks for it: schedules to values, values to code objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlagen.artifact import Artifact
from mlagen.codegen.templates import Templates
from mlagen.codegen.tools import Search
from mlagen.dsl import ScheduleFunction
from mlagen.targets.gfx950 import clang
from mlagen.targets.gfx950.codegen import build
from mlagen.targets.gfx950.dsl import Schedule
from mlagen.targets.gfx950.dsl.clusters import run_clustered
from mlagen.targets.gfx950.limits import GFX950, Gfx950

if TYPE_CHECKING:
    from mlagen.schedule_view.model import ScheduleView


@dataclass(frozen=True)
class Cdna4:
    """A target whose generator places every instruction and register."""

    limits: Gfx950 = GFX950
    template_folders: tuple[str, ...] = ("gfx950",)
    tools: Search = clang.TOOLS

    def schedule(
        self, function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any]
    ) -> Schedule:
        return run_clustered(function, problem, knobs, self.limits)

    def build(
        self, schedule: Schedule, templates: Templates, *, allow_unproved: bool = False
    ) -> Artifact:
        return build.build(schedule, templates, allow_unproved=allow_unproved)

    def view(self, schedule: Schedule, templates: Templates) -> ScheduleView:
        from mlagen.targets.gfx950.view import view

        return view(schedule, templates)


TARGET = Cdna4()
