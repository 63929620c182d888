"""What a cubin says its kernel takes: registers, parameters, shared memory, barriers, stack.

ptxas writes this down for the driver in `.nv.info` sections, as a list of attributes: a byte for
the form, one for the attribute, and two that hold a value or the size of what follows. NVIDIA
documents neither; nvdisasm prints their names (EIATTR_REGCOUNT, EIATTR_KPARAM_INFO, …), and a test
holds these numbers against it.

A file from a stranger may claim anything: all places are checked to lie in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mlagen.errors import BinaryError

_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_ELF, _CUDA = b"\x7fELF\x02\x01", 190  # 64 bits, little-endian; EM_CUDA
_SYMBOLS, _NOBITS = 2, 8  # SHT_SYMTAB, SHT_NOBITS
_BYTE, _SHORT, _SIZED = 2, 3, 4  # forms of an attribute
_FRAME, _PARAMETER, _PARAMETERS, _REGISTERS, _BARRIERS = 0x11, 0x17, 0x19, 0x2F, 0x4C
_MOST = 1 << 16  # attributes of a section that are read


@dataclass(frozen=True, slots=True)
class CubinFacts:
    """Of one kernel. `parameters`: (offset, bytes) of each, in order; `static_bytes`: of shared
    memory, what the system keeps for itself included; `barriers`: named ones, 0 where not told."""

    registers: int
    parameters: tuple[tuple[int, int], ...]
    parameter_bytes: int
    static_bytes: int
    barriers: int
    stack_bytes: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    start: int
    size: int


def read_cubin(data: bytes, kernel: str) -> CubinFacts:
    """What the cubin says of `kernel`. BinaryError: no cubin, a damaged one, or no such kernel."""
    try:
        sections = list(_sections(data))
        own = next((x for x in sections if x.name == f".nv.info.{kernel}"), None)
        shared = next((x for x in sections if x.name == ".nv.info"), None)
        if own is None or shared is None:
            raise BinaryError(f"the cubin says nothing of a kernel {kernel}")
        number = _symbol(data, sections, kernel)
        smem = next((x.size for x in sections if x.name == f".nv.shared.{kernel}"), 0)
        parameters: dict[int, tuple[int, int]] = {}
        total = barriers = registers = stack = 0
        for attribute, value, body in _attributes(data, own):
            if attribute == _PARAMETER:
                _, ordinal, offset, rest = struct.unpack_from("<IHHI", body)
                parameters[ordinal] = offset, rest >> 18
            elif attribute == _PARAMETERS:
                total = value
            elif attribute == _BARRIERS:
                barriers = value
        for attribute, _, body in _attributes(data, shared):
            if attribute in (_REGISTERS, _FRAME) and len(body) >= 8:
                symbol, count = struct.unpack_from("<II", body)
                if symbol == number and attribute == _REGISTERS:
                    registers = count
                elif symbol == number:
                    stack = count
    except (struct.error, ValueError, IndexError) as error:
        raise BinaryError(f"the cubin is damaged: {error}") from None
    ordered = tuple(parameters[ordinal] for ordinal in sorted(parameters))
    return CubinFacts(registers, ordered, total, smem, barriers, stack)


def _sections(data: bytes) -> Iterator[_Section]:
    if data[:6] != _ELF or struct.unpack_from("<H", data, 18)[0] != _CUDA:
        raise BinaryError("no cubin: it is no ELF file of CUDA")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if size != _HEADER.size or table + size * count > len(data) or names >= count:
        raise BinaryError("the cubin is damaged: its section headers do not lie in it")
    headers = [_HEADER.unpack_from(data, table + size * number) for number in range(count)]
    text = headers[names]
    for header in headers:
        start, length = header[4] if header[1] != _NOBITS else 0, header[5]
        if header[1] != _NOBITS and start + length > len(data):
            raise BinaryError("the cubin is damaged: a section does not lie in it")
        place = text[4] + header[0]
        end = data.index(b"\0", place, text[4] + text[5]) if header[0] < text[5] else place
        yield _Section(data[place:end].decode(), header[1], start, length)


def _symbol(data: bytes, sections: list[_Section], kernel: str) -> int:
    """The number of the kernel's symbol."""
    table = next((x for x in sections if x.kind == _SYMBOLS), None)
    names = next((x for x in sections if x.name == ".strtab"), None)
    if table is None or names is None:
        raise BinaryError("the cubin has no symbols")
    wanted = kernel.encode() + b"\0"
    for number in range(table.size // _SYMBOL.size):
        name, info, *_ = _SYMBOL.unpack_from(data, table.start + number * _SYMBOL.size)
        place = names.start + name
        if info & 15 == 2 and data[place : place + len(wanted)] == wanted:
            return number
    raise BinaryError(f"the cubin has no symbol {kernel}")


def _attributes(data: bytes, section: _Section) -> Iterator[tuple[int, int, bytes]]:
    """(attribute, its value, the bytes of a sized one)."""
    at, end = section.start, section.start + section.size
    for _ in range(_MOST):
        if at + 4 > end:
            return
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if at + value > end:
                raise BinaryError("the cubin is damaged: an attribute does not lie in its section")
            yield attribute, 0, data[at : at + value]
            at += value
        else:
            yield attribute, value & 0xFF if form == _BYTE else value, b""
