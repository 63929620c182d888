"""The gfx950 engine's machine code."""

from __future__ import annotations

import logging
from typing import Any

from mlagen.emulator.gfx950.engine import run
from mlagen.emulator.native.compiling import callable_from_python, entry
from mlagen.emulator.native.starting import Starter
from mlagen.telling import tell

LOG = logging.getLogger(__name__)


def _say_so() -> None:
    tell(LOG, "compiling the emulator for this machine, which takes about 10 s")


_enter = entry(run, _say_so)  # not in a closure: numba's cache looks at a closure's values


def _make(stamp: int, kept: bool) -> Any:
    def run_slice(context: int, budget: int) -> int:
        """See `engine.run`. A negative budget asks which sources this was compiled from."""
        if budget < 0:
            return stamp
        return _enter(context, budget)

    return callable_from_python(run_slice, kept=kept)


STARTER = Starter(
    __file__,
    _make,
    frozenset(
        {"engine_operations.py", "machine.py", "memory.py", "raw_findings.py", "translate.py"}
    ),
)
