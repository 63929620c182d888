"""Hooks of the engine: accesses to global memory, of buffers that a kernel may write to.

Within a cluster they have records as shared memory has (`records`). What another cluster did is
looked up by the word (`grid`), where clusters may tell each other something; where they cannot, it
is compared when both have ended (host/meetings).
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory.buffers import global_shadow
from mlagen.emulator.ptx.order.accesses import span_at
from mlagen.emulator.ptx.order.clocks import clocks_of, kind_of, own, warp_of
from mlagen.emulator.ptx.order.grid import known, release_global, seen, word_of
from mlagen.emulator.ptx.order.meeting import (
    AFTER_READ_WRITE,
    AFTER_WRITE_READ,
    AFTER_WRITE_WRITE,
    ATOMIC,
    ELSEWHERE,
    GENERAL,
    PROXY,
    READ,
    SAME,
    STRONG_READ,
    STRONG_WRITE,
    WRITE,
    packed,
)
from mlagen.emulator.ptx.order.record_sizes import (
    ATOMIC_BIT,
    CLOCK_AT,
    CLOCKS,
    COMPONENT_AT,
    COMPONENTS,
    G_CLUSTERS,
    G_WORDS,
    GENERIC,
    K_HIGH,
    K_LOW,
    ROW_AT,
    WORD_READ,
    WORD_READER,
    WORD_WRITE,
    WORD_WRITER,
)
from mlagen.emulator.ptx.order.same import changes_nothing
from mlagen.emulator.ptx.state import report, warp_base


@compiled
def other_cluster(
    context: int, warp: int, row: int, address: int, before: int, cluster: int, how: int, agent: int
) -> None:
    """A word that another cluster accessed before: report it unless this cluster knows of it."""
    number = (before >> COMPONENT_AT) & COMPONENTS
    clock = (before >> CLOCK_AT) & CLOCKS
    clocks = known(context, load_i64(context, y.C_CLUSTER), cluster)
    pair = how | ELSEWHERE
    severity = y.ERROR
    if load_i64(clocks, number) >= clock:
        if agent == GENERAL or how == AFTER_READ_WRITE or kind_of(context, number) != GENERIC:
            return
        fenced = load_i64(context, y.C_FENCED_GLOBAL) * load_i64(context, y.C_CTA_WARPS)
        if load_i64(clocks, number + fenced) >= clock:
            return
        pair |= PROXY
    elif (
        how == AFTER_WRITE_WRITE
        and agent == GENERAL
        and changes_nothing(context, warp, row, address)
    ):
        pair |= SAME
        severity = y.LETTER
    found = report(context, y.RACE, row, before >> ROW_AT, warp, address, pair, severity)
    if found != 0:
        store_i64(found, y.F_OTHER_WARP, warp_of(context, number))


@compiled
def access_word(context: int, warp: int, address: int, access: int, how: int, agent: int) -> None:
    """One access to (some of) four bytes of global memory, against those of other clusters."""
    word = word_of(context, address, True)
    if word == 0:
        return
    cluster = load_i64(context, y.C_CLUSTER)
    row = access >> ROW_AT
    before = load_i64(word, WORD_WRITE)
    other = load_i64(word, WORD_WRITER)
    if before & access & 0xF != 0 and before & access & ATOMIC_BIT == 0 and other != cluster:
        pair = AFTER_WRITE_READ if how == READ else AFTER_WRITE_WRITE
        other_cluster(context, warp, row, address, before, other, pair, agent)
    if how == READ:
        store_i64(word, WORD_READ, access)
        store_i64(word, WORD_READER, cluster)
        return
    before = load_i64(word, WORD_READ)
    other = load_i64(word, WORD_READER)
    if before & access & 0xF != 0 and before & access & ATOMIC_BIT == 0 and other != cluster:
        other_cluster(context, warp, row, address, before, other, AFTER_READ_WRITE, agent)
    store_i64(word, WORD_WRITE, access)
    store_i64(word, WORD_WRITER, cluster)


@compiled
def global_span(
    context: int, warp: int, address: int, size: int, access: int, how: int, agent: int
) -> None:
    """An access to `size` bytes of one buffer of global memory."""
    shadow = global_shadow(context, address)
    if shadow == 0:
        return
    table = load_i64(context, y.C_RECORDS)
    first = shadow - load_i64(context, y.C_SHADOW)
    store_i64(table, K_LOW, min(load_i64(table, K_LOW), first))
    store_i64(table, K_HIGH, max(load_i64(table, K_HIGH), first + (address & 3) + size))
    if load_i64(load_i64(context, y.C_ORDER), G_WORDS) != 0:
        at = address
        end = address + size
        while at < end:
            inside = at & 3
            count = min(4 - inside, end - at)
            access_word(context, warp, at, access | ((1 << count) - 1) << inside, how, agent)
            at += count
    span_at(context, warp, shadow, address, size, access, how, agent)


@compiled
def global_lanes(
    context: int, warp: int, row: int, mask: int, addresses: int, size: int, how: int
) -> None:
    """The same as `shared_lanes` for global memory."""
    strong = how >= ATOMIC
    plain = how
    if how > ATOMIC:
        plain = READ if how == STRONG_READ else WRITE
    number = own(context, warp, GENERIC)
    clock = load_i64(clocks_of(context, warp), number) + 1
    access = packed(row, number, clock, ATOMIC_BIT if strong else 0)
    if strong and load_i64(load_i64(context, y.C_ORDER), G_CLUSTERS) != 0:
        strong_lanes(context, warp, mask, addresses, how)
    first = load_i64(addresses, 0)
    apart = 0 if mask == y.ALL else 1
    for lane in range(y.LANES):
        apart |= load_i64(addresses, lane) ^ (first + lane * size)
    if apart == 0:  # one piece
        global_span(context, warp, first, size * y.LANES, access, plain, GENERAL)
        return
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            global_span(context, warp, load_i64(addresses, lane), size, access, plain, GENERAL)


@compiled
def strong_lanes(context: int, warp: int, mask: int, addresses: int, how: int) -> None:
    """What strong reads see, and strong writes behind a fence release."""
    fenced = load_i64(warp_base(context, warp), y.W_FENCES) != 0
    last = -1
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            address = load_i64(addresses, lane)
            if address != last:
                if how != STRONG_WRITE:
                    seen(context, warp, address)
                if how != STRONG_READ and fenced:
                    release_global(context, warp, address)
            last = address


@compiled
def global_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, number: int, clock: int
) -> None:
    """The same as `shared_range` for global memory."""
    access = packed(row, number, clock, ATOMIC_BIT if how == ATOMIC else 0)
    global_span(context, warp, address, size, access, how, GENERAL + 1)


@compiled
def copied_global(
    context: int, warp: int, row: int, address: int, size: int, number: int, clock: int
) -> None:
    """What cp.async reads, through the generic proxy."""
    access = packed(row, number, clock, 0)
    global_span(context, warp, address, size, access, READ, GENERAL)
