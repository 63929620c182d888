"""Which element of a tile each lane holds for an MFMA operand (the generator's lane maps).

Source: CDNA4 ISA guide, matrix instruction layouts, and the transposing-read description of the
same document as worked out in AMD's public notes. The emulator keeps its own, from elsewhere.

v_mfma_f32_32x32x16_bf16, lane l:
    A: row l % 32, k = 8 * (l / 32) + 0..7 (4 registers, two bf16 each, low half first)
    B: column l % 32, same k
    C/D: column l % 32; register r is row 8 * (r / 4) + 4 * (l / 32) + r % 4
"""

from __future__ import annotations

from collections.abc import Callable

Fragment = Callable[[int], tuple[int, int]]

MFMA_ROWS = 32
MFMA_K = 16
BF16 = 2  # bytes


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


def value_fragments(keys: int, depth: int) -> list[Fragment]:
    """V^T as A operand of O^T = V^T P: rows are depth, k runs over keys in the order in which the
    accumulators of S^T hold them, so that P needs no move between lanes.

    Two ds_read_b64_tr_b16 a fragment (keys 0..3 and 8..11 of a strip of 16 for lanes 0..31, 4..7
    and 12..15 for lanes 32..63), ordered by strip, then depth block. In a transposing read each
    group of 16 lanes fetches 4 rows of 4 x 8 bytes; lane j of the group receives column j.
    """

    def fragment(strip: int, block: int, part: int) -> Fragment:
        return lambda lane: (
            MFMA_K * strip + 8 * part + 4 * (lane // 32) + lane % 16 // 4,
            BF16 * (MFMA_ROWS * block + 16 * (lane // 16 % 2) + 4 * (lane % 4)),
        )

    return [
        fragment(strip, block, part)
        for strip in range(keys // MFMA_K)
        for block in range(depth // MFMA_ROWS)
        for part in (0, 1)
    ]
