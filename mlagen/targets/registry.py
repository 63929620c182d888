"""The targets by name, one row each. What belongs to one is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from mlagen.artifact import Artifact

FOLDERS = {"gfx950": "mlagen.targets.gfx950", "sm_90a": "mlagen.targets.sm_90a",
           "sm_100a": "mlagen.targets.sm_100a"}  # fmt: skip
EMULATED = ("gfx950", "sm_90a", "sm_100a")  # have an emulator: their code runs without the hardware
MODELLED = ("gfx950",)  # have a cycle model


class Target(Protocol):
    """What a target's folder gives, as the value `TARGET` of its module `target`."""

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


def limits_of(name: str) -> Any:
    """The table of a target's capacities: the value named like the target in its `limits`."""
    return getattr(importlib.import_module(f"{FOLDERS[name]}.limits"), name.upper())


def target_of(name: str) -> Target:
    """The target of that name, with all that generates code for it."""
    target: Target = importlib.import_module(f"{FOLDERS[name]}.target").TARGET
    return target
