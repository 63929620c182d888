"""16-bit floats as the memory's adders have them: rounded once, to nearest even.

A sum of two of them in f32 is exact where rounding it to 16 bits could show a difference.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import bits_of, f32_of, float32, int64, uint32

NAN = 0x7FFF
_LEAST = 2.0**-24  # the least f16 over 0


@compiled
def widened(half: int, bf16: bool) -> int:
    """The bits of the f32 that a half is."""
    if bf16:
        return half << 16
    sign = (half & 0x8000) << 16
    exponent = (half >> 10) & 31
    fraction = half & 0x3FF
    if exponent == 31:
        return sign | 0x7F800000 | fraction << 13
    if exponent != 0:
        return sign | (exponent + 112) << 23 | fraction << 13
    return sign | int64(bits_of(float32(fraction) * float32(_LEAST)))


@compiled
def narrowed(word: int, bf16: bool) -> int:
    """The half nearest to an f32, given by its bits; a NaN becomes the one of the ISA."""
    if word & 0x7FFFFFFF > 0x7F800000:
        return NAN
    if bf16:
        return (word + 0x7FFF + ((word >> 16) & 1)) >> 16
    sign = (word >> 16) & 0x8000
    exponent = ((word >> 23) & 0xFF) - 112
    fraction = word & 0x7FFFFF
    if exponent >= 31:
        return sign | 0x7C00
    shift = 13
    if exponent <= 0:
        shift = 14 - exponent
        if shift > 25:
            return sign
        fraction |= 0x800000
        exponent = 0
    code = (exponent << 10) + (
        (fraction + (1 << (shift - 1)) - 1 + ((fraction >> shift) & 1)) >> shift
    )
    return sign | code


@compiled
def sum_of_halves(one: int, other: int, bf16: bool) -> int:
    """The sum of two 16-bit floats."""
    total = float32(f32_of(uint32(widened(one, bf16))) + f32_of(uint32(widened(other, bf16))))
    return narrowed(int64(bits_of(total)), bf16)


@compiled
def lesser_half(one: int, other: int, bf16: bool, greatest: bool) -> int:
    """The lesser, or greater, of two 16-bit floats: of a NaN and a number the number; -0 < +0."""
    infinity = 0x7F80 if bf16 else 0x7C00
    if one & 0x7FFF > infinity:
        return NAN if other & 0x7FFF > infinity else other
    if other & 0x7FFF > infinity:
        return one
    first = one if one < 0x8000 else ~(one & 0x7FFF)
    second = other if other < 0x8000 else ~(other & 0x7FFF)
    return one if (first < second) != greatest else other
