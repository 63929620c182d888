"""What a launch file tells of the argument segment without its buffers: the bytes of numbers, and
on gfx950 those that the runtime derives from the grid."""

from __future__ import annotations

from collections.abc import Iterator

from mlagen.binary import KernelCode
from mlagen.emulator.launching.launch_file import ArgumentSpec, LaunchFile
from mlagen.emulator.launching.metadata import placed
from mlagen.emulator.launching.parameters import placed_parameters
from mlagen.emulator.launching.scalars import scalar
from mlagen.ptx import Entry


def argument_bytes(kernel: KernelCode | Entry, launch: LaunchFile) -> dict[int, int]:
    """Bytes of a kernel's arguments by their offset, without those of pointers and tensor maps.
    ConfigError for a launch file that does not fit the kernel."""
    if isinstance(kernel, Entry):
        return _numbers(placed_parameters(kernel, launch).passed)
    return {**_derived(kernel, launch), **_numbers(placed(kernel, launch).passed)}


def _numbers(arguments: tuple[tuple[int, ArgumentSpec], ...]) -> dict[int, int]:
    found: dict[int, int] = {}
    for offset, spec in arguments:
        if spec.type is not None and spec.value is not None:
            number = scalar(spec.label, spec.type, spec.value).tobytes()
            found.update(enumerate(number, offset))
    return found


def _derived(kernel: KernelCode, launch: LaunchFile) -> dict[int, int]:
    """What the runtime sets from the launch (LLVM AMDGPUUsage, "Code Object V5 Metadata", value
    kinds). A grid is whole workgroups here, so nothing remains."""
    values = dict(_hidden(launch))
    found: dict[int, int] = {}
    for argument in kernel.info.arguments if kernel.info else ():
        value = values.get(argument.kind, -1)
        if 0 <= value < 1 << 8 * argument.size:
            found.update(enumerate(value.to_bytes(argument.size, "little"), argument.offset))
    return found


def _hidden(launch: LaunchFile) -> Iterator[tuple[str, int]]:
    for axis, blocks, threads in zip("xyz", launch.grid, launch.block, strict=True):
        yield f"hidden_block_count_{axis}", blocks
        yield f"hidden_group_size_{axis}", threads
        yield f"hidden_remainder_{axis}", 0
        yield f"hidden_global_offset_{axis}", 0
    yield "hidden_dynamic_lds_size", launch.dynamic_lds
