"""How queries of every stored type come to lie in a lane's registers on gfx950, as operand B of
S^T = K Q^T.

A lane has 8 columns of each step of its row, or of several steps that are one product. They are
loaded in as many pieces as K's fragments have them in; what is stored in e4m3 and multiplied in
bf16 is converted where it was loaded, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlagen.attention.latent.gfx950.shape import Shape
from mlagen.attention.latent.gfx950.sizes import ELEMENT_BYTES
from mlagen.targets.gfx950.dsl import Regs

BF16, E4M3 = "bf16", "fp8_e4m3"
OWN = 8  # columns of a step that a lane has
DWORD = 4
LOADS = {4: "buffer_load_dword", 8: "buffer_load_dwordx2", 16: "buffer_load_dwordx4"}
Converted = tuple[Regs, Regs, int]  # register of two bf16, register of four e4m3, which half of it


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """`count` columns of a row that are stored and multiplied alike: the types of the cache's and
    of the queries' numbers. A product adds `joined` steps of the wave's shape; a fragment of K has
    a lane's columns of it in so many `pieces`."""

    count: int
    key: str
    query: str
    pieces: int = 1
    joined: int = 1

    @property
    def product(self) -> str:
        """The type that is multiplied."""
        return E4M3 if self.key == self.query == E4M3 else BF16

    @property
    def registers(self) -> int:
        """Registers of a step's operand."""
        return OWN * self.joined * ELEMENT_BYTES[self.product] // DWORD

    def steps(self, shape: Shape) -> int:
        """Products that add all of the columns."""
        return self.count // (shape.step * self.joined)


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """Loads `into` registers from byte `offset` of the row, and `width` bytes further on in each
    part of it."""

    into: Regs
    width: int
    offset: int

    @property
    def mnemonic(self) -> str:
        return LOADS[self.width]


@dataclass(frozen=True, slots=True)
class Query:
    """All of a row's columns in one lane. `operands`: of each step, those of bf16 four registers
    and those of e4m3 two."""

    operands: tuple[Regs, ...]
    loads: tuple[QueryLoad, ...]
    converted: tuple[Converted, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Of all loads, one each."""
        return tuple(dict.fromkeys(load.width for load in self.loads))


def query_registers(columns: Sequence[ColumnGroup], shape: Shape) -> int:
    """Registers that a row's columns take in a lane."""
    return sum(run.steps(shape) * run.registers for run in columns)


def query_of(columns: Sequence[ColumnGroup], shape: Shape, registers: Regs) -> Query:
    """The row's columns in those registers."""
    operands: list[Regs] = []
    loads: list[QueryLoad] = []
    converted: list[Converted] = []
    at = byte = 0
    for run in columns:
        element = ELEMENT_BYTES[run.query]
        depth, own = shape.step * run.joined, OWN * run.joined
        for step in range(run.steps(shape)):
            operand = registers[at : at + run.registers]
            loaded = own * element // DWORD
            # At the operand's end, where it is converted from front to back.
            stored = operand[run.registers - loaded :]
            width = own * element // run.pieces
            for piece in range(run.pieces):
                column = depth * step + depth // run.pieces * piece
                into = stored.part(piece, width // DWORD)
                loads.append(QueryLoad(into, width, byte + element * column))
            if run.query != run.product:
                converted += widened(operand, stored)
            operands.append(operand)
            at += run.registers
        byte += element * run.count
    return Query(tuple(operands), tuple(loads), tuple(converted))


def widened(to: Regs, stored: Regs) -> Iterator[Converted]:
    """How e4m3 numbers become bf16 ones in twice the registers."""
    for number, register in enumerate(to):
        yield register, stored[number // 2], number % 2
