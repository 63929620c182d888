"""The cycle engine: waves of a compute unit issue what they executed, slot by slot.

Every SIMD has a turn each `slot` cycles. In its turn it starts at most one instruction a unit and
one a wave: waves of higher priority first, the oldest first among equals. A wave issues in order
and stops at whatever its next instruction has to wait for; where all that is known when the
instruction becomes the next, it is worked out once (`waves.look`). Time is counted in cycles.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

from numba import njit

from mlagen.emulator.native.kept_code import keep
from mlagen.timing import cycle_program as p
from mlagen.timing import cycle_state as s
from mlagen.timing import pipes as h
from mlagen.timing import waves as w
from mlagen.timing.cycle_state import MODEL, OPTIONS, compiled

_FOREVER: Final = 1 << 22  # cycles without an instruction: nothing goes on


@compiled
def _port(t, wave, unit):  # type: ignore[no-untyped-def]
    """The issue port that a wave's next instruction takes at cycle t; -1 where it has to wait, and
    then that counts."""
    steps, simds, stalls, slot = unit.steps, unit.simds, unit.counts.stalls, unit.numbers.slot
    state = unit.waves.state
    step = state[wave, s.S_STEP]
    row = steps.row[step]
    if state[wave, s.S_STATE] == s.WAITING:
        stalls[steps.row[step - 1], s.BARRIER] += slot
        return -1
    if state[wave, s.S_AT] > t:
        why = state[wave, s.S_WHY]
        earlier = why in (s.BARRIER, s.NOPS, s.FETCH)
        stalls[steps.row[step - 1] if earlier and step > steps.first[wave] else row, why] += slot
        return -1
    kind = steps.rows[row, p.UNIT]
    simd = steps.simd[wave]
    if kind > p.MATRIX:
        if kind <= p.BRANCH and simds.used[kind]:
            stalls[row, s.TURN] += slot
            return -1
        return 0
    port = 0
    if simds.port[simd, 0] > t:
        together = unit.numbers.co_issue > 0 and kind != p.MATRIX
        if not (together and simds.owner[simd, 0] != wave and simds.port[simd, 1] <= t):
            stalls[row, s.VALU_BUSY] += slot
            return -1
        port = 1
    if kind == p.MATRIX and simds.matrix_free[simd] > t:
        stalls[row, s.MATRIX_BUSY] += slot
        return -1
    return port


@compiled
def _keep_port(t, wave, port, row, unit):  # type: ignore[no-untyped-def]
    """A vector instruction takes its issue port, and its unit; what kind of result it makes."""
    rows, simds, busy = unit.steps.rows, unit.simds, unit.counts.busy
    simd = unit.steps.simd[wave]
    simds.port[simd, port] = t + rows[row, p.PORT]
    simds.owner[simd, port] = wave
    busy[s.B_VECTOR] += rows[row, p.PORT]
    if rows[row, p.UNIT] == p.MATRIX:
        simds.matrix_free[simd] = t + rows[row, p.BUSY]
        busy[s.B_MATRIX] += rows[row, p.BUSY]
        return s.MATRIX_RESULT
    if rows[row, p.UNIT] == p.TRANS:
        busy[s.B_TRANS] += rows[row, p.PORT]
    return s.VECTOR_RESULT


@compiled
def _access(t, wave, step, row, unit):  # type: ignore[no-untyped-def]
    """An access to memory goes into the wave's queue with the cycle in which it is done."""
    steps, waves, pipes, numbers = unit.steps, unit.waves, unit.pipes, unit.numbers
    rows, busy = steps.rows, unit.counts.busy
    if rows[row, p.UNIT] == p.SMEM:
        w.push(wave, waves.lgkm, waves.state, s.S_LGKM_TAIL, t + numbers.smem_latency)
    elif rows[row, p.UNIT] == p.LDS:
        h.land(t, pipes)
        cost = steps.lds[step] * numbers.lds_scale
        busy[s.B_LDS] += int(cost)
        w.push(wave, waves.lgkm, waves.state, s.S_LGKM_TAIL, h.access_lds(t, cost, pipes, numbers))
    else:
        h.land(t, pipes)
        size = steps.bytes[step]
        done = h.move_bytes(t, size, steps.lines[step], rows[row, p.STORE], pipes, numbers, busy)
        if rows[row, p.DMA]:
            done = h.arrive(done, size, pipes, numbers, busy)
        w.push(wave, waves.vm, waves.state, s.S_VM_TAIL, done)


@compiled
def _issue(t, wave, port, unit):  # type: ignore[no-untyped-def]
    """A wave's next instruction is issued at cycle t, and what follows it is looked at."""
    steps, counts, numbers = unit.steps, unit.counts, unit.numbers
    state = unit.waves.state
    step = state[wave, s.S_STEP]
    last = step + 1 == steps.first[wave + 1]
    rows = steps.rows
    row = steps.row[step]
    kind = rows[row, p.UNIT]
    counts.when[step] = t
    counts.stalls[row, s.ISSUED] += numbers.slot
    resume = t + numbers.slot
    why = s.FETCH
    result = s.VECTOR_RESULT
    if kind <= p.MATRIX:
        result = _keep_port(t, wave, port, row, unit)
    elif kind == p.SALU:
        result = s.SCALAR_RESULT
    elif kind <= p.VMEM:
        _access(t, wave, step, row, unit)
    elif kind == p.BRANCH:
        taken = not last and steps.row[step + 1] != row + 1
        resume = t + (numbers.taken if taken else numbers.not_taken)
    elif kind == p.NOP:
        resume = t + numbers.slot * rows[row, p.PORT]
        why = s.NOPS
    elif kind == p.PRIORITY:
        state[wave, s.S_PRIORITY] = rows[row, p.PORT]
    w.write(wave, row, t, result, unit)
    state[wave, s.S_STEP] = step + 1
    if kind == p.END or last:
        state[wave, s.S_STATE] = s.ENDED
    elif kind == p.BARRIER:
        state[wave, s.S_STATE] = s.WAITING
    else:
        w.look(wave, resume, why, unit)


@compiled
def _simulate(unit):  # type: ignore[no-untyped-def]
    numbers, steps, simds, states = unit.numbers, unit.steps, unit.simds, unit.waves.state
    live = 0
    for wave in range(len(states)):
        live += states[wave, s.S_STATE] != s.ENDED
    t = -1
    moved_at = 0
    while live > 0:
        t += 1
        simd = t % numbers.slot
        if simd >= s.SIMDS:
            continue
        if t - moved_at > _FOREVER:
            return -1
        simds.used[:] = 0
        for turn in range(simds.members[simd]):
            wave = simds.order[simd, turn]
            if states[wave, s.S_STATE] == s.ENDED:
                continue
            port = _port(t, wave, unit)
            if port < 0:
                continue
            moved_at = t
            kind = steps.rows[steps.row[states[wave, s.S_STEP]], p.UNIT]
            simds.used[kind] = 1
            _issue(t, wave, port, unit)
            if states[wave, s.S_STATE] == s.ENDED:
                live -= 1
            # Whoever was the last to arrive, or left the others alone, lets them go on.
            if states[wave, s.S_STATE] != s.RUNNING and w.may_open(wave, steps.group, states):
                w.open_barrier(wave, t + numbers.barrier, unit)
            if kind == p.PRIORITY:
                w.sort(simds.order[simd], simds.members[simd], states)
                break  # the order of this turn's waves has changed
    return t + 1


def _stamp() -> int:
    """A number that changes with any source of the engine: numba's cache watches one file only."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for part in (h, p, s, w):
        digest.update(Path(part.__file__ or "").read_bytes())
    return int.from_bytes(digest.digest()[:6], "little")


def _make(stamp: int) -> Any:
    @njit(**OPTIONS)
    def simulate(unit):  # type: ignore[no-untyped-def]
        """Issue every step of every wave of a `ComputeUnit`, and fill its counts; the cycle after
        the last, or -1 when nothing goes on."""
        if stamp < 0:
            return -1
        return _simulate(unit)

    return keep(simulate, MODEL)


simulate: Any = _make(_stamp())


def compiled_files() -> tuple[Path | None, str]:
    """The folder in which numba keeps the compiled model, None where it has none, and the pattern
    of its files."""
    folder = simulate.stats.cache_path
    return None if folder is None else Path(folder), "*.nb[ci]"
