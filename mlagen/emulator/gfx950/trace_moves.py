"""Marks that travel: moves, lane exchanges, LDS and global memory; and everything else's writes."""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.state import queue_slot, vector_row, wave_base
from mlagen.emulator.gfx950.trace_floats import written_lanes
from mlagen.emulator.gfx950.trace_values import (
    mark_at,
    set_address,
    set_mark,
    source_mark,
    source_value,
    value_at,
    writer_at,
)
from mlagen.emulator.gfx950.transposing import element_bits, tile_element, transposes
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64


@compiled
def newest_slot(context: int, wave: int, queue: int) -> int:
    """Queue entry of the memory instruction that was just issued."""
    tail = load_i64(wave_base(context, wave), y.W_TAIL + queue)
    return queue_slot(wave, queue, tail - 1)


@compiled
def newest_addresses(context: int, wave: int, queue: int) -> int:
    """The lanes' addresses of that entry."""
    return load_i64(context, y.C_QADDR) + newest_slot(context, wave, queue) * 512


@compiled
def moved_mark(
    context: int, trace: int, wave: int, number: int, p: int, row: int, lane: int, value: int
) -> int:
    """Mark of a result that may be a copy of an operand, or be made from one that has a record."""
    origin = 0
    copies = load_i64(row, t.T_NATURE) != t.RAW
    for which in range(3):
        if load_i64(p, y.P_KIND + 2 * which) == y.S_CONST:
            continue
        for offset in range(load_i64(row, t.T_COUNT + which)):
            mark = source_mark(trace, wave, p, which, offset, lane)
            if copies and source_value(context, trace, wave, p, which, offset, lane) == value:
                return mark
            if origin == 0:
                origin = mark >> t.ORIGIN_SHIFT
    return (number + 1) | origin << t.ORIGIN_SHIFT


@compiled
def trace_writes(
    context: int, trace: int, wave: int, number: int, p: int, row: int, lanes: int
) -> None:
    """Registers of all other instructions: marked as made here, or as the operand they copy."""
    vector = load_i64(p, y.P_CLASS)
    known = load_i64(trace, t.TC_COUNT) != 0 or load_i64(row, t.T_NATURE) != t.RAW
    alu = vector == y.X_VALU or vector == y.X_PACKED or vector == y.X_WIDE or vector == y.X_CARRY
    alu = alu or load_i64(row, t.T_NATURE) == t.WRITE_LANE
    lanes = written_lanes(p, lanes)
    for i in range(load_i64(p, y.P_WRITES)):
        first = load_i64(p, y.P_WRITE + i * y.WRITE_SIZE)
        count = load_i64(p, y.P_WRITE + i * y.WRITE_SIZE + 1)
        for register in range(first, first + count):
            if register >= y.VECTOR_ROWS:
                slot = wave * y.SCALAR_SLOTS + register - y.VECTOR_ROWS
                store_i64(load_i64(trace, t.TC_SCALAR_MARK), slot, number + 1)
                store_i64(load_i64(trace, t.TC_SCALAR_WRITER), slot, number + 1)
                continue
            values = vector_row(context, wave, register)
            for lane in range(64):
                if (lanes >> lane) & 1:
                    mark = number + 1
                    if known and alu:
                        value = int64(load_u32(values, lane))
                        mark = moved_mark(context, trace, wave, number, p, row, lane, value)
                    set_mark(trace, wave, register, lane, mark, number)


@compiled
def trace_swap(context: int, trace: int, wave: int, number: int, p: int) -> None:
    """Registers or halves of them change places: the mark of the value that is here now."""
    d = load_i64(p, y.P_DST)
    s = load_i64(p, y.P_KIND + 1)
    for side in range(2):
        register = s if side else d
        values = vector_row(context, wave, register)
        for lane in range(64):
            value = int64(load_u32(values, lane))
            if value == value_at(context, trace, wave, register, lane):
                continue
            found = number + 1
            for candidate in range(3):
                other = lane
                if candidate == 1:
                    other = lane ^ 32
                elif candidate == 2:
                    other = lane ^ 16
                if value == value_at(context, trace, wave, d + s - register, other):
                    found = mark_at(trace, wave, d + s - register, other)
                    break
            set_mark(trace, wave, register, lane, found, number)


@compiled
def mark_of_holder(
    context: int, trace: int, wave: int, number: int, register: int, value: int
) -> int:
    """Mark of the first lane of a register that held `value`; one of `number` where none did."""
    for lane in range(64):
        if value == value_at(context, trace, wave, register, lane):
            return mark_at(trace, wave, register, lane)
    return number + 1


@compiled
def trace_read_lane(context: int, trace: int, wave: int, number: int, p: int) -> None:
    """A scalar gets a lane of a vector register: the first active one, or the one named."""
    scalars = load_i64(context, y.C_SCALAR) + wave * (4 * y.SCALAR_SLOTS)
    scalar = load_i64(p, y.P_DST)
    value = int64(load_u32(scalars, scalar))
    mark = mark_of_holder(context, trace, wave, number, load_i64(p, y.P_KIND + 1), value)
    slot = wave * y.SCALAR_SLOTS + scalar
    store_i64(load_i64(trace, t.TC_SCALAR_MARK), slot, mark)
    store_i64(load_i64(trace, t.TC_SCALAR_WRITER), slot, number + 1)


@compiled
def trace_permute(context: int, trace: int, wave: int, number: int, p: int, lanes: int) -> None:
    """Lanes exchange data through the LDS unit: the mark of a lane that held the value."""
    register = load_i64(p, y.P_AUX + 3)
    which = 0 if load_i64(p, y.P_OP) == o.D_SWIZZLE else 1
    source = load_i64(p, y.P_KIND + 2 * which + 1)
    data = load_i64(context, y.C_QDATA) + newest_slot(context, wave, y.Q_LDS) * (256 * y.QDATA_ROWS)
    for lane in range(64):
        if (lanes >> lane) & 1:
            value = int64(load_u32(data, lane))
            mark = mark_of_holder(context, trace, wave, number, source, value)
            set_mark(trace, wave, register, lane, mark, number)


@compiled
def memory_mark(context: int, trace: int, offset: int) -> int:
    """Mark of a dword of global memory: what this workgroup stored there, or its place."""
    if load_i64(load_i64(trace, t.TC_ARENA_STORE), offset >> 2) >> 24 == (
        load_i64(context, y.C_WORKGROUP) + 1
    ):
        return load_i64(load_i64(trace, t.TC_ARENA_MARK), offset >> 2)
    return t.MEMORY | offset


@compiled
def merged(old: int, new: int, size: int) -> int:
    """Mark of a dword that part of was overwritten: a record that is known stays."""
    if size >= 4 or new >> t.ORIGIN_SHIFT:
        return new
    return new | (old >> t.ORIGIN_SHIFT) << t.ORIGIN_SHIFT


@compiled
def trace_load(context: int, trace: int, wave: int, number: int, p: int, lanes: int) -> None:
    """Global memory to registers, with the writer of each lane's address."""
    addresses = newest_addresses(context, wave, y.Q_VM)
    first = load_i64(p, y.P_AUX + 3)
    for lane in range(64):
        if (lanes >> lane) & 1:
            word = load_i64(addresses, lane)
            writer = 0
            if load_i64(p, y.P_KIND) == y.S_VECTOR:
                writer = writer_at(trace, wave, load_i64(p, y.P_KIND + 1), lane)
            for i in range(load_i64(p, y.P_AUX)):
                mark = number + 1
                if (word >> i) & 1:
                    mark = memory_mark(context, trace, (word >> 8) + 4 * i)
                set_mark(trace, wave, first + i, lane, mark, number)
                set_address(trace, wave, first + i, lane, writer)


@compiled
def trace_store(context: int, trace: int, wave: int, number: int, p: int, lanes: int) -> None:
    """Registers to global memory: each dword remembers its mark and the store.

    What an atomic leaves depends on what was there: a record that is known of either stays.
    """
    atomic = load_i64(p, y.P_OP) == o.G_ATOMIC
    addresses = newest_addresses(context, wave, y.Q_VM)
    first = load_i64(p, y.P_AUX + 3)
    marks = load_i64(trace, t.TC_ARENA_MARK)
    stores = load_i64(trace, t.TC_ARENA_STORE)
    group = load_i64(context, y.C_WORKGROUP) + 1
    for lane in range(64):
        if (lanes >> lane) & 1:
            word = load_i64(addresses, lane)
            for i in range(load_i64(p, y.P_AUX)):
                if (word >> i) & 1:
                    dword = ((word >> 8) + 4 * i) >> 2
                    mark = mark_at(trace, wave, first + i, lane)
                    if load_i64(stores, dword) >> 24 == group:
                        size = 0 if atomic else load_i64(p, y.P_AUX + 1)
                        mark = merged(load_i64(marks, dword), mark, size)
                    store_i64(marks, dword, mark)
                    store_i64(stores, dword, group << 24 | (number + 1))
            if atomic and load_i64(p, y.P_DST) >= 0:
                set_mark(trace, wave, load_i64(p, y.P_DST), lane, number + 1, number)


@compiled
def trace_dma(context: int, trace: int, wave: int, number: int, p: int) -> None:
    """Global memory to LDS."""
    slot = newest_slot(context, wave, y.Q_VM)
    addresses = newest_addresses(context, wave, y.Q_VM)
    entry = load_i64(context, y.C_QUEUE) + 8 * slot * y.E_SIZE
    lanes = load_i64(entry, y.E_EXEC)
    dwords = load_i64(p, y.P_AUX)
    first = load_i64(entry, y.E_VARIANT) >> 2
    for lane in range(64):
        if (lanes >> lane) & 1:
            word = load_i64(addresses, lane)
            for i in range(dwords):
                mark = number + 1
                if (word >> i) & 1:
                    mark = memory_mark(context, trace, (word >> 8) + 4 * i)
                store_i64(load_i64(trace, t.TC_LDS_MARK), first + lane * dwords + i, mark)


@compiled
def lds_byte(p: int, word: int, i: int) -> int:
    """LDS address of dword `i` of a lane's access."""
    op = load_i64(p, y.P_OP)
    dwords = load_i64(p, y.P_AUX)
    if (op == o.D_READ2 or op == o.D_WRITE2) and 2 * i >= dwords:
        return (word >> 32) + 4 * (i - dwords // 2)
    return (word & 0xFFFFFFFF) + 4 * i


@compiled
def lds_mark(context: int, trace: int, p: int, word: int, i: int) -> int:
    byte = lds_byte(p, word, i)
    if byte < 0 or byte + 4 > load_i64(context, y.C_LDS_BYTES):
        return 0
    return load_i64(load_i64(trace, t.TC_LDS_MARK), byte >> 2)


@compiled
def trace_lds_write(context: int, trace: int, wave: int, p: int, lanes: int) -> None:
    addresses = newest_addresses(context, wave, y.Q_LDS)
    dwords = load_i64(p, y.P_AUX)
    two = load_i64(p, y.P_OP) == o.D_WRITE2
    for lane in range(64):
        if (lanes >> lane) & 1:
            word = load_i64(addresses, lane)
            for i in range(dwords):
                register = load_i64(p, y.P_KIND + 3) + i
                if two and 2 * i >= dwords:
                    register = load_i64(p, y.P_KIND + 5) + i - dwords // 2
                byte = lds_byte(p, word, i)
                if byte >= 0 and byte + 4 <= load_i64(context, y.C_LDS_BYTES):
                    marks = load_i64(trace, t.TC_LDS_MARK)
                    mark = mark_at(trace, wave, register, lane)
                    size = load_i64(p, y.P_AUX + 1)
                    store_i64(marks, byte >> 2, merged(load_i64(marks, byte >> 2), mark, size))


@compiled
def transposed_mark(context: int, trace: int, p: int, addresses: int, lane: int, dword: int) -> int:
    """Mark of a dword that a transposing read gathers from several lanes: one with a record."""
    bits = element_bits(load_i64(p, y.P_OP))
    found = 0
    for number in range(32 * dword // bits, (32 * dword + 31) // bits + 1):
        place = tile_element(bits, lane, number)
        source, part = place >> 8, (place & 0xFF) * bits // 32
        mark = lds_mark(context, trace, p, load_i64(addresses, source), part)
        if found == 0 or (found >> t.ORIGIN_SHIFT == 0 and mark >> t.ORIGIN_SHIFT):
            found = mark
    return found


@compiled
def trace_lds_read(context: int, trace: int, wave: int, number: int, p: int, lanes: int) -> None:
    """LDS to registers, with the writer of each lane's address; mark 0: never written."""
    addresses = newest_addresses(context, wave, y.Q_LDS)
    op = load_i64(p, y.P_OP)
    first = load_i64(p, y.P_AUX + 3)
    for lane in range(64):
        if (lanes >> lane) & 1:
            writer = writer_at(trace, wave, load_i64(p, y.P_KIND + 1), lane)
            for i in range(load_i64(p, y.P_AUX)):
                if transposes(op):
                    mark = transposed_mark(context, trace, p, addresses, lane, i)
                else:
                    mark = lds_mark(context, trace, p, load_i64(addresses, lane), i)
                set_mark(trace, wave, first + i, lane, mark, number)
                set_address(trace, wave, first + i, lane, writer)
