"""What sm_90a and sm_100a are to `mlagen.codegen`: schedules to values, values to cubins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlagen.artifact import Artifact
from mlagen.codegen.templates import Templates
from mlagen.codegen.tools import Search
from mlagen.dsl import ScheduleFunction
from mlagen.targets.nvidia import ptxas
from mlagen.targets.nvidia.codegen import build
from mlagen.targets.nvidia.dsl import PipelineSchedule
from mlagen.targets.nvidia.dsl.pipeline import run_pipelined
from mlagen.targets.nvidia.limits import Nvidia

if TYPE_CHECKING:
    from mlagen.schedule_view.model import ScheduleView


@dataclass(frozen=True)
class Pipelined:
    """A target whose roles are programs of their own, and whose registers ptxas allocates."""

    limits: Nvidia
    template_folders: tuple[str, ...]
    tools: Search = ptxas.TOOLS

    def schedule(
        self, function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any]
    ) -> PipelineSchedule:
        return run_pipelined(function, problem, knobs, self.limits)

    def build(
        self, schedule: PipelineSchedule, templates: Templates, *, allow_unproved: bool = False
    ) -> Artifact:
        return build.build(schedule, templates, allow_unproved=allow_unproved)

    def view(self, schedule: PipelineSchedule, templates: Templates) -> ScheduleView:
        from mlagen.targets.nvidia.view import view

        return view(schedule, templates)
