"""Matrix instructions: unpack the operands to f32 planes, then fused dot products in k order.

Register layouts are AMD's (matrix instruction calculator, CDNA4 blog): the A operand's row and
the B operand's column is lane mod M; D register r of lane l holds row 8*(r/4) + 4*(l/32) + r%4 of a
32x32 result, row 4*(l/16) + r of a 16x16 one, column l mod M. Every product is added to the
accumulator with one rounding (f32), k ascending; f32 denormals are kept whatever the mode says.
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.numeric import compiled
from mlagen.emulator.gfx950.planes import (
    SPAN,
    dot_rows_16x4,
    dot_rows_32x2,
    spread_bf16,
    spread_e4m3,
    spread_e5m2,
)
from mlagen.emulator.gfx950.raw import load_u32, store_u32


@compiled
def unpack_bf16(plane: int, rows: int, registers: int, lanes: int) -> None:
    """[k][row] f32 plane from `registers` dwords a lane: k = 2*registers*(lane/lanes) + e."""
    for register in range(registers):
        for first in range(0, 64, SPAN):
            group = first // lanes
            k = 2 * registers * group + 2 * register
            place = k * lanes + first - group * lanes
            spread_bf16(plane + 4 * place, 4 * lanes, rows + 4 * (register * 64 + first))


@compiled
def unpack_f32(plane: int, rows: int) -> None:
    """[k][row] plane of a one-register f32 operand, k = lane / M: the register itself."""
    for lane in range(64):
        store_u32(plane, lane, load_u32(rows, lane))


@compiled
def unpack_f8(plane: int, rows: int, registers: int, lanes: int, e5m2: int, chunk: int) -> None:
    """[k][row] plane of 8-bit floats dealt in chunks of `chunk` k values over the lane groups.

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
            if e5m2:
                spread_e5m2(out, 4 * lanes, source)
            else:
                spread_e4m3(out, 4 * lanes, source)


@compiled
def multiply(op: int, dst: int, a: int, b: int, c: int, c_step: int, temp: int, kinds: int) -> None:
    """D = A*B + C. a, b, c, dst: row addresses; c_step: bytes between rows of C (0 for a constant).

    `temp` is work space for two planes of 4096 floats; `kinds` holds the 8-bit formats of A and B in
    bits 0 and 1 (set: e5m2).
    """
    plane_b = temp + 4 * 4096
    format_a = kinds & 1
    format_b = kinds >> 1
    if op == o.M_32X32X16_BF16:
        unpack_bf16(temp, a, 4, 32)
        unpack_bf16(plane_b, b, 4, 32)
        dot32(dst, temp, plane_b, c, c_step, 16)
    elif op == o.M_16X16X32_BF16:
        unpack_bf16(temp, a, 4, 16)
        unpack_bf16(plane_b, b, 4, 16)
        dot16(dst, temp, plane_b, c, c_step, 32)
    elif op == o.M_32X32X8_BF16:
        unpack_bf16(temp, a, 2, 32)
        unpack_bf16(plane_b, b, 2, 32)
        dot32(dst, temp, plane_b, c, c_step, 8)
    elif op == o.M_16X16X16_BF16:
        unpack_bf16(temp, a, 2, 16)
        unpack_bf16(plane_b, b, 2, 16)
        dot16(dst, temp, plane_b, c, c_step, 16)
    elif op == o.M_32X32X64_F8:
        unpack_f8(temp, a, 8, 32, format_a, 16)
        unpack_f8(plane_b, b, 8, 32, format_b, 16)
        dot32(dst, temp, plane_b, c, c_step, 64)
    elif op == o.M_16X16X128_F8:
        unpack_f8(temp, a, 8, 16, format_a, 16)
        unpack_f8(plane_b, b, 8, 16, format_b, 16)
        dot16(dst, temp, plane_b, c, c_step, 128)
    elif op == o.M_32X32X16_FP8:
        unpack_f8(temp, a, 2, 32, format_a, 8)
        unpack_f8(plane_b, b, 2, 32, format_b, 8)
        dot32(dst, temp, plane_b, c, c_step, 16)
    elif op == o.M_16X16X32_FP8:
        unpack_f8(temp, a, 2, 16, format_a, 8)
        unpack_f8(plane_b, b, 2, 16, format_b, 8)
        dot16(dst, temp, plane_b, c, c_step, 32)
    elif op == o.M_32X32X2_F32:
        unpack_f32(temp, a)
        unpack_f32(plane_b, b)
        dot32(dst, temp, plane_b, c, c_step, 2)
    else:  # M_16X16X4_F32
        unpack_f32(temp, a)
        unpack_f32(plane_b, b)
        dot16(dst, temp, plane_b, c, c_step, 4)


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
