"""Asynchronous operations of a wave: issue, landing, and retirement by waits.

Landing is when an operation's effect happens (registers or LDS get their values); retirement is
when a wait covers it. The mode decides when things land - "latest" not before retirement,
"earliest" at issue, "random" somewhere between - and the sanitizer only believes in retirement.
vmcnt operations and DS instructions land in order, each in their queue; scalar loads land in any
order, which no one can observe. Poison fills what is in flight.
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.atomics import atomic_value
from mlagen.emulator.gfx950.races import complete_operation
from mlagen.emulator.gfx950.spans import (
    copy_b32,
    copy_b128,
    fill_range,
    gather_b64,
    gather_b128,
    transpose_b8,
    transpose_b16,
)
from mlagen.emulator.gfx950.state import (
    next_random,
    queue_slot,
    register_slot,
    scalar_base,
    vector_row,
    wave_base,
)
from mlagen.emulator.gfx950.transposing import transposed, transposes
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    int64,
    load_any_u32,
    load_i64,
    load_u8,
    load_u32,
    store_any_u32,
    store_i64,
    store_u8,
    store_u32,
    uint8,
    uint32,
)


@compiled
def open_entry(
    context: int, wave: int, queue: int, kind: int, row: int, register: int, dwords: int
) -> int:
    """Append an entry; returns its slot.

    A counter that is full (15 of lgkmcnt) is not taken for a wait: what may be in flight is bounded
    only by `s_waitcnt`, and by what a queue here can hold.
    `register`: unified number of the destination, -1 for none. Destinations are marked pending.
    """
    control = wave_base(context, wave)
    while load_i64(control, y.W_TAIL + queue) - load_i64(control, y.W_HEAD + queue) >= y.IN_FLIGHT:
        retire(context, wave, queue)
    sequence = load_i64(control, y.W_TAIL + queue)
    store_i64(control, y.W_TAIL + queue, sequence + 1)
    slot = queue_slot(wave, queue, sequence)
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    store_i64(entry, y.E_KIND, kind)
    store_i64(entry, y.E_ROW, row)
    store_i64(entry, y.E_REG, register)
    store_i64(entry, y.E_DWORDS, dwords)
    store_i64(entry, y.E_OP, 0)
    store_i64(entry, y.E_BYTES, 4 * dwords)
    store_i64(entry, y.E_VARIANT, 0)
    store_i64(entry, y.E_WHOLE, 0)
    if register >= 0:
        pending = load_i64(context, y.C_PENDING)
        until = load_i64(context, y.C_UNTIL)
        wuntil = load_i64(context, y.C_WUNTIL)
        for i in range(dwords):
            index = register_slot(wave, register + i)
            store_i64(pending, index, (queue << 40) + sequence + 1)
            store_i64(until, index, y.HUGE)
            store_i64(wuntil, index, y.HUGE)
    return slot


@compiled
def poison_registers(context: int, wave: int, register: int, dwords: int, lanes: int) -> None:
    """Fill vector registers that a load is on its way to."""
    for i in range(dwords):
        row = vector_row(context, wave, register + i)
        if lanes == -1:
            fill_range(row, 4, y.POISON)
            continue
        for lane in range(64):
            if (lanes >> lane) & 1:
                store_u32(row, lane, uint32(y.POISON))


@compiled
def owns(context: int, wave: int, queue: int, sequence: int, register: int) -> bool:
    """Whether the entry is still the newest load on its way to the register."""
    pending = load_i64(context, y.C_PENDING)
    return load_i64(pending, register_slot(wave, register)) == (queue << 40) + sequence + 1


@compiled
def owns_all(
    context: int, wave: int, queue: int, sequence: int, register: int, dwords: int
) -> bool:
    owned = 0
    for i in range(dwords):
        owned += 1 if owns(context, wave, queue, sequence, register + i) else 0
    return owned == dwords


@compiled
def land_whole(
    context: int, wave: int, queue: int, sequence: int, slot: int, base: int, shift: int
) -> bool:
    """A whole wave's load from LDS or memory at `base` to registers; False when not done here."""
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    dwords = load_i64(entry, y.E_DWORDS)
    register = load_i64(entry, y.E_REG)
    if load_i64(entry, y.E_WHOLE) == 0:
        return False
    if not owns_all(context, wave, queue, sequence, register, dwords):
        return False
    out = vector_row(context, wave, register)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    variant = load_i64(entry, y.E_VARIANT) if queue == y.Q_LDS else o.D_READ
    if variant == o.D_READ_TR4:
        return False
    if variant == o.D_READ_TR8:
        transpose_b8(out, base, addresses, shift)
    elif variant == o.D_READ_TR16:
        transpose_b16(out, base, addresses, shift)
    elif dwords == 4:
        gather_b128(out, base, addresses, shift)
    elif dwords == 2:
        gather_b64(out, base, addresses, shift)
    else:
        copy_b32(out, base, addresses, shift)
    return True


@compiled
def read_bytes(address: int, size: int) -> int:
    """`size` (1, 2, 4) bytes at an address, zero-extended."""
    if size == 4:
        return int64(load_any_u32(address, 0))
    value = int64(load_u8(address, 0))
    if size == 2:
        value |= int64(load_u8(address, 1)) << 8
    return value


@compiled
def write_bytes(address: int, size: int, value: int) -> None:
    if size == 4:
        store_any_u32(address, 0, uint32(value))
    else:
        store_u8(address, 0, uint8(value))
        if size == 2:
            store_u8(address, 1, uint8(value >> 8))


@compiled
def extend(value: int, size: int, signed: int) -> int:
    if signed == 0 or size == 4:
        return value
    sign = 1 << (8 * size - 1)
    return (value ^ sign) - sign


@compiled
def land_atomic(context: int, wave: int, sequence: int, slot: int) -> None:
    """The lanes of an atomic change memory one after the other; old values may go to a register."""
    base = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    lanes = load_i64(base, y.E_EXEC)
    register = load_i64(base, y.E_REG)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    returned = register >= 0 and owns(context, wave, y.Q_VM, sequence, register)
    for lane in range(64):
        if (lanes >> lane) & 1:
            word = load_i64(addresses, lane)
            old = 0
            if word & 1:
                place = load_i64(context, y.C_ARENA) + (word >> 8)
                old = read_bytes(place, 4)
                own = int64(load_u32(data, lane))
                write_bytes(place, 4, atomic_value(load_i64(base, y.E_VARIANT), old, own))
            if returned:
                store_u32(vector_row(context, wave, register), lane, uint32(old))


@compiled
def land_memory(context: int, wave: int, queue: int, sequence: int, slot: int) -> None:
    """A load to registers, a store, an atomic, or a load to LDS touches memory now."""
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    kind = load_i64(entry, y.E_KIND)
    dwords = load_i64(entry, y.E_DWORDS)
    lanes = load_i64(entry, y.E_EXEC)
    size = min(load_i64(entry, y.E_BYTES), 4)
    variant = load_i64(entry, y.E_VARIANT)
    register = load_i64(entry, y.E_REG)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    lds = load_i64(context, y.C_LDS)
    arena = load_i64(context, y.C_ARENA)
    if kind == y.K_LOAD and land_whole(context, wave, queue, sequence, slot, arena, 8):
        return
    if kind == y.K_DMA and load_i64(entry, y.E_WHOLE):
        if dwords == 4:
            copy_b128(lds + variant, arena, addresses, 8)
        else:
            copy_b32(lds + variant, arena, addresses, 8)
        return
    if kind == y.K_ATOMIC:
        land_atomic(context, wave, sequence, slot)
        return
    for i in range(dwords):
        if kind == y.K_LOAD and not owns(context, wave, queue, sequence, register + i):
            continue
        for lane in range(64):
            if (lanes >> lane) & 1 == 0:
                continue
            word = load_i64(addresses, lane)
            place = arena + (word >> 8) + 4 * i
            inside = (word >> i) & 1
            if kind == y.K_STORE:
                if inside:
                    write_bytes(place, size, int64(load_u32(data, i * 64 + lane)))
                continue
            value = read_bytes(place, size) if inside else 0
            if kind == y.K_LOAD:
                row = vector_row(context, wave, register + i)
                store_u32(row, lane, uint32(extend(value, size, variant)))
            else:
                store_u32(lds, (variant >> 2) + lane * dwords + i, uint32(value))


@compiled
def lds_place(context: int, word: int, dword: int, half: int, size: int) -> int:
    """Address of a dword of a lane's DS access; 0 outside the allocation.

    `word`: the lane's byte addresses; from dword `half` on the second of them counts.
    """
    byte = (word & 0xFFFFFFFF) + 4 * dword
    if dword >= half:
        byte = (word >> 32) + 4 * (dword - half)
    if byte < 0 or byte + size > load_i64(context, y.C_LDS_BYTES):
        return 0
    return load_i64(context, y.C_LDS) + byte


@compiled
def land_lds_read(context: int, wave: int, queue: int, sequence: int, slot: int) -> None:
    """A DS read samples LDS and its registers get their values."""
    if land_whole(context, wave, queue, sequence, slot, load_i64(context, y.C_LDS), 0):
        return
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    dwords = load_i64(entry, y.E_DWORDS)
    lanes = load_i64(entry, y.E_EXEC)
    variant = load_i64(entry, y.E_VARIANT)
    register = load_i64(entry, y.E_REG)
    size = min(load_i64(entry, y.E_BYTES), 4)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    half = dwords // 2 if variant == o.D_READ2 else dwords
    for i in range(dwords):
        for lane in range(64):
            value = 0
            if (lanes >> lane) & 1:
                place = lds_place(context, load_i64(addresses, lane), i, half, size)
                if place != 0:
                    value = read_bytes(place, size)
                value = extend(value, size, 1 if variant == o.D_READ_SIGNED else 0)
            store_u32(data, i * 64 + lane, uint32(value))
    if not transposes(variant):
        land_carried(context, wave, queue, sequence, slot)
        return
    for i in range(dwords):
        if owns(context, wave, queue, sequence, register + i):
            row = vector_row(context, wave, register + i)
            for lane in range(64):
                if (lanes >> lane) & 1:
                    store_u32(row, lane, uint32(transposed(data, variant, lane, i)))


@compiled
def land_lds_write(context: int, slot: int) -> None:
    """A DS write reaches LDS."""
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    dwords = load_i64(entry, y.E_DWORDS)
    lanes = load_i64(entry, y.E_EXEC)
    variant = load_i64(entry, y.E_VARIANT)
    size = min(load_i64(entry, y.E_BYTES), 4)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    if load_i64(entry, y.E_WHOLE):
        lds = load_i64(context, y.C_LDS)
        for lane in range(64):
            place = lds + load_i64(addresses, lane)
            for i in range(dwords):
                store_u32(place, i, load_u32(data, i * 64 + lane))
        return
    half = dwords // 2 if variant == o.D_WRITE2 else dwords
    for lane in range(64):
        if (lanes >> lane) & 1:
            for i in range(dwords):
                place = lds_place(context, load_i64(addresses, lane), i, half, size)
                if place != 0:
                    write_bytes(place, size, int64(load_u32(data, i * 64 + lane)))


@compiled
def land_carried(context: int, wave: int, queue: int, sequence: int, slot: int) -> None:
    """Registers get the data that the entry carries: of a DS read, or computed at issue."""
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    lanes = load_i64(entry, y.E_EXEC)
    register = load_i64(entry, y.E_REG)
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    for i in range(load_i64(entry, y.E_DWORDS)):
        if owns(context, wave, queue, sequence, register + i):
            row = vector_row(context, wave, register + i)
            for lane in range(64):
                if (lanes >> lane) & 1:
                    store_u32(row, lane, load_u32(data, i * 64 + lane))


@compiled
def land_scalar(context: int, wave: int, sequence: int, slot: int) -> None:
    """A scalar load's registers get their values (sampled at issue)."""
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    dwords = load_i64(entry, y.E_DWORDS)
    register = load_i64(entry, y.E_REG)
    data = load_i64(context, y.C_QDATA) + slot * (256 * y.QDATA_ROWS)
    scalars = scalar_base(context, wave)
    for i in range(dwords):
        if owns(context, wave, y.Q_SMEM, sequence, register + i):
            store_u32(scalars, register + i - y.VECTOR_ROWS, load_u32(data, i))


@compiled
def land_next(context: int, wave: int, queue: int) -> None:
    """The oldest operation of a queue that has not happened yet happens now."""
    control = wave_base(context, wave)
    sequence = load_i64(control, y.W_LAND + queue)
    store_i64(control, y.W_LAND + queue, sequence + 1)
    slot = queue_slot(wave, queue, sequence)
    kind = load_i64(load_i64(context, y.C_QUEUE), slot * y.E_SIZE + y.E_KIND)
    if kind == y.K_LDS_READ:
        land_lds_read(context, wave, queue, sequence, slot)
    elif kind == y.K_LDS_WRITE:
        land_lds_write(context, slot)
    elif kind == y.K_SMEM:
        land_scalar(context, wave, sequence, slot)
    elif kind == y.K_LDS_PERMUTE:
        land_carried(context, wave, queue, sequence, slot)
    elif kind != y.K_NOTHING:
        land_memory(context, wave, queue, sequence, slot)


@compiled
def retire(context: int, wave: int, queue: int) -> None:
    """A wait covers the oldest operation of a queue."""
    control = wave_base(context, wave)
    sequence = load_i64(control, y.W_HEAD + queue)
    if load_i64(control, y.W_LAND + queue) == sequence:
        land_next(context, wave, queue)
    store_i64(control, y.W_HEAD + queue, sequence + 1)
    slot = queue_slot(wave, queue, sequence)
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    number = load_i64(entry, y.E_OP)
    if number != 0:
        complete_operation(context, wave, number)
    register = load_i64(entry, y.E_REG)
    if register >= 0:
        pending = load_i64(context, y.C_PENDING)
        until = load_i64(context, y.C_UNTIL)
        wuntil = load_i64(context, y.C_WUNTIL)
        defined = load_i64(context, y.C_DEFINED)
        for i in range(load_i64(entry, y.E_DWORDS)):
            index = register_slot(wave, register + i)
            if load_i64(pending, index) == (queue << 40) + sequence + 1:
                store_i64(pending, index, 0)
                store_i64(until, index, 0 if load_i64(defined, index) == -1 else y.HUGE)
                store_i64(wuntil, index, 0)


@compiled
def after_issue(context: int, wave: int, queue: int) -> None:
    """What the mode makes happen right after an operation was issued."""
    if load_i64(context, y.C_MODE) == y.EARLIEST:
        control = wave_base(context, wave)
        while load_i64(control, y.W_LAND + queue) < load_i64(control, y.W_TAIL + queue):
            land_next(context, wave, queue)


@compiled
def land_some(context: int, wave: int) -> None:
    """Random mode, before each instruction: perhaps some operations happen."""
    control = wave_base(context, wave)
    for queue in range(y.QUEUES):
        while (
            load_i64(control, y.W_LAND + queue) < load_i64(control, y.W_TAIL + queue)
            and next_random(context) & 15 == 0
        ):
            land_next(context, wave, queue)


@compiled
def wait_for(context: int, wave: int, vm: int, lgkm: int) -> None:
    """s_waitcnt: retire until at most `vm` and `lgkm` operations are outstanding.

    Scalar loads come back in any order, so only lgkmcnt(0) covers one. DS instructions among
    themselves are in order: at most the newest `lgkm` of them can be outstanding.
    """
    control = wave_base(context, wave)
    # DS reads first: one that should have waited for a load to LDS still samples the poison.
    while load_i64(control, y.W_TAIL + 1) - load_i64(control, y.W_HEAD + 1) > lgkm:
        retire(context, wave, y.Q_LDS)
    while load_i64(control, y.W_TAIL) - load_i64(control, y.W_HEAD) > vm:
        retire(context, wave, y.Q_VM)
    if lgkm == 0:
        while load_i64(control, y.W_TAIL + 2) > load_i64(control, y.W_HEAD + 2):
            retire(context, wave, y.Q_SMEM)
