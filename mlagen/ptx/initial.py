"""Initial values of variables: numbers, nested braces, addresses of other symbols."""

from __future__ import annotations

import math
import re
import struct

from mlagen.ptx.operands import NAME, literal, split
from mlagen.ptx.syntax import Real

_SYMBOL = re.compile(rf"(?:generic\s*\(\s*)?({NAME})\s*\)?\s*(?:([+-])\s*(\d+))?\s*\)?$")
_DEPTH = 8
_MOST = 1 << 24  # bytes that one variable's values may reach

Relocation = tuple[int, str, int]


def initial(
    text: str, kind: str, element: int, shape: tuple[int, ...]
) -> tuple[bytes, tuple[Relocation, ...]]:
    """The first bytes that `text` gives to an array of `shape` elements of `element` bytes, and
    the addresses among them. Extent 0 in the first place is as long as its values. ValueError
    where the text does not fit."""
    values = _Values(kind, element)
    values.read(text.strip(), shape, 0, 0)
    return values.joined(), tuple(values.relocations)


class _Values:
    """Bytes on their way."""

    def __init__(self, kind: str, element: int) -> None:
        self._kind, self._element = kind, element
        self._pieces: list[tuple[int, bytes]] = []
        self._end = 0
        self.relocations: list[Relocation] = []

    def joined(self) -> bytes:
        """All of them, zeros between."""
        held = bytearray(self._end)
        for at, piece in self._pieces:
            held[at : at + len(piece)] = piece
        return bytes(held)

    def read(self, text: str, shape: tuple[int, ...], at: int, depth: int) -> None:
        """What `text` says, at byte `at`."""
        if depth > _DEPTH:
            raise RecursionError
        if not text.startswith("{"):
            self._put(text, at)
            return
        if not text.endswith("}") or not shape:
            raise ValueError("braces that do not fit")
        inner = text[1:-1].strip()
        items = split(inner) if inner else []
        if items and not items[-1]:
            items.pop()
        nested = any(item.startswith("{") for item in items)
        step = self._element * (math.prod(shape[1:]) if nested else 1)
        room = shape[0] if nested else math.prod(shape)
        if room and len(items) > room:
            raise ValueError("more values than elements")
        for index, item in enumerate(items):
            self.read(item, shape[1:] if nested else (), at + index * step, depth + 1)

    def _put(self, text: str, at: int) -> None:
        value = literal(text)
        if value is None:
            piece = self._address(text, at)
        elif self._kind in _FLOATS:
            piece = _real(value, self._kind)
        elif isinstance(value, int):
            piece = (value & ((1 << 8 * self._element) - 1)).to_bytes(self._element, "little")
        else:
            raise ValueError("a real number in an integer")
        self._end = max(self._end, at + len(piece))
        if self._end > _MOST:
            raise ValueError("more initial bytes than are read")
        self._pieces.append((at, piece))

    def _address(self, text: str, at: int) -> bytes:
        match = _SYMBOL.match(text)
        if not match or self._element < 4:
            raise ValueError(f"no initial value: {text}")
        name, sign, offset = match.groups()
        added = int(offset or 0)
        self.relocations.append((at, name, -added if sign == "-" else added))
        return bytes(self._element)


_FLOATS = {"f32": ("<f", 32), "f64": ("<d", 64)}


def _real(value: int | Real, kind: str) -> bytes:
    code, width = _FLOATS[kind]
    if isinstance(value, Real) and value.width == width:
        return value.bits.to_bytes(width // 8, "little")
    return struct.pack(code, value if isinstance(value, int) else value.value)
