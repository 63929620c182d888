"""Register checks before an instruction executes: loads in flight, undefined values, wait states.

For every register the engine keeps the clock from which it needs no closer look (C_UNTIL for
reads, C_WUNTIL for overwrites), so that the common case is one comparison a register. The clock of
a wave counts wait states: one an instruction, N + 1 for s_nop N.
"""

from __future__ import annotations

from mlagen.binary.operand import EXEC
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.scalar import get64
from mlagen.emulator.gfx950.state import (
    program_row,
    queue_slot,
    register_slot,
    report,
    scalar_base,
    wave_base,
)
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64


@compiled
def report_pending(
    context: int, kind: int, wave: int, row: int, register: int, pending: int
) -> None:
    """A register whose load is in flight is used: name the load and the wait it needs."""
    queue = pending >> 40
    sequence = (pending & 0xFFFFFFFFFF) - 1
    entry = queue_slot(wave, queue, sequence) * y.E_SIZE
    other = load_i64(load_i64(context, y.C_QUEUE), entry + y.E_ROW)
    newer = load_i64(wave_base(context, wave), y.W_TAIL + queue) - sequence - 1
    report(context, kind, row, other, wave, register, queue, newer)


@compiled
def needed_states(context: int, producer: int, consumer: int) -> int:
    return load_i64(load_i64(context, y.C_HAZARD), producer * y.HAZARD_CLASSES + consumer)


@compiled
def report_states(
    context: int, wave: int, row: int, writer: int, register: int, need: int, have: int
) -> None:
    """Wait states are missing after a write. The matrix pipe takes one instruction at a time: what
    it held back between the two counts as well (see docs/audit.md)."""
    found = report(context, y.WAIT_STATES, row, writer, wave, register, need, have)
    if found == 0 or load_i64(program_row(context, writer), y.P_PASSES) == 0:
        return
    control = wave_base(context, wave)
    then = load_i64(load_i64(context, y.C_WHELD), register_slot(wave, register))
    held = load_i64(control, y.W_HELD)
    if load_i64(program_row(context, row), y.P_PASSES):
        held = max(held, load_i64(control, y.W_FREE) - load_i64(control, y.W_CLOCK))
    between = load_i64(control, y.W_MATRICES) - (then & 0xFFFFFF)
    if between > 0 and have + held - (then >> 24) >= need:
        store_i64(found, y.F_HELD, 1)


@compiled
def examine_read(
    context: int,
    wave: int,
    row: int,
    p: int,
    register: int,
    consumer: int,
    clock: int,
    lanes: int,
) -> None:
    """The closer look at one register that is read."""
    index = register_slot(wave, register)
    pending = load_i64(load_i64(context, y.C_PENDING), index)
    if pending != 0:
        report_pending(context, y.MISSING_WAIT, wave, row, register, pending)
        return
    defined = load_i64(load_i64(context, y.C_DEFINED), index)
    if register >= y.VECTOR_ROWS:
        lanes = -1
    if lanes & ~defined and consumer >= 0:
        if defined > 0 and register >= y.VECTOR_ROWS:
            loader = load_i64(load_i64(context, y.C_WPC), index)
            place = (defined >> 1) - 1
            report(context, y.UNSET_ARGUMENT, row, loader, wave, register, place, 0)
        else:
            report(context, y.UNDEFINED_REGISTER, row, -1, wave, register, 0, 0)
    if consumer < 0:
        consumer = -consumer - 1
    info = load_i64(load_i64(context, y.C_WINFO), index)
    need = needed_states(context, info & 255, consumer)
    have = clock - (info >> 8) - 1
    if have < need:
        writer = load_i64(load_i64(context, y.C_WPC), index)
        exact = load_i64(p, y.P_EXACT)
        if exact != 0 and load_i64(p, y.P_KIND + 4) == y.S_VECTOR:
            # The same opcode accumulating onto exactly the same registers is forwarded.
            q = program_row(context, writer)
            same = load_i64(q, y.P_EXACT) == exact
            base = load_i64(p, y.P_KIND + 5)
            inside = register >= base and register < base + load_i64(p, y.P_AUX)
            if same and inside and load_i64(q, y.P_DST) == base:
                return
        report_states(context, wave, row, writer, register, need, have)


@compiled
def examine_write(
    context: int, wave: int, row: int, register: int, consumer: int, clock: int, queue: int
) -> None:
    """The closer look at one register that is overwritten."""
    index = register_slot(wave, register)
    pending = load_i64(load_i64(context, y.C_PENDING), index)
    if pending != 0:
        if pending >> 40 != queue or queue == y.Q_SMEM:
            report_pending(context, y.OVERWRITE, wave, row, register, pending)
        return
    for read in range(2):  # the last write, then the last read that forbids it
        infos = load_i64(context, y.C_RINFO if read else y.C_WINFO)
        info = load_i64(infos, index)
        need = needed_states(context, info & 255, consumer)
        have = clock - (info >> 8) - 1
        if have < need:
            other = load_i64(load_i64(context, y.C_RPC if read else y.C_WPC), index)
            if read:
                report(context, y.WAIT_STATES, row, other, wave, register, need, have)
            else:
                report_states(context, wave, row, other, register, need, have)


@compiled
def check_registers(context: int, wave: int, row: int, p: int) -> None:
    """Check and record all register accesses of one instruction, before it executes."""
    clock = load_i64(wave_base(context, wave), y.W_CLOCK)
    lanes = -1
    if load_i64(p, y.P_ALL_LANES) == 0:
        lanes = get64(scalar_base(context, wave), EXEC)
    until = load_i64(context, y.C_UNTIL) + wave * (8 * y.REGISTERS)
    wuntil = load_i64(context, y.C_WUNTIL) + wave * (8 * y.REGISTERS)
    for i in range(load_i64(p, y.P_READS)):
        access = y.P_READ + i * y.READ_SIZE
        first = load_i64(p, access)
        count = load_i64(p, access + 1)
        latest = 0
        for register in range(first, first + count):
            latest = max(latest, load_i64(until, register))
        if latest > clock:
            consumer = load_i64(p, access + 2)
            for register in range(first, first + count):
                if load_i64(until, register) > clock:
                    examine_read(context, wave, row, p, register, consumer, clock, lanes)
    writes = load_i64(p, y.P_WRITES)
    queue = load_i64(p, y.P_QUEUE)
    for i in range(writes):
        access = y.P_WRITE + i * y.WRITE_SIZE
        first = load_i64(p, access)
        count = load_i64(p, access + 1)
        for register in range(first, first + count):
            if load_i64(wuntil, register) > clock:
                consumer = load_i64(p, access + 2)
                examine_write(context, wave, row, register, consumer, clock, queue)
    if load_i64(p, y.P_FORBIDS):
        note_forbidding_reads(context, wave, row, p, clock)
    passes = load_i64(p, y.P_PASSES)
    if passes:
        note_pipe(context, wave, p, clock, passes)
    longest = load_i64(context, y.C_LONGEST)
    defined = load_i64(context, y.C_DEFINED) + wave * (8 * y.REGISTERS)
    info = load_i64(context, y.C_WINFO) + wave * (8 * y.REGISTERS)
    places = load_i64(context, y.C_WPC) + wave * (8 * y.REGISTERS)
    for i in range(writes):
        access = y.P_WRITE + i * y.WRITE_SIZE
        first = load_i64(p, access)
        producer = load_i64(p, access + 3)
        read_end = clock + 1 + load_i64(longest, 2 * producer)
        write_end = clock + 1 + load_i64(longest, 2 * producer + 1)
        written = lanes if first < y.VECTOR_ROWS else -1  # a scalar has no lanes
        for register in range(first, first + load_i64(p, access + 1)):
            if written == -1:
                store_i64(defined, register, -1)
                store_i64(until, register, read_end)
            else:
                mask = load_i64(defined, register) | written
                store_i64(defined, register, mask)
                store_i64(until, register, read_end if mask == -1 else y.HUGE)
            store_i64(wuntil, register, write_end)
            store_i64(info, register, clock << 8 | producer)
            store_i64(places, register, row)


@compiled
def note_pipe(context: int, wave: int, p: int, clock: int, passes: int) -> None:
    """A matrix instruction waits for the pipe, and takes it."""
    control = wave_base(context, wave)
    held = max(load_i64(control, y.W_HELD), load_i64(control, y.W_FREE) - clock)
    count = (load_i64(control, y.W_MATRICES) + 1) & 0xFFFFFF
    store_i64(control, y.W_HELD, held)
    store_i64(control, y.W_FREE, clock + held + passes)
    store_i64(control, y.W_MATRICES, count)
    since = load_i64(context, y.C_WHELD)
    first = load_i64(p, y.P_WRITE)
    for register in range(first, first + load_i64(p, y.P_WRITE + 1)):
        store_i64(since, register_slot(wave, register), held << 24 | count)


@compiled
def note_forbidding_reads(context: int, wave: int, row: int, p: int, clock: int) -> None:
    """Record reads after which the register must not be overwritten for a while."""
    for i in range(load_i64(p, y.P_READS)):
        access = y.P_READ + i * y.READ_SIZE
        producer = load_i64(p, access + 3)
        if producer == 0:
            continue
        end = clock + 1 + load_i64(load_i64(context, y.C_LONGEST), 2 * producer + 1)
        first = load_i64(p, access)
        for register in range(first, first + load_i64(p, access + 1)):
            index = register_slot(wave, register)
            store_i64(load_i64(context, y.C_RINFO), index, clock << 8 | producer)
            store_i64(load_i64(context, y.C_RPC), index, row)
            wuntil = load_i64(context, y.C_WUNTIL)
            store_i64(wuntil, index, max(load_i64(wuntil, index), end))
