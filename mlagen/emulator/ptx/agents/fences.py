"""Fences: what they order is kept in `order`."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.mbarriers import show_inits
from mlagen.emulator.ptx.agents.places import operand
from mlagen.emulator.ptx.order.clocks import IN_GLOBAL, fence_proxy
from mlagen.emulator.ptx.order.grid import fence_others, fence_scope
from mlagen.emulator.ptx.order.loads import loads_over
from mlagen.emulator.ptx.order.maps import map_acquired, maps_released
from mlagen.emulator.ptx.state import program_row

# P_OP
SCOPE, PROXY_ASYNC, MBARRIER_INIT, PROXY_ALIAS, MAP_RELEASE, MAP_ACQUIRE = range(6)


@compiled
def run_fence(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT. A fence of the async proxy is for the memory that its P_FLAGS say."""
    if load_i64(context, y.C_SANITIZE) == 0:
        return y.NEXT
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    spaces = load_i64(p, y.P_FLAGS)
    shared = op == PROXY_ASYNC and spaces != IN_GLOBAL
    if shared or op == MBARRIER_INIT:
        show_inits(context, warp)
    if op == PROXY_ASYNC:
        if shared:
            loads_over(context, warp, mask)
        fence_proxy(context, warp, spaces)
        if spaces & IN_GLOBAL != 0:
            fence_others(context)
    elif op == SCOPE or op == MBARRIER_INIT:  # noqa: SIM109 -- compiled code has no "in"
        groups = load_i64(context, y.C_GROUPS) + warp * (8 * a.GROUPS)
        store_i64(groups, a.GR_FENCED, 1)
        if op == SCOPE:
            fence_scope(context, warp)
    elif load_i64(context, y.C_EDITS) != 0:
        map_fence(context, warp, p, mask)
    return y.NEXT


@compiled
def map_fence(context: int, warp: int, p: int, mask: int) -> None:
    """fence.proxy.tensormap::generic: of all maps, or of the one at each lane's address."""
    op = load_i64(p, y.P_OP)
    if op == MAP_RELEASE:
        maps_released(context, warp)
    elif op == MAP_ACQUIRE:
        for lane in range(y.LANES):
            if (mask >> lane) & 1:
                map_acquired(context, warp, operand(context, warp, p, 0, lane))
