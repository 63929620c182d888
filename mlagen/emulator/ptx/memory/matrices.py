"""ldmatrix, stmatrix, movmatrix: matrices of 8 x 8 elements of 16 bits.

A lane has row `lane // 4`, columns `2 * (lane % 4)` and the next, in the halves of a register; of
a transposed matrix, a column and two rows. Lane `8 * j + i` gives the address of row i of matrix j.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    int64,
    load_any_u16,
    load_any_u32,
    load_i64,
    load_u32,
    store_any_u16,
    store_any_u32,
    store_i64,
    store_u32,
    uint16,
    uint32,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.memory.spaces import note_accesses, resolve
from mlagen.emulator.ptx.order.meeting import READ, WRITE
from mlagen.emulator.ptx.state import listed, moved, place, program_row

_ROW_BYTES = 16


@compiled
def rows_of(matrix: int, lane: int, transposed: bool) -> int:
    """The lanes, as a mask, that give the addresses of what `lane` has of a matrix."""
    if transposed:
        return 3 << (8 * matrix + 2 * (lane & 3))
    return 1 << (8 * matrix + (lane >> 2))


@compiled
def load_matrix(row: int, hosts: int, matrix: int, transposed: bool, good: int, mask: int) -> None:
    """A register of ldmatrix."""
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        needed = rows_of(matrix, lane, transposed)
        column = lane >> 2
        first = 8 * matrix + 2 * (lane & 3)
        if needed & ~good != 0:
            store_u32(row, lane, uint32(y.POISON))
        elif transposed:
            low = int64(load_any_u16(load_i64(hosts, first), column))
            high = int64(load_any_u16(load_i64(hosts, first + 1), column))
            store_u32(row, lane, uint32(low | high << 16))
        else:
            store_u32(row, lane, load_any_u32(load_i64(hosts, 8 * matrix + column), lane & 3))


@compiled
def load_whole(row: int, hosts: int, matrix: int) -> None:
    """The same for all lanes, not transposed, where all addresses are good."""
    for i in range(8):
        host = load_i64(hosts, 8 * matrix + i)
        for k in range(4):
            store_u32(row, 4 * i + k, load_any_u32(host, k))


@compiled
def store_matrix(row: int, hosts: int, matrix: int, transposed: bool, good: int, mask: int) -> None:
    """A register of stmatrix."""
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        word = load_u32(row, lane)
        column = lane >> 2
        if transposed:
            first = 8 * matrix + 2 * (lane & 3)
            if (good >> first) & 1:
                store_any_u16(load_i64(hosts, first), column, uint16(word))
            if (good >> (first + 1)) & 1:
                store_any_u16(load_i64(hosts, first + 1), column, uint16(int64(word) >> 16))
        elif (good >> (8 * matrix + column)) & 1:
            store_any_u32(load_i64(hosts, 8 * matrix + column), lane & 3, word)


@compiled
def store_whole(row: int, hosts: int, matrix: int) -> None:
    """The same for all lanes, not transposed, where all addresses are good."""
    for i in range(8):
        host = load_i64(hosts, 8 * matrix + i)
        for k in range(4):
            store_any_u32(host, k, load_u32(row, 4 * i + k))


@compiled
def move_matrix(context: int, warp: int, p: int, mask: int) -> None:
    """movmatrix: a transposed matrix. What lanes have that do not take part is undefined."""
    a = place(context, warp, load_i64(p, y.P_A))
    destination = place(context, warp, load_i64(p, y.P_DST))
    temp = load_i64(context, y.C_TEMP)
    for lane in range(y.LANES):
        shift = 16 * ((lane >> 2) & 1)
        first = 8 * (lane & 3) + (lane >> 3)
        low = int64(load_u32(a, first)) >> shift & 0xFFFF
        high = int64(load_u32(a, first + 4)) >> shift & 0xFFFF
        store_i64(temp, lane, low | high << 16)
    for lane in range(y.LANES):
        if (mask >> lane) & 1:
            store_u32(destination, lane, uint32(load_i64(temp, lane)))


@compiled
def run_matrix_move(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT."""
    p = program_row(context, row)
    op = load_i64(p, y.P_OP)
    if op == z.MOVMATRIX:
        move_matrix(context, warp, p, mask)
        return y.NEXT
    matrices = load_i64(p, y.P_COUNT)
    transposed = load_i64(p, y.P_FLAGS) & z.TRANSPOSED != 0
    addressed = mask & ((1 << (8 * matrices)) - 1)
    good = 0
    if addressed != 0:
        good = resolve(context, warp, row, addressed, _ROW_BYTES, 2 if op == z.STMATRIX else 1)
        if load_i64(context, y.C_FAULT_KIND) != 0:
            return y.NEXT
        if load_i64(context, y.C_SANITIZE) != 0:
            how = WRITE if op == z.STMATRIX else READ
            note_accesses(context, warp, row, _ROW_BYTES, how)
    hosts = load_i64(context, y.C_TEMP) + 8 * z.HOSTS
    for matrix in range(matrices):
        register = place(context, warp, listed(context, p, matrix))
        whole = mask == y.ALL and not transposed and (good >> (8 * matrix)) & 255 == 255
        if op == z.STMATRIX:
            if whole:
                store_whole(register, hosts, matrix)
            else:
                store_matrix(register, hosts, matrix, transposed, good, mask)
        elif listed(context, p, matrix) == y.NONE:
            continue
        elif whole:
            load_whole(register, hosts, matrix)
        else:
            load_matrix(register, hosts, matrix, transposed, good, mask)
    if op == z.STMATRIX:
        moved(context)
    return y.NEXT
