"""Operands of decoded instructions as plain values, and how they are numbered and named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OperandKind = Literal["v", "a", "s", "inline", "literal", "off"]

# Scalar operand numbers as encoded (CDNA4 ISA guide, scalar operand table).
VCC, M0, EXEC = 106, 124, 126
SCC = 128  # no encoding of its own; the first number after the addressable scalars
HARDWARE = 129  # the 64 registers of s_getreg and s_setreg follow
F64_PIPE = 193  # no register: what products of f64 leave to a fused sum of f64
SCALARS = 194  # size of the scalar number space, SCC and all that is no register included

_INLINE_FLOATS = {  # operand code: (text, f32 bits) (CDNA4 ISA guide, scalar operand table)
    240: ("0.5", 0x3F000000),
    241: ("-0.5", 0xBF000000),
    242: ("1.0", 0x3F800000),
    243: ("-1.0", 0xBF800000),
    244: ("2.0", 0x40000000),
    245: ("-2.0", 0xC0000000),
    246: ("4.0", 0x40800000),
    247: ("-4.0", 0xC0800000),
    248: ("0.15915494", 0x3E22F983),
}
_SCALAR_NAMES = {
    102: "flat_scratch_lo",
    103: "flat_scratch_hi",
    104: "xnack_mask_lo",
    105: "xnack_mask_hi",
    106: "vcc_lo",
    107: "vcc_hi",
    124: "m0",
    126: "exec_lo",
    127: "exec_hi",
    128: "scc",
}
_SCALAR_PAIRS = {102: "flat_scratch", 104: "xnack_mask", 106: "vcc", 126: "exec"}


def words(text: str) -> tuple[str, ...]:
    """The words of a table written as text."""
    return tuple(text.split())


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand. `index` is a register number, an operand code (`inline`) or 32 bits (`literal`).

    `count` is its width in dwords. Registers of kind "a" are numbered from a0; their physical
    number is the kernel's accum_offset + index.
    """

    kind: OperandKind
    index: int
    count: int = 1

    @property
    def is_register(self) -> bool:
        return self.kind in ("v", "a", "s")

    @property
    def bits(self) -> int:
        """The 32-bit pattern of a constant (of its low dword when it is wider)."""
        if self.kind == "literal":
            return self.index
        if 128 <= self.index <= 192:
            return self.index - 128
        if 193 <= self.index <= 208:
            return (192 - self.index) & 0xFFFFFFFF
        return _INLINE_FLOATS[self.index][1]

    @property
    def is_float_constant(self) -> bool:
        return self.kind == "inline" and self.index in _INLINE_FLOATS

    def __str__(self) -> str:
        if self.kind == "off":
            return "off"
        if self.kind == "literal":
            return f"{self.index:#x}"
        if self.kind == "inline":
            if self.index in _INLINE_FLOATS:
                return _INLINE_FLOATS[self.index][0]
            value = self.bits
            return str(value if value < 0x80000000 else value - (1 << 32))
        return register_name(self.kind, self.index, self.count)


def register_name(kind: str, index: int, count: int = 1) -> str:
    """`v7`, `v[4:7]`, `s[2:3]`, `vcc`, `exec_lo` … as the assembler writes them."""
    if kind == "s" and index >= 102:
        if 108 <= index < 124:
            kind, index = "ttmp", index - 108
        elif count == 2 and index in _SCALAR_PAIRS:
            return _SCALAR_PAIRS[index]
        else:
            return _SCALAR_NAMES.get(index, f"scalar{index}")
    if count == 1:
        return f"{kind}{index}"
    return f"{kind}[{index}:{index + count - 1}]"


@dataclass(frozen=True, slots=True)
class OperandForm:
    """What an encoding says, wherever it lies.

    `mnemonic`: the assembler's, without the _e32 / _e64 suffix. `encoding`: the format that was
    matched (VOP2, VOP3, MUBUF, …; with _DPP or _SDWA). `operands`: (field name, operand),
    destinations first. `modifiers`: every other field that is not zero, by its name in the ISA's
    microcode format.
    """

    mnemonic: str
    encoding: str
    operands: tuple[tuple[str, Operand], ...]
    modifiers: tuple[tuple[str, int], ...]

    def operand(self, name: str) -> Operand | None:
        for field, operand in self.operands:
            if field == name:
                return operand
        return None

    def modifier(self, name: str, default: int = 0) -> int:
        for field, value in self.modifiers:
            if field == name:
                return value
        return default
