"""Happens-before on LDS: shadow state a dword, operations numbered in execution order.

With workgroup barriers as the only synchronisation between waves, a wave's vector clock is its
barrier epoch, and all running waves share one epoch at any time (a rendezvous releases them
together). An operation is complete in the epoch in which a wait of its own wave covered it.
X is ordered before a later Y of another wave iff X completed in an earlier epoch; before a later
Y of its own wave iff a wait covered X, or both are DS instructions (which execute in order).
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.numeric import compiled
from mlagen.emulator.gfx950.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32
from mlagen.emulator.gfx950.state import queue_slot, report, wave_base


@compiled
def new_operation(context: int, wave: int, row: int, kind: int) -> int:
    """Number a new LDS operation; kind 0: DS instruction, 1: LDS-DMA."""
    number = load_i64(context, y.C_NEXT_OP)
    store_i64(context, y.C_NEXT_OP, number + 1)
    ops = load_i64(context, y.C_OPS)
    base = (number & (y.OPS_RING - 1)) * y.O_SIZE
    store_i64(ops, base + y.O_WAVE, wave)
    store_i64(ops, base + y.O_ROW, row)
    store_i64(ops, base + y.O_DONE, y.NOT_DONE)
    store_i64(ops, base + y.O_KIND, kind)
    return number


@compiled
def complete_operation(context: int, wave: int, number: int) -> None:
    """A wait of its wave covered the operation."""
    ops = load_i64(context, y.C_OPS)
    base = (number & (y.OPS_RING - 1)) * y.O_SIZE
    store_i64(ops, base + y.O_DONE, load_i64(wave_base(context, wave), y.W_EPOCH))


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
    newer = -1  # its wait was reached: only the barrier is missing
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
    mine = kind
    if kind == y.RACE_RAW and other == wave:
        mine = y.MISSING_WAIT
    place = y.HUGE + byte if mine == y.MISSING_WAIT else byte
    code = load_i64(ops, base + y.O_KIND) * 1000 + newer + 1
    report(context, mine, row, load_i64(ops, base + y.O_ROW), wave, other, place, dwords, code)


@compiled
def note_read(
    context: int, wave: int, row: int, number: int, byte: int, dwords: int, waves: int
) -> None:
    """Check and record a DS read of `dwords` dwords from a dword-aligned byte address."""
    writers = load_i64(context, y.C_SHADOW_W)
    readers = load_i64(context, y.C_SHADOW_R)
    safe = load_i64(context, y.C_SAFE_OP)
    first = byte >> 2
    for dword in range(first, first + dwords):
        writer = int64(load_u32(writers, dword))
        if writer == 0:
            report(context, y.UNDEFINED_LDS, row, -1, wave, -1, dword * 4, 4, 0)
        elif writer >= safe and unordered(context, wave, 0, writer):
            report_race(context, y.RACE_RAW, row, wave, writer, dword * 4, 1)
        store_u32(readers, dword * waves + wave, uint32(number))


@compiled
def note_write(
    context: int, wave: int, row: int, number: int, kind: int, byte: int, dwords: int, waves: int
) -> None:
    """Check and record a write (kind 0: DS, 1: LDS-DMA) of `dwords` dwords."""
    writers = load_i64(context, y.C_SHADOW_W)
    readers = load_i64(context, y.C_SHADOW_R)
    safe = load_i64(context, y.C_SAFE_OP)
    first = byte >> 2
    for dword in range(first, first + dwords):
        writer = int64(load_u32(writers, dword))
        if writer >= safe and writer != 0 and unordered(context, wave, kind, writer):
            report_race(context, y.RACE_WAW, row, wave, writer, dword * 4, 1)
        for other in range(waves):
            reader = int64(load_u32(readers, dword * waves + other))
            if reader >= safe and reader != 0 and unordered(context, wave, kind, reader):
                report_race(context, y.RACE_WAR, row, wave, reader, dword * 4, 1)
        store_u32(writers, dword, uint32(number))
