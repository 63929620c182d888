"""Access to the state of a run from compiled code: places of registers, warps, findings."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y


@spliced
def place(context: int, warp: int, where: int) -> int:
    """Address of an operand's row, from its place in a program row."""
    if where < 0:
        return load_i64(context, y.C_CONSTANTS) + ~where
    registers = load_i64(context, y.C_REGISTERS)
    return registers + warp * load_i64(context, y.C_REGISTER_BYTES) + where


@spliced
def warp_base(context: int, warp: int) -> int:
    """Address of a warp's W_ words."""
    return load_i64(context, y.C_WARPS) + warp * (8 * y.W_SIZE)


@spliced
def cta_of(context: int, warp: int) -> int:
    """Rank of the CTA that a warp belongs to."""
    return load_i64(warp_base(context, warp), y.W_CTA)


@spliced
def cta_base(context: int, cta: int) -> int:
    """Address of a CTA's T_ words."""
    return load_i64(context, y.C_CTAS) + cta * (8 * y.T_SIZE)


@spliced
def program_row(context: int, row: int) -> int:
    """Address of a program row."""
    return load_i64(context, y.C_PROGRAM) + row * (8 * y.P_SIZE)


@spliced
def listed(context: int, p: int, index: int) -> int:
    """Word `index` of a program row's list."""
    return load_i64(load_i64(context, y.C_LIST), load_i64(p, y.P_LIST) + index)


@spliced
def first_lane(mask: int) -> int:
    """The lowest lane of a mask that is not 0."""
    lane = 0
    while (mask >> lane) & 1 == 0:
        lane += 1
    return lane


@compiled
def lanes_of(mask: int) -> int:
    """How many lanes a mask has."""
    count = 0
    while mask != 0:
        mask &= mask - 1
        count += 1
    return count


@compiled
def fault(context: int, row: int, kind: int, a: int, b: int) -> None:
    """Stop the run at this row. The first fault stays."""
    if load_i64(context, y.C_FAULT_KIND) != 0:
        return
    store_i64(context, y.C_FAULT, row)
    store_i64(context, y.C_FAULT_KIND, kind)
    store_i64(context, y.C_FAULT_A, a)
    store_i64(context, y.C_FAULT_B, b)


@compiled
def moved(context: int) -> None:
    """Something happened that another warp may wait for."""
    store_i64(context, y.C_PROGRESS, load_i64(context, y.C_PROGRESS) + 1)


@compiled
def give_way(context: int, warp: int) -> None:
    """A warp asked in vain for what another one may have to do: others run before it asks again."""
    base = warp_base(context, warp)
    store_i64(base, y.W_YIELD, 1)
    store_i64(base, y.W_ASKED, load_i64(context, y.C_PROGRESS))


@compiled
def finding_slot(context: int, kind: int, row: int, other: int) -> int:
    """Slot of the hash table for a kind and a pair of instructions: its own or a free one."""
    index = load_i64(context, y.C_FIND_INDEX)
    table = load_i64(context, y.C_FIND)
    slot = (row * 31 + other * 7919 + kind * 101) & (y.FIND_SLOTS - 1)
    while True:
        number = load_i64(index, slot)
        base = (number - 1) * y.F_SIZE
        if number == 0 or (
            load_i64(table, base + y.F_KIND) == kind
            and load_i64(table, base + y.F_ROW) == row
            and load_i64(table, base + y.F_OTHER) == other
        ):
            return slot
        slot = (slot + 1) & (y.FIND_SLOTS - 1)


@compiled
def report(context: int, kind: int, row: int, other: int, warp: int, a: int, b: int, c: int) -> int:
    """Record a finding, or count it when the same pair of instructions was found before.

    Returns the address of its words, 0 where they stay as they were. `other`: row of the other
    instruction, -1 for none; its warp is taken to be the same until the caller writes F_OTHER_WARP.
    """
    slot = finding_slot(context, kind, row, other)
    number = load_i64(load_i64(context, y.C_FIND_INDEX), slot)
    if number != 0:
        base = load_i64(context, y.C_FIND) + (number - 1) * (8 * y.F_SIZE)
        store_i64(base, y.F_COUNT, load_i64(base, y.F_COUNT) + 1)
        if kind == y.RACE and c > load_i64(base, y.F_C):  # a graver one of the same pair
            store_i64(base, y.F_WARP, warp)
            store_i64(base, y.F_A, a)
            store_i64(base, y.F_B, b)
            store_i64(base, y.F_C, c)
            return base
        return 0
    count = load_i64(context, y.C_FIND_COUNT)
    if count >= y.MAX_FINDINGS:
        store_i64(context, y.C_DROPPED, load_i64(context, y.C_DROPPED) + 1)
        return 0
    store_i64(load_i64(context, y.C_FIND_INDEX), slot, count + 1)
    found = load_i64(context, y.C_FIND) + count * (8 * y.F_SIZE)
    store_i64(found, y.F_KIND, kind)
    store_i64(found, y.F_ROW, row)
    store_i64(found, y.F_OTHER, other)
    store_i64(found, y.F_WARP, warp)
    store_i64(found, y.F_OTHER_WARP, warp)
    store_i64(found, y.F_A, a)
    store_i64(found, y.F_B, b)
    store_i64(found, y.F_C, c)
    store_i64(found, y.F_COUNT, 1)
    store_i64(found, y.F_CLUSTER, load_i64(context, y.C_CLUSTER))
    store_i64(context, y.C_FIND_COUNT, count + 1)
    return found


@compiled
def next_random(context: int) -> int:
    """xorshift64: 31 pseudo-random bits."""
    x = load_i64(context, y.C_RANDOM)
    x ^= x << 13
    x ^= (x >> 7) & 0x01FFFFFFFFFFFFFF
    x ^= x << 17
    store_i64(context, y.C_RANDOM, x)
    return (x >> 16) & 0x7FFFFFFF
