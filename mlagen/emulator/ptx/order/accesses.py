"""The record of accesses: who read and wrote each word last, and what orders the next one.

Hooks of the engine. An access of a warp has the number of its releases, plus one; an access of an
agent the number of what completes it (a phase or a group, counted from one) in `component`. It is
ordered before what a warp does when that warp's clocks (see `clocks`) have reached the number in
the component.

The generic and the async proxy see each other's writes behind a fence: an agent's access is ordered
after a write of a warp when the FENCED component has reached it. For what cp.async wrote the ISA
asks for the fence too; hardware does without it, so a missing one there has the severity LETTER.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, own
from mlagen.emulator.ptx.order.grid import known, release_global, seen, word_of
from mlagen.emulator.ptx.order.layout import (
    ATOMIC_BIT,
    CELL,
    CELL_FIRST,
    CELL_READS,
    CELL_WRITE,
    CLOCK_AT,
    CLOCK_BITS,
    COMPONENT_AT,
    COMPONENT_BITS,
    COPY,
    CTA_MBARRIERS,
    FENCED,
    FENCED_COPY,
    G_CLUSTERS,
    GENERIC,
    KINDS,
    READERS,
    ROW_AT,
    WGMMA,
)
from mlagen.emulator.ptx.order.same import changes_nothing
from mlagen.emulator.ptx.order.warpgroup import stored_before, stores_before
from mlagen.emulator.ptx.state import report, warp_base

# STRONG_: loads and stores that are volatile, relaxed, acquire or release. They, and atomics, may
# meet each other.
READ, WRITE, ATOMIC, STRONG_READ, STRONG_WRITE = range(5)
# What a finding's `b` says: how the later access met the earlier one.
AFTER_WRITE_READ, AFTER_READ_WRITE, AFTER_WRITE_WRITE = range(3)
PROXY = 4  # added: ordered, but for a proxy fence
ELSEWHERE = 8  # added: the earlier one is another cluster's
SAME = 16  # added: both write the same value
MEET = 32  # added: two warps of a warpgroup, which meet at a wgmma in between

_CLOCKS = (1 << CLOCK_BITS) - 1
_COMPONENTS = (1 << COMPONENT_BITS) - 1


@compiled
def packed(row: int, number: int, clock: int, flags: int) -> int:
    """An access in one word."""
    return (row << ROW_AT) | (number << COMPONENT_AT) | ((clock & _CLOCKS) << CLOCK_AT) | flags


@compiled
def kind_of(context: int, number: int) -> int:
    """Which kind a component is of; KINDS for an mbarrier's."""
    warps = load_i64(context, y.C_CTA_WARPS)
    within = number % (KINDS * warps + CTA_MBARRIERS)
    return min(within // warps, KINDS)


@compiled
def warp_of(context: int, number: int) -> int:
    """The warp of the cluster that a component belongs to; -1 for an mbarrier's."""
    warps = load_i64(context, y.C_CTA_WARPS)
    size = KINDS * warps + CTA_MBARRIERS
    cta = number // size
    within = number - cta * size
    if within >= KINDS * warps:
        return -1
    return cta * warps + within % warps


@compiled
def meet(
    context: int, warp: int, row: int, address: int, before: int, how: int, agent: int
) -> None:
    """An access of `warp`, or of an agent that it started, meets an earlier one that nothing, or no
    fence, orders before it. `how`: the pair."""
    clocks = clocks_of(context, warp)
    number = (before >> COMPONENT_AT) & _COMPONENTS
    clock = (before >> CLOCK_AT) & _CLOCKS
    kind = kind_of(context, number)
    severity = y.HARDWARE
    pair = how
    if load_i64(clocks, number) >= clock or (
        kind == GENERIC and number == own(context, warp, GENERIC)
    ):
        if agent == 0 or how == AFTER_READ_WRITE:
            return
        warps = load_i64(context, y.C_CTA_WARPS)
        if kind == GENERIC:
            if load_i64(clocks, number + (FENCED - GENERIC) * warps) >= clock:
                return
        elif kind == COPY:
            if load_i64(clocks, number + (FENCED_COPY - COPY) * warps) >= clock:
                return
            severity = y.LETTER
        else:
            return
        pair |= PROXY
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
    if agent != 0:
        kind = kind_of(context, number)
        if kind == COPY or kind == GENERIC:  # noqa: SIM109 -- compiled code has no "in"
            return False
    elif number == mine:
        return True
    return load_i64(clocks, number) >= (before >> CLOCK_AT) & _CLOCKS


@compiled
def note_read(context: int, cell: int, clocks: int, access: int) -> None:
    """Keep a read: in the place of an earlier one of its component, or of one that it is ordered
    after, or in a new one."""
    count = load_i64(cell, CELL_READS)
    number = (access >> COMPONENT_AT) & _COMPONENTS
    for i in range(CELL_FIRST, CELL_FIRST + count):
        held = load_i64(cell, i)
        if (held >> COMPONENT_AT) & _COMPONENTS == number:
            store_i64(cell, i, access | held & 0xF)
            return
    if count == READERS:
        for i in range(CELL_FIRST, CELL_FIRST + count):
            held = load_i64(cell, i)
            other = (held >> COMPONENT_AT) & _COMPONENTS
            if load_i64(clocks, other) >= (held >> CLOCK_AT) & _CLOCKS:
                store_i64(cell, i, access)
                return
        store_i64(cell, CELL_FIRST, access)
        return
    store_i64(cell, CELL_FIRST + count, access)
    store_i64(cell, CELL_READS, count + 1)


@compiled
def access_cell(
    context: int, warp: int, cell: int, access: int, address: int, how: int, agent: int
) -> None:
    """One access to (some of) four bytes."""
    clocks = clocks_of(context, warp)
    row = access >> ROW_AT
    mine = own(context, warp, GENERIC)
    bytes_ = access & 0xF
    write = load_i64(cell, CELL_WRITE)
    if write == 0:
        if how == READ:
            report(context, y.UNDEFINED_SHARED, row, -1, warp, address, 0, y.LETTER)
            store_i64(cell, CELL_WRITE, ATOMIC_BIT)
    elif (
        write & bytes_ != 0
        and access & write & ATOMIC_BIT == 0
        and not ordered(context, clocks, mine, write, agent)
    ):
        pair = AFTER_WRITE_READ if how == READ else AFTER_WRITE_WRITE
        meet(context, warp, row, address, write, pair, agent)
    if how == READ:
        note_read(context, cell, clocks, access)
        return
    count = load_i64(cell, CELL_READS)
    for i in range(CELL_FIRST, CELL_FIRST + count):
        held = load_i64(cell, i)
        if (
            held & bytes_ != 0
            and access & held & ATOMIC_BIT == 0
            and not ordered(context, clocks, mine, held, agent)
        ):
            meet(context, warp, row, address, held, AFTER_READ_WRITE, agent)
    store_i64(cell, CELL_WRITE, access)
    store_i64(cell, CELL_READS, 0)


@compiled
def cell_of(context: int, address: int) -> int:
    """The record of the four bytes that an address in shared memory lies in."""
    room = load_i64(context, y.C_SHARED_ROOM)
    word = (address >> y.RANK_SHIFT) * room + (address & ((1 << y.RANK_SHIFT) - 1))
    return load_i64(context, y.C_SHADOW) + (word >> 2) * CELL


@compiled
def span(
    context: int, warp: int, address: int, size: int, access: int, how: int, agent: int
) -> None:
    """An access to `size` bytes from `address`."""
    at = address
    end = address + size
    while at < end:
        inside = at & 3
        count = min(4 - inside, end - at)
        bytes_ = ((1 << count) - 1) << inside
        access_cell(context, warp, cell_of(context, at), access | bytes_, at, how, agent)
        at += count


@compiled
def shared_lanes(
    context: int, warp: int, row: int, mask: int, addresses: int, size: int, how: int
) -> None:
    """A generic access of `size` bytes a lane to shared memory. `addresses`: of 32 int64 words,
    rank << 24 | offset each. `how`: READ, WRITE, ATOMIC, STRONG_READ or STRONG_WRITE."""
    number = own(context, warp, GENERIC)
    clock = load_i64(clocks_of(context, warp), number) + 1
    flags = ATOMIC_BIT if how >= ATOMIC else 0
    access = packed(row, number, clock, flags)
    plain = how
    if how > ATOMIC:
        plain = READ if how == STRONG_READ else WRITE
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            span(context, warp, load_i64(addresses, lane), size, access, plain, 0)


@compiled
def shared_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, number: int, clock: int
) -> None:
    """An access of an agent through the async proxy, which `warp` issued: `size` bytes of shared
    memory from `address`. It is complete when component `number` reaches `clock`."""
    flags = ATOMIC_BIT if how == ATOMIC else 0
    span(context, warp, address, size, packed(row, number, clock, flags), how, 1)


@compiled
def copied_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, number: int, clock: int
) -> None:
    """The same of cp.async, whose accesses go through the generic proxy."""
    span(context, warp, address, size, packed(row, number, clock, 0), how, 0)


@compiled
def other_cluster(context: int, warp: int, row: int, address: int, word: int, how: int) -> None:
    """A word that another cluster wrote: report it unless this cluster knows of it."""
    before = load_i64(word, 1)
    cluster = load_i64(word, 2)
    number = (before >> COMPONENT_AT) & _COMPONENTS
    clocks = known(context, load_i64(context, y.C_CLUSTER), cluster)
    if load_i64(clocks, number) >= (before >> CLOCK_AT) & _CLOCKS:
        return
    pair = how | ELSEWHERE
    severity = y.HARDWARE
    if how == AFTER_WRITE_WRITE and changes_nothing(context, warp, row, address):
        pair |= SAME
        severity = y.LETTER
    found = report(context, y.RACE, row, before >> ROW_AT, warp, address, pair, severity)
    if found != 0:
        store_i64(found, y.F_OTHER_WARP, warp_of(context, number))


@compiled
def access_word(context: int, warp: int, address: int, access: int, how: int, agent: int) -> None:
    """One access to (some of) four bytes of global memory. Reads are not kept."""
    word = word_of(context, address, how != READ)
    if word == 0:
        return
    before = load_i64(word, 1)
    if before & access & 0xF != 0 and before & access & ATOMIC_BIT == 0:
        pair = AFTER_WRITE_READ if how == READ else AFTER_WRITE_WRITE
        row = access >> ROW_AT
        mine = own(context, warp, GENERIC)
        clocks = clocks_of(context, warp)
        if load_i64(word, 2) != load_i64(context, y.C_CLUSTER):
            other_cluster(context, warp, row, address, word, pair)
        elif not ordered(context, clocks, mine, before, agent):
            meet(context, warp, row, address, before, pair, agent)
    if how != READ:
        store_i64(word, 1, access)
        store_i64(word, 2, load_i64(context, y.C_CLUSTER))


@compiled
def global_span(
    context: int, warp: int, address: int, size: int, access: int, how: int, agent: int
) -> None:
    """An access to `size` bytes of global memory."""
    at = address
    end = address + size
    while at < end:
        inside = at & 3
        count = min(4 - inside, end - at)
        access_word(context, warp, at, access | ((1 << count) - 1) << inside, how, agent)
        at += count


@compiled
def global_lanes(
    context: int, warp: int, row: int, mask: int, addresses: int, size: int, how: int
) -> None:
    """The same as `shared_lanes` for global memory."""
    if load_i64(load_i64(context, y.C_GRID), G_CLUSTERS) == 0:
        return
    strong = how >= ATOMIC
    plain = how
    if how > ATOMIC:
        plain = READ if how == STRONG_READ else WRITE
    number = own(context, warp, GENERIC)
    clock = load_i64(clocks_of(context, warp), number) + 1
    access = packed(row, number, clock, ATOMIC_BIT if strong else 0)
    fenced = load_i64(warp_base(context, warp), y.W_FENCES) != 0
    last = -1
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            address = load_i64(addresses, lane)
            if strong and address != last:
                if how != STRONG_WRITE:
                    seen(context, warp, address)
                if how != STRONG_READ and fenced:
                    release_global(context, warp, address)
            last = address
            global_span(context, warp, address, size, access, plain, 0)


@compiled
def global_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, number: int, clock: int
) -> None:
    """The same as `shared_range` for global memory."""
    if load_i64(load_i64(context, y.C_GRID), G_CLUSTERS) != 0:
        access = packed(row, number, clock, ATOMIC_BIT if how == ATOMIC else 0)
        global_span(context, warp, address, size, access, how, 1)
