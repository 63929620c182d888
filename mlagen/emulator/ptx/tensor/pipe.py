"""What tcgen05.mma, .cp and .commit do when they happen."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import (
    f32_of,
    int64,
    load_f32,
    load_i64,
    load_u8,
    load_u32,
    store_f32,
    store_u32,
    uint32,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.mbarriers import arrive, mbarrier_base
from mlagen.emulator.ptx.agents.mbarriers import misuse as mbarrier_misuse
from mlagen.emulator.ptx.agents.places import copy_bytes
from mlagen.emulator.ptx.agents.vectors import mbarrier_vector
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.elements import (
    chunk_address,
    half_value,
    take_core,
    take_shared,
)
from mlagen.emulator.ptx.matrix.fragments import half_bits
from mlagen.emulator.ptx.matrix.product import multiply_kinds
from mlagen.emulator.ptx.matrix.vectors import decoded
from mlagen.emulator.ptx.order.clocks import note, own
from mlagen.emulator.ptx.order.record_sizes import TENSOR
from mlagen.emulator.ptx.state import cta_base, program_row
from mlagen.emulator.ptx.tensor import shapes as s
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.emulator.ptx.tensor.cells import cell_host, misuse

# P_TYPE of tcgen05.cp: how the 128 lanes get their rows.
EACH, HALVES_02_13, HALVES_01_23, QUARTERS = range(4)


@compiled
def shared_of(context: int, cta: int) -> int:
    """Host address of a CTA's shared memory."""
    return load_i64(context, y.C_SHARED) + cta * load_i64(context, y.C_SHARED_ROOM)


@spliced
def small_value(kind: int, bits: int) -> float:
    """The number of an element of 6 or 4 bits."""
    sign = bits >> (3 if kind == m.E2M1 else 5)
    size = bits & (7 if kind == m.E2M1 else 31)
    stored = 3
    bias = 1
    if kind == m.E3M2:
        stored = 2
        bias = 3
    elif kind == m.E2M1:
        stored = 1
    # As a denormal f32 of the same fraction, scaled by 2 to the difference of the biases.
    scale = f32_of(uint32((254 - bias) << 23))
    number = f32_of(uint32(size << (23 - stored))) * scale
    return -number if sign != 0 else number


@compiled
def take_small(
    temp: int, shared: int, descriptor: int, value: int, size: int, first: int, kind: int
) -> None:
    """`take_shared` of elements of 6 and 4 bits, which is K-major: 16 of them lie together, with
    four or eight bytes behind them that are not used."""
    wide = 4 if kind & 0xFF == m.E2M1 else 6
    for row in range(size >> 16):
        for deep in range(size & 0xFFFF):
            host = shared + chunk_address(descriptor, first + row, deep >> 4, 0)
            bit = (deep & 15) * wide
            both = int64(load_u8(host, bit >> 3)) | int64(load_u8(host, (bit >> 3) + 1)) << 8
            number = small_value(kind & 0xFF, (both >> (bit & 7)) & ((1 << wide) - 1))
            at = row * m.DEPTH + deep
            if value == m.B_VALUE:
                at = deep * m.COLUMNS + row
            store_f32(temp + value, at, -number if (kind >> 9) & 1 != 0 else number)


@compiled
def take_matrix(
    temp: int, shared: int, descriptor: int, value: int, size: int, first: int, form: int
) -> None:
    """An operand from shared memory into the work space; see `elements.take_shared`."""
    if form & 0xFF >= m.E2M3:
        take_small(temp, shared, descriptor, value, size, first, form)
    else:
        take_shared(temp, shared, descriptor, value, size, first, form)


@compiled
def take_cells(temp: int, cells: int, kind: int, negated: int, depth: int) -> None:
    """A of 16 lanes of tensor memory, whose first cell is at `cells`, into the work space."""
    if kind == m.TF32:
        for row in range(m.ROWS):
            for deep in range(depth):
                bits = int64(load_u32(cells + row * t.LANE_BYTES, deep)) & 0xFFFFE000
                at = row * m.DEPTH + deep
                store_u32(temp + m.A_VALUE, at, uint32(bits ^ (negated << 31)))
        return
    narrow = 1 if depth == 32 else 0
    for half in range(2):
        for part in range(depth // 8):
            into = temp + m.A_WORDS + 2 * (m.DEPTH * 8 * half + 8 * part)
            first = 8 * half * t.LANE_BYTES + (8 * part << (1 - narrow))
            take_core(cells, first, t.LANE_BYTES, 0, into, 2 * m.DEPTH, narrow)
    decoded(kind, temp + m.A_WORDS, temp + m.A_VALUE, m.ROWS, depth, m.DEPTH, negated)


@compiled
def take_columns(context: int, op: int, data: int, fold: int, count: int) -> None:
    """B's rows of one fold into the work space. Of a pair, each CTA has half of them."""
    p = program_row(context, load_i64(op, a.O_ROW))
    temp = load_i64(context, y.C_TEMP)
    word = load_i64(data, t.D_WORD)
    kind = load_i64(p, y.P_TYPE)
    b = s.as_wgmma(load_i64(data, t.D_B))
    form = s.kind_b(kind, word) | ((word >> 16) & 1) << 8 | ((word >> 14) & 1) << 9
    share = s.whole_columns(word)
    if load_i64(p, y.P_FLAGS) & t.PAIR != 0:
        share //= 2
    done = 0
    while done < count:
        column = fold * count + done
        rank = load_i64(op, a.O_CTA) + column // share
        first = column % share
        some = min(count - done, share - first)
        size = some << 16 | s.depth_of(kind)
        take_matrix(temp + 4 * done, shared_of(context, rank), b, m.B_VALUE, size, first, form)
        done += some


@compiled
def take_totals(temp: int, cells: int, columns: int, sums: int, scale: int) -> None:
    """D of 16 lanes of tensor memory, divided by 2^`scale`, into the work space."""
    factor = f32_of(uint32((127 - scale) << 23))
    for row in range(m.ROWS):
        source = cells + row * t.LANE_BYTES
        into = temp + m.D_VALUE + 4 * m.COLUMNS * row
        if (sums >> 16) & 0xFF == m.D_F16:
            for column in range(columns):
                bits = int64(load_u32(source, column)) & 0xFFFF
                store_f32(into, column, half_value(bits) * factor)
        elif scale != 0:
            for column in range(columns):
                store_f32(into, column, load_f32(source, column) * factor)
        else:
            copy_bytes(into, source, 4 * columns)


@compiled
def no_totals(temp: int, columns: int) -> None:
    """D is 0."""
    for row in range(m.ROWS):
        for column in range(columns):
            store_u32(temp + m.D_VALUE, row * m.COLUMNS + column, uint32(0))


@compiled
def give_totals(temp: int, cells: int, columns: int, sums: int, masked: int) -> None:
    """The work space's D into 16 lanes, but for those of `masked`. An f16 takes a column, too."""
    for row in range(m.ROWS):
        if (masked >> row) & 1:
            continue
        source = temp + m.D_VALUE + 4 * m.COLUMNS * row
        into = cells + row * t.LANE_BYTES
        if (sums >> 16) & 0xFF == m.D_F16:
            for column in range(columns):
                bits = half_bits(load_f32(source, column))
                store_u32(into, column, uint32(bits))
        else:
            copy_bytes(into, source, 4 * columns)


@compiled
def masked_lanes(data: int, other: int, lane: int) -> int:
    """The 16 bits, from `lane` on, of lanes that are not written. `other`: 1 for the second CTA of
    a pair."""
    return (load_i64(data, t.D_MASK + 2 * other + (lane >> 6)) >> (lane & 63)) & 0xFFFF


@compiled
def multiply_tile(
    context: int, op: int, data: int, cta: int, tile: int, columns: int, same: bool
) -> None:
    """A tile of D of one CTA; the work space has B. `same`: it had it at the call before."""
    p = program_row(context, load_i64(op, a.O_ROW))
    flags = load_i64(p, y.P_FLAGS)
    kind = load_i64(p, y.P_TYPE)
    word = load_i64(data, t.D_WORD)
    temp = load_i64(context, y.C_TEMP)
    sums = s.sums_of(kind, word)
    depth = s.depth_of(kind)
    kind_a = s.kind_a(kind, word)
    lane = s.tile_lane(word, flags, tile)
    cells = cell_host(context, cta, load_i64(data, t.D_TO) + (lane << 16))
    if load_i64(data, t.D_ADDS) != 0:
        take_totals(temp, cells, columns, sums, load_i64(data, t.D_SCALE))
    else:
        no_totals(temp, columns)
    if flags & t.IN_TENSOR != 0:
        first = cell_host(context, cta, load_i64(data, t.D_A) + (lane << 16))
        take_cells(temp, first, kind_a, (word >> 13) & 1, depth)
    else:
        form = kind_a | ((word >> 15) & 1) << 8 | ((word >> 13) & 1) << 9
        size = m.ROWS << 16 | depth
        descriptor = s.as_wgmma(load_i64(data, t.D_A))
        row = s.tile_row(word, flags, tile)
        take_matrix(temp, shared_of(context, cta), descriptor, m.A_VALUE, size, row, form)
    multiply_kinds(context, kind_a, s.kind_b(kind, word), sums, columns, depth, same)
    at = (load_i64(data, t.D_TO) >> 16) + lane
    masked = masked_lanes(data, cta - load_i64(op, a.O_CTA), at)
    give_totals(temp, cells, columns, sums, masked)


@compiled
def land_product(context: int, op: int, data: int) -> None:
    """tcgen05.mma."""
    p = program_row(context, load_i64(op, a.O_ROW))
    flags = load_i64(p, y.P_FLAGS)
    word = load_i64(data, t.D_WORD)
    folds = s.folds_of(word, flags)
    columns = s.whole_columns(word) // folds
    first = load_i64(op, a.O_CTA)
    end = first + 1
    if flags & t.PAIR != 0:
        end += 1
    for fold in range(folds):
        take_columns(context, op, data, fold, columns)
        same = False
        for cta in range(first, end):
            for tile in range(s.tiles_of(word, flags)):
                if s.tile_fold(word, flags, tile) == fold:
                    multiply_tile(context, op, data, cta, tile, columns, same)
                    same = True


@compiled
def source_row(kind: int, lane: int) -> int:
    """The row of shared memory that tcgen05.cp brings to a lane."""
    if kind == HALVES_02_13:
        return lane & 63
    if kind == HALVES_01_23:
        return (lane >> 6) * 32 + (lane & 31)
    return lane & 31 if kind == QUARTERS else lane


@compiled
def land_copy(context: int, op: int) -> None:
    """tcgen05.cp."""
    p = program_row(context, load_i64(op, a.O_ROW))
    descriptor = s.as_wgmma(load_i64(op, a.O_SOURCE))
    first = load_i64(op, a.O_CTA)
    end = first + 1
    if load_i64(p, y.P_FLAGS) & t.PAIR != 0:
        end += 1
    for cta in range(first, end):
        shared = shared_of(context, cta)
        for lane in range(t.LANES):
            row = source_row(load_i64(p, y.P_TYPE), lane)
            into = cell_host(context, cta, load_i64(op, a.O_DEST) + (lane << 16))
            for chunk in range(load_i64(p, y.P_IMM)):
                host = shared + chunk_address(descriptor, row, chunk, 0)
                copy_bytes(into + 16 * chunk, host, 16)


@compiled
def land_commit(context: int, op: int) -> None:
    """tcgen05.commit: all that its thread issued before is complete."""
    warp = load_i64(op, a.O_WARP)
    row = load_i64(op, a.O_ROW)
    slot = load_i64(op, a.O_MBARRIER)
    at = mbarrier_base(context, slot)
    cta = slot // a.MBARRIERS
    if load_i64(cta_base(context, cta), y.T_LIVE) == 0 and cta != load_i64(op, a.O_CTA):
        misuse(context, warp, row, t.LATE_ARRIVAL, load_i64(at, a.MB_ADDRESS), y.ERROR)
        return
    if load_i64(at, a.MB_VALID) == 0:
        mbarrier_misuse(context, warp, row, a.NOT_INITIALISED, load_i64(at, a.MB_ADDRESS))
        return
    if load_i64(context, y.C_SANITIZE) != 0:
        number = own(context, warp, TENSOR)
        note(mbarrier_vector(context, slot, 0), number, load_i64(op, a.O_GROUP))
    arrive(context, warp, row, slot, 1)
