"""Matrix instructions: unpack the operands to f32 planes, then fused dot products in k order.

Register layouts are AMD's (matrix instruction calculator, CDNA4 blog): the A operand's row and
the B operand's column is lane mod M; D register r of lane l holds row 8*(r/4) + 4*(l/32) + r%4 of a
32x32 result, row 4*(l/16) + r of a 16x16 one, column l mod M. Every product is added to the
accumulator with one rounding (f32), k ascending; f32 denormals are kept whatever the mode says.
"""

from __future__ import annotations

import numpy as np

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.planes import (
    SPAN,
    dot_rows_16x4,
    dot_rows_32x2,
    same_dwords,
    spread_bf16,
    spread_e4m3,
    spread_e5m2,
    spread_f16,
    spread_i8,
)
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    f32_of,
    int32,
    load_i64,
    load_u32,
    store_i64,
    store_u32,
    uint32,
)

PLANE = 2048  # floats of the largest operand
RAW = 512  # dwords of the largest operand's registers
ROOM = PLANE + RAW + 16  # a plane, the registers that it was made from, what they were taken for
ZEROS = 128  # after two operands that are planes as they are: a row of zeros,
SUMS = ZEROS + 64  # and the sums of a product of integers
FLAT = SUMS + 16 * 64
F16 = 1  # the "shape" of f16; 0 is bf16, others are chunks of 8-bit values
I8 = 2  # the form of bytes that are integers; 0 is e4m3, 1 e5m2
KEPT_A = 64  # planes that are kept
KEPT_B = 128
WORK = FLAT + (KEPT_A + KEPT_B) * ROOM  # floats of work space


def work_space() -> np.ndarray:
    """WORK floats in which no plane is kept yet: kind 0 is none."""
    work = np.empty(WORK, dtype=np.float32)
    work[ZEROS:SUMS] = 0
    work[FLAT:].reshape(-1, ROOM)[:, PLANE + RAW :] = 0
    return work


@compiled
def unpack_halves(plane: int, rows: int, registers: int, lanes: int, shape: int) -> None:
    """[k][row] f32 plane from `registers` dwords a lane: k = 2*registers*(lane/lanes) + e."""
    for register in range(registers):
        for first in range(0, 64, SPAN):
            group = first // lanes
            k = 2 * registers * group + 2 * register
            place = k * lanes + first - group * lanes
            source = rows + 4 * (register * 64 + first)
            if shape == F16:
                spread_f16(plane + 4 * place, 4 * lanes, source)
            else:
                spread_bf16(plane + 4 * place, 4 * lanes, source)


@compiled
def unpack_f8(plane: int, rows: int, registers: int, lanes: int, form: int, chunk: int) -> None:
    """[k][row] plane of 8-bit values dealt in chunks of `chunk` k values over the lane groups.

    Byte e of a lane in group g: k = (e / chunk) * chunk * groups + g * chunk + e % chunk. A chunk
    is a multiple of 4 values, so the bytes of a dword have consecutive k.
    """
    groups = 64 // lanes
    for register in range(registers):
        e = 4 * register
        for first in range(0, 64, SPAN):
            group = first // lanes
            k = (e // chunk) * chunk * groups + group * chunk + e % chunk
            out = plane + 4 * (k * lanes + first - group * lanes)
            source = rows + 4 * (register * 64 + first)
            if form == I8:
                spread_i8(out, 4 * lanes, source)
            elif form:
                spread_e5m2(out, 4 * lanes, source)
            else:
                spread_e4m3(out, 4 * lanes, source)


@compiled
def unpack(shape: int, plane: int, rows: int, registers: int, lanes: int, form: int) -> None:
    """One operand to its plane; `shape`: 0 bf16, 1 f16, else the chunk of 8-bit values."""
    if shape <= F16:
        unpack_halves(plane, rows, registers, lanes, shape)
    else:
        unpack_f8(plane, rows, registers, lanes, form, shape)


@compiled
def slot_of_a(number: int) -> int:
    """Where the `number`-th matrix instruction of the kernel keeps its A: K or V, the same for all
    waves of a workgroup, so that the first one's plane serves the others."""
    return number & (KEPT_A - 1)


@compiled
def slot_of_b(wave: int, register: int) -> int:
    """Where a wave keeps the plane of a register: Q or P, the B of several instructions."""
    return KEPT_A + ((wave * 16 + ((register >> 2) + (register >> 6) & 15)) & (KEPT_B - 1))


@compiled
def kept_plane(
    temp: int, slot: int, rows: int, registers: int, shape: int, lanes: int, form: int
) -> int:
    """The plane of an operand, made again only when its slot holds one of other registers' values.

    Planes are kept with a copy of the registers that they were made from.
    """
    entry = temp + 4 * (FLAT + slot * ROOM)
    raw = entry + 4 * PLANE
    key = raw + 4 * RAW
    kind = (shape << 16) | (lanes << 8) | (registers << 2) | form
    if load_i64(key, 0) == kind and same_dwords(raw, rows, 4 * registers):
        return entry
    unpack(shape, entry, rows, registers, lanes, form)
    for i in range(64 * registers):
        store_u32(raw, i, load_u32(rows, i))
    store_i64(key, 0, kind)
    return entry


@compiled
def multiply(p: int, wave: int, temp: int, dst: int, a: int, b: int, c: int, c_step: int) -> None:
    """D = A*B + C; a, b, c, dst: row addresses; c_step: bytes between rows of C, 0 for a constant.

    `temp` is a `work_space`. Of the program row: FLAGS, the 8-bit formats of A and B in bits 0 and
    1 (set: e5m2); IMM, its number among the kernel's matrix instructions; AUX 0: registers of D, 1:
    of A and of B, 2: the shape of these (see `unpack`).
    """
    op = load_i64(p, y.P_OP)
    if op == o.M_32X32X2_F32 or op == o.M_16X16X4_F32:
        for lane in range(64):  # one register an operand, k = lane / M: a plane as it is
            store_u32(temp, lane, load_u32(a, lane))
            store_u32(temp, 64 + lane, load_u32(b, lane))
        if op == o.M_32X32X2_F32:
            dot32(dst, temp, temp + 256, c, c_step, 2)
        else:
            dot16(dst, temp, temp + 256, c, c_step, 4)
        return
    registers = load_i64(p, y.P_AUX + 1)
    shape = load_i64(p, y.P_AUX + 2)
    lanes = 16 if load_i64(p, y.P_AUX) == 4 else 32
    integers = op >= o.M_32X32X16_I8
    kinds = load_i64(p, y.P_FLAGS)
    slot_a = slot_of_a(load_i64(p, y.P_IMM))
    slot_b = slot_of_b(wave, load_i64(p, y.P_KIND + 3))
    plane_a = kept_plane(temp, slot_a, a, registers, shape, lanes, I8 if integers else kinds & 1)
    plane_b = kept_plane(temp, slot_b, b, registers, shape, lanes, I8 if integers else kinds >> 1)
    depth = (64 // lanes) * registers * (2 if shape <= F16 else 4)
    if integers:
        add_integers(dst, plane_a, plane_b, c, c_step, depth, temp, lanes)
    elif lanes == 32:
        dot32(dst, plane_a, plane_b, c, c_step, depth)
    else:
        dot16(dst, plane_a, plane_b, c, c_step, depth)


@compiled
def add_integers(
    dst: int, a: int, b: int, c: int, c_step: int, depth: int, temp: int, lanes: int
) -> None:
    """D = A*B + C of 8-bit integers, sums modulo 2^32.

    The products of two bytes are below 2^14 and at most 64 are added: exact in f32.
    """
    sums = temp + 4 * SUMS
    rows = 16 if lanes == 32 else 4
    if lanes == 32:
        dot32(sums, a, b, temp + 4 * ZEROS, 0, depth)
    else:
        dot16(sums, a, b, temp + 4 * ZEROS, 0, depth)
    for r in range(rows):
        for lane in range(64):
            total = int32(f32_of(load_u32(sums, r * 64 + lane)))
            value = load_u32(c + r * c_step, lane) + uint32(total)
            store_u32(dst + r * 256, lane, uint32(value))


@compiled
def dot32(dst: int, a: int, b: int, c: int, c_step: int, depth: int) -> None:
    """32x32 result: register r is rows i and i + 4, 32 columns each."""
    for r in range(16):
        i = 8 * (r // 4) + r % 4
        dot_rows_32x2(c + r * c_step, dst + r * 256, a + 4 * i, 4, b, depth, 32)


@compiled
def dot16(dst: int, a: int, b: int, c: int, c_step: int, depth: int) -> None:
    """16x16 result: register r is rows r, r + 4, r + 8, r + 12, 16 columns each."""
    for r in range(4):
        dot_rows_16x4(c + r * c_step, dst + r * 256, a + 4 * r, 4, b, depth, 16)
