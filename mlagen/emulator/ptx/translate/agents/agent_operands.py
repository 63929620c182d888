"""Operands of agents' instructions in a row's list, and their modifiers."""

from __future__ import annotations

from collections.abc import Container, Iterable

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import SPECIALS, OperandError, Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Address, MemoryOperand, Operand, Real

SHARED = ("shared", "shared::cta", "shared::cluster")
_FURTHEST = 1 << 32  # offsets from a register or a variable
_WINDOWS = {"param": y.GENERIC_PARAM, "const": y.GENERIC_CONST, "global": 0, "local": None}


def number(value: int) -> list[int]:
    """The words of a number that all lanes have: its low 64 bits."""
    low = value & (1 << 64) - 1
    return [low - (1 << 64) if low >> 63 else low, 0, 0]


def operand(t: Translator, value: Operand) -> list[int]:
    """The words of a register, a number, an address, or a variable's generic address."""
    if isinstance(value, MemoryOperand):
        if value.base == "":
            return number(value.offset)
        return _based(t, value.base, value.offset)
    if isinstance(value, Address):
        return _based(t, value.symbol, value.offset)
    if isinstance(value, int):
        return number(value)
    if isinstance(value, Real):
        return number(value.bits)
    if isinstance(value, str):
        return _based(t, value, 0)
    raise OperandError(f"{value!r} is no operand here")


def _based(t: Translator, name: str, offset: int) -> list[int]:
    if abs(offset) >= _FURTHEST:
        raise OperandError(f"an offset of {offset}: it has 32 bits")
    if name in t.places:
        width = t.width(name)
        if width not in (16, 32, 64):
            raise OperandError(f"{name} has {width} bits")
        return [t.places[name], 64 if width == 64 else 32, offset]
    if name in t.symbols:
        space, at = t.symbols[name]
        if space == "shared":
            return [t.symbol(name, 64), 64, offset]
        window = _WINDOWS[space]
        if window is None:
            raise OperandError(f"{name} is in .{space}")
        return number(window + at + offset)
    if name.startswith("%"):
        return [t.special(name), SPECIALS[name], offset]
    raise OperandError(f"{name} is neither a register nor a variable")


def operands(t: Translator, values: Iterable[Operand]) -> list[int]:
    """The words of several."""
    return [word for value in values for word in operand(t, value)]


def known(i: Instruction, allowed: Container[str], start: int = 1) -> None:
    """Refuse an opcode with a part that is not among `allowed`."""
    for part in i.parts[start:]:
        if part not in allowed:
            raise not_modelled(i, f".{part}")


def counted(i: Instruction, least: int, most: int) -> None:
    """Refuse another number of operands."""
    if not least <= len(i.operands) <= most:
        raise not_modelled(i, f"{len(i.operands)} operands")
