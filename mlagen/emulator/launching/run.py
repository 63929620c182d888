"""Running a launch file: arguments against the object's metadata, the emulator, the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlagen.binary import ArgumentInfo, CodeObject, KernelCode, load_code_object
from mlagen.disk import checked_output
from mlagen.emulator.api import emulate
from mlagen.emulator.buffer import Buffer, Triple
from mlagen.emulator.launch import Argument, EmulationResult, Launch, Settings
from mlagen.emulator.launching.buffers import (
    OutputReport,
    Prepared,
    inside,
    prepare_buffer,
    report_output,
    save,
)
from mlagen.emulator.launching.launch_file import ArgumentSpec, LaunchFile
from mlagen.emulator.launching.scalars import DTYPES, SCALARS, scalar
from mlagen.emulator.launching.segment import POINTER_BYTES, holds_pointer, is_filler, is_pointer
from mlagen.errors import ConfigError

MAX_MEMORY = 1 << 28  # bytes of all buffers unless the caller says more; a run holds each thrice
_MOST_ITEMS = (
    1 << 32
) - 1  # work-items in a dimension (HSA AQL dispatch packet: 32-bit grid sizes)
_MOST_WORKGROUPS = 1 << 20  # of a run: more take days
_LONGEST = 1 << 16  # bytes of arguments, where the object does not say


@dataclass(frozen=True)
class GuardDamage:
    """Bytes of a guard zone that the kernel wrote. `side`: before or after the buffer.

    `distance`: of the nearest one from the buffer's edge; `count`: how many bytes differ.
    """

    buffer: str
    side: str
    distance: int
    count: int

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
    those of outputs in `out`, unless `allow_outside`. `max_memory`: bytes of all its buffers.
    """

    out: str | Path | None = None
    write: bool = False
    allow_outside: bool = False
    max_memory: int = MAX_MEMORY


@dataclass(frozen=True)
class LaunchRun:
    """A run of a launch file. `arrays`: every buffer after it, by name, without guard zones.

    `unset`: arguments that nothing set. `beyond`: those of the file that lie past the argument
    segment, which the runtime does not pass.
    """

    kernel: KernelCode
    result: EmulationResult
    arrays: Mapping[str, np.ndarray]
    outputs: tuple[OutputReport, ...]
    damage: tuple[GuardDamage, ...]
    unset: tuple[str, ...]
    beyond: tuple[str, ...]
    workgroups: int


_SETTINGS, _FILES = Settings(), Files()


def run_launch(
    code: bytes | CodeObject,
    launch: LaunchFile,
    settings: Settings = _SETTINGS,
    files: Files = _FILES,
    *,
    progress: Callable[[int, int], None] | None = None,
    executed: Callable[[int], None] | None = None,
) -> LaunchRun:
    """Run a kernel of a gfx950 code object as a launch file says; see `emulate`.

    `settings.workgroups` replaces the file's. Before anything runs: ConfigError for what cannot be
    had, MissingError for files, WriteError for outputs.
    """
    loaded = code if isinstance(code, CodeObject) else load_code_object(code)
    kernel = loaded.kernel(launch.kernel)
    if launch.dynamic_lds < 0:
        raise ConfigError(f"dynamic_lds is {launch.dynamic_lds}; it is a number of bytes from 0 on")
    every = _placed(kernel, launch)
    segment = kernel.kernarg_bytes or _LONGEST
    placed = [(offset, spec) for offset, spec in every if offset < segment]
    unset = _check_against_metadata(kernel, launch, placed)
    groups = list(settings.workgroups) if settings.workgroups else launch.workgroups
    _check_grid(launch, groups)
    out = Path(files.out) if files.out is not None else Path(launch.folder)
    paths = _output_paths(launch, out, files.allow_outside)
    for path in paths.values() if files.write else ():
        checked_output(path)
    buffers = _prepared(launch, files)
    asked = Launch(
        launch.grid,
        launch.block,
        [_argument(offset, spec, buffers) for offset, spec in placed],
        buffers=_others(every, buffers),
        kernel=kernel.name,
        dynamic_lds_bytes=launch.dynamic_lds,
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
        unset=unset,
        beyond=tuple(
            f"{spec.label} (offset {offset})" for offset, spec in every if offset >= segment
        ),
        workgroups=len(groups) if groups is not None else math.prod(launch.grid),
    )


def _prepared(launch: LaunchFile, files: Files) -> dict[str, Prepared]:
    """The file's buffers by name, together no larger than the memory they may have."""
    folder, outside, room = Path(launch.folder), files.allow_outside, files.max_memory
    buffers: dict[str, Prepared] = {}
    for name, spec in launch.buffers.items():
        buffers[name] = prepare_buffer(name, spec, folder, allow_outside=outside, room=room)
        room -= buffers[name].memory.nbytes
    return buffers


def _others(
    every: Sequence[tuple[int, ArgumentSpec]], buffers: Mapping[str, Prepared]
) -> list[Buffer]:
    """The buffers that no argument passes; each has an address."""
    used = {spec.buffer for _, spec in every}
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


def _placed(kernel: KernelCode, launch: LaunchFile) -> list[tuple[int, ArgumentSpec]]:
    """Arguments with their byte offsets, none over another, none partly outside the segment."""
    result = []
    for spec in launch.arguments:
        offset = spec.offset if spec.offset is not None else _named(kernel, spec.name or "")
        if spec.type is not None and spec.value is not None:
            scalar(spec.label, spec.type, spec.value)  # a wrong value before a wrong size
        result.append((offset, spec))
    limit = kernel.kernarg_bytes or _LONGEST
    ends: list[tuple[int, int, ArgumentSpec]] = []
    for offset, spec in result:
        end = offset + _size(spec)
        if end > limit and (offset < limit or end > _LONGEST):
            raise ConfigError(
                f"{spec.label}: bytes {offset}..{end - 1} lie outside the kernel's argument "
                f"segment of {limit} bytes"
            )
        for first, last, other in ends:
            if offset < last and first < end:
                raise ConfigError(
                    f"{spec.label} (bytes {offset}..{end - 1}) overlaps {other.label} (bytes "
                    f"{first}..{last - 1})"
                )
        ends.append((offset, end, spec))
    return result


def _size(spec: ArgumentSpec) -> int:
    if spec.buffer is not None:
        return POINTER_BYTES
    return DTYPES[spec.type or ""].itemsize


def _named(kernel: KernelCode, name: str) -> int:
    declared = kernel.info.arguments if kernel.info else ()
    found = [argument.offset for argument in declared if argument.name == name]
    if len(found) == 1:
        return found[0]
    if not declared:
        raise ConfigError(f"argument {name} has no offset, and the object declares no arguments")
    known = ", ".join(dict.fromkeys(a.name for a in declared if not is_filler(a)))
    count = "no argument" if not found else f"{len(found)} arguments"
    raise ConfigError(f"kernel {kernel.name} has {count} called {name}", hint=f"it has: {known}")


def _check_against_metadata(
    kernel: KernelCode, launch: LaunchFile, placed: Sequence[tuple[int, ArgumentSpec]]
) -> tuple[str, ...]:
    """Each argument lies in one that the metadata declares; the names of those left unset."""
    declared = kernel.info.arguments if kernel.info else ()
    if not declared:
        return ()
    covered: set[int] = set()
    for offset, spec in placed:
        size = _size(spec)
        covered.update(range(offset, offset + size))
        home = next((a for a in declared if a.offset <= offset < a.offset + a.size), None)
        address = spec.buffer is not None or spec.type in ("u64", "i64")
        room = home is not None and offset + size <= home.offset + home.size
        if home is not None and offset == home.offset and not room:
            passed = spec.buffer is not None or (address and is_pointer(declared, home))
            room = passed and holds_pointer(declared, home)
        if not room:
            _refuse_place(kernel, spec, offset, size, home)
        pointer = home is not None and home.kind == "global_buffer"
        if pointer and not address:
            assert home is not None
            raise ConfigError(
                f"{spec.label}: {home.name} is a pointer, not a {spec.type}",
                hint="buffer = NAME, or type u64 for an address",
            )
    unset = tuple(
        f"{a.name} (offset {a.offset}, {a.size} bytes)"
        for a in declared
        if not is_filler(a) and not covered.issuperset(range(a.offset, a.offset + a.size))
    )
    if unset and not launch.allow_unset:
        raise ConfigError(
            f"arguments of kernel {kernel.name} that the launch file does not set: "
            + ", ".join(unset),
            hint="set them, or allow_unset = true leaves 0x7f in their bytes",
        )
    return unset


def _refuse_place(
    kernel: KernelCode, spec: ArgumentSpec, offset: int, size: int, home: ArgumentInfo | None
) -> None:
    if home is None:
        raise ConfigError(
            f"{spec.label}: kernel {kernel.name} declares no argument at byte {offset}"
        )
    room = home.offset + home.size - offset
    fits = [name for name in SCALARS if DTYPES[name].itemsize <= room]
    raise ConfigError(
        f"{spec.label}: {size} bytes at {offset}, but {home.name} has {home.size} bytes at "
        f"{home.offset}",
        hint="types that fit: " + ", ".join(fits),
    )


def _argument(offset: int, spec: ArgumentSpec, buffers: Mapping[str, Prepared]) -> Argument:
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
