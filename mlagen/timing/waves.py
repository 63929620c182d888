"""What the cycle engine's waves wait for: results, queues, barriers, each other."""

from __future__ import annotations

from mlagen.timing import cycle_program as p
from mlagen.timing import cycle_state as s
from mlagen.timing.cycle_state import compiled


@compiled
def result(wave, queue, tail, before):  # type: ignore[no-untyped-def]
    """When the results come back that leave at most `before` in flight; 0 for those there now."""
    count = tail - before
    return queue[wave, (count - 1) % s.RING] if count > 0 else 0


@compiled
def push(wave, queue, state, tail, done):  # type: ignore[no-untyped-def]
    """Append an operation to a wave's queue, whose end is slot `tail` of its state: results come
    back in order."""
    end = state[wave, tail]
    last = queue[wave, (end - 1) % s.RING] if end else 0
    queue[wave, end % s.RING] = max(done, last)
    state[wave, tail] = end + 1


@compiled
def look(wave, t, why, unit):  # type: ignore[no-untyped-def]
    """Set when the next instruction of a wave may issue as far as the wave alone goes, and why.

    `t`: not before that cycle, because of `why`.
    """
    steps, waves, numbers = unit.steps, unit.waves, unit.numbers
    at = t
    rows, state = steps.rows, waves.state
    row = steps.row[state[wave, s.S_STEP]]
    kind = rows[row, p.UNIT]
    for i in range(rows[row, p.READS], rows[row, p.READS] + rows[row, p.READ_COUNT]):
        for register in range(steps.ranges[i, 0], steps.ranges[i, 0] + steps.ranges[i, 1]):
            when = waves.ready[wave, register]
            source = waves.origin[wave, register]
            if source == s.MATRIX_RESULT and steps.ranges[i, 2]:
                when -= rows[row, p.LATENCY] - rows[row, p.FORWARD]
            if when > at:
                at = when
                why = source
    if kind == p.WAIT:
        when = result(wave, waves.vm, state[wave, s.S_VM_TAIL], rows[row, p.VM])
        if when > at:
            at = when
            why = s.WAIT_VM
        when = result(wave, waves.lgkm, state[wave, s.S_LGKM_TAIL], rows[row, p.LGKM])
        if rows[row, p.LGKM] < 15 and when > at:
            at = when
            why = s.WAIT_LGKM
    elif kind == p.LDS or kind == p.SMEM:
        when = result(wave, waves.lgkm, state[wave, s.S_LGKM_TAIL], numbers.lgkm_limit - 1)
        if when > at:
            at = when
            why = s.QUEUE_FULL
    elif kind == p.VMEM:
        when = result(wave, waves.vm, state[wave, s.S_VM_TAIL], numbers.vm_limit - 1)
        if when > at:
            at = when
            why = s.QUEUE_FULL
    state[wave, s.S_AT] = at
    state[wave, s.S_WHY] = why


@compiled
def write(wave, row, t, origin, unit):  # type: ignore[no-untyped-def]
    """The registers that a row writes are ready after its latency, by a result of kind `origin`."""
    rows, ranges, waves = unit.steps.rows, unit.steps.ranges, unit.waves
    for i in range(rows[row, p.WRITES], rows[row, p.WRITES] + rows[row, p.WRITE_COUNT]):
        for register in range(ranges[i, 0], ranges[i, 0] + ranges[i, 1]):
            waves.ready[wave, register] = t + rows[row, p.LATENCY]
            waves.origin[wave, register] = origin


@compiled
def sort(order, count, state):  # type: ignore[no-untyped-def]
    """Keep the waves of a SIMD by priority, then by age."""
    for i in range(1, count):
        for j in range(i, 0, -1):
            a = order[j - 1]
            b = order[j]
            higher = state[a, s.S_PRIORITY] - state[b, s.S_PRIORITY]
            if higher > 0 or (higher == 0 and a < b):
                break
            order[j - 1] = b
            order[j] = a


@compiled
def may_open(wave, group, state):  # type: ignore[no-untyped-def]
    """True when no wave of the workgroup is still on its way to the barrier."""
    for other in range(len(group)):
        if group[other] == group[wave] and state[other, s.S_STATE] == s.RUNNING:
            return False
    return True


@compiled
def open_barrier(wave, t, unit):  # type: ignore[no-untyped-def]
    """The waves of the workgroup that wait go on at cycle t."""
    group, state = unit.steps.group, unit.waves.state
    for other in range(len(group)):
        if group[other] == group[wave] and state[other, s.S_STATE] == s.WAITING:
            state[other, s.S_STATE] = s.RUNNING
            look(other, t, s.BARRIER, unit)
