"""The engine: waves of one workgroup, instruction by instruction, until all have ended.

`run` is the one entry, which `starting` makes machine code of. It works on a context (see
`layout`), may stop after a budget of instructions, and goes on from there when called again.
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.checks import check_registers
from mlagen.emulator.gfx950.execute import (
    branch_taken,
    indexed,
    run_carry,
    run_compare,
    run_lane,
    run_matrix,
    run_packed,
    run_scalar,
    run_valu,
    run_wide,
)
from mlagen.emulator.gfx950.issue import (
    issue_cache,
    issue_lds,
    issue_scalar_memory,
    issue_vector_memory,
)
from mlagen.emulator.gfx950.queues import land_some, retire, wait_for
from mlagen.emulator.gfx950.races import leave_operation
from mlagen.emulator.gfx950.recording import note_step
from mlagen.emulator.gfx950.state import (
    next_random,
    program_row,
    queue_slot,
    report,
    wave_base,
)
from mlagen.emulator.gfx950.trace_hooks import trace_after, trace_before
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64


@compiled
def end_wave(context: int, wave: int) -> None:
    """s_endpgm: it waits for what is outstanding (CDNA4 ISA guide, S_ENDPGM), so a barrier that
    waits for the surviving waves only comes after it."""
    control = wave_base(context, wave)
    entries = load_i64(context, y.C_QUEUE)
    for queue in range(y.QUEUES):
        tail = load_i64(control, y.W_TAIL + queue)
        for sequence in range(load_i64(control, y.W_HEAD + queue), tail):
            number = load_i64(entries, queue_slot(wave, queue, sequence) * y.E_SIZE + y.E_OP)
            retire(context, wave, queue)
            if number != 0:
                leave_operation(context, number, tail - sequence - 1)
    store_i64(control, y.W_STATE, y.ENDED)


@compiled
def note_paths(context: int) -> None:
    """All live waves wait at a barrier: which of them have passed the same ones so far?"""
    waves = load_i64(context, y.C_WAVES)
    for wave in range(waves):
        control = wave_base(context, wave)
        if load_i64(control, y.W_STATE) != y.ENDED:
            path = load_i64(control, y.W_PATH) * 1000003 ^ load_i64(control, y.W_PC)
            store_i64(control, y.W_PATH, path & 0x7FFFFFFFFFFF)
    for wave in range(waves):
        control = wave_base(context, wave)
        if load_i64(control, y.W_STATE) != y.ENDED:
            alike = 0
            for other in range(waves):
                its = wave_base(context, other)
                ended = load_i64(its, y.W_STATE) == y.ENDED
                if not ended and load_i64(its, y.W_PATH) == load_i64(control, y.W_PATH):
                    alike |= 1 << other
            store_i64(control, y.W_ALIKE, alike)


@compiled
def release_barrier(context: int) -> bool:
    """When every live wave waits, start the next epoch; False when no wave is live."""
    waves = load_i64(context, y.C_WAVES)
    live = 0
    for wave in range(waves):
        if load_i64(wave_base(context, wave), y.W_STATE) != y.ENDED:
            live += 1
    if live == 0:
        return False
    if load_i64(context, y.C_SANITIZE):
        note_paths(context)
    safe = load_i64(context, y.C_NEXT_OP)
    store_i64(context, y.C_EPOCH_OP, safe)
    safe_read = safe
    entries = load_i64(context, y.C_QUEUE)
    for wave in range(waves):
        control = wave_base(context, wave)
        if load_i64(control, y.W_STATE) == y.ENDED:
            continue
        store_i64(control, y.W_STATE, y.RUNNING)
        store_i64(control, y.W_EPOCH, load_i64(control, y.W_EPOCH) + 1)
        store_i64(control, y.W_HELD, load_i64(control, y.W_HELD) + y.BARRIER_STATES)
        store_i64(control, y.W_MATRICES, (load_i64(control, y.W_MATRICES) + 1) & 0xFFFFFF)
        for queue in range(2):
            store_i64(control, y.W_MARK + queue, load_i64(control, y.W_TAIL + queue))
            for sequence in range(
                load_i64(control, y.W_HEAD + queue), load_i64(control, y.W_TAIL + queue)
            ):
                slot = queue_slot(wave, queue, sequence)
                number = load_i64(entries, slot * y.E_SIZE + y.E_OP)
                if number != 0:
                    safe = min(safe, number)
                    if queue == y.Q_LDS:
                        safe_read = min(safe_read, number)
    store_i64(context, y.C_SAFE_OP, safe)
    store_i64(context, y.C_SAFE_READ, safe_read)
    return True


@compiled
def step(context: int, wave: int, row: int) -> int:
    """Execute one program row; the next row, or -1 when an unmodelled descriptor is met."""
    p = program_row(context, row)
    control = wave_base(context, wave)
    kind = load_i64(p, y.P_CLASS)
    if kind == y.X_VALU and load_i64(p, y.P_FLAGS) != 0:
        p = indexed(context, wave, row, p)
    if load_i64(context, y.C_SANITIZE):
        check_registers(context, wave, row, p)
    traced = load_i64(context, y.C_TRACE) != 0
    if traced:
        trace_before(context, wave, p)
    following = row + 1
    if kind == y.X_VALU:
        run_valu(context, wave, p)
    elif kind == y.X_MATRIX:
        run_matrix(context, wave, p)
    elif kind == y.X_PACKED:
        run_packed(context, wave, p)
    elif kind == y.X_SALU:
        run_scalar(context, wave, p)
    elif kind == y.X_LDS:
        issue_lds(context, wave, row)
    elif kind == y.X_VMEM:
        if not issue_vector_memory(context, wave, row):
            return -1
    elif kind == y.X_WAIT:
        wait_for(context, wave, load_i64(p, y.P_AUX), load_i64(p, y.P_AUX + 1))
    elif kind == y.X_COMPARE:
        run_compare(context, wave, p)
    elif kind == y.X_LANE:
        run_lane(context, wave, row, p)
    elif kind == y.X_CARRY:
        run_carry(context, wave, p)
    elif kind == y.X_WIDE:
        run_wide(context, wave, p)
    elif kind == y.X_SMEM:
        issue_scalar_memory(context, wave, row)
    elif kind == y.X_CACHE:
        issue_cache(context, wave, row)
    elif kind == y.X_BRANCH:
        if branch_taken(context, wave, load_i64(p, y.P_OP)):
            following = load_i64(p, y.P_IMM)
    elif kind == y.X_BARRIER:
        store_i64(control, y.W_STATE, y.WAITING)
    elif kind == y.X_END:
        end_wave(context, wave)
    if traced:
        trace_after(context, wave, row, p)
    store_i64(control, y.W_CLOCK, load_i64(control, y.W_CLOCK) + load_i64(p, y.P_NOPS))
    return following


@compiled
def run_wave(context: int, wave: int, limit: int) -> int:
    """Run a wave until it waits, ends, or `limit` instructions are done; how many, or -1."""
    control = wave_base(context, wave)
    counts = load_i64(context, y.C_COUNT)
    randomly = load_i64(context, y.C_MODE) == y.RANDOM
    recorded = load_i64(context, y.C_RECORD) != 0
    row = load_i64(control, y.W_PC)
    done = 0
    while done < limit and load_i64(control, y.W_STATE) == y.RUNNING:
        if randomly:
            land_some(context, wave)
        store_i64(counts, row, load_i64(counts, row) + 1)
        following = step(context, wave, row)
        if following < 0:
            store_i64(context, y.C_FAULT, row)
            return -1
        if recorded:
            note_step(context, wave, row)
        row = following
        done += 1
    store_i64(control, y.W_PC, row)
    return done


@compiled
def run_abreast(context: int, limit: int) -> int:
    """Mode "earliest": waves take turns of one instruction; how many in all, or -1.

    Ends when no wave is running, or `limit` instructions are done.
    """
    waves = load_i64(context, y.C_WAVES)
    counts = load_i64(context, y.C_COUNT)
    recorded = load_i64(context, y.C_RECORD) != 0
    wave = load_i64(context, y.C_CURRENT)
    done = 0
    idle = 0  # waves since the last instruction
    while idle < waves and done < limit:
        control = wave_base(context, wave)
        if load_i64(control, y.W_STATE) == y.RUNNING:
            row = load_i64(control, y.W_PC)
            store_i64(counts, row, load_i64(counts, row) + 1)
            following = step(context, wave, row)
            if following < 0:
                store_i64(context, y.C_FAULT, row)
                return -1
            if recorded:
                note_step(context, wave, row)
            store_i64(control, y.W_PC, following)
            done += 1
            idle = 0
        else:
            idle += 1
        wave += 1
        if wave == waves:
            wave = 0
    store_i64(context, y.C_CURRENT, wave)
    return done


@compiled
def pick_wave(context: int) -> int:
    """The wave to run next, -1 for none.

    "latest": the lowest-numbered wave runs until it meets a barrier, which is the most uneven
    progress barriers allow. "random": any running wave.
    """
    waves = load_i64(context, y.C_WAVES)
    start = 0
    if load_i64(context, y.C_MODE) == y.RANDOM:
        start = next_random(context) % waves
    for i in range(waves):
        wave = start + i if start + i < waves else start + i - waves
        if load_i64(wave_base(context, wave), y.W_STATE) == y.RUNNING:
            return wave
    return -1


@compiled
def run_some(context: int, limit: int) -> int:
    """Run waves for at most `limit` instructions; how many, 0 when no wave runs, or -1."""
    mode = load_i64(context, y.C_MODE)
    if mode == y.EARLIEST:
        return run_abreast(context, limit)
    wave = pick_wave(context)
    if wave < 0:
        return 0
    if mode == y.RANDOM:
        limit = min(limit, 1 + next_random(context) % 24)
    return run_wave(context, wave, limit)


@compiled
def check_barriers(context: int) -> None:
    """All waves have ended: unequal barrier totals are reported. A barrier waits for the waves that
    are left (CDNA4 ISA guide, S_BARRIER), so one that passed the first barriers of a wave that
    passed most, and ended, is none too few; nor is one that did nothing in LDS behind its last."""
    waves = load_i64(context, y.C_WAVES)
    most = 0
    for wave in range(1, waves):
        if load_i64(wave_base(context, wave), y.W_EPOCH) > load_i64(
            wave_base(context, most), y.W_EPOCH
        ):
            most = wave
    total = load_i64(wave_base(context, most), y.W_EPOCH)
    alike = 0  # waves that passed most
    for wave in range(waves):
        if load_i64(wave_base(context, wave), y.W_EPOCH) == total:
            alike |= 1 << wave
    for wave in range(waves):
        control = wave_base(context, wave)
        passed = load_i64(control, y.W_EPOCH)
        if passed == total or passed == 0 or load_i64(control, y.W_ALIKE) & alike:
            continue
        if load_i64(control, y.W_TOUCHED) < passed:
            continue
        row = load_i64(control, y.W_PC) - 1
        other = load_i64(wave_base(context, most), y.W_PC) - 1
        found = report(context, y.BARRIER_UNEQUAL, row, other, wave, passed, total, 0)
        if found != 0:
            store_i64(found, y.F_OTHER_WAVE, most)
        return


@compiled
def run(context: int, budget: int) -> int:
    """Run the workgroup in `context` for about `budget` instructions; an R_ code."""
    left = budget
    while left > 0:
        done = run_some(context, left)
        if done < 0:
            return y.R_UNMODELLED
        if done == 0 and not release_barrier(context):
            if load_i64(context, y.C_SANITIZE):
                check_barriers(context)
            return y.R_DONE
        store_i64(context, y.C_EXECUTED, load_i64(context, y.C_EXECUTED) + done)
        left -= done
    return y.R_BUDGET
