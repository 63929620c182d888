"""Variables and parameters that a text declares."""

from __future__ import annotations

import re
from collections.abc import Callable

from mlagen.errors import UnsupportedError
from mlagen.ptx.syntax import Parameter, Variable

NAME = r"[A-Za-z_$%][\w$]*"
LINE_DIRECTIVE = re.compile(r"\.(loc|file|version|target|address_size)\b[^\n]*")
VARIABLES = 4_000  # of a file, and of an entry, at most
_VARIABLE = re.compile(
    rf"\.(shared|local|const|global)\s+(?:\.align\s+(\d+)\s+)?(?:\.v(\d)\s+)?\.\w(\d+)\s+"
    rf"({NAME})((?:\s*+\[\s*+\w*+\s*+\])*+)"
)
_PARAMETER = re.compile(
    rf"\.param\s+(?:\.align\s+\d+\s+)?\.\w(\d+)\s+(?:\.ptr\b[^,\[]{{0,80}}?\s)?({NAME})\s*(?:\[\s*(\d+)\s*\])?"
)
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}  # of a type's bits
_BITS = 64  # of a size
_ALIGN = 1 << 16  # bytes


def variables(statement: str, line: int) -> list[Variable]:
    """The variable that a statement declares, if it does."""
    match = _VARIABLE.search(statement)
    if not match:
        return []
    space, align, vector, bits, name, dims = match.groups()
    size = _BYTES[bits] * int(vector or 1)
    for extent in re.findall(r"\[\s*+(\w*+)", dims):
        size *= int(extent, 0) if extent else 0
        if size.bit_length() > _BITS:
            raise UnsupportedError(f"line {line}: {name[:60]} has 2^{_BITS} bytes and more")
    aligned = int(align or _BYTES[bits])
    if not 1 <= aligned <= _ALIGN:
        raise UnsupportedError(f"line {line}: .align {aligned}; it is 1 to {_ALIGN}")
    return [Variable(space, name, size, aligned, line)]


def parameters(head: str, line: Callable[[int], int]) -> tuple[Parameter, ...]:
    """The parameters of an entry's head; `line` tells the line of a position in it."""
    return tuple(
        Parameter(m.group(2), _BYTES[m.group(1)] * int(m.group(3) or 1), line(m.start()))
        for m in _PARAMETER.finditer(head)
    )
