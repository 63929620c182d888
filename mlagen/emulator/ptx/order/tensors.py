"""Order of accesses to tensor memory (PTX ISA, "tcgen05 Memory Consistency Model").

tcgen05.mma and tcgen05.cp are executed in the order in which they were issued: an earlier one is
before a later one of the same warp, and of another one where a tcgen05.fence::before_thread_sync
lies behind it, and an ..::after_thread_sync before the later one. Nothing else is in that order.
Who loads, stores or frees what they wrote waits for a tcgen05.commit behind them; what tcgen05.ld
and tcgen05.st access is theirs until their warp has done the tcgen05.wait. Between warps the ISA
asks for both fences beside the barrier. Triton's kernels have none of them, and run: a missing
fence has the severity LETTER.
"""

from __future__ import annotations

from typing import Final

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, kind_of, own, reached, warp_of
from mlagen.emulator.ptx.order.record_sizes import (
    CLOCK_AT,
    CLOCKS,
    COMPONENT_AT,
    COMPONENTS,
    LOADED,
    LOADED_FENCED,
    ROW_AT,
    STORED,
    STORED_FENCED,
    TENSOR,
    TENSOR_BEGUN,
)
from mlagen.emulator.ptx.state import cta_of, program_row
from mlagen.emulator.ptx.tensor.tensor_memory import PAIR

# Who accesses, beside 0 (a warp) and 1 (an agent, through the async proxy): tcgen05.ld and .st of a
# warp, the pipe of tcgen05.mma and .cp.
ISSUED: Final = 2
PIPE: Final = 3
UNORDERED, ORDERED, BUT_FENCES = range(3)


@compiled
def after_of(context: int, warp: int) -> int:
    """Address of what a warp knew at its last tcgen05.fence::after_thread_sync."""
    return load_i64(context, y.C_AFTER) + warp * (8 * load_i64(context, y.C_COMPONENTS))


@compiled
def tensor_order(context: int, warp: int, before: int, agent: int) -> int:
    """How an earlier access to tensor memory is ordered before one that `warp` issues: UNORDERED,
    ORDERED or BUT_FENCES."""
    number = (before >> COMPONENT_AT) & COMPONENTS
    clock = (before >> CLOCK_AT) & CLOCKS
    kind = kind_of(context, number)
    other = warp_of(context, number)
    known = load_i64(clocks_of(context, warp), number) >= clock
    after = after_of(context, warp)
    if kind == TENSOR:
        begun = own(context, other, TENSOR_BEGUN)
        if agent == PIPE and (other == warp or load_i64(after, begun) >= clock):
            return ORDERED
        if load_i64(after, number) >= clock:
            return ORDERED
        if agent == PIPE and load_i64(clocks_of(context, warp), begun) >= clock:
            return BUT_FENCES
        return BUT_FENCES if known else UNORDERED
    if kind == LOADED or kind == STORED:  # noqa: SIM109 -- compiled code has no "in"
        if not known:
            return UNORDERED
        fenced = own(context, other, LOADED_FENCED if kind == LOADED else STORED_FENCED)
        if other == warp or load_i64(after, fenced) >= clock:
            return ORDERED
        return BUT_FENCES
    if known or other == warp:
        return ORDERED
    # What is left has allocated or freed. The blocks of a pair do that together.
    flags = load_i64(program_row(context, before >> ROW_AT), y.P_FLAGS)
    apart = cta_of(context, other) != cta_of(context, warp)
    return ORDERED if apart and flags & PAIR != 0 else UNORDERED


@compiled
def fence_after(context: int, warp: int) -> None:
    """tcgen05.fence::after_thread_sync: what the warp knows now is before its further accesses."""
    clocks = clocks_of(context, warp)
    after = after_of(context, warp)
    for i in range(load_i64(context, y.C_COMPONENTS)):
        store_i64(after, i, load_i64(clocks, i))


@compiled
def fence_before(context: int, warp: int, issued: int) -> None:
    """tcgen05.fence::before_thread_sync: `issued` tcgen05.mma and .cp of the warp, and what it has
    waited for, are before what others do that it synchronises with."""
    clocks = clocks_of(context, warp)
    reached(context, warp, own(context, warp, TENSOR_BEGUN), issued)
    loaded = load_i64(clocks, own(context, warp, LOADED))
    reached(context, warp, own(context, warp, LOADED_FENCED), loaded)
    stored = load_i64(clocks, own(context, warp, STORED))
    reached(context, warp, own(context, warp, STORED_FENCED), stored)
