"""The transposing reads of LDS: which element each lane gets from which.

Sources: CDNA4 ISA guide, 11.4 (which K an instruction loads for a matrix product), and what AMD's
rocRoller checks on the hardware for each of the four (its transpose_load tests).
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_u32


@compiled
def transposes(op: int) -> bool:
    """Whether a DS instruction is a transposing read."""
    return op == o.D_READ_TR16 or op == o.D_READ_TR8 or op == o.D_READ_TR6 or op == o.D_READ_TR4


@compiled
def element_bits(variant: int) -> int:
    """Of a transposing read."""
    if variant == o.D_READ_TR16:
        return 16
    if variant == o.D_READ_TR8:
        return 8
    return 6 if variant == o.D_READ_TR6 else 4


@compiled
def tile_element(bits: int, lane: int, number: int) -> int:
    """Where a transposing read takes element `number` of a lane from: lane << 8 | element.

    16 lanes supply a tile of 16 columns row-major: 4 rows of 4 lanes each for halfwords, 8 rows of
    2 lanes for bytes, 16 rows of a lane for 6 and 4 bits. Lane j of the group receives column j.
    """
    held = 4 if bits == 16 else 8 if bits == 8 else 16  # elements of a lane
    column = lane & 15
    source = (lane & ~15) + number * (16 // held) + column // held
    return source << 8 | column % held


@compiled
def transposed(data: int, variant: int, lane: int, dword: int) -> int:
    """Dword `dword` that a transposing read gives a lane, from the bytes that all lanes fetched."""
    bits = element_bits(variant)
    first, last = 32 * dword, 32 * dword + 32
    value = 0
    for number in range(first // bits, (last + bits - 1) // bits):
        place = tile_element(bits, lane, number)
        source, start = place >> 8, (place & 0xFF) * bits
        word = int64(load_u32(data, start // 32 * 64 + source)) >> (start & 31)
        if (start & 31) + bits > 32:  # six bits of two dwords
            word |= int64(load_u32(data, (start // 32 + 1) * 64 + source)) << (32 - (start & 31))
        element = word & ((1 << bits) - 1)
        at = number * bits - first
        value |= element << at if at >= 0 else element >> -at
    return value & 0xFFFFFFFF
