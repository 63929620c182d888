"""What lanes of a warp exchange: shfl, vote, match, redux, elect, bar.warp.sync."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.memory.gathering import meet_at_barrier, together
from mlagen.emulator.ptx.memory.items import register_value
from mlagen.emulator.ptx.state import first_lane, place, program_row, report

_NAN = 0x7FFFFFFF


@compiled
def set_predicate(context: int, warp: int, where: int, lanes: int, holds: int) -> None:
    """Write a predicate for some lanes; nothing for the sink."""
    if where != y.NONE:
        row = place(context, warp, where)
        store_i64(row, 0, load_i64(row, 0) & ~lanes | holds & lanes)


@compiled
def set_words(context: int, warp: int, where: int, lanes: int, value: int) -> None:
    """Give some lanes of a 32-bit register one value."""
    if where != y.NONE:
        row = place(context, warp, where)
        for lane in range(y.LANES):
            if (lanes >> lane) & 1:
                store_u32(row, lane, uint32(value))


@spliced
def source_lane(op: int, lane: int, by: int, clamp: int) -> int:
    """The lane that shfl reads for `lane`, in the low byte; bit 8: it is within the segment."""
    segment = (clamp >> 8) & 31
    lowest = lane & segment
    limit = lowest | (clamp & 31 & ~segment)
    j = lowest | (by & ~segment)
    if op == z.SHFL_BFLY:
        j = lane ^ by
    elif op == z.SHFL_DOWN:
        j = lane + by
    elif op == z.SHFL_UP:
        j = lane - by
    within = j >= limit if op == z.SHFL_UP else j <= limit
    return j & 31 | 256 if within else lane


@compiled
def shuffle(context: int, warp: int, row: int, lanes: int) -> None:
    """shfl: each lane gets another one's value."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    a = place(context, warp, load_i64(p, y.P_A))
    b = place(context, warp, load_i64(p, y.P_B))
    c = place(context, warp, load_i64(p, y.P_C))
    temp = load_i64(context, y.C_TEMP)
    within = 0
    vain = 0
    for lane in range(y.LANES):
        found = source_lane(op, lane, int64(load_u32(b, lane)) & 31, int64(load_u32(c, lane)))
        within |= (found >> 8) << lane
        store_i64(temp, lane, found & 31)
    for lane in range(y.LANES):
        j = load_i64(temp, lane)
        taken = (lanes >> j) & 1
        vain |= (1 - taken) << lane
        store_i64(temp, lane, int64(load_u32(a, j if taken != 0 else lane)))
    vain &= lanes
    if vain != 0 and load_i64(context, y.C_SANITIZE) != 0:
        report(context, y.DIVERGED, row, -1, warp, lanes, vain, 1)
    if load_i64(p, y.P_DST) != y.NONE:
        destination = place(context, warp, load_i64(p, y.P_DST))
        for lane in range(y.LANES):
            if (lanes >> lane) & 1:
                store_u32(destination, lane, uint32(load_i64(temp, lane)))
    set_predicate(context, warp, load_i64(p, y.P_DST2), lanes, within)


@compiled
def vote(context: int, warp: int, p: int, lanes: int) -> None:
    """vote: what lanes have as a predicate."""
    op = load_i64(p, y.P_OP)
    holds = load_i64(place(context, warp, load_i64(p, y.P_A)), 0)
    if load_i64(p, y.P_FLAGS) & z.NEGATED != 0:
        holds = ~holds
    holds &= lanes
    where = load_i64(p, y.P_DST)
    if op == z.VOTE_BALLOT:
        set_words(context, warp, where, lanes, holds)
        return
    answer = holds == lanes
    if op == z.VOTE_ANY:
        answer = holds != 0
    elif op == z.VOTE_UNI:
        answer = holds == lanes or holds == 0
    set_predicate(context, warp, where, lanes, lanes if answer else 0)


@compiled
def match(context: int, warp: int, p: int, lanes: int) -> None:
    """match: which lanes have the same value."""
    a = place(context, warp, load_i64(p, y.P_A))
    bits = load_i64(p, y.P_TYPE)
    temp = load_i64(context, y.C_TEMP)
    where = load_i64(p, y.P_DST)
    same = lanes
    for lane in range(y.LANES):
        if (lanes >> lane) & 1:
            found = 0
            value = register_value(a, lane, bits)
            for other in range(y.LANES):
                if (lanes >> other) & 1 and register_value(a, other, bits) == value:
                    found |= 1 << other
            same &= found
            store_i64(temp, lane, found)
    if load_i64(p, y.P_OP) == z.MATCH_ALL:
        all_same = same == lanes
        set_words(context, warp, where, lanes, lanes if all_same else 0)
        set_predicate(context, warp, load_i64(p, y.P_DST2), lanes, lanes if all_same else 0)
        return
    if where != y.NONE:
        destination = place(context, warp, where)
        for lane in range(y.LANES):
            if (lanes >> lane) & 1:
                store_u32(destination, lane, uint32(load_i64(temp, lane)))


@compiled
def rank_of(word: int, kind: int) -> int:
    """A number that orders 32-bit words as their type does."""
    if kind == z.UNSIGNED_WORD:
        return word
    if kind == z.SIGNED_WORD or word >> 31 == 0:
        return word - ((word >> 31) << 32)
    return ~(word & 0x7FFFFFFF)


@compiled
def reduced(p: int, a: int, lanes: int) -> int:
    """redux: sum, least, greatest or bitwise word of the lanes'."""
    op = load_i64(p, y.P_OP)
    kind = load_i64(p, y.P_TYPE)
    flags = load_i64(p, y.P_FLAGS)
    total = 0
    empty = True
    for lane in range(y.LANES):
        if (lanes >> lane) & 1 == 0:
            continue
        word = int64(load_u32(a, lane))
        if flags & z.MAGNITUDE != 0:
            word &= 0x7FFFFFFF
        if kind == z.FLOAT_WORD and word & 0x7FFFFFFF > 0x7F800000:
            if flags & z.KEEPS_NAN != 0:
                return _NAN
            continue
        if empty:
            total = word
        elif op == z.REDUX_ADD:
            total = (total + word) & 0xFFFFFFFF
        elif op == z.REDUX_AND:
            total &= word
        elif op == z.REDUX_OR:
            total |= word
        elif op == z.REDUX_XOR:
            total ^= word
        else:
            less = rank_of(word, kind) < rank_of(total, kind)
            if less == (op == z.REDUX_MIN):
                total = word
        empty = False
    return _NAN if empty else total


@compiled
def run_collective(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN for lanes that wait for others and then execute the instruction again."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    lanes = mask
    if load_i64(p, y.P_D) != y.NONE:
        members = place(context, warp, load_i64(p, y.P_D))
        if op == z.WARP_BARRIER:
            return meet_at_barrier(context, warp, row, mask, members)
        lanes = together(context, warp, row, mask, members)
        if lanes == 0:
            return y.AGAIN
    if op <= z.SHFL_BFLY:
        shuffle(context, warp, row, lanes)
    elif op <= z.VOTE_BALLOT:
        vote(context, warp, p, lanes)
    elif op <= z.MATCH_ALL:
        match(context, warp, p, lanes)
    elif op == z.ELECT:
        leader = first_lane(lanes)
        set_words(context, warp, load_i64(p, y.P_DST), lanes, leader)
        set_predicate(context, warp, load_i64(p, y.P_DST2), lanes, 1 << leader)
    elif op == z.ACTIVEMASK:
        set_words(context, warp, load_i64(p, y.P_DST), lanes, lanes)
    else:
        word = reduced(p, place(context, warp, load_i64(p, y.P_A)), lanes)
        set_words(context, warp, load_i64(p, y.P_DST), lanes, word)
    return y.NEXT if lanes == mask else y.AGAIN
