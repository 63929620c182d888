"""The cycle engine: waves of a compute unit issue what they executed, slot by slot.

Every SIMD has a turn each `slot` cycles. In its turn it starts at most one instruction a unit and
one a wave: waves of higher priority first, the oldest first among equals. A wave issues in order
and stops at whatever its next instruction has to wait for; where all that is known when the
instruction becomes the next, it is worked out once (`_look`). Time is counted in cycles.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from mlagen.timing import program as p

# Why a wave did not issue in its turn.
ISSUED: Final = 0
VECTOR_RESULT: Final = 1
MATRIX_RESULT: Final = 2
SCALAR_RESULT: Final = 3
VALU_BUSY: Final = 4
MATRIX_BUSY: Final = 5
WAIT_VM: Final = 6
WAIT_LGKM: Final = 7
BARRIER: Final = 8
NOPS: Final = 9
FETCH: Final = 10
QUEUE_FULL: Final = 11
TURN: Final = 12
REASONS: Final = ("issued", "vector result", "matrix result", "scalar result", "vector unit busy",
                  "matrix unit busy", "memory wait", "LDS wait", "barrier", "nop", "branch",
                  "queue full", "other wave's turn")  # fmt: skip

# Numbers the engine takes (one float64 array).
K_SLOT: Final = 0
K_LDS_SCALE: Final = 1  # LDS cycles per phase cycle
K_LDS_LATENCY: Final = 2
K_LGKM_LIMIT: Final = 3
K_TA_BYTES: Final = 4
K_MEMORY_BYTES: Final = 5  # bytes a cycle from beyond the L1, this CU's share
K_MEMORY_LATENCY: Final = 6
K_SMEM_LATENCY: Final = 7
K_VM_LIMIT: Final = 8
K_BARRIER: Final = 9
K_TAKEN: Final = 10
K_NOT_TAKEN: Final = 11
K_CO_ISSUE: Final = 12
K_DMA_BYTES: Final = 13
K_SIZE: Final = 14

# What the engine counts (one int64 array): cycles a pipe is busy, all SIMDs together.
B_VECTOR: Final = 0
B_TRANS: Final = 1
B_MATRIX: Final = 2
B_LDS: Final = 3
B_MEMORY: Final = 4
B_SIZE: Final = 5

SIMDS: Final = 4
_RING: Final = 128


@njit(cache=True)
def _look(  # type: ignore[no-untyped-def]
    wave, row, t, rows, ranges, ready, origin, vm, vm_tail, lgkm, lgkm_tail, numbers
):
    """When the next instruction of a wave may issue as far as the wave alone goes, and why then."""
    at = t
    why = ISSUED
    unit = rows[row, p.UNIT]
    for i in range(rows[row, p.READS], rows[row, p.READS] + rows[row, p.READ_COUNT]):
        for register in range(ranges[i, 0], ranges[i, 0] + ranges[i, 1]):
            when = ready[wave, register]
            source = origin[wave, register]
            if source == MATRIX_RESULT and ranges[i, 2]:
                when -= rows[row, p.LATENCY] - rows[row, p.FORWARD]
            if when > at:
                at = when
                why = source
    if unit == p.WAIT:
        count = vm_tail[wave] - rows[row, p.VM]
        if count > 0:
            when = vm[wave, (count - 1) % _RING]
            if when > at:
                at = when
                why = WAIT_VM
        count = lgkm_tail[wave] - rows[row, p.LGKM]
        if rows[row, p.LGKM] < 15 and count > 0:
            when = lgkm[wave, (count - 1) % _RING]
            if when > at:
                at = when
                why = WAIT_LGKM
    elif unit == p.LDS or unit == p.SMEM:
        count = lgkm_tail[wave] - int(numbers[K_LGKM_LIMIT])
        if count >= 0:
            when = lgkm[wave, count % _RING]
            if when > at:
                at = when
                why = QUEUE_FULL
    elif unit == p.VMEM:
        count = vm_tail[wave] - int(numbers[K_VM_LIMIT])
        if count >= 0:
            when = vm[wave, count % _RING]
            if when > at:
                at = when
                why = QUEUE_FULL
    return at, why


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
    """Issue every step of every wave; the cycle after the last, or -1 when nothing can go on.

    `first`: where each wave's steps begin in `step_*`, and the end. `group`: workgroup of each
    wave (barriers are among these), `started`: cycle in which it may begin. Out: `when`, the cycle
    of each step; `stalls` [rows, reasons], wave-cycles; `busy`, cycles by pipe.
    """
    waves = len(group)
    slot = int(numbers[K_SLOT])
    ready = np.zeros((waves, p.REGISTERS), dtype=np.int64)
    origin = np.zeros((waves, p.REGISTERS), dtype=np.int8)
    vm = np.zeros((waves, _RING), dtype=np.int64)
    lgkm = np.zeros((waves, _RING), dtype=np.int64)
    vm_tail = np.zeros(waves, dtype=np.int64)
    lgkm_tail = np.zeros(waves, dtype=np.int64)
    at = np.zeros(waves, dtype=np.int64)  # cycle from which the next instruction may issue
    why = np.zeros(waves, dtype=np.int64)
    place = np.zeros(waves, dtype=np.int64)
    priority = np.zeros(waves, dtype=np.int64)
    waiting = np.zeros(waves, dtype=np.int64)
    order = np.zeros((SIMDS, waves), dtype=np.int64)
    members = np.zeros(SIMDS, dtype=np.int64)
    port = np.zeros((SIMDS, 2), dtype=np.int64)
    owner = np.full((SIMDS, 2), -1, dtype=np.int64)
    matrix_free = np.zeros(SIMDS, dtype=np.int64)
    used = np.zeros(16, dtype=np.int64)
    arrivals = np.zeros(4096, dtype=np.float64)  # of loads to LDS: cycle, and cycles they take
    arrival_cost = np.zeros(4096, dtype=np.float64)
    arrival_head = 0
    arrival_tail = 0
    lds_free = 0.0
    ta_free = 0.0
    memory_free = 0.0
    live = 0
    for wave in range(waves):
        order[simd[wave], members[simd[wave]]] = wave
        members[simd[wave]] += 1
        place[wave] = first[wave]
        if first[wave] < first[wave + 1]:
            live += 1
            at[wave] = started[wave]
            why[wave] = FETCH
        else:
            waiting[wave] = 2
    t = 0
    idle_since = 0
    while live > 0:
        s = t % slot
        if s >= SIMDS:
            t += 1
            continue
        used[:] = 0
        moved = False
        for turn in range(members[s]):
            wave = order[s, turn]
            if waiting[wave] == 2:
                continue
            step = place[wave]
            row = step_row[step]
            unit = rows[row, p.UNIT]
            if waiting[wave] == 1:
                stalls[step_row[step - 1], BARRIER] += slot
                continue
            if at[wave] > t:
                behind = why[wave] == BARRIER or why[wave] == NOPS or why[wave] == FETCH
                blamed = step_row[step - 1] if behind and step > first[wave] else row
                stalls[blamed, why[wave]] += slot
                continue
            # Ports of the SIMD.
            server = 0
            if unit <= p.MATRIX:
                if port[s, 0] > t:
                    if (
                        numbers[K_CO_ISSUE] > 0
                        and unit != p.MATRIX
                        and owner[s, 0] != wave
                        and port[s, 1] <= t
                    ):
                        server = 1
                    else:
                        stalls[row, VALU_BUSY] += slot
                        continue
                if unit == p.MATRIX and matrix_free[s] > t:
                    stalls[row, MATRIX_BUSY] += slot
                    continue
            elif unit <= p.BRANCH and used[unit]:
                stalls[row, TURN] += slot
                continue
            # Issue.
            moved = True
            when[step] = t
            stalls[row, ISSUED] += slot
            used[unit] = 1
            resume = t + slot
            resume_why = FETCH
            result = MATRIX_RESULT if unit == p.MATRIX else VECTOR_RESULT
            if unit <= p.MATRIX:
                port[s, server] = t + rows[row, p.PORT]
                owner[s, server] = wave
                if unit == p.MATRIX:
                    matrix_free[s] = t + rows[row, p.BUSY]
                    busy[B_MATRIX] += rows[row, p.BUSY]
                elif unit == p.TRANS:
                    busy[B_TRANS] += rows[row, p.PORT]
                busy[B_VECTOR] += rows[row, p.PORT]
            elif unit == p.SALU:
                result = SCALAR_RESULT
            elif unit == p.SMEM:
                done = t + int(numbers[K_SMEM_LATENCY])
                last = lgkm[wave, (lgkm_tail[wave] - 1) % _RING] if lgkm_tail[wave] else 0
                lgkm[wave, lgkm_tail[wave] % _RING] = max(done, last)
                lgkm_tail[wave] += 1
            elif unit == p.LDS:
                while arrival_head < arrival_tail and arrivals[arrival_head % 4096] <= t:
                    begin = max(lds_free, arrivals[arrival_head % 4096])
                    lds_free = begin + arrival_cost[arrival_head % 4096]
                    arrival_head += 1
                cost = step_lds[step] * numbers[K_LDS_SCALE]
                lds_free = max(lds_free, float(t)) + cost
                busy[B_LDS] += int(cost)
                done = int(np.ceil(lds_free + numbers[K_LDS_LATENCY]))
                last = lgkm[wave, (lgkm_tail[wave] - 1) % _RING] if lgkm_tail[wave] else 0
                lgkm[wave, lgkm_tail[wave] % _RING] = max(done, last)
                lgkm_tail[wave] += 1
            elif unit == p.VMEM:
                cost = max(step_bytes[step] / numbers[K_TA_BYTES], float(step_lines[step]))
                ta_free = max(ta_free, float(t)) + max(cost, 4.0)
                moving = step_lines[step] * 128.0
                if rows[row, p.STORE]:
                    moving = float(step_bytes[step])
                spent = moving / numbers[K_MEMORY_BYTES]
                memory_free = max(memory_free, ta_free) + spent
                busy[B_MEMORY] += int(spent)
                done = int(memory_free + numbers[K_MEMORY_LATENCY])
                if rows[row, p.DMA]:
                    cost = step_bytes[step] / numbers[K_DMA_BYTES]
                    if arrival_tail - arrival_head < 4096:
                        arrivals[arrival_tail % 4096] = done
                        arrival_cost[arrival_tail % 4096] = cost
                        arrival_tail += 1
                    busy[B_LDS] += int(cost)
                    done += int(cost)
                last = vm[wave, (vm_tail[wave] - 1) % _RING] if vm_tail[wave] else 0
                vm[wave, vm_tail[wave] % _RING] = max(done, last)
                vm_tail[wave] += 1
            elif unit == p.BRANCH:
                taken = step + 1 < first[wave + 1] and step_row[step + 1] != row + 1
                resume = t + int(numbers[K_TAKEN] if taken else numbers[K_NOT_TAKEN])
            elif unit == p.NOP:
                resume = t + slot * rows[row, p.PORT]
                resume_why = NOPS
            elif unit == p.PRIORITY:
                priority[wave] = rows[row, p.PORT]
                # Keep the SIMD's waves sorted: by priority, then by age.
                for i in range(1, members[s]):
                    j = i
                    while j > 0:
                        a = order[s, j - 1]
                        b = order[s, j]
                        if priority[a] > priority[b] or (priority[a] == priority[b] and a < b):
                            break
                        order[s, j - 1] = b
                        order[s, j] = a
                        j -= 1
            latency = rows[row, p.LATENCY]
            for i in range(rows[row, p.WRITES], rows[row, p.WRITES] + rows[row, p.WRITE_COUNT]):
                for register in range(ranges[i, 0], ranges[i, 0] + ranges[i, 1]):
                    ready[wave, register] = t + latency
                    origin[wave, register] = result
            place[wave] = step + 1
            ended = unit == p.END or step + 1 == first[wave + 1]
            if ended:
                waiting[wave] = 2
                live -= 1
            elif unit == p.BARRIER:
                waiting[wave] = 1
            if ended or unit == p.BARRIER:
                # Whoever was the last to arrive, or left the others alone, lets them go on.
                open_ = True
                for other in range(waves):
                    if group[other] == group[wave] and waiting[other] == 0:
                        open_ = False
                if open_:
                    for other in range(waves):
                        if group[other] == group[wave] and waiting[other] == 1:
                            waiting[other] = 0
                            later, reason = _look(
                                other,
                                step_row[place[other]],
                                t + int(numbers[K_BARRIER]),
                                rows,
                                ranges,
                                ready,
                                origin,
                                vm,
                                vm_tail,
                                lgkm,
                                lgkm_tail,
                                numbers,
                            )
                            at[other] = later
                            why[other] = reason if reason != ISSUED else BARRIER
            if waiting[wave] == 0 and unit != p.BARRIER:
                at[wave], reason = _look(
                    wave,
                    step_row[step + 1],
                    resume,
                    rows,
                    ranges,
                    ready,
                    origin,
                    vm,
                    vm_tail,
                    lgkm,
                    lgkm_tail,
                    numbers,
                )
                why[wave] = reason if reason != ISSUED else resume_why
            if unit == p.PRIORITY:
                break  # the order of this turn's waves has changed
        if moved:
            idle_since = t
        elif t - idle_since > 1 << 22:
            return -1
        t += 1
    return t
