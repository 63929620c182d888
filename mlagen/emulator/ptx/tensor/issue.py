"""tcgen05.mma, .cp and .commit as a thread issues them: checked, noted, sent on their way."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.landing import op_base, op_data
from mlagen.emulator.ptx.agents.mbarriers import (
    check_shown,
    mbarrier_at,
    mbarrier_base,
    phase_of,
)
from mlagen.emulator.ptx.agents.places import operand
from mlagen.emulator.ptx.agents.queue import new_op, send
from mlagen.emulator.ptx.agents.vectors import mbarrier_vector
from mlagen.emulator.ptx.matrix.elements import beside_pattern
from mlagen.emulator.ptx.matrix.reading import extent, inside, note_chunks
from mlagen.emulator.ptx.order.accesses import span
from mlagen.emulator.ptx.order.blocks import reach
from mlagen.emulator.ptx.order.clocks import clocks_of, join, own
from mlagen.emulator.ptx.order.meeting import ATOMIC, READ, WRITE, packed
from mlagen.emulator.ptx.order.record_sizes import ATOMIC_BIT, TENSOR
from mlagen.emulator.ptx.order.tensors import PIPE
from mlagen.emulator.ptx.state import cta_of, fault, place, program_row
from mlagen.emulator.ptx.tensor import shapes as s
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.emulator.ptx.tensor.cells import cells_exist, is_pair, misuse, note_cells, take_group
from mlagen.emulator.ptx.tensor.pipe import masked_lanes
from mlagen.emulator.ptx.tensor.word_places import warp_words

A_COLUMNS = 8  # of tensor memory, that a product reads of A: 32 bytes of each row


@compiled
def end_of_group(context: int, warp: int, row: int) -> int:
    """Behind the last CTA that an instruction works on, from its own on; -1 after a fault."""
    cta = cta_of(context, warp)
    if load_i64(program_row(context, row), y.P_FLAGS) & t.PAIR == 0:
        return cta + 1
    if not is_pair(context, row, cta):
        return -1
    if cta & 1 != 0:
        fault(context, row, y.FAULT_TENSOR, t.NO_PAIR, cta)
        return -1
    return cta + 2


@compiled
def issued(context: int, warp: int, row: int) -> int:
    """The access of a tcgen05.mma or .cp that a warp issues now; its number among them grows."""
    words = warp_words(context, warp)
    number = load_i64(words, t.TW_ISSUED) + 1
    store_i64(words, t.TW_ISSUED, number)
    return packed(row, own(context, warp, TENSOR), number, 0)


@compiled
def reach_group(context: int, warp: int, row: int, first: int, end: int) -> None:
    """What `issued` gave reads shared memory from `first` on of its own CTA, and of the pair's."""
    if load_i64(context, y.C_SANITIZE) == 0:
        return
    number = load_i64(warp_words(context, warp), t.TW_ISSUED)
    access = packed(row, own(context, warp, TENSOR), number, 0)
    for cta in range(cta_of(context, warp), end):
        reach(context, warp, cta << y.RANK_SHIFT | first, access)


@compiled
def good_matrix(context: int, row: int, descriptor: int, size: int, mn_major: int) -> bool:
    """Whether a matrix descriptor is one that is modelled and stays in shared memory; a fault where
    not. `size`: of `reading.extent`."""
    rule = s.check_matrix(descriptor)
    if rule != 0:
        fault(context, row, y.FAULT_TENSOR, rule, descriptor)
        return False
    if beside_pattern(s.as_wgmma(descriptor)):
        fault(context, row, y.FAULT_DESCRIPTOR, y.BESIDE_PATTERN, descriptor)
        return False
    deep = size & 0xFFFF
    if not inside(context, s.as_wgmma(descriptor), (size >> 16) & 0xFFFF, deep, mn_major):
        fault(context, row, y.FAULT_DESCRIPTOR, y.LEADS_OUT, descriptor)
        return False
    return True


@compiled
def note_result(context: int, warp: int, row: int, cta: int, data: int, access: int) -> None:
    """Tell the record of accesses about D, and A in tensor memory, of one CTA."""
    flags = load_i64(program_row(context, row), y.P_FLAGS)
    word = load_i64(data, t.D_WORD)
    to = load_i64(data, t.D_TO)
    columns = s.whole_columns(word) // s.folds_of(word, flags)
    other = cta - cta_of(context, warp)
    for tile in range(s.tiles_of(word, flags)):
        lane = s.tile_lane(word, flags, tile)
        if flags & t.IN_TENSOR != 0:
            first = load_i64(data, t.D_A) + (lane << 16)
            note_cells(context, warp, cta, first, (16 << 16) | A_COLUMNS, access, READ, PIPE)
        masked = masked_lanes(data, other, (to >> 16) + lane)
        for i in range(16):
            if (masked >> i) & 1:
                continue
            at = to + ((lane + i) << 16)
            if load_i64(data, t.D_ADDS) != 0:
                note_cells(context, warp, cta, at, (1 << 16) | columns, access, READ, PIPE)
            note_cells(context, warp, cta, at, (1 << 16) | columns, access, WRITE, PIPE)


@compiled
def take_masks(context: int, warp: int, row: int, lane: int, data: int) -> None:
    """The lanes that are not written, of the operands."""
    p = program_row(context, row)
    for i in range(4):
        store_i64(data, t.D_MASK + i, 0)
    if load_i64(p, y.P_FLAGS) & t.MASKED == 0:
        return
    count = 8 if load_i64(p, y.P_FLAGS) & t.PAIR != 0 else 4
    for i in range(count):
        bits = operand(context, warp, p, t.M_MASK + i, lane) & 0xFFFFFFFF
        at = t.D_MASK + i // 2
        store_i64(data, at, load_i64(data, at) | bits << (32 * (i & 1)))


@compiled
def spread_of(word: int, flags: int) -> int:
    """Lanes from D's first to its last."""
    return 112 if s.tiles_of(word, flags) == 4 else t.LANES


@compiled
def check_apart(context: int, warp: int, row: int, data: int, columns: int) -> None:
    """Report an A in tensor memory of which D, of so many columns, is written over a part. Where
    they begin at lanes 0 and 16, they lie in different halves of each 32."""
    to = load_i64(data, t.D_TO)
    first = load_i64(data, t.D_A)
    if load_i64(context, y.C_SANITIZE) == 0 or (to ^ first) >> 16 != 0:
        return
    if (to & 0xFFFF) < (first & 0xFFFF) + A_COLUMNS and (first & 0xFFFF) < (to & 0xFFFF) + columns:
        misuse(context, warp, row, t.OVERLAPS, to, y.ERROR)


@compiled
def check_product(context: int, warp: int, row: int, data: int, end: int) -> bool:
    """Whether a tcgen05.mma's descriptors and addresses can be followed; a fault where not."""
    p = program_row(context, row)
    flags = load_i64(p, y.P_FLAGS)
    kind = load_i64(p, y.P_TYPE)
    word = load_i64(data, t.D_WORD)
    rule = s.check_word(kind, flags, word)
    if rule != 0:
        fault(context, row, y.FAULT_TENSOR, rule, word)
        return False
    columns = s.whole_columns(word)
    lanes = spread_of(word, flags)
    odd = load_i64(data, t.D_TO)
    if flags & t.IN_TENSOR != 0:
        odd |= load_i64(data, t.D_A)
    if (odd >> 16) & 15 != 0:
        fault(context, row, y.FAULT_TENSOR, t.BAD_LANE, odd)
        return False
    for cta in range(cta_of(context, warp), end):
        to = load_i64(data, t.D_TO)
        folded = columns // s.folds_of(word, flags)
        if not cells_exist(context, warp, row, cta, to, lanes, folded):
            return False
        first = load_i64(data, t.D_A)
        if flags & t.IN_TENSOR != 0 and not cells_exist(
            context, warp, row, cta, first, lanes, A_COLUMNS
        ):
            return False
    if flags & t.IN_TENSOR != 0:
        check_apart(context, warp, row, data, columns // s.folds_of(word, flags))
    if flags & t.IN_TENSOR == 0:
        size = extent(s.kind_a(kind, word), 0, s.rows_of(word, flags), s.depth_of(kind),
                      (word >> 15) & 1)  # fmt: skip
        if not good_matrix(context, row, load_i64(data, t.D_A), size, (word >> 15) & 1):
            return False
    rows = columns // 2 if flags & t.PAIR != 0 else columns
    size = extent(s.kind_b(kind, word), 0, rows, s.depth_of(kind), (word >> 16) & 1)
    return good_matrix(context, row, load_i64(data, t.D_B), size, (word >> 16) & 1)


@compiled
def note_product(context: int, warp: int, row: int, data: int, end: int) -> None:
    """Tell the record of accesses what a tcgen05.mma reads and writes."""
    access = issued(context, warp, row)
    if load_i64(context, y.C_SANITIZE) == 0:
        return
    p = program_row(context, row)
    flags = load_i64(p, y.P_FLAGS)
    kind = load_i64(p, y.P_TYPE)
    word = load_i64(data, t.D_WORD)
    rows = s.whole_columns(word)
    if flags & t.PAIR != 0:
        rows //= 2
    for cta in range(cta_of(context, warp), end):
        if flags & t.IN_TENSOR == 0:
            turned = (word >> 15) & 1
            size = extent(s.kind_a(kind, word), 0, s.rows_of(word, flags), s.depth_of(kind), turned)
            descriptor = s.as_wgmma(load_i64(data, t.D_A))
            note_chunks(context, warp, access, cta, descriptor, size, turned)
        turned = (word >> 16) & 1
        size = extent(s.kind_b(kind, word), 0, rows, s.depth_of(kind), turned)
        descriptor = s.as_wgmma(load_i64(data, t.D_B))
        note_chunks(context, warp, access, cta, descriptor, size, turned)
        note_result(context, warp, row, cta, data, access)


@compiled
def issue_product(context: int, warp: int, row: int, lane: int) -> bool:
    """tcgen05.mma of a lane; False after a fault."""
    p = program_row(context, row)
    end = end_of_group(context, warp, row)
    if end < 0:
        return False
    take_group(context, warp, row)
    number = new_op(context, a.TENSOR_MMA, row, warp, 1 << lane)
    op = op_base(context, number)
    data = op_data(context, number)
    store_i64(data, t.D_TO, operand(context, warp, p, t.M_TO, lane) & 0xFFFFFFFF)
    store_i64(data, t.D_A, operand(context, warp, p, t.M_A, lane))
    if load_i64(p, y.P_FLAGS) & t.IN_TENSOR != 0:
        store_i64(data, t.D_A, load_i64(data, t.D_A) & 0xFFFFFFFF)
    store_i64(data, t.D_B, operand(context, warp, p, t.M_B, lane))
    store_i64(data, t.D_WORD, operand(context, warp, p, t.M_WORD, lane) & 0xFFFFFFFF)
    store_i64(data, t.D_ADDS, (load_i64(place(context, warp, load_i64(p, y.P_C)), 0) >> lane) & 1)
    store_i64(data, t.D_SCALE, load_i64(p, y.P_IMM))
    take_masks(context, warp, row, lane, data)
    if not check_product(context, warp, row, data, end):
        return False
    note_product(context, warp, row, data, end)
    first = (load_i64(data, t.D_B) & 0x3FFF) << 4
    store_i64(op, a.O_SHARED, cta_of(context, warp) << y.RANK_SHIFT | first)
    reach_group(context, warp, row, first, end)
    send(context, number)
    return True


@compiled
def issue_copy(context: int, warp: int, row: int, lane: int) -> bool:
    """tcgen05.cp of a lane; False after a fault."""
    p = program_row(context, row)
    end = end_of_group(context, warp, row)
    if end < 0:
        return False
    take_group(context, warp, row)
    number = new_op(context, a.TENSOR_COPY, row, warp, 1 << lane)
    op = op_base(context, number)
    to = operand(context, warp, p, 0, lane) & 0xFFFFFFFF
    descriptor = operand(context, warp, p, 1, lane)
    chunks = load_i64(p, y.P_IMM)
    size = load_i64(p, y.P_AUX) << 16 | chunks
    if not good_matrix(context, row, descriptor, size, 0):
        return False
    access = issued(context, warp, row)
    for cta in range(cta_of(context, warp), end):
        if not cells_exist(context, warp, row, cta, to, t.LANES, 4 * chunks):
            return False
        if load_i64(context, y.C_SANITIZE) != 0:
            note_chunks(context, warp, access, cta, s.as_wgmma(descriptor), size, 0)
            cells = (t.LANES << 16) | (4 * chunks)
            note_cells(context, warp, cta, to, cells, access, WRITE, PIPE)
    store_i64(op, a.O_DEST, to)
    store_i64(op, a.O_SOURCE, descriptor)
    first = (descriptor & 0x3FFF) << 4
    store_i64(op, a.O_SHARED, cta_of(context, warp) << y.RANK_SHIFT | first)
    reach_group(context, warp, row, first, end)
    send(context, number)
    return True


@compiled
def commit_to(context: int, warp: int, row: int, lane: int, address: int) -> bool:
    """An arrival of tcgen05.commit; False after a fault. What the thread knew of others before is
    handed over with it: the phase cannot end without it. Its own accesses are not."""
    slot = mbarrier_at(context, warp, row, address)
    if slot < 0:
        return False
    number = new_op(context, a.TENSOR_COMMIT, row, warp, 1 << lane)
    op = op_base(context, number)
    store_i64(op, a.O_MBARRIER, slot)
    store_i64(op, a.O_PHASE, phase_of(mbarrier_base(context, slot)))
    count = load_i64(warp_words(context, warp), t.TW_ISSUED)
    store_i64(op, a.O_GROUP, count)
    if load_i64(context, y.C_SANITIZE) != 0:
        # It has arrived when what is complete in the pipe says so: commits arrive in order.
        check_shown(context, warp, row, slot)
        access = packed(row, own(context, warp, TENSOR), count, ATOMIC_BIT)
        where = load_i64(mbarrier_base(context, slot), a.MB_ADDRESS)
        if where >> y.RANK_SHIFT != cta_of(context, warp):
            reach(context, warp, where, access)
        span(context, warp, where, 8, access, ATOMIC, 0)
        join(context, mbarrier_vector(context, slot, 0), clocks_of(context, warp))
    send(context, number)
    return True


@compiled
def issue_commit(context: int, warp: int, row: int, lane: int) -> bool:
    """tcgen05.commit of a lane; False after a fault."""
    p = program_row(context, row)
    take_group(context, warp, row)
    address = operand(context, warp, p, 0, lane)
    if address >= y.GENERIC_SHARED:
        address -= y.GENERIC_SHARED
    if load_i64(p, y.P_FLAGS) & t.MULTICAST == 0:
        return commit_to(context, warp, row, lane, address)
    mask = operand(context, warp, p, 1, lane) & 0xFFFF
    if mask == 0 or mask >> load_i64(context, y.C_CTAS_ALL) != 0:
        fault(context, row, y.FAULT_SHARED, address, mask)
        return False
    inside_cta = address & ((1 << y.RANK_SHIFT) - 1)
    for rank in range(16):
        if (mask >> rank) & 1:
            there = inside_cta | (rank << y.RANK_SHIFT)
            if not commit_to(context, warp, row, lane, there):
                return False
    return True
