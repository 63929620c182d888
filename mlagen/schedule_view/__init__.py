"""A schedule as the generator sees it, without assembling: its table with what is derived from it.

Beside each row stand its waits, its instructions, and the passes of prologue and drain that it
appears in; after the table come memory and registers against the target's limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlagen.codegen.build import run_schedule
from mlagen.codegen.target import target_of
from mlagen.dsl import ScheduleFunction
from mlagen.schedule_view.model import ScheduleView

__all__ = ["ScheduleView", "view_schedule"]


def view_schedule(
    function: ScheduleFunction,
    problem: Any,
    knobs: Mapping[str, Any] | None = None,
    templates_dir: Path | str | None = None,
) -> ScheduleView:
    """The view of `function` for `problem`, an instance of its problem type. A schedule that cannot
    be proved is shown too, with what the proof says. Raises like `mlagen.codegen.build` for all
    that keeps a program from being made."""
    _, schedule, templates = run_schedule(function, problem, None, knobs, templates_dir)
    with function.own_code():
        view: ScheduleView = target_of(function.target).view(schedule, templates)
        return view
