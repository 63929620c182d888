"""Items between memory and registers: 1 to 16 bytes in rows of 8 to 128 bits."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    int64,
    load_any_i64,
    load_any_u16,
    load_any_u32,
    load_i64,
    load_u8,
    load_u32,
    store_any_i64,
    store_any_u16,
    store_any_u32,
    store_i64,
    store_u8,
    store_u32,
    uint8,
    uint16,
    uint32,
)
from mlagen.emulator.ptx import layout as y

HIGH = 8 * y.LANES  # bytes from the low halves of a 128-bit register to its high ones


@compiled
def item_at(host: int, size: int, signed: bool) -> int:
    """An item of up to 8 bytes, extended with zeros or its sign."""
    if size == 4:
        word = int64(load_any_u32(host, 0))
    elif size == 8:
        return load_any_i64(host, 0)
    elif size == 2:
        word = int64(load_any_u16(host, 0))
    else:
        word = int64(load_u8(host, 0))
    if signed:
        beyond = 64 - 8 * size
        return (word << beyond) >> beyond
    return word


@compiled
def put_item(host: int, size: int, value: int) -> None:
    """Write the low `size` bytes, at most 8, of a value."""
    if size == 4:
        store_any_u32(host, 0, uint32(value))
    elif size == 8:
        store_any_i64(host, 0, value)
    elif size == 2:
        store_any_u16(host, 0, uint16(value))
    else:
        store_u8(host, 0, uint8(value))


@compiled
def put_register(row: int, lane: int, bits: int, value: int) -> None:
    """Write a lane of a register of up to 64 bits: small ones lie in 32 bits, with zeros above."""
    if bits == 64:
        store_i64(row, lane, value)
    elif bits == 32:
        store_u32(row, lane, uint32(value))
    else:
        store_u32(row, lane, uint32(value & ((1 << bits) - 1)))


@compiled
def register_value(row: int, lane: int, bits: int) -> int:
    """A lane of a register of up to 64 bits, with zeros above."""
    if bits == 64:
        return load_i64(row, lane)
    return int64(load_u32(row, lane))


@compiled
def load_row(row: int, bits: int, hosts: int, at: int, size: int, signed: bool) -> None:
    """An item for each of 32 lanes, from `at` bytes behind its host address."""
    if size == 4 and bits == 32:
        for lane in range(y.LANES):
            store_u32(row, lane, load_any_u32(load_i64(hosts, lane) + at, 0))
    elif size == 8:
        for lane in range(y.LANES):
            store_i64(row, lane, load_any_i64(load_i64(hosts, lane) + at, 0))
    elif size == 2 and bits <= 32 and not signed:
        for lane in range(y.LANES):
            store_u32(row, lane, uint32(load_any_u16(load_i64(hosts, lane) + at, 0)))
    else:
        for lane in range(y.LANES):
            put_register(row, lane, bits, item_at(load_i64(hosts, lane) + at, size, signed))


@compiled
def load_lanes(
    row: int, bits: int, hosts: int, at: int, size: int, signed: bool, mask: int
) -> None:
    """The same for the lanes of a mask."""
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            put_register(row, lane, bits, item_at(load_i64(hosts, lane) + at, size, signed))


@compiled
def poison_lanes(row: int, bits: int, mask: int) -> None:
    """What lanes get whose access could not be made."""
    word = y.POISON << 32 | y.POISON
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            put_register(row, lane, min(bits, 64), word)
            if bits == 128:
                store_i64(row + HIGH, lane, word)


@compiled
def load_item(row: int, bits: int, hosts: int, at: int, size: int, signed: bool, mask: int) -> None:
    """An item of 1 to 16 bytes for the lanes of a mask."""
    if size == 16:
        load_lanes(row + HIGH, 64, hosts, at + 8, 8, False, mask)
        load_lanes(row, 64, hosts, at, 8, False, mask)
    elif mask == y.ALL:
        load_row(row, bits, hosts, at, size, signed)
    else:
        load_lanes(row, bits, hosts, at, size, signed, mask)


@compiled
def store_lanes(row: int, bits: int, hosts: int, at: int, size: int, mask: int) -> None:
    """An item of each lane of a mask, to `at` bytes behind its host address."""
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            put_item(load_i64(hosts, lane) + at, size, register_value(row, lane, bits))


@compiled
def store_item(row: int, bits: int, hosts: int, at: int, size: int, mask: int) -> None:
    """The same for 1 to 16 bytes; lanes of the same address in ascending order."""
    if size == 16:
        store_lanes(row, 64, hosts, at, 8, mask)
        store_lanes(row + HIGH, 64, hosts, at + 8, 8, mask)
    elif mask == y.ALL and size == 4 and bits == 32:
        for lane in range(y.LANES):
            store_any_u32(load_i64(hosts, lane) + at, 0, load_u32(row, lane))
    elif mask == y.ALL and size == 8:
        for lane in range(y.LANES):
            store_any_i64(load_i64(hosts, lane) + at, 0, load_i64(row, lane))
    elif mask == y.ALL and size == 2 and bits <= 32:
        for lane in range(y.LANES):
            store_any_u16(load_i64(hosts, lane) + at, 0, uint16(load_u32(row, lane)))
    else:
        store_lanes(row, bits, hosts, at, size, mask)
