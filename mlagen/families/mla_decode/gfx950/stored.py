"""Rows of the cache that are stored in e4m3, or partly so, on gfx950: how they lie in LDS and which
bytes of them a lane reads.

A tile has 64 keys. 64 bytes of all its keys after another make an area: 64 columns of e4m3, or 32
of bf16. All areas are fetched and read alike, 8 bytes a lane and read, so four lanes fetch a row
and each lane needs one row's page.

Two such reads of bf16 columns make an operand of four registers. Its columns then come in another
order than in memory, and queries are loaded in the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mlagen.attention.latent.gfx950.queries import BF16, E4M3, Columns, query_registers
from mlagen.attention.latent.gfx950.shape import FRAGMENT, GROUP, LANES, QUAD, Shape
from mlagen.attention.latent.gfx950.sizes import ELEMENT_BYTES, WAVES
from mlagen.families.mla_decode.gfx950.form import shape_of
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Space
from mlagen.targets.gfx950.dsl.lds import Fragment

KEYS = 64  # keys a tile
SPAN = 64  # bytes of a row that lie together in LDS: what four lanes fetch
READ = 8  # bytes that a lane reads at once: two registers
PAIR = READ // 4  # registers of a read
AHEAD = 2  # operands of bf16 that converted numbers take in turn
COPIES = 4  # of a key's scale in LDS: each of the lanes that fetch a row fetches it


@dataclass(frozen=True)
class Stored:
    """Of a problem whose cache is not bf16, for waves of a shape."""

    k: MlaDecodeConfig
    shape: Shape

    @classmethod
    def of(cls, k: MlaDecodeConfig, s: Space, shape: Shape) -> Stored:
        """In the table of that shape."""
        return cls(k, shape_of(shape, k, s))

    @cached_property
    def columns(self) -> tuple[Columns, ...]:
        """A row's columns: those of one type, or latent and rotary ones."""
        k = self.k
        latent, rotary = (E4M3, BF16) if k.rope_aware_queries else (k.dtype, k.dtype)
        # With 32 rows one instruction adds four steps of e4m3.
        joined = 4 if latent == E4M3 and self.shape.rows > GROUP else 1
        if not k.rope_aware:
            return (Columns(k.d_qk, E4M3, latent, joined * READ // self.key_read, joined),)
        return Columns(k.d_v, E4M3, latent, joined, joined), Columns(k.d_rope, BF16, rotary, 2)

    @property
    def key_read(self) -> int:
        """Bytes of K that a lane reads at once. 32 keys of 8 bytes would meet on their banks; 16
        are two pieces of what a product of 64 columns adds, where nothing is converted."""
        return 2 * READ if self.k.compute == "fp8" and self.shape.rows > GROUP else READ

    @property
    def spans(self) -> int:
        """Areas of a tile."""
        return sum(run.count * ELEMENT_BYTES[run.key] // SPAN for run in self.columns)

    @property
    def scale_bytes(self) -> int:
        """Bytes of a tile's scales in LDS."""
        return KEYS * 4 * COPIES if self.k.rope_aware else 0

    @property
    def key_blocks(self) -> int:
        """Results of a tile's scores."""
        return KEYS // self.shape.rows

    # ---- what fits --------------------------------------------------------------------------

    @property
    def slots(self) -> tuple[int, ...]:
        """Numbers of tiles in LDS, the best first. Two tiles of e4m3 leave room for a second
        workgroup; with three, code that converts most exceeds what a branch reaches."""
        if not self.k.rope_aware:
            return (2, 3)
        return (2,) if self.few_registers else (3, 2)

    @property
    def few_registers(self) -> bool:
        """Whether queries are multiplied in bf16, which takes twice the registers, or a wave has 32
        of them."""
        return self.columns[0].product == BF16 or self.shape.rows > GROUP

    @property
    def bands(self) -> tuple[int, ...]:
        """Numbers of reads on their way, the most first."""
        return (4, 2) if self.few_registers else (8, 4)

    @property
    def score_registers(self) -> int:
        """Registers of a tile's scores."""
        return self.key_blocks * self.shape.result

    @property
    def query_registers(self) -> int:
        """Registers of a row's columns."""
        return query_registers(self.columns, self.shape)

    @property
    def scales(self) -> tuple[tuple[str, int, str], ...]:
        """The register request for scales of a tile's keys; for some of them after another where
        registers are few."""
        if not self.k.rope_aware:
            return ()
        count = self.score_registers
        if self.few_registers:
            count = max(AHEAD * FRAGMENT, self.shape.result)
        return (("SCALES", count, "scales of the keys whose scores this lane has"),)

    # ---- what a lane reads ------------------------------------------------------------------

    def key_fragments(self) -> list[Fragment]:
        """An area of K by its steps, a read of each part of a row, then by block of keys."""
        width = self.key_read
        columns = self.shape.parts * width

        def fragment(step: int, block: int) -> Fragment:
            return lambda lane: (
                self.shape.rows * block + lane % self.shape.rows,
                columns * step + width * self.shape.part_of(lane),
            )

        return [
            fragment(step, block)
            for step in range(SPAN // columns)
            for block in range(self.key_blocks)
        ]

    def value_fragments(self) -> list[Fragment]:
        """An area of V^T as operand A of O^T = V^T P, one transposing read each: by block of
        columns, then by step of keys. 16 lanes fetch eight keys of 16 columns, two lanes a key, and
        lane j of them receives column j: the keys whose scores its registers of S^T hold."""
        shape = self.shape

        def fragment(columns: int, step: int) -> Fragment:
            def place(lane: int) -> tuple[int, int]:
                key, half = divmod(lane % GROUP, 2)
                quad, number = divmod(key, QUAD)
                row = shape.key(READ * step + QUAD * quad) + QUAD * shape.part_of(lane) + number
                group = lane % shape.rows // GROUP
                return row, shape.rows * columns + GROUP * group + READ * half

            return place

        return [
            fragment(columns, step)
            for columns in range(SPAN // shape.rows)
            for step in range(KEYS // shape.step)
        ]

    def key_reads(self) -> Iterator[tuple[int, int, tuple[tuple[int, int], ...]]]:
        """Of each product of S^T: its step of columns, its block of keys, and the reads that make
        its operand, each an area and a fragment of that."""
        area = step = 0
        for run in self.columns:
            in_area = SPAN // ELEMENT_BYTES[run.key] // (self.shape.step * run.joined)
            for _ in range(run.count * ELEMENT_BYTES[run.key] // SPAN):
                for at in range(in_area):
                    for block in range(self.key_blocks):
                        reads = tuple(
                            (area, self.key_blocks * (run.pieces * at + piece) + block)
                            for piece in range(run.pieces)
                        )
                        yield step + at, block, reads
                area, step = area + 1, step + in_area

    def scale_offset(self, register: int) -> int:
        """Where the scale of the key of a register of S lies behind the tile, in the first lane of
        a row; each further part of it is four keys on."""
        return 4 * COPIES * self.shape.key(register)


assert WAVES * LANES == KEYS * COPIES, "each lane fetches a part of one row"
