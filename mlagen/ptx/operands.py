"""Operands of an instruction: names, numbers, vectors and addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from mlagen.ptx.syntax import Address, MemoryOperand, Operand, Real, Vector

NAME = r"(?:[A-Za-z_$%][\w$]*)"
_NUMBER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|([0-9]+))[uU]?$")
_BITS = re.compile(r"([+-]?)0(?:[fF]([0-9a-fA-F]{8})|[dD]([0-9a-fA-F]{16}))$")
_DECIMAL = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+$", re.ASCII)
_NAMED = re.compile(rf"!?\s*{NAME}(?:\.\w+)?$")
_SUM = re.compile(rf"({NAME}(?:\.\w+)?)\s*([+-])\s*(-?\w+)$")
_BRACKET = re.compile(r"[{}()\[\],]")
_CLOSING = {"{": "}", "(": ")", "[": "]"}
_DEPTH = 4  # of brackets; a matrix in an address is 2
_LANES = 32

Resolve = Callable[[str], Operand]  # a name as the entry has it


def operand(text: str, resolve: Resolve, depth: int = 0) -> Operand:
    """What `text` says. Raises ValueError where it is no operand, RecursionError for too many
    brackets in each other."""
    if depth > _DEPTH:
        raise RecursionError
    first = text[:1]
    if first in _CLOSING:
        return _bracketed(text, resolve, depth)
    if first == "%" or first == "$" or first == "_" or first == "!" or first.isalpha():
        return _name(text, resolve, depth)
    found = literal(text)
    if found is None:
        raise ValueError(f"no operand: {text}")
    return found


def literal(text: str) -> int | Real | None:
    """A number, or None."""
    if _NUMBER.match(text):
        return number(text)
    if match := _BITS.match(text):
        sign, single, double = match.groups()
        width, bits = (32, int(single, 16)) if single else (64, int(double, 16))
        return Real(bits ^ ((sign == "-") << width - 1), width)
    if _DECIMAL.match(text):
        return Real(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
    return None


def number(text: str) -> int:
    """An integer of any base that PTX has. Raises ValueError."""
    match = _NUMBER.match(text)
    if not match:
        raise ValueError(f"no number: {text}")
    sign, hexadecimal, binary, plain = match.groups()
    if hexadecimal:
        found = int(hexadecimal, 16)
    elif binary:
        found = int(binary, 2)
    else:
        found = int(plain, 8 if plain[0] == "0" else 10)
    return -found if sign == "-" else found


def split(text: str) -> list[str]:
    """Comma-separated parts without their blanks; commas inside brackets do not split. Raises
    ValueError where brackets do not match."""
    if "{" not in text and "[" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")]
    parts, start = [], 0
    open_: list[str] = []
    for match in _BRACKET.finditer(text):
        char = match.group()
        if char in _CLOSING:
            open_.append(_CLOSING[char])
        elif char != ",":
            if not open_ or open_.pop() != char:
                raise ValueError("brackets that do not match")
        elif not open_:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    if open_:
        raise ValueError("brackets that do not match")
    parts.append(text[start:].strip())
    return parts


def _name(text: str, resolve: Resolve, depth: int) -> Operand:
    if _NAMED.match(text):
        if text == "WARP_SZ":
            return _LANES
        if text[0] != "!":
            return resolve(text)
        found = resolve(text[1:].lstrip())
        if not isinstance(found, str):
            raise ValueError("a vector is not negated")
        return f"!{found}"
    if "|" in text:
        return Vector(tuple(operand(x.strip(), resolve, depth + 1) for x in text.split("|")))
    match = _SUM.match(text)
    if not match:
        raise ValueError(f"no operand: {text}")
    return Address(*_sum(match, resolve))


def _bracketed(text: str, resolve: Resolve, depth: int) -> Operand:
    if text[0] == "[":
        return _memory(text, resolve, depth)
    if text[-1] != _CLOSING[text[0]]:
        raise ValueError(f"no operand: {text}")
    inner = text[1:-1].strip()
    items = split(inner) if inner else []
    return Vector(tuple(operand(item, resolve, depth + 1) for item in items))


def _memory(text: str, resolve: Resolve, depth: int) -> MemoryOperand:
    text = text.removesuffix(".unified").rstrip()
    if text[-1] != "]":
        raise ValueError(f"no address: {text}")
    inner = split(text[1:-1].strip())
    more = [operand(item, resolve, depth + 1) for item in inner[1:]]
    base, offset = _address(inner[0], resolve)
    return MemoryOperand(base, offset, tuple(x for item in more for x in _flat(item)))


def _flat(item: Operand) -> tuple[Operand, ...]:
    return item.items if isinstance(item, Vector) else (item,)


def _address(text: str, resolve: Resolve) -> tuple[str, int]:
    if match := _SUM.match(text):
        return _sum(match, resolve)
    if _NUMBER.match(text):
        return "", number(text)
    if text[:1] == "!" or not _NAMED.match(text):
        raise ValueError(f"no address: {text}")
    return _single(text, resolve), 0


def _sum(match: re.Match[str], resolve: Resolve) -> tuple[str, int]:
    name, sign, offset = match.groups()
    value = number(offset)
    return _single(name, resolve), -value if sign == "-" else value


def _single(name: str, resolve: Resolve) -> str:
    found = resolve(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is a vector")
    return found
