"""Running a launch file: arguments against the object's metadata, the emulator, the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlagen.binary import CodeObject, KernelCode, load_code_object
from mlagen.disk import checked_output, require_own
from mlagen.emulator.api import emulate
from mlagen.emulator.buffer import Buffer, Triple
from mlagen.emulator.launch import Argument, EmulationResult, Launch, Settings
from mlagen.emulator.launching.buffers import (
    OutputReport,
    Prepared,
    inside,
    npy_header,
    prepare_buffer,
    report_output,
    save,
)
from mlagen.emulator.launching.launch_file import ArgumentSpec, LaunchFile
from mlagen.emulator.launching.metadata import Placed, placed
from mlagen.emulator.launching.parameters import placed_parameters
from mlagen.emulator.launching.scalars import scalar
from mlagen.emulator.ptx.host.entries import entry_of
from mlagen.emulator.tensor_maps import TensorMap
from mlagen.errors import ConfigError
from mlagen.ptx import Entry, Module, read_ptx
from mlagen.severity import ERROR, Severity

MAX_MEMORY = 1 << 28  # bytes of all buffers unless the caller says more; a run holds each thrice
_MOST_ITEMS = (
    1 << 32
) - 1  # work-items in a dimension (HSA AQL dispatch packet: 32-bit grid sizes)
_MOST_WORKGROUPS = 1 << 20  # of a run: more take days


@dataclass(frozen=True)
class GuardDamage:
    """Bytes of a guard zone that the kernel wrote. `side`: before or after the buffer.

    `distance`: of the nearest one from the buffer's edge; `count`: how many bytes differ.
    """

    buffer: str
    side: str
    distance: int
    count: int
    severity: Severity = ERROR

    def __str__(self) -> str:
        return (
            f"guard-zone: {self.count} bytes {self.side} buffer {self.buffer} were written, the "
            f"nearest {self.distance} bytes from it"
        )


@dataclass(frozen=True)
class Files:
    """What a run may read and write.

    With `write` the outputs that the launch file names are written when the kernel has run, each
    whole or not at all, `out` standing for the file's folder. The file's paths stay in its folder,
    those of outputs in `out`, unless `allow_outside`. `max_memory`: bytes of all its buffers. An
    output replaces a file that another run may have written, an array of its type and shape; others
    with `force` only.
    """

    out: str | Path | None = None
    write: bool = False
    allow_outside: bool = False
    max_memory: int = MAX_MEMORY
    force: bool = False


@dataclass(frozen=True)
class LaunchRun:
    """A run of a launch file. `arrays`: every buffer after it, by name, without guard zones.

    `unset`: arguments that nothing set. `beyond`: those of the file that lie past the argument
    segment, which the runtime does not pass.
    """

    kernel: KernelCode | Entry
    result: EmulationResult
    arrays: Mapping[str, np.ndarray]
    outputs: tuple[OutputReport, ...]
    damage: tuple[GuardDamage, ...]
    unset: tuple[str, ...]
    beyond: tuple[str, ...]
    workgroups: int


_SETTINGS, _FILES = Settings(), Files()


def run_launch(
    code: bytes | CodeObject | str | Module,
    launch: LaunchFile,
    settings: Settings = _SETTINGS,
    files: Files = _FILES,
    *,
    progress: Callable[[int, int], None] | None = None,
    executed: Callable[[int], None] | None = None,
) -> LaunchRun:
    """Run a kernel of a gfx950 code object or of PTX as a launch file says; see `emulate`.

    `settings.workgroups` replaces the file's. Before anything runs: ConfigError for what cannot be
    had, MissingError for files, WriteError for outputs.
    """
    loaded, kernel, arguments = _loaded(code, launch)
    groups = list(settings.workgroups) if settings.workgroups else launch.workgroups
    _check_grid(launch, groups)
    out = Path(files.out) if files.out is not None else Path(launch.folder)
    paths = _output_paths(launch, out, files.allow_outside)
    for path in paths.values() if files.write else ():
        checked_output(path)
    buffers = _prepared(launch, files)
    for name, path in paths.items() if files.write and not files.force else ():
        require_own(path, like=npy_header(buffers[name].array))
    asked = Launch(
        launch.grid,
        launch.block,
        [_argument(offset, spec, buffers, launch) for offset, spec in arguments.passed],
        buffers=_others(launch, buffers),
        kernel=kernel.name,
        dynamic_lds_bytes=launch.dynamic_lds,
        cluster=launch.cluster,
        dynamic_shared=launch.dynamic_shared,
    )
    chosen = replace(settings, workgroups=groups)
    result = emulate(loaded, asked, chosen, progress=progress, executed=executed)
    if files.write:
        for name, path in paths.items():
            save(buffers[name].array, path)
    return LaunchRun(
        kernel=kernel,
        result=result,
        arrays={name: prepared.array for name, prepared in buffers.items()},
        outputs=tuple(
            report_output(buffers[name], str(path) if files.write else "")
            for name, path in paths.items()
        ),
        damage=_damage(buffers),
        unset=arguments.unset,
        beyond=tuple(f"{spec.label} (offset {offset})" for offset, spec in arguments.beyond),
        workgroups=len(groups) if groups is not None else math.prod(launch.grid),
    )


def _loaded(
    code: bytes | CodeObject | str | Module, launch: LaunchFile
) -> tuple[CodeObject | Module, KernelCode | Entry, Placed]:
    """What was read, its kernel, and where the arguments go."""
    if isinstance(code, str | Module):
        module = read_ptx(code) if isinstance(code, str) else code
        entry = entry_of(module, launch.kernel)
        return module, entry, placed_parameters(entry, launch)
    loaded = code if isinstance(code, CodeObject) else load_code_object(code)
    kernel = loaded.kernel(launch.kernel)
    return loaded, kernel, placed(kernel, launch)


def _prepared(launch: LaunchFile, files: Files) -> dict[str, Prepared]:
    """The file's buffers by name, together no larger than the memory they may have."""
    folder, outside, room = Path(launch.folder), files.allow_outside, files.max_memory
    buffers: dict[str, Prepared] = {}
    for name, spec in launch.buffers.items():
        buffers[name] = prepare_buffer(name, spec, folder, allow_outside=outside, room=room)
        room -= buffers[name].memory.nbytes
    return buffers


def _others(launch: LaunchFile, buffers: Mapping[str, Prepared]) -> list[Buffer]:
    """The buffers that no argument passes; each has an address."""
    used = {spec.buffer for spec in launch.arguments}
    used |= {made.buffer for made in launch.tensor_maps}
    for name, prepared in buffers.items():
        if name not in used and prepared.spec.address is None:
            raise ConfigError(
                f"buffer {name} is passed to no argument and has no address",
                hint="buffer = in [[arguments]], or address = for what only pointers in memory "
                "reach",
            )
    return [prepared.buffer for name, prepared in buffers.items() if name not in used]


def _damage(buffers: Mapping[str, Prepared]) -> tuple[GuardDamage, ...]:
    return tuple(
        GuardDamage(name, side, distance, count)
        for name, prepared in buffers.items()
        for side, distance, count in prepared.damage()
    )


def _check_grid(launch: LaunchFile, groups: Sequence[Triple] | None) -> None:
    """A grid that a dispatch can have, and no more workgroups than a run takes on unasked."""
    for axis, groups_there, items in zip("xyz", launch.grid, launch.block, strict=True):
        if groups_there * items > _MOST_ITEMS:
            raise ConfigError(
                f"the grid has {groups_there} workgroups of {items} work-items in {axis}; a "
                f"dispatch has at most {_MOST_ITEMS} work-items there"
            )
    count = len(groups) if groups is not None else math.prod(launch.grid)
    if count > _MOST_WORKGROUPS:
        raise ConfigError(
            f"{count} workgroups; a run executes at most {_MOST_WORKGROUPS}",
            hint="--workgroups, or workgroups in the launch file, names some of the grid",
        )


def _argument(
    offset: int, spec: ArgumentSpec, buffers: Mapping[str, Prepared], launch: LaunchFile
) -> Argument:
    if spec.tensor_map is not None:
        made = next(made for made in launch.tensor_maps if made.name == spec.tensor_map)
        words = {name: getattr(made, name) for name in made.__struct_fields__}
        del words["name"]
        prepared = buffers[made.buffer]
        place = prepared.guard + made.buffer_offset
        return Argument(
            offset,
            TensorMap(**{**words, "buffer": prepared.buffer, "buffer_offset": place}),
        )
    if spec.buffer is None:
        assert spec.type is not None and spec.value is not None
        return Argument(offset, scalar(spec.label, spec.type, spec.value))
    prepared = buffers[spec.buffer]
    if not 0 <= spec.buffer_offset <= prepared.array.nbytes:
        raise ConfigError(
            f"{spec.label}: buffer_offset {spec.buffer_offset} lies outside buffer {spec.buffer} "
            f"of {prepared.array.nbytes} bytes"
        )
    return Argument(offset, prepared.buffer, prepared.guard + spec.buffer_offset)


def _output_paths(launch: LaunchFile, folder: Path, allow_outside: bool) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for name, spec in launch.buffers.items():
        if spec.output is None:
            continue
        path = inside(f"buffers.{name}", folder, spec.output, allow_outside)
        for other, taken in paths.items():
            if taken == path:
                raise ConfigError(f"buffers {other} and {name} have the same output {spec.output}")
        paths[name] = path
    return paths
