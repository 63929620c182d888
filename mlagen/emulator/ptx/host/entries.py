"""Entries of a module: which one, for which machine, and where its parameters lie."""

from __future__ import annotations

import re

from mlagen.errors import ConfigError, UnsupportedError
from mlagen.ptx import Entry, Module

_PARAMETERS_MAX = 32764  # bytes of an entry's parameters (PTX ISA, "Kernel Function Parameters")


def entry_of(module: Module, name: str | None) -> Entry:
    """The entry of that name, or the only one. ConfigError that lists them."""
    known = ", ".join(entry.name for entry in module.entries)
    if not module.entries:
        raise ConfigError("the PTX has no .entry", hint="an object of device functions alone?")
    if name is None:
        if len(module.entries) > 1:
            raise ConfigError(
                f"the PTX has {len(module.entries)} entries", hint=f"kernel: one of {known}"
            )
        return module.entries[0]
    for entry in module.entries:
        if entry.name == name:
            return entry
    raise ConfigError(f"the PTX has no entry {name}", hint=f"it has: {known}")


def check_target(module: Module) -> None:
    """UnsupportedError for PTX of a target whose machine is not modelled."""
    match = re.match(r"sm_(\d+)([af]?)", module.target)
    if match is None or int(match[1]) > 90 or (match[2] and match[0] != "sm_90a"):
        raise UnsupportedError(
            f"the PTX is for {module.target}; the emulator executes sm_90a, and what runs on it"
        )


def parameter_places(entry: Entry) -> tuple[dict[str, int], int]:
    """Offset of each parameter, and the bytes of all."""
    at, places = 0, {}
    for parameter in entry.parameters:
        at = -(-at // parameter.align) * parameter.align
        places[parameter.name] = at
        at += parameter.size
    if at > _PARAMETERS_MAX:
        raise UnsupportedError(
            f"line {entry.line}: {entry.name} has {at} bytes of parameters; at most "
            f"{_PARAMETERS_MAX} are passed"
        )
    return places, at
