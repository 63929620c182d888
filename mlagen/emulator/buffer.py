"""Global memory behind pointers: what users give, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlagen.errors import ConfigError

Access = Literal["read", "write", "readwrite"]
Triple = tuple[int, int, int]

ACCESS = {"read": 1, "write": 3, "readwrite": 3}  # bits of the engines' tables
_FIRST_ADDRESS = 0x1000_0000_0000
_SPACING = 1 << 33
_ADDRESS_LIMIT = 1 << 47


@dataclass(frozen=True, eq=False)
class Buffer:
    """Global memory behind a pointer argument.

    `array`: any C-contiguous numpy array; what the kernel stores is written back into it unless
    `access` is "read". `address`: the simulated address (default: assigned, 4 KiB aligned, with
    guard gaps of more than 4 GiB around it). Accesses outside it are reported under `name`.

    `late`, of PTX alone: the kernel before in the stream writes it. No access is legal before
    `griddepcontrol.wait`, which is over when no warp can go on without it.
    """

    name: str
    array: np.ndarray
    access: Access = "readwrite"
    address: int | None = None
    late: bool = False


def check_buffer(buffer: Buffer, limit: int = _ADDRESS_LIMIT) -> None:
    """ConfigError for a buffer that no kernel can be given; addresses end at `limit`."""
    if not buffer.array.flags.c_contiguous:
        raise ConfigError(f"buffer {buffer.name} is not C-contiguous", hint="np.ascontiguousarray")
    if buffer.access not in ACCESS:
        raise ConfigError(
            f"buffer {buffer.name}: access is {buffer.access!r}; it is one of: " + ", ".join(ACCESS)
        )
    if buffer.access != "read" and not buffer.array.flags.writeable:
        raise ConfigError(f"buffer {buffer.name} is written but its array is read-only")
    address = buffer.address
    if address is None:
        return
    if address % 4 or address <= 0 or address + buffer.array.nbytes > limit:
        shown = f"2^{limit.bit_length() - 1}" if limit & (limit - 1) == 0 else f"{limit:#x}"
        raise ConfigError(
            f"buffer {buffer.name}: address {address:#x} is no multiple of 4 below {shown}"
        )


def assign(buffers: Sequence[Buffer]) -> list[int]:
    """Simulated addresses: fixed ones as asked, the others spaced out; overlaps are refused.

    They are far apart (more than 4 GiB), so an offset that is off by anything a 32-bit register can
    hold falls into a gap and is reported, never into the next buffer.
    """
    taken = [(b.address, b.address + b.array.nbytes) for b in buffers if b.address is not None]
    for first in taken:
        for second in taken:
            if first is not second and first[0] < second[1] and second[0] < first[1]:
                raise ConfigError(f"two buffers overlap at simulated address {second[0]:#x}")
    result = []
    candidate = _FIRST_ADDRESS
    for buffer in buffers:
        if buffer.address is not None:
            result.append(buffer.address)
            continue
        span = buffer.array.nbytes + _SPACING
        while any(candidate - _SPACING < end and start < candidate + span for start, end in taken):
            candidate += _SPACING
        result.append(candidate)
        taken.append((candidate, candidate + buffer.array.nbytes))
        candidate += -(-span // _SPACING) * _SPACING
    return result


def free_address(addresses: Sequence[int], sizes: Sequence[int]) -> int:
    """An address beyond all of these, as far away."""
    highest = max((a + s for a, s in zip(addresses, sizes, strict=False)), default=_FIRST_ADDRESS)
    return (highest // _SPACING + 2) * _SPACING
