"""What the cycle engine's waves wait for: results, queues, the unit's pipes, barriers.

All of it is compiled into `engine.simulate`.
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

# A wave's slots in `state`.
S_AT: Final = 0  # cycle from which its next instruction may issue
S_WHY: Final = 1
S_STEP: Final = 2
S_PRIORITY: Final = 3
S_STATE: Final = 4
S_VM_TAIL: Final = 5
S_LGKM_TAIL: Final = 6
S_STATE_SIZE: Final = 7
RUNNING, WAITING, ENDED = 0, 1, 2
# Cycle from which a pipe of the unit is free.
_LDS: Final = 0
_TA: Final = 1
_MEMORY: Final = 2

SIMDS: Final = 4
RING: Final = 128  # results of a wave that it may wait for
ARRIVALS: Final = 4096  # loads to LDS under way: at most 63 of each wave


@njit
def result(queue, tail, before):  # type: ignore[no-untyped-def]
    """When the results come back that leave at most `before` in flight; 0 for those there now."""
    count = tail - before
    return queue[(count - 1) % RING] if count > 0 else 0


@njit
def push(queue, tail, done):  # type: ignore[no-untyped-def]
    """Append an operation: results come back in order."""
    last = queue[(tail - 1) % RING] if tail else 0
    queue[tail % RING] = max(done, last)


@njit
def look(  # type: ignore[no-untyped-def]
    wave, row, t, why_then, state, rows, ranges, ready, origin, vm, lgkm, numbers
):
    """Set when the next instruction of a wave may issue as far as the wave alone goes, and why.

    `t`: not before that cycle, because of `why_then`.
    """
    at = t
    why = why_then
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
    vm_tail = state[wave, S_VM_TAIL]
    lgkm_tail = state[wave, S_LGKM_TAIL]
    if unit == p.WAIT:
        when = result(vm[wave], vm_tail, rows[row, p.VM])
        if when > at:
            at = when
            why = WAIT_VM
        when = result(lgkm[wave], lgkm_tail, rows[row, p.LGKM])
        if rows[row, p.LGKM] < p.LGKM_MOST and when > at:
            at = when
            why = WAIT_LGKM
    elif unit == p.LDS or unit == p.SMEM:
        when = result(lgkm[wave], lgkm_tail, int(numbers[K_LGKM_LIMIT]) - 1)
        if when > at:
            at = when
            why = QUEUE_FULL
    elif unit == p.VMEM:
        when = result(vm[wave], vm_tail, int(numbers[K_VM_LIMIT]) - 1)
        if when > at:
            at = when
            why = QUEUE_FULL
    state[wave, S_AT] = at
    state[wave, S_WHY] = why


@njit
def land(t, pipes, arrivals, costs, ring):  # type: ignore[no-untyped-def]
    """Loads to LDS that have arrived by cycle t take their cycles of it."""
    while ring[0] < ring[1] and arrivals[ring[0] % ARRIVALS] <= t:
        place = ring[0] % ARRIVALS
        pipes[_LDS] = max(pipes[_LDS], arrivals[place]) + costs[place]
        ring[0] += 1


@njit
def access_lds(t, cost, pipes, numbers):  # type: ignore[no-untyped-def]
    """An LDS instruction of `cost` cycles; when its result is there."""
    pipes[_LDS] = max(pipes[_LDS], float(t)) + cost
    return int(np.ceil(pipes[_LDS] + numbers[K_LDS_LATENCY]))


@njit
def access_memory(  # type: ignore[no-untyped-def]
    t, size, lines, store, dma, pipes, arrivals, costs, ring, numbers, busy
):
    """A load or store of `size` bytes in `lines` cache lines; when it is done."""
    address = max(size / numbers[K_TA_BYTES], float(lines), 4.0)
    pipes[_TA] = max(pipes[_TA], float(t)) + address
    spent = (float(size) if store else lines * 128.0) / numbers[K_MEMORY_BYTES]
    pipes[_MEMORY] = max(pipes[_MEMORY], pipes[_TA]) + spent
    busy[B_MEMORY] += int(spent)
    done = int(pipes[_MEMORY] + numbers[K_MEMORY_LATENCY])
    if dma:
        cost = size / numbers[K_DMA_BYTES]
        arrivals[ring[1] % ARRIVALS] = done
        costs[ring[1] % ARRIVALS] = cost
        ring[1] += 1
        busy[B_LDS] += int(cost)
        done += int(cost)
    return done


@njit
def sort(order, count, state):  # type: ignore[no-untyped-def]
    """Keep the waves of a SIMD by priority, then by age."""
    for i in range(1, count):
        for j in range(i, 0, -1):
            a = order[j - 1]
            b = order[j]
            higher = state[a, S_PRIORITY] - state[b, S_PRIORITY]
            if higher > 0 or (higher == 0 and a < b):
                break
            order[j - 1] = b
            order[j] = a


@njit
def may_open(wave, group, state):  # type: ignore[no-untyped-def]
    """True when no wave of the workgroup is still on its way to the barrier."""
    for other in range(len(group)):
        if group[other] == group[wave] and state[other, S_STATE] == RUNNING:
            return False
    return True
