"""Rows of a program, and what a translator of instructions uses to make them.

Each module beside this one has `TRANSLATIONS`: from the opcode's name (`"mad"`, `"cp"`), or
its first two words (`"st.async"`), to a function of a `Translator` and an instruction that gives
its `Row`. What is not there is not
modelled, and is refused with its line before anything runs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.errors import UnsupportedError
from mlagen.ptx import Entry, Instruction, Vector
from mlagen.ptx.effects import read, written
from mlagen.ptx.syntax import Address, Operand, Real

_WIDTHS = {"pred": 8, "128": 512, "64": 256}
_FURTHEST = 1 << 32  # offsets from a variable
_AXES = tuple(
    f"%{name}.{axis}"
    for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid",
                 "cluster_nctaid")
    for axis in "xyz"
)  # fmt: skip
# Bits of the special registers whose values are known when a warp begins.
SPECIALS = {
    **dict.fromkeys(_AXES, 32),
    **dict.fromkeys((f"%lanemask_{which}" for which in ("eq", "lt", "le", "gt", "ge")), 32),
    **dict.fromkeys(("%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid"), 32),
    **dict.fromkeys(("%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"), 32),
    **dict.fromkeys(("%dynamic_smem_size", "%total_smem_size"), 32),
    "%gridid": 64,
}


class OperandError(Exception):
    """An operand that an instruction cannot have. `program.translate` tells it with the line."""


def row_bytes(kind: str) -> int:
    """Bytes of a register's row: 32 lanes, 8 and 16 bits in 32; a predicate is one mask."""
    for ending, size in _WIDTHS.items():
        if kind.endswith(ending):
            return size
    return 128


@dataclass
class Row:
    """What one instruction becomes; see the P_ words of `layout`."""

    kind: int
    op: int = 0
    dst: int = y.NONE
    a: int = y.NONE
    b: int = y.NONE
    c: int = y.NONE
    d: int = y.NONE
    dst2: int = y.NONE
    type: int = 0
    type2: int = 0
    flags: int = 0
    immediate: int = 0
    target: int = 0
    items: Sequence[int] = ()
    aux: Sequence[int] = ()  # eight words
    aligned: bool = False


def _shown(operand: Operand) -> str:
    return repr(operand)[:60]


Translation = Callable[["Translator", Instruction], Row]


def not_modelled(instruction: Instruction, why: str = "") -> UnsupportedError:
    """The error for an instruction that the emulator does not execute."""
    shown = instruction.text if len(instruction.text) <= 100 else instruction.text[:97] + "..."
    return UnsupportedError(
        f"line {instruction.line}: the emulator does not model {instruction.opcode}"
        + (f": {why}" if why else ""),
        hint=shown,
    )


@dataclass(frozen=True)
class Special:
    """A register row that is set when a warp begins: a special register, or the address of a
    shared variable (`name` "shared", `value` its offset)."""

    name: str
    place: int
    value: int = 0
    size: int = 128


@dataclass
class Translator:
    """Places of registers and constants of an entry; `symbols`: addresses of variables in the state
    spaces "shared" (offset), "local", "param", "const" and "global"."""

    entry: Entry
    symbols: Mapping[str, tuple[str, int]]
    places: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    specials: dict[str, Special] = field(default_factory=dict)
    bytes: int = 0
    lists: list[int] = field(default_factory=list)
    _hidden: dict[str, int] = field(default_factory=dict)
    _constants: dict[tuple[int, int], int] = field(default_factory=dict)
    _constant_bytes: int = 0

    def __post_init__(self) -> None:
        for number, (name, kind) in enumerate(self.entry.registers.items()):
            self.places[name] = self._room(row_bytes(kind))
            self.numbers[name] = number

    def _room(self, size: int) -> int:
        at, self.bytes = self.bytes, self.bytes + size
        return at

    def kind(self, name: str) -> str:
        """A register's declared type, without the dot. KeyError for what is no register."""
        return self.entry.registers[name]

    def width(self, operand: Operand) -> int:
        """Bits of a register; 64 for anything else."""
        if isinstance(operand, str) and operand in self.places:
            kind = self.kind(operand)
            return 1 if kind == "pred" else int("".join(c for c in kind if c.isdigit()))
        return 64

    def register(self, operand: Operand, bits: int) -> int:
        """The place of a register of that many bits (1: a predicate); NONE for the sink `_`.
        Whoever takes registers of other sizes too looks them up in `places`."""
        if operand == "_":
            return y.NONE
        if not isinstance(operand, str) or operand not in self.places:
            raise OperandError(f"{_shown(operand)} is no register")
        self._check_bits(operand, self.width(operand), bits)
        return self.places[operand]

    def source(self, operand: Operand, bits: int = 32) -> int:
        """The place of a source of that many bits: a register, a constant, a special register or a
        variable's address. Its row is as large as `bits` say: the engine reads no further."""
        if isinstance(operand, str) and operand in self.places:
            return self.register(operand, bits)
        if isinstance(operand, str) and operand.startswith("%"):
            self._check_bits(operand, SPECIALS.get(operand, bits), bits)
            return self.special(operand)
        if isinstance(operand, str) and operand in self.symbols:
            return self.symbol(operand, bits)
        if isinstance(operand, Address):
            return self.symbol(operand.symbol, bits, operand.offset)
        if isinstance(operand, str) and operand == "WARP_SZ":
            return self.constant(y.LANES, bits)
        return self.constant(self.bits_of(operand, bits), bits)

    def _check_bits(self, name: str, have: int, bits: int) -> None:
        if have != bits:
            raise OperandError(f"{name} has {have} bits, not {bits}")

    def bits_of(self, operand: Operand, bits: int) -> int:
        """The bits of an immediate. A decimal literal has 64, and is rounded to fewer."""
        if isinstance(operand, int):
            return operand & ((1 << bits) - 1)
        if not isinstance(operand, Real):
            raise OperandError(f"{_shown(operand)} is neither a register nor a number")
        if operand.width == bits:
            return operand.bits
        form = {16: "e", 32: "f", 64: "d"}[bits]
        return int.from_bytes(struct.pack("<" + form, operand.value), "little")

    def constant(self, value: int, bits: int) -> int:
        """The place of a row that has this number in every lane (`bits` 1: a predicate's mask)."""
        key = value, bits
        if key not in self._constants:
            self._constants[key] = self._constant_bytes
            self._constant_bytes += row_bytes("pred" if bits == 1 else f"b{bits}")
        return ~self._constants[key]

    def special(self, name: str) -> int:
        """The place of a special register, which is set when the warp begins."""
        if name not in SPECIALS:
            raise OperandError(f"{name} is no register of the kernel, nor one that is known here")
        if name not in self.specials:
            size = row_bytes(f"b{SPECIALS[name]}")
            self.specials[name] = Special(name, self._room(size), size=size)
        return self.specials[name].place

    def hidden(self, name: str, size: int) -> int:
        """The place of `size` bytes that no register names: the carry, a sink."""
        if name not in self._hidden:
            self._hidden[name] = self._room(size)
        return self._hidden[name]

    def symbol(self, name: str, bits: int = 64, offset: int = 0) -> int:
        """The place of a row with a variable's address in its state space, plus an offset."""
        if name not in self.symbols:
            raise OperandError(f"{name} is neither a register nor a variable of the kernel")
        if bits not in (32, 64) or abs(offset) >= _FURTHEST:
            raise OperandError(f"{name}+{offset} is no address of {bits} bits")
        space, address = self.symbols[name]
        address += offset
        if space != "shared":
            return self.constant(address & ((1 << bits) - 1), bits)
        key = f"shared {address} {bits}"
        if key not in self.specials:
            size = row_bytes(f"b{bits}")
            self.specials[key] = Special("shared", self._room(size), address, size)
        return self.specials[key].place

    def listed(self, words: Sequence[int]) -> tuple[int, int]:
        """First word and count of words that are put into the list."""
        first = len(self.lists)
        self.lists += words
        return first, len(words)

    def items(self, operand: Operand, bits: int = 32) -> tuple[int, ...]:
        """Places of a vector's items, or of the one operand."""
        inner = operand.items if isinstance(operand, Vector) else (operand,)
        return tuple(self.source(item, bits) for item in inner)

    def constants(self) -> np.ndarray:
        """The rows of all constants: bytes."""
        made = np.zeros(max(self._constant_bytes, 8), np.uint8)
        for (value, bits), at in self._constants.items():
            if bits == 1:
                made[at : at + 8] = np.frombuffer(np.uint64(value).tobytes(), np.uint8)
            elif bits == 128:
                for half in range(2):
                    word = np.full(y.LANES, value >> (64 * half) & (1 << 64) - 1, np.uint64)
                    made[at + 256 * half : at + 256 * half + 256] = word.view(np.uint8)
            else:
                word = np.full(y.LANES, value, np.uint64 if bits == 64 else np.uint32)
                made[at : at + word.nbytes] = word.view(np.uint8)
        return made

    def encode(self, instruction: Instruction, row: Row) -> list[int]:
        """The P_ words of a row, with its guard and the registers it reads and writes."""
        words = [0] * y.P_SIZE
        guard = instruction.guard
        words[y.P_CLASS], words[y.P_OP] = row.kind, row.op
        words[y.P_GUARD] = self.register(guard.register, 1) if guard else y.NO_GUARD
        words[y.P_NEGATED] = int(bool(guard and guard.negated))
        words[y.P_DST], words[y.P_DST2] = row.dst, row.dst2
        words[y.P_A : y.P_A + 4] = [row.a, row.b, row.c, row.d]
        words[y.P_TYPE], words[y.P_TYPE2], words[y.P_FLAGS] = row.type, row.type2, row.flags
        words[y.P_IMM], words[y.P_TARGET] = row.immediate, row.target
        words[y.P_LIST], words[y.P_COUNT] = self.listed(row.items)
        words[y.P_AUX : y.P_AUX + len(row.aux)] = list(row.aux)
        reads = [self.numbers[name] for name in read(instruction) if name in self.numbers]
        writes = [self.numbers[name] for name in written(instruction) if name in self.numbers]
        words[y.P_READS], words[y.P_READ_COUNT] = self.listed(list(dict.fromkeys(reads)))
        words[y.P_WRITES], words[y.P_WRITE_COUNT] = self.listed(writes)
        words[y.P_MARKS] = y.MARK_ALIGNED if row.aligned else 0
        return words
