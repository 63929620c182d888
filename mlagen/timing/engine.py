"""The cycle engine: waves of a compute unit issue what they executed, slot by slot.

Every SIMD has a turn each `slot` cycles. In its turn it starts at most one instruction a unit and
one a wave: waves of higher priority first, the oldest first among equals. A wave issues in order
and stops at whatever its next instruction has to wait for; where all that is known when the
instruction becomes the next, it is worked out once (`pipes.look`). Time is counted in cycles.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from mlagen.timing import pipes as h
from mlagen.timing import program as p


@njit
def _simulate(  # type: ignore[no-untyped-def]
    rows,
    ranges,
    numbers,
    first,
    step_row,
    step_lds,
    step_bytes,
    step_lines,
    group,
    simd,
    started,
    when,
    stalls,
    busy,
):
    waves = len(group)
    slot = int(numbers[h.K_SLOT])
    ready = np.zeros((waves, p.REGISTERS), dtype=np.int64)
    origin = np.zeros((waves, p.REGISTERS), dtype=np.int8)
    vm = np.zeros((waves, h.RING), dtype=np.int64)
    lgkm = np.zeros((waves, h.RING), dtype=np.int64)
    state = np.zeros((waves, h.S_STATE_SIZE), dtype=np.int64)
    order = np.zeros((h.SIMDS, waves), dtype=np.int64)
    members = np.zeros(h.SIMDS, dtype=np.int64)
    port = np.zeros((h.SIMDS, 2), dtype=np.int64)
    owner = np.full((h.SIMDS, 2), -1, dtype=np.int64)
    matrix_free = np.zeros(h.SIMDS, dtype=np.int64)
    used = np.zeros(16, dtype=np.int64)
    pipes = np.zeros(3)
    arrivals = np.zeros(h.ARRIVALS)
    costs = np.zeros(h.ARRIVALS)
    ring = np.zeros(2, dtype=np.int64)
    live = 0
    for wave in range(waves):
        order[simd[wave], members[simd[wave]]] = wave
        members[simd[wave]] += 1
        state[wave, h.S_STEP] = first[wave]
        state[wave, h.S_AT] = started[wave]
        state[wave, h.S_WHY] = h.FETCH
        if first[wave] < first[wave + 1]:
            live += 1
        else:
            state[wave, h.S_STATE] = h.ENDED
    t = -1
    moved_at = 0
    while live > 0:
        t += 1
        s = t % slot
        if s >= h.SIMDS:
            continue
        if t - moved_at > 1 << 22:
            return -1
        used[:] = 0
        for turn in range(members[s]):
            wave = order[s, turn]
            if state[wave, h.S_STATE] == h.ENDED:
                continue
            step = state[wave, h.S_STEP]
            row = step_row[step]
            unit = rows[row, p.UNIT]
            if state[wave, h.S_STATE] == h.WAITING:
                stalls[step_row[step - 1], h.BARRIER] += slot
                continue
            if state[wave, h.S_AT] > t:
                why = state[wave, h.S_WHY]
                earlier = why in (h.BARRIER, h.NOPS, h.FETCH)
                stalls[step_row[step - 1] if earlier and step > first[wave] else row, why] += slot
                continue
            # Ports of the SIMD.
            server = 0
            if unit <= p.MATRIX:
                if port[s, 0] > t:
                    together = numbers[h.K_CO_ISSUE] > 0 and unit != p.MATRIX
                    if together and owner[s, 0] != wave and port[s, 1] <= t:
                        server = 1
                    else:
                        stalls[row, h.VALU_BUSY] += slot
                        continue
                if unit == p.MATRIX and matrix_free[s] > t:
                    stalls[row, h.MATRIX_BUSY] += slot
                    continue
            elif unit <= p.BRANCH and used[unit]:
                stalls[row, h.TURN] += slot
                continue
            # Issue.
            moved_at = t
            when[step] = t
            stalls[row, h.ISSUED] += slot
            used[unit] = 1
            resume = t + slot
            why = h.FETCH
            result = h.VECTOR_RESULT
            if unit <= p.MATRIX:
                port[s, server] = t + rows[row, p.PORT]
                owner[s, server] = wave
                busy[h.B_VECTOR] += rows[row, p.PORT]
                if unit == p.MATRIX:
                    matrix_free[s] = t + rows[row, p.BUSY]
                    busy[h.B_MATRIX] += rows[row, p.BUSY]
                    result = h.MATRIX_RESULT
                elif unit == p.TRANS:
                    busy[h.B_TRANS] += rows[row, p.PORT]
            elif unit == p.SALU:
                result = h.SCALAR_RESULT
            elif unit == p.SMEM:
                done = t + int(numbers[h.K_SMEM_LATENCY])
                h.push(lgkm[wave], state[wave, h.S_LGKM_TAIL], done)
                state[wave, h.S_LGKM_TAIL] += 1
            elif unit == p.LDS:
                h.land(t, pipes, arrivals, costs, ring)
                cost = step_lds[step] * numbers[h.K_LDS_SCALE]
                busy[h.B_LDS] += int(cost)
                done = h.access_lds(t, cost, pipes, numbers)
                h.push(lgkm[wave], state[wave, h.S_LGKM_TAIL], done)
                state[wave, h.S_LGKM_TAIL] += 1
            elif unit == p.VMEM:
                h.land(t, pipes, arrivals, costs, ring)
                done = h.access_memory(
                    t,
                    step_bytes[step],
                    step_lines[step],
                    rows[row, p.STORE],
                    rows[row, p.DMA],
                    pipes,
                    arrivals,
                    costs,
                    ring,
                    numbers,
                    busy,
                )
                h.push(vm[wave], state[wave, h.S_VM_TAIL], done)
                state[wave, h.S_VM_TAIL] += 1
            elif unit == p.BRANCH:
                taken = step + 1 < first[wave + 1] and step_row[step + 1] != row + 1
                resume = t + int(numbers[h.K_TAKEN] if taken else numbers[h.K_NOT_TAKEN])
            elif unit == p.NOP:
                resume = t + slot * rows[row, p.PORT]
                why = h.NOPS
            elif unit == p.PRIORITY:
                state[wave, h.S_PRIORITY] = rows[row, p.PORT]
            for i in range(rows[row, p.WRITES], rows[row, p.WRITES] + rows[row, p.WRITE_COUNT]):
                for register in range(ranges[i, 0], ranges[i, 0] + ranges[i, 1]):
                    ready[wave, register] = t + rows[row, p.LATENCY]
                    origin[wave, register] = result
            state[wave, h.S_STEP] = step + 1
            if unit == p.END or step + 1 == first[wave + 1]:
                state[wave, h.S_STATE] = h.ENDED
                live -= 1
            elif unit == p.BARRIER:
                state[wave, h.S_STATE] = h.WAITING
            else:
                h.look(
                    wave,
                    step_row[step + 1],
                    resume,
                    why,
                    state,
                    rows,
                    ranges,
                    ready,
                    origin,
                    vm,
                    lgkm,
                    numbers,
                )
            # Whoever was the last to arrive, or left the others alone, lets them go on.
            if state[wave, h.S_STATE] != h.RUNNING and h.may_open(wave, group, state):
                resume = t + int(numbers[h.K_BARRIER])
                for other in range(waves):
                    if group[other] == group[wave] and state[other, h.S_STATE] == h.WAITING:
                        state[other, h.S_STATE] = h.RUNNING
                        h.look(
                            other,
                            step_row[state[other, h.S_STEP]],
                            resume,
                            h.BARRIER,
                            state,
                            rows,
                            ranges,
                            ready,
                            origin,
                            vm,
                            lgkm,
                            numbers,
                        )
            if unit == p.PRIORITY:
                h.sort(order[s], members[s], state)
                break  # the order of this turn's waves has changed
    return t + 1


def _stamp() -> int:
    """A number that changes with any source of the engine: numba's cache watches one file only."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for part in (h, p):
        digest.update(Path(part.__file__ or "").read_bytes())
    return int.from_bytes(digest.digest()[:6], "little")


def _make(stamp: int) -> Any:
    @njit(cache=True)
    def simulate(  # type: ignore[no-untyped-def]
        rows,
        ranges,
        numbers,
        first,
        step_row,
        step_lds,
        step_bytes,
        step_lines,
        group,
        simd,
        started,
        when,
        stalls,
        busy,
    ):
        """Issue every step of every wave; the cycle after the last, or -1 when nothing goes on.

        `first`: where each wave's steps begin in `step_*`, and the end. `group`: workgroup of each
        wave (barriers are among these), `started`: cycle in which it may begin. Out: `when`, the
        cycle of each step; `stalls` [rows, reasons], wave-cycles; `busy`, cycles by pipe.
        """
        if stamp < 0:
            return -1
        return _simulate(
            rows,
            ranges,
            numbers,
            first,
            step_row,
            step_lds,
            step_bytes,
            step_lines,
            group,
            simd,
            started,
            when,
            stalls,
            busy,
        )

    return simulate


simulate: Any = _make(_stamp())
