"""The effects of operations on their way, when they happen."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.boxes import move_box
from mlagen.emulator.ptx.agents.mbarriers import (
    arrive,
    complete_bytes,
    mbarrier_base,
    misuse,
    phase_of,
)
from mlagen.emulator.ptx.agents.places import clear_bytes, copy_bytes
from mlagen.emulator.ptx.agents.reductions import reduce_bytes
from mlagen.emulator.ptx.agents.vectors import mbarrier_vector
from mlagen.emulator.ptx.order.clocks import COPY, note, own
from mlagen.emulator.ptx.state import lanes_of, moved, report
from mlagen.emulator.ptx.tensor.pipe import land_commit, land_copy, land_product


@compiled
def op_base(context: int, number: int) -> int:
    """Address of the O_ words of an operation."""
    return load_i64(context, y.C_OPS) + (number & (a.OPS - 1)) * (8 * a.OP_SIZE)


@compiled
def op_data(context: int, number: int) -> int:
    """Address of its further words."""
    return load_i64(context, y.C_OP_DATA) + (number & (a.OPS - 1)) * (8 * a.OP_DATA)


@compiled
def count_bytes(context: int, op: int) -> None:
    """The bytes of an operation are told to its mbarrier."""
    slot = load_i64(op, a.O_MBARRIER)
    if slot < 0:
        return
    m = mbarrier_base(context, slot)
    warp = load_i64(op, a.O_WARP)
    row = load_i64(op, a.O_ROW)
    where = load_i64(m, a.MB_ADDRESS)
    if load_i64(m, a.MB_VALID) == 0:
        misuse(context, warp, row, a.NOT_INITIALISED, where)
        return
    if phase_of(m) != load_i64(op, a.O_PHASE):
        report(context, y.BYTES_UNCOUNTED, row, -1, warp, where, load_i64(op, a.O_BYTES), 0)
    complete_bytes(context, warp, row, slot, load_i64(op, a.O_BYTES))


@compiled
def land_lanes(op: int, data: int, lanes: int) -> None:
    """cp.async of some lanes: what is not read becomes zeros."""
    for lane in range(y.LANES):
        if (lanes >> lane) & 1:
            size = load_i64(data, 64 + lane) & 0xFF
            read = (load_i64(data, 64 + lane) >> 8) & 0xFF
            to = load_i64(data, 32 + lane)
            copy_bytes(to, load_i64(data, lane), read)
            clear_bytes(to + read, size - read)
    store_i64(op, a.O_MASK, load_i64(op, a.O_MASK) & ~lanes)


@compiled
def land_copies(context: int, warp: int, lanes: int, last: int, groups: int) -> None:
    """cp.async of lanes of a warp that were issued before operation `last`; of `lanes` each up to
    its group: the 32 words at `groups`, 0 for all groups."""
    for number in range(load_i64(context, y.C_OP_HEAD), last):
        op = op_base(context, number)
        if load_i64(op, a.O_STATE) == a.DONE or load_i64(op, a.O_KIND) != a.LANES:
            continue
        if load_i64(op, a.O_WARP) != warp:
            continue
        data = op_data(context, number)
        ready = load_i64(op, a.O_MASK) & lanes
        if groups != 0:
            for lane in range(y.LANES):
                if (ready >> lane) & 1 and load_i64(data, 64 + lane) >> 16 >= load_i64(
                    groups, lane
                ):
                    ready &= ~(1 << lane)
        if ready != 0:
            land_lanes(op, data, ready)
            if load_i64(op, a.O_MASK) == 0:
                store_i64(op, a.O_STATE, a.DONE)


@compiled
def land_arrival(context: int, number: int, op: int) -> None:
    """cp.async.mbarrier.arrive: the copies before it, then the arrivals."""
    lanes = load_i64(op, a.O_MASK)
    warp = load_i64(op, a.O_WARP)
    land_copies(context, warp, lanes, number, 0)
    slot = load_i64(op, a.O_MBARRIER)
    m = mbarrier_base(context, slot)
    row = load_i64(op, a.O_ROW)
    if load_i64(m, a.MB_VALID) == 0:
        misuse(context, warp, row, a.NOT_INITIALISED, load_i64(m, a.MB_ADDRESS))
        return
    if load_i64(context, y.C_SANITIZE) != 0:
        epoch = load_i64(op, a.O_GROUP)
        note(mbarrier_vector(context, slot, 0), own(context, warp, COPY), epoch)
    arrive(context, warp, row, slot, lanes_of(lanes))


@compiled
def land_global(op: int) -> None:
    """A bulk copy from shared to global memory, or a reduction."""
    size = load_i64(op, a.O_BYTES)
    to = load_i64(op, a.O_DEST)
    source = load_i64(op, a.O_SOURCE)
    mask = load_i64(op, a.O_CTAS)
    if load_i64(op, a.O_HOW) != 0:
        reduce_bytes(to, source, size, load_i64(op, a.O_TYPE), load_i64(op, a.O_HOW))
    elif mask == 0xFFFF:
        copy_bytes(to, source, size)
    else:
        for i in range(size):
            if (mask >> (i & 15)) & 1:
                copy_bytes(to + i, source + i, 1)


@compiled
def land_pipe(context: int, last: int) -> None:
    """tcgen05.mma, .cp and .commit up to operation `last`, in the order in which they were
    issued."""
    for number in range(load_i64(context, y.C_OP_HEAD), last + 1):
        op = op_base(context, number)
        kind = load_i64(op, a.O_KIND)
        if load_i64(op, a.O_STATE) == a.DONE or kind < a.TENSOR_MMA:
            continue
        store_i64(op, a.O_STATE, a.DONE)
        if kind == a.TENSOR_MMA:
            land_product(context, op, op_data(context, number))
        elif kind == a.TENSOR_COPY:
            land_copy(context, op)
        else:
            land_commit(context, op)
    advance(context)
    moved(context)


@compiled
def land(context: int, number: int) -> None:
    """The effects of an operation happen, if they have not."""
    op = op_base(context, number)
    if load_i64(op, a.O_STATE) == a.DONE:
        return
    kind = load_i64(op, a.O_KIND)
    if kind >= a.TENSOR_MMA:
        land_pipe(context, number)
        return
    data = op_data(context, number)
    store_i64(op, a.O_STATE, a.DONE)
    if kind == a.LANES:
        land_lanes(op, data, load_i64(op, a.O_MASK))
    elif kind == a.ARRIVAL:
        land_arrival(context, number, op)
    elif kind == a.TO_GLOBAL:
        land_global(op)
    elif kind == a.TENSOR_TO_SHARED or kind == a.TENSOR_TO_GLOBAL:
        move_box(context, op, data)
        count_bytes(context, op)
    else:
        source = data if kind == a.WORDS else load_i64(op, a.O_SOURCE)
        size = load_i64(op, a.O_BYTES)
        if load_i64(op, a.O_HOW) != 0:
            reduce_bytes(
                load_i64(op, a.O_DEST), source, size, load_i64(op, a.O_TYPE),
                load_i64(op, a.O_HOW),
            )  # fmt: skip
        else:
            copy_bytes(load_i64(op, a.O_DEST), source, size)
        count_bytes(context, op)
    advance(context)
    moved(context)


@compiled
def advance(context: int) -> None:
    """The oldest operation is one that has not landed."""
    head = load_i64(context, y.C_OP_HEAD)
    tail = load_i64(context, y.C_OP_TAIL)
    while head < tail and load_i64(op_base(context, head), a.O_STATE) == a.DONE:
        head += 1
    store_i64(context, y.C_OP_HEAD, head)
