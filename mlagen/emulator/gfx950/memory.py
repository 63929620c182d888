"""Global memory of a run: buffers at simulated addresses, backed by one arena of bytes.

Simulated addresses are far apart (more than 4 GiB), so an offset that is off by anything a 32-bit
register can hold falls into a gap and is reported, never into the next buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.emulator.buffer import ACCESS, Buffer, assign, check_buffer, free_address
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.launch import Argument
from mlagen.emulator.tensor_maps import TensorMap
from mlagen.errors import ConfigError, UnsupportedError

_ARENA_ALIGN = 256
_LARGEST_KERNARG = 1 << 20


@dataclass(frozen=True)
class Memory:
    """The arena, the buffer table (rows of layout.B_*), and where each buffer's bytes lie.

    `unset`: by dword of the argument segment, 1 where no argument set a byte of it.
    """

    arena: np.ndarray
    table: np.ndarray
    buffers: tuple[Buffer, ...]
    kernarg_address: int
    unset: np.ndarray

    def write_back(self) -> None:
        """Copy what the kernel stored into the callers' arrays."""
        for number, buffer in enumerate(self.buffers):
            if buffer.access == "read" or not buffer.array.nbytes:
                continue
            start = int(self.table[number, y.B_ARENA])
            flat = buffer.array.reshape(-1).view(np.uint8)
            flat[:] = self.arena[start : start + flat.size]

    def address_of(self, offset: int) -> int:
        """The simulated address of a byte of the arena that lies in a buffer."""
        row = self.table[self.table[:, y.B_ARENA] <= offset][-1]
        return int(row[y.B_BASE] + offset - row[y.B_ARENA])

    def name_of(self, address: int) -> str:
        """The buffer nearest to an address, and how far outside it the address lies."""
        best, distance = "no buffer", None
        for number, row in enumerate(self.table.tolist()):
            base, size = row[y.B_BASE], row[y.B_BYTES]
            away = base - address if address < base else max(address - (base + size - 1), 0)
            if distance is None or away < distance:
                name = self.buffers[number].name if number < len(self.buffers) else "kernarg"
                best, distance = f"buffer {name}", away
        return best

    def place_in(self, address: int) -> str:
        """`buffer k + 0x120` (or `- 16`) for messages."""
        name = self.name_of(address)
        for number, row in enumerate(self.table.tolist()):
            label = self.buffers[number].name if number < len(self.buffers) else "kernarg"
            if f"buffer {label}" == name:
                offset = address - row[y.B_BASE]
                sign = "+" if offset >= 0 else "-"
                return f"{name} {sign} {abs(offset):#x} (size {row[y.B_BYTES]:#x})"
        return f"address {address:#x}"


def build_memory(
    arguments: Sequence[Argument], kernarg_bytes: int, others: Sequence[Buffer] = ()
) -> Memory:
    """Lay out buffers and the argument segment. ConfigError for what cannot be passed."""
    buffers: list[Buffer] = []
    for argument in arguments:
        if isinstance(argument.value, TensorMap):
            raise ConfigError("a tensor map is passed to gfx950 code, which knows none")
    passed = [argument.value for argument in arguments]
    for value in (*passed, *others):
        if isinstance(value, Buffer) and value not in buffers:
            check_buffer(value)
            if value.late:
                raise ConfigError(f"buffer {value.name} is late; that is of PTX alone")
            buffers.append(value)
    addresses = assign(buffers)
    needed = kernarg_bytes
    for argument in arguments:
        size = 8 if isinstance(argument.value, Buffer) else argument.value.nbytes
        if argument.offset < 0:
            raise ConfigError(f"an argument has the negative offset {argument.offset}")
        needed = max(needed, argument.offset + size)
    if kernarg_bytes and needed > kernarg_bytes:
        raise ConfigError(
            f"an argument ends at byte {needed} of an argument segment of {kernarg_bytes} bytes"
        )
    if needed > _LARGEST_KERNARG:
        raise UnsupportedError(
            f"the kernel declares {needed} bytes of arguments; the emulator passes at most "
            f"{_LARGEST_KERNARG}"
        )
    # The segment is 16-byte aligned memory, and compilers load whole 16 bytes at its end.
    kernarg = np.full(-(-max(needed, 8) // 16) * 16, 0x7F, dtype=np.uint8)
    given = np.zeros(kernarg.size, dtype=bool)
    for argument in arguments:
        value = argument.value
        if isinstance(value, Buffer):
            place = addresses[buffers.index(value)] + argument.buffer_offset
            raw = np.uint64(place).tobytes()
        else:
            assert not isinstance(value, TensorMap)
            raw = value.tobytes()
        kernarg[argument.offset : argument.offset + len(raw)] = np.frombuffer(raw, np.uint8)
        given[argument.offset : argument.offset + len(raw)] = True
    unset = np.asarray(~given.reshape(-1, 4).any(axis=1), dtype=np.int64)
    sizes = [buffer.array.nbytes for buffer in buffers] + [kernarg.size]
    table = np.zeros((len(sizes), y.B_SIZE), dtype=np.int64)
    place = 0
    for number, size in enumerate(sizes):
        access = ACCESS[buffers[number].access] if number < len(buffers) else 1
        base = addresses[number] if number < len(buffers) else free_address(addresses, sizes)
        table[number] = (base, size, place, access)
        place += -(-(size + 8) // _ARENA_ALIGN) * _ARENA_ALIGN
    arena = np.zeros(place, dtype=np.uint8)
    for number, buffer in enumerate(buffers):
        start = int(table[number, y.B_ARENA])
        arena[start : start + sizes[number]] = buffer.array.reshape(-1).view(np.uint8)
    start = int(table[len(buffers), y.B_ARENA])
    arena[start : start + kernarg.size] = kernarg
    return Memory(arena, table, tuple(buffers), int(table[len(buffers), y.B_BASE]), unset)
