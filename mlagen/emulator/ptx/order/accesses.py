"""Hooks of the engine: accesses to shared memory, each held against the last ones to its bytes."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.blocks import reach
from mlagen.emulator.ptx.order.clocks import clocks_of, own
from mlagen.emulator.ptx.order.meeting import ATOMIC, READ, STRONG_READ, WRITE, packed
from mlagen.emulator.ptx.order.record_sizes import (
    ATOMIC_BIT,
    GENERIC,
    K_TURN,
    RECORD_NEXT,
    RECORD_TURN,
)
from mlagen.emulator.ptx.order.records import begin_access, record_at, shadow_of, successor
from mlagen.emulator.ptx.state import cta_of


@compiled
def span(
    context: int, warp: int, address: int, size: int, access: int, how: int, agent: int
) -> None:
    """An access to `size` bytes of shared memory, or of a row of tensor memory, from `address`."""
    span_at(context, warp, shadow_of(context, address), address, size, access, how, agent)


@compiled
def span_at(
    context: int, warp: int, shadow: int, address: int, size: int, access: int, how: int, agent: int
) -> None:
    """The same of any memory. `shadow`: where the records of its words are."""
    begin_access(context, warp, access, how, agent)
    table = load_i64(context, y.C_RECORDS)
    place = shadow
    at = address
    end = address + size
    while at < end:
        inside = at & 3
        count = min(4 - inside, end - at)
        bytes_ = ((1 << count) - 1) << inside
        number = int64(load_u32(place, 0))
        record = record_at(table, number)
        if load_i64(record, RECORD_TURN) != load_i64(table, K_TURN) << 4 | bytes_:
            after = successor(context, warp, number, access | bytes_, at, how, agent)
            store_u32(place, 0, uint32(after))
            place += 4
        else:
            known = uint32(load_i64(record, RECORD_NEXT))
            store_u32(place, 0, known)
            place += 4
            while at + count + 4 <= end and int64(load_u32(place, 0)) == number and bytes_ == 15:
                store_u32(place, 0, known)
                place += 4
                count += 4
        at += count


@compiled
def both_known(context: int, numbers: int) -> int:
    """What two words become that have the same record, by the access that goes on: the numbers of
    two records in one word. -1 where they have not, or where each word has to be looked at."""
    table = load_i64(context, y.C_RECORDS)
    number = numbers & 0xFFFFFFFF
    if numbers >> 32 != number:
        return -1
    record = record_at(table, number)
    if load_i64(record, RECORD_TURN) != load_i64(table, K_TURN) << 4 | 15:
        return -1
    after = load_i64(record, RECORD_NEXT)
    return after << 32 | after


@compiled
def reach_lanes(context: int, warp: int, mask: int, addresses: int, access: int) -> None:
    """Lanes access shared memory of other blocks, some of them."""
    mine = cta_of(context, warp)
    last = mine
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            address = load_i64(addresses, lane)
            cta = address >> y.RANK_SHIFT
            if cta != mine and cta != last:
                last = cta
                reach(context, warp, address, access)


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
    first = load_i64(addresses, 0)
    apart = 0 if mask == y.ALL else 1
    for lane in range(y.LANES):
        apart |= load_i64(addresses, lane) ^ (first + lane * size)
    if load_i64(context, y.C_CTAS_ALL) != 1:
        reach_lanes(context, warp, mask, addresses, access)
    if apart == 0:  # one piece
        span(context, warp, first, size * y.LANES, access, plain, 0)
        return
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
    access = packed(row, number, clock, flags)
    reach(context, warp, address, access)
    span(context, warp, address, size, access, how, 1)


@compiled
def copied_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, number: int, clock: int
) -> None:
    """The same of cp.async, whose accesses go through the generic proxy."""
    access = packed(row, number, clock, 0)
    reach(context, warp, address, access)
    span(context, warp, address, size, access, how, 0)
