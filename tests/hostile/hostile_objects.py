"""Code objects that claim what they do not have, or make their reader work without end."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

from elf_files import (
    END,
    NOP,
    NOTE,
    PROGBITS,
    STRTAB,
    SYMTAB,
    TEXT_AT,
    Part,
    argument,
    code_object,
    kernel_info,
    note,
    symbols,
)

MEGABYTE = 1_000_000
_COMPRESSED = 0x800  # SHF_COMPRESSED
_V_MOV = 0x7E000281  # v_mov_b32 v0, 1
_MAD = 0xD1C30000  # v_mad_u32_u24


def lines(program: bytes, at: int = TEXT_AT) -> bytes:
    """A line table of one unit of DWARF 4 with that program."""
    head = struct.pack("<BBBbBB", 4, 1, 1, -5, 14, 13) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
    head += b"\0\0"
    start = b"\0\x09\x02" + struct.pack("<Q", at)
    body = struct.pack("<HI", 4, len(head)) + head + start + program + b"\0\x01\x01"
    return struct.pack("<I", len(body)) + body


def compressed(content: bytes, *, claimed: int | None = None, kind: int = 1) -> Part:
    size = len(content) if claimed is None else claimed
    data = struct.pack("<IIQQ", kind, 0, size, 1) + zlib.compress(content, 9)
    return Part(".debug_line", PROGBITS, data, flags=_COMPRESSED)


def _note_with(**fields: object) -> Callable[[], bytes]:
    return lambda: code_object(metadata=note(kernel_info(**fields)))


def _bomb() -> bytes:
    """A megabyte that unpacks to nearly one gigabyte, and says that it is three."""
    packer = zlib.compressobj(9)
    block = bytes(1 << 20)
    first = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    packed = first + 900 * again + packer.flush()
    data = struct.pack("<IIQQ", 1, 0, 3 << 30, 1) + packed
    return code_object(
        parts=[Part(".debug_line", PROGBITS, data, flags=_COMPRESSED), *_debug_info(1)]
    )


def _debug_info(count: int) -> list[Part]:
    """Units that all refer to the line program at 0."""
    abbreviation = b"\x01\x11\0\x10\x17\0\0\0"
    unit = struct.pack("<HIB", 4, 0, 8) + b"\x01" + struct.pack("<I", 0)
    units = (struct.pack("<I", len(unit)) + unit) * count
    return [Part(".debug_abbrev", PROGBITS, abbreviation), Part(".debug_info", PROGBITS, units)]


def _shared_lines() -> bytes:
    code = NOP * 10_000 + END
    table = Part(".debug_line", PROGBITS, lines(b"\x4b" * 100_000))
    return code_object(code, parts=[table, *_debug_info(3000)])


def _overlapping(kind: int) -> bytes:
    """3,000 sections that are the whole file each."""
    filler = Part(".filler", PROGBITS, bytes(MEGABYTE - 64 * 3100))
    many = [Part("", kind, b"", 0x9000, link=4, start=0, size=900_000) for _ in range(3000)]
    return code_object(parts=[filler, *many])


def _unterminated() -> bytes:
    """10,000 symbols whose names all run to the end of a table that has no end."""
    strings = b"\0k.kd\0k\0" + b"x" * 700_000
    rows = [(1, 1, 0x1000, 64), (6, 2, TEXT_AT, 4)]
    rows += [(8 + i, 0, 0, 0) for i in range(10_000)]
    return code_object(table=symbols(rows), strings=strings)


def _long_names() -> bytes:
    """10,000 kernels whose names are the tails of one name."""
    strings = b"\0" + b"x" * 700_000 + b".kd\0"
    rows = [(1 + i, 1, 0x1000, 64) for i in range(10_000)]
    return code_object(table=symbols(rows), strings=strings)


def _same_kernels() -> bytes:
    """10,000 names of one kernel of half a megabyte."""
    strings = b"\0" + b"".join(b"k%05d.kd\0" % i for i in range(10_000))
    rows = [(1 + 10 * i, 1, 0x1000, 64) for i in range(10_000)]
    return code_object(NOP * 125_000 + END, table=symbols(rows), strings=strings)


def _nested() -> bytes:
    return code_object(metadata=note(b"\x91" * MEGABYTE, packed=True))


def _nested_unknown() -> bytes:
    """The depth stands below a key that nobody reads."""
    body = b"\x81\xa1x" + b"\x91" * MEGABYTE + b"\x00"
    return code_object(metadata=note(body, packed=True))


def branches(size: int) -> bytes:
    """Conditional branches, each to anywhere."""
    source, count = random.Random(1), size // 4
    words = []
    for i in range(count):
        reach = range(max(-32768, -i), min(32767, count - i))
        words.append(0xBF800000 | source.randint(4, 9) << 16 | (source.choice(reach) & 0xFFFF))
    return code_object(struct.pack(f"<{count}I", *words) + END)


def loops(size: int) -> bytes:
    """Loops around loops: each branch goes back a little further than the last."""
    half = size // 8
    back = [0xBF840000 | (-2 * i - 2 & 0xFFFF) for i in range(min(half, 16000))]
    return code_object(NOP * len(back) + struct.pack(f"<{len(back)}I", *back) + END)


def straight(size: int) -> bytes:
    return code_object(struct.pack("<I", _V_MOV) * (size // 4) + END)


def registers(size: int) -> bytes:
    """Every register holds a known value, and every few instructions a path parts."""
    moves = b"".join(struct.pack("<I", 0x7E000281 | n << 17) for n in range(64))
    parts = struct.pack("<II", 0xBF840000, 0xBF850000)
    return code_object(moves + parts * ((size - len(moves)) // 8) + END)


# What a file holds, and what the answer has to say; "" where it is to be read.
SMALL: dict[str, tuple[Callable[[], bytes], str]] = {
    "infinite offset": (_note_with(args=[argument("a", offset=float("inf"))]), "metadata note"),
    "NaN size": (_note_with(args=[argument("a", size=float("nan"))]), "metadata note"),
    "infinite segment": (_note_with(kernarg_segment_size=float("inf")), "metadata note"),
    "negative offset": (_note_with(args=[argument("a", offset=-8)]), "metadata note"),
    "offset of 64 bits": (_note_with(args=[argument("a", offset=1 << 63)]), "metadata note"),
    "workgroup of 10^9": (_note_with(max_flat_workgroup_size=10**9), "max_flat_workgroup_size"),
    "100,000 arguments": (_note_with(args=[argument("a")] * 20_000), "length <= 1024"),
    "argument list of text": (_note_with(args="many"), "metadata note"),
    "deep nesting": (_nested, "nested too deeply|metadata note"),
    "deep nesting unread": (_nested_unknown, "nested too deeply|metadata note"),
    "name with an escape": (_note_with(args=[argument("a\x1b[2J")]), "cannot be shown"),
    "name with a bidi mark": (_note_with(name="k\u202e"), "cannot be shown"),
    "symbol with an escape": (
        lambda: code_object(table=symbols([(1, 1, 0x1000, 64)]), strings=b"\0\x1b[2Jk.kd\0"),
        "cannot be shown",
    ),
    "compression bomb": (_bomb, ""),
    "compressed noise": (
        lambda: code_object(
            parts=[
                Part(".debug_line", PROGBITS, b"\x01" + bytes(31) + b"noise", flags=_COMPRESSED),
                *_debug_info(1),
            ]
        ),
        "",
    ),
    "compressed more than said": (
        lambda: code_object(parts=[compressed(bytes(1 << 20), claimed=16), *_debug_info(1)]),
        "",
    ),
    "compressed by what we lack": (
        lambda: code_object(parts=[compressed(b"x", kind=2), *_debug_info(1)]),
        "",
    ),
    "3,000 units of one line program": (_shared_lines, ""),
    "3,000 overlapping sections": (lambda: _overlapping(PROGBITS), "overlap"),
    "3,000 overlapping symbol tables": (lambda: _overlapping(SYMTAB), "overlap"),
    "3,000 overlapping notes": (lambda: _overlapping(NOTE), "overlap"),
    "unterminated strings": (_unterminated, "does not end"),
    "names that share their end": (_long_names, "does not end"),
    "10,000 names of one kernel": (_same_kernels, "overlap"),
    "names of another section": (
        lambda: code_object(parts=[Part(".x", STRTAB, b"x", named=1 << 30)]),
        "does not end",
    ),
    "a descriptor nowhere": (
        lambda: code_object(table=symbols([(1, 1, (1 << 64) - 8, 64)])),
        "outside the sections",
    ),
}
# Code of that many bytes that is hard to take apart; all of it is legal.
CODE: dict[str, Callable[[int], bytes]] = {
    "branches": branches,
    "loops": loops,
    "straight": straight,
    "registers": registers,
}
