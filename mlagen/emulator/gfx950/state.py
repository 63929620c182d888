"""Access to the state of a run from compiled code: registers, waves, findings."""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64


@compiled
def vector_row(context: int, wave: int, register: int) -> int:
    """Address of a vector register (or scratch row) of a wave."""
    return load_i64(context, y.C_VECTOR) + (wave * y.ROWS + register) * 256


@compiled
def scalar_base(context: int, wave: int) -> int:
    """Address of a wave's scalars."""
    return load_i64(context, y.C_SCALAR) + wave * (4 * y.SCALAR_SLOTS)


@compiled
def wave_base(context: int, wave: int) -> int:
    """Address of a wave's control slots."""
    return load_i64(context, y.C_WAVE) + wave * (8 * y.W_SIZE)


@compiled
def program_row(context: int, row: int) -> int:
    """Address of a program row."""
    return load_i64(context, y.C_PROGRAM) + row * (8 * y.P_SIZE)


@compiled
def register_slot(wave: int, register: int) -> int:
    """Index of a unified register number in the per-register arrays."""
    return wave * y.REGISTERS + register


@compiled
def queue_slot(wave: int, queue: int, sequence: int) -> int:
    """Index of a queue entry."""
    return (wave * y.QUEUES + queue) * y.QUEUE_SLOTS + (sequence & (y.QUEUE_SLOTS - 1))


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
def repeated(context: int, slot: int) -> bool:
    """Count one more occurrence of a finding that was made before; False when it is new."""
    number = load_i64(load_i64(context, y.C_FIND_INDEX), slot)
    if number == 0:
        return False
    table = load_i64(context, y.C_FIND)
    base = (number - 1) * y.F_SIZE
    store_i64(table, base + y.F_COUNT, load_i64(table, base + y.F_COUNT) + 1)
    return True


@compiled
def report(
    context: int,
    kind: int,
    row: int,
    other: int,
    wave: int,
    a: int,
    b: int,
    c: int,
) -> int:
    """Record a finding, or count it when the same pair of instructions was found before.

    Returns the address of its row, 0 without a new one. The other instruction is taken to be of the
    same wave.
    """
    slot = finding_slot(context, kind, row, other)
    if repeated(context, slot):
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
    store_i64(found, y.F_WAVE, wave)
    store_i64(found, y.F_OTHER_WAVE, wave)
    store_i64(found, y.F_A, a)
    store_i64(found, y.F_B, b)
    store_i64(found, y.F_C, c)
    store_i64(found, y.F_HELD, 0)
    store_i64(found, y.F_COUNT, 1)
    store_i64(found, y.F_WORKGROUP, load_i64(context, y.C_WORKGROUP))
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
