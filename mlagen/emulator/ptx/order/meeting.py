"""Two accesses to the same bytes: whether they are ordered, and the finding where nothing does it.

An access of a warp has the number of its releases, plus one; an access of an agent the number of
what completes it (a phase or a group, counted from one) in `component`. It is ordered before what a
warp does when that warp's clocks (see `clocks`) have reached the number in the component.

The generic and the async proxy see each other's writes behind a fence: an agent's access is ordered
after a write of a warp when the FENCED component has reached it. For what cp.async wrote the ISA
asks for the fence too; hardware does without it, so a missing one there has the severity LETTER.

A load may read shared memory after instructions that follow it (`loads`): one whose value is used
behind a release is an access of that place of the program as well, a late one, which only writes
through the async proxy have to come after.

Accesses to tensor memory have an order of their own (`tensors`).
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, kind_of, own, warp_of
from mlagen.emulator.ptx.order.layout import (
    CLOCK_AT,
    CLOCK_BITS,
    COMPONENT_AT,
    COMPONENT_BITS,
    COPY,
    FENCED,
    FENCED_COPY,
    GENERIC,
    LATE_BIT,
    ROW_AT,
    WGMMA,
)
from mlagen.emulator.ptx.order.same import changes_nothing
from mlagen.emulator.ptx.order.tensors import BUT_FENCES, ISSUED, ORDERED, tensor_order
from mlagen.emulator.ptx.order.warpgroup import stored_before, stores_before
from mlagen.emulator.ptx.state import program_row, report, warp_base

# USE: the value of a load is used that others may take to be over (order.loads). STRONG_: loads and
# stores that are volatile, relaxed, acquire or release. They, and atomics, may meet each other.
READ, WRITE, ATOMIC, USE, STRONG_READ, STRONG_WRITE = range(6)
# What a finding's `b` says: how the later access met the earlier one.
AFTER_WRITE_READ, AFTER_READ_WRITE, AFTER_WRITE_WRITE = range(3)
PROXY = 4  # added: ordered, but for a proxy fence
ELSEWHERE = 8  # added: the earlier one is another cluster's
SAME = 16  # added: both write the same value
MEET = 32  # added: two warps of a warpgroup, which meet at a wgmma in between
TENSOR_FENCE = 64  # added: in tensor memory, ordered, but for tcgen05.fence
LATE = 128  # added: the load was issued before a release, and its value used after it

_CLOCKS = (1 << CLOCK_BITS) - 1
_COMPONENTS = (1 << COMPONENT_BITS) - 1


@compiled
def packed(row: int, number: int, clock: int, flags: int) -> int:
    """An access in one word."""
    return (row << ROW_AT) | (number << COMPONENT_AT) | ((clock & _CLOCKS) << CLOCK_AT) | flags


@compiled
def meet(
    context: int, warp: int, row: int, address: int, before: int, how: int, agent: int
) -> bool:
    """An access of `warp`, or of an agent that it started, meets an earlier one that nothing, or no
    fence, orders before it: whether that is a finding. `how`: the pair."""
    clocks = clocks_of(context, warp)
    number = (before >> COMPONENT_AT) & _COMPONENTS
    clock = (before >> CLOCK_AT) & _CLOCKS
    kind = kind_of(context, number)
    severity = y.ERROR
    pair = how
    late = before & LATE_BIT != 0
    if late and agent == 0:
        return False
    if agent >= ISSUED:
        known = tensor_order(context, warp, before, agent)
        if known == ORDERED:
            return False
        if known == BUT_FENCES:
            severity = y.LETTER
            pair |= TENSOR_FENCE
    elif load_i64(clocks, number) >= clock or (
        kind == GENERIC and number == own(context, warp, GENERIC) and not late
    ):
        if agent == 0 or how == AFTER_READ_WRITE:
            return False
        warps = load_i64(context, y.C_CTA_WARPS)
        if kind == GENERIC:
            if load_i64(clocks, number + (FENCED - GENERIC) * warps) >= clock:
                return False
            # By which proxy tcgen05.alloc writes, nobody says; Triton's kernels have no fence.
            if load_i64(program_row(context, before >> ROW_AT), y.P_CLASS) == y.X_TENSOR:
                severity = y.LETTER
        elif kind == COPY:
            if load_i64(clocks, number + (FENCED_COPY - COPY) * warps) >= clock:
                return False
            severity = y.LETTER
        else:
            return False
        pair |= PROXY
    elif late:
        pair |= LATE
    elif (
        how == AFTER_WRITE_WRITE
        and agent == 0
        and kind == GENERIC
        and changes_nothing(context, warp, row, address)
    ):
        severity = y.LETTER
        pair |= SAME
    elif meets(context, warp, row, number, kind, clock):
        severity = y.LETTER
        pair |= MEET
    found = report(context, y.RACE, row, before >> ROW_AT, warp, address, pair, severity)
    if found != 0:
        store_i64(found, y.F_OTHER_WARP, warp_of(context, number))
        if late:
            reader = warp_base(context, warp_of(context, number))
            store_i64(found, y.F_RELEASE, load_i64(reader, y.W_RELEASE))
    return True


@compiled
def meets(context: int, warp: int, row: int, number: int, kind: int, clock: int) -> bool:
    """Whether a store and a wgmma of two warps of a warpgroup, the later of them row `row` of
    `warp`, are ordered by the meeting of the warpgroup's warps. `number`, `kind`, `clock`: of the
    earlier."""
    if kind == GENERIC:
        return stored_before(context, warp, row, warp_of(context, number), clock)
    if kind == WGMMA:
        return stores_before(context, warp, warp_of(context, number), clock)
    return False


@compiled
def ordered(context: int, clocks: int, mine: int, before: int, agent: int) -> bool:
    """The common case: an earlier access is ordered before this one, with no proxy between."""
    number = (before >> COMPONENT_AT) & _COMPONENTS
    if agent >= ISSUED:
        return tensor_order(context, warp_of(context, mine), before, agent) == ORDERED
    if agent != 0:
        kind = kind_of(context, number)
        if kind == COPY or kind == GENERIC:  # noqa: SIM109 -- compiled code has no "in"
            return False
    elif number == mine:
        return True
    return load_i64(clocks, number) >= (before >> CLOCK_AT) & _CLOCKS
