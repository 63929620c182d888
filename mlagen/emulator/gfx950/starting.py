"""The engine's machine code: from numba's cache, or compiled now and kept there for later runs.

The cache is a convenience. A folder that cannot be written, a full disk, a file that was cut short
or belongs to other sources cost a compilation, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
from numba import types

from mlagen.emulator.gfx950.compiling import callable_from_python, entry
from mlagen.emulator.gfx950.engine import run

LOG = logging.getLogger(__name__)
SIGNATURE = (types.int64, types.int64)

Run = Callable[[int, int], int]

# Sources that only Python runs; all others go into the compiled code.
_PYTHON = {"machine.py", "memory.py", "report.py", "tables.py", "translate.py"}
_LOCK = threading.Lock()


def _stamp() -> int:
    """A number that changes with any source of the engine: numba's cache watches one file only."""
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name not in _PYTHON:
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "little")


_STAMP = _stamp()


def _say_so() -> None:
    LOG.info("compiling the emulator for this machine: about 10 s; later runs take what was kept")


_enter = entry(run, _say_so)  # not in a closure: numba's cache looks at a closure's values


def _make(stamp: int, kept: bool) -> Any:
    def run_slice(context: int, budget: int) -> int:
        """See `engine.run`. A negative budget asks which sources this was compiled from."""
        if budget < 0:
            return stamp
        return _enter(context, budget)

    return callable_from_python(run_slice, kept=kept)


def ready(make: Callable[[int, bool], Any], stamp: int) -> Any:
    """`make(stamp, kept)`, compiled for SIGNATURE; out of the cache only if it has this stamp.

    `make` gives a dispatcher, with numba's cache or without, whose function answers (0, -1) with
    the stamp. What the cache has and cannot be used is replaced.
    """
    said = ""
    for emptied in (False, True):
        try:
            made = make(stamp, True)
            if emptied:
                made.recompile()  # nothing is compiled yet, so this only empties the cache
            _compile(made)
            if made(0, -1) == stamp:
                return made
            reason = "it is of other sources"
        except TypeError:
            raise  # the source: nothing that another attempt would mend
        except Exception as error:
            reason = str(error).partition("\n")[0] or repr(error)
        if reason != said:
            LOG.info("kept code cannot be used: %s", reason)
        said = reason
    made = make(stamp, False)
    made.compile(SIGNATURE)
    return made


def _compile(made: Any) -> None:
    """Take it from the cache or compile it; a disk that is full does no harm now."""
    try:
        made.compile(SIGNATURE)
    except OSError as error:
        if SIGNATURE not in made.overloads:
            raise
        LOG.info("compiled code is not kept for later runs: %s", error)


@cache
def _run_slice() -> Any:
    if _stamp() != _STAMP:  # edited since they were imported: what is compiled now is a mixture
        made = _make(_STAMP, False)
        made.compile(SIGNATURE)
        return made
    return ready(_make, _STAMP)


def compiled_files() -> tuple[Path, str]:
    """The folder in which numba keeps the compiled engine, and the pattern of its files."""
    return Path(_make(_STAMP, True).stats.cache_path), f"{Path(__file__).stem}.*.nb[ci]"


def start() -> Run:
    """The compiled `engine.run(context, budget)`; compiles it when no cache has it."""
    with _LOCK:
        return _run_slice()
