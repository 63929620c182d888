"""The DWARF line table of a code object: which line of the assembly text made which bytes.

Only the line programs are read (DWARF 2 to 5, section 6.2), each once, whoever refers to them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from mlagen.binary.elf import ElfImage

_COMPRESSED = 0x800  # SHF_COMPRESSED
_COMPRESSION = struct.Struct("<IIQQ")  # Elf64_Chdr: type, -, size, alignment
_ZLIB = 1
_LONGEST_HEADER = 1 << 20  # bytes of file names and the like that a line program may have


def read_line_table(image: ElfImage) -> dict[int, int]:
    """Map byte offsets in .text to 1-based lines of the source; {} when there is no line program.

    Every offset at which a row of the program starts is a key; the objects that an assembler
    makes with -g have one row an instruction. A table that is damaged, or longer than one of this
    much code can be, is treated as absent: it only serves to place findings.
    """
    section = image.section(".debug_line")
    if section is None:
        return {}
    data = image.data[section.start : section.end]
    table: dict[int, int] = {}
    try:
        if section.flags & _COMPRESSED:
            data = _unpacked(data, _LONGEST_HEADER + 4 * len(image.text))
        for address, line in _rows(data):
            offset = address - image.text_address
            if 0 <= offset < len(image.text):
                table[offset] = line
    except (struct.error, IndexError, zlib.error, _DamagedError):
        return {}
    return table


class _DamagedError(Exception):
    """The table breaks its own rules."""


def _unpacked(data: bytes, longest: int) -> bytes:
    """What a compressed section holds; never more than `longest` bytes are made."""
    kind, _, size, _ = _COMPRESSION.unpack_from(data)
    if kind != _ZLIB or size > longest:
        raise _DamagedError
    content = zlib.decompressobj().decompress(data[_COMPRESSION.size :], size + 1)
    if len(content) != size:
        raise _DamagedError
    return content


def _rows(data: bytes) -> Iterator[tuple[int, int]]:
    """(address, line) of every row of every line program."""
    place = 0
    while place < len(data):
        (length,) = struct.unpack_from("<I", data, place)
        place += 4
        word = 4
        if length == 0xFFFFFFFF:  # 64-bit DWARF
            (length,) = struct.unpack_from("<Q", data, place)
            place += 8
            word = 8
        if length > len(data) - place:
            raise _DamagedError
        yield from _program(data[place : place + length], word)
        place += length


def _program(unit: bytes, word: int) -> Iterator[tuple[int, int]]:
    """Run one line program; `word`: bytes of a length in its header."""
    (version,) = struct.unpack_from("<H", unit)
    if not 2 <= version <= 5:
        raise _DamagedError
    place = 2 + (2 if version == 5 else 0)  # version 5 has sizes of addresses and selectors
    (rest,) = struct.unpack_from("<Q" if word == 8 else "<I", unit, place)
    place += word
    at = place + rest  # of the first opcode
    step = unit[place]
    place += 3 if version >= 4 else 2  # to the line base: version 4 has operations an instruction
    line_base, line_range, opcode_base = struct.unpack_from("<bBB", unit, place)
    operands = unit[place + 3 : place + 2 + opcode_base]
    if not line_range or not opcode_base or at > len(unit):
        raise _DamagedError
    address, line = 0, 1
    while at < len(unit):
        op = unit[at]
        at += 1
        if op >= opcode_base:
            address += (op - opcode_base) // line_range * step
            line += line_base + (op - opcode_base) % line_range
            yield address, line
        elif op == 0:
            size, at = _leb(unit, at)
            if not size:
                raise _DamagedError
            kind = unit[at]
            if kind == 1:  # end of a sequence: its row is one past the code
                address, line = 0, 1
            elif kind == 2:
                address = int.from_bytes(unit[at + 1 : at + min(size, 9)], "little")
            at += size
        elif op == 1:
            yield address, line
        elif op == 2:
            number, at = _leb(unit, at)
            address += number * step
        elif op == 3:
            number, at = _leb(unit, at, signed=True)
            line += number
        elif op == 8:
            address += (255 - opcode_base) // line_range * step
        elif op == 9:
            address += int.from_bytes(unit[at : at + 2], "little")
            at += 2
        else:  # what does not concern lines, or is not known: its operands are skipped
            for _ in range(operands[op - 1]):
                _, at = _leb(unit, at)


def _leb(data: bytes, place: int, signed: bool = False) -> tuple[int, int]:
    """A LEB128 number of at most 64 bits, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if signed and byte & 0x40:
                value -= 1 << (shift + 7)
            return value, place
    raise _DamagedError
