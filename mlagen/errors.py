"""Every error mlagen raises on purpose, with the exit code its command ends on.

An error says what was asked, which limit it met, and what would fit. `exit_code`: 2 usage or
refused, 3 wrong result, 4 findings, 5 a tool or an input is missing or an output cannot be
written, 6 nothing wrong was found but not all was checked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class MlagenError(Exception):
    """Base of all deliberate errors. `hint` says what would fit or what to do next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ConfigError(MlagenError):
    """A problem field, option or argument has a value that cannot be served."""


class ScheduleError(MlagenError):
    """A schedule is malformed or asks for something its target does not have."""


class CapacityError(ScheduleError):
    """A resource ran out: registers, LDS, wait counters."""


class ProofError(ScheduleError):
    """An ordering the schedule relies on is not established by its waits and barriers."""


class TemplateError(ScheduleError):
    """A template does not render, or rendered a line that is no known instruction."""


class WrongResultError(MlagenError):
    """A kernel's output is outside the oracle's bound."""

    exit_code = 3


class FindingsError(MlagenError):
    """A checker found a defect."""

    exit_code = 4


class UnprovedError(MlagenError):
    """A checker found nothing wrong, and did not check all: it followed no path of a kernel, ran
    out of steps, or was asked to be strict about what rests on a guess."""

    exit_code = 6


class MissingError(MlagenError):
    """A tool, a package or an input file that the command needs is not there."""

    exit_code = 5


class WriteError(MlagenError):
    """An output cannot be written: no room, no permission, no such place."""

    exit_code = 5


class BinaryError(MlagenError):
    """A code object cannot be read: truncated, not an AMDGPU object, another target."""

    exit_code = 5


class OtherVersionError(BinaryError):
    """A file that another version of mlagen wrote, which this one does not read."""


class UnsupportedError(MlagenError):
    """A checker met something it does not model, and says so instead of guessing."""

    exit_code = 5


def required(module: str, why: str, hint: str) -> Any:
    """A module of an optional package. MissingError, which says `why`: it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingError(why, hint=hint) from error
