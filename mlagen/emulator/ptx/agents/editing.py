"""Tensor maps that a kernel makes: tensormap.replace, tensormap.cp_fenceproxy.

The 128 bytes have their fields as `layout` says under ME_; a map that the host made is taken apart
into these when its first field is replaced.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    load_i64,
    store_i64,
    store_u8,
    store_u16,
    store_u32,
    uint8,
    uint16,
    uint32,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.places import (
    copy_bytes,
    global_host,
    operand,
    shared_host,
    shared_place,
)
from mlagen.emulator.ptx.order.accesses import shared_lanes
from mlagen.emulator.ptx.order.global_accesses import global_lanes
from mlagen.emulator.ptx.order.maps import map_edited
from mlagen.emulator.ptx.order.meeting import READ, WRITE
from mlagen.emulator.ptx.state import fault, first_lane, program_row

# P_TYPE: the field; those with an ordinal last
ADDRESS, RANK, ELEMENT, INTERLEAVE, SWIZZLE, FILL, BOX, DIM, STRIDE, STEP = range(10)
IN_GLOBAL = 1  # P_FLAGS


@compiled
def take_apart(context: int, host: int) -> None:
    """The bytes of a map as fields."""
    if load_i64(host, 0) == a.MAP_EDITED:
        return
    index = load_i64(host, 1)
    known = load_i64(host, 0) == a.MAP_MAGIC and index >= 0
    known = known and index < load_i64(context, y.C_MAP_COUNT)
    words = load_i64(context, y.C_MAPS) + index * (8 * a.M_SIZE)
    for i in range(a.MAP_BYTES // 8):
        store_i64(host, i, 0)
    store_i64(host, 0, a.MAP_EDITED)
    if not known:
        return
    store_i64(host, a.ME_BASE, load_i64(words, a.M_BASE))
    kinds = host + 8 * a.ME_KINDS
    store_u8(kinds, 0, uint8(load_i64(words, a.M_RANK) - 1))
    store_u8(kinds, 1, uint8(load_i64(words, a.M_TYPE)))
    store_u8(kinds, 3, uint8(load_i64(words, a.M_SWIZZLE)))
    store_u8(kinds, 4, uint8(load_i64(words, a.M_FILL)))
    for axis in range(5):
        dim = load_i64(words, a.M_DIMS + axis) & 0xFFFFFFFF
        store_u32(host + 8 * a.ME_DIMS, axis, uint32(dim))
        if axis > 0:
            store_i64(host, a.ME_STRIDES + axis - 1, load_i64(words, a.M_STRIDES + axis))
        store_u16(host + 8 * a.ME_BOX, axis, uint16(load_i64(words, a.M_BOX + axis)))
        store_u8(host + 8 * a.ME_BOX, 10 + axis, uint8(load_i64(words, a.M_STEPS + axis)))


@compiled
def set_field(host: int, field: int, axis: int, value: int) -> bool:
    """A field of a map; False where there is no such axis."""
    kinds = host + 8 * a.ME_KINDS
    if axis < 0 or axis > 4 or (field == STRIDE and axis > 3):
        return False
    if field == ADDRESS:
        store_i64(host, a.ME_BASE, value)
    elif field <= FILL:
        store_u8(kinds, field - RANK, uint8(min(value & 0xFFFFFFFF, 255)))
    elif field == DIM:
        store_u32(host + 8 * a.ME_DIMS, axis, uint32(value))
    elif field == STRIDE:
        store_i64(host, a.ME_STRIDES + axis, value)
    elif field == BOX:
        box = min(value & 0xFFFFFFFF, 0xFFFF)
        store_u16(host + 8 * a.ME_BOX, axis, uint16(box))
    else:
        store_u8(host + 8 * a.ME_BOX, 10 + axis, uint8(min(value & 0xFFFFFFFF, 255)))
    return True


@compiled
def replace_field(context: int, warp: int, row: int, mask: int) -> None:
    """tensormap.replace: of all lanes the same."""
    p = program_row(context, row)
    temp = load_i64(context, y.C_TEMP)
    in_global = load_i64(p, y.P_FLAGS) & IN_GLOBAL != 0
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        address = operand(context, warp, p, 0, lane)
        host = 0
        if in_global and address < y.GENERIC_CONST:
            host = global_host(context, row, address, a.MAP_BYTES, 2)
            if load_i64(context, y.C_EDITS) != 0:
                map_edited(context, warp, row, address, 0)
        else:
            address = shared_place(context, row, address, a.MAP_BYTES, 64)
            if address >= 0:
                host = shared_host(context, address)
        if host == 0:
            return
        store_i64(temp, lane, address)
        take_apart(context, host)
        axis = operand(context, warp, p, 1, lane)
        if not set_field(host, load_i64(p, y.P_TYPE), axis, operand(context, warp, p, 2, lane)):
            fault(context, row, y.FAULT_MAP, axis, a.BAD_EDIT)
            return
    if load_i64(context, y.C_SANITIZE) != 0 and not in_global:
        one = 1 << first_lane(mask)
        shared_lanes(context, warp, row, one, temp, 8, WRITE)


@compiled
def copy_map(context: int, warp: int, row: int, mask: int) -> None:
    """tensormap.cp_fenceproxy: the 128 bytes go from shared to global memory."""
    p = program_row(context, row)
    lane = first_lane(mask)
    where = shared_place(context, row, operand(context, warp, p, 1, lane), a.MAP_BYTES, 16)
    if where < 0:
        return
    target = operand(context, warp, p, 0, lane)
    host = global_host(context, row, target, a.MAP_BYTES, 2)
    if host == 0:
        return
    copy_bytes(host, shared_host(context, where), a.MAP_BYTES)
    if load_i64(context, y.C_SANITIZE) != 0:
        temp = load_i64(context, y.C_TEMP)
        store_i64(temp, lane, where)
        shared_lanes(context, warp, row, 1 << lane, temp, 8, READ)
        store_i64(temp, lane, target)
        global_lanes(context, warp, row, 1 << lane, temp, 8, WRITE)
        map_edited(context, warp, row, target, 1)
