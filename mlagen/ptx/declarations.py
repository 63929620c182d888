"""Variables, parameters and registers that a text declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from mlagen.errors import UnsupportedError
from mlagen.ptx.initial import initial
from mlagen.ptx.operands import NAME, number, split
from mlagen.ptx.scopes import RegisterType
from mlagen.ptx.syntax import Parameter, Variable

LINE_DIRECTIVE = re.compile(r"\.(loc|file|version|target|address_size)\b[^\n]*")
VARIABLES = 4_000  # of a file, and of an entry, at most
REGISTERS = 1 << 20  # of a range
# Bytes of the types that declarations take (PTX ISA 9.0, 5.2); handles are opaque.
BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "b128": 16, "f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "tf32": 4, "f32": 4, "f64": 8,
    "e4m3": 1, "e5m2": 1, "e4m3x2": 2, "e5m2x2": 2, "texref": 8, "samplerref": 8, "surfref": 8,
}  # fmt: skip
_REGISTER = re.compile(r"\.reg\s*(?:\.v([24])\s*)?\.(\w+)(?:\s*\.v([24]))?\s+(?=[\w$%])")
_DECLARED = re.compile(rf"({NAME})(?:\s*<\s*(\d+)\s*>)?$")
_LINKING = re.compile(
    r"(?:\.(?:visible|weak|common)\s+)*+(\.extern\s+)?(?:\.(?:visible|weak)\s+)*+"
)
_VARIABLE = re.compile(
    r"\.(shared|local|const|global|param)(?:::cta)?\b"
    r"(?:\s*\.attribute\s*\((?:[^()]|\([^()]*+\))*+\))?+"
    r"(?:\s*\.align\s+(\d+)\b)?\s*(?:\.v([248])\b)?\s*\.(\w+)\s+"
    rf"({NAME})((?:\s*+\[\s*+\w*+\s*+\])*+)\s*(=?)"
)
_PARAMETER = re.compile(
    r"\.param\b\s*(?:\.align\s+(\d+)\b)?\s*(?:\.v([248])\b)?\s*\.(\w+)\b"
    r"(?:\s*(\.ptr)\b(?:\s*\.(global|shared|local|const|generic)\b)?(?:\s*\.align\s+\d+\b)?)?"
    rf"(?:\s*\.align\s+(\d+)\b)?\s*({NAME})\s*(?:\[\s*(\w*)\s*\])?\s*$"
)
_BITS = 64  # of a size
_ALIGN = 1 << 16  # bytes


def registers(statement: str) -> list[tuple[str, RegisterType, int | None]]:
    """The names of a `.reg`, their type, and how many a range has."""
    statement = " ".join(statement.split())  # the patterns meet no runs of blanks
    match = _REGISTER.match(statement)
    if not match or not (match.group(2) == "pred" or match.group(2) in BYTES):
        raise ValueError("no registers")
    width = int(match.group(1) or match.group(3) or 0)
    kind = RegisterType(match.group(2), width)
    found = []
    for text in split(statement[match.end() :]):
        declared = _DECLARED.match(text)
        if not declared:
            raise ValueError(f"no register: {text}")
        name, count = declared.groups()
        if count and len(count) > 9:
            raise ValueError("a range that no register file has")
        found.append((name, kind, int(count) if count else None))
    return found


def variables(statement: str, line: int, bare: Callable[[str], str] = str) -> list[Variable]:
    """The variables that a statement declares. `bare` gives their unique names. ValueError where
    it declares none."""
    statement = " ".join(statement.split())
    linking = _LINKING.match(statement)
    start = linking.end() if linking else 0
    match = _VARIABLE.match(statement, start)
    if not match:
        raise ValueError("no declaration")
    space, align, vector, kind, name, dims, value = match.groups()
    lanes = int(vector or 1)
    extents = [number(e) if e else 0 for e in re.findall(r"\[\s*+(\w*+)", dims)]
    size = _size(name, BYTES[kind] * lanes, extents, line)
    aligned = _aligned(align, BYTES[kind] * lanes, line)
    first = Variable(
        space, bare(name), size, aligned, line, kind,
        extern=bool(linking and linking.group(1)),
    )  # fmt: skip
    rest = statement[match.end() :].strip()
    if not value:
        if not rest:
            return [first]
        if rest[0] != ",":
            raise ValueError("more than a declaration")
        more = split(rest[1:])
        head = statement[start : match.start(5)]
        return [first, *(v for text in more for v in variables(f"{head}{text}", line, bare))]
    shape = (*extents, lanes) if lanes > 1 else tuple(extents)
    data, relocations = initial(rest, kind, BYTES[kind], shape)
    return [
        replace(first, size=size or _whole(len(data), BYTES[kind], shape), initial=data,
                relocations=relocations)
    ]  # fmt: skip


def parameter(text: str, line: int) -> Parameter:
    """One parameter of a list. ValueError where it is none."""
    text = " ".join(text.split())
    if text.startswith(".reg"):
        ((name, register, count),) = registers(text)
        if count is not None or register.width:
            raise ValueError("no parameter")
        size = BYTES.get(register.name, 1)
        return Parameter(name, size, line, register.name, size, space="reg")
    match = _PARAMETER.match(text)
    if not match:
        raise ValueError("no parameter")
    before, vector, kind, pointer, space, after, name, extent = match.groups()
    element = BYTES[kind] * int(vector or 1)
    size = _size(name, element, [number(extent) if extent else 0] if extent is not None else [],
                 line)  # fmt: skip
    aligned = _aligned(before or after, element, line)
    told = (space or "generic") if pointer else ""
    return Parameter(name, size, line, kind, aligned, told)


def _size(name: str, size: int, extents: list[int], line: int) -> int:
    for extent in extents:
        size *= extent
        if size.bit_length() > _BITS:
            raise UnsupportedError(f"line {line}: {name[:60]} has 2^{_BITS} bytes and more")
    return size


def _aligned(align: str | None, natural: int, line: int) -> int:
    aligned = int(align or natural)
    if not 1 <= aligned <= _ALIGN:
        raise UnsupportedError(f"line {line}: .align {aligned}; it is 1 to {_ALIGN}")
    return aligned


def _whole(size: int, element: int, shape: tuple[int, ...]) -> int:
    """Bytes of `x[] = {…}`: whole rows."""
    row = element
    for extent in shape[1:]:
        row *= extent
    return -(-size // row) * row if row else 0
