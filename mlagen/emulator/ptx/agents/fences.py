"""Fences: what they order is kept in `order`."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import layout as a
from mlagen.emulator.ptx.agents.mbarriers import show_inits
from mlagen.emulator.ptx.order.clocks import fence_proxy
from mlagen.emulator.ptx.order.grid import fence_scope
from mlagen.emulator.ptx.order.loads import loads_over
from mlagen.emulator.ptx.state import program_row

# P_OP
SCOPE, PROXY_ASYNC, PROXY_GLOBAL, MBARRIER_INIT, PROXY_OTHER = range(5)


@compiled
def run_fence(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT. A fence of the async proxy for global memory alone says nothing of shared memory."""
    if load_i64(context, y.C_SANITIZE) == 0:
        return y.NEXT
    op = load_i64(program_row(context, row), y.P_OP)
    if op == PROXY_ASYNC or op == MBARRIER_INIT:  # noqa: SIM109 -- compiled code has no "in"
        show_inits(context, warp)
    if op == PROXY_ASYNC:
        loads_over(context, warp, mask)
        fence_proxy(context, warp)
    elif op == SCOPE or op == MBARRIER_INIT:  # noqa: SIM109 -- compiled code has no "in"
        groups = load_i64(context, y.C_GROUPS) + warp * (8 * a.GROUPS)
        store_i64(groups, a.GR_FENCED, 1)
        if op == SCOPE:
            fence_scope(context, warp)
    return y.NEXT
