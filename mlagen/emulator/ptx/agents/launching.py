"""griddepcontrol, clusterlaunchcontrol, setmaxnreg; mapa and getctarank; tensormap.replace."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.cancelling import query, try_cancel
from mlagen.emulator.ptx.agents.copies import groups_at
from mlagen.emulator.ptx.agents.editing import copy_map, replace_field
from mlagen.emulator.ptx.agents.places import operand
from mlagen.emulator.ptx.control import block
from mlagen.emulator.ptx.state import (
    cta_base,
    cta_of,
    fault,
    give_way,
    moved,
    place,
    program_row,
    report,
)

# P_OP
(
    GRID_WAIT,
    GRID_LAUNCH,
    INCREASE,
    DECREASE,
    MAPA,
    RANK,
    REPLACE,
    COPY_MAP,
    CANCEL,
    QUERY,
) = range(10)
# P_FLAGS
GENERIC, WIDE = 1, 2
REGISTERS = 65536  # of a multiprocessor


@compiled
def registers_now(context: int, warp: int, p: int) -> int:
    """Registers that a thread of a warp has. At launch: what the kernel's text says (.maxnreg, its
    block), else an equal share of the multiprocessor's, by eights, and by four warps, as these are
    allocated."""
    held = load_i64(groups_at(context, warp), a.GR_REGISTERS)
    if held != 0:
        return held
    said = load_i64(p, y.P_TYPE)
    if said != 0:
        return said
    warps = (load_i64(context, y.C_CTA_WARPS) + 3) // 4 * 4
    return min(REGISTERS // (warps * y.LANES) // 8 * 8, 255)


@compiled
def change_registers(context: int, warp: int, row: int) -> int:
    """setmaxnreg: what a warp gives back another can take. AGAIN while too few are free."""
    p = program_row(context, row)
    wanted = load_i64(p, y.P_IMM)
    now = registers_now(context, warp, p)
    cta = cta_base(context, cta_of(context, warp))
    free = load_i64(cta, y.T_REGISTERS)
    more = (wanted - now) * y.LANES
    op = load_i64(p, y.P_OP)
    if (op == INCREASE and more < 0) or (op == DECREASE and more > 0):
        report(context, y.REGISTERS_BUDGET, row, -1, warp, wanted, now, y.LETTER)
        return y.NEXT
    if more > free:
        give_way(context, warp)
        return y.AGAIN
    store_i64(cta, y.T_REGISTERS, free - more)
    store_i64(groups_at(context, warp), a.GR_REGISTERS, wanted)
    moved(context)
    return y.NEXT


@compiled
def map_addresses(context: int, warp: int, row: int, mask: int) -> None:
    """mapa: the same place of another CTA; getctarank: whose place it is."""
    p = program_row(context, row)
    where = place(context, warp, load_i64(p, y.P_DST))
    flags = load_i64(p, y.P_FLAGS)
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        address = operand(context, warp, p, 0, lane)
        inside = address & ((1 << y.RANK_SHIFT) - 1)
        value = (address >> y.RANK_SHIFT) & 0xFF
        if load_i64(p, y.P_OP) == MAPA:
            rank = operand(context, warp, p, 1, lane) & 0xFFFFFFFF
            if rank >= load_i64(context, y.C_CTAS_ALL):
                fault(context, row, y.FAULT_SHARED, address, rank)
                return
            value = inside | rank << y.RANK_SHIFT
            if flags & GENERIC != 0:
                value += y.GENERIC_SHARED
        if flags & WIDE != 0:
            store_i64(where, lane, value)
        else:
            store_u32(where, lane, uint32(value))


@compiled
def run_launch(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    op = load_i64(program_row(context, row), y.P_OP)
    grid = load_i64(context, y.C_GRID)
    if op == GRID_WAIT:
        if not grid_over(context):
            block(context, warp, mask, y.WAIT_GRID, 0, 0)
            return y.AGAIN
    elif op == GRID_LAUNCH:
        store_i64(grid, a.GRID_LAUNCHED, load_i64(grid, a.GRID_LAUNCHED) + 1)
    elif op == INCREASE or op == DECREASE:  # noqa: SIM109 -- compiled code has no "in"
        return change_registers(context, warp, row)
    elif op == REPLACE:
        replace_field(context, warp, row, mask)
    elif op == COPY_MAP:
        copy_map(context, warp, row, mask)
    elif op == CANCEL:
        try_cancel(context, warp, row, mask)
    elif op == QUERY:
        query(context, warp, row, mask)
    else:
        map_addresses(context, warp, row, mask)
    return y.NEXT


@compiled
def grid_over(context: int) -> bool:
    """Whether the grids that this one depends on have ended."""
    return load_i64(load_i64(context, y.C_GRID), a.GRID_UNFINISHED) == 0
