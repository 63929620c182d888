"""The engine: warps of one cluster, instruction by instruction, until all have ended.

`run` is the one entry, which `starting` makes machine code of. It works on a context (see
`layout`), may stop after a budget of instructions, and goes on from there when called again.

In mode "latest" the lowest warp runs until it waits, and agents do nothing until nobody can run:
the most uneven progress that barriers allow. "earliest": warps take turns of one instruction and
agents work at once. "drawn": both as a seed says.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents.barriers import (
    barrier_over,
    cluster_over,
    run_barrier,
    threads_left,
)
from mlagen.emulator.ptx.agents.copies import run_copy
from mlagen.emulator.ptx.agents.fences import run_fence
from mlagen.emulator.ptx.agents.groups import run_group
from mlagen.emulator.ptx.agents.launching import grid_over, run_launch
from mlagen.emulator.ptx.agents.mbarriers import mbarrier_over, run_mbarrier
from mlagen.emulator.ptx.agents.queue import end_of_warp, land_needed, land_some
from mlagen.emulator.ptx.agents.tensors import run_tensor_copy
from mlagen.emulator.ptx.control import (
    after_block,
    branch,
    choose,
    end_lanes,
    go_on,
    part,
    take_turns,
    unblock,
)
from mlagen.emulator.ptx.matrix.mma import run_mma
from mlagen.emulator.ptx.matrix.wgmma import run_wgmma, wgmma_over
from mlagen.emulator.ptx.memory.access import run_load, run_store
from mlagen.emulator.ptx.memory.atomics import run_atomic
from mlagen.emulator.ptx.memory.collectives import run_collective
from mlagen.emulator.ptx.memory.matrices import run_matrix_move
from mlagen.emulator.ptx.order.lane_clocks import met
from mlagen.emulator.ptx.order.loads import carry_loads, end_taken, use_loads
from mlagen.emulator.ptx.order.register_reads import check_registers
from mlagen.emulator.ptx.state import (
    fault,
    listed,
    next_random,
    place,
    program_row,
    report,
    warp_base,
)
from mlagen.emulator.ptx.tensor.tcgen05 import run_tensor
from mlagen.emulator.ptx.values.approx import run_approx
from mlagen.emulator.ptx.values.convert import run_convert
from mlagen.emulator.ptx.values.floats import run_float
from mlagen.emulator.ptx.values.half import run_half
from mlagen.emulator.ptx.values.integers import run_integer
from mlagen.emulator.ptx.values.moves import run_move
from mlagen.emulator.ptx.values.select import run_select


@compiled
def execute(context: int, warp: int, row: int, mask: int) -> int:
    """One instruction for the lanes of `mask`; NEXT or AGAIN. Branches and exits are elsewhere."""
    kind = load_i64(program_row(context, row), y.P_CLASS)
    if kind == y.X_FLOAT:
        return run_float(context, warp, row, mask)
    if kind == y.X_INTEGER:
        return run_integer(context, warp, row, mask)
    if kind == y.X_SELECT:
        return run_select(context, warp, row, mask)
    if kind == y.X_MOVE:
        return run_move(context, warp, row, mask)
    if kind == y.X_CONVERT:
        return run_convert(context, warp, row, mask)
    if kind == y.X_LOAD:
        return run_load(context, warp, row, mask)
    if kind == y.X_STORE:
        return run_store(context, warp, row, mask)
    if kind == y.X_APPROX:
        return run_approx(context, warp, row, mask)
    if kind == y.X_WGMMA:
        return run_wgmma(context, warp, row, mask)
    if kind == y.X_HALF:
        return run_half(context, warp, row, mask)
    if kind == y.X_MATRIX_MOVE:
        return run_matrix_move(context, warp, row, mask)
    if kind == y.X_COLLECTIVE:
        return run_collective(context, warp, row, mask)
    if kind == y.X_MBARRIER:
        return run_mbarrier(context, warp, row, mask)
    if kind == y.X_BARRIER:
        return run_barrier(context, warp, row, mask)
    if kind == y.X_FENCE:
        return run_fence(context, warp, row, mask)
    if kind == y.X_TENSOR_COPY:
        return run_tensor_copy(context, warp, row, mask)
    if kind == y.X_COPY:
        return run_copy(context, warp, row, mask)
    if kind == y.X_GROUP:
        return run_group(context, warp, row, mask)
    if kind == y.X_ATOMIC:
        return run_atomic(context, warp, row, mask)
    if kind == y.X_MMA:
        return run_mma(context, warp, row, mask)
    if kind == y.X_TENSOR:
        return run_tensor(context, warp, row, mask)
    if kind == y.X_LAUNCH:
        return run_launch(context, warp, row, mask)
    if kind != y.X_NOP:
        fault(context, row, y.FAULT_UNMODELLED, kind, 0)
    return y.NEXT


@compiled
def guarded(context: int, warp: int, p: int, mask: int) -> int:
    """The lanes of `mask` for which the guard holds."""
    where = load_i64(p, y.P_GUARD)
    if where == y.NO_GUARD:
        return mask
    holds = load_i64(place(context, warp, where), 0)
    if load_i64(p, y.P_NEGATED) != 0:
        holds = ~holds
    return mask & holds


@compiled
def indexed_branch(context: int, warp: int, p: int, row: int, active: int) -> None:
    """`brx.idx`: each lane goes where its index says."""
    base = warp_base(context, warp)
    index = place(context, warp, load_i64(p, y.P_A))
    for lane in range(y.LANES):
        if (active >> lane) & 1:
            which = int64(load_u32(index, lane))
            if which >= load_i64(p, y.P_COUNT):
                fault(context, row, y.FAULT_UNMODELLED, which, 0)
                return
            store_i64(base, y.W_LANE_PC + lane, listed(context, p, which))
    mask = load_i64(base, y.W_MASK)
    for lane in range(y.LANES):
        if (mask >> lane) & 1 and (active >> lane) & 1 == 0:
            store_i64(base, y.W_LANE_PC + lane, row + 1)
    choose(base, -1)


@compiled
def step(context: int, warp: int, row: int) -> None:
    """Execute one row for the lanes that run, and say where each goes on."""
    base = warp_base(context, warp)
    p = program_row(context, row)
    mask = load_i64(base, y.W_MASK)
    active = guarded(context, warp, p, mask)
    if load_i64(context, y.C_SANITIZE) != 0:
        check_registers(context, warp, row, active)
        marks = load_i64(p, y.P_MARKS)
        if marks > y.MARK_LOADS and load_i64(base, y.W_UNREAD) != 0:
            if marks & y.MARK_CARRIES != 0:
                carry_loads(context, warp, row, active)
            elif marks & y.MARK_USES != 0:
                use_loads(context, warp, row, active)
        # Lanes that a guard keeps out do not execute it: no lane at all is no divergence.
        aligned = marks & y.MARK_ALIGNED != 0
        if aligned and active != 0 and active != load_i64(base, y.W_LIVE):
            report(context, y.DIVERGED, row, -1, warp, active, load_i64(base, y.W_LIVE), 0)
        if aligned or load_i64(p, y.P_CLASS) == y.X_BARRIER:
            met(context, warp, active)
    kind = load_i64(p, y.P_CLASS)
    if kind == y.X_BRANCH:
        if load_i64(base, y.W_TAKEN) != 0:
            end_taken(context, warp)
        if load_i64(p, y.P_OP) == 0:
            branch(base, active, load_i64(p, y.P_TARGET), row + 1)
        elif active == 0:
            go_on(base, row + 1)
        else:
            part(base)
            indexed_branch(context, warp, p, row, active)
        return
    if kind == y.X_EXIT:
        if active == 0:
            go_on(base, row + 1)
        else:
            end_lanes(context, warp, active)
            threads_left(context, warp)
            if load_i64(base, y.W_STATE) == y.ENDED:
                end_of_warp(context, warp)
        return
    if active == 0:
        go_on(base, row + 1)
        return
    if kind == y.X_TRAP:
        fault(context, row, y.FAULT_TRAP, active, 0)
        return
    again = execute(context, warp, row, active)
    blocked = load_i64(base, y.W_BLOCKED) & mask
    if blocked != 0 or again == y.AGAIN:
        stay = row if again == y.AGAIN else row + 1
        if again == y.AGAIN and blocked == 0:  # the last lanes of a .sync came: all are free
            after_block(base, mask, active, row, row + 1)
        else:
            after_block(base, mask, blocked, stay, row + 1)
    else:
        go_on(base, row + 1)


@compiled
def run_warp(context: int, warp: int, limit: int) -> int:
    """Run a warp until it waits, asks in vain, ends, or `limit` instructions are done; how many."""
    base = warp_base(context, warp)
    counts = load_i64(context, y.C_COUNT)
    drawn = load_i64(context, y.C_MODE) == y.DRAWN
    done = 0
    while done < limit and load_i64(base, y.W_STATE) == y.RUNNING:
        if drawn:
            land_some(context)
        row = load_i64(base, y.W_PC)
        store_i64(counts, row, load_i64(counts, row) + 1)
        step(context, warp, row)
        done += 1
        if load_i64(context, y.C_FAULT_KIND) != 0:
            return done
        if load_i64(base, y.W_YIELD) != 0:
            return done
    before = load_i64(base, y.W_DONE)
    store_i64(base, y.W_DONE, before + done)
    if (before + done) // y.LONG != before // y.LONG:
        take_turns(base)
    return done


@compiled
def over(context: int, warp: int, lane: int) -> bool:
    """Whether what a blocked lane waits for has happened."""
    base = warp_base(context, warp)
    wait = load_i64(base, y.W_WAIT + lane)
    until = load_i64(base, y.W_WAIT_FOR + lane)
    what = wait & 0xFFFFFFFF
    kind = wait >> 32
    if kind == y.WAIT_MBARRIER:
        return mbarrier_over(context, what, until)
    if kind == y.WAIT_BARRIER:
        return barrier_over(context, what, until)
    if kind == y.WAIT_CLUSTER:
        return cluster_over(context, until)
    if kind == y.WAIT_GRID:
        return grid_over(context)
    if kind == y.WAIT_WGMMA:
        return wgmma_over(context, what, until)
    # WAIT_WARP: the last lanes to come free the others, unless the missing ones have exited.
    members = until & load_i64(base, y.W_LIVE)
    if members & ~load_i64(base, y.W_BLOCKED) != 0:
        return False
    for other in range(y.LANES):
        if (members >> other) & 1 and load_i64(base, y.W_WAIT + other) != wait:
            return False
    return True


@compiled
def wake(context: int, warp: int) -> None:
    """Lanes of a warp whose waits are over can run."""
    base = warp_base(context, warp)
    blocked = load_i64(base, y.W_BLOCKED)
    free = 0
    for lane in range(y.LANES):
        if (blocked >> lane) & 1 and over(context, warp, lane):
            free |= 1 << lane
    if free != 0:
        unblock(base, free)


@compiled
def can_run(context: int, warp: int) -> bool:
    """Whether a warp has lanes that can run, and did not ask in vain since something happened."""
    base = warp_base(context, warp)
    if load_i64(base, y.W_STATE) == y.ENDED:
        return False
    if load_i64(base, y.W_BLOCKED) != 0:
        wake(context, warp)
    if load_i64(base, y.W_STATE) != y.RUNNING:
        return False
    if load_i64(base, y.W_YIELD) != 0:
        if load_i64(base, y.W_ASKED) == load_i64(context, y.C_PROGRESS):
            return False
        store_i64(base, y.W_YIELD, 0)
    return True


@compiled
def pick_warp(context: int) -> int:
    """The warp to run next, -1 for none."""
    warps = load_i64(context, y.C_WARPS_ALL)
    mode = load_i64(context, y.C_MODE)
    start = 0
    if mode == y.EARLIEST:
        start = load_i64(context, y.C_CURRENT) + 1
    elif mode == y.DRAWN:
        start = next_random(context) % warps
    for i in range(warps):
        warp = start + i
        while warp >= warps:
            warp -= warps
        if can_run(context, warp):
            return warp
    return -1


@compiled
def deny(context: int) -> bool:
    """Answer "no" to every mbarrier.try_wait that waits; whether there was one. It may do so after
    some time, and code may do something else then."""
    found = False
    for warp in range(load_i64(context, y.C_WARPS_ALL)):
        base = warp_base(context, warp)
        blocked = load_i64(base, y.W_BLOCKED)
        denied = 0
        for lane in range(y.LANES):
            if (blocked >> lane) & 1 and load_i64(base, y.W_WAIT + lane) >> 32 == y.WAIT_MBARRIER:
                denied |= 1 << lane
        if denied != 0:
            store_i64(base, y.W_DENIED, load_i64(base, y.W_DENIED) | denied)
            unblock(base, denied)
            found = True
    return found


@compiled
def ask_again(context: int) -> None:
    """Warps that asked in vain may ask once more: another cluster may have answered. When nobody
    got anywhere for long (C_TURN), other lanes of a warp go first: these may wait for them."""
    turn = load_i64(context, y.C_TURN) != 0
    for warp in range(load_i64(context, y.C_WARPS_ALL)):
        base = warp_base(context, warp)
        if turn and load_i64(base, y.W_STATE) == y.RUNNING:
            take_turns(base)
        store_i64(base, y.W_YIELD, 0)
    store_i64(context, y.C_TURN, 0)


@compiled
def run(context: int, budget: int) -> int:
    """Run the cluster in `context` for about `budget` instructions; an R_ code."""
    left = budget
    mode = load_i64(context, y.C_MODE)
    ask_again(context)
    while left > 0:
        warp = pick_warp(context)
        if warp < 0:
            if load_i64(context, y.C_ENDED) == load_i64(context, y.C_WARPS_ALL):
                return y.R_DONE
            if land_needed(context):
                continue
            if load_i64(context, y.C_STALLS) != load_i64(context, y.C_PROGRESS):
                store_i64(context, y.C_STALLS, load_i64(context, y.C_PROGRESS))
                if deny(context):
                    continue
            return y.R_YIELD
        store_i64(context, y.C_CURRENT, warp)
        limit = left
        if mode == y.EARLIEST:
            limit = 1
        elif mode == y.DRAWN:
            limit = min(limit, 1 + next_random(context) % 24)
        done = run_warp(context, warp, limit)
        store_i64(context, y.C_EXECUTED, load_i64(context, y.C_EXECUTED) + done)
        if load_i64(context, y.C_FAULT_KIND) != 0:
            return y.R_FAULT
        left -= done
    return y.R_BUDGET
