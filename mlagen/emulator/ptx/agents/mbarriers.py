"""mbarriers: arrivals, bytes of transactions, phases, waits.

The state is kept beside shared memory, a slot an mbarrier. In shared memory lies a word that says
which slot it is, so that what writes over it is found.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.places import operand, shared_host, shared_place
from mlagen.emulator.ptx.agents.vectors import close_phase, mbarrier_vector
from mlagen.emulator.ptx.control import block
from mlagen.emulator.ptx.order.accesses import shared_lanes, span
from mlagen.emulator.ptx.order.blocks import reach_mbarrier, tell_begun
from mlagen.emulator.ptx.order.clocks import (
    GENERIC,
    acquire_from,
    clocks_of,
    mbarrier_component,
    note,
    own,
)
from mlagen.emulator.ptx.order.lane_clocks import release_lanes
from mlagen.emulator.ptx.order.meeting import ATOMIC, WRITE, near_how, packed
from mlagen.emulator.ptx.order.pairs import keep_near, lanes_learn
from mlagen.emulator.ptx.order.record_sizes import ATOMIC_BIT, CLOCK_BITS
from mlagen.emulator.ptx.state import (
    cta_base,
    cta_of,
    fault,
    give_way,
    moved,
    place,
    program_row,
    report,
    warp_base,
)

# P_OP
INIT, INVAL, ARRIVE, EXPECT, COMPLETE, TEST, TRY, PENDING = range(8)
# P_FLAGS
EXPECTS, DROPS, NO_COMPLETE, RELAXED, PARITY, REMOTE = 1, 2, 4, 8, 16, 32


@compiled
def mbarrier_base(context: int, slot: int) -> int:
    """Address of the MB_ words of a slot of the cluster."""
    return load_i64(context, y.C_MBARRIERS) + slot * (8 * a.MB_SIZE)


@compiled
def phase_of(m: int) -> int:
    """The phase that an mbarrier is in, counted over all mbarriers of its slot."""
    return load_i64(m, a.MB_BASE) + load_i64(m, a.MB_PHASE)


@compiled
def misuse(context: int, warp: int, row: int, rule: int, address: int) -> None:
    """Report what an instruction may not do to an mbarrier."""
    report(context, y.MBARRIER_MISUSE, row, -1, warp, rule, address, y.ERROR)


@compiled
def slot_at(context: int, where: int) -> int:
    """The slot of the cluster whose mbarrier is at a place in shared memory; -1 for none."""
    cta = where >> y.RANK_SHIFT
    for number in range(load_i64(cta_base(context, cta), y.T_MBARRIERS)):
        slot = cta * a.MBARRIERS + number
        m = mbarrier_base(context, slot)
        if load_i64(m, a.MB_ADDRESS) == where and load_i64(m, a.MB_VALID) != 0:
            return slot
    return -1


@compiled
def mbarrier_at(context: int, warp: int, row: int, address: int) -> int:
    """The slot of the mbarrier at an address; -1 after a fault."""
    where = shared_place(context, row, address, 8, 8)
    if where < 0:
        return -1
    word = load_i64(shared_host(context, where), 0)
    slot = word ^ a.MB_MAGIC
    cta = where >> y.RANK_SHIFT
    first = cta * a.MBARRIERS
    if slot >= first and slot < first + load_i64(cta_base(context, cta), y.T_MBARRIERS):
        m = mbarrier_base(context, slot)
        if load_i64(m, a.MB_ADDRESS) == where and load_i64(m, a.MB_VALID) != 0:
            return slot
    slot = slot_at(context, where)
    if slot >= 0:
        misuse(context, warp, row, a.OVERWRITTEN, where)
        return slot
    misuse(context, warp, row, a.NOT_INITIALISED, where)
    fault(context, row, y.FAULT_MBARRIER, where, a.NOT_INITIALISED)
    return -1


@compiled
def settle(context: int, slot: int) -> None:
    """End the phase if nothing is missing from it."""
    m = mbarrier_base(context, slot)
    if load_i64(m, a.MB_PENDING) != 0 or load_i64(m, a.MB_TX) != 0:
        return
    store_i64(m, a.MB_PHASE, load_i64(m, a.MB_PHASE) + 1)
    store_i64(m, a.MB_PENDING, load_i64(m, a.MB_EXPECTED))
    if load_i64(context, y.C_SANITIZE) != 0:
        filling = mbarrier_vector(context, slot, 0)
        cta = slot // a.MBARRIERS
        number = mbarrier_component(context, cta, slot - cta * a.MBARRIERS)
        note(filling, number, phase_of(m))
        close_phase(context, filling)
    moved(context)


@compiled
def arrive(context: int, warp: int, row: int, slot: int, count: int) -> None:
    """`count` arrivals."""
    m = mbarrier_base(context, slot)
    left = load_i64(m, a.MB_PENDING) - count
    if left < 0:
        misuse(context, warp, row, a.TOO_MANY_ARRIVALS, load_i64(m, a.MB_ADDRESS))
        left = 0
    store_i64(m, a.MB_PENDING, left)
    settle(context, slot)


@compiled
def expect_bytes(context: int, warp: int, row: int, slot: int, count: int) -> None:
    """`count` bytes more are missing; fewer where it is negative. Does not end the phase."""
    m = mbarrier_base(context, slot)
    missing = load_i64(m, a.MB_TX) + count
    if missing > a.MOST_BYTES or missing < -a.MOST_BYTES:
        misuse(context, warp, row, a.TOO_MANY_BYTES, load_i64(m, a.MB_ADDRESS))
        return
    store_i64(m, a.MB_TX, missing)


@compiled
def complete_bytes(context: int, warp: int, row: int, slot: int, count: int) -> None:
    """`count` bytes are there."""
    expect_bytes(context, warp, row, slot, -count)
    settle(context, slot)


@compiled
def free_slot(context: int, row: int, where: int) -> int:
    """The slot for a new mbarrier: its address's own, a new one, one that was invalidated."""
    cta = where >> y.RANK_SHIFT
    used = load_i64(cta_base(context, cta), y.T_MBARRIERS)
    free = -1
    for number in range(used):
        slot = cta * a.MBARRIERS + number
        m = mbarrier_base(context, slot)
        if load_i64(m, a.MB_ADDRESS) == where:
            return slot
        if load_i64(m, a.MB_VALID) == 0:
            free = slot
    if used < a.MBARRIERS:
        store_i64(cta_base(context, cta), y.T_MBARRIERS, used + 1)
        return cta * a.MBARRIERS + used
    if free < 0:
        fault(context, row, y.FAULT_ROOM, where, a.MBARRIERS)
    return free


@compiled
def initialise(context: int, warp: int, row: int, address: int, count: int) -> None:
    """mbarrier.init."""
    where = shared_place(context, row, address, 8, 8)
    if where < 0:
        return
    slot = free_slot(context, row, where)
    if slot < 0:
        return
    if count < 1 or count > a.MOST_ARRIVALS:
        misuse(context, warp, row, a.BAD_COUNT, where)
        fault(context, row, y.FAULT_MBARRIER, where, a.BAD_COUNT)
        return
    m = mbarrier_base(context, slot)
    word = a.MB_MAGIC ^ slot
    host = shared_host(context, where)
    if load_i64(m, a.MB_VALID) != 0 and load_i64(host, 0) == word:
        report(context, y.MBARRIER_MISUSE, row, -1, warp, a.INITIALISED_TWICE, where, y.LETTER)
    store_i64(m, a.MB_BASE, phase_of(m) + 1)
    store_i64(m, a.MB_ADDRESS, where)
    store_i64(m, a.MB_VALID, 1)
    store_i64(m, a.MB_PHASE, 0)
    store_i64(m, a.MB_PENDING, count)
    store_i64(m, a.MB_EXPECTED, count)
    store_i64(m, a.MB_TX, 0)
    store_i64(m, a.MB_WORD, word)
    store_i64(m, a.MB_WANTED, -1)
    store_i64(m, a.MB_ROW, row)
    store_i64(m, a.MB_SHOWN, 0)
    store_i64(m, a.MB_BY, warp)
    store_i64(m, a.MB_CLOCK, load_i64(clocks_of(context, warp), own(context, warp, GENERIC)) + 1)
    store_i64(host, 0, word)
    if load_i64(context, y.C_SANITIZE) != 0:
        first = mbarrier_vector(context, slot, 0)
        for i in range(2 * load_i64(context, y.C_COMPONENTS)):
            store_i64(first, i, 0)


@compiled
def show_inits(context: int, warp: int) -> None:
    """A fence shows agents the mbarriers whose initialisation `warp` knows of."""
    clocks = clocks_of(context, warp)
    for cta in range(load_i64(context, y.C_CTAS_ALL)):
        for number in range(load_i64(cta_base(context, cta), y.T_MBARRIERS)):
            m = mbarrier_base(context, cta * a.MBARRIERS + number)
            by = load_i64(m, a.MB_BY)
            known = load_i64(clocks, own(context, by, GENERIC)) >= load_i64(m, a.MB_CLOCK)
            if by == warp or known:
                store_i64(m, a.MB_SHOWN, 1)


@compiled
def check_shown(context: int, warp: int, row: int, slot: int) -> None:
    """An agent is about to use an mbarrier."""
    m = mbarrier_base(context, slot)
    if load_i64(m, a.MB_SHOWN) == 0:
        at = load_i64(m, a.MB_ADDRESS)
        other = load_i64(m, a.MB_ROW)
        report(context, y.MBARRIER_MISUSE, row, other, warp, a.NOT_SHOWN, at, y.LETTER)


@compiled
def invalidate(context: int, warp: int, row: int, address: int) -> None:
    """mbarrier.inval."""
    slot = mbarrier_at(context, warp, row, address)
    if slot < 0:
        return
    m = mbarrier_base(context, slot)
    store_i64(m, a.MB_VALID, 0)
    store_i64(m, a.MB_BASE, phase_of(m) + 1)
    store_i64(m, a.MB_PHASE, 0)
    store_i64(shared_host(context, load_i64(m, a.MB_ADDRESS)), 0, 0)
    moved(context)


@compiled
def arrival(context: int, warp: int, row: int, slot: int, amount: int) -> int:
    """mbarrier.arrive of a lane, in its forms. The state before it."""
    m = mbarrier_base(context, slot)
    flags = load_i64(program_row(context, row), y.P_FLAGS)
    count = amount
    if flags & EXPECTS != 0:
        expect_bytes(context, warp, row, slot, amount)
        count = 1
    if count < 1 or count > a.MOST_ARRIVALS:
        misuse(context, warp, row, a.BAD_COUNT, load_i64(m, a.MB_ADDRESS))
        return 0
    pending = load_i64(m, a.MB_PENDING)
    state = load_i64(m, a.MB_PHASE) << 20 | pending
    if flags & DROPS != 0:
        store_i64(m, a.MB_EXPECTED, max(load_i64(m, a.MB_EXPECTED) - count, 0))
    if flags & NO_COMPLETE != 0 and count >= pending:
        misuse(context, warp, row, a.NO_COMPLETE, load_i64(m, a.MB_ADDRESS))
    arrive(context, warp, row, slot, count)
    return state


@compiled
def in_reach(context: int, warp: int, row: int, slot: int) -> bool:
    """Whether an instruction may name an mbarrier: of its own CTA, or of one that has not ended."""
    cta = slot // a.MBARRIERS
    if cta == cta_of(context, warp):
        return True
    if load_i64(program_row(context, row), y.P_FLAGS) & REMOTE != 0:
        return True
    misuse(context, warp, row, a.OTHER_CTA, load_i64(mbarrier_base(context, slot), a.MB_ADDRESS))
    return False


@compiled
def note_arrival(context: int, warp: int, row: int, slot: int, lanes: int) -> None:
    """Tell the record of accesses that lanes of `warp` are about to arrive at an mbarrier, or to
    tell it of bytes: what an arrival releases, it comes before."""
    store_i64(warp_base(context, warp), y.W_ACTORS, lanes)
    m = mbarrier_base(context, slot)
    address = load_i64(m, a.MB_ADDRESS)
    mine = own(context, warp, GENERIC)
    clock = load_i64(clocks_of(context, warp), mine) + 1
    access = packed(row, mine, clock, ATOMIC_BIT)
    cta = slot // a.MBARRIERS
    if cta != cta_of(context, warp):
        number = mbarrier_component(context, cta, slot - cta * a.MBARRIERS)
        phase = number << CLOCK_BITS | (phase_of(m) + 1)
        reach_mbarrier(context, warp, address, access, phase)
    span(context, warp, address, 8, access, ATOMIC, 0)


@compiled
def hand_over(context: int, warp: int, row: int, slot: int, lanes: int) -> None:
    """What lanes of a warp tell with an arrival: all that they know, or, of a relaxed one, which
    blocks have begun."""
    vector = mbarrier_vector(context, slot, 0)
    if load_i64(program_row(context, row), y.P_FLAGS) & RELAXED == 0:
        release_lanes(context, warp, lanes, vector)
    else:
        tell_begun(context, clocks_of(context, warp), vector)


@compiled
def change(context: int, warp: int, row: int, mask: int) -> None:
    """What changes mbarriers: all but waits."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    where = load_i64(p, y.P_DST)
    watched = load_i64(context, y.C_SANITIZE) != 0
    noted = -1
    last = -1
    phase = 0
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        address = operand(context, warp, p, 0, lane)
        amount = operand(context, warp, p, 1, lane) & 0xFFFFFFFF
        if op == INIT:
            initialise(context, warp, row, address, amount)
        elif op == INVAL:
            invalidate(context, warp, row, address)
        else:
            slot = mbarrier_at(context, warp, row, address)
            if slot < 0:
                return
            if not in_reach(context, warp, row, slot):
                continue
            if watched and slot != noted:
                note_arrival(context, warp, row, slot, mask)
                if op == ARRIVE:
                    hand_over(context, warp, row, slot, mask)
                noted = slot
            if op == EXPECT:
                expect_bytes(context, warp, row, slot, amount)
            elif op == COMPLETE:
                complete_bytes(context, warp, row, slot, amount)
            else:
                now = phase_of(mbarrier_base(context, slot))
                if slot == last and now != phase:
                    misuse(context, warp, row, a.SPLIT_ARRIVALS, address)
                last = slot
                phase = now
                state = arrival(context, warp, row, slot, amount)
                if where != y.NONE:
                    store_i64(place(context, warp, where), lane, state)
        if load_i64(context, y.C_FAULT_KIND) != 0:
            return


@compiled
def note_accesses(context: int, warp: int, row: int, mask: int, how: int) -> None:
    """Tell the record of accesses about the mbarriers that lanes name."""
    p = program_row(context, row)
    temp = load_i64(context, y.C_TEMP)
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            address = operand(context, warp, p, 0, lane)
            if address >= y.GENERIC_SHARED:
                address -= y.GENERIC_SHARED
            store_i64(temp, lane, address)
    store_i64(warp_base(context, warp), y.W_ACTORS, mask)
    if how == WRITE:
        keep_near(context, warp, row, mask, temp, 8, near_how(how))
    shared_lanes(context, warp, row, mask, temp, 8, how)


@compiled
def phase_asked(context: int, warp: int, row: int, slot: int, word: int) -> int:
    """The phase that a wait asks for, as `phase_of` counts; -1 for one that is over for long."""
    m = mbarrier_base(context, slot)
    phase = load_i64(m, a.MB_PHASE)
    if load_i64(program_row(context, row), y.P_FLAGS) & PARITY != 0:
        return phase_of(m) if (phase ^ word) & 1 == 0 else phase_of(m) - 1
    asked = word >> 20
    if asked != phase and asked != phase - 1:
        misuse(context, warp, row, a.STALE_STATE, load_i64(m, a.MB_ADDRESS))
        return -1 if asked < phase else phase_of(m)
    return load_i64(m, a.MB_BASE) + asked


@compiled
def ask(context: int, warp: int, row: int, lane: int, slot: int) -> bool:
    """Whether the phase that a lane waits for is over; a try_wait where it is not blocks."""
    p = program_row(context, row)
    base = warp_base(context, warp)
    m = mbarrier_base(context, slot)
    asked = phase_asked(context, warp, row, slot, operand(context, warp, p, 1, lane))
    me = (y.WAIT_MBARRIER << 32) | slot
    slept = load_i64(base, y.W_WAIT + lane) == me
    tried = load_i64(base, y.W_TRIED)
    if phase_of(m) > asked:
        store_i64(base, y.W_TRIED, tried & ~(1 << lane))
        if slept:
            store_i64(base, y.W_WAIT + lane, 0)
        return True
    if load_i64(p, y.P_OP) != TRY:
        return False
    if slept and load_i64(base, y.W_WAIT_FOR + lane) < asked:
        misuse(context, warp, row, a.LEFT_BEHIND, load_i64(m, a.MB_ADDRESS))
    denied = load_i64(base, y.W_DENIED)
    if (denied >> lane) & 1:
        store_i64(base, y.W_DENIED, denied & ~(1 << lane))
        store_i64(base, y.W_WAIT + lane, 0)
        return False
    if (tried >> lane) & 1 == 0 and load_i64(context, y.C_MODE) != y.EARLIEST:
        store_i64(base, y.W_TRIED, tried | 1 << lane)  # it may answer no at any time
        return False
    store_i64(base, y.W_TRIED, tried & ~(1 << lane))
    store_i64(m, a.MB_WANTED, asked)
    block(context, warp, 1 << lane, y.WAIT_MBARRIER, slot, asked)
    return False


@compiled
def wait(context: int, warp: int, row: int, mask: int) -> int:
    """mbarrier.test_wait and try_wait."""
    p = program_row(context, row)
    base = warp_base(context, warp)
    true = 0
    acquired = -1
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        slot = mbarrier_at(context, warp, row, operand(context, warp, p, 0, lane))
        if slot < 0:
            return y.NEXT
        if not in_reach(context, warp, row, slot):
            at = load_i64(mbarrier_base(context, slot), a.MB_ADDRESS)
            fault(context, row, y.FAULT_MBARRIER, at, a.OTHER_CTA)
            return y.NEXT
        if not ask(context, warp, row, lane, slot):
            continue
        true |= 1 << lane
        if load_i64(context, y.C_SANITIZE) != 0 and slot != acquired:
            acquired = slot
            vector = mbarrier_vector(context, slot, 1)
            if load_i64(p, y.P_FLAGS) & RELAXED == 0:
                acquire_from(context, warp, vector)
                lanes_learn(context, warp)
            else:
                tell_begun(context, vector, clocks_of(context, warp))
    blocked = load_i64(base, y.W_BLOCKED) & mask
    answered = mask & ~blocked
    where = load_i64(p, y.P_DST)
    if where != y.NONE:
        row_at = place(context, warp, where)
        store_i64(row_at, 0, load_i64(row_at, 0) & ~answered | true)
    if answered & ~true & ~load_i64(base, y.W_TRIED) != 0:
        give_way(context, warp)
    return y.AGAIN if blocked != 0 else y.NEXT


@compiled
def pending_counts(context: int, warp: int, row: int, mask: int) -> None:
    """mbarrier.pending_count."""
    p = program_row(context, row)
    where = place(context, warp, load_i64(p, y.P_DST))
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            state = operand(context, warp, p, 0, lane)
            store_u32(where, lane, uint32(state & a.MOST_ARRIVALS))


@compiled
def run_mbarrier(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait and then execute the instruction again."""
    op = load_i64(program_row(context, row), y.P_OP)
    if op == PENDING:
        pending_counts(context, warp, row, mask)
        return y.NEXT
    if op == TEST or op == TRY:  # noqa: SIM109 -- compiled code has no "in"
        answer = wait(context, warp, row, mask)
    else:
        change(context, warp, row, mask)
        answer = y.NEXT
    waits = op >= TEST
    if not waits and op > INVAL:
        return answer
    if load_i64(context, y.C_SANITIZE) != 0 and load_i64(context, y.C_FAULT_KIND) == 0:
        note_accesses(context, warp, row, mask, ATOMIC if waits else WRITE)
    return answer


@compiled
def mbarrier_over(context: int, slot: int, phase: int) -> bool:
    """Whether an mbarrier has completed phase `phase`, counted over all of its slot."""
    return phase_of(mbarrier_base(context, slot)) > phase
