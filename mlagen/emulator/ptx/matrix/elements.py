"""Elements of A and B: from bytes of shared memory or registers to numbers in the work space.

An operand in shared memory is described by a descriptor (PTX ISA, wgmma, "Matrix Descriptor
Format"; CUTLASS mma_sm90_desc.hpp has the canonical layouts).
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import (
    bits_of,
    f32_of,
    float32,
    int32,
    int64,
    load_f32,
    load_u8,
    load_u16,
    load_u32,
    store_f32,
    store_i32,
    uint32,
)
from mlagen.emulator.ptx.matrix import layout as m


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
def e4m3_value(bits: int) -> float:
    """The number of an e4m3's bits."""
    number = f32_of(uint32((bits & 0x7F) << 20)) * float32(1.329227995784916e36)  # 2^120
    if bits & 0x7F == 0x7F:
        number = f32_of(uint32(0x7FFFFFFF))
    return f32_of(uint32(int64(bits_of(number)) | ((bits & 0x80) << 24)))


@compiled
def element(host: int, kind: int, index: int) -> float:
    """Element `index` of a 16-byte chunk at a host address."""
    if kind == m.BF16:
        return f32_of(uint32(int64(load_u16(host, index)) << 16))
    if kind == m.F16:
        return half_value(int64(load_u16(host, index)))
    if kind == m.TF32:
        return f32_of(uint32(int64(load_u32(host, index)) & 0xFFFFE000))
    if kind == m.E4M3:
        return e4m3_value(int64(load_u8(host, index)))
    return half_value(int64(load_u8(host, index)) << 8)


@compiled
def whole(host: int, kind: int, index: int) -> int:
    """The same of a whole number."""
    byte = int64(load_u8(host, index))
    if kind == m.S8 and byte >= 128:
        byte -= 256
    return byte


@spliced
def per_chunk(kind: int) -> int:
    """Elements of 16 bytes."""
    if kind == m.TF32:
        return 4
    if kind == m.BF16 or kind == m.F16:
        return 8
    return 16


@compiled
def swizzled(address: int, mode: int) -> int:
    """An address in shared memory as a descriptor's swizzle (bits 62-63) moves it."""
    if mode == 1:
        return address ^ (((address >> 7) & 7) << 4)
    if mode == 2:
        return address ^ (((address >> 7) & 3) << 4)
    if mode == 3:
        return address ^ (((address >> 7) & 1) << 4)
    return address


@compiled
def chunk_address(descriptor: int, across: int, deep: int, mn_major: int) -> int:
    """Where a 16-byte chunk lies in shared memory. K-major: row `across`, chunk `deep` of K;
    MN-major: chunk `across` of M or N, row `deep` of K."""
    start = (descriptor & 0x3FFF) << 4
    leading = ((descriptor >> 16) & 0x3FFF) << 4
    stride = ((descriptor >> 32) & 0x3FFF) << 4
    mode = (descriptor >> 62) & 3
    if mode == 0:
        if mn_major == 0:
            return start + (across >> 3) * stride + (across & 7) * 16 + deep * leading
        return start + across * stride + (deep & 7) * 16 + (deep >> 3) * leading
    width = 256 >> mode  # bytes of a row: 128, 64, 32
    if mn_major == 0:
        at = start + (across >> 3) * stride + (across & 7) * width + deep * 16
    else:
        chunks = width >> 4
        block = across // chunks
        at = start + block * leading + (across - block * chunks) * 16
        at += (deep >> 3) * stride + (deep & 7) * width
    return swizzled(at, mode)


@spliced
def put(temp: int, value: int, kind: int, index: int, host: int, at: int, negated: int) -> None:
    """One element into the work space."""
    if kind == m.S8 or kind == m.U8:
        store_i32(temp + value, index, int32(whole(host, kind, at)))
    else:
        number = element(host, kind, at)
        if negated != 0:
            number = -number
        store_f32(temp + value, index, number)


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
    count = per_chunk(kind)
    row_step = 1
    deep_step = m.COLUMNS
    if value == m.A_VALUE:
        row_step = m.DEPTH
        deep_step = 1
    if mn_major == 0:
        for row in range(rows):
            for chunk in range(depth // count):
                host = shared + chunk_address(descriptor, first + row, chunk, 0)
                index = row * row_step + chunk * count * deep_step
                for i in range(count):
                    put(temp, value, kind, index + i * deep_step, host, i, negated)
        return
    for deep in range(depth):
        for chunk in range(rows // count):
            host = shared + chunk_address(descriptor, first // count + chunk, deep, 1)
            index = chunk * count * row_step + deep * deep_step
            for i in range(count):
                put(temp, value, kind, index + i * row_step, host, i, negated)


@compiled
def split(temp: int, value: int, count: int, stride: int, columns: int, kind: int) -> bool:
    """Significands and exponents of `count` rows of `columns` floats; whether one is NaN or Inf.

    Their arrays lie behind the values as `layout` says. The significand has the bits that the type
    stores and the hidden one; the exponent is that of the hidden bit.
    """
    shift = 16
    if kind == m.F16 or kind == m.TF32:
        shift = 13
    elif kind == m.E4M3:
        shift = 20
    elif kind == m.E5M2:
        shift = 21
    behind = 4 * m.ROWS * m.DEPTH
    if value == m.B_VALUE:
        behind = 4 * m.DEPTH * m.COLUMNS
    least = -126
    if kind == m.F16 or kind == m.E5M2:
        least = -14
    elif kind == m.E4M3:
        least = -6
    special = 0
    for row in range(count):
        for column in range(columns):
            number = load_f32(temp + value, row * stride + column)
            bits = int64(bits_of(number))
            power = ((bits >> 23) & 0xFF) - 127
            significand = ((bits & 0x7FFFFF) | 0x800000) >> shift
            if power == -127:  # zero, or a denormal of bf16 and tf32
                significand = (bits & 0x7FFFFF) >> (shift - 1) >> 1
                power = -126
            if power == 128:
                special |= 1
            if power < least:  # a denormal of the type
                significand = significand >> (least - power)
                power = least
            if bits & 0x80000000 != 0:
                significand = -significand
            store_i32(temp + value + behind, row * stride + column, int32(significand))
            store_i32(temp + value + 2 * behind, row * stride + column, int32(power))
    return special != 0
