"""Arguments of a launch file against the parameters of a PTX entry."""

from __future__ import annotations

from mlagen.emulator.launching.launch_file import ArgumentSpec, LaunchFile
from mlagen.emulator.launching.metadata import Placed
from mlagen.emulator.launching.scalars import DTYPES, scalar
from mlagen.emulator.launching.segment import POINTER_BYTES
from mlagen.emulator.ptx.host.entries import parameter_places
from mlagen.emulator.tensor_maps import BYTES
from mlagen.errors import ConfigError
from mlagen.ptx import Entry


def placed_parameters(entry: Entry, launch: LaunchFile) -> Placed:
    """The file's arguments with their offsets in the parameter space. ConfigError for a name that
    the entry has not, and for parameters of which nothing sets a byte."""
    if launch.dynamic_lds:
        raise ConfigError(
            "the launch file has dynamic_lds, which is of gfx950 code", hint="dynamic_shared"
        )
    places, total = parameter_places(entry)
    known = ", ".join(places) or "none"
    covered: set[int] = set()
    found: list[tuple[int, ArgumentSpec]] = []
    for spec in launch.arguments:
        offset = spec.offset or 0
        if spec.name is not None:
            if spec.name not in places:
                raise ConfigError(
                    f"{entry.name} has no parameter called {spec.name}", hint=f"it has: {known}"
                )
            offset += places[spec.name]
        if spec.type is not None and spec.value is not None:
            scalar(spec.label, spec.type, spec.value)
        found.append((offset, spec))
        covered.update(range(offset, min(offset + _size(spec), total)))
    unset = tuple(
        f"{p.name} ({p.size} bytes at {places[p.name]})"
        for p in entry.parameters
        if covered.isdisjoint(range(places[p.name], places[p.name] + p.size))
    )
    if unset and not launch.allow_unset:
        raise ConfigError(
            f"parameters of {entry.name} that the launch file does not set: " + ", ".join(unset),
            hint="set them, or allow_unset = true leaves 0x7f in their bytes",
        )
    return Placed(tuple(found), (), unset)


def _size(spec: ArgumentSpec) -> int:
    if spec.tensor_map is not None:
        return BYTES
    return POINTER_BYTES if spec.buffer is not None else DTYPES[spec.type or ""].itemsize
