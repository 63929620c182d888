"""Where the lanes of a wave hold the operands and the results of its matrix products.

v_mfma_f32_16x16x32_bf16, lane l (CDNA4 ISA guide, matrix instruction layouts): operand A row
l % 16, B column l % 16, k = 8 * (l / 16) + 0..7; result column l % 16, register r is row
4 * (l / 16) + r. v_mfma_f32_32x32x16_bf16: A row l % 32, B column l % 32, k = 8 * (l / 32) + 0..7;
result column l % 32, register r is row 8 * (r / 4) + 4 * (l / 32) + r % 4.

Here S^T = K Q^T and O^T = V^T P: a lane has one query row, which it shares with the lanes of its
other parts, and its scores of 32 keys, packed, are its P. Which k of the second product is which
key is free, as long as V has the same: it is read so that P stays where S was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LANES = 64
QUAD = 4  # rows of a result that follow each other in a lane's registers
FRAGMENT = 4  # registers of an operand
HALF = 2  # registers of what a transposing read brings: four keys of a column
PAIR = 2  # blocks of columns that take turns
GROUP = 16  # lanes that transpose among themselves


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a wave that has `rows` query rows: its instruction, and `step`, the products that this
    adds to each number of its result."""

    rows: int
    step: int
    mfma: str

    @property
    def parts(self) -> int:
        """Lanes that share a query row."""
        return LANES // self.rows

    @property
    def second_file(self) -> Literal["v", "a"]:
        """Where Q lies: with 32 rows O leaves accumulation registers alone."""
        return "v" if self.rows == GROUP else "a"

    @property
    def part(self) -> str:
        """What such a lane has of the row."""
        return {2: "half", 4: "quarter"}[self.parts]

    @property
    def swaps(self) -> tuple[int, ...]:
        """Distances of the lanes of a row, as v_permlane*_swap names them."""
        return tuple(distance for distance in (32, 16) if distance >= self.rows)

    @property
    def result(self) -> int:
        """Registers of a result."""
        return self.rows // self.parts

    def key(self, register: int) -> int:
        """The key in a tile whose score a register of S holds in the first lane of a row. In the
        lane of part p it is the one that comes 4 * p later."""
        quad, number = divmod(register, QUAD)
        return self.parts * QUAD * quad + number

    def query_row(self, thread: int) -> int:
        """The query row of a thread of the workgroup."""
        return self.rows * (thread // LANES) + thread % self.rows

    def part_of(self, thread: int) -> int:
        """Which of the row's parts it has."""
        return thread % LANES // self.rows

    def group(self, lane: int) -> int:
        """The first of the 16 columns of a result that a lane's group has."""
        return GROUP * (lane % self.rows // GROUP)


ROWS_16 = Shape(16, 32, "v_mfma_f32_16x16x32_bf16")
ROWS_32 = Shape(32, 16, "v_mfma_f32_32x32x16_bf16")
