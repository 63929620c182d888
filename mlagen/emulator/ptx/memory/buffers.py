"""Buffers of global memory: which one an address lies in, and where its bytes are."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y


@compiled
def lies_in(context: int, number: int, low: int, last: int, size: int, access: int) -> bool:
    """Whether accesses of `size` bytes at `low` to `last` lie in a buffer that allows them."""
    buffer = load_i64(context, y.C_BUFFERS) + number * (8 * y.B_SIZE)
    base = load_i64(buffer, y.B_BASE)
    room = load_i64(buffer, y.B_BYTES) - size
    return (
        low >= base
        and last >= low
        and last - base <= room
        and load_i64(buffer, y.B_ACCESS) & access == access
    )


@compiled
def global_delta(context: int, low: int, last: int, size: int, access: int) -> int:
    """What has to be added to global addresses to reach their bytes; 0: not all are in one buffer
    that allows the access (1 to read, 2 to write)."""
    count = load_i64(context, y.C_BUFFER_COUNT)
    number = load_i64(context, y.C_HINT)
    if number < 0 or number >= count or not lies_in(context, number, low, last, size, access):
        first = 0  # the last buffer that begins at `low` or before
        beyond = count
        while first < beyond:
            middle = (first + beyond) >> 1
            at = load_i64(context, y.C_BUFFERS) + middle * (8 * y.B_SIZE)
            if load_i64(at, y.B_BASE) <= low:
                first = middle + 1
            else:
                beyond = middle
        number = first - 1
        if number < 0 or not lies_in(context, number, low, last, size, access):
            return 0
        store_i64(context, y.C_HINT, number)
    buffer = load_i64(context, y.C_BUFFERS) + number * (8 * y.B_SIZE)
    return load_i64(buffer, y.B_HOST) - load_i64(buffer, y.B_BASE)


@compiled
def global_shadow(context: int, address: int) -> int:
    """Address of the number of the record of the four bytes of global memory that an address lies
    in; 0 where none are kept: of buffers that nobody writes to."""
    if global_delta(context, address, address, 1, 1) == 0:
        return 0
    number = load_i64(context, y.C_HINT)
    buffer = load_i64(context, y.C_BUFFERS) + number * (8 * y.B_SIZE)
    first = load_i64(buffer, y.B_SHADOW)
    if first < 0:
        return 0
    return load_i64(context, y.C_SHADOW) + first + ((address - load_i64(buffer, y.B_BASE)) & ~3)
