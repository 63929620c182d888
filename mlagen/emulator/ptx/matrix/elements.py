"""Elements of A and B: from bytes of shared memory or registers to numbers in the work space.

An operand in shared memory is described by a descriptor (PTX ISA, wgmma, "Matrix Descriptor
Format"; CUTLASS mma_sm90_desc.hpp has the canonical layouts). It is made of core matrices: eight
rows of 16 bytes.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import (
    bits_of,
    f32_of,
    float32,
    int64,
    load_u32,
    store_u32,
    uint32,
)
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.vectors import core_8, core_16, decoded, turned_8, turned_16


@spliced
def half_value(bits: int) -> float:
    """The number of an f16's bits."""
    sign = (bits & 0x8000) << 16
    rest = (bits & 0x7FFF) << 13
    number = f32_of(uint32(rest)) * float32(5.192296858534828e33)  # 2^112
    if rest >= 0x0F800000:
        number = f32_of(uint32(rest | 0x7F800000))
    return f32_of(uint32(int64(bits_of(number)) | sign))


@spliced
def element_bytes(kind: int) -> int:
    """Of a type."""
    if kind == m.TF32:
        return 4
    if kind == m.BF16 or kind == m.F16:
        return 2
    return 1


@spliced
def per_chunk(kind: int) -> int:
    """Elements of 16 bytes."""
    return 16 // element_bytes(kind)


@spliced
def swizzle_of(descriptor: int) -> int:
    """The bits from the seventh on that a descriptor's swizzle (its bits 62-63) moves: 7, 3, 1 for
    128, 64 and 32 bytes."""
    mode = (descriptor >> 62) & 3
    return 0 if mode == 0 else (8 >> mode) * 2 - 1


@spliced
def swizzled(address: int, moved: int) -> int:
    """An address in shared memory as a swizzle moves it."""
    return address ^ (((address >> 7) & moved) << 4)


@compiled
def beside_pattern(descriptor: int) -> bool:
    """Whether a matrix under a swizzle begins below the first row of the swizzle's pattern, which
    only a base offset can tell (PTX ISA, matrix descriptor, base offset)."""
    mode = (descriptor >> 62) & 3
    width = 256 >> mode  # bytes of a row, of which the pattern has 8
    return mode != 0 and (((descriptor & 0x3FFF) << 4) & (8 * width - 1)) >= width


@spliced
def line_address(descriptor: int, across: int, mn_major: int) -> int:
    """Where the first chunk of a row (K-major), or of a chunk of M or N (MN-major), would lie
    without a swizzle."""
    start = (descriptor & 0x3FFF) << 4
    leading = ((descriptor >> 16) & 0x3FFF) << 4
    stride = ((descriptor >> 32) & 0x3FFF) << 4
    mode = (descriptor >> 62) & 3
    if mn_major != 0 and mode == 0:
        return start + across * stride
    if mn_major != 0:
        shift = 4 - mode  # a row has 2^shift chunks
        return start + (across >> shift) * leading + (across & ((1 << shift) - 1)) * 16
    width = 16 if mode == 0 else 256 >> mode  # bytes of a row: 128, 64, 32
    return start + (across >> 3) * stride + (across & 7) * width


@spliced
def deep_address(descriptor: int, deep: int, mn_major: int) -> int:
    """How far behind the first of its line a chunk lies: chunk `deep` of K (K-major), or the one in
    row `deep` of K (MN-major)."""
    leading = ((descriptor >> 16) & 0x3FFF) << 4
    stride = ((descriptor >> 32) & 0x3FFF) << 4
    mode = (descriptor >> 62) & 3
    if mn_major == 0:
        return deep * leading if mode == 0 else deep * 16
    if mode == 0:
        return (deep & 7) * 16 + (deep >> 3) * leading
    return (deep >> 3) * stride + (deep & 7) * (256 >> mode)


@compiled
def core_address(descriptor: int, across: int, deep: int, mn_major: int) -> int:
    """Where the row of a core matrix would lie without a swizzle. K-major: row `across`, chunk
    `deep` of K; MN-major: chunk `across` of M or N, row `deep` of K."""
    line = line_address(descriptor, across, mn_major)
    return line + deep_address(descriptor, deep, mn_major)


@compiled
def chunk_address(descriptor: int, across: int, deep: int, mn_major: int) -> int:
    """Where a 16-byte chunk lies in shared memory."""
    return swizzled(core_address(descriptor, across, deep, mn_major), swizzle_of(descriptor))


@compiled
def take_core(
    shared: int, first: int, step: int, moved: int, into: int, into_step: int, form: int
) -> None:
    """Eight rows of eight elements; see `vectors`. `form`: 1 for 8 bits, 2 for transposed."""
    if form == 0:
        core_16(shared, first, step, moved, into, into_step)
    elif form == 1:
        core_8(shared, first, step, moved, into, into_step)
    elif form == 2:
        turned_16(shared, first, step, moved, into, into_step)
    else:
        turned_8(shared, first, step, moved, into, into_step)


@compiled
def take_tf32(
    temp: int, shared: int, descriptor: int, value: int, size: int, first: int, negated: int
) -> None:
    """`take_shared` of tf32, which is K-major: the low 13 bits are not read."""
    for row in range(size >> 16):
        for deep in range(size & 0xFFFF):
            host = shared + chunk_address(descriptor, first + row, deep >> 2, 0)
            bits = int64(load_u32(host, deep & 3)) & 0xFFFFE000
            at = row * m.DEPTH + deep
            if value == m.B_VALUE:
                at = deep * m.COLUMNS + row
            store_u32(temp + value, at, uint32(bits ^ (negated << 31)))


@compiled
def take_shared(
    temp: int, shared: int, descriptor: int, value: int, size: int, first: int, form: int
) -> None:
    """An operand from shared memory into the work space at `value`. `size`: rows of M or N << 16 |
    elements of K; `first`: its first row; `form`: type | MN-major << 8 | negated << 9. B goes to
    [K][COLUMNS], A to [ROWS][DEPTH]. All chunks lie inside shared memory."""
    rows = size >> 16
    depth = size & 0xFFFF
    kind = form & 0xFF
    mn_major = (form >> 8) & 1
    negated = (form >> 9) & 1
    if kind == m.TF32:
        take_tf32(temp, shared, descriptor, value, size, first, negated)
        return
    narrow = element_bytes(kind) & 1
    words = m.A_WORDS
    stride = m.DEPTH
    if value == m.B_VALUE:
        words = m.B_WORDS
        stride = m.COLUMNS
    mode = (descriptor >> 62) & 3
    step = 16 if mode == 0 else 256 >> mode
    moved = swizzle_of(descriptor)
    for row in range(rows // 8):
        for part in range(depth // 8):
            across = part * 8  # the element of a row where its eight begin
            line = first + 8 * row
            into = words + 2 * stride * 8 * row + 16 * part
            turned = 0
            if mn_major != 0:
                across = first + 8 * row
                line = 8 * part
            if (value == m.B_VALUE) != (mn_major != 0):
                turned = 2
            if value == m.B_VALUE:
                into = words + 2 * stride * 8 * part + 16 * row
            chunk = across >> (3 + narrow)
            place = core_address(descriptor, line, chunk, 0)
            if mn_major != 0:
                place = core_address(descriptor, chunk, line, 1)
            place += across & (narrow << 3)
            take_core(shared, place, step, moved, temp + into, 2 * stride, narrow | turned)
    if value == m.B_VALUE:
        decoded(kind, temp + words, temp + value, depth, rows, stride, negated)
    else:
        decoded(kind, temp + words, temp + value, rows, depth, stride, negated)
