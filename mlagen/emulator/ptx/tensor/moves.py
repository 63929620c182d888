"""tcgen05.ld and tcgen05.st: cells of tensor memory and registers of a warp.

Which cell a lane's register has, by shape (PTX ISA, "tcgen05 Data Movement Shapes"; CUTLASS
copy_traits_sm100.hpp has the same), for lane l and register r:

    32x32b    lane l, column r
    16x64b    lane l / 4 + 8 (l % 2), column l / 2 % 2 + 2 r
    16x128b   lane l / 4 + 8 (r % 2), column l % 4 + 4 (r / 2)
    16x256b   lane l / 4 + 8 (r / 2 % 2), column r % 2 + 2 (l % 4) + 8 (r / 4)
    16x32bx2  lane l % 16, column r, and from lane 16 on behind what the instruction says

With .pack::16b and .unpack::16b a register is the low halves of two columns.

A load's registers are its own until the warp's tcgen05.wait::ld, by the ISA's letter. LLVM moves
uses of them before it in the kernels that Triton makes, and these run; so they are loaded at once.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.places import operand
from mlagen.emulator.ptx.order.clocks import own, reached
from mlagen.emulator.ptx.order.meeting import READ, WRITE, packed
from mlagen.emulator.ptx.order.record_sizes import LOADED, STORED
from mlagen.emulator.ptx.order.tensors import ISSUED
from mlagen.emulator.ptx.state import (
    cta_of,
    first_lane,
    listed,
    place,
    program_row,
)
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.emulator.ptx.tensor.cells import cell_host, cells_exist, misuse, note_cells
from mlagen.emulator.ptx.tensor.word_places import warp_words


@spliced
def cell_of(p: int, lane: int, number: int) -> int:
    """lane << 16 | column, from the instruction's address on, of register `number` of a lane; its
    columns are pairs where it packs halves."""
    shape = load_i64(p, y.P_TYPE)
    if shape == t.S32X32:
        return (lane << 16) | number
    if shape == t.S16X64:
        return (((lane >> 2) + 8 * (lane & 1)) << 16) | (((lane >> 1) & 1) + 2 * number)
    if shape == t.S16X128:
        return (((lane >> 2) + 8 * (number & 1)) << 16) | ((lane & 3) + 4 * (number >> 1))
    if shape == t.S16X256:
        line = (lane >> 2) + 8 * ((number >> 1) & 1)
        return (line << 16) | ((number & 1) + 2 * (lane & 3) + 8 * (number >> 2))
    return (lane << 16) | number


@compiled
def width_of(p: int) -> int:
    """Columns that a load or store accesses, of .16x32bx2 in each half."""
    registers = load_i64(p, y.P_COUNT) - a.OPERAND
    shape = load_i64(p, y.P_TYPE)
    columns = registers
    if shape == t.S16X64 or shape == t.S16X128 or shape == t.S16X256:
        columns = 2 * registers
    return columns * 2 if load_i64(p, y.P_FLAGS) & t.PACKED != 0 else columns


@compiled
def moved_cell(context: int, cta: int, p: int, address: int, cell: int) -> int:
    """Host address of a cell that `cell_of` gives."""
    lane = cell >> 16
    column = cell & 0xFFFF
    if load_i64(p, y.P_FLAGS) & t.PACKED != 0:
        column *= 2
    if load_i64(p, y.P_TYPE) == t.S16X32X2 and lane >= 16:
        lane -= 16
        column += load_i64(p, y.P_IMM)
    return cell_host(context, cta, address + (lane << 16) + column)


@compiled
def move_load(context: int, warp: int, p: int, address: int) -> None:
    """Cells into registers."""
    cta = cta_of(context, warp)
    halves = load_i64(p, y.P_FLAGS) & t.PACKED
    for number in range(load_i64(p, y.P_COUNT) - a.OPERAND):
        register = place(context, warp, listed(context, p, a.OPERAND + number))
        for lane in range(y.LANES):
            host = moved_cell(context, cta, p, address, cell_of(p, lane, number))
            value = int64(load_u32(host, 0))
            if halves != 0:
                value = (value & 0xFFFF) | (int64(load_u32(host, 1)) & 0xFFFF) << 16
            store_u32(register, lane, uint32(value))


@spliced
def lanes_moved(shape: int) -> int:
    """Lanes of tensor memory that an instruction of a shape accesses."""
    return 32 if shape == t.S32X32 else 16


@compiled
def moved_address(context: int, warp: int, row: int, mask: int) -> int:
    """The address of a warp's load or store; -1 after a fault. Reports what else is wrong.

    A warp reaches its own 32 lanes whatever the address says of them: FlashMLA's kernels name lane
    0 in every warp, and run. By the letter the address has the warp's own lanes."""
    p = program_row(context, row)
    shape = load_i64(p, y.P_TYPE)
    address = operand(context, warp, p, 0, first_lane(mask)) & 0xFFFFFFFF
    for lane in range(y.LANES):
        if (mask >> lane) & 1 and operand(context, warp, p, 0, lane) & 0xFFFFFFFF != address:
            misuse(context, warp, row, t.UNEQUAL, address, y.ERROR)
    lane = address >> 16
    first = 32 * ((warp % load_i64(context, y.C_CTA_WARPS)) & 3)
    within = lane & 31
    if within != 0 and (shape == t.S32X32 or within != 16):
        misuse(context, warp, row, t.OTHER_LANES, address, y.ERROR)
        within = 0
    elif lane - within != first:
        severity = y.LETTER if lane < 32 else y.ERROR
        misuse(context, warp, row, t.OTHER_LANES, address, severity)
    address = ((first + within) << 16) | (address & 0xFFFF)
    columns = width_of(p)
    if shape == t.S16X32X2:
        columns += load_i64(p, y.P_IMM)
    lanes = lanes_moved(shape)
    if cells_exist(context, warp, row, cta_of(context, warp), address, lanes, columns):
        return address
    return -1


@compiled
def note_move(context: int, warp: int, p: int, address: int, access: int, how: int) -> None:
    """Tell the record of accesses about a load or a store."""
    shape = load_i64(p, y.P_TYPE)
    cta = cta_of(context, warp)
    size = (lanes_moved(shape) << 16) | width_of(p)
    note_cells(context, warp, cta, address, size, access, how, ISSUED)
    if shape == t.S16X32X2:
        other = address + load_i64(p, y.P_IMM)
        note_cells(context, warp, cta, other, size, access, how, ISSUED)


@compiled
def hold_registers(context: int, warp: int, row: int, p: int) -> None:
    """The registers of a load are its own until tcgen05.wait::ld."""
    words = load_i64(context, y.C_LIST)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    waits = load_i64(warp_words(context, warp), t.TW_LOADS) + 1
    at = load_i64(p, y.P_WRITES)
    for i in range(at, at + load_i64(p, y.P_WRITE_COUNT)):
        mark = t.LOADING | (waits << 24) | row
        store_i64(load_i64(context, y.C_BUSY), first + load_i64(words, i), mark)


@compiled
def load(context: int, warp: int, row: int, mask: int) -> None:
    """tcgen05.ld."""
    p = program_row(context, row)
    address = moved_address(context, warp, row, mask)
    if address < 0:
        return
    words = warp_words(context, warp)
    if load_i64(context, y.C_SANITIZE) != 0:
        clock = load_i64(words, t.TW_LOADS) + 1
        access = packed(row, own(context, warp, LOADED), clock, 0)
        note_move(context, warp, p, address, access, READ)
        hold_registers(context, warp, row, p)
    move_load(context, warp, p, address)


@compiled
def store(context: int, warp: int, row: int, mask: int) -> None:
    """tcgen05.st: its registers are read at once."""
    p = program_row(context, row)
    address = moved_address(context, warp, row, mask)
    if address < 0:
        return
    if load_i64(context, y.C_SANITIZE) != 0:
        clock = load_i64(warp_words(context, warp), t.TW_STORES) + 1
        access = packed(row, own(context, warp, STORED), clock, 0)
        note_move(context, warp, p, address, access, WRITE)
    cta = cta_of(context, warp)
    halves = load_i64(p, y.P_FLAGS) & t.PACKED
    for number in range(load_i64(p, y.P_COUNT) - a.OPERAND):
        register = place(context, warp, listed(context, p, a.OPERAND + number))
        for lane in range(y.LANES):
            host = moved_cell(context, cta, p, address, cell_of(p, lane, number))
            value = int64(load_u32(register, lane))
            if halves != 0:
                store_u32(host, 0, uint32(value & 0xFFFF))
                store_u32(host, 1, uint32(value >> 16))
            else:
                store_u32(host, 0, uint32(value))


@compiled
def wait_loads(context: int, warp: int) -> None:
    """tcgen05.wait::ld."""
    words = warp_words(context, warp)
    waits = load_i64(words, t.TW_LOADS) + 1
    store_i64(words, t.TW_LOADS, waits)
    if load_i64(context, y.C_SANITIZE) != 0:
        reached(context, warp, own(context, warp, LOADED), waits)


@compiled
def wait_stores(context: int, warp: int) -> None:
    """tcgen05.wait::st."""
    words = warp_words(context, warp)
    waits = load_i64(words, t.TW_STORES) + 1
    store_i64(words, t.TW_STORES, waits)
    if load_i64(context, y.C_SANITIZE) != 0:
        reached(context, warp, own(context, warp, STORED), waits)
