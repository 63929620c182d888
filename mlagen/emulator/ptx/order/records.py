"""Records of accesses: who wrote a word last, and who has read it since.

Words of shared memory, of tensor memory and of buffers that a kernel may write to have records.
Words that went through the same have one: C_SHADOW has its number for each word. An access
makes a new record of each one that it meets, once; for all further words with that record it is
known what comes of it. So an access costs what differs among its words. Only what leads to a
finding is looked at word by word.

Records that no word has any more are found when many have been made, and used again.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, own
from mlagen.emulator.ptx.order.meeting import (
    AFTER_READ_WRITE,
    AFTER_WRITE_READ,
    AFTER_WRITE_WRITE,
    GENERAL,
    READ,
    USE,
    lanes_meet,
    meet,
    ordered,
    recent,
)
from mlagen.emulator.ptx.order.pairs import lanes_alone
from mlagen.emulator.ptx.order.record_sizes import (
    ATOMIC_BIT,
    CLOCK_AT,
    CLOCKS,
    COMPONENT_AT,
    COMPONENTS,
    GENERIC,
    K_ACCESS,
    K_CAPACITY,
    K_FREE,
    K_LIMIT,
    K_MARK,
    K_TURN,
    K_USED,
    K_WHO,
    K_WORDS,
    K_WROTE,
    K_WROTE_RECORD,
    LATE_BIT,
    NO_ROOM,
    READERS,
    RECORD,
    RECORD_FIRST,
    RECORD_MARK,
    RECORD_NEXT,
    RECORD_READS,
    RECORD_TURN,
    RECORD_WRITE,
    ROW_AT,
    TABLE_HEAD,
)
from mlagen.emulator.ptx.order.tensors import ISSUED
from mlagen.emulator.ptx.state import report


@compiled
def note_read(context: int, record: int, clocks: int, access: int) -> None:
    """Keep a read: in the place of an earlier one of its component, or of one that it is ordered
    after, or in a new one."""
    count = load_i64(record, RECORD_READS)
    number = (access >> COMPONENT_AT) & COMPONENTS
    for i in range(RECORD_FIRST, RECORD_FIRST + count):
        held = load_i64(record, i)
        if (held >> COMPONENT_AT) & COMPONENTS == number and (held ^ access) & LATE_BIT == 0:
            store_i64(record, i, access | held & 0xF)
            return
    if count == READERS:
        for i in range(RECORD_FIRST, RECORD_FIRST + count):
            held = load_i64(record, i)
            other = (held >> COMPONENT_AT) & COMPONENTS
            if load_i64(clocks, other) >= (held >> CLOCK_AT) & CLOCKS:
                store_i64(record, i, access)
                return
        store_i64(record, RECORD_FIRST, access)
        return
    store_i64(record, RECORD_FIRST + count, access)
    store_i64(record, RECORD_READS, count + 1)


@compiled
def access_record(
    context: int, warp: int, record: int, access: int, address: int, how: int, agent: int
) -> bool:
    """What a word has become whose bytes are accessed: whether that is without a finding."""
    clocks = clocks_of(context, warp)
    row = access >> ROW_AT
    mine = own(context, warp, GENERIC)
    bytes_ = access & 0xF
    clean = True
    if how == USE:
        note_read(context, record, clocks, access)
        return True
    write = load_i64(record, RECORD_WRITE)
    if write == 0:
        if how == READ and agent < GENERAL:  # global memory has what the host put there
            report(context, y.UNDEFINED_SHARED, row, -1, warp, address, 0, y.LETTER)
            clean = False
            store_i64(record, RECORD_WRITE, ATOMIC_BIT)
    elif (
        write & bytes_ != 0
        and access & write & ATOMIC_BIT == 0
        and not ordered(context, clocks, mine, write, agent)
    ):
        pair = AFTER_WRITE_READ if how == READ else AFTER_WRITE_WRITE
        clean = not meet(context, warp, row, address, write, pair, agent)
    near = agent < ISSUED and recent(context, warp, write, mine)
    count = 0 if how == READ else load_i64(record, RECORD_READS)
    for i in range(RECORD_FIRST, RECORD_FIRST + count):
        held = load_i64(record, i)
        near |= agent < ISSUED and recent(context, warp, held, mine)
        if (
            held & bytes_ != 0
            and access & held & ATOMIC_BIT == 0
            and not ordered(context, clocks, mine, held, agent)
            and meet(context, warp, row, address, held, AFTER_READ_WRITE, agent)
        ):
            clean = False
    if near and not lanes_alone(context, warp, row):  # other words may have other lanes
        lanes_meet(context, warp, row, address, bytes_, access & ATOMIC_BIT, how, agent)
        clean = False
    if how == READ:
        note_read(context, record, clocks, access)
        return clean
    store_i64(record, RECORD_WRITE, access)
    store_i64(record, RECORD_READS, 0)
    return clean


@spliced
def record_at(table: int, number: int) -> int:
    """Address of a record. `table`: C_RECORDS."""
    return table + 8 * TABLE_HEAD + number * RECORD


@spliced
def shadow_of(context: int, address: int) -> int:
    """Address of the number of the record of the four bytes that an address in shared memory lies
    in: of 4 bytes, too."""
    room = load_i64(context, y.C_SHARED_ROOM)
    place = (address >> y.RANK_SHIFT) * room + (address & ((1 << y.RANK_SHIFT) - 1))
    return load_i64(context, y.C_SHADOW) + (place & ~3)


@compiled
def begin_access(context: int, warp: int, access: int, how: int, agent: int) -> None:
    """What comes from now on are words of this access. What the one before it made of a record is
    known no more, unless that was the same one."""
    table = load_i64(context, y.C_RECORDS)
    who = warp << 8 | how << 4 | agent
    if load_i64(table, K_ACCESS) != access or load_i64(table, K_WHO) != who:
        store_i64(table, K_ACCESS, access)
        store_i64(table, K_WHO, who)
        store_i64(table, K_TURN, load_i64(table, K_TURN) + 1)


@compiled
def collect(context: int) -> None:
    """Find the records that no word has. Half of all may be in use before the next time."""
    table = load_i64(context, y.C_RECORDS)
    shadow = load_i64(context, y.C_SHADOW)
    mark = load_i64(table, K_MARK) + 1
    store_i64(table, K_MARK, mark)
    store_i64(table, K_TURN, load_i64(table, K_TURN) + 1)
    last = 0
    for i in range(load_i64(table, K_WORDS)):
        number = int64(load_u32(shadow, i))
        if number != last:
            store_i64(record_at(table, number), RECORD_MARK, mark)
            last = number
    free = 0
    live = 1
    number = load_i64(table, K_USED) - 1
    while number > NO_ROOM:
        record = record_at(table, number)
        if load_i64(record, RECORD_MARK) == mark:
            live += 1
        else:
            store_i64(record, RECORD_NEXT, free)
            free = number
        number -= 1
    store_i64(table, K_FREE, free)
    limit = max(load_i64(table, K_LIMIT), 2 * live)
    store_i64(table, K_LIMIT, min(limit, load_i64(table, K_CAPACITY)))


@compiled
def take(context: int) -> int:
    """Number of a record to fill. Every word of shared memory has one, so there are never more than
    words. NO_ROOM where words of global memory have so many that there is none."""
    table = load_i64(context, y.C_RECORDS)
    if load_i64(table, K_FREE) == 0 and load_i64(table, K_USED) == load_i64(table, K_LIMIT):
        collect(context)
    number = load_i64(table, K_FREE)
    if number != 0:
        store_i64(table, K_FREE, load_i64(record_at(table, number), RECORD_NEXT))
        return number
    number = load_i64(table, K_USED)
    if number == load_i64(table, K_CAPACITY):
        return NO_ROOM
    store_i64(table, K_USED, number + 1)
    return number


@compiled
def record_of_one(context: int, read: int) -> int:
    """Number of a record of words that nobody has written and one access has read."""
    made = take(context)
    if made == NO_ROOM:
        return made
    record = record_at(load_i64(context, y.C_RECORDS), made)
    store_i64(record, RECORD_TURN, 0)
    store_i64(record, RECORD_WRITE, 0)
    store_i64(record, RECORD_READS, 1)
    store_i64(record, RECORD_FIRST, read)
    return made


@compiled
def alike(record: int, other: int) -> bool:
    """Whether two records say the same."""
    count = load_i64(record, RECORD_READS)
    if load_i64(other, RECORD_READS) != count:
        return False
    if load_i64(other, RECORD_WRITE) != load_i64(record, RECORD_WRITE):
        return False
    for i in range(RECORD_FIRST, RECORD_FIRST + count):
        if load_i64(other, i) != load_i64(record, i):
            return False
    return True


@compiled
def successor(
    context: int, warp: int, number: int, access: int, address: int, how: int, agent: int
) -> int:
    """The record of a word that had record `number`, after an access to some of its bytes."""
    table = load_i64(context, y.C_RECORDS)
    old = record_at(table, number)
    made = take(context)
    if made == NO_ROOM:
        return made
    turn = load_i64(table, K_TURN) << 4 | access & 0xF
    new = record_at(table, made)
    store_i64(new, RECORD_TURN, 0)
    store_i64(new, RECORD_WRITE, load_i64(old, RECORD_WRITE))
    store_i64(new, RECORD_READS, load_i64(old, RECORD_READS))
    for i in range(RECORD_FIRST, RECORD_FIRST + load_i64(old, RECORD_READS)):
        store_i64(new, i, load_i64(old, i))
    clean = access_record(context, warp, new, access, address, how, agent)
    after = made
    reads = how == READ
    if how == USE:
        reads = True
    if not reads and load_i64(table, K_WROTE) == turn:
        after = load_i64(table, K_WROTE_RECORD)
    elif not reads:
        store_i64(table, K_WROTE, turn)
        store_i64(table, K_WROTE_RECORD, made)
    elif alike(old, new):
        after = number
    if after != made:
        store_i64(new, RECORD_NEXT, load_i64(table, K_FREE))
        store_i64(table, K_FREE, made)
    if clean:
        store_i64(old, RECORD_TURN, turn)
        store_i64(old, RECORD_NEXT, after)
    return after
