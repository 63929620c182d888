"""Results that are NaN or Inf: whose fault, by lane for the vector ALU, by element for matrices."""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.execute import dpp_lane
from mlagen.emulator.gfx950.state import vector_row
from mlagen.emulator.gfx950.trace_values import (
    mark_at,
    note_result,
    note_source,
    place,
    record,
    set_mark,
    source_lane,
    source_mark,
    source_value,
    state_of,
    trace_row,
    value_at,
    writer_at,
)
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64


@compiled
def written_lanes(p: int, lanes: int) -> int:
    """Lanes of a vector ALU result: EXEC, less what DPP masks or has no source for."""
    dpp = load_i64(p, y.P_DPP)
    if dpp == 0 or load_i64(p, y.P_CLASS) != y.X_VALU:
        return lanes
    kept = 0
    for lane in range(64):
        enabled = (dpp >> (10 + (lane >> 4))) & 1 and (dpp >> (14 + ((lane >> 2) & 3))) & 1
        source = dpp_lane(dpp & 0x1FF, lane)
        valid = source >= 0 and (lanes >> source) & 1
        if enabled and (valid or (dpp >> 9) & 1):
            kept |= 1 << lane
    return kept & lanes


@compiled
def note_operands(
    context: int, trace: int, wave: int, p: int, row: int, part: int, lane: int, number: int
) -> None:
    """Fill a new record with the operands that a part of the result was made from."""
    for which in range(3):
        if load_i64(row, part + 3 + 2 * which) == 0:
            continue
        kind = load_i64(p, y.P_KIND + 2 * which)
        name = load_i64(p, y.P_KIND + 2 * which + 1)
        offset = load_i64(row, part + 2 + 2 * which)
        if kind == y.S_CONST:
            name = (name >> (32 * offset)) & 0xFFFFFFFF
        else:
            name += offset
        source = source_lane(trace, p, which, lane) if kind == y.S_VECTOR else lane
        note_source(context, trace, wave, number, which, kind, name, source)


@compiled
def blame(
    context: int, trace: int, wave: int, number: int, p: int, part: int, lane: int, word: int
) -> int:
    """Record number that a non-finite part of a result belongs to; 0 when there is no room.

    `number`: program row; `part`: column of the part in the tracer's row; `word`: its value.
    """
    row = trace_row(trace, number)
    state = state_of(load_i64(row, t.T_RESULT), word)
    worst = t.FINITE
    culprit = -1
    for which in range(3):
        mask = load_i64(row, part + 3 + 2 * which)
        if mask != 0:
            offset = load_i64(row, part + 2 + 2 * which)
            value = source_value(context, trace, wave, p, which, offset, lane) & mask
            found = state_of(load_i64(row, t.T_SOURCE + which), value)
            if found > worst:
                worst = found
                culprit = which
    kind = t.MADE
    key = 0
    if culprit >= 0:
        offset = load_i64(row, part + 2 + 2 * culprit)
        kind = t.MET
        if state == t.NAN and worst == t.INF:
            kind = t.NAN_FROM_INF
        else:
            origin = source_mark(trace, wave, p, culprit, offset, lane) >> t.ORIGIN_SHIFT
            if origin != 0:
                return origin
        if load_i64(p, y.P_KIND + 2 * culprit) == y.S_VECTOR:
            register = load_i64(p, y.P_KIND + 2 * culprit + 1) + offset
            source = source_lane(trace, p, culprit, lane)
            key = writer_at(trace, wave, register, source)
        elif load_i64(p, y.P_KIND + 2 * culprit) == y.S_SCALAR:
            register = load_i64(p, y.P_KIND + 2 * culprit + 1) + offset
            slot = wave * y.SCALAR_SLOTS + register
            key = load_i64(load_i64(trace, t.TC_SCALAR_WRITER), slot)
    register = load_i64(p, y.P_DST) + load_i64(row, part)
    origin = record(trace, kind, number, key)
    if origin < 0:
        origin = -origin
        note_result(trace, origin, wave, lane, register, word, culprit)
        note_operands(context, trace, wave, p, row, part, lane, origin)
    return origin


@compiled
def trace_parts(
    context: int, trace: int, wave: int, number: int, p: int, row: int, lanes: int
) -> None:
    """A float result of the vector ALU."""
    form = load_i64(row, t.T_RESULT)
    lanes = written_lanes(p, lanes)
    for i in range(load_i64(row, t.T_PARTS)):
        part = t.T_PART + i * t.PART_SIZE
        register = load_i64(p, y.P_DST) + load_i64(row, part)
        mask = load_i64(row, part + 1)
        values = vector_row(context, wave, register)
        for lane in range(64):
            if (lanes >> lane) & 1 == 0:
                continue
            word = int64(load_u32(values, lane))
            origin = 0
            if state_of(form, word & mask) != t.FINITE:
                origin = blame(context, trace, wave, number, p, part, lane, word & mask)
            elif mask != 0xFFFFFFFF and state_of(form, word & ~mask) != t.FINITE:
                # The part that this one leaves alone is what the dword's mark tells of.
                index = place(wave, register, lane)
                origin = load_i64(load_i64(trace, t.TC_MARK), index) >> t.ORIGIN_SHIFT
            set_mark(trace, wave, register, lane, (number + 1) | origin << t.ORIGIN_SHIFT, number)


@compiled
def scan_operand(
    context: int, trace: int, wave: int, first: int, count: int, form: int, size: int, out: int
) -> None:
    """Worst state of each row of A (column of B), with the dword that shows it, to TC_SCAN."""
    scan = load_i64(trace, t.TC_SCAN)
    for i in range(size):
        store_i64(scan, out + i, 0)
    for r in range(count):
        for lane in range(64):
            state = state_of(form, value_at(context, trace, wave, first + r, lane))
            i = out + lane % size
            if state > load_i64(scan, i) >> 32:
                store_i64(scan, i, state << 32 | (r * 64 + lane))


@compiled
def blame_element(
    context: int, trace: int, wave: int, number: int, p: int, r: int, lane: int, word: int
) -> int:
    """Record number that a non-finite element of a matrix result belongs to."""
    scan = load_i64(trace, t.TC_SCAN)
    size = 32
    i = 8 * (r // 4) + 4 * (lane // 32) + r % 4
    if load_i64(p, y.P_AUX) == 4:
        size = 16
        i = 4 * (lane // 16) + r
    a = load_i64(scan, i)
    b = load_i64(scan, 32 + lane % size)
    c = load_i64(p, y.P_KIND + 5)
    c_kind = load_i64(p, y.P_KIND + 4)
    worst = t.FINITE
    culprit = -1
    if c_kind == y.S_VECTOR:
        worst = state_of(t.F32, value_at(context, trace, wave, c + r, lane))
    elif c_kind == y.S_CONST:
        worst = state_of(t.F32, c & 0xFFFFFFFF)
    if worst > 0:
        culprit = 2
    if a >> 32 > worst:
        worst = a >> 32
        culprit = 0
    if b >> 32 > worst:
        worst = b >> 32
        culprit = 1
    spot = b if culprit == 1 else a
    register = load_i64(p, y.P_KIND + 1 + 2 * max(culprit, 0)) + ((spot & 0xFFFFFFFF) >> 6)
    source = spot & 63
    if culprit == 2:
        register = c + r
        source = lane
    kind = t.MADE
    key = 0
    if culprit >= 0:
        kind = t.MET
        vector = culprit != 2 or c_kind == y.S_VECTOR
        if worst == t.INF and state_of(t.F32, word) == t.NAN:
            kind = t.NAN_FROM_INF
        elif vector:
            origin = mark_at(trace, wave, register, source) >> t.ORIGIN_SHIFT
            if origin != 0:
                return origin
        if vector:
            key = writer_at(trace, wave, register, source)
    origin = record(trace, kind, number, key)
    if origin < 0:
        origin = -origin
        note_result(trace, origin, wave, lane, load_i64(p, y.P_DST) + r, word, culprit)
        first_a = load_i64(p, y.P_KIND + 1) + ((a & 0xFFFFFFFF) >> 6)
        lane_a = a & 63 if a >> 32 else i
        note_source(context, trace, wave, origin, 0, y.S_VECTOR, first_a, lane_a)
        first_b = load_i64(p, y.P_KIND + 3) + ((b & 0xFFFFFFFF) >> 6)
        lane_b = b & 63 if b >> 32 else lane % size
        note_source(context, trace, wave, origin, 1, y.S_VECTOR, first_b, lane_b)
        name = c + r if c_kind == y.S_VECTOR else c
        note_source(context, trace, wave, origin, 2, c_kind, name, lane)
    return origin


@compiled
def trace_matrix(context: int, trace: int, wave: int, number: int, p: int, row: int) -> None:
    """All elements of a matrix result, whatever EXEC holds."""
    scanned = False
    for r in range(load_i64(p, y.P_AUX)):
        register = load_i64(p, y.P_DST) + r
        values = vector_row(context, wave, register)
        for lane in range(64):
            word = int64(load_u32(values, lane))
            origin = 0
            if state_of(t.F32, word) != t.FINITE:
                if not scanned:
                    scanned = True
                    size = 16 if load_i64(p, y.P_AUX) == 4 else 32
                    for which in range(2):
                        first = load_i64(p, y.P_KIND + 1 + 2 * which)
                        count = load_i64(row, t.T_COUNT + which)
                        form = load_i64(row, t.T_SOURCE + which)
                        scan_operand(context, trace, wave, first, count, form, size, 32 * which)
                origin = blame_element(context, trace, wave, number, p, r, lane, word)
            set_mark(trace, wave, register, lane, (number + 1) | origin << t.ORIGIN_SHIFT, number)
