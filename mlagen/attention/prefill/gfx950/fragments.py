"""Which element of a tile each lane holds for an MFMA operand (the generator's lane maps).

Source: CDNA4 ISA guide, matrix instruction layouts, and the transposing-read description of the
same document as worked out in AMD's public notes. The emulator keeps its own, from elsewhere.

v_mfma_f32_32x32x16_bf16, lane l:
    A: row l % 32, k = 8 * (l / 32) + 0..7 (4 registers, two bf16 each, low half first)
    B: column l % 32, same k
    C/D: column l % 32; register r is row 8 * (r / 4) + 4 * (l / 32) + r % 4

v_mfma_f32_32x32x64_f8f6f4 on fp8: 8 registers of four fp8 each. Which 32 of the 64 k a lane half
holds, and in which order, is the kernel's choice as long as A and B agree; here 32 * (l / 32) +
0..31. C/D as above.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.targets.gfx950.dsl.lds import Fragment

MFMA_ROWS = 32
MFMA_K = 16
BF16 = 2  # bytes
KEY_READ, VALUE_READ = 16, 8  # bytes that a lane reads of K by rows, and of V by columns


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """One element type as the 32x32 MFMA takes it.

    `k`: products each instruction adds. `registers`: of one operand fragment a lane. `transposing`:
    the LDS read that delivers columns.
    """

    element_bytes: int
    k: int
    mfma: str
    transposing: str

    @property
    def registers(self) -> int:
        return self.lane_bytes // 4

    @property
    def lane_bytes(self) -> int:
        """Bytes of a fragment a lane: half of the k."""
        return self.k // 2 * self.element_bytes


FORMATS = {
    "bf16": MatrixFormat(2, 16, "v_mfma_f32_32x32x16_bf16", "ds_read_b64_tr_b16"),
    "fp8_e4m3": MatrixFormat(1, 64, "v_mfma_f32_32x32x64_f8f6f4", "ds_read_b64_tr_b8"),
}


def accumulator_row(register: int) -> int:
    """Row of accumulator register `register` in lanes 0..31; lanes 32..63 hold the row 4 below."""
    return 8 * (register // 4) + register % 4


def key_fragments(keys: int, depth: int) -> list[Fragment]:
    """K as A operand of S^T = K Q^T: rows are keys. One 16-byte read a fragment (ds_read_b128),
    ordered by depth step, then by block of 32 keys."""

    def fragment(step: int, block: int) -> Fragment:
        return lambda lane: (
            MFMA_ROWS * block + lane % 32,
            BF16 * (MFMA_K * step + 8 * (lane // 32)),
        )

    return [
        fragment(step, block)
        for step in range(depth // MFMA_K)
        for block in range(keys // MFMA_ROWS)
    ]


def column_fragments(form: MatrixFormat, keys: int, columns: int) -> list[Fragment]:
    """Some columns of K as A operand of S^T = K Q^T, 16 bytes a read, ordered by block of 32 keys,
    then by step of `form.k` columns, then by part of a lane's bytes."""
    row_bytes = form.k * form.element_bytes

    def fragment(block: int, step: int, part: int) -> Fragment:
        return lambda lane: (
            MFMA_ROWS * block + lane % 32,
            row_bytes * step + form.lane_bytes * (lane // 32) + 16 * part,
        )

    return [
        fragment(block, step, part)
        for block in range(keys // MFMA_ROWS)
        for step in range(columns // form.k)
        for part in range(form.lane_bytes // 16)
    ]


def transposed_fragments(form: MatrixFormat, keys: int, depth: int) -> list[Fragment]:
    """V^T as A operand of O^T = V^T P, 8 bytes a transposing read: k runs over keys in the order in
    which the accumulators of S^T hold them. Ordered by step of `form.k` keys, by block of 32
    depths, then by part of a lane's bytes.

    Each group of 16 lanes fetches rows of 16 columns, `16 / rows` lanes a row (4 rows for bf16, 8
    for fp8), and lane j of the group receives column j. A read delivers `rows` keys: of a strip of
    8 (bf16) or 16 (fp8) keys those of its lane half, four by four.
    """
    rows = 8 // form.element_bytes  # keys of one read
    strip = 2 * rows
    lanes_a_row = 16 // rows

    def fragment(step: int, block: int, part: int) -> Fragment:
        def place(lane: int) -> tuple[int, int]:
            row, column = divmod(lane % 16, lanes_a_row)
            key = form.k * step + strip * part + 8 * (row // 4) + row % 4 + 4 * (lane // 32)
            first = MFMA_ROWS * block + 16 * (lane // 16 % 2)
            return key, form.element_bytes * first + 8 * column

        return place

    return [
        fragment(step, block, part)
        for step in range(keys // form.k)
        for block in range(depth // MFMA_ROWS)
        for part in range(form.lane_bytes // 8)
    ]
