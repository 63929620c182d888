"""The modifiers of loads, stores and atomics, and their addresses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.translate.rows import Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import Address, MemoryOperand, Operand, Real, Vector

SPACES = {
    "global": z.GLOBAL,
    "shared": z.SHARED_CTA,
    "shared::cta": z.SHARED_CTA,
    "shared::cluster": z.SHARED_CLUSTER,
    "local": z.LOCAL,
    "param": z.PARAM,
    "param::entry": z.PARAM,
    "param::func": z.PARAM,
    "const": z.CONST,
}
_SYMBOLS = {
    "global": z.GLOBAL,
    "shared": z.SHARED_CTA,
    "local": z.LOCAL,
    "param": z.PARAM,
    "const": z.CONST,
}
_SCOPES = ("cta", "cluster", "gpu", "sys")
_ORDERS = {
    "weak": 0,
    "volatile": z.STRONG,
    "mmio": z.STRONG,
    "relaxed": z.STRONG,
    "acquire": z.STRONG | z.ACQUIRE,
    "release": z.STRONG | z.RELEASE,
    "acq_rel": z.STRONG | z.ACQUIRE | z.RELEASE,
}
_TYPE = re.compile(r"([busf]|bf)(8|16|32|64|128)(x2)?$")
_EVICTION = r"evict_(?:normal|unchanged|first|last)"
_HINT = re.compile(
    rf"L1::(?:{_EVICTION}|no_allocate)$|L2::(?:{_EVICTION}|cache_hint|64B|128B|256B)$"
)
_FURTHEST = 1 << 32  # offsets from a register or a variable
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


@dataclass(frozen=True)
class Words:
    """What the modifiers of an access say. `type`: "f32"; `bytes`: of an item; `items`: of a
    vector; `left`: modifiers that only the instruction itself has."""

    space: int
    type: str
    bytes: int
    items: int
    flags: int
    hinted: bool  # there is an operand with a cache policy
    left: tuple[str, ...]


def words(i: Instruction, own: Collection[str], orders: Collection[str]) -> Words:
    """The modifiers of an instruction. `own`: those of its class alone; `orders`: of those of
    memory order, what it may have. Refuses what is none of these."""
    space, type_, bits, items, flags = z.GENERIC, "", 0, 1, 0
    left, seen = [], set()
    for part in i.parts[1:]:
        if part in SPACES:
            what, space = "a state space", SPACES[part]
        elif part in _SCOPES:
            what = "a scope"
        elif part in _ORDERS and part in orders:
            what, flags = part if part == "mmio" else "an order", flags | _ORDERS[part]
        elif part in _VECTORS:
            what, items = "a vector", _VECTORS[part]
        elif match := _TYPE.match(part):
            what, type_ = "a type", part
            bits = int(match[2]) * (2 if match[3] else 1)
        elif _HINT.match(part):
            what = part
        elif part in own:
            what = part
            left.append(part)
        else:
            raise not_modelled(i, f".{part} is no modifier of it that is known")
        if what in seen:
            raise not_modelled(i, f"it has {what} twice")
        seen.add(what)
    if not bits:
        raise not_modelled(i, "it has no type")
    hinted = "L2::cache_hint" in i.parts
    return Words(space, type_, bits // 8, items, flags, hinted, tuple(left))


@dataclass(frozen=True)
class AddressWords:
    """The words of a row that say an address: P_A, P_TYPE, P_TYPE2, P_IMM."""

    a: int
    space: int
    bits: int
    offset: int


def address(t: Translator, i: Instruction, operand: Operand, space: int) -> AddressWords:
    """Where an instruction finds the address `[register+offset]`, `[variable+offset]`, `[number]`
    in a state space. A generic access by a variable's name is one in its own space."""
    if not isinstance(operand, MemoryOperand) or operand.coordinates:
        raise not_modelled(i, "its operand is no address of one lane")
    base, offset = operand.base, operand.offset
    if not base:
        return AddressWords(t.constant(offset & (1 << 64) - 1, 64), space, 64, 0)
    if abs(offset) >= _FURTHEST:
        raise not_modelled(i, f"an offset of {offset}: it has 32 bits")
    if base in t.symbols:
        own = _SYMBOLS[t.symbols[base][0]]
        if (own, space) == (z.LOCAL, z.PARAM):  # a call's parameters are a thread's own
            space = own
        if space not in (z.GENERIC, own) and (own, space) != (z.SHARED_CTA, z.SHARED_CLUSTER):
            raise not_modelled(i, f"{base} lies in .{t.symbols[base][0]}")
        if space == z.GENERIC:
            space = own
        return AddressWords(t.symbol(base, 64, offset), space, 64, 0)
    if base not in t.places:
        raise not_modelled(i, f"{base} is neither a register nor a variable of the kernel")
    bits = t.width(base)
    if bits not in (32, 64):
        raise not_modelled(i, f"{base} is no register of 32 or 64 bits")
    return AddressWords(t.places[base], space, bits, offset)


def register_bits(t: Translator, i: Instruction, name: str, needed: int) -> int:
    """Bits of a register that has to hold `needed`: as many or more, but 128 for 128 alone."""
    bits = t.width(name)
    if bits < needed or (bits == 128) != (needed == 128):
        raise not_modelled(i, f"{name} has {bits} bits, {needed} are asked for")
    return bits


def destination(t: Translator, i: Instruction, operand: Operand, needed: int) -> tuple[int, int]:
    """Place and bits of a register that is written; NONE for the sink."""
    if operand == "_":
        return y.NONE, needed
    if not isinstance(operand, str) or operand not in t.places:
        raise not_modelled(i, f"{operand!r} is no register")
    return t.places[operand], register_bits(t, i, operand, needed)


def source(t: Translator, i: Instruction, operand: Operand, needed: int) -> tuple[int, int]:
    """Place and bits of the row of a register, a number or a variable's address."""
    if isinstance(operand, str) and operand in t.places:
        return t.places[operand], register_bits(t, i, operand, needed)
    name = operand.symbol if isinstance(operand, Address) else operand
    if isinstance(operand, Address) and abs(operand.offset) >= _FURTHEST:
        raise not_modelled(i, f"an offset of {operand.offset}: it has 32 bits")
    if isinstance(name, str):
        if name not in t.symbols:
            raise not_modelled(i, f"{name} is neither a register nor a variable of the kernel")
        if needed not in (32, 64):
            raise not_modelled(i, f"an address has not {needed} bits")
    elif not isinstance(operand, int | Real):
        raise not_modelled(i, "a vector where one value belongs")
    try:
        return t.source(operand, needed), max(needed, 32)
    except (KeyError, OverflowError) as error:
        raise not_modelled(i, f"{operand!r} is no number of {needed} bits") from error


def columns(pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Places and bits of several items as the list of a row has them: first all places."""
    listed = list(pairs)
    return [place for place, _ in listed] + [bits for _, bits in listed]


def operands(i: Instruction, least: int, policy: bool) -> tuple[Operand, ...]:
    """The operands, without the cache policy at the end. Refuses another count than `least`."""
    expected = least + policy
    if len(i.operands) != expected:
        raise not_modelled(i, f"it has {len(i.operands)} operands, not {expected}")
    return i.operands[:least]


def items_of(i: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    """The items of a vector of `count`. One alone may stand in braces too."""
    found: tuple[Operand, ...] = operand.items if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        raise not_modelled(i, f"{len(found)} items in a vector of {count}")
    return found
