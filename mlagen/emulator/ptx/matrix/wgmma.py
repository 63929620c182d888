"""wgmma: matrix instructions of a warpgroup, and the groups of them on their way.

Each warp of a warpgroup has 16 of the 64 rows of D, and A's rows with them; all four read B. So
each warp's part is executed on its own, but none before the last of the four has come to it. Who
waits for a group waits for the parts of all four. In mode "earliest" a part happens when all four
have issued it, in "latest" when a wait makes it happen.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.control import block
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.elements import take_shared
from mlagen.emulator.ptx.matrix.fragments import (
    clear_sums,
    give_sums,
    take_fragment,
    take_sums,
)
from mlagen.emulator.ptx.matrix.product import multiply
from mlagen.emulator.ptx.matrix.reading import check_operand, extent
from mlagen.emulator.ptx.order.clocks import WGMMA, component, reached
from mlagen.emulator.ptx.order.register_reads import wgmma_registers
from mlagen.emulator.ptx.order.warpgroup import note_fence, note_group
from mlagen.emulator.ptx.state import (
    cta_of,
    lanes_of,
    moved,
    next_random,
    place,
    program_row,
    report,
    warp_base,
)

FENCE, COMMIT, WAIT, PRODUCT = range(4)


@compiled
def queue_of(context: int, warp: int) -> int:
    """Address of a warp's words of matrix.work_space."""
    return load_i64(context, y.C_MATRIX) + warp * (8 * m.WORDS)


@compiled
def slot_of(queue: int, number: int) -> int:
    """Address of an instruction on its way."""
    return queue + 8 * (m.Q_RING + (number & (m.RING - 1)) * m.R_SIZE)


@compiled
def first_row(context: int, warp: int) -> int:
    """The first of the 64 rows that a warp has."""
    return 16 * ((warp % load_i64(context, y.C_CTA_WARPS)) & 3)


@compiled
def issue(context: int, warp: int, row: int, mask: int) -> None:
    """wgmma.mma_async: check its operands, and put it on its way."""
    p = program_row(context, row)
    queue = queue_of(context, warp)
    aux = p + 8 * y.P_AUX
    layouts = load_i64(aux, m.X_LAYOUTS)
    depth = load_i64(aux, m.X_K)
    adds = 1
    if layouts & 8 != 0:
        adds = load_i64(p, y.P_IMM)
    else:
        chosen = load_i64(place(context, warp, load_i64(p, y.P_C)), 0) & mask
        adds = 1 if chosen != 0 else 0
        if chosen != 0 and chosen != mask and load_i64(context, y.C_SANITIZE) != 0:
            report(context, y.WGMMA_MISUSE, row, -1, warp, 1, 0, y.ERROR)
    if load_i64(queue, m.Q_OPEN) == 0:
        note_group(context, warp)
    first = first_row(context, warp)
    a = 0
    if layouts & 4 == 0:
        a = load_i64(place(context, warp, load_i64(p, y.P_A)), 0)
        kind = load_i64(aux, m.X_TYPE_A)
        size = extent(kind, first, m.ROWS, depth, layouts & 1)
        if not check_operand(context, warp, row, a, size, layouts & 1):
            return
    b = load_i64(place(context, warp, load_i64(p, y.P_B)), 0)
    size = extent(load_i64(aux, m.X_TYPE_B), 0, load_i64(aux, m.X_N), depth, (layouts >> 1) & 1)
    if not check_operand(context, warp, row, b, size, (layouts >> 1) & 1):
        return
    if load_i64(context, y.C_SANITIZE) != 0:
        if lanes_of(mask) != y.LANES:
            report(context, y.WGMMA_MISUSE, row, -1, warp, 2, mask, y.ERROR)
        wgmma_registers(context, warp, row, load_i64(queue, m.Q_COMMITTED) + 1, adds)
    tail = load_i64(queue, m.Q_TAIL)
    if tail - load_i64(queue, m.Q_HEAD) >= m.RING:
        land(context, warp, warp + 1, load_i64(queue, m.Q_HEAD) + 1, y.NEVER)
    slot = slot_of(queue, tail)
    store_i64(slot, m.R_ROW, row)
    store_i64(slot, m.R_A, a)
    store_i64(slot, m.R_B, b)
    store_i64(slot, m.R_ADDS, adds)
    store_i64(slot, m.R_GROUP, load_i64(queue, m.Q_COMMITTED))
    store_i64(queue, m.Q_TAIL, tail + 1)
    store_i64(queue, m.Q_OPEN, load_i64(queue, m.Q_OPEN) + 1)
    mode = load_i64(context, y.C_MODE)
    if mode == y.EARLIEST or (mode == y.DRAWN and next_random(context) & 1 == 0):
        begin(context, warp)


@compiled
def begin(context: int, warp: int) -> None:
    """What all four warps of a warpgroup have issued happens."""
    until = load_i64(queue_of(context, warp), m.Q_TAIL)
    for other in range(first_of_four(context, warp), end_of_four(context, warp)):
        until = min(until, load_i64(queue_of(context, other), m.Q_TAIL))
    land(context, first_of_four(context, warp), end_of_four(context, warp), until, y.NEVER)


@compiled
def land(context: int, first: int, end: int, until: int, groups: int) -> None:
    """Execute what is on its way of warps `first` to `end`: instructions before `until`, of the
    first `groups` groups. The warps go in turns: they share B."""
    row = -1  # the instruction whose B the work space has
    b = 0
    left = True
    while left:
        left = False
        for warp in range(first, end):
            queue = queue_of(context, warp)
            number = load_i64(queue, m.Q_HEAD)
            slot = slot_of(queue, number)
            if (
                number < min(until, load_i64(queue, m.Q_TAIL))
                and load_i64(slot, m.R_GROUP) < groups
            ):
                same = load_i64(slot, m.R_ROW) == row and load_i64(slot, m.R_B) == b
                row = load_i64(slot, m.R_ROW)
                b = load_i64(slot, m.R_B)
                execute_one(context, warp, slot, same)
                store_i64(queue, m.Q_HEAD, number + 1)
                left = True


@compiled
def execute_one(context: int, warp: int, slot: int, same: bool) -> None:
    """One instruction's part of one warp. `same`: the work space has its B."""
    p = program_row(context, load_i64(slot, m.R_ROW))
    aux = p + 8 * y.P_AUX
    temp = load_i64(context, y.C_TEMP)
    columns = load_i64(aux, m.X_N)
    depth = load_i64(aux, m.X_K)
    layouts = load_i64(aux, m.X_LAYOUTS)
    signs = load_i64(aux, m.X_SIGNS)
    shared = load_i64(context, y.C_SHARED) + cta_of(context, warp) * load_i64(
        context, y.C_SHARED_ROOM
    )
    if load_i64(slot, m.R_ADDS) != 0:
        take_sums(context, warp, p, columns, 0)
    else:
        clear_sums(temp, columns)
    form = load_i64(aux, m.X_TYPE_A) | (layouts & 1) << 8 | (signs & 1) << 9
    if layouts & 4 != 0:
        take_fragment(context, warp, p, load_i64(aux, m.X_REGISTERS), 4, form)
    else:
        size = m.ROWS << 16 | depth
        first = first_row(context, warp)
        take_shared(temp, shared, load_i64(slot, m.R_A), m.A_VALUE, size, first, form)
    if not same:
        form = load_i64(aux, m.X_TYPE_B) | (layouts >> 1 & 1) << 8 | (signs >> 1 & 1) << 9
        size = columns << 16 | depth
        take_shared(temp, shared, load_i64(slot, m.R_B), m.B_VALUE, size, 0, form)
    multiply(context, p, columns, depth, same)
    give_sums(context, warp, p, columns)


@compiled
def first_of_four(context: int, warp: int) -> int:
    """The first warp of the warpgroup that a warp belongs to."""
    return warp - ((warp % load_i64(context, y.C_CTA_WARPS)) & 3)


@compiled
def end_of_four(context: int, warp: int) -> int:
    """Behind the last warp of the same: a CTA's last warpgroup may have fewer than four."""
    rest = load_i64(context, y.C_CTA_WARPS) - warp % load_i64(context, y.C_CTA_WARPS)
    return min(first_of_four(context, warp) + 4, warp + rest)


@compiled
def wgmma_over(context: int, warp: int, groups: int) -> bool:
    """Whether the four warps of a warpgroup have committed so many groups, or ended: the tensor
    core begins when the last of them comes."""
    for other in range(first_of_four(context, warp), end_of_four(context, warp)):
        ended = load_i64(warp_base(context, other), y.W_STATE) == y.ENDED
        if not ended and load_i64(queue_of(context, other), m.Q_COMMITTED) < groups:
            return False
    return True


@compiled
def complete(context: int, warp: int, groups: int) -> None:
    """The first `groups` groups are complete. They are the warpgroup's: what one warp has waited
    for, no other one reads any more, as every pipeline of CUTLASS's has it. Registers are each
    warp's own, which waits for them itself."""
    queue = queue_of(context, warp)
    cta_warps = load_i64(context, y.C_CTA_WARPS)
    first = first_of_four(context, warp)
    end = end_of_four(context, warp)
    land(context, first, end, y.NEVER, groups)
    if load_i64(context, y.C_SANITIZE) != 0:
        for other in range(first, end):
            number = component(context, cta_of(context, warp), WGMMA, other % cta_warps)
            reached(context, warp, number, groups)
    if groups > load_i64(queue, m.Q_COMPLETE):
        store_i64(queue, m.Q_COMPLETE, groups)


@compiled
def run_wgmma(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN while a wait's groups are not the whole warpgroup's."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    queue = queue_of(context, warp)
    if op == PRODUCT:
        issue(context, warp, row, mask)
    elif op == FENCE:
        store_i64(queue, m.Q_EPOCH, load_i64(queue, m.Q_EPOCH) + 1)
        if load_i64(context, y.C_SANITIZE) != 0:
            note_fence(context, warp)
    elif op == COMMIT:
        store_i64(queue, m.Q_COMMITTED, load_i64(queue, m.Q_COMMITTED) + 1)
        store_i64(queue, m.Q_OPEN, 0)
        moved(context)
    else:
        left = load_i64(queue, m.Q_COMMITTED) - load_i64(p, y.P_IMM)
        if left > load_i64(queue, m.Q_COMPLETE):
            if not wgmma_over(context, warp, left):
                block(context, warp, mask, y.WAIT_WGMMA, warp, left)
                return y.AGAIN
            complete(context, warp, left)
    return y.NEXT
