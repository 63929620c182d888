"""Loads from shared memory that may not have read yet.

Hardware issues a load, and goes on: it has read when its value is there, for which the first
instruction waits that uses it. An arrival at a barrier does not, and what it tells of the load is
that it was issued. Accesses through the generic proxy come in order all the same; a copy through
the async proxy overwrites what the load has still to read (docs/ptx_emulator.md, "Loads that are
not over").

So the loads of a warp are kept until a value that was computed from what they load goes into an
instruction that ptxas leaves in its place; until a branch, where arithmetic or a shuffle has had
their value, which ptxas moves behind a release that follows without a branch; or until a fence that
waits for them. Where a release came before, or a copy to shared memory that the warp issued itself,
the load is an access of that later place as well (`meeting.USE`), which a copy has to come after.

C_LOADED has, for a register, the load that its value comes of. Loads that one value comes of are a
group, a ring of numbers, and are over together. Kept are the last KEPT of a warp.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.accesses import span
from mlagen.emulator.ptx.order.clocks import clocks_of, kind_of, own
from mlagen.emulator.ptx.order.meeting import AFTER_WRITE_READ, LATE, USE, packed
from mlagen.emulator.ptx.order.record_sizes import (
    COMPONENT_AT,
    COMPONENTS,
    COPY,
    GENERIC,
    KEPT,
    L_ADDRESSES,
    L_BYTES,
    L_GROUP,
    L_LANES,
    L_NEXT,
    L_NUMBER,
    L_ROW,
    L_SAW,
    L_SIZE,
    L_TAKEN,
    L_TOLD,
    LATE_BIT,
    RECORD_WRITE,
    ROW_AT,
)
from mlagen.emulator.ptx.order.records import record_at, shadow_of
from mlagen.emulator.ptx.state import first_lane, program_row, report, warp_base


@compiled
def kept(context: int, warp: int, number: int) -> int:
    """Address of the L_ words of a warp's load of this number."""
    return load_i64(context, y.C_LOADS) + (warp * KEPT + (number & (KEPT - 1))) * (8 * L_SIZE)


@compiled
def alive(context: int, warp: int, number: int) -> bool:
    """Whether a warp's load of this number may not have read; 0: none."""
    return number != 0 and load_i64(kept(context, warp, number), L_NUMBER) == number


@compiled
def drop(context: int, warp: int, number: int) -> None:
    """A load is looked at no more."""
    load = kept(context, warp, number)
    before = load
    while load_i64(before, L_NEXT) != number:
        before = kept(context, warp, load_i64(before, L_NEXT))
    store_i64(before, L_NEXT, load_i64(load, L_NEXT))
    store_i64(load, L_NUMBER, 0)
    base = warp_base(context, warp)
    store_i64(base, y.W_UNREAD, load_i64(base, y.W_UNREAD) - 1)
    store_i64(base, y.W_TAKEN, load_i64(base, y.W_TAKEN) - load_i64(load, L_TAKEN))


@compiled
def joined(context: int, warp: int, one: int, other: int) -> None:
    """A value comes of two loads, and of all of their groups."""
    first = kept(context, warp, one)
    second = kept(context, warp, other)
    group = load_i64(first, L_GROUP)
    if load_i64(second, L_GROUP) == group:
        return
    load = second
    while load_i64(load, L_GROUP) != group:
        store_i64(load, L_GROUP, group)
        load = kept(context, warp, load_i64(load, L_NEXT))
    after = load_i64(first, L_NEXT)
    store_i64(first, L_NEXT, load_i64(second, L_NEXT))
    store_i64(second, L_NEXT, after)


@compiled
def last_write(context: int, address: int) -> int:
    """The last write of the four bytes at an address in shared memory."""
    number = int64(load_u32(shadow_of(context, address), 0))
    return load_i64(record_at(load_i64(context, y.C_RECORDS), number), RECORD_WRITE)


@compiled
def begun(context: int, warp: int, row: int, lanes: int, addresses: int, size: int) -> None:
    """Lanes of a warp load `size` bytes each from shared memory. `addresses`: 32 int64 words. The
    address that tcgen05.alloc wrote is read once, at the start; where copies overwrite it later,
    that is told of the allocation."""
    saw = last_write(context, load_i64(addresses, first_lane(lanes)))
    if saw != 0 and load_i64(program_row(context, saw >> ROW_AT), y.P_CLASS) == y.X_TENSOR:
        return
    base = warp_base(context, warp)
    number = load_i64(base, y.W_LOADS) + 1
    load = kept(context, warp, number)
    if load_i64(load, L_NUMBER) != 0:
        drop(context, warp, load_i64(load, L_NUMBER))
    store_i64(base, y.W_LOADS, number)
    store_i64(base, y.W_UNREAD, load_i64(base, y.W_UNREAD) + 1)
    store_i64(load, L_NUMBER, number)
    store_i64(load, L_TOLD, load_i64(base, y.W_TOLD))
    store_i64(load, L_ROW, row)
    store_i64(load, L_LANES, lanes)
    store_i64(load, L_BYTES, size)
    store_i64(load, L_GROUP, number)
    store_i64(load, L_NEXT, number)
    store_i64(load, L_TAKEN, 0)
    store_i64(load, L_SAW, saw)
    for lane in range(y.LANES):
        store_i64(load, L_ADDRESSES + lane, load_i64(addresses, lane))
    p = program_row(context, row)
    words = load_i64(context, y.C_LIST)
    loaded = load_i64(context, y.C_LOADED)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    at = load_i64(p, y.P_WRITES)
    for i in range(at, at + load_i64(p, y.P_WRITE_COUNT)):
        store_i64(loaded, first + load_i64(words, i), number)


@compiled
def late(context: int, warp: int, load: int) -> bool:
    """Whether others may take a load to be over for longer than it is."""
    return load_i64(load, L_TOLD) != load_i64(warp_base(context, warp), y.W_TOLD)


@compiled
def overwritten(context: int, warp: int, load: int) -> bool:
    """Whether a copy has overwritten what a load reads since it was issued, which is a finding."""
    address = load_i64(load, L_ADDRESSES + first_lane(load_i64(load, L_LANES)))
    write = last_write(context, address)
    kind = kind_of(context, (write >> COMPONENT_AT) & COMPONENTS)
    by_warp = kind == GENERIC
    if kind == COPY:
        by_warp = True
    if by_warp or write == load_i64(load, L_SAW):
        return False
    row = load_i64(load, L_ROW)
    pair = AFTER_WRITE_READ | LATE
    found = report(context, y.RACE, row, write >> ROW_AT, warp, address, pair, y.ERROR)
    if found != 0:
        store_i64(found, y.F_OTHER_WARP, -1)
        store_i64(found, y.F_RELEASE, load_i64(warp_base(context, warp), y.W_RELEASE))
    return True


@compiled
def over(context: int, warp: int, number: int) -> None:
    """A load has read by now."""
    load = kept(context, warp, number)
    drop(context, warp, number)
    if not late(context, warp, load):
        return
    if overwritten(context, warp, load):
        return
    mine = own(context, warp, GENERIC)
    clock = load_i64(clocks_of(context, warp), mine) + 1
    access = packed(load_i64(load, L_ROW), mine, clock, LATE_BIT)
    lanes = load_i64(load, L_LANES)
    size = load_i64(load, L_BYTES)
    for lane in range(y.LANES):
        if (lanes >> lane) & 1:
            span(context, warp, load_i64(load, L_ADDRESSES + lane), size, access, USE, 0)


@compiled
def group_over(context: int, warp: int, number: int) -> None:
    """A load, and all that a value comes of with it, have read by now."""
    after = load_i64(kept(context, warp, number), L_NEXT)
    while after != number:
        following = load_i64(kept(context, warp, after), L_NEXT)
        over(context, warp, after)
        after = following
    over(context, warp, number)


@compiled
def overwrite(context: int, warp: int, p: int, active: int) -> None:
    """Lanes write the registers of a row: what all lanes write over comes of no load."""
    words = load_i64(context, y.C_LIST)
    loaded = load_i64(context, y.C_LOADED)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    at = load_i64(p, y.P_WRITES)
    for i in range(at, at + load_i64(p, y.P_WRITE_COUNT)):
        slot = first + load_i64(words, i)
        number = load_i64(loaded, slot)
        if number != 0:
            load = kept(context, warp, number)
            if load_i64(load, L_NUMBER) != number or load_i64(load, L_LANES) & ~active == 0:
                store_i64(loaded, slot, 0)


@compiled
def use_loads(context: int, warp: int, row: int, active: int) -> None:
    """Lanes execute a row that ptxas leaves in its place, and that reads or writes registers whose
    values may come of loads."""
    if active == 0:
        return
    p = program_row(context, row)
    words = load_i64(context, y.C_LIST)
    loaded = load_i64(context, y.C_LOADED)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    at = load_i64(p, y.P_READS)
    for i in range(at, at + load_i64(p, y.P_READ_COUNT)):
        slot = first + load_i64(words, i)
        number = load_i64(loaded, slot)
        if number != 0:
            if alive(context, warp, number):
                group_over(context, warp, number)
            store_i64(loaded, slot, 0)
    overwrite(context, warp, p, active)


@compiled
def take(context: int, warp: int, number: int) -> None:
    """Arithmetic has the value of a load."""
    load = kept(context, warp, number)
    if load_i64(load, L_TAKEN) == 0:
        base = warp_base(context, warp)
        store_i64(load, L_TAKEN, 1)
        store_i64(base, y.W_TAKEN, load_i64(base, y.W_TAKEN) + 1)


@compiled
def end_taken(context: int, warp: int) -> None:
    """A warp comes to a branch: what arithmetic before it has used is there."""
    base = warp_base(context, warp)
    last = load_i64(base, y.W_LOADS)
    done = max(load_i64(base, y.W_OVER), last - KEPT)
    whole = True
    for number in range(done + 1, last + 1):
        load = kept(context, warp, number)
        if load_i64(load, L_NUMBER) == number:
            if load_i64(load, L_TAKEN) != 0:
                over(context, warp, number)
            else:
                whole = False
        if whole:
            done = number
    store_i64(base, y.W_OVER, done)


@compiled
def carry_loads(context: int, warp: int, row: int, active: int) -> None:
    """Lanes execute arithmetic: what it writes comes of the loads that its operands come of."""
    if active == 0:
        return
    p = program_row(context, row)
    words = load_i64(context, y.C_LIST)
    loaded = load_i64(context, y.C_LOADED)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    comes = 0
    at = load_i64(p, y.P_READS)
    for i in range(at, at + load_i64(p, y.P_READ_COUNT)):
        slot = first + load_i64(words, i)
        number = load_i64(loaded, slot)
        if number != 0:
            if not alive(context, warp, number):
                store_i64(loaded, slot, 0)
            else:
                take(context, warp, number)
                if comes == 0:
                    comes = number
                else:
                    joined(context, warp, comes, number)
    overwrite(context, warp, p, active)
    if comes == 0:
        return
    at = load_i64(p, y.P_WRITES)
    for i in range(at, at + load_i64(p, y.P_WRITE_COUNT)):
        slot = first + load_i64(words, i)
        number = load_i64(loaded, slot)
        if alive(context, warp, number):  # other lanes
            joined(context, warp, comes, number)
        store_i64(loaded, slot, comes)


@compiled
def carried(context: int, warp: int, number: int) -> bool:
    """Whether a register's value comes of a load."""
    group = load_i64(kept(context, warp, number), L_GROUP)
    loaded = load_i64(context, y.C_LOADED)
    count = load_i64(context, y.C_REGISTER_COUNT)
    for slot in range(warp * count, (warp + 1) * count):
        held = load_i64(loaded, slot)
        if alive(context, warp, held) and load_i64(kept(context, warp, held), L_GROUP) == group:
            return True
    return False


@compiled
def loads_over(context: int, warp: int, lanes: int) -> None:
    """Lanes of a warp wait for all that they load. Of what nobody uses any more nothing is told."""
    base = warp_base(context, warp)
    if load_i64(base, y.W_UNREAD) == 0:
        return
    last = load_i64(base, y.W_LOADS)
    for number in range(max(last - KEPT, 0) + 1, last + 1):
        load = kept(context, warp, number)
        if load_i64(load, L_NUMBER) == number and load_i64(load, L_LANES) & ~lanes == 0:
            if late(context, warp, load) and not carried(context, warp, number):
                drop(context, warp, number)
            else:
                over(context, warp, number)
