"""Lanes of a warp against each other: shared memory that one writes and another accesses.

Two lanes of a warp are ordered by bar.warp.sync (PTX ISA, "bar.warp.sync": it guarantees memory
ordering among the threads that participate), by a barrier, and by what one releases and the other
acquires. Of the other .sync and .aligned instructions, shfl.sync among them, the ISA says that
lanes wait for each other, and nothing of memory.

Records of accesses tell warps apart, and not their lanes. So the last NEAR accesses of a warp are
kept with the addresses of their lanes, from the last time that all of its lanes were ordered. They
are looked at where a record says that the warp itself has accessed a word since. What lanes release
counts as acquired by whoever acquires anything. An access that is made again, with nothing between
that orders lanes, is kept once.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, own
from mlagen.emulator.ptx.order.record_sizes import (
    GENERIC,
    N_ADDRESSES,
    N_APART,
    N_HIGH,
    N_HOW,
    N_KNOWN,
    N_LANES,
    N_LOW,
    N_ONE,
    N_PARTIAL,
    N_ROW,
    N_SIZE,
    N_TOLD,
    NEAR,
    NEAR_ROOM,
    NEAR_ROWS,
    NEAR_SIZE,
    UNKNOWN,
)
from mlagen.emulator.ptx.order.same import one_value
from mlagen.emulator.ptx.state import program_row, warp_base

# N_HOW: 0 of plain reads, or a sum of these.
WRITES, STRONG = 1, 2


@spliced
def near_base(context: int, warp: int) -> int:
    """Address of what is kept of a warp."""
    return load_i64(context, y.C_NEAR) + warp * (8 * NEAR_ROOM)


@spliced
def near_access(context: int, warp: int, number: int) -> int:
    """Address of the N_ words of a warp's access of this number."""
    first = near_base(context, warp) + 8 * NEAR_ROWS
    return first + (number & (NEAR - 1)) * (8 * NEAR_SIZE)


@spliced
def first_near(base: int) -> int:
    """Number of the first access of a warp that is kept. `base`: of the warp."""
    return max(load_i64(base, y.W_NEAR_FROM), load_i64(base, y.W_NEAR) - NEAR)


@compiled
def again(context: int, warp: int, row: int, lanes: int, addresses: int) -> bool:
    """Whether the last access of a row is made once more, with nothing between that orders lanes:
    it is the last access of the warp then."""
    base = warp_base(context, warp)
    number = load_i64(near_base(context, warp), row & (NEAR_ROWS - 1))
    if number < max(first_near(base), load_i64(base, y.W_NEAR_TOLD)):
        return False
    near = near_access(context, warp, number)
    if load_i64(near, N_ROW) != row or load_i64(near, N_LANES) != lanes:
        return False
    if load_i64(near, N_TOLD) != 0 or load_i64(near, N_PARTIAL) != 0:
        return False
    differ = 0
    for lane in range(y.LANES):
        differ |= load_i64(addresses, lane) ^ load_i64(near, N_ADDRESSES + lane)
    if differ != 0:
        return False
    store_i64(base, y.W_NEAR_LAST, number)
    return True


@compiled
def keep_near(
    context: int, warp: int, row: int, lanes: int, addresses: int, size: int, how: int
) -> None:
    """Lanes access `size` bytes each of shared memory. `addresses`: 32 int64 words; `how`: a sum of
    WRITES and STRONG."""
    if again(context, warp, row, lanes, addresses):
        return
    base = warp_base(context, warp)
    number = load_i64(base, y.W_NEAR)
    store_i64(base, y.W_NEAR, number + 1)
    store_i64(base, y.W_NEAR_LAST, number)
    store_i64(near_base(context, warp), row & (NEAR_ROWS - 1), number)
    near = near_access(context, warp, number)
    store_i64(near, N_ROW, row)
    store_i64(near, N_LANES, lanes)
    store_i64(near, N_HOW, how)
    store_i64(near, N_SIZE, size)
    store_i64(near, N_TOLD, 0)
    store_i64(near, N_PARTIAL, 0)
    store_i64(near, N_APART, UNKNOWN)
    low = load_i64(addresses, 0)
    last = low
    for lane in range(y.LANES):
        address = load_i64(addresses, lane)
        store_i64(near, N_ADDRESSES + lane, address)
        low = min(low, address)
        last = max(last, address)
    store_i64(near, N_LOW, low)
    store_i64(near, N_HIGH, last + size)
    one = how & WRITES != 0 and low == last and one_value(context, warp, row, lanes)
    store_i64(near, N_ONE, 1 if one else 0)


@compiled
def all_ordered(context: int, warp: int) -> None:
    """All that lanes of a warp have accessed lies before what any of them accesses from now on."""
    base = warp_base(context, warp)
    store_i64(base, y.W_NEAR_FROM, load_i64(base, y.W_NEAR))
    store_i64(base, y.W_NEAR_SOME, 0)
    store_i64(base, y.W_ORDERED, load_i64(clocks_of(context, warp), own(context, warp, GENERIC)))


@compiled
def some_ordered(context: int, warp: int, lanes: int) -> None:
    """What some lanes of a warp have accessed, or know of, lies before what these access from now
    on."""
    base = warp_base(context, warp)
    for number in range(first_near(base), load_i64(base, y.W_NEAR)):
        near = near_access(context, warp, number)
        if load_i64(near, N_PARTIAL) == 0:
            store_i64(near, N_PARTIAL, 1)
            for lane in range(y.LANES):
                store_i64(near, N_KNOWN + lane, 1 << lane)
        for lane in range(y.LANES):
            known = load_i64(near, N_KNOWN + lane)
            if known & lanes != 0:
                store_i64(near, N_KNOWN + lane, known | lanes)


@compiled
def lanes_tell(context: int, warp: int, lanes: int) -> None:
    """Lanes of a warp release what they know."""
    base = warp_base(context, warp)
    if load_i64(base, y.W_LIVE) & ~lanes == 0:
        store_i64(base, y.W_NEAR_TOLD, load_i64(base, y.W_NEAR))
        return
    for number in range(first_near(base), load_i64(base, y.W_NEAR)):
        near = near_access(context, warp, number)
        told = load_i64(near, N_LANES) & lanes
        if load_i64(near, N_PARTIAL) != 0:
            for lane in range(y.LANES):
                if load_i64(near, N_KNOWN + lane) & lanes != 0:
                    told |= 1 << lane
        store_i64(near, N_TOLD, load_i64(near, N_TOLD) | told)
        store_i64(base, y.W_NEAR_SOME, 1)


@compiled
def lanes_learn(context: int, warp: int) -> None:
    """A lane of a warp acquires: what any of its lanes has released lies before what comes."""
    base = warp_base(context, warp)
    told = load_i64(base, y.W_NEAR_TOLD)
    store_i64(base, y.W_NEAR_FROM, max(load_i64(base, y.W_NEAR_FROM), told))
    left = 0
    if load_i64(base, y.W_NEAR_SOME) == 0:
        left = load_i64(base, y.W_NEAR) - load_i64(base, y.W_NEAR_FROM)
    else:
        for number in range(first_near(base), load_i64(base, y.W_NEAR)):
            near = near_access(context, warp, number)
            lanes = load_i64(near, N_LANES) & ~load_i64(near, N_TOLD)
            store_i64(near, N_LANES, lanes)
            left |= lanes
    if left == 0:
        all_ordered(context, warp)


@compiled
def touches(near: int, lane: int, low: int, high: int) -> bool:
    """Whether a lane of an access touches bytes from `low` up to `high`."""
    address = load_i64(near, N_ADDRESSES + lane)
    return address < high and low < address + load_i64(near, N_SIZE)


@compiled
def other_lane(near: int, lane: int, low: int, high: int) -> int:
    """A lane that has accessed bytes before, and is not ordered before `lane`; -1 for none."""
    lanes = load_i64(near, N_LANES) & ~(1 << lane)
    for other in range(y.LANES):
        if (lanes >> other) & 1 == 0 or not touches(near, other, low, high):
            continue
        if load_i64(near, N_PARTIAL) == 0:
            return other
        if (load_i64(near, N_KNOWN + other) >> lane) & 1 == 0:
            return other
    return -1


@compiled
def apart(near: int) -> bool:
    """Whether no two lanes of an access touch the same bytes."""
    known = load_i64(near, N_APART)
    if known != UNKNOWN:
        return known != 0
    lanes = load_i64(near, N_LANES)
    size = load_i64(near, N_SIZE)
    alone = 1
    for lane in range(y.LANES):
        address = load_i64(near, N_ADDRESSES + lane)
        for other in range(lane):
            both = (lanes >> lane) & (lanes >> other) & 1
            if both != 0 and abs(address - load_i64(near, N_ADDRESSES + other)) < size:
                alone = 0
    store_i64(near, N_APART, alone)
    return alone != 0


@compiled
def each_its_own(near: int, mine: int) -> bool:
    """Whether each lane of an access touches but bytes that an earlier one gave to it alone."""
    lanes = load_i64(mine, N_LANES)
    if lanes & ~load_i64(near, N_LANES) != 0 or not apart(near):
        return False
    room = load_i64(near, N_SIZE) - load_i64(mine, N_SIZE)
    for lane in range(y.LANES):
        offset = load_i64(mine, N_ADDRESSES + lane) - load_i64(near, N_ADDRESSES + lane)
        if (lanes >> lane) & 1 and (offset < 0 or offset > room):
            return False
    return True


@compiled
def actors_of(context: int, warp: int, row: int) -> int:
    """The lanes that do what row `row` does as one access; 0 where each lane has its own, which is
    kept, or where the lanes of a warp do it together."""
    kind = load_i64(program_row(context, row), y.P_CLASS)
    copies = kind == y.X_COPY or kind == y.X_TENSOR_COPY
    if copies or kind == y.X_TENSOR or kind == y.X_MBARRIER:
        return load_i64(warp_base(context, warp), y.W_ACTORS)
    return 0


@compiled
def conflict(near: int, low: int, high: int, how: int) -> bool:
    """Whether an access, and one from `low` up to `high`, have to be ordered where they meet."""
    held = load_i64(near, N_HOW)
    if (held | how) & WRITES == 0 or held & how & STRONG != 0:
        return False
    return load_i64(near, N_LOW) < high and low < load_i64(near, N_HIGH)


@compiled
def lanes_alone(context: int, warp: int, row: int) -> bool:
    """Whether the lanes of the access that goes on meet no others of their warp, whatever the word.
    Cheap, and False where it cannot tell."""
    base = warp_base(context, warp)
    last = load_i64(base, y.W_NEAR_LAST)
    mine = near_access(context, warp, last)
    if last < 0 or load_i64(mine, N_ROW) != row:
        return False
    low = load_i64(mine, N_LOW)
    high = load_i64(mine, N_HIGH)
    how = load_i64(mine, N_HOW)
    for number in range(first_near(base), load_i64(base, y.W_NEAR)):
        near = near_access(context, warp, number)
        if number != last and conflict(near, low, high, how) and not each_its_own(near, mine):
            return False
    return True


@compiled
def unordered_lanes(
    context: int, warp: int, row: int, low: int, high: int, how: int, actors: int
) -> int:
    """The last access of other lanes of `warp` to bytes of shared memory that is not ordered before
    what lanes do at row `row`: its number << 10 | other lane << 5 | lane; -1 for none. `actors`:
    the lanes; 0: those of the access that was kept last, each at its own address."""
    base = warp_base(context, warp)
    last = load_i64(base, y.W_NEAR_LAST)
    mine = near_access(context, warp, last)
    newest = last >= 0 and load_i64(mine, N_ROW) == row
    if actors == 0 and not newest:
        return -1
    lanes = actors if actors != 0 else load_i64(mine, N_LANES)
    number = load_i64(base, y.W_NEAR) - 1
    first = first_near(base)
    while number >= first:
        near = near_access(context, warp, number)
        if conflict(near, low, high, how) and not (newest and number == last):
            for lane in range(y.LANES):
                if (lanes >> lane) & 1 == 0:
                    continue
                start = low
                end = high
                if actors == 0:
                    address = load_i64(mine, N_ADDRESSES + lane)
                    start = max(low, address)
                    end = min(high, address + load_i64(mine, N_SIZE))
                if start < end:
                    other = other_lane(near, lane, start, end)
                    if other >= 0:
                        return number << 10 | other << 5 | lane
        number -= 1
    return -1
