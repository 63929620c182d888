"""Happens-before on LDS: shadow state a dword, operations numbered in execution order.

With workgroup barriers as the only synchronisation between waves, a wave's vector clock is its
barrier epoch, and all running waves share one epoch at any time (a rendezvous releases them
together). An operation is complete in the epoch in which a wait of its own wave covered it.
X is ordered before a later Y of another wave iff X completed in an earlier epoch; before a later
Y of its own wave iff a wait covered X, or both are DS instructions (which execute in order).
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.spans import (
    fill_range,
    mark_b32,
    mark_b64,
    mark_b128,
    scan_b32,
    scan_b64,
    scan_b128,
    scan_range,
)
from mlagen.emulator.gfx950.state import finding_slot, queue_slot, repeated, report, wave_base
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32


@compiled
def new_operation(context: int, wave: int, row: int, kind: int) -> int:
    """Number a new LDS operation; kind 0: DS instruction, 1: LDS-DMA."""
    number = load_i64(context, y.C_NEXT_OP)
    store_i64(context, y.C_NEXT_OP, number + 1)
    control = wave_base(context, wave)
    store_i64(control, y.W_TOUCHED, load_i64(control, y.W_EPOCH))
    ops = load_i64(context, y.C_OPS)
    base = (number & (y.OPS_RING - 1)) * y.O_SIZE
    store_i64(ops, base + y.O_WAVE, wave)
    store_i64(ops, base + y.O_ROW, row)
    store_i64(ops, base + y.O_DONE, y.NOT_DONE)
    store_i64(ops, base + y.O_KIND, kind)
    store_i64(ops, base + y.O_LEFT, 0)
    return number


@compiled
def complete_operation(context: int, wave: int, number: int) -> None:
    """A wait of its wave covered the operation."""
    ops = load_i64(context, y.C_OPS)
    base = (number & (y.OPS_RING - 1)) * y.O_SIZE
    store_i64(ops, base + y.O_DONE, load_i64(wave_base(context, wave), y.W_EPOCH))


@compiled
def leave_operation(context: int, number: int, newer: int) -> None:
    """Its wave ended without a wait that covers it: `newer` operations of its queue follow it."""
    ops = load_i64(context, y.C_OPS)
    store_i64(ops, (number & (y.OPS_RING - 1)) * y.O_SIZE + y.O_LEFT, newer + 1)


@compiled
def unordered(context: int, wave: int, kind: int, earlier: int) -> bool:
    """Whether operation `earlier` is not ordered before one that `wave` issues now."""
    if earlier <= load_i64(context, y.C_NEXT_OP) - y.OPS_RING:
        return False  # its record was reused: see the ledger
    ops = load_i64(context, y.C_OPS)
    base = (earlier & (y.OPS_RING - 1)) * y.O_SIZE
    done = load_i64(ops, base + y.O_DONE)
    if load_i64(ops, base + y.O_WAVE) == wave:
        return done == y.NOT_DONE and (kind != 0 or load_i64(ops, base + y.O_KIND) != 0)
    return done >= load_i64(wave_base(context, wave), y.W_EPOCH)


@compiled
def report_race(
    context: int, kind: int, row: int, wave: int, earlier: int, byte: int, dwords: int
) -> None:
    """Record a race with `earlier`: which bytes, and how many newer operations its queue holds."""
    ops = load_i64(context, y.C_OPS)
    base = (earlier & (y.OPS_RING - 1)) * y.O_SIZE
    other = load_i64(ops, base + y.O_WAVE)
    mine = kind
    if kind == y.RACE_RAW and other == wave:
        mine = y.MISSING_WAIT
    other_row = load_i64(ops, base + y.O_ROW)
    if repeated(context, finding_slot(context, mine, row, other_row)):
        return
    # -1: its wait was reached, only the barrier is missing.
    newer = load_i64(ops, base + y.O_LEFT) - 1
    if load_i64(ops, base + y.O_DONE) == y.NOT_DONE:
        queue = y.Q_VM if load_i64(ops, base + y.O_KIND) == 1 else y.Q_LDS
        control = wave_base(context, other)
        entries = load_i64(context, y.C_QUEUE)
        tail = load_i64(control, y.W_TAIL + queue)
        newer = 0
        for sequence in range(load_i64(control, y.W_HEAD + queue), tail):
            slot = queue_slot(other, queue, sequence)
            if load_i64(entries, slot * y.E_SIZE + y.E_OP) == earlier:
                # Between waves the wait belongs before the last barrier, if it was issued by then.
                mark = load_i64(control, y.W_MARK + queue)
                end = mark if other != wave and sequence < mark else tail
                newer = end - sequence - 1
    place = y.HUGE + byte if mine == y.MISSING_WAIT else byte
    code = load_i64(ops, base + y.O_KIND) * 1000 + newer + 1
    found = report(context, mine, row, other_row, wave, place, dwords, code)
    if found != 0:
        store_i64(found, y.F_OTHER_WAVE, other)


@compiled
def scan(shadow: int, addresses: int, dwords: int, bias: int) -> int:
    """The largest shadow value, less `bias` mod 2^32, of a whole wave's accesses."""
    if dwords == 4:
        return scan_b128(shadow, addresses, bias)
    if dwords == 2:
        return scan_b64(shadow, addresses, bias)
    return scan_b32(shadow, addresses, bias)


@compiled
def mark(shadow: int, addresses: int, dwords: int, number: int) -> None:
    if dwords == 4:
        mark_b128(shadow, addresses, number)
    elif dwords == 2:
        mark_b64(shadow, addresses, number)
    else:
        mark_b32(shadow, addresses, number)


@compiled
def shadow_of_readers(context: int, wave: int) -> int:
    return load_i64(context, y.C_SHADOW_R) + wave * (4 * y.SHADOW_DWORDS)


@compiled
def quiet_read(context: int, wave: int, number: int, addresses: int, dwords: int) -> bool:
    """Record a whole wave's DS read of 1, 2 or 4 dwords a lane if there is nothing to report.

    That is so when everything it reads was written in an earlier epoch: 1 <= writer < safe.
    """
    safe = load_i64(context, y.C_SAFE_OP)
    if scan(load_i64(context, y.C_SHADOW_W), addresses, dwords, 1) >= safe - 1:
        return False
    mark(shadow_of_readers(context, wave), addresses, dwords, number)
    return True


@compiled
def quiet_write(context: int, number: int, addresses: int, dwords: int, waves: int) -> bool:
    """Record a whole wave's DS write if all accesses to its bytes were in earlier epochs."""
    safe = load_i64(context, y.C_SAFE_OP)
    writers = load_i64(context, y.C_SHADOW_W)
    if scan(writers, addresses, dwords, 0) >= safe:
        return False
    safe = load_i64(context, y.C_SAFE_READ)
    for wave in range(waves):
        if scan(shadow_of_readers(context, wave), addresses, dwords, 0) >= safe:
            return False
    mark(writers, addresses, dwords, number)
    return True


@compiled
def quiet_span(context: int, number: int, byte: int, chunks: int, waves: int) -> bool:
    """The same for a write of 16 * `chunks` dwords from `byte` (a load to LDS)."""
    safe = load_i64(context, y.C_SAFE_OP)
    writers = load_i64(context, y.C_SHADOW_W)
    if scan_range(writers + byte, chunks) >= safe:
        return False
    safe = load_i64(context, y.C_SAFE_READ)
    for wave in range(waves):
        if scan_range(shadow_of_readers(context, wave) + byte, chunks) >= safe:
            return False
    fill_range(writers + byte, chunks, number)
    return True


@compiled
def note_read(context: int, wave: int, row: int, number: int, byte: int, dwords: int) -> None:
    """Check and record a DS read of `dwords` dwords from a dword-aligned byte address."""
    writers = load_i64(context, y.C_SHADOW_W)
    readers = shadow_of_readers(context, wave)
    safe = load_i64(context, y.C_SAFE_OP)
    first = byte >> 2
    for dword in range(first, first + dwords):
        writer = int64(load_u32(writers, dword))
        if writer == 0:
            report(context, y.UNDEFINED_LDS, row, -1, wave, dword * 4, 4, 0)
        elif writer >= safe and unordered(context, wave, 0, writer):
            report_race(context, y.RACE_RAW, row, wave, writer, dword * 4, 1)
        store_u32(readers, dword, uint32(number))


@compiled
def note_write(
    context: int, wave: int, row: int, number: int, kind: int, byte: int, dwords: int, waves: int
) -> None:
    """Check and record a write (kind 0: DS, 1: LDS-DMA) of `dwords` dwords."""
    writers = load_i64(context, y.C_SHADOW_W)
    readers = load_i64(context, y.C_SHADOW_R)
    safe = load_i64(context, y.C_SAFE_OP)
    safe_read = load_i64(context, y.C_SAFE_READ)
    first = byte >> 2
    for dword in range(first, first + dwords):
        writer = int64(load_u32(writers, dword))
        if writer >= safe and writer != 0 and unordered(context, wave, kind, writer):
            report_race(context, y.RACE_WAW, row, wave, writer, dword * 4, 1)
        for other in range(waves):
            reader = int64(load_u32(readers, other * y.SHADOW_DWORDS + dword))
            if reader >= safe_read and reader != 0 and unordered(context, wave, kind, reader):
                early = reader < load_i64(context, y.C_EPOCH_OP)
                over = y.RACE_OVERTAKEN if kind != 0 and early and other != wave else y.RACE_WAR
                report_race(context, over, row, wave, reader, dword * 4, 1)
        store_u32(writers, dword, uint32(number))
