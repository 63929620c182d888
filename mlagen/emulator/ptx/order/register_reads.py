"""Registers that are read before they are written, or while the tensor core has them.

C_DEFINED has the lanes in which a register was ever written. C_BUSY has, for a register that a
wgmma reads or writes, `group << 24 | row` (groups counted from 1); for one that another instruction
has written since, `-(fences << 24 | row) - 1`, fences being the wgmma.fence of the warp so far.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64, store_u32, uint32
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.state import program_row, report
from mlagen.emulator.ptx.tensor.tensor_memory import LOADING, TW_LOADS
from mlagen.emulator.ptx.tensor.word_places import warp_words

_ROW = (1 << 24) - 1


@compiled
def matrix_words(context: int, warp: int) -> int:
    """Address of a warp's words of matrix.work_space."""
    return load_i64(context, y.C_MATRIX) + warp * (8 * m.WORDS)


@compiled
def in_flight(context: int, warp: int, row: int, slot: int, number: int) -> None:
    """Report a register that a wgmma or tcgen05.ld which nobody has waited for reads or writes."""
    held = load_i64(load_i64(context, y.C_BUSY), slot)
    if held >= LOADING:
        waits = (held - LOADING) >> 24
        if waits > load_i64(warp_words(context, warp), TW_LOADS):
            report(context, y.REGISTER_IN_FLIGHT, row, held & _ROW, warp, number, waits, y.LETTER)
    elif held > 0 and held >> 24 > load_i64(matrix_words(context, warp), m.Q_COMPLETE):
        report(context, y.REGISTER_IN_FLIGHT, row, held & _ROW, warp, number, held >> 24, y.ERROR)


@compiled
def check_registers(context: int, warp: int, row: int, active: int) -> None:
    """Report what an instruction does to registers that it may not; note what it writes."""
    p = program_row(context, row)
    if load_i64(p, y.P_CLASS) == y.X_WGMMA:
        return
    words = load_i64(context, y.C_LIST)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    defined = load_i64(context, y.C_DEFINED)
    busy = load_i64(context, y.C_BUSY)
    at = load_i64(p, y.P_READS)
    for i in range(at, at + load_i64(p, y.P_READ_COUNT)):
        number = load_i64(words, i)
        slot = first + number
        if active & ~int64(load_u32(defined, slot)) != 0:
            report(context, y.UNDEFINED_REGISTER, row, -1, warp, number, active, y.LETTER)
            store_u32(defined, slot, uint32(y.ALL))
        if load_i64(busy, slot) > 0:
            in_flight(context, warp, row, slot, number)
    count = load_i64(p, y.P_WRITE_COUNT)
    if count == 0:
        return
    at = load_i64(p, y.P_WRITES)
    dirty = -(load_i64(matrix_words(context, warp), m.Q_EPOCH) << 24 | row) - 1
    for i in range(at, at + count):
        slot = first + load_i64(words, i)
        if load_i64(busy, slot) > 0:
            in_flight(context, warp, row, slot, load_i64(words, i))
        store_u32(defined, slot, uint32(int64(load_u32(defined, slot)) | active))
        store_i64(busy, slot, dirty)


@compiled
def wgmma_registers(context: int, warp: int, row: int, group: int, adds: int) -> None:
    """The registers of a wgmma of `group`: written without a wgmma.fence after it, or unset.
    `adds`: 1 where D is read."""
    p = program_row(context, row)
    words = load_i64(context, y.C_LIST)
    first = warp * load_i64(context, y.C_REGISTER_COUNT)
    defined = load_i64(context, y.C_DEFINED)
    busy = load_i64(context, y.C_BUSY)
    fences = load_i64(matrix_words(context, warp), m.Q_EPOCH)
    mark = group << 24 | row
    for which in range(2):
        at = load_i64(p, y.P_READS)
        count = load_i64(p, y.P_READ_COUNT)
        if which == 1:
            at = load_i64(p, y.P_WRITES)
            count = load_i64(p, y.P_WRITE_COUNT)
        for i in range(at, at + count):
            number = load_i64(words, i)
            slot = first + number
            held = load_i64(busy, slot)
            if held < 0 and (-(held + 1)) >> 24 == fences:
                other = (-(held + 1)) & _ROW
                if which == 1 or matrix_operand(context, p, number):
                    report(context, y.WGMMA_MISUSE, row, other, warp, 3, number, y.ERROR)
            unset = which == 0 and load_u32(defined, slot) != uint32(y.ALL)
            if unset and (adds != 0 or matrix_operand(context, p, number)):
                report(context, y.UNDEFINED_REGISTER, row, -1, warp, number, y.ALL, y.LETTER)
            if which == 1:
                store_u32(defined, slot, uint32(y.ALL))
            if which == 1 or matrix_operand(context, p, number):
                store_i64(busy, slot, mark)


@compiled
def matrix_operand(context: int, p: int, number: int) -> bool:
    """Whether a register that a wgmma reads is part of its A: the tensor core reads it later.
    P_IMM + 1 … of the list's end have their numbers."""
    words = load_i64(context, y.C_LIST)
    first = load_i64(p, y.P_DST2)
    found = 0
    for i in range(first, first + load_i64(p, y.P_FLAGS)):
        if load_i64(words, i) == number:
            found |= 1
    return found != 0
