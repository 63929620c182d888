"""The ELF container of a gfx950 code object: sections, symbols and the metadata note, as bytes.

Reading goes through pyelftools; every way a foreign or damaged file can fail ends in one
`BinaryError`. Facts: AMDGPU ELF header, note type 32 and symbol conventions (LLVM AMDGPUUsage).
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from mlagen.errors import BinaryError
from mlagen.targets import GFX950

EM_AMDGPU = 224  # ELF e_machine (LLVM AMDGPUUsage)
NT_AMDGPU_METADATA = 32  # note holding the msgpack metadata (LLVM AMDGPUUsage)
DESCRIPTOR_BYTES = 64  # kernel descriptor (LLVM AMDGPUUsage)


@dataclass(frozen=True, slots=True)
class Symbol:
    """One defined symbol: `address` is virtual, `size` in bytes (0 when left out)."""

    name: str
    address: int
    size: int
    kind: str


@dataclass(frozen=True)
class ElfImage:
    """What the rest of the reader needs: bytes by virtual address, symbols, note, line program."""

    data: bytes
    text: bytes
    text_address: int
    segments: tuple[tuple[int, bytes], ...]
    symbols: tuple[Symbol, ...]
    metadata: bytes | None
    flags: int

    def read(self, address: int, size: int, what: str) -> bytes:
        """`size` bytes at a virtual address; BinaryError when no section holds them."""
        for base, content in self.segments:
            if base <= address and address + size <= base + len(content):
                return content[address - base : address - base + size]
        raise BinaryError(
            f"{what} at address {address:#x} ({size} bytes) lies outside the sections of the file",
            hint="the file is truncated or was not linked: pass the linked code object",
        )


def read_elf(data: bytes) -> ElfImage:
    """Parse the container. Raises BinaryError for anything that is not a whole gfx950 object."""
    if data[:4] != b"\x7fELF":
        raise BinaryError(
            "not a code object: the file does not start with the ELF magic",
            hint="pass the linked .co file that the assembler and linker made for gfx950",
        )
    try:
        return _read(data)
    except BinaryError:
        raise
    except (ELFError, ValueError, KeyError, IndexError, AttributeError, TypeError, OSError) as why:
        raise BinaryError(
            f"the code object cannot be read: {type(why).__name__}: {why}",
            hint="the file is truncated or damaged: build or fetch it again",
        ) from None
    except (AssertionError, MemoryError, OverflowError, RecursionError) as why:
        raise BinaryError(f"the code object is damaged: {type(why).__name__}") from None


def _read(data: bytes) -> ElfImage:
    elf = ELFFile(io.BytesIO(data))
    if elf.elfclass != 64 or not elf.little_endian:
        raise BinaryError("not an AMDGPU code object: the file is not a 64-bit little-endian ELF")
    header = elf.header
    machine = header["e_machine"]
    if machine not in ("EM_AMDGPU", EM_AMDGPU):
        raise BinaryError(
            f"not an AMDGPU code object: the ELF machine is {machine}",
            hint="gfx950 code objects are made with --target=amdgcn-amd-amdhsa -mcpu=gfx950",
        )
    flags = int(header["e_flags"])
    mach = flags & 0xFF
    if mach != GFX950.elf_machine_flags:
        raise BinaryError(
            f"the code object is for another target: EF_AMDGPU_MACH is {mach:#04x}, "
            f"gfx950 is {GFX950.elf_machine_flags:#04x}",
            hint="rebuild it with -mcpu=gfx950",
        )
    if header["e_type"] != "ET_DYN":
        raise BinaryError(
            f"the code object is not linked (ELF type {header['e_type']})",
            hint="link it with ld.lld -shared",
        )
    end_of_headers = header["e_shoff"] + header["e_shnum"] * header["e_shentsize"]
    if header["e_shnum"] == 0 or end_of_headers > len(data):
        raise BinaryError(
            f"the code object is truncated: its section headers end at byte {end_of_headers}, "
            f"the file has {len(data)}"
        )
    text = b""
    text_address = 0
    segments: list[tuple[int, bytes]] = []
    symbols: dict[tuple[str, int], Symbol] = {}
    metadata: bytes | None = None
    sections: Iterable[Any] = elf.iter_sections()
    for section in sections:
        if section["sh_type"] == "SHT_NOBITS":
            continue
        offset, size = section["sh_offset"], section["sh_size"]
        if offset + size > len(data):
            raise BinaryError(
                f"the code object is truncated: section {section.name or '?'} ends at byte "
                f"{offset + size}, the file has {len(data)}"
            )
        content = data[offset : offset + size]
        if section["sh_addr"]:
            segments.append((section["sh_addr"], content))
        if section.name == ".text":
            text, text_address = content, section["sh_addr"]
        if section["sh_type"] == "SHT_NOTE":
            for note in section.iter_notes():
                is_metadata = note["n_type"] in (NT_AMDGPU_METADATA, "NT_AMDGPU_METADATA")
                if note["n_name"] == "AMDGPU" and is_metadata:
                    metadata = bytes(note["n_descdata"])
        if section["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM"):
            for symbol in section.iter_symbols():
                if symbol.name and symbol["st_shndx"] != "SHN_UNDEF":
                    item = Symbol(
                        symbol.name,
                        int(symbol["st_value"]),
                        int(symbol["st_size"]),
                        str(symbol["st_info"]["type"]),
                    )
                    symbols[item.name, item.address] = item
    if not text:
        raise BinaryError("the code object has no .text section, or an empty one")
    return ElfImage(
        data, text, text_address, tuple(segments), tuple(symbols.values()), metadata, flags
    )
