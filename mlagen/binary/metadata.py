"""The msgpack metadata note: kernel names, arguments and declared resources.

Schema: LLVM AMDGPUUsage, "Code Object V3+ Metadata". Objects without the note are read too; they
merely have no argument list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mlagen.errors import BinaryError


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
    """Decode the note's descriptor bytes; () when there is no note."""
    if note is None:
        return ()
    try:
        root: Any = msgspec.msgpack.decode(note)
        kernels = root.get("amdhsa.kernels", [])
        return tuple(_kernel(item) for item in kernels)
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError) as why:
        raise BinaryError(
            f"the metadata note cannot be read: {type(why).__name__}: {why}"
        ) from None


def _kernel(item: dict[str, Any]) -> KernelInfo:
    arguments = tuple(
        ArgumentInfo(
            name=str(arg.get(".name", f"arg{index}")),
            offset=int(arg[".offset"]),
            size=int(arg[".size"]),
            kind=str(arg.get(".value_kind", "by_value")),
        )
        for index, arg in enumerate(item.get(".args", []))
    )
    return KernelInfo(
        name=str(item[".name"]),
        symbol=str(item.get(".symbol", f"{item['.name']}.kd")),
        kernarg_bytes=int(item.get(".kernarg_segment_size", 0)),
        max_workgroup_threads=int(item.get(".max_flat_workgroup_size", 1024)),
        vgpr_spills=int(item.get(".vgpr_spill_count", 0)),
        sgpr_spills=int(item.get(".sgpr_spill_count", 0)),
        agprs=int(item.get(".agpr_count", 0)),
        arguments=arguments,
    )
