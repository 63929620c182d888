"""Groups of copies: commit and wait."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.copies import groups_at
from mlagen.emulator.ptx.agents.landing import advance, land_copies
from mlagen.emulator.ptx.agents.queue import land_groups
from mlagen.emulator.ptx.order.clocks import BULK, BULK_READ, COPY, own, reached
from mlagen.emulator.ptx.state import first_lane, moved, program_row

# P_OP
COMMIT, WAIT, WAIT_ALL, BULK_COMMIT, BULK_WAIT = range(5)
READ = 1  # P_FLAGS


@compiled
def commit_copies(context: int, warp: int, mask: int) -> None:
    """cp.async.commit_group."""
    groups = groups_at(context, warp)
    epoch = load_i64(groups, a.GR_EPOCH)
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            number = load_i64(groups, a.GR_COPY + lane)
            store_i64(groups, a.GR_EPOCHS + (number & (a.GR_KEPT - 1)), epoch)
            store_i64(groups, a.GR_COPY + lane, number + 1)
    store_i64(groups, a.GR_EPOCH, epoch + 1)


@compiled
def wait_copies(context: int, warp: int, mask: int, keep: int) -> None:
    """cp.async.wait_group: all but the last `keep` groups of each lane are complete."""
    groups = groups_at(context, warp)
    ready = load_i64(context, y.C_TEMP)
    for lane in range(y.LANES):
        store_i64(ready, lane, load_i64(groups, a.GR_COPY + lane) - keep)
    if load_i64(context, y.C_OP_HEAD) != load_i64(context, y.C_OP_TAIL):
        land_copies(context, warp, mask, load_i64(context, y.C_OP_TAIL), ready)
        advance(context)
        moved(context)
    last = load_i64(ready, first_lane(mask)) - 1
    if load_i64(context, y.C_SANITIZE) != 0 and last >= 0 and keep < a.GR_KEPT:
        epoch = load_i64(groups, a.GR_EPOCHS + (last & (a.GR_KEPT - 1)))
        reached(context, warp, own(context, warp, COPY), epoch + 1)


@compiled
def wait_bulk(context: int, warp: int, mask: int, keep: int, read: int) -> None:
    """cp.async.bulk.wait_group, and .read."""
    groups = groups_at(context, warp)
    if load_i64(context, y.C_OP_HEAD) != load_i64(context, y.C_OP_TAIL):
        land_groups(context, warp, mask, keep)
    if load_i64(context, y.C_SANITIZE) == 0:
        return
    known = 0
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            known = max(known, load_i64(groups, a.GR_BULK + lane) - keep)
    reached(context, warp, own(context, warp, BULK_READ), known)
    if read == 0:
        reached(context, warp, own(context, warp, BULK), known)


@compiled
def run_group(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    if op == COMMIT or op == WAIT_ALL:  # noqa: SIM109 -- compiled code has no "in"
        commit_copies(context, warp, mask)
    if op == WAIT or op == WAIT_ALL:  # noqa: SIM109 -- compiled code has no "in"
        wait_copies(context, warp, mask, load_i64(p, y.P_IMM))
    elif op == BULK_COMMIT:
        groups = groups_at(context, warp)
        for lane in range(y.LANES):
            if (mask >> lane) & 1:
                at = a.GR_BULK + lane
                store_i64(groups, at, load_i64(groups, at) + 1)
    elif op == BULK_WAIT:
        wait_bulk(context, warp, mask, load_i64(p, y.P_IMM), load_i64(p, y.P_FLAGS) & READ)
    return y.NEXT
