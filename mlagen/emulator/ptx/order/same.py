"""Stores that change nothing: two warps that write the same value to the same place.

Nothing orders them, and nothing has to: memory holds that value whichever comes last. Compilers let
every warp that has a copy of a value store it.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u8, load_u32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.state import first_lane, listed, place, program_row


@compiled
def same_byte(context: int, warp: int, p: int, lane: int, offset: int) -> bool:
    """Whether byte `offset` of what a store's lane writes is in memory already."""
    size = load_i64(p, y.P_OP)
    item = offset // size
    bits = listed(context, p, load_i64(p, y.P_AUX + z.ITEMS) + item)
    within = offset - item * size
    source = place(context, warp, listed(context, p, item))
    if within >= 8:  # the high half of 128 bits
        source += 8 * y.LANES
        within -= 8
    wide = 8 if bits >= 64 else 4
    host = load_i64(load_i64(context, y.C_TEMP), z.HOSTS + lane) + offset
    return int64(load_u8(source + wide * lane, within)) == int64(load_u8(host, 0))


@compiled
def one_value(context: int, warp: int, row: int, lanes: int) -> bool:
    """Whether row `row` is a store whose lanes all have the same value."""
    p = program_row(context, row)
    if load_i64(p, y.P_CLASS) != y.X_STORE:
        return False
    items = load_i64(p, y.P_AUX + z.ITEMS)
    first = first_lane(lanes)
    for item in range(items):
        bits = listed(context, p, items + item)
        source = place(context, warp, listed(context, p, item))
        for lane in range(y.LANES):
            if (lanes >> lane) & 1 == 0:
                continue
            differ = False
            if bits < 64:
                differ = load_u32(source, lane) != load_u32(source, first)
            else:
                differ = load_i64(source, lane) != load_i64(source, first)
            if bits > 64:
                differ |= load_i64(source, y.LANES + lane) != load_i64(source, y.LANES + first)
            if differ:
                return False
    return True


@compiled
def changes_nothing(context: int, warp: int, row: int, address: int) -> bool:
    """Whether row `row`, which `warp` is about to execute, is a store that leaves the bytes from
    `address` to the end of its four as they are."""
    p = program_row(context, row)
    if load_i64(p, y.P_CLASS) != y.X_STORE:
        return False
    temp = load_i64(context, y.C_TEMP)
    lanes = load_i64(temp, z.SHARED_LANES) | load_i64(temp, z.GLOBAL_LANES)
    size = load_i64(p, y.P_OP) * load_i64(p, y.P_AUX + z.ITEMS)
    for lane in range(y.LANES):
        if (lanes >> lane) & 1:
            first = load_i64(temp, z.ADDRESSES + lane)
            at = max(first, address)
            end = min(first + size, (address | 3) + 1)
            while at < end:
                if not same_byte(context, warp, p, lane, at - first):
                    return False
                at += 1
    return True
