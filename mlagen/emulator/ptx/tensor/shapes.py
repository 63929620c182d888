"""Instruction and matrix descriptors of tcgen05, and which rows and columns a lane has of D.

Fields: PTX ISA, "Instruction descriptor" and "Matrix-descriptor"; CUTLASS mma_sm100_desc.hpp.

A *tile* is 16 lanes of tensor memory that have 16 rows of D and the same columns. Of a CTA, with
`rows` of D's M rows (half of them with .cta_group::2):

    128 rows            eight tiles, lane = row, all N columns
    64 rows             four tiles, one in the first (or second) half of each 32 lanes, all columns
    64 rows, folded     eight tiles: lanes 64 to 127 have the rows once more, and the second half of
                        the columns; for .cta_group::2 and for .ws
    32 rows (.ws)       eight tiles: each 32 lanes have a quarter of the columns
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.targets.sm_100a.limits import SM_100A

MOST_COLUMNS = SM_100A.mma_columns_max


@spliced
def whole_rows(word: int) -> int:
    """M."""
    return ((word >> 24) & 0x1F) * 16


@spliced
def whole_columns(word: int) -> int:
    """N."""
    return ((word >> 17) & 0x3F) * 8


@compiled
def rows_of(word: int, flags: int) -> int:
    """Rows of D that a CTA has."""
    rows = whole_rows(word)
    return rows // 2 if flags & t.PAIR != 0 else rows


@compiled
def folds_of(word: int, flags: int) -> int:
    """Into how many parts D's columns are folded."""
    rows = rows_of(word, flags)
    if rows == 32:
        return 4
    return 2 if rows == 64 and flags & (t.PAIR | t.WEIGHTS) != 0 else 1


@compiled
def tiles_of(word: int, flags: int) -> int:
    """Tiles of a CTA."""
    return 4 if rows_of(word, flags) == 64 and folds_of(word, flags) == 1 else 8


@compiled
def tile_lane(word: int, flags: int, tile: int) -> int:
    """The first lane of a tile."""
    return 32 * tile if tiles_of(word, flags) == 4 else 16 * tile


@compiled
def tile_row(word: int, flags: int, tile: int) -> int:
    """The first row of a tile."""
    return 16 * tile % rows_of(word, flags)


@compiled
def tile_fold(word: int, flags: int, tile: int) -> int:
    """Which part of the columns a tile has."""
    return 16 * tile // rows_of(word, flags)


@compiled
def element_kind(kind: int, field: int) -> int:
    """The type of elements that a descriptor's field says; -1 for none."""
    if kind == t.F16:
        if field == 0:
            return m.F16
        return m.BF16 if field == 1 else -1
    if kind == t.TF32:
        return m.TF32 if field == 2 else -1
    if kind == t.I8:
        if field == 0:
            return m.U8
        return m.S8 if field == 1 else -1
    if field == 0:
        return m.E4M3
    if field == 1:
        return m.E5M2
    if field == 3:
        return m.E2M3
    if field == 4:
        return m.E3M2
    return m.E2M1 if field == 5 else -1


@spliced
def kind_a(kind: int, word: int) -> int:
    """The type of A's elements."""
    return element_kind(kind, (word >> 7) & 7)


@spliced
def kind_b(kind: int, word: int) -> int:
    """The type of B's elements."""
    return element_kind(kind, (word >> 10) & 7)


@compiled
def sums_of(kind: int, word: int) -> int:
    """X_SUMS of matrix.work_space: how D is summed up; -1 for a type of D that the kind has not. No
    chip was measured: one sum of all products with D, cut 25 bits below the greatest, as public
    models have it."""
    field = (word >> 4) & 3
    if kind == t.I8:
        saturated = m.SATURATED << 24 if (word >> 3) & 1 else 0
        return m.D_S32 << 16 | saturated if field == 2 else -1
    if field == 1:
        return 25 | 23 << 8 | m.D_F32 << 16
    return 25 | 10 << 8 | m.D_F16 << 16 if field == 0 and kind != t.TF32 else -1


@spliced
def depth_of(kind: int) -> int:
    """K: 32 bytes."""
    if kind == t.F16:
        return 16
    return 8 if kind == t.TF32 else 32


@compiled
def check_word(kind: int, flags: int, word: int) -> int:
    """The rule that an instruction descriptor breaks; 0 for none."""
    a = kind_a(kind, word)
    b = kind_b(kind, word)
    if a < 0 or b < 0 or sums_of(kind, word) < 0 or word & 7 != 0:
        return t.BAD_WORD
    if kind == t.F16 and a != b:
        return t.BAD_WORD
    turned = (word >> 15) & 3
    if kind == t.TF32 and turned != 0:
        return t.BAD_WORD
    if (turned & 1 != 0 and a >= m.E2M3) or (turned & 2 != 0 and b >= m.E2M3):
        return t.BAD_WORD
    if flags & t.IN_TENSOR != 0 and (turned & 1 != 0 or a >= m.E2M3):
        return t.BAD_WORD
    if kind != t.I8 and (word >> 3) & 1 != 0:
        return t.BAD_WORD
    if kind == t.I8 and (word >> 13) & 3 != 0:
        return t.BAD_WORD
    return check_shape(flags, whole_rows(word), whole_columns(word))


@compiled
def check_shape(flags: int, rows: int, columns: int) -> int:
    """The same of M and N."""
    if columns < 8 or columns > MOST_COLUMNS:
        return t.BAD_SHAPE
    if flags & t.WEIGHTS != 0:
        good = (rows == 32 or rows == 64 or rows == 128) and columns >= 64
        return 0 if good and columns & (columns - 1) == 0 else t.BAD_SHAPE
    if flags & t.PAIR != 0:
        good = (rows == 128 or rows == 256) and columns % 32 == 0
        return 0 if good else t.BAD_SHAPE
    if rows == 64:
        return 0
    return 0 if rows == 128 and columns % 16 == 0 else t.BAD_SHAPE


@compiled
def check_matrix(descriptor: int) -> int:
    """The rule that a matrix descriptor breaks; 0 for none."""
    mode = (descriptor >> 61) & 7
    if mode == 1:
        return t.SWIZZLE_32
    if (descriptor >> 46) & 7 != 1 or (descriptor >> 49) & 15 != 0 or mode & 1 != 0:
        return t.BAD_MATRIX
    return 0


@spliced
def as_wgmma(descriptor: int) -> int:
    """A descriptor that `check_matrix` takes, as one of wgmma: they differ in the swizzle's field
    and the version."""
    return (descriptor & 0x3FFFFFFFFFFF) | ((descriptor >> 62) & 3) << 62
