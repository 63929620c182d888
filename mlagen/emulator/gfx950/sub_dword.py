"""SDWA: bytes and halfwords of operands and results (CDNA4 ISA guide, SDWA formats).

The selections of an instruction are packed into one column: bits 0..2 the part of source 0 (0..3:
byte, 4, 5: halfword, 6: dword), bit 3 its sign extension, 4..7 the same of source 1, 8..10 the part
of the result, 11..12 what becomes of its other bits (0: zero, 1: sign, 2: kept), bit 13 set.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_u32, store_u32, uint32

DWORD = 6
PRESENT = 1 << 13


@compiled
def part_shift(part: int) -> int:
    """Bits that a part is shifted by inside its dword."""
    if part < 4:
        return 8 * part
    return 16 if part == 5 else 0


@compiled
def part_bits(part: int) -> int:
    return 8 if part < 4 else 16


@compiled
def select_part(row: int, out: int, selection: int) -> int:
    """Row with one part of each dword, zero- or sign-extended (in `out`); `row` for whole dwords.

    `selection`: part in bits 0..2, sign extension in bit 3.
    """
    part = selection & 7
    if part >= DWORD:
        return row
    sign = 1 << (part_bits(part) - 1)
    mask = 2 * sign - 1
    shift = part_shift(part)
    for i in range(64):
        value = (int64(load_u32(row, i)) >> shift) & mask
        if selection & 8:
            value = (value ^ sign) - sign
        store_u32(out, i, uint32(value))
    return out


@compiled
def place_part(row: int, old: int, selection: int) -> None:
    """Move the results of `row` to their part, over the old register's bits when those are kept."""
    part = (selection >> 8) & 7
    if part >= DWORD:
        return
    unused = (selection >> 11) & 3
    sign = 1 << (part_bits(part) - 1)
    mask = 2 * sign - 1
    shift = part_shift(part)
    for i in range(64):
        value = int64(load_u32(row, i)) & mask
        if unused == 1:
            value = ((value ^ sign) - sign) << shift
        else:
            value = value << shift
            if unused == 2:
                value |= int64(load_u32(old, i)) & ~(mask << shift)
        store_u32(row, i, uint32(value))
