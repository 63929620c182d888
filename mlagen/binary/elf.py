"""The ELF container of a gfx950 code object: sections, kernels' symbols and the metadata note.

A file from a stranger may claim anything, so the work on it is bounded by its size: sections
together hold at most the bytes of the file (they may not overlap), and every name has an end.
Nothing is copied before its place is known to lie in the file.

Layout: ELF-64 object file format. AMDGPU header, note type 32 and symbol conventions: LLVM
AMDGPUUsage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mlagen.errors import BinaryError
from mlagen.targets.gfx950.limits import GFX950

EM_AMDGPU = 224  # ELF e_machine (LLVM AMDGPUUsage)
NT_AMDGPU_METADATA = 32  # note holding the msgpack metadata (LLVM AMDGPUUsage)
DESCRIPTOR_BYTES = 64  # kernel descriptor (LLVM AMDGPUUsage)
KERNEL_SUFFIX = b".kd"  # of a descriptor's symbol (LLVM AMDGPUUsage)

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_MACHINES = {3: "EM_386", 62: "EM_X86_64", 183: "EM_AARCH64", 190: "EM_CUDA"}  # to be named
_SHARED = 3  # ET_DYN
_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_NOTES, _NOBITS = 7, 8  # SHT_NOTE, SHT_NOBITS
_FUNCTION = 2  # STT_FUNC
_LONGEST_NAME = 4096  # bytes of a kernel's name


@dataclass(frozen=True, slots=True)
class Section:
    """A section with bytes in the file: `[start, end)` there, `address` in memory (0: none)."""

    name: str
    kind: int
    flags: int
    address: int
    start: int
    end: int
    link: int


@dataclass(frozen=True, slots=True)
class KernelSymbol:
    """The symbol of a kernel's descriptor: `name` ends in .kd, `size` is 0 when left out."""

    name: str
    address: int
    size: int


@dataclass(frozen=True)
class ElfImage:
    """What the rest of the reader needs: bytes by virtual address, symbols, note, debug lines.

    `functions`: sizes in bytes (0 when left out) by address.
    """

    data: bytes
    text: bytes
    text_address: int
    sections: tuple[Section, ...]
    kernels: tuple[KernelSymbol, ...]
    functions: dict[int, int]
    metadata: bytes | None

    def read(self, address: int, size: int, what: str) -> bytes:
        """`size` bytes at a virtual address; BinaryError when no section holds them."""
        for section in self.sections:
            offset = address - section.address
            if section.address and 0 <= offset <= section.end - section.start - size:
                return self.data[section.start + offset : section.start + offset + size]
        raise BinaryError(
            f"{what} at address {address:#x} ({size} bytes) lies outside the sections of the file",
            hint="the file is truncated or was not linked: pass the linked code object",
        )

    def section(self, name: str) -> Section | None:
        """The last section of that name."""
        return next((s for s in reversed(self.sections) if s.name == name), None)


def read_elf(data: bytes) -> ElfImage:
    """Parse the container. Raises BinaryError for anything that is not a whole gfx950 object."""
    sections = read_sections(data)
    text = next((s for s in reversed(sections) if s.name == ".text"), None)
    if text is None or text.start == text.end:
        raise BinaryError("the code object has no .text section, or an empty one")
    kernels: dict[KernelSymbol, None] = {}
    functions: dict[int, int] = {}
    metadata: bytes | None = None
    for section in sections:
        if section.kind == _NOTES:
            metadata = _metadata(data, section) or metadata
        elif section.kind in _SYMBOL_TABLES:
            _read_symbols(data, section, sections, kernels, functions)
    content = data[text.start : text.end]
    return ElfImage(data, content, text.address, sections, tuple(kernels), functions, metadata)


def read_sections(data: bytes) -> tuple[Section, ...]:
    """Check the header, and list the sections that have bytes in the file, by number."""
    if data[:4] != b"\x7fELF":
        raise BinaryError(
            "not a code object: the file does not start with the ELF magic",
            hint="pass the linked .co file that the assembler and linker made for gfx950",
        )
    if len(data) < _HEADER.size:
        raise BinaryError(f"the code object is truncated: its header has {len(data)} of 64 bytes")
    (ident, kind, machine, _, _, _, place, flags, _, _, _, entry, count, names) = (
        _HEADER.unpack_from(data)
    )
    if ident[4] != 2 or ident[5] != 1:
        raise BinaryError("not an AMDGPU code object: the file is not a 64-bit little-endian ELF")
    if machine != EM_AMDGPU:
        raise BinaryError(
            f"not an AMDGPU code object: the ELF machine is {_MACHINES.get(machine, machine)}",
            hint="gfx950 code objects are made with --target=amdgcn-amd-amdhsa -mcpu=gfx950",
        )
    if flags & 0xFF != GFX950.elf_machine_flags:
        raise BinaryError(
            f"the code object is for another target: EF_AMDGPU_MACH is {flags & 0xFF:#04x}, "
            f"gfx950 is {GFX950.elf_machine_flags:#04x}",
            hint="rebuild it with -mcpu=gfx950",
        )
    if kind != _SHARED:
        raise BinaryError(
            f"the code object is not linked (ELF type {kind})", hint="link it with ld.lld -shared"
        )
    if entry != _SECTION.size:
        raise BinaryError(f"the code object is damaged: its section headers have {entry} bytes")
    if count == 0:
        raise BinaryError(
            "the code object has no section headers, by which its kernels are found",
            hint="link it without --strip-sections",
        )
    if place + count * entry > len(data):
        raise BinaryError(
            f"the code object is truncated: its section headers end at byte "
            f"{place + count * entry}, the file has {len(data)}"
        )
    headers = [_SECTION.unpack_from(data, place + i * entry) for i in range(count)]
    if names >= count:
        raise BinaryError(f"the code object is damaged: it has no section {names} for names")
    first, size = headers[names][4:6]
    _check_inside(data, f"section {names} (names)", first, size)
    sections, held = [], 0
    for number, (name, kind, flags, address, start, size, link, _, _, _) in enumerate(headers):
        if kind == _NOBITS:
            size = 0
        _check_inside(data, f"section {number}", start if size else 0, size)
        held += size
        text = _text(data, first, first + headers[names][5], name, "a section")
        sections.append(Section(text, kind, flags, address, start, start + size, link))
    if held > len(data):
        raise BinaryError(
            f"the code object is damaged: its sections hold {held} bytes together, the file has "
            f"{len(data)}, so they overlap"
        )
    return tuple(sections)


def _check_inside(data: bytes, what: str, start: int, size: int) -> None:
    if start + size > len(data):
        raise BinaryError(
            f"the code object is truncated: {what} ends at byte {start + size}, the file has "
            f"{len(data)}"
        )


def _end(data: bytes, first: int, last: int, offset: int, what: str) -> int:
    """Where the name at `offset` of the string table `[first, last)` ends."""
    start = first + offset
    end = data.find(b"\0", start, min(last, start + _LONGEST_NAME + 1)) if start < last else -1
    if end < 0:
        raise BinaryError(
            f"the code object is damaged: the name of {what} does not end within its string "
            f"table and {_LONGEST_NAME} bytes"
        )
    return end


def _text(data: bytes, first: int, last: int, offset: int, what: str) -> str:
    end = _end(data, first, last, offset, what)
    return printable(data[first + offset : end], what)


def printable(raw: bytes | str, what: str) -> str:
    """A name of the file as text. BinaryError when it holds what would steer a terminal.

    Names go into messages, tables and files: no assembler makes one with control characters.
    """
    try:
        text = raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError:
        raise BinaryError(f"the name of {what} is no UTF-8: {raw[:64]!r}") from None
    if not text.isprintable():
        raise BinaryError(f"the name of {what} has characters that cannot be shown: {text!a:.80}")
    if len(text) > _LONGEST_NAME:
        raise BinaryError(f"the name of {what} has {len(text)} characters, over {_LONGEST_NAME}")
    return text


def _metadata(data: bytes, section: Section) -> bytes | None:
    """The description of the last AMDGPU metadata note of a section."""
    found = None
    for name, kind, description in _notes(data, section):
        if name == b"AMDGPU\0" and kind == NT_AMDGPU_METADATA:
            found = description
    return found


def _notes(data: bytes, section: Section) -> Iterator[tuple[bytes, int, bytes]]:
    """(name, type, description) of each note; both parts are padded to 4 bytes."""
    place = section.start
    while place + _NOTE.size <= section.end:
        name, size, kind = _NOTE.unpack_from(data, place)
        start = place + _NOTE.size
        description = start + -(-name // 4) * 4
        place = description + -(-size // 4) * 4
        if description + size > section.end:
            raise BinaryError(
                f"the code object is truncated: a note ends at byte {description + size}, its "
                f"section at {section.end}"
            )
        yield data[start : start + name], kind, data[description : description + size]


def _read_symbols(
    data: bytes,
    table: Section,
    sections: tuple[Section, ...],
    kernels: dict[KernelSymbol, None],
    functions: dict[int, int],
) -> None:
    """Add the defined kernels and functions of a symbol table."""
    if table.link >= len(sections):
        raise BinaryError(f"the code object is damaged: it has no section {table.link} for names")
    first, last = sections[table.link].start, sections[table.link].end
    for place in range(table.start, table.end - _SYMBOL.size + 1, _SYMBOL.size):
        name, info, _, section, address, size = _SYMBOL.unpack_from(data, place)
        if not name or not section:
            continue  # without a name, or undefined
        if info & 0xF == _FUNCTION:
            functions[address] = max(size, functions.get(address, 0))
        end = _end(data, first, last, name, "a symbol")
        if data.endswith(KERNEL_SUFFIX, first + name, end):
            symbol = printable(data[first + name : end], "a kernel")
            kernels[KernelSymbol(symbol, address, size)] = None
