"""A tile of keys in LDS on gfx950: how it lies there, and which bytes of it a lane reads.

A span of the columns of all keys after another makes an area. K is read from it by rows, V, the
first columns, transposed: the keys whose scores a lane has, so that P stays where S was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from mlagen.attention.latent.gfx950.queries import BF16, E4M3, ColumnGroup
from mlagen.attention.latent.gfx950.shape import FRAGMENT, GROUP, HALF, PAIR, QUAD, Shape
from mlagen.attention.latent.gfx950.sizes import ELEMENT_BYTES
from mlagen.targets.gfx950.dsl import Subtiled, TileLayout, Xor
from mlagen.targets.gfx950.dsl.lds import Fragment

Places = tuple[tuple[int, int], ...]  # of reads that make an operand: an area and a fragment of it


@dataclass(frozen=True)
class KeyTile:
    """`columns` of a row, as LDS holds them; `multiplied`: the type of P and V in their product."""

    shape: Shape
    columns: tuple[ColumnGroup, ...]
    multiplied: str = BF16
    keys: ClassVar[int]
    span: ClassVar[int]  # bytes of a row that lie together
    value_read: ClassVar[str]  # the instruction, of two registers
    band_unit: ClassVar[int]  # registers that bands are counted in

    @property
    def spans(self) -> int:
        """Areas of a tile."""
        return sum(run.count * ELEMENT_BYTES[run.key] // self.span for run in self.columns)

    @property
    def key_blocks(self) -> int:
        """Results of a tile's scores."""
        return self.keys // self.shape.rows

    @property
    def score_registers(self) -> int:
        """Registers of a tile's scores."""
        return self.key_blocks * self.shape.result

    @property
    def key_read(self) -> int:
        """Bytes of K that a lane reads at once."""
        raise NotImplementedError

    @property
    def value_part(self) -> int:
        """Registers of P that a product takes."""
        return FRAGMENT

    def key_fragments(self) -> list[Fragment]:
        """An area of K by its steps, a read of each part of a row, then by block of keys."""
        columns = self.shape.parts * self.key_read

        def fragment(step: int, block: int) -> Fragment:
            return lambda lane: (
                self.shape.rows * block + lane % self.shape.rows,
                columns * step + self.key_read * self.shape.part_of(lane),
            )

        return [
            fragment(step, block)
            for step in range(self.span // columns)
            for block in range(self.key_blocks)
        ]

    def key_products(self) -> Iterator[tuple[int, ColumnGroup, int, Places]]:
        """Of S^T: step and type of the columns, block of keys, and what makes the operand."""
        area = step = 0
        for run in self.columns:
            in_area = self.span // ELEMENT_BYTES[run.key] // (self.shape.step * run.joined)
            for _ in range(run.count * ELEMENT_BYTES[run.key] // self.span):
                for at in range(in_area):
                    for block in range(self.key_blocks):
                        yield (
                            step + at,
                            run,
                            block,
                            tuple(
                                (area, self.key_blocks * (run.pieces * at + piece) + block)
                                for piece in range(run.pieces)
                            ),
                        )
                area, step = area + 1, step + in_area


class Bf16Tile(KeyTile):
    """32 keys of bf16, 64 columns an area, whose fragments of four registers are read as they are
    multiplied."""

    keys, span, value_read, band_unit = 32, 128, "ds_read_b64_tr_b16", 4

    @property
    def key_read(self) -> int:
        return 16

    @property
    def layout(self) -> TileLayout:
        """Of an area, rows of 128 bytes. Bits 7..9 are a key's number in 8, or bits 8..10 that in
        16 without its last bit, which the swizzle spreads over all banks."""
        if self.shape.rows == GROUP:
            return Subtiled(self.keys, self.span, 8, self.span, Xor((7, 8, 9), (4, 5, 6)))
        return Subtiled(self.keys, self.span, 16, self.span, Xor((8, 9, 10), (6, 5, 4)))

    @property
    def value_steps(self) -> int:
        """Products that add a tile's keys to one result of O."""
        return self.keys // self.shape.step

    def value_product(self, number: int) -> tuple[int, int]:
        """The block of columns and the step of keys of a product of O^T: two blocks take turns, as
        a product waits for the one before it that adds to the same registers."""
        pair, rest = divmod(number, PAIR * self.value_steps)
        step, which = divmod(rest, PAIR)
        return PAIR * pair + which, step

    def value_fragments(self) -> list[Fragment]:
        """An area of V^T as operand A of O^T = V^T P, 8 bytes a transposing read: as the products
        follow each other, then by quad. 16 lanes fetch four keys of 16 columns, four
        lanes a key, and lane j of them receives column j."""
        shape = self.shape

        def fragment(columns: int, quad: int) -> Fragment:
            def place(lane: int) -> tuple[int, int]:
                key, column = divmod(lane % GROUP, QUAD)
                row = shape.key(QUAD * quad) + QUAD * shape.part_of(lane) + key
                return row, 2 * (shape.rows * columns + shape.group(lane)) + 8 * column

            return place

        products = self.span // 2 // shape.rows * self.value_steps
        quads = self.score_registers // QUAD // self.value_steps
        return [
            fragment(columns, quads * step + quad)
            for columns, step in map(self.value_product, range(products))
            for quad in range(quads)
        ]

    def value_products(self, columns: int) -> Iterator[tuple[int, int, Places]]:
        """Of O^T of so many columns: their block, the part of P, and what makes the operand."""
        reads = len(self.value_fragments())
        for number in range(columns // self.shape.rows * self.value_steps):
            area, first = divmod(FRAGMENT // HALF * number, reads)
            yield *self.value_product(number), ((area, first), (area, first + 1))


class E4m3Tile(KeyTile):
    """64 keys of e4m3, or partly bf16: 64 bytes of them an area, 64 columns or 32. All areas are
    read alike, 8 bytes a lane; four lanes fetch a row, so each needs one row's page.

    Two such reads of bf16 columns make an operand of four registers. Its columns then come in
    another order than in memory, and queries are loaded in the same one."""

    keys, span, value_read, band_unit = 64, 64, "ds_read_b64_tr_b8", 2

    @property
    def joined(self) -> int:
        """Steps that one product with V adds; with 32 rows one of e4m3 has four."""
        return self.columns[0].joined if self.multiplied == E4M3 else 1

    @property
    def key_read(self) -> int:
        """32 keys of 8 bytes would meet on their banks; 16 are two pieces of what a product of 64
        columns adds, where nothing is converted."""
        return 16 if self.joined > 1 else 8

    @property
    def layout(self) -> TileLayout:
        """Of an area. Bits 6..10 are a key's number in 32, or bits 6..9 that in 16, which the
        swizzle spreads over all banks."""
        swizzle = Xor((8, 9, 10), (4, 5, 5)) if self.key_read == 8 else Xor((8, 9), (4, 5))
        return Subtiled(self.keys, self.span, 32, self.span, swizzle)

    @property
    def value_part(self) -> int:
        return HALF * self.joined if self.multiplied == E4M3 else FRAGMENT

    def value_fragments(self) -> list[Fragment]:
        """An area of V^T as operand A of O^T = V^T P, one transposing read each: by block of
        columns, then by step of keys. 16 lanes fetch eight keys of 16 columns, two lanes a key, and
        lane j of them receives column j."""
        shape = self.shape

        def fragment(columns: int, step: int) -> Fragment:
            def place(lane: int) -> tuple[int, int]:
                key, half = divmod(lane % GROUP, 2)
                quad, number = divmod(key, QUAD)
                row = shape.key(8 * step + QUAD * quad) + QUAD * shape.part_of(lane) + number
                return row, shape.rows * columns + shape.group(lane) + 8 * half

            return place

        return [
            fragment(columns, step)
            for columns in range(self.span // shape.rows)
            for step in range(self.keys // shape.step)
        ]

    def value_products(self, columns: int) -> Iterator[tuple[int, int, Places]]:
        """Of O^T of so many columns, all by the first keys, then by the next: their block, the part
        of P, and what makes the operand."""
        rows, steps = self.shape.rows, self.keys // self.shape.step
        for step in range(0, steps, self.joined):
            for block in range(columns // rows):
                area, inside = divmod(block, self.span // rows)
                first = inside * steps + step
                places = tuple((area, first + piece) for piece in range(self.joined))
                yield block, step // self.joined, places
