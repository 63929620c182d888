"""The tracer's access to values and marks, as they were before the instruction that is judged."""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.execute import dpp_lane
from mlagen.emulator.gfx950.scalar import get32
from mlagen.emulator.gfx950.state import register_slot, scalar_base, vector_row
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32


@compiled
def state_of(form: int, word: int) -> int:
    """FINITE, INF or NAN: the worst of the numbers in a dword; bits that are masked out are 0."""
    worst = t.FINITE
    if form == t.F32:
        magnitude = word & 0x7FFFFFFF
        if magnitude >= 0x7F800000:
            worst = t.INF if magnitude == 0x7F800000 else t.NAN
    elif form == t.BF16 or form == t.F16:
        infinity = 0x7F80 if form == t.BF16 else 0x7C00
        for half in range(2):
            magnitude = (word >> (16 * half)) & 0x7FFF
            if magnitude >= infinity:
                worst = max(worst, t.INF if magnitude == infinity else t.NAN)
    elif form == t.E4M3:
        for byte in range(4):
            if (word >> (8 * byte)) & 0x7F == 0x7F:
                worst = t.NAN
    elif form == t.E5M2:
        for byte in range(4):
            magnitude = (word >> (8 * byte)) & 0x7F
            if magnitude >= 0x7C:
                worst = max(worst, t.INF if magnitude == 0x7C else t.NAN)
    return worst


@compiled
def place(wave: int, register: int, lane: int) -> int:
    """Index of one lane of a vector register in the mark and writer arrays."""
    return (wave * y.VECTOR_ROWS + register) * 64 + lane


@compiled
def snapshot(context: int, trace: int, wave: int, p: int) -> None:
    """Keep the vector registers that the instruction is about to write, with what is known of them.

    At most two ranges: the two registers of a swap are the only second one.
    """
    room = 0
    found = 0
    store_i64(trace, t.TC_OLD_ROWS, 0)
    store_i64(trace, t.TC_OLD_ROWS + 1, 0)
    for i in range(load_i64(p, y.P_WRITES)):
        first = load_i64(p, y.P_WRITE + i * y.WRITE_SIZE)
        count = load_i64(p, y.P_WRITE + i * y.WRITE_SIZE + 1)
        if first >= y.VECTOR_ROWS or found == 2 or room + count > t.OLD_ROWS:
            continue
        store_i64(trace, t.TC_OLD_FIRST + found, first)
        store_i64(trace, t.TC_OLD_ROWS + found, count)
        found += 1
        for r in range(count):
            values = vector_row(context, wave, first + r)
            base = place(wave, first + r, 0)
            for lane in range(64):
                k = (room + r) * 64 + lane
                store_u32(load_i64(trace, t.TC_OLD), k, load_u32(values, lane))
                mark = load_i64(load_i64(trace, t.TC_MARK), base + lane)
                store_i64(load_i64(trace, t.TC_OLD_MARK), k, mark)
                writer = load_u32(load_i64(trace, t.TC_WRITER), base + lane)
                store_u32(load_i64(trace, t.TC_OLD_WRITER), k, writer)
                address = load_u32(load_i64(trace, t.TC_ADDRESS), base + lane)
                store_u32(load_i64(trace, t.TC_OLD_ADDRESS), k, address)
        room += count


@compiled
def old_row(trace: int, register: int) -> int:
    """Row of a register in the snapshot, -1 when the instruction does not write it."""
    room = 0
    for i in range(2):
        inside = register - load_i64(trace, t.TC_OLD_FIRST + i)
        count = load_i64(trace, t.TC_OLD_ROWS + i)
        if inside >= 0 and inside < count:
            return room + inside
        room += count
    return -1


@compiled
def value_at(context: int, trace: int, wave: int, register: int, lane: int) -> int:
    row = old_row(trace, register)
    if row >= 0:
        return int64(load_u32(load_i64(trace, t.TC_OLD), row * 64 + lane))
    return int64(load_u32(vector_row(context, wave, register), lane))


@compiled
def mark_at(trace: int, wave: int, register: int, lane: int) -> int:
    row = old_row(trace, register)
    if row >= 0:
        return load_i64(load_i64(trace, t.TC_OLD_MARK), row * 64 + lane)
    return load_i64(load_i64(trace, t.TC_MARK), place(wave, register, lane))


@compiled
def writer_at(trace: int, wave: int, register: int, lane: int) -> int:
    row = old_row(trace, register)
    if row >= 0:
        return int64(load_u32(load_i64(trace, t.TC_OLD_WRITER), row * 64 + lane))
    return int64(load_u32(load_i64(trace, t.TC_WRITER), place(wave, register, lane)))


@compiled
def address_at(trace: int, wave: int, register: int, lane: int) -> int:
    row = old_row(trace, register)
    if row >= 0:
        return int64(load_u32(load_i64(trace, t.TC_OLD_ADDRESS), row * 64 + lane))
    return int64(load_u32(load_i64(trace, t.TC_ADDRESS), place(wave, register, lane)))


@compiled
def set_mark(trace: int, wave: int, register: int, lane: int, mark: int, row: int) -> None:
    """One lane of a register was written by program row `row`."""
    index = place(wave, register, lane)
    store_i64(load_i64(trace, t.TC_MARK), index, mark)
    store_u32(load_i64(trace, t.TC_WRITER), index, uint32(row + 1))
    store_u32(load_i64(trace, t.TC_ADDRESS), index, uint32(0))


@compiled
def set_address(trace: int, wave: int, register: int, lane: int, writer: int) -> None:
    """The lane was loaded through an address that `writer` (row + 1) wrote."""
    store_u32(load_i64(trace, t.TC_ADDRESS), place(wave, register, lane), uint32(writer))


@compiled
def source_lane(trace: int, p: int, which: int, lane: int) -> int:
    """The lane that source `which` is taken from: another one under DPP, -1 for none."""
    dpp = load_i64(p, y.P_DPP)
    if which != 0 or dpp == 0 or load_i64(p, y.P_CLASS) != y.X_VALU:
        return lane
    source = dpp_lane(dpp & 0x1FF, lane)
    if source >= 0 and (load_i64(trace, t.TC_LANES) >> source) & 1:
        return source
    return -1


@compiled
def source_value(
    context: int, trace: int, wave: int, p: int, which: int, offset: int, lane: int
) -> int:
    """The dword that source `which` of a vector instruction gives a lane, before modifiers."""
    kind = load_i64(p, y.P_KIND + 2 * which)
    value = load_i64(p, y.P_KIND + 2 * which + 1)
    if kind == y.S_VECTOR:
        lane = source_lane(trace, p, which, lane)
        return value_at(context, trace, wave, value + offset, lane) if lane >= 0 else 0
    if kind == y.S_SCALAR:
        return get32(scalar_base(context, wave), value + offset)
    return (value >> (32 * offset)) & 0xFFFFFFFF


@compiled
def source_mark(trace: int, wave: int, p: int, which: int, offset: int, lane: int) -> int:
    kind = load_i64(p, y.P_KIND + 2 * which)
    value = load_i64(p, y.P_KIND + 2 * which + 1)
    if kind == y.S_VECTOR:
        lane = source_lane(trace, p, which, lane)
        return mark_at(trace, wave, value + offset, lane) if lane >= 0 else 0
    if kind == y.S_SCALAR:
        slot = wave * y.SCALAR_SLOTS + value + offset
        return load_i64(load_i64(trace, t.TC_SCALAR_MARK), slot)
    return 0


@compiled
def record(trace: int, kind: int, row: int, key: int) -> int:
    """Number of the record of (kind, instruction, key); negated when it is new. 0: no room."""
    table = load_i64(trace, t.TC_RECORDS)
    count = load_i64(trace, t.TC_COUNT)
    for i in range(count):
        base = i * t.R_SIZE
        if (
            load_i64(table, base + t.R_ROW) == row
            and load_i64(table, base + t.R_KIND) == kind
            and load_i64(table, base + t.R_KEY) == key
        ):
            store_i64(table, base + t.R_COUNT, load_i64(table, base + t.R_COUNT) + 1)
            return i + 1
    if count >= t.MAX_RECORDS:
        return 0
    base = count * t.R_SIZE
    for column in range(t.R_SIZE):
        store_i64(table, base + column, 0)
    store_i64(table, base + t.R_KIND, kind)
    store_i64(table, base + t.R_ROW, row)
    store_i64(table, base + t.R_KEY, key)
    store_i64(table, base + t.R_COUNT, 1)
    store_i64(trace, t.TC_COUNT, count + 1)
    return -count - 1


@compiled
def note_result(
    trace: int, number: int, wave: int, lane: int, register: int, result: int, culprit: int
) -> None:
    """Fill a new record with the result, and with which operand is to blame for it."""
    base = load_i64(trace, t.TC_RECORDS) + 8 * (number - 1) * t.R_SIZE
    store_i64(base, t.R_WAVE, wave)
    store_i64(base, t.R_LANE, lane)
    store_i64(base, t.R_REGISTER, register)
    store_i64(base, t.R_RESULT, result)
    store_i64(base, t.R_CULPRIT, culprit)


@compiled
def note_source(
    context: int, trace: int, wave: int, number: int, which: int, kind: int, name: int, lane: int
) -> None:
    """Fill one operand of a new record; `name`: the register, or the constant itself."""
    base = load_i64(trace, t.TC_RECORDS) + 8 * (
        (number - 1) * t.R_SIZE + t.R_SOURCE + which * t.SOURCE_SIZE
    )
    store_i64(base, t.RS_KIND, kind)
    store_i64(base, t.RS_REGISTER, name)
    store_i64(base, t.RS_LANE, lane)
    if kind == y.S_VECTOR and lane >= 0:
        pending = load_i64(load_i64(context, y.C_PENDING), register_slot(wave, name))
        store_i64(base, t.RS_VALUE, value_at(context, trace, wave, name, lane))
        store_i64(base, t.RS_WRITER, writer_at(trace, wave, name, lane))
        store_i64(base, t.RS_MARK, mark_at(trace, wave, name, lane))
        store_i64(base, t.RS_ADDRESS, address_at(trace, wave, name, lane))
        store_i64(base, t.RS_PENDING, 1 if pending != 0 else 0)
    elif kind == y.S_SCALAR:
        slot = wave * y.SCALAR_SLOTS + name
        store_i64(base, t.RS_VALUE, get32(scalar_base(context, wave), name))
        store_i64(base, t.RS_WRITER, load_i64(load_i64(trace, t.TC_SCALAR_WRITER), slot))
        store_i64(base, t.RS_MARK, load_i64(load_i64(trace, t.TC_SCALAR_MARK), slot))
    elif kind == y.S_CONST:
        store_i64(base, t.RS_VALUE, name)


@compiled
def trace_row(trace: int, row: int) -> int:
    return load_i64(trace, t.TC_PROGRAM) + row * (8 * t.T_SIZE)
