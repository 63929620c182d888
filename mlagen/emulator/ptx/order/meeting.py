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

Who accesses, `agent`: 0 a warp, 1 an agent through the async proxy, of shared memory; ISSUED and
PIPE, of tensor memory; those of global memory are GENERAL more.
"""

from __future__ import annotations

from typing import Final

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, fenced_kind, kind_of, own, warp_of
from mlagen.emulator.ptx.order.pairs import (
    STRONG,
    WRITES,
    actors_of,
    near_access,
    unordered_lanes,
)
from mlagen.emulator.ptx.order.record_sizes import (
    CLOCK_AT,
    CLOCKS,
    COMPONENT_AT,
    COMPONENTS,
    COPY,
    FENCED_COPY,
    GENERIC,
    LATE_BIT,
    N_HOW,
    N_LANES,
    N_ONE,
    N_ROW,
    ROW_AT,
    WGMMA,
)
from mlagen.emulator.ptx.order.same import changes_nothing
from mlagen.emulator.ptx.order.tensors import BUT_FENCES, ORDERED, tensor_order
from mlagen.emulator.ptx.order.warpgroup import stored_before, stores_before
from mlagen.emulator.ptx.state import program_row, report, warp_base

# USE: the value of a load is used that others may take to be over (order.loads). STRONG_: loads and
# stores that are volatile, relaxed, acquire or release. They, and atomics, may meet each other.
READ, WRITE, ATOMIC, USE, STRONG_READ, STRONG_WRITE = range(6)
GENERAL: Final = 4
# What a finding's `b` says: how the later access met the earlier one.
AFTER_WRITE_READ, AFTER_READ_WRITE, AFTER_WRITE_WRITE = range(3)
PROXY = 4  # added: ordered, but for a proxy fence
ELSEWHERE = 8  # added: the earlier one is another cluster's
SAME = 16  # added: both write the same value
MEET = 32  # added: two warps of a warpgroup, which meet at a wgmma in between
TENSOR_FENCE = 64  # added: in tensor memory, ordered, but for tcgen05.fence
LATE = 128  # added: the load was issued before a release, and its value used after it
LANES = 256  # added: two lanes of one warp
NOT_FENCED, FENCED_ELSEWHERE, FENCED_HERE = range(3)


@compiled
def packed(row: int, number: int, clock: int, flags: int) -> int:
    """An access in one word."""
    return (row << ROW_AT) | (number << COMPONENT_AT) | ((clock & CLOCKS) << CLOCK_AT) | flags


@compiled
def meet(
    context: int, warp: int, row: int, address: int, before: int, how: int, agent: int
) -> bool:
    """An access of `warp`, or of an agent that it started, meets an earlier one that nothing, or no
    fence, orders before it: whether that is a finding. `how`: the pair."""
    clocks = clocks_of(context, warp)
    number = (before >> COMPONENT_AT) & COMPONENTS
    clock = (before >> CLOCK_AT) & CLOCKS
    kind = kind_of(context, number)
    severity = y.ERROR
    pair = how
    late = before & LATE_BIT != 0
    proxied = agent & 1 != 0
    if late and not proxied:
        return False
    if agent >> 1 == 1:
        known = tensor_order(context, warp, before, agent)
        if known == ORDERED:
            return False
        if known == BUT_FENCES:
            severity = y.LETTER
            pair |= TENSOR_FENCE
    elif load_i64(clocks, number) >= clock or (
        kind == GENERIC and number == own(context, warp, GENERIC) and not late
    ):
        if not proxied or how == AFTER_READ_WRITE or in_generic(context, row):
            return False
        warps = load_i64(context, y.C_CTA_WARPS)
        if kind == GENERIC:
            window = fence_of(context, clocks, address, agent, number, clock)
            if window == FENCED_HERE:
                return False
            if window == FENCED_ELSEWHERE:
                severity = y.LETTER
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
        and not proxied
        and kind == GENERIC
        and changes_nothing(context, warp, row, address)
    ):
        if agent >= GENERAL:  # every warp stores a result that all of them have
            return False
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
def in_generic(context: int, row: int) -> bool:
    """Whether a row is of st.async or red.async: what these write, they write through the generic
    proxy (PTX ISA, "st.async", "red.async")."""
    p = program_row(context, row)
    return load_i64(p, y.P_CLASS) == y.X_COPY and load_i64(p, y.P_FLAGS) & y.IN_GENERIC != 0


@compiled
def fence_of(context: int, clocks: int, address: int, agent: int, number: int, clock: int) -> int:
    """Whether a fence for the memory of an address shows a generic access of it to the async proxy:
    FENCED_HERE; FENCED_ELSEWHERE where one of another block's shared memory does, which hardware
    may not tell apart; NOT_FENCED."""
    warps = load_i64(context, y.C_CTA_WARPS)
    if agent >= GENERAL:
        kind = load_i64(context, y.C_FENCED_GLOBAL)
        return FENCED_HERE if load_i64(clocks, number + kind * warps) >= clock else NOT_FENCED
    kind = fenced_kind(context, address >> y.RANK_SHIFT)
    if load_i64(clocks, number + kind * warps) >= clock:
        return FENCED_HERE
    for rank in range(load_i64(context, y.C_CTAS_ALL)):
        if load_i64(clocks, number + fenced_kind(context, rank) * warps) >= clock:
            return FENCED_ELSEWHERE
    return NOT_FENCED


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
    number = (before >> COMPONENT_AT) & COMPONENTS
    if agent >> 1 == 1:
        return tensor_order(context, warp_of(context, mine), before, agent) == ORDERED
    if agent & 1 != 0:
        kind = kind_of(context, number)
        if kind == COPY or kind == GENERIC:  # noqa: SIM109 -- compiled code has no "in"
            return False
    elif number == mine:
        return True
    return load_i64(clocks, number) >= (before >> CLOCK_AT) & CLOCKS


@spliced
def recent(context: int, warp: int, before: int, mine: int) -> bool:
    """Whether an earlier access is of `warp` itself, since all of its lanes were ordered. `mine`:
    its component."""
    since = load_i64(warp_base(context, warp), y.W_ORDERED)
    return (before >> COMPONENT_AT) & COMPONENTS == mine and (before >> CLOCK_AT) & CLOCKS > since


@compiled
def lanes_meet(
    context: int, warp: int, row: int, address: int, bytes_: int, strong: int, how: int, agent: int
) -> None:
    """Bytes of four are accessed that the warp itself has accessed: report another lane of it that
    nothing orders before this one."""
    low = address & ~3
    high = low + 4
    while (bytes_ >> (low & 3)) & 1 == 0:
        low += 1
    while (bytes_ >> ((high - 1) & 3)) & 1 == 0:
        high -= 1
    writes = 0 if how == READ else WRITES
    if strong != 0:
        writes |= STRONG
    actors = actors_of(context, warp, row)
    found = unordered_lanes(context, warp, row, low, high, writes, actors)
    if found < 0:
        return
    near = near_access(context, warp, found >> 10)
    pair = AFTER_WRITE_READ
    if how != READ:
        wrote = load_i64(near, N_HOW) & WRITES != 0
        pair = AFTER_WRITE_WRITE if wrote else AFTER_READ_WRITE
    severity = y.ERROR
    if how == READ:  # what the lane wrote itself, as the others did
        same = load_i64(near, N_ONE) != 0 and (load_i64(near, N_LANES) >> (found & 31)) & 1 != 0
    else:
        same = agent == 0 and changes_nothing(context, warp, row, address)
    if same:
        severity = y.LETTER
        pair |= SAME
    pair |= LANES
    told = report(context, y.RACE, row, load_i64(near, N_ROW), warp, address, pair, severity)
    if told != 0:
        store_i64(told, y.F_RELEASE, found & 1023)


@spliced
def near_how(how: int) -> int:
    """What `pairs` keeps of READ, WRITE and the others."""
    kept = 0
    if how >= ATOMIC:
        kept |= STRONG
    if how != READ and how != STRONG_READ:
        kept |= WRITES
    return kept
