"""Tensor copies (TMA): cp.async.bulk.tensor and cp.reduce.async.bulk.tensor."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    int64,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    store_i64,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.boxes import box_bytes, check_box, taken
from mlagen.emulator.ptx.agents.landing import op_base, op_data
from mlagen.emulator.ptx.agents.mbarriers import (
    check_shown,
    mbarrier_at,
    mbarrier_base,
    misuse,
    phase_of,
)
from mlagen.emulator.ptx.agents.places import any_host, operand, shared_place, signed
from mlagen.emulator.ptx.agents.queue import new_op, send
from mlagen.emulator.ptx.agents.reductions import element_bytes
from mlagen.emulator.ptx.order.accesses import shared_range, span
from mlagen.emulator.ptx.order.blocks import reach
from mlagen.emulator.ptx.order.clocks import (
    BULK_READ,
    mbarrier_component,
    own,
    step_clock,
    told,
)
from mlagen.emulator.ptx.order.maps import map_used
from mlagen.emulator.ptx.order.meeting import ATOMIC, READ, WRITE, packed
from mlagen.emulator.ptx.order.record_sizes import ATOMIC_BIT
from mlagen.emulator.ptx.state import cta_of, fault, program_row, report, warp_base

# P_OP
LOAD, STORE, PREFETCH = range(3)
# P_FLAGS
ROWS, PAIR, MULTICAST = 1, 2, 4
# Operands
SHARED, MAP, MBARRIER, CTAS, COORDINATES = range(5)


@compiled
def edited_words(words: int, host: int) -> bool:
    """The words of a map that a kernel made; whether its fields are what they may be."""
    kinds = host + 8 * a.ME_KINDS
    store_i64(words, a.M_BASE, load_i64(host, a.ME_BASE))
    rank = int64(load_u8(kinds, 0)) + 1
    kind = int64(load_u8(kinds, 1))
    swizzle = int64(load_u8(kinds, 3))
    store_i64(words, a.M_RANK, rank)
    store_i64(words, a.M_TYPE, kind)
    store_i64(words, a.M_INTERLEAVE, int64(load_u8(kinds, 2)))
    store_i64(words, a.M_SWIZZLE, swizzle)
    store_i64(words, a.M_FILL, int64(load_u8(kinds, 4)))
    store_i64(words, a.M_CHECKED, 0)
    element = element_bytes(kind)
    store_i64(words, a.M_ELEMENT, element)
    good = rank <= 5 and kind <= a.T_BF16 and kind != a.T_F32_FTZ and swizzle <= 3
    good = good and int64(load_u8(kinds, 2)) == 0 and load_i64(host, a.ME_BASE) & 15 == 0
    for axis in range(5):
        dim = int64(load_u32(host + 8 * a.ME_DIMS, axis))
        store_i64(words, a.M_DIMS + axis, (1 << 32) if dim == 0 else dim)
        stride = element
        if axis > 0:
            stride = load_i64(host, a.ME_STRIDES + axis - 1)
        box = int64(load_u16(host + 8 * a.ME_BOX, axis))
        step = int64(load_u8(host + 8 * a.ME_BOX, 10 + axis))
        store_i64(words, a.M_STRIDES + axis, stride)
        store_i64(words, a.M_BOX + axis, box)
        store_i64(words, a.M_STEPS + axis, step)
        if axis < rank:
            good = good and box >= 1 and box <= 256 and step >= 1 and step <= 8
            if axis > 0:
                good = good and stride >= 0 and stride < 1 << 40 and stride & 15 == 0
    inner = load_i64(words, a.M_BOX) * element
    return good and inner & 15 == 0


@compiled
def read_map(context: int, warp: int, row: int, address: int, words: int) -> bool:
    """The words of the tensor map at a generic address; False after a fault."""
    host = any_host(context, row, address, a.MAP_BYTES)
    if host == 0:
        return False
    if address & 63 != 0:
        report(context, y.MAP_MISUSE, row, -1, warp, a.MISALIGNED, address, y.ERROR)
    magic = load_i64(host, 0)
    index = load_i64(host, 1)
    if load_i64(context, y.C_EDITS) != 0:
        map_used(context, warp, row, address)
    if magic == a.MAP_EDITED:
        if edited_words(words, host):
            return True
        report(context, y.MAP_MISUSE, row, -1, warp, a.BAD_FIELDS, address, y.ERROR)
        fault(context, row, y.FAULT_MAP, address, a.BAD_FIELDS)
        return False
    if magic != a.MAP_MAGIC or index < 0 or index >= load_i64(context, y.C_MAP_COUNT):
        fault(context, row, y.FAULT_MAP, address, a.NOT_A_MAP)
        return False
    source = load_i64(context, y.C_MAPS) + index * (8 * a.M_SIZE)
    for i in range(a.M_SIZE):
        store_i64(words, i, load_i64(source, i))
    return True


@compiled
def take_mbarrier(context: int, warp: int, row: int, op: int, address: int) -> bool:
    """The mbarrier that an operation's bytes are told to; False after a fault."""
    slot = mbarrier_at(context, warp, row, address)
    if slot < 0:
        return False
    store_i64(op, a.O_MBARRIER, slot)
    m = mbarrier_base(context, slot)
    clock = phase_of(m) + 1
    store_i64(op, a.O_PHASE, clock - 1)
    if load_i64(context, y.C_SANITIZE) != 0:  # as an atomic access: it has to be after the init
        check_shown(context, warp, row, slot)
        cta = slot // a.MBARRIERS
        number = mbarrier_component(context, cta, slot - cta * a.MBARRIERS)
        access = packed(row, number, clock, ATOMIC_BIT)
        if cta != cta_of(context, warp):
            reach(context, warp, load_i64(m, a.MB_ADDRESS), access)
        span(context, warp, load_i64(m, a.MB_ADDRESS), 8, access, ATOMIC, 0)
    return True


@compiled
def note_shared(context: int, op: int, where: int, size: int) -> None:
    """Tell the record of accesses about shared memory that an operation reads or writes."""
    if load_i64(context, y.C_SANITIZE) == 0:
        return
    warp = load_i64(op, a.O_WARP)
    row = load_i64(op, a.O_ROW)
    slot = load_i64(op, a.O_MBARRIER)
    if slot < 0:
        number = own(context, warp, BULK_READ)
        clock = load_i64(op, a.O_GROUP) + 1
        shared_range(context, warp, row, where, size, READ, number, clock)
        return
    cta = slot // a.MBARRIERS
    number = mbarrier_component(context, cta, slot - cta * a.MBARRIERS)
    clock = load_i64(op, a.O_PHASE) + 1
    if load_i64(warp_base(context, warp), y.W_LOADS) != 0:
        told(context, warp)
        step_clock(context, warp)
    how = ATOMIC if load_i64(program_row(context, row), y.P_TYPE) != 0 else WRITE  # a reduction
    shared_range(context, warp, row, where, size, how, number, clock)


@compiled
def coordinates(context: int, op: int, p: int, lane: int) -> None:
    """Where the box is: coordinates, or a column and four rows."""
    warp = load_i64(op, a.O_WARP)
    rows = load_i64(p, y.P_FLAGS) & ROWS
    store_i64(op, a.O_FLAGS, rows)
    count = 1 if rows != 0 else load_i64(p, y.P_IMM)
    for i in range(count):
        at = signed(operand(context, warp, p, COORDINATES + i, lane))
        store_i64(op, a.O_VALUES + i, at)
    if rows != 0:
        for i in range(4):
            at = signed(operand(context, warp, p, COORDINATES + 1 + i, lane))
            store_i64(op, a.O_ROWS + i, at)


@compiled
def row_fits(context: int, row: int, address: int, words: int) -> bool:
    """Whether a row of a map's box is as wide as its swizzle; a fault where not. Narrower ones may
    lie apart on hardware, which nobody has told."""
    mode = load_i64(words, a.M_SWIZZLE)
    inner = taken(words, 0) * load_i64(words, a.M_ELEMENT)
    if mode == 0 or inner == 16 << mode:
        return True
    fault(context, row, y.FAULT_MAP, address, a.TOO_WIDE if inner > 16 << mode else a.NARROW)
    return False


@compiled
def issue_box(context: int, warp: int, row: int, lane: int, shared: int, mbarrier: int) -> bool:
    """One copy of a lane, to or from `shared`; False after a fault."""
    p = program_row(context, row)
    loads = load_i64(p, y.P_OP) == LOAD
    kind = a.TENSOR_TO_SHARED if loads else a.TENSOR_TO_GLOBAL
    number = new_op(context, kind, row, warp, 1 << lane)
    op = op_base(context, number)
    words = op_data(context, number)
    address = operand(context, warp, p, MAP, lane)
    if not read_map(context, warp, row, address, words):
        return False
    if load_i64(words, a.M_RANK) != load_i64(p, y.P_IMM):
        fault(context, row, y.FAULT_MAP, address, a.OTHER_RANK)
        return False
    coordinates(context, op, p, lane)
    if load_i64(op, a.O_FLAGS) != 0 and taken_rows(words) != 1:
        fault(context, row, y.FAULT_MAP, address, a.OTHER_ROWS)
        return False
    if not row_fits(context, row, address, words):
        return False
    size = box_bytes(words, op)
    where = shared_place(context, row, shared, size, 128)
    if where < 0:
        return False
    store_i64(op, a.O_BYTES, size)
    store_i64(op, a.O_SHARED, where)
    if loads:
        if not take_mbarrier(context, warp, row, op, mbarrier):
            return False
    else:
        groups = load_i64(context, y.C_GROUPS) + warp * (8 * a.GROUPS)
        store_i64(op, a.O_GROUP, load_i64(groups, a.GR_BULK + lane))
        store_i64(op, a.O_HOW, load_i64(p, y.P_TYPE))
        if load_i64(p, y.P_TYPE) != 0 and load_i64(words, a.M_ELEMENT) == 1:
            fault(context, row, y.FAULT_MAP, address, a.NO_SUMS)
            return False
    if not check_box(context, op, words):
        return False
    note_shared(context, op, where, size)
    send(context, number)
    return True


@compiled
def taken_rows(words: int) -> int:
    """Rows of the box of a map that gather4 and scatter4 use: one."""
    return load_i64(words, a.M_BOX + 1)


@compiled
def issue_load(context: int, warp: int, row: int, lane: int) -> bool:
    """A load to one CTA, or to those of a mask: the same offsets of each."""
    p = program_row(context, row)
    shared = operand(context, warp, p, SHARED, lane) & 0xFFFFFFFF
    mbarrier = operand(context, warp, p, MBARRIER, lane) & 0xFFFFFFFF
    flags = load_i64(p, y.P_FLAGS)
    if flags & MULTICAST == 0:
        if flags & PAIR == 0 and shared >> y.RANK_SHIFT != mbarrier >> y.RANK_SHIFT:
            misuse(context, warp, row, a.OTHER_CTA, mbarrier)
        return issue_box(context, warp, row, lane, shared, mbarrier)
    mask = operand(context, warp, p, CTAS, lane) & 0xFFFF
    if mask == 0 or mask >> load_i64(context, y.C_CTAS_ALL) != 0:
        fault(context, row, y.FAULT_SHARED, shared, mask)
        return False
    inside = (1 << y.RANK_SHIFT) - 1
    for rank in range(16):
        if (mask >> rank) & 1:
            other = rank
            if flags & PAIR != 0:  # of each pair the CTA that is the mbarrier's of its own
                other = (rank & ~1) | ((mbarrier >> y.RANK_SHIFT) & 1)
            here = (shared & inside) | (rank << y.RANK_SHIFT)
            told = (mbarrier & inside) | (other << y.RANK_SHIFT)
            if not issue_box(context, warp, row, lane, here, told):
                return False
    return True


@compiled
def run_tensor_copy(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        store_i64(warp_base(context, warp), y.W_ACTORS, 1 << lane)
        if op == LOAD:
            good = issue_load(context, warp, row, lane)
        elif op == STORE:
            shared = operand(context, warp, p, SHARED, lane) & 0xFFFFFFFF
            good = issue_box(context, warp, row, lane, shared, 0)
        else:
            address = operand(context, warp, p, MAP, lane)
            words = load_i64(context, y.C_TEMP)
            good = read_map(context, warp, row, address, words)
        if not good:
            return y.NEXT
    return y.NEXT
