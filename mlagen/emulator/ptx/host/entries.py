"""Entries of a module: which one, for which machine, and where its parameters lie."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlagen.errors import ConfigError, UnsupportedError
from mlagen.ptx import Entry, Module
from mlagen.targets.sm_90a.limits import SM_90A, Sm90a
from mlagen.targets.sm_100a.limits import SM_100A, Sm100a

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


@dataclass(frozen=True)
class PtxMachine:
    """A machine that the emulator is. `only`: names of instructions that others do not have."""

    limits: Sm90a | Sm100a
    only: frozenset[str]


HOPPER = PtxMachine(SM_90A, frozenset({"wgmma"}))
BLACKWELL = PtxMachine(SM_100A, frozenset({"tcgen05", "clusterlaunchcontrol"}))
LIMITED = HOPPER.only | BLACKWELL.only


def machine_of(target: str) -> PtxMachine:
    """The machine that runs PTX for a target. UnsupportedError for one that is not modelled.

    What is for sm_100 or the family sm_100f runs on sm_100a. sm_103a does not: it has other
    instructions and no kind::i8.
    """
    match = re.match(r"sm_(\d+)([af]?)\b", target)
    if match and (match[1] == "100" or match[0] == SM_90A.name):
        return BLACKWELL if match[1] == "100" else HOPPER
    if match is None or int(match[1]) > 90 or match[2]:
        raise UnsupportedError(
            f"the PTX is for {target}; the emulator executes sm_90a and sm_100a, and what runs on "
            "them",
            hint="sm_100f runs on sm_100a; sm_103a and later machines are not modelled",
        )
    return HOPPER


def parameter_places(entry: Entry) -> tuple[dict[str, int], int]:
    """Offset of each parameter, and the bytes of all."""
    places = entry.parameter_places
    at = places[entry.parameters[-1].name] + entry.parameters[-1].size if places else 0
    if at > _PARAMETERS_MAX:
        raise UnsupportedError(
            f"line {entry.line}: {entry.name} has {at} bytes of parameters; at most "
            f"{_PARAMETERS_MAX} are passed"
        )
    return places, at
