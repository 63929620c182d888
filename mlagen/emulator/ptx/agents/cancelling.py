"""clusterlaunchcontrol: a cluster takes the work of one that has not begun.

What is written to shared memory says whether there was one, and its first CTA. No one knows how
hardware writes that down: here the first word is 1 where there was one, and the other three are
%ctaid of its first CTA.
"""

from __future__ import annotations

from typing import Final

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.landing import op_base, op_data
from mlagen.emulator.ptx.agents.mbarriers import misuse
from mlagen.emulator.ptx.agents.places import operand, shared_host, shared_place
from mlagen.emulator.ptx.agents.queue import new_op, send
from mlagen.emulator.ptx.agents.tensors import note_shared, take_mbarrier
from mlagen.emulator.ptx.state import place, program_row

ANSWER: Final = 16  # bytes
EVERYWHERE: Final = 1  # P_FLAGS: .multicast::cluster::all


@compiled
def taken(context: int) -> int:
    """Number of a cluster that has not begun and never will; -1 for none."""
    grid = load_i64(context, y.C_GRID)
    number = load_i64(grid, a.GRID_NEXT)
    if number >= load_i64(grid, a.GRID_END):
        return -1
    store_i64(grid, a.GRID_NEXT, number + 1)
    return number


@compiled
def answer(context: int, data: int, number: int) -> None:
    """The 16 bytes about a cluster."""
    grid = load_i64(context, y.C_GRID)
    across = load_i64(grid, a.GRID_PER)
    down = load_i64(grid, a.GRID_PER + 1)
    found = 0 if number < 0 else 1
    rest = max(number, 0)
    x = rest % across * load_i64(grid, a.GRID_CLUSTER)
    second = rest // across % down * load_i64(grid, a.GRID_CLUSTER + 1)
    third = rest // (across * down) * load_i64(grid, a.GRID_CLUSTER + 2)
    store_u32(data, 0, uint32(found))
    store_u32(data, 1, uint32(x))
    store_u32(data, 2, uint32(second))
    store_u32(data, 3, uint32(third))


@compiled
def answer_to(
    context: int, warp: int, row: int, lane: int, number: int, target: int, mbarrier: int
) -> bool:
    """The answer of one CTA goes on its way; False after a fault."""
    made = new_op(context, a.WORDS, row, warp, 1 << lane)
    op = op_base(context, made)
    where = shared_place(context, row, target, ANSWER, ANSWER)
    if where < 0 or not take_mbarrier(context, warp, row, op, mbarrier):
        return False
    answer(context, op_data(context, made), number)
    store_i64(op, a.O_BYTES, ANSWER)
    store_i64(op, a.O_SHARED, where)
    store_i64(op, a.O_DEST, shared_host(context, where))
    note_shared(context, op, where, ANSWER)
    send(context, made)
    return True


@compiled
def try_cancel(context: int, warp: int, row: int, mask: int) -> None:
    """clusterlaunchcontrol.try_cancel, of each lane."""
    p = program_row(context, row)
    inside = (1 << y.RANK_SHIFT) - 1
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        target = operand(context, warp, p, 0, lane) & 0xFFFFFFFF
        mbarrier = operand(context, warp, p, 1, lane) & 0xFFFFFFFF
        number = taken(context)
        if load_i64(p, y.P_FLAGS) & EVERYWHERE == 0:
            if target >> y.RANK_SHIFT != mbarrier >> y.RANK_SHIFT:
                misuse(context, warp, row, a.OTHER_CTA, mbarrier)
            if not answer_to(context, warp, row, lane, number, target, mbarrier):
                return
            continue
        for rank in range(load_i64(context, y.C_CTAS_ALL)):
            upper = rank << y.RANK_SHIFT
            here = (target & inside) | upper
            told = (mbarrier & inside) | upper
            if not answer_to(context, warp, row, lane, number, here, told):
                return


@compiled
def query(context: int, warp: int, row: int, mask: int) -> None:
    """clusterlaunchcontrol.query_cancel: words of an answer in a register of 128 bits, as P_COUNT
    registers, or whether there was a cluster, as a predicate."""
    p = program_row(context, row)
    source = place(context, warp, load_i64(p, y.P_A))
    where = load_i64(p, y.P_DST)
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        low = load_i64(source, lane)
        high = load_i64(source + 8 * y.LANES, lane)
        if where != y.NONE:
            row_at = place(context, warp, where)
            held = load_i64(row_at, 0) & ~(1 << lane)
            store_i64(row_at, 0, held | (low & 1) << lane)
            continue
        words = load_i64(context, y.C_LIST) + 8 * load_i64(p, y.P_LIST)
        for i in range(load_i64(p, y.P_COUNT)):
            into = load_i64(words, i)
            axis = load_i64(p, y.P_IMM) + i
            value = low >> 32
            if axis == 1:
                value = high
            elif axis == 2:
                value = high >> 32
            elif axis == 3:
                value = int64(0)
            if into != y.NONE:
                store_u32(place(context, warp, into), lane, uint32(value & 0xFFFFFFFF))
