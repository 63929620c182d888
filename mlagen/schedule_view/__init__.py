"""A schedule as the generator sees it, without assembling: its table with what is derived from it.

Beside each row stand its waits, its instructions, and the passes of prologue and drain that it
appears in; after the table come memory and registers against the target's limits.
"""

from __future__ import annotations

from mlagen.codegen.build import WrittenSchedule
from mlagen.codegen.target import target_of
from mlagen.schedule_view.model import ScheduleView

__all__ = ["ScheduleView", "view_schedule"]


def view_schedule(written: WrittenSchedule) -> ScheduleView:
    """The view of a schedule that has run. One that cannot be proved is shown too, with what the
    proof says. Raises like `mlagen.codegen.build` for all that keeps a program from being made."""
    function, schedule, templates = written
    with function.own_code():
        view: ScheduleView = target_of(function.target).view(schedule, templates)
        return view
