"""Global memory of a run: buffers at simulated addresses, backed by one arena of bytes, and large
ones by the callers' own arrays.

Simulated addresses are far apart (more than 4 GiB), so an offset that is off by anything a 32-bit
register can hold falls into a gap and is reported, never into the next buffer.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from mlagen.emulator.buffer import ACCESS, Buffer, assign, check_buffer, free_address
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.launch import Argument
from mlagen.emulator.tensor_maps import TensorMap
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.room import require_room

_ARENA_ALIGN = 256
_LARGE = (
    1 << 25
)  # bytes: a buffer that is not copied; from there on glibc mostly begins a page for each
_PAGE, _OVER = 4096, 16  # bytes of the host's pages; that a load may reach over a buffer's end
_LARGEST_KERNARG = 1 << 20


@dataclass(frozen=True)
class BufferArena:
    """The arena, the buffer table (rows of layout.B_*), and where each buffer's bytes lie: `held`,
    in the buffers' order, then those of the argument segment. Their places in the table count from
    the host's address `origin`.

    `unset`: by dword of the argument segment, 1 where no argument set a byte of it.
    """

    arena: np.ndarray
    origin: int
    table: np.ndarray
    buffers: tuple[Buffer, ...]
    held: tuple[np.ndarray, ...]
    kernarg_address: int
    unset: np.ndarray

    def write_back(self) -> None:
        """Copy what the kernel stored into the callers' arrays, where it is not there already."""
        for buffer, held in zip(self.buffers, self.held, strict=False):
            if buffer.access == "read" or np.may_share_memory(held, buffer.array):
                continue
            buffer.array.reshape(-1).view(np.uint8)[:] = held

    def address_of(self, offset: int) -> int:
        """The simulated address of a byte that lies in a buffer, by its place."""
        inside = offset - self.table[:, y.B_ARENA]
        row = self.table[(inside >= 0) & (inside < self.table[:, y.B_BYTES])][0]
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
    arguments: Sequence[Argument],
    kernarg_bytes: int,
    others: Sequence[Buffer] = (),
    *,
    in_place: bool = False,
) -> BufferArena:
    """Lay out buffers and the argument segment. ConfigError for what cannot be passed, and where
    this machine has not the memory. `in_place`: the kernel works on large arrays themselves."""
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
    own = [_bytes_of(buffer) for buffer in buffers]
    arena, held = _held([*own, kernarg], _placeable(own) if in_place else set())
    origin = min(part.ctypes.data for part in (arena, *held) if part.size)
    sizes = [part.size for part in held]
    addresses.append(free_address(addresses, sizes))
    table = np.zeros((len(held), y.B_SIZE), dtype=np.int64)
    for number, part in enumerate(held):
        access = ACCESS[buffers[number].access] if number < len(buffers) else 1
        place = part.ctypes.data - origin if part.size else 0
        table[number] = (addresses[number], part.size, place, access)
    return BufferArena(arena, origin, table, tuple(buffers), tuple(held), addresses[-1], unset)


def _bytes_of(buffer: Buffer) -> np.ndarray:
    return buffer.array.reshape(-1).view(np.uint8)


def _placeable(own: Sequence[np.ndarray]) -> set[int]:
    """Numbers of the large arrays that the kernel can work on themselves: they lie alike to cache
    lines, and behind each is some more of its last page."""
    large = [
        (part.size, number)
        for number, part in enumerate(own)
        if part.size >= _LARGE and 0 < (part.ctypes.data + part.size) % _PAGE <= _PAGE - _OVER
    ]
    if not large:
        return set()
    phase = own[max(large)[1]].ctypes.data % _ARENA_ALIGN
    return {n for _, n in large if own[n].ctypes.data % _ARENA_ALIGN == phase and phase % 16 == 0}


def _held(own: Sequence[np.ndarray], in_place: Set[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The arena, which has copies of all but those in place, and where the bytes of each are."""
    phase = next((own[n].ctypes.data % _ARENA_ALIGN for n in in_place), 0)
    starts, end = [], 0
    for number, part in enumerate(own):
        starts.append(end)
        if number not in in_place:
            end += -(-(part.size + 8) // _ARENA_ALIGN) * _ARENA_ALIGN
    require_room(end, "the emulator's copies of a launch's buffers")
    whole = np.zeros(end + _ARENA_ALIGN, dtype=np.uint8)
    first = (phase - whole.ctypes.data) % _ARENA_ALIGN
    arena = whole[first : first + end]
    held = []
    for number, part in enumerate(own):
        if number in in_place:
            held.append(part)
            continue
        copy = arena[starts[number] : starts[number] + part.size]
        copy[:] = part
        held.append(copy)
    return arena, held
