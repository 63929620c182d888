"""AMD's AITER code objects as test material: where they lie, what a run of one gives.

Nothing of AITER is part of this repository. `MLAGEN_AITER` names a folder with `fmha_v3_fwd/` and
`mla/` (AITER's `hsa/gfx950`); `MLAGEN_AITER_HISTORY` one with `<commit>/hsa/gfx950/...` of older
objects. Tests that need them skip without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlagen.emulator import Mode, SanitizerFinding

FOLDER, HISTORY = "MLAGEN_AITER", "MLAGEN_AITER_HISTORY"
MODES: tuple[Mode, ...] = ("latest", "earliest", "random")


@dataclass(frozen=True, slots=True)
class Error:
    """One output against its oracle. `error`: the largest |got - expected| as stored. `ratio`: the
    largest error in units of its bound; inf for a NaN where none belongs."""

    output: str
    error: float
    ratio: float
    nans: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one launch gave: its outputs' errors, the sanitizer's findings, and its cost."""

    errors: tuple[Error, ...]
    findings: tuple[SanitizerFinding, ...]
    wave_instructions: int
    seconds: float

    @property
    def right(self) -> bool:
        """Every output is within its bound."""
        return bool(self.errors) and all(e.ratio <= 1.0 and e.nans == 0 for e in self.errors)


@dataclass(frozen=True)
class Case:
    """A launch of one object. `path`: below the folder, `fmha_v3_fwd/fwd_hd128_bf16.co`.

    `run(mode, seed)` launches it; it raises what the emulator raises.
    """

    path: str
    label: str
    run: Callable[[Mode, int], Outcome]

    @property
    def name(self) -> str:
        """What a test is called."""
        return f"{Path(self.path).stem}, {self.label}"


def missing(variable: str = FOLDER) -> str | None:
    """Why tests of these objects cannot run, or None."""
    named = os.environ.get(variable)
    if not named:
        return f"{variable} names no folder of AITER's objects"
    return None if Path(named).is_dir() else f"{variable}: {named} is no folder"


def object_file(path: str, variable: str = FOLDER) -> Path:
    """The file of one object; the calling test skips where it is not there."""
    why = missing(variable)
    if why is not None:
        pytest.skip(why)
    file = Path(os.environ[variable]) / path
    if not file.is_file():
        pytest.skip(f"{variable}: there is no {file}")
    return file


def objects(folder: str) -> list[str]:
    """All objects below a folder such as `mla`, as `Case.path`; none where there is no material."""
    if missing() is not None:
        return []
    return [f"{folder}/{p.name}" for p in sorted((Path(os.environ[FOLDER]) / folder).glob("*.co"))]
