"""cp.async, bulk copies, st.async, red.async."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.landing import op_base, op_data
from mlagen.emulator.ptx.agents.mbarriers import mbarrier_at, mbarrier_base, misuse, phase_of
from mlagen.emulator.ptx.agents.places import (
    global_host,
    operand,
    shared_host,
    shared_place,
)
from mlagen.emulator.ptx.agents.queue import new_op, send
from mlagen.emulator.ptx.agents.tensors import note_shared, take_mbarrier
from mlagen.emulator.ptx.agents.vectors import mbarrier_vector
from mlagen.emulator.ptx.order.accesses import copied_range, shared_range
from mlagen.emulator.ptx.order.clocks import (
    BULK,
    COPY,
    mbarrier_component,
    own,
)
from mlagen.emulator.ptx.order.global_accesses import copied_global, global_range
from mlagen.emulator.ptx.order.lane_clocks import release_lanes
from mlagen.emulator.ptx.order.meeting import ATOMIC, READ, WRITE
from mlagen.emulator.ptx.state import fault, place, program_row, warp_base

# P_OP
LANES, ARRIVAL, LOAD, STORE, SEND, WORDS = range(6)
# P_FLAGS
IGNORES, NO_INCREMENT, MULTICAST, MASKED = 1, 2, 4, 8
ALL_BYTES = 0xFFFF
# Operands of bulk copies
TO, FROM, SIZE, MBARRIER, CTAS = range(5)


@compiled
def groups_at(context: int, warp: int) -> int:
    """Address of a warp's GR_ words."""
    return load_i64(context, y.C_GROUPS) + warp * (8 * a.GROUPS)


@compiled
def lane_copy(context: int, row: int, data: int, lane: int, source: int, target: int) -> bool:
    """The words of a lane's cp.async; `data` has its sizes already. False after a fault."""
    size = load_i64(data, 64 + lane) & 0xFF
    read = (load_i64(data, 64 + lane) >> 8) & 0xFF
    where = shared_place(context, row, target, size, size)
    if where < 0:
        return False
    if source & (size - 1) != 0 and read != 0:
        fault(context, row, y.FAULT_ALIGN, source, size)
        return False
    host = 0
    if read != 0:
        host = global_host(context, row, source, read, 1)
        if host == 0:
            return False
    store_i64(data, lane, host)
    store_i64(data, 32 + lane, shared_host(context, where))
    return True


@compiled
def note_lane(context: int, warp: int, row: int, target: int, source: int, sizes: int) -> None:
    """Tell the record of accesses about a lane's cp.async."""
    number = own(context, warp, COPY)
    clock = load_i64(groups_at(context, warp), a.GR_EPOCH) + 1
    where = target if target < y.GENERIC_SHARED else target - y.GENERIC_SHARED
    copied_range(context, warp, row, where, sizes & 0xFF, WRITE, number, clock)
    if (sizes >> 8) & 0xFF != 0:
        copied_global(context, warp, row, source, (sizes >> 8) & 0xFF, number, clock)


@compiled
def issue_lanes(context: int, warp: int, row: int, mask: int) -> None:
    """cp.async of 4, 8 or 16 bytes a lane."""
    p = program_row(context, row)
    number = new_op(context, a.LANES, row, warp, mask)
    op = op_base(context, number)
    data = op_data(context, number)
    groups = groups_at(context, warp)
    flags = load_i64(p, y.P_FLAGS)
    size = load_i64(p, y.P_IMM)
    ignored = 0
    if flags & IGNORES != 0:
        ignored = load_i64(place(context, warp, load_i64(p, y.P_C)), 0)
        if load_i64(p, y.P_TYPE2) != 0:
            ignored = ~ignored
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        read = min(operand(context, warp, p, SIZE, lane) & 0xFFFFFFFF, size)
        if (ignored >> lane) & 1:
            read = 0
        group = load_i64(groups, a.GR_COPY + lane)
        sizes = size | (read << 8) | (group << 16)
        store_i64(data, 64 + lane, sizes)
        target = operand(context, warp, p, TO, lane)
        source = operand(context, warp, p, FROM, lane)
        if not lane_copy(context, row, data, lane, source, target):
            return
        if load_i64(context, y.C_SANITIZE) != 0:
            store_i64(warp_base(context, warp), y.W_ACTORS, 1 << lane)
            note_lane(context, warp, row, target, source, sizes)
        if load_i64(op, a.O_SHARED) < 0:
            store_i64(op, a.O_SHARED, shared_place(context, row, target, size, size))
    send(context, number)


@compiled
def issue_arrivals(context: int, warp: int, row: int, mask: int) -> None:
    """cp.async.mbarrier.arrive: an operation for each mbarrier that lanes name."""
    p = program_row(context, row)
    groups = groups_at(context, warp)
    rest = mask
    for first in range(y.LANES):
        if (rest >> first) & 1 == 0:
            continue
        slot = mbarrier_at(context, warp, row, operand(context, warp, p, TO, first))
        if slot < 0:
            return
        lanes = 0
        address = operand(context, warp, p, TO, first)
        for lane in range(first, y.LANES):
            if (rest >> lane) & 1 and operand(context, warp, p, TO, lane) == address:
                lanes |= 1 << lane
        rest &= ~lanes
        m = mbarrier_base(context, slot)
        if load_i64(p, y.P_FLAGS) & NO_INCREMENT == 0:
            pending = load_i64(m, a.MB_PENDING)
            for lane in range(y.LANES):
                pending += (lanes >> lane) & 1
            if pending > a.MOST_ARRIVALS:
                misuse(context, warp, row, a.TOO_MANY_ARRIVALS, load_i64(m, a.MB_ADDRESS))
            store_i64(m, a.MB_PENDING, min(pending, a.MOST_ARRIVALS))
        number = new_op(context, a.ARRIVAL, row, warp, lanes)
        op = op_base(context, number)
        store_i64(op, a.O_MBARRIER, slot)
        store_i64(op, a.O_PHASE, phase_of(m))
        store_i64(op, a.O_GROUP, load_i64(groups, a.GR_EPOCH) + 1)
        if load_i64(context, y.C_SANITIZE) != 0:
            # What the thread did before lies before the arrival, which comes of this instruction:
            # the phase cannot end without it, so what is handed over now is not seen too early.
            release_lanes(context, warp, lanes, mbarrier_vector(context, slot, 0))
        send(context, number)
    store_i64(groups, a.GR_EPOCH, load_i64(groups, a.GR_EPOCH) + 1)


@compiled
def issue_store(context: int, warp: int, row: int, lane: int, size: int) -> bool:
    """A bulk copy or reduction from shared to global memory; False after a fault."""
    p = program_row(context, row)
    number = new_op(context, a.TO_GLOBAL, row, warp, 1 << lane)
    op = op_base(context, number)
    where = shared_place(context, row, operand(context, warp, p, FROM, lane), size, 16)
    if where < 0:
        return False
    target = operand(context, warp, p, TO, lane)
    host = global_host(context, row, target, size, 2)
    if host == 0:
        return False
    if target & 15 != 0:
        fault(context, row, y.FAULT_ALIGN, target, 16)
        return False
    store_i64(op, a.O_SHARED, where)
    store_i64(op, a.O_SOURCE, shared_host(context, where))
    store_i64(op, a.O_DEST, host)
    store_i64(op, a.O_BYTES, size)
    store_i64(op, a.O_GROUP, load_i64(groups_at(context, warp), a.GR_BULK + lane))
    store_i64(op, a.O_HOW, load_i64(p, y.P_TYPE))
    store_i64(op, a.O_TYPE, load_i64(p, y.P_TYPE2))
    store_i64(op, a.O_CTAS, ALL_BYTES)
    if load_i64(p, y.P_FLAGS) & MASKED != 0:
        store_i64(op, a.O_CTAS, operand(context, warp, p, MBARRIER, lane) & ALL_BYTES)
    note_shared(context, op, where, size)
    if load_i64(context, y.C_SANITIZE) != 0:
        clock = load_i64(op, a.O_GROUP) + 1
        how = ATOMIC if load_i64(op, a.O_HOW) != 0 else WRITE
        global_range(context, warp, row, target, size, how, own(context, warp, BULK), clock)
    send(context, number)
    return True


@compiled
def source_of(context: int, warp: int, row: int, lane: int, op: int) -> bool:
    """Where a bulk copy to shared memory reads; False after a fault."""
    p = program_row(context, row)
    size = load_i64(op, a.O_BYTES)
    source = operand(context, warp, p, FROM, lane)
    if load_i64(p, y.P_OP) == SEND:
        source = shared_place(context, row, source, size, 16)
        if source < 0:
            return False
        store_i64(op, a.O_SOURCE, shared_host(context, source))
    else:
        host = global_host(context, row, source, size, 1)
        if host == 0:
            return False
        if source & 15 != 0:
            fault(context, row, y.FAULT_ALIGN, source, 16)
            return False
        store_i64(op, a.O_SOURCE, host)
    if load_i64(context, y.C_SANITIZE) != 0:
        slot = load_i64(op, a.O_MBARRIER)
        cta = slot // a.MBARRIERS
        number = mbarrier_component(context, cta, slot - cta * a.MBARRIERS)
        clock = load_i64(op, a.O_PHASE) + 1
        if load_i64(p, y.P_OP) == SEND:
            shared_range(context, warp, row, source, size, READ, number, clock)
        else:
            global_range(context, warp, row, source, size, READ, number, clock)
    return True


@compiled
def issue_load(
    context: int, warp: int, row: int, lane: int, size: int, target: int, mbarrier: int
) -> bool:
    """A bulk copy to shared memory; False after a fault."""
    number = new_op(context, a.TO_SHARED, row, warp, 1 << lane)
    op = op_base(context, number)
    where = shared_place(context, row, target, size, 16)
    if where < 0 or not take_mbarrier(context, warp, row, op, mbarrier):
        return False
    store_i64(op, a.O_BYTES, size)
    store_i64(op, a.O_SHARED, where)
    store_i64(op, a.O_DEST, shared_host(context, where))
    if not source_of(context, warp, row, lane, op):
        return False
    note_shared(context, op, where, size)
    send(context, number)
    return True


@compiled
def issue_bulk(context: int, warp: int, row: int, lane: int) -> bool:
    """A bulk copy of a lane; False after a fault."""
    p = program_row(context, row)
    size = operand(context, warp, p, SIZE, lane) & 0xFFFFFFFF
    if size & 15 != 0:
        fault(context, row, y.FAULT_ALIGN, size, 16)
        return False
    if load_i64(p, y.P_OP) == STORE:
        return issue_store(context, warp, row, lane, size)
    target = operand(context, warp, p, TO, lane) & 0xFFFFFFFF
    mbarrier = operand(context, warp, p, MBARRIER, lane) & 0xFFFFFFFF
    if load_i64(p, y.P_FLAGS) & MULTICAST == 0:
        if target >> y.RANK_SHIFT != mbarrier >> y.RANK_SHIFT:
            misuse(context, warp, row, a.OTHER_CTA, mbarrier)
        return issue_load(context, warp, row, lane, size, target, mbarrier)
    mask = operand(context, warp, p, CTAS, lane) & 0xFFFF
    if mask == 0 or mask >> load_i64(context, y.C_CTAS_ALL) != 0:
        fault(context, row, y.FAULT_SHARED, target, mask)
        return False
    inside = (1 << y.RANK_SHIFT) - 1
    for rank in range(16):
        if (mask >> rank) & 1:
            upper = rank << y.RANK_SHIFT
            told = (mbarrier & inside) | upper
            if not issue_load(context, warp, row, lane, size, (target & inside) | upper, told):
                return False
    return True


@compiled
def issue_words(context: int, warp: int, row: int, lane: int) -> bool:
    """st.async and red.async of a lane; False after a fault."""
    p = program_row(context, row)
    number = new_op(context, a.WORDS, row, warp, 1 << lane)
    op = op_base(context, number)
    data = op_data(context, number)
    count = load_i64(p, y.P_IMM) & 0xFF
    element = load_i64(p, y.P_IMM) >> 8
    size = count * element
    where = shared_place(context, row, operand(context, warp, p, 0, lane), size, size)
    if where < 0:
        return False
    mbarrier = operand(context, warp, p, 1, lane)
    if not take_mbarrier(context, warp, row, op, mbarrier):
        return False
    if (mbarrier >> y.RANK_SHIFT) & 0xFF != where >> y.RANK_SHIFT:
        misuse(context, warp, row, a.OTHER_CTA, mbarrier)
    for i in range(count):
        value = operand(context, warp, p, 2 + i, lane)
        if element == 8:
            store_i64(data, i, value)
        else:
            store_u32(data, i, uint32(value))
    store_i64(op, a.O_BYTES, size)
    store_i64(op, a.O_SHARED, where)
    store_i64(op, a.O_DEST, shared_host(context, where))
    store_i64(op, a.O_HOW, load_i64(p, y.P_TYPE))
    store_i64(op, a.O_TYPE, load_i64(p, y.P_TYPE2))
    note_shared(context, op, where, size)
    send(context, number)
    return True


@compiled
def run_copy(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    op = load_i64(program_row(context, row), y.P_OP)
    if op == LANES:
        issue_lanes(context, warp, row, mask)
        return y.NEXT
    if op == ARRIVAL:
        issue_arrivals(context, warp, row, mask)
        return y.NEXT
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            store_i64(warp_base(context, warp), y.W_ACTORS, 1 << lane)
            if op == WORDS:
                good = issue_words(context, warp, row, lane)
            else:
                good = issue_bulk(context, warp, row, lane)
            if not good:
                return y.NEXT
    return y.NEXT
