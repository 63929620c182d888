"""The msgpack metadata note: kernel names, arguments and declared resources.

Schema: LLVM AMDGPUUsage, "Code Object V3+ Metadata". Objects without the note are read too; they
merely have no argument list. Every field has its type and its bounds here: what lies outside is
refused before anything is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from mlagen.binary.elf import printable
from mlagen.errors import BinaryError
from mlagen.targets.gfx950.limits import GFX950

_Word = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Threads = Annotated[int, Meta(ge=0, le=GFX950.max_workgroup_threads)]
_MOST_ARGUMENTS = 1024  # of a kernel; AITER's largest has 158


class _Argument(msgspec.Struct):
    offset: _Word = msgspec.field(name=".offset")
    size: _Word = msgspec.field(name=".size")
    name: str | None = msgspec.field(name=".name", default=None)
    kind: str = msgspec.field(name=".value_kind", default="by_value")


class _Kernel(msgspec.Struct):
    name: str = msgspec.field(name=".name")
    symbol: str | None = msgspec.field(name=".symbol", default=None)
    kernarg_bytes: _Word = msgspec.field(name=".kernarg_segment_size", default=0)
    max_workgroup_threads: _Threads = msgspec.field(
        name=".max_flat_workgroup_size", default=GFX950.max_workgroup_threads
    )
    vgpr_spills: _Word = msgspec.field(name=".vgpr_spill_count", default=0)
    sgpr_spills: _Word = msgspec.field(name=".sgpr_spill_count", default=0)
    agprs: _Word = msgspec.field(name=".agpr_count", default=0)
    arguments: Annotated[list[_Argument], Meta(max_length=_MOST_ARGUMENTS)] = msgspec.field(
        name=".args", default_factory=list
    )


class _Note(msgspec.Struct):
    kernels: list[_Kernel] = msgspec.field(name="amdhsa.kernels", default_factory=list)


_DECODER = msgspec.msgpack.Decoder(_Note)


@dataclass(frozen=True, slots=True)
class ArgumentInfo:
    """One entry of `.args`: offset and size in bytes within the kernel argument segment."""

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What the note says of one kernel."""

    name: str
    symbol: str
    kernarg_bytes: int
    max_workgroup_threads: int
    vgpr_spills: int
    sgpr_spills: int
    agprs: int
    arguments: tuple[ArgumentInfo, ...]


def read_metadata(note: bytes | None) -> tuple[KernelInfo, ...]:
    """Decode the note's descriptor bytes; () when there is no note.

    Raises BinaryError for what is no such note, and for values that no gfx950 kernel can have.
    """
    if note is None:
        return ()
    try:
        decoded = _DECODER.decode(note)
    except (msgspec.DecodeError, ValueError) as why:
        raise BinaryError(f"the metadata note cannot be read: {why}") from None
    except RecursionError:
        raise BinaryError("the metadata note cannot be read: it is nested too deeply") from None
    return tuple(_kernel(item) for item in decoded.kernels)


def _kernel(item: _Kernel) -> KernelInfo:
    arguments = tuple(
        ArgumentInfo(
            name=printable(f"arg{index}" if arg.name is None else arg.name, "an argument"),
            offset=arg.offset,
            size=arg.size,
            kind=printable(arg.kind, "a kind of argument"),
        )
        for index, arg in enumerate(item.arguments)
    )
    name = printable(item.name, "a kernel")
    return KernelInfo(
        name=name,
        symbol=f"{name}.kd" if item.symbol is None else printable(item.symbol, "a kernel's symbol"),
        kernarg_bytes=item.kernarg_bytes,
        max_workgroup_threads=item.max_workgroup_threads,
        vgpr_spills=item.vgpr_spills,
        sgpr_spills=item.sgpr_spills,
        agprs=item.agprs,
        arguments=arguments,
    )
