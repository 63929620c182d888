"""Finds the tools that assemble for a target: places in their order, each asked whether it can.

The first that is there and assembles an instruction of the target is taken; one that the user named
must. A probe is a few short processes (together about 10 ms), so that a build sees the tool that is
installed now and not one remembered from yesterday.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlagen.errors import MissingError

LOG = logging.getLogger(__name__)
# A tool may take so long: ptxas takes seconds, on a machine with much other work minutes.
SECONDS = 600

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tools:
    """What assembles, and links where that is a step of its own. `versions` holds no path: the same
    tools, the same text."""

    commands: tuple[Command, ...]
    name: str  # of the kind of place: "environment", "path", "rocm", "cuda", "ziglang", "wheel"
    versions: tuple[tuple[str, str], ...]  # (("clang", "22.1.8"), ("lld", "22.1.8"))

    @property
    def version(self) -> str:
        return ", ".join(f"{tool} {version}" for tool, version in self.versions)


@dataclass(frozen=True, slots=True)
class SearchedPlace:
    """One place that was looked at: the tools found there, or why there are none."""

    place: str
    tools: Tools | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place to look at."""

    place: str
    name: str
    commands: tuple[Command, ...] = ()
    missing: str = ""  # why there is nothing to probe
    wheel: tuple[tuple[str, str], ...] = ()  # the wheel that makes the bytes, with its version
    required: bool = False  # named by the user: nothing else will do


@dataclass(frozen=True)
class Search:
    """Where to look for what assembles. `probe(candidate, target)`: the tools, or why they cannot
    assemble for that target. `group`: of the places, as `mlagen doctor` shows them."""

    group: str
    what: str  # "assembler"
    hint: str  # how to install one
    candidates: Callable[[], Iterable[Candidate]]
    probe: Callable[[Candidate, str], Tools | str]

    def every(self, target: str) -> Iterator[SearchedPlace]:
        """Every place in order with what was found there."""
        return (self._look(candidate, target) for candidate in self.candidates())

    def first(self, target: str) -> Tools:
        """The tools for `target`. MissingError: none works; names every place and why not."""
        tried = []
        for candidate in self.candidates():
            found = self._look(candidate, target)
            if found.tools:
                LOG.info("%s: %s", found.place, found.tools.version)
                return found.tools
            if candidate.required:
                raise MissingError(f"{found.place}: {found.reason}", hint=self.hint)
            tried.append(f"\n  {found.place}: {found.reason}")
        looked = f"no {self.what} for {target}; looked at:{''.join(tried)}"
        raise MissingError(looked, hint=self.hint)

    def _look(self, candidate: Candidate, target: str) -> SearchedPlace:
        try:
            found = candidate.missing or self.probe(candidate, target)
        except MissingError as error:  # it hangs: the next place may have one that does not
            found = error.message
        if isinstance(found, str):
            return SearchedPlace(candidate.place, None, found)
        return SearchedPlace(candidate.place, found)


def run(
    command: Sequence[str], *, text: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Runs a tool with English messages; None when it cannot be started at all. MissingError: it
    has not ended after `SECONDS`, and is killed."""
    started = time.perf_counter()
    try:
        return subprocess.run(
            command,
            input=text,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise MissingError(
            f"{command[0]} has not ended after {SECONDS} s",
            hint="a tool takes seconds: the machine may have too much other work",
        ) from None
    finally:
        LOG.info("%s: %.2f s", shlex.join(command), time.perf_counter() - started)
