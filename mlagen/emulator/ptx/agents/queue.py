"""Operations of agents that are on their way, and when their effects happen.

An operation is issued by an instruction, and recorded. In mode "earliest" its effects happen at
once; in "latest" when a completion that it belongs to is observed; in "drawn" some time before.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.landing import advance, land, op_base
from mlagen.emulator.ptx.agents.mbarriers import mbarrier_base, phase_of
from mlagen.emulator.ptx.order.blocks import end_of_block
from mlagen.emulator.ptx.state import cta_base, cta_of, next_random
from mlagen.emulator.ptx.tensor.allocation import check_freed


@compiled
def new_op(context: int, kind: int, row: int, warp: int, lanes: int) -> int:
    """Number of a new operation, which `send` sends on its way. Where the ring is full, the oldest
    one lands."""
    number = load_i64(context, y.C_OP_TAIL)
    if number - load_i64(context, y.C_OP_HEAD) >= a.OPS - 1:
        land(context, load_i64(context, y.C_OP_HEAD))
    op = op_base(context, number)
    for i in range(a.OP_SIZE):
        store_i64(op, i, 0)
    store_i64(op, a.O_KIND, kind)
    store_i64(op, a.O_ROW, row)
    store_i64(op, a.O_WARP, warp)
    store_i64(op, a.O_MASK, lanes)
    store_i64(op, a.O_CTA, cta_of(context, warp))
    store_i64(op, a.O_MBARRIER, -1)
    store_i64(op, a.O_SHARED, -1)
    return number


@compiled
def send(context: int, number: int) -> None:
    """An operation that `new_op` gave is on its way now."""
    store_i64(context, y.C_OP_TAIL, number + 1)
    if load_i64(context, y.C_MODE) == y.EARLIEST:
        land(context, number)


@compiled
def wanted(context: int, op: int) -> bool:
    """Whether somebody waits for the phase that an operation's bytes belong to."""
    slot = load_i64(op, a.O_MBARRIER)
    if slot < 0:
        return False
    m = mbarrier_base(context, slot)
    return load_i64(m, a.MB_WANTED) == phase_of(m)


@compiled
def land_needed(context: int) -> bool:
    """Nobody can run: let the effects of the operations happen that a blocked lane waits for, or of
    the oldest one. False when none is on its way."""
    head = load_i64(context, y.C_OP_HEAD)
    tail = load_i64(context, y.C_OP_TAIL)
    if head == tail:
        return False
    for number in range(head, tail):
        op = op_base(context, number)
        if load_i64(op, a.O_STATE) == a.ON_ITS_WAY and wanted(context, op):
            land(context, number)
            return True
    land(context, head)
    return True


@compiled
def land_some(context: int) -> None:
    """Mode "drawn": perhaps let the effects of some operation happen."""
    head = load_i64(context, y.C_OP_HEAD)
    tail = load_i64(context, y.C_OP_TAIL)
    if head == tail or next_random(context) & 7 != 0:
        return
    land(context, head + next_random(context) % (tail - head))


@compiled
def land_groups(context: int, warp: int, lanes: int, keep: int) -> None:
    """Bulk copies to global memory of lanes of a warp land, but for the last `keep` groups."""
    groups = load_i64(context, y.C_GROUPS) + warp * (8 * a.GROUPS)
    for number in range(load_i64(context, y.C_OP_HEAD), load_i64(context, y.C_OP_TAIL)):
        op = op_base(context, number)
        kind = load_i64(op, a.O_KIND)
        if load_i64(op, a.O_STATE) == a.DONE or load_i64(op, a.O_WARP) != warp:
            continue
        if kind != a.TO_GLOBAL and kind != a.TENSOR_TO_GLOBAL:
            continue
        for lane in range(y.LANES):
            if (load_i64(op, a.O_MASK) & lanes) >> lane == 1:
                open_group = load_i64(groups, a.GR_BULK + lane)
                if load_i64(op, a.O_GROUP) < open_group - keep:
                    land(context, number)


@compiled
def end_of_warp(context: int, warp: int) -> None:
    """A warp has ended: what it issued still happens; nobody waits for it any more. When it is the
    last of its CTA, what still reads or writes the CTA's shared memory comes too late."""
    cta = cta_of(context, warp)
    if load_i64(cta_base(context, cta), y.T_LIVE) != 0:
        return
    check_freed(context, warp)
    if load_i64(context, y.C_SANITIZE) != 0:
        end_of_block(context, cta)
    for number in range(load_i64(context, y.C_OP_HEAD), load_i64(context, y.C_OP_TAIL)):
        op = op_base(context, number)
        shared = load_i64(op, a.O_SHARED)
        if load_i64(op, a.O_STATE) != a.DONE and shared >= 0 and shared >> y.RANK_SHIFT == cta:
            land(context, number)
    advance(context)
