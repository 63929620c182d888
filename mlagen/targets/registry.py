"""The targets by name, one row each. What belongs to one is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

FOLDERS = {"gfx950": "mlagen.targets.gfx950", "sm_90a": "mlagen.targets.sm_90a",
           "sm_100a": "mlagen.targets.sm_100a"}  # fmt: skip
EMULATED = ("gfx950", "sm_90a", "sm_100a")  # have an emulator: their code runs without the hardware
MODELLED = ("gfx950",)  # have a cycle model


def limits_of(name: str) -> Any:
    """The table of a target's capacities: the value named like the target in its `limits`."""
    return getattr(importlib.import_module(f"{FOLDERS[name]}.limits"), name.upper())
