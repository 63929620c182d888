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

from mlagen.attention.latent.gfx950.sizes import BF16, KEYS, SPAN
from mlagen.targets.gfx950.dsl.lds import Fragment

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

    @property
    def key_blocks(self) -> int:
        """Results of a tile's scores."""
        return KEYS // self.rows

    @property
    def value_steps(self) -> int:
        """Products that add a tile's keys to one result of O."""
        return KEYS // self.step

    @property
    def score_registers(self) -> int:
        """Registers of a tile's scores."""
        return self.key_blocks * self.result

    def key(self, register: int) -> int:
        """The key in a tile whose score a register of S holds in the first lane of a row. In the
        lane of part p it is the one that comes 4 * p later."""
        quad, number = divmod(register, QUAD)
        return self.parts * QUAD * quad + number

    def value_product(self, fragment: int) -> tuple[int, int]:
        """The block of columns and the step of keys of a fragment of V: two blocks take turns, as
        a product waits for the one before it that adds to the same registers."""
        pair, rest = divmod(fragment, PAIR * self.value_steps)
        step, which = divmod(rest, PAIR)
        return PAIR * pair + which, step

    def query_row(self, thread: int) -> int:
        """The query row of a thread of the workgroup."""
        return self.rows * (thread // LANES) + thread % self.rows

    def part_of(self, thread: int) -> int:
        """Which of the row's parts it has."""
        return thread % LANES // self.rows

    def key_fragments(self) -> list[Fragment]:
        """A span of K as operand A of S^T = K Q^T, 16 bytes a read: by step of columns, then by
        block of keys."""

        def fragment(step: int, block: int) -> Fragment:
            return lambda lane: (
                self.rows * block + lane % self.rows,
                BF16 * self.step * step + 16 * self.part_of(lane),
            )

        return [
            fragment(step, block)
            for step in range(SPAN // BF16 // self.step)
            for block in range(self.key_blocks)
        ]

    def value_fragments(self) -> list[Fragment]:
        """A span of V^T as operand A of O^T = V^T P, 8 bytes a transposing read: as the products
        follow each other, then by quad. 16 lanes fetch four keys of 16 columns, four
        lanes a key, and lane j of them receives column j: the keys whose scores its registers of
        S^T hold."""

        def fragment(columns: int, quad: int) -> Fragment:
            def place(lane: int) -> tuple[int, int]:
                key, column = divmod(lane % GROUP, QUAD)
                group = lane % self.rows // GROUP
                return (
                    self.key(QUAD * quad) + QUAD * self.part_of(lane) + key,
                    BF16 * (self.rows * columns + GROUP * group) + 8 * column,
                )

            return place

        blocks, quads = SPAN // BF16 // self.rows, self.score_registers // QUAD // self.value_steps
        products = map(self.value_product, range(blocks * self.value_steps))
        return [
            fragment(columns, quads * step + quad)
            for columns, step in products
            for quad in range(quads)
        ]


ROWS_16 = Shape(16, 32, "v_mfma_f32_16x16x32_bf16")
ROWS_32 = Shape(32, 16, "v_mfma_f32_32x32x16_bf16")
