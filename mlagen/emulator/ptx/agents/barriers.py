"""bar, barrier and barrier.cluster.

A barrier counts threads. A warp that arrives as a whole counts as 32, whatever of it has ended or
never was (PTX ISA 9.0, bar: the count is of whole warps). A barrier without a count waits for the
threads of its CTA that have not exited, the cluster's for those of the cluster.

A lane that waits executes its instruction again when the barrier is over: GR_AT_BARRIER has the
lanes whose arrival is counted already.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.places import operand
from mlagen.emulator.ptx.agents.vectors import barrier_vector, close_phase
from mlagen.emulator.ptx.control import block
from mlagen.emulator.ptx.order.blocks import tell_begun
from mlagen.emulator.ptx.order.clocks import (
    GENERIC,
    acquire_from,
    clocks_of,
    component,
    release_to,
    warp_of,
)
from mlagen.emulator.ptx.order.pairs import lanes_learn, lanes_tell
from mlagen.emulator.ptx.state import (
    cta_of,
    fault,
    first_lane,
    lanes_of,
    moved,
    place,
    program_row,
    report,
    warp_base,
)

# P_OP
SYNC, ARRIVE, CLUSTER_ARRIVE, CLUSTER_WAIT = range(4)
# P_TYPE: how .red joins predicates
NO_RED, RED_AND, RED_OR, RED_POPC = range(4)
# P_FLAGS
COUNTED, RELAXED, NEGATED = 1, 2, 4


@compiled
def barrier_base(context: int, slot: int) -> int:
    """Address of the NB_ words of a slot of the cluster."""
    return load_i64(context, y.C_NAMED) + slot * (8 * a.NB_SIZE)


@compiled
def groups_base(context: int, warp: int) -> int:
    """Address of a warp's GR_ words."""
    return load_i64(context, y.C_GROUPS) + warp * (8 * a.GROUPS)


@compiled
def live_threads(context: int, cta: int) -> int:
    """Threads of a CTA that have not exited."""
    count = 0
    warps = load_i64(context, y.C_CTA_WARPS)
    for warp in range(cta * warps, (cta + 1) * warps):
        count += lanes_of(load_i64(warp_base(context, warp), y.W_LIVE))
    return count


@compiled
def finish(context: int, slot: int) -> None:
    """A generation of a barrier is complete."""
    b = barrier_base(context, slot)
    store_i64(b, a.NB_GENERATION, load_i64(b, a.NB_GENERATION) + 1)
    store_i64(b, a.NB_LAST, load_i64(b, a.NB_ROW))
    store_i64(b, a.NB_DONE_TRUE, load_i64(b, a.NB_TRUE))
    store_i64(b, a.NB_DONE_RED, load_i64(b, a.NB_RED))
    store_i64(b, a.NB_TRUE, 0)
    store_i64(b, a.NB_RED, 0)
    store_i64(b, a.NB_COUNT, 0)
    store_i64(b, a.NB_WHOLE, 0)
    store_i64(b, a.NB_ARRIVED, 0)
    store_i64(b, a.NB_THREADS, 0)
    store_i64(b, a.NB_BEFORE, load_i64(b, a.NB_WARPS))
    store_i64(b, a.NB_WARPS, 0)
    if load_i64(context, y.C_SANITIZE) != 0:
        close_phase(context, barrier_vector(context, slot, 0))
    moved(context)


@compiled
def settle_barrier(context: int, slot: int) -> None:
    """End the generation if nobody is missing."""
    b = barrier_base(context, slot)
    arrived = load_i64(b, a.NB_ARRIVED)
    if arrived == 0:
        return
    over = arrived >= load_i64(b, a.NB_COUNT)
    if not over and load_i64(b, a.NB_WHOLE) != 0:
        over = load_i64(b, a.NB_THREADS) >= live_threads(context, slot // a.NAMED)
    if over:
        finish(context, slot)


@compiled
def check_order(context: int, warp: int, row: int, slot: int) -> None:
    """A warp is about to arrive at a named barrier: it has to know of all that arrived in the
    generation before, or it might have been one of them."""
    b = barrier_base(context, slot)
    number = warp % load_i64(context, y.C_CTA_WARPS)
    store_i64(b, a.NB_WARPS, load_i64(b, a.NB_WARPS) | 1 << number)
    others = load_i64(b, a.NB_BEFORE) & ~(1 << number)
    clocks = clocks_of(context, warp)
    vector = barrier_vector(context, slot, 1)
    first = component(context, cta_of(context, warp), GENERIC, 0)
    while others != 0:
        other = first + first_lane(others)
        others &= others - 1
        if load_i64(clocks, other) < load_i64(vector, other):
            found = report(
                context, y.BARRIER_ORDER, row, load_i64(b, a.NB_LAST), warp, slot % a.NAMED, 0,
                y.ERROR,
            )  # fmt: skip
            if found != 0:
                store_i64(found, y.F_OTHER_WARP, warp_of(context, other))
            return


@compiled
def arrive_at(context: int, warp: int, row: int, slot: int, lanes: int) -> None:
    """Lanes of a warp arrive at a named barrier."""
    p = program_row(context, row)
    b = barrier_base(context, slot)
    count = load_i64(context, y.C_CTA_WARPS) * y.LANES
    if load_i64(p, y.P_FLAGS) & COUNTED != 0:
        count = operand(context, warp, p, 1, first_lane(lanes)) & 0xFFFFFFFF
        if count == 0 or count & (y.LANES - 1) != 0 or count > 1024:
            fault(context, row, y.FAULT_BARRIER, slot % a.NAMED, count)
            return
    else:
        store_i64(b, a.NB_WHOLE, 1)
    before = load_i64(b, a.NB_COUNT)
    if before != 0 and before != count:
        other = load_i64(b, a.NB_ROW)
        report(context, y.BARRIER_COUNT, row, other, warp, slot % a.NAMED, count, before)
    store_i64(b, a.NB_COUNT, max(before, count))
    store_i64(b, a.NB_ROW, row)
    live = load_i64(warp_base(context, warp), y.W_LIVE)
    threads = lanes_of(lanes)
    arrived = threads
    if (lanes >> first_lane(live)) & 1:  # with it the lanes that are no more
        arrived += y.LANES - lanes_of(live)
    kind = load_i64(p, y.P_TYPE)
    if kind != NO_RED:
        holds = load_i64(place(context, warp, load_i64(p, y.P_C)), 0)
        if load_i64(p, y.P_FLAGS) & NEGATED != 0:
            holds = ~holds
        store_i64(b, a.NB_TRUE, load_i64(b, a.NB_TRUE) + lanes_of(holds & lanes))
        store_i64(b, a.NB_RED, load_i64(b, a.NB_RED) + threads)
    if load_i64(b, a.NB_ARRIVED) + arrived > load_i64(b, a.NB_COUNT):
        report(
            context, y.BARRIER_COUNT, row, -1, warp, slot % a.NAMED, count,
            load_i64(b, a.NB_ARRIVED) + arrived,
        )  # fmt: skip
    store_i64(b, a.NB_ARRIVED, load_i64(b, a.NB_ARRIVED) + arrived)
    store_i64(b, a.NB_THREADS, load_i64(b, a.NB_THREADS) + threads)
    if load_i64(context, y.C_SANITIZE) != 0:
        check_order(context, warp, row, slot)
        release_to(context, warp, barrier_vector(context, slot, 0))
        lanes_tell(context, warp, lanes)
    settle_barrier(context, slot)


@compiled
def leave(context: int, warp: int, row: int, slot: int, lanes: int) -> None:
    """Lanes go on behind a barrier that is over: what they know now, the result of a .red."""
    p = program_row(context, row)
    if load_i64(context, y.C_SANITIZE) != 0:
        acquire_from(context, warp, barrier_vector(context, slot, 1))
        lanes_learn(context, warp)
    kind = load_i64(p, y.P_TYPE)
    if kind == NO_RED or load_i64(p, y.P_DST) == y.NONE:
        return
    b = barrier_base(context, slot)
    true = load_i64(b, a.NB_DONE_TRUE)
    where = place(context, warp, load_i64(p, y.P_DST))
    if kind == RED_POPC:
        for lane in range(y.LANES):
            if (lanes >> lane) & 1:
                store_u32(where, lane, uint32(true))
        return
    holds = true == load_i64(b, a.NB_DONE_RED) if kind == RED_AND else true != 0
    rest = load_i64(where, 0) & ~lanes
    store_i64(where, 0, rest | lanes if holds else rest)


@compiled
def named(context: int, warp: int, row: int, mask: int) -> int:
    """bar.sync, bar.arrive and bar.red of lanes; they may name several barriers."""
    p = program_row(context, row)
    groups = groups_base(context, warp)
    cta = cta_of(context, warp)
    waiting = load_i64(groups, a.GR_AT_BARRIER) & mask  # these come back: their barrier is over
    rest = mask
    while rest != 0:
        number = operand(context, warp, p, 0, first_lane(rest)) & 0xFFFFFFFF
        lanes = 0
        for lane in range(y.LANES):
            if (rest >> lane) & 1 and operand(context, warp, p, 0, lane) & 0xFFFFFFFF == number:
                lanes |= 1 << lane
        rest &= ~lanes
        if number >= a.CLUSTER_BARRIER:
            fault(context, row, y.FAULT_BARRIER, number, 0)
            return y.NEXT
        slot = cta * a.NAMED + number
        back = lanes & waiting
        if back != 0:
            store_i64(groups, a.GR_AT_BARRIER, load_i64(groups, a.GR_AT_BARRIER) & ~back)
            leave(context, warp, row, slot, back)
        fresh = lanes & ~waiting
        if fresh != 0:
            generation = load_i64(barrier_base(context, slot), a.NB_GENERATION)
            arrive_at(context, warp, row, slot, fresh)
            if load_i64(p, y.P_OP) != SYNC or load_i64(context, y.C_FAULT_KIND) != 0:
                continue
            if barrier_over(context, slot, generation):  # these were the last
                leave(context, warp, row, slot, fresh)
            else:
                at = load_i64(groups, a.GR_AT_BARRIER)
                store_i64(groups, a.GR_AT_BARRIER, at | fresh)
                block(context, warp, fresh, y.WAIT_BARRIER, slot, generation)
    return y.AGAIN


@compiled
def all_in_cluster(context: int) -> bool:
    """Whether all threads of the cluster that live have arrived at its barrier, and some did."""
    some = 0
    for warp in range(load_i64(context, y.C_WARPS_ALL)):
        arrived = load_i64(groups_base(context, warp), a.GR_AT_CLUSTER)
        if load_i64(warp_base(context, warp), y.W_LIVE) & ~arrived != 0:
            return False
        some |= arrived
    return some != 0


@compiled
def settle_cluster(context: int) -> None:
    """End the generation of the cluster's barrier if nobody is missing."""
    if not all_in_cluster(context):
        return
    for warp in range(load_i64(context, y.C_WARPS_ALL)):
        store_i64(groups_base(context, warp), a.GR_AT_CLUSTER, 0)
    finish(context, a.CLUSTER_BARRIER)


@compiled
def cluster_arrive(context: int, warp: int, row: int, mask: int) -> None:
    """barrier.cluster.arrive."""
    groups = groups_base(context, warp)
    before = load_i64(groups, a.GR_AT_CLUSTER)
    unwaited = load_i64(groups, a.GR_CLUSTER_OPEN)
    if unwaited & mask != 0:
        report(context, y.BARRIER_COUNT, row, -1, warp, a.CLUSTER_BARRIER, unwaited & mask, 0)
    store_i64(groups, a.GR_CLUSTER_OPEN, unwaited | mask)
    relaxed = load_i64(program_row(context, row), y.P_FLAGS) & RELAXED != 0
    relaxed = relaxed and load_i64(groups, a.GR_FENCED) == 0
    store_i64(groups, a.GR_FENCED, 0)
    if load_i64(context, y.C_SANITIZE) != 0:
        vector = barrier_vector(context, a.CLUSTER_BARRIER, 0)
        if relaxed:
            tell_begun(context, clocks_of(context, warp), vector)
        else:
            release_to(context, warp, vector)
            lanes_tell(context, warp, mask)
    store_i64(groups, a.GR_AT_CLUSTER, before | mask)
    settle_cluster(context)


@compiled
def cluster_wait(context: int, warp: int, row: int, mask: int) -> int:
    """barrier.cluster.wait. A lane that has not arrived has nothing to wait for, which is told."""
    groups = groups_base(context, warp)
    unwaited = load_i64(groups, a.GR_CLUSTER_OPEN)
    if mask & ~unwaited != 0:
        report(context, y.BARRIER_COUNT, row, -1, warp, a.CLUSTER_BARRIER, mask & ~unwaited, 0)
    waits = load_i64(groups, a.GR_AT_CLUSTER) & mask
    store_i64(groups, a.GR_CLUSTER_OPEN, unwaited & ~(mask & ~waits))
    if waits != mask and load_i64(context, y.C_SANITIZE) != 0:
        acquire_from(context, warp, barrier_vector(context, a.CLUSTER_BARRIER, 1))
        lanes_learn(context, warp)
    if waits == 0:
        return y.NEXT
    generation = load_i64(barrier_base(context, a.CLUSTER_BARRIER), a.NB_GENERATION)
    block(context, warp, waits, y.WAIT_CLUSTER, 0, generation)
    return y.AGAIN


@compiled
def run_barrier(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    op = load_i64(program_row(context, row), y.P_OP)
    if op == CLUSTER_ARRIVE:
        cluster_arrive(context, warp, row, mask)
        return y.NEXT
    if op == CLUSTER_WAIT:
        return cluster_wait(context, warp, row, mask)
    answer = named(context, warp, row, mask)
    base = warp_base(context, warp)
    return answer if load_i64(base, y.W_BLOCKED) & mask != 0 else y.NEXT


@compiled
def threads_left(context: int, warp: int) -> None:
    """Threads of a warp have exited: barriers of its CTA may wait for nobody else."""
    cta = cta_of(context, warp)
    for number in range(a.CLUSTER_BARRIER):
        settle_barrier(context, cta * a.NAMED + number)
    settle_cluster(context)


@compiled
def barrier_over(context: int, slot: int, generation: int) -> bool:
    """Whether a named barrier has completed more than `generation` times."""
    return load_i64(barrier_base(context, slot), a.NB_GENERATION) > generation


@compiled
def cluster_over(context: int, generation: int) -> bool:
    """Whether the cluster's barrier has completed more than `generation` times."""
    return load_i64(barrier_base(context, a.CLUSTER_BARRIER), a.NB_GENERATION) > generation
