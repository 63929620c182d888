"""Code objects written byte by byte, so that every field can hold what no linker writes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

END = struct.pack("<I", 0xBF810000)  # s_endpgm
NOP = struct.pack("<I", 0xBF800000)  # s_nop 0
PROGBITS, SYMTAB, STRTAB, NOTE, NOBITS = 1, 2, 3, 7, 8
TEXT_AT = 0x2000  # address of .text; of .rodata 0x1000
_RODATA_AT = 0x1000


@dataclass
class Part:
    """A section; `start` and `size` may say other than the truth."""

    name: str
    kind: int
    data: bytes
    address: int = 0
    flags: int = 0
    link: int = 0
    start: int | None = None
    size: int | None = None
    named: int | None = None  # offset of its name


def descriptor(entry: int, kernarg: int = 64) -> bytes:
    """A kernel descriptor: 64 VGPRs, s[0:1] the argument pointer, s2 the workgroup."""
    rsrc1 = 7 | 3 << 16 | 3 << 18
    rsrc2 = 2 << 1 | 1 << 7
    head = struct.pack("<IIIIq", 0, 0, kernarg, 0, entry)
    return head + bytes(20) + struct.pack("<IIIHHI", 15, rsrc1, rsrc2, 1 << 3, 0, 0)


def note(content: Any, *, packed: bool = False) -> bytes:
    """The metadata note around `content`, which is msgpack already where `packed`."""
    body = content if packed else msgspec.msgpack.encode(content)
    return struct.pack("<III", 7, len(body), 32) + b"AMDGPU\0\0" + body + bytes(-len(body) % 4)


def kernel_info(**fields: Any) -> dict[str, Any]:
    """Metadata of one kernel `k`; `fields` replace keys, written without their dot."""
    info = {"name": "k", "symbol": "k.kd", "kernarg_segment_size": 64, "args": []} | fields
    return {"amdhsa.kernels": [{f".{key}": value for key, value in info.items()}]}


def argument(name: str, kind: str = "by_value", offset: Any = 0, size: Any = 8) -> dict[str, Any]:
    return {".name": name, ".offset": offset, ".size": size, ".value_kind": kind}


def symbols(entries: Sequence[tuple[int, int, int, int]]) -> bytes:
    """A symbol table of (name's offset, type, address, size)."""
    rows = [struct.pack("<IBBHQQ", name, kind, 0, 1, at, size) for name, kind, at, size in entries]
    return bytes(24) + b"".join(rows)


def code_object(
    code: bytes = END,
    *,
    metadata: bytes | None = None,
    parts: Sequence[Part] = (),
    strings: bytes = b"\0k.kd\0k\0",
    table: bytes | None = None,
    rodata: bytes | None = None,
) -> bytes:
    """A whole object with one kernel `k`; any of its parts may be given."""
    if table is None:
        table = symbols([(1, 1, _RODATA_AT, 64), (6, 2, TEXT_AT, len(code))])
    if rodata is None:
        rodata = descriptor(TEXT_AT - _RODATA_AT)
    whole = [
        Part("", 0, b""),
        Part(".text", PROGBITS, code, TEXT_AT),
        Part(".rodata", PROGBITS, rodata, _RODATA_AT),
        Part(".symtab", SYMTAB, table, link=4),
        Part(".strtab", STRTAB, strings),
    ]
    if metadata is not None:
        whole.append(Part(".note", NOTE, metadata))
    return write(whole + list(parts))


def write(parts: Sequence[Part]) -> bytes:
    """Header, contents, section headers; the last section holds the names of all."""
    names = b"\0"
    rows, content = [], bytearray()
    for part in [*parts, Part(".shstrtab", STRTAB, b"")]:
        named = len(names)
        names += part.name.encode() + b"\0"
        data = names if part.name == ".shstrtab" else part.data
        start = 64 + len(content) if part.start is None else part.start
        size = len(data) if part.size is None else part.size
        named = named if part.named is None else part.named
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ", named, part.kind, part.flags, part.address, start, size,
                part.link, 0, 4, 24 if part.kind == SYMTAB else 0,
            )
        )  # fmt: skip
        content += data + bytes(-len(data) % 4)
    ident = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, 224, 1, 0, 0, 64 + len(content), 0x54F, 64, 0, 0, 64,
        len(rows), len(rows) - 1,
    )  # fmt: skip
    return header + bytes(content) + b"".join(rows)
