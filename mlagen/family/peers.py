"""Other libraries that solve a family's problems, for `mlagen bench` to time beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from mlagen.errors import MlagenError


class PeerAbsent(MlagenError):
    """The library is not there, or not what is expected; the message says what is missing."""

    exit_code = 5


class PeerUnfit(MlagenError):
    """The library does not do this work."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """A call on other tensors than the case's: `how` they were changed stands behind the library's
    name in reports, as in "flash_mla (64 heads)". Changing them is not timed."""

    call: Callable[[], Any]
    how: str

    def __call__(self) -> Any:
        return self.call()


class Peer(Protocol):
    """A library. `name` is what `--peers` and reports call it."""

    name: str

    def load(self) -> str:
        """Imports it and returns its version. PeerAbsent: why that fails."""

    def prepare(self, case: Any) -> Callable[[], Any]:
        """A call on a case's tensors that returns the output. What the library lets a user do once
        for many calls is done here. `Adapted`: it does this work on other tensors. PeerUnfit: it
        does not do this work."""


def imported(name: str, install: str) -> Any:
    """The module of that name. PeerAbsent: it does not import."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.split(".")[0] == error.name.split(".")[0]:
            raise PeerAbsent(f"{error.name} is not installed", hint=install) from error
        raise PeerAbsent(f"{name} does not import: {error}", hint=install) from error
    except Exception as error:  # whatever a library does while it is imported
        first = str(error).partition("\n")[0]
        raise PeerAbsent(f"{name} does not import: {type(error).__name__}: {first}") from error


def version(module: Any) -> str:
    return str(getattr(module, "__version__", "of unknown version"))


def require(fits: bool, reason: str) -> None:
    """PeerUnfit unless the work fits."""
    if not fits:
        raise PeerUnfit(reason)
