"""Cells of tensor memory: where they lie, who may access them, the record of accesses to them."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.accesses import span
from mlagen.emulator.ptx.state import cta_of, fault, program_row, report
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.emulator.ptx.tensor.word_places import cta_words


@compiled
def misuse(context: int, warp: int, row: int, rule: int, what: int, severity: int) -> None:
    """Report what an instruction may not do to tensor memory."""
    report(context, y.TENSOR_MISUSE, row, -1, warp, rule, what, severity)


@compiled
def cell_place(context: int, cta: int, address: int) -> int:
    """rank << RANK_SHIFT | offset of a cell, as the record of accesses has it."""
    at = load_i64(context, y.C_TENSOR_AT)
    lane = (address >> 16) & 0xFFFF
    return (cta << y.RANK_SHIFT) | (at + lane * t.LANE_BYTES + (address & 0xFFFF) * 4)


@compiled
def cell_host(context: int, cta: int, address: int) -> int:
    """Host address of a cell."""
    place = cell_place(context, cta, address) & ((1 << y.RANK_SHIFT) - 1)
    return load_i64(context, y.C_SHARED) + cta * load_i64(context, y.C_SHARED_ROOM) + place


@compiled
def cells_exist(
    context: int, warp: int, row: int, cta: int, address: int, lanes: int, columns: int
) -> bool:
    """Whether a range of cells lies in tensor memory; a fault where not. Reports columns that are
    not allocated."""
    column = address & 0xFFFF
    lane = (address >> 16) & 0xFFFF
    if column + columns > t.COLUMNS or lane + lanes > t.LANES:
        fault(context, row, y.FAULT_TENSOR, t.OUTSIDE, address)
        return False
    words = cta_words(context, cta)
    for unit in range(column // t.UNIT, (column + columns - 1) // t.UNIT + 1):
        if load_i64(words, t.TC_OWNER + unit) == 0:
            misuse(context, warp, row, t.NOT_ALLOCATED, address, y.ERROR)
            return True
    return True


@compiled
def note_cells(
    context: int, warp: int, cta: int, address: int, size: int, access: int, how: int, agent: int
) -> None:
    """Tell the record of accesses about `size` (lanes << 16 | columns) cells."""
    place = cell_place(context, cta, address)
    for lane in range(size >> 16):
        span(context, warp, place + lane * t.LANE_BYTES, 4 * (size & 0xFFFF), access, how, agent)


@compiled
def take_group(context: int, warp: int, row: int) -> None:
    """All instructions of a kernel have the same .cta_group; a pair's are those of its CTAs."""
    pair = load_i64(program_row(context, row), y.P_FLAGS) & t.PAIR
    words = cta_words(context, cta_of(context, warp))
    held = load_i64(words, t.TC_GROUP)
    if held == 0:
        store_i64(words, t.TC_GROUP, 1 + pair)
        store_i64(words, t.TC_GROUP_ROW, row)
    elif held != 1 + pair:
        misuse(context, warp, row, t.MIXED_GROUPS, held, y.ERROR)


@compiled
def is_pair(context: int, row: int, cta: int) -> bool:
    """Whether a CTA has the other one of its pair; a fault where not."""
    if (cta | 1) < load_i64(context, y.C_CTAS_ALL):
        return True
    fault(context, row, y.FAULT_TENSOR, t.NO_PAIR, cta)
    return False
