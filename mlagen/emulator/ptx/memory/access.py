"""Loads and stores of a lane each, in every state space."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.memory.items import load_item, poison_lanes, store_item
from mlagen.emulator.ptx.memory.spaces import note_accesses, resolve
from mlagen.emulator.ptx.memory.strong import order_all
from mlagen.emulator.ptx.order.meeting import READ, STRONG_READ, STRONG_WRITE, WRITE
from mlagen.emulator.ptx.state import give_way, listed, moved, place, program_row


@compiled
def run_load(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT. A lane whose address is bad gets poison when the sanitizer goes on."""
    p = program_row(context, row)
    size = load_i64(p, y.P_OP)
    items = load_i64(p, y.P_AUX + z.ITEMS)
    flags = load_i64(p, y.P_FLAGS)
    good = resolve(context, warp, row, mask, size * items, 1)
    if load_i64(context, y.C_FAULT_KIND) != 0:
        return y.NEXT
    if load_i64(context, y.C_SANITIZE) != 0:
        strong = flags & z.STRONG != 0
        note_accesses(context, warp, row, size * items, STRONG_READ if strong else READ)
    hosts = load_i64(context, y.C_TEMP) + 8 * z.HOSTS
    signed = flags & z.SIGNED != 0
    for item in range(items):
        where = listed(context, p, item)
        if where == y.NONE:
            continue
        bits = listed(context, p, items + item)
        destination = place(context, warp, where)
        load_item(destination, bits, hosts, item * size, size, signed, good)
        if good != mask:
            poison_lanes(destination, bits, mask & ~good)
    if flags & z.STRONG != 0:
        give_way(context, warp)
        if flags & z.ACQUIRE != 0 and load_i64(context, y.C_SANITIZE) != 0:
            order_all(context, warp, False)
    return y.NEXT


@compiled
def run_store(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT. A lane whose address is bad stores nothing when the sanitizer goes on."""
    p = program_row(context, row)
    size = load_i64(p, y.P_OP)
    items = load_i64(p, y.P_AUX + z.ITEMS)
    good = resolve(context, warp, row, mask, size * items, 2)
    if load_i64(context, y.C_FAULT_KIND) != 0:
        return y.NEXT
    if load_i64(context, y.C_SANITIZE) != 0:
        flags = load_i64(p, y.P_FLAGS)
        strong = flags & z.STRONG != 0
        note_accesses(context, warp, row, size * items, STRONG_WRITE if strong else WRITE)
        if flags & z.RELEASE != 0:
            order_all(context, warp, True)
    hosts = load_i64(context, y.C_TEMP) + 8 * z.HOSTS
    for item in range(items):
        source = place(context, warp, listed(context, p, item))
        bits = listed(context, p, items + item)
        store_item(source, bits, hosts, item * size, size, good)
    moved(context)
    return y.NEXT
