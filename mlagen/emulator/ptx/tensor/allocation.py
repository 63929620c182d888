"""Columns of tensor memory: allocated, freed, the permit to allocate."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents.places import operand, shared_host, shared_place
from mlagen.emulator.ptx.order.accesses import shared_lanes
from mlagen.emulator.ptx.order.clocks import GENERIC, clocks_of, own
from mlagen.emulator.ptx.order.meeting import WRITE, packed
from mlagen.emulator.ptx.order.records import record_of_one, shadow_of
from mlagen.emulator.ptx.state import (
    cta_of,
    fault,
    first_lane,
    give_way,
    moved,
    program_row,
    warp_base,
)
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.emulator.ptx.tensor.cells import (
    cell_host,
    cell_place,
    is_pair,
    misuse,
    note_cells,
    take_group,
)
from mlagen.emulator.ptx.tensor.word_places import cta_words


@compiled
def free_units(words: int, count: int) -> int:
    """The first of `count` free units that lie together; -1 for none."""
    together = 0
    for unit in range(t.UNITS):
        together = together + 1 if load_i64(words, t.TC_OWNER + unit) == 0 else 0
        if together == count:
            return unit - count + 1
    return -1


@compiled
def good_columns(columns: int) -> bool:
    """Whether an allocation can have so many."""
    return columns >= t.UNIT and columns <= t.COLUMNS and columns & (columns - 1) == 0


@compiled
def forget(context: int, warp: int, row: int, first: int, columns: int) -> None:
    """Cells that nobody has written, and that `warp` has allocated: as a read of its own, which
    what others do with them has to come after."""
    cta = cta_of(context, warp)
    record = 0
    if load_i64(context, y.C_SANITIZE) != 0:
        number = own(context, warp, GENERIC)
        clock = load_i64(clocks_of(context, warp), number) + 1
        record = record_of_one(context, packed(row, number, clock, 15))
    for lane in range(t.LANES):
        address = (lane << 16) | first
        host = cell_host(context, cta, address)
        for i in range(columns):
            store_u32(host, i, uint32(y.POISON))
        if load_i64(context, y.C_SANITIZE) != 0:
            shadow = shadow_of(context, cell_place(context, cta, address))
            for i in range(columns):
                store_u32(shadow, i, uint32(record))


@compiled
def allocate(context: int, warp: int, row: int, mask: int) -> int:
    """tcgen05.alloc; AGAIN while there is no room. That it could be had is not checked of other
    kernels of the multiprocessor: each has its columns as if it were alone."""
    p = program_row(context, row)
    lane = first_lane(mask)
    cta = cta_of(context, warp)
    words = cta_words(context, cta)
    columns = operand(context, warp, p, 1, lane) & 0xFFFFFFFF
    where = shared_place(context, row, operand(context, warp, p, 0, lane), 4, 4)
    if where < 0:
        return y.NEXT
    if not good_columns(columns):
        fault(context, row, y.FAULT_TENSOR, t.BAD_COLUMNS, columns)
        return y.NEXT
    if load_i64(p, y.P_FLAGS) & t.PAIR != 0 and not is_pair(context, row, cta):
        return y.NEXT
    count = columns // t.UNIT
    first = free_units(words, count)
    if first < 0:
        give_way(context, warp)
        return y.AGAIN
    take_group(context, warp, row)
    if load_i64(words, t.TC_RELINQUISHED) != 0:
        misuse(context, warp, row, t.AFTER_RELINQUISH, columns, y.ERROR)
    for unit in range(first, first + count):
        store_i64(words, t.TC_OWNER + unit, first + 1)
    store_i64(words, t.TC_UNITS + first, count)
    store_i64(words, t.TC_ROW + first, row)
    forget(context, warp, row, first * t.UNIT, columns)
    if load_i64(context, y.C_SANITIZE) != 0:
        temp = load_i64(context, y.C_TEMP)
        store_i64(temp, lane, where)
        store_i64(warp_base(context, warp), y.W_ACTORS, 0)
        shared_lanes(context, warp, row, 1 << lane, temp, 4, WRITE)
    store_u32(shared_host(context, where), 0, uint32(first * t.UNIT))
    moved(context)
    return y.NEXT


@compiled
def free(context: int, warp: int, row: int, mask: int) -> None:
    """tcgen05.dealloc: whoever accesses these cells has to be done."""
    p = program_row(context, row)
    lane = first_lane(mask)
    address = operand(context, warp, p, 0, lane) & 0xFFFFFFFF
    columns = operand(context, warp, p, 1, lane) & 0xFFFFFFFF
    cta = cta_of(context, warp)
    words = cta_words(context, cta)
    take_group(context, warp, row)
    first = (address & 0xFFFF) // t.UNIT
    if not good_columns(columns) or address + columns > t.COLUMNS:
        fault(context, row, y.FAULT_TENSOR, t.BAD_COLUMNS, columns)
        return
    count = columns // t.UNIT
    if load_i64(words, t.TC_OWNER + first) != first + 1 or (
        load_i64(words, t.TC_UNITS + first) != count or address % t.UNIT != 0
    ):
        misuse(context, warp, row, t.OTHER_ALLOCATION, address, y.ERROR)
        return
    if load_i64(context, y.C_SANITIZE) != 0:
        number = own(context, warp, GENERIC)
        clock = load_i64(clocks_of(context, warp), number) + 1
        size = (t.LANES << 16) | columns
        note_cells(context, warp, cta, address, size, packed(row, number, clock, 0), WRITE, 0)
    for unit in range(first, first + count):
        store_i64(words, t.TC_OWNER + unit, 0)
    moved(context)


@compiled
def relinquish(context: int, warp: int, row: int) -> None:
    """tcgen05.relinquish_alloc_permit."""
    take_group(context, warp, row)
    store_i64(cta_words(context, cta_of(context, warp)), t.TC_RELINQUISHED, 1)


@compiled
def check_freed(context: int, warp: int) -> None:
    """The last warp of a CTA has ended: all columns must be free."""
    if load_i64(context, y.C_TENSOR_AT) == 0:
        return
    words = cta_words(context, cta_of(context, warp))
    for unit in range(t.UNITS):
        if load_i64(words, t.TC_OWNER + unit) == unit + 1:
            misuse(
                context, warp, load_i64(words, t.TC_ROW + unit), t.LEAKED, unit * t.UNIT, y.ERROR
            )
