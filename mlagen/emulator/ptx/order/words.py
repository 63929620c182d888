"""Hooks of the engine: accesses to global memory, where a launch may need their order."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, own, warp_of
from mlagen.emulator.ptx.order.grid import known, release_global, seen, word_of, written
from mlagen.emulator.ptx.order.layout import (
    ATOMIC_BIT,
    CLOCK_AT,
    CLOCK_BITS,
    COMPONENT_AT,
    COMPONENT_BITS,
    G_CLUSTERS,
    GENERIC,
    ROW_AT,
)
from mlagen.emulator.ptx.order.meeting import (
    AFTER_WRITE_READ,
    AFTER_WRITE_WRITE,
    ATOMIC,
    ELSEWHERE,
    READ,
    SAME,
    STRONG_READ,
    STRONG_WRITE,
    WRITE,
    meet,
    ordered,
    packed,
)
from mlagen.emulator.ptx.order.same import changes_nothing
from mlagen.emulator.ptx.state import report, warp_base

_CLOCKS = (1 << CLOCK_BITS) - 1
_COMPONENTS = (1 << COMPONENT_BITS) - 1


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
    severity = y.ERROR
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
    if how == READ and not written(context, address, size):
        return
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
