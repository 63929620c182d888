"""Global memory and the parameter space of a launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.emulator.buffer import ACCESS, Buffer, assign, check_buffer
from mlagen.emulator.launch import Argument, Launch
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.host.map_records import passed, record
from mlagen.emulator.ptx.machine import GlobalBuffer
from mlagen.emulator.ptx.program import Program
from mlagen.emulator.tensor_maps import ALIGN, BYTES, TensorMap
from mlagen.errors import ConfigError
from mlagen.ptx import Parameter

_UNSET = 0x7F  # what bytes hold that no argument sets
_LIMIT = y.GENERIC_CONST  # where the windows of the generic address space begin
_POINTER = 8


@dataclass(frozen=True)
class LaunchMemory:
    """`buffers`: the caller's, then the module's variables. `given`: which bytes of the parameter
    space some argument sets."""

    buffers: tuple[GlobalBuffer, ...]
    parameters: np.ndarray
    given: np.ndarray
    maps: np.ndarray

    def is_late(self, address: int) -> bool:
        """Whether an address is that of a buffer which the kernel before writes."""
        return any(b.late and 0 <= address - b.base < b.array.nbytes for b in self.buffers)

    def place_of(self, address: int) -> tuple[str, str]:
        """The buffer nearest to an address, and the address in its words."""
        best, distance = None, 0
        for buffer in self.buffers:
            end = buffer.base + buffer.array.nbytes
            away = buffer.base - address if address < buffer.base else max(address - end + 1, 0)
            if best is None or away < distance:
                best, distance = buffer, away
        if best is None or distance > 1 << 40:
            return "no buffer", f"address {address:#x}"
        offset = address - best.base
        sign = "+" if offset >= 0 else "-"
        what = f"buffer {best.name}"
        return what, f"{what} {sign} {abs(offset):#x} (size {best.array.nbytes:#x})"


def build_memory(program: Program, launch: Launch) -> LaunchMemory:
    """Lay out buffers, tensor maps and parameters. ConfigError for what cannot be passed."""
    buffers: list[Buffer] = []
    for value in (*(argument.value for argument in launch.arguments), *launch.buffers):
        buffer = value.buffer if isinstance(value, TensorMap) else value
        if isinstance(buffer, Buffer) and buffer not in buffers:
            check_buffer(buffer, _LIMIT)
            buffers.append(buffer)
    variables = [
        Buffer(v.name, v.content.copy(), "readwrite", v.address) for v in program.globals
    ]  # asked for, so that overlaps are refused
    every = [*buffers, *variables]
    addresses = assign(every)
    home = dict(zip(map(id, every), addresses, strict=True))
    parameters = np.full(max(program.parameter_bytes, 8), _UNSET, np.uint8)
    given = np.zeros(parameters.size, bool)
    maps: list[list[int]] = []
    for argument in launch.arguments:
        what = _place(program, argument)
        value = argument.value
        if isinstance(value, TensorMap):
            address = home[id(value.buffer)] + value.buffer_offset
            value.check(what, address)
            raw = passed(len(maps))
            maps.append(record(value, address))
        elif isinstance(value, Buffer):
            raw = np.uint64(home[id(value)] + argument.buffer_offset).tobytes()
        else:
            raw = value.tobytes()
        at = slice(argument.offset, argument.offset + len(raw))
        if given[at].any():
            raise ConfigError(f"{what}: bytes {at.start}..{at.stop - 1} are set twice")
        parameters[at], given[at] = np.frombuffer(raw, np.uint8), True
    return LaunchMemory(
        tuple(
            GlobalBuffer(base, b.array.reshape(-1).view(np.uint8), ACCESS[b.access], b.name, b.late)
            for base, b in zip(addresses, every, strict=True)
        ),
        parameters,
        given,
        np.array(maps, np.int64) if maps else np.zeros((0, 32), np.int64),
    )


def size_of(argument: Argument) -> int:
    """Bytes that an argument takes."""
    if isinstance(argument.value, Buffer):
        return _POINTER
    return BYTES if isinstance(argument.value, TensorMap) else argument.value.nbytes


def parameter_at(program: Program, offset: int) -> tuple[Parameter, int] | None:
    """The parameter that a byte of the parameter space belongs to, and where it begins."""
    for parameter in program.entry.parameters:
        start = program.parameters[parameter.name]
        if start <= offset < start + parameter.size:
            return parameter, start
    return None


def _place(program: Program, argument: Argument) -> str:
    """The parameter's name for messages; ConfigError for an argument that does not fit one."""
    found = parameter_at(program, argument.offset)
    if found is None:
        known = ", ".join(f"{name} at {program.parameters[name]}" for name in program.parameters)
        raise ConfigError(
            f"{program.entry.name} has no parameter at byte {argument.offset}",
            hint=f"parameters: {known or 'none'}",
        )
    parameter, start = found
    what, size = f"parameter {parameter.name}", size_of(argument)
    structure = parameter.size > 8
    if argument.offset + size > start + parameter.size or (
        not structure and size != parameter.size
    ):
        raise ConfigError(
            f"{what} has {parameter.size} bytes (.{parameter.type}) at {start}; the argument has "
            f"{size} at {argument.offset}"
        )
    if isinstance(argument.value, TensorMap) and (
        argument.offset % ALIGN or parameter.align % ALIGN
    ):
        raise ConfigError(
            f"{what}: a tensor map at byte {argument.offset} of parameters aligned to "
            f"{parameter.align}; it lies at a multiple of {ALIGN}"
        )
    return what


def unset(program: Program, given: np.ndarray) -> list[str]:
    """Parameters that no argument sets whole, in words."""
    found = []
    for parameter in program.entry.parameters:
        start = program.parameters[parameter.name]
        missing = int((~given[start : start + parameter.size]).sum())
        if missing:
            part = "" if missing == parameter.size else f"{missing} of "
            found.append(f"{parameter.name} ({part}{parameter.size} bytes at {start})")
    return found
