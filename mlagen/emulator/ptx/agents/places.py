"""Addresses and operands of agents' instructions: every address is checked before it is used."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    int64,
    load_any_i64,
    load_any_u32,
    load_i64,
    load_u8,
    load_u32,
    store_any_i64,
    store_any_u32,
    store_u8,
    uint8,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.memory.buffers import global_delta
from mlagen.emulator.ptx.state import fault, place


@compiled
def operand(context: int, warp: int, p: int, number: int, lane: int) -> int:
    """Operand `number` of a row, for a lane: 64 bits, or 32 with zeros above."""
    words = load_i64(context, y.C_LIST) + 8 * (load_i64(p, y.P_LIST) + a.OPERAND * number)
    bits = load_i64(words, 1)
    more = load_i64(words, 2)
    if bits == 0:
        return load_i64(words, 0) + more
    row = place(context, warp, load_i64(words, 0))
    if bits == 64:
        return load_i64(row, lane) + more
    return (int64(load_u32(row, lane)) + more) & 0xFFFFFFFF


@compiled
def signed(value: int) -> int:
    """The 32-bit number in the low half."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


@compiled
def shared_place(context: int, row: int, address: int, size: int, align: int) -> int:
    """rank << RANK_SHIFT | offset of `size` bytes of shared memory; -1 after a fault."""
    if address >= y.GENERIC_SHARED and address < y.GENERIC_END:
        address -= y.GENERIC_SHARED
    offset = address & ((1 << y.RANK_SHIFT) - 1)
    rank = address >> y.RANK_SHIFT
    last = load_i64(context, y.C_SHARED_BYTES)
    bad = rank < 0 or rank >= load_i64(context, y.C_CTAS_ALL)
    if bad or size < 0 or offset < y.SHARED_FIRST or offset + size > last:
        fault(context, row, y.FAULT_SHARED, address, size)
        return -1
    if offset & (align - 1) != 0:
        fault(context, row, y.FAULT_ALIGN, address, align)
        return -1
    return address


@compiled
def shared_host(context: int, where: int) -> int:
    """Host address of a place in shared memory that `shared_place` gave."""
    room = load_i64(context, y.C_SHARED_ROOM)
    offset = where & ((1 << y.RANK_SHIFT) - 1)
    return load_i64(context, y.C_SHARED) + (where >> y.RANK_SHIFT) * room + offset


@compiled
def buffer_host(context: int, address: int, size: int, access: int) -> int:
    """Host address of `size` bytes of global memory; 0 where no buffer has them all with this
    access (1 to read, 2 to write)."""
    if size < 0:
        return 0
    delta = global_delta(context, address, address, size, access)
    return address + delta if delta != 0 else 0


@compiled
def global_host(context: int, row: int, address: int, size: int, access: int) -> int:
    """The same; 0 after a fault."""
    host = buffer_host(context, address, size, access)
    if host == 0:
        fault(context, row, y.FAULT_GLOBAL, address, size)
    return host


@compiled
def any_host(context: int, row: int, address: int, size: int) -> int:
    """Host address of `size` bytes to read at a generic address; 0 after a fault."""
    if address >= y.GENERIC_SHARED and address < y.GENERIC_END:
        where = shared_place(context, row, address, size, 1)
        return shared_host(context, where) if where >= 0 else 0
    if address >= y.GENERIC_PARAM and address < y.GENERIC_LOCAL:
        offset = address - y.GENERIC_PARAM
        if offset + size <= load_i64(context, y.C_PARAM_BYTES):
            return load_i64(context, y.C_PARAM) + offset
    elif address >= y.GENERIC_CONST and address < y.GENERIC_PARAM:
        offset = address - y.GENERIC_CONST
        if offset + size <= load_i64(context, y.C_CONST_BYTES):
            return load_i64(context, y.C_CONST) + offset
    return global_host(context, row, address, size, 1)


@compiled
def copy_bytes(destination: int, source: int, count: int) -> None:
    """Copy bytes between host addresses that were checked."""
    if count == 16:
        low = load_any_i64(source, 0)
        high = load_any_i64(source, 1)
        store_any_i64(destination, 0, low)
        store_any_i64(destination, 1, high)
        return
    words = count >> 2
    for i in range(words):
        store_any_u32(destination, i, load_any_u32(source, i))
    for i in range(words << 2, count):
        store_u8(destination, i, load_u8(source, i))


@compiled
def clear_bytes(destination: int, count: int) -> None:
    """Bytes at a host address become 0."""
    for i in range(count):
        store_u8(destination, i, uint8(0))
