"""A launch file to start from: what the object's metadata says, the rest to fill in."""

from __future__ import annotations

import json
import re

from mlagen.binary import ArgumentInfo, KernelCode
from mlagen.emulator.launching.segment import is_filler, is_pointer
from mlagen.targets.gfx950.limits import GFX950

_BY_SIZE = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def template(kernel: KernelCode) -> str:
    """TOML text that `parse_launch` reads: one workgroup, zeros and small buffers."""
    threads = kernel.info.max_workgroup_threads if kernel.info else GFX950.wave_size
    lines = [
        f"# A launch: argument segment of {kernel.kernarg_bytes} bytes,",
        f"# {kernel.descriptor.lds_bytes} bytes of LDS.",
        f"kernel = {quoted(kernel.name)}",
        "grid = [1, 1, 1]  # workgroups",
        f"block = [{threads}, 1, 1]  # work-items",
    ]
    declared = kernel.info.arguments if kernel.info else ()
    wanted = [a for a in declared if not is_filler(a)]
    if not declared:
        lines += [
            "# The object declares no arguments: add one table each.",
            "# [[arguments]]",
            "# offset = 0",
            '# type = "u32"',
            "# value = 0",
        ]
    taken: dict[str, int] = {}
    for argument in wanted:
        lines.append("")
        if is_pointer(declared, argument):
            taken[argument.name] = taken.get(argument.name, 0) + 1
            number = taken[argument.name]
            lines += _buffer(
                argument, argument.name if number == 1 else f"{argument.name}_{number}"
            )
        else:
            lines += _scalars(argument)
    return "\n".join(lines) + "\n"


def quoted(name: str) -> str:
    """A TOML string: those of JSON in ASCII are, whatever the object's names hold."""
    return json.dumps(name).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """A TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def _buffer(argument: ArgumentInfo, name: str) -> list[str]:
    return [
        "[[arguments]]",
        f"offset = {argument.offset}",
        f"name = {quoted(argument.name)}",
        f"buffer = {quoted(name)}",
        f"[buffers.{key(name)}]",
        'bytes = 4096  # or: file = "x.npy"; or: dtype = "bf16", shape = [64, 32]',
        '# output = "x.npy"  # written after the run',
    ]


def _scalars(argument: ArgumentInfo) -> list[str]:
    kind = _BY_SIZE.get(argument.size)
    parts = [(argument.offset, kind)] if kind else []
    if not parts:  # a structure: dwords, then what is left
        end = argument.offset + argument.size
        place = argument.offset
        while place < end:
            size = next(s for s in (4, 2, 1) if s <= end - place)
            parts.append((place, _BY_SIZE[size]))
            place += size
    lines: list[str] = []
    for offset, part in parts:
        lines += [
            "[[arguments]]",
            f"offset = {offset}",
            f"name = {quoted(argument.name)}",
            f'type = "{part}"  # of {argument.size} bytes; f32, bf16 … where it is a float',
            "value = 0",
        ]
    return lines
