"""An engine's machine code: from numba's cache, or compiled now and kept there for later runs.

The cache is a convenience. A folder that cannot be written, a full disk, a file that was cut short
or belongs to other sources cost a compilation, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
from numba import types

from mlagen.emulator.native.kept_code import no_folder, tell_unkept

LOG = logging.getLogger(__name__)
SIGNATURE = (types.int64, types.int64)

Run = Callable[[int, int], int]
Make = Callable[[int, bool], Any]
_LOCK = threading.Lock()


class Starter:
    """The compiled entry of the engine whose sources lie beside `file`.

    `make(stamp, kept)` gives numba's dispatcher of the entry, with numba's cache or without; a
    negative budget asks it for the stamp. `python`: sources that only Python runs, files or whole
    folders; all others go into the compiled code.
    """

    def __init__(self, file: str, make: Make, python: frozenset[str]) -> None:
        self._file, self._make, self._python = Path(file), make, python
        self._imported = self.stamp()

    def stamp(self) -> int:
        """A number that changes with any source: numba's cache watches one file only."""
        digest = hashlib.sha256(llvmlite.__version__.encode())
        sources = (*self._file.parent.glob("**/*.py"), *Path(__file__).parent.glob("*.py"))
        for path in sorted(sources):
            if self._python.isdisjoint((path.name, path.parent.name)):
                digest.update(path.read_bytes())
        return int.from_bytes(digest.digest()[:6], "little")

    def files(self) -> tuple[Path | None, str]:
        """The folder in which numba keeps the compiled engine, None where it has none, and the
        pattern of its files."""
        pattern = f"{self._file.stem}.*.nb[ci]"
        try:
            return Path(self._make(self._imported, True).stats.cache_path), pattern
        except RuntimeError as error:
            if not no_folder(error):
                raise
            return None, pattern

    def start(self) -> Run:
        """The compiled `run(context, budget)`; compiles it when no cache has it."""
        with _LOCK:
            return self._run

    @cached_property
    def _run(self) -> Any:
        stamp = self._imported
        if self.stamp() != stamp:  # edited since they were imported: what is compiled is a mixture
            made = self._make(stamp, False)
            made.compile(SIGNATURE)
            return made
        return ready(self._make, stamp)


def ready(make: Make, stamp: int) -> Any:
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
            if no_folder(error):
                tell_unkept("the emulator")
                break
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
