"""Conversions and functions of single values, as the vector ALU defines them.

log2 rounds the exact value correctly but for double-rounding cases (about one in 2^27), as exp2 in
`lanes` does; the hardware promises about 1 ulp. Sources: CDNA4 ISA guide, OCP 8-bit floating point
specification; evidence and gaps: docs/fidelity.md.
"""

from __future__ import annotations

import math

import numpy as np

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    bits_of,
    f32_of,
    float32,
    float64,
    int32,
    int64,
    uint32,
)


@compiled
def flush_bits(bits: int, keep: int) -> int:
    """Replace a denormal f32 by a signed zero when `keep` is 0x80000000; `keep` all ones keeps."""
    return bits & keep if (bits & 0x7F800000) == 0 else bits


@compiled
def f32_from(bits: int) -> float:
    return f32_of(uint32(bits))


@compiled
def log2_f32(x: float) -> float:
    """log2 of an f32; log2(0) = -inf, of a negative number NaN."""
    if x != x or x < 0.0:
        return float32(np.nan)
    if x == 0.0:
        return float32(-np.inf)
    if x == np.inf:
        return float32(np.inf)
    return float32(math.log2(float64(x)))


@compiled
def sin_of_half_turns(halves: float) -> float:
    """sin(pi halves), in double precision; whole half turns are taken off exactly."""
    whole = np.floor(halves + 0.5)
    value = math.sin(math.pi * (halves - whole))
    return -value if int64(whole) & 1 else value


@compiled
def sin_of_turns(x: float) -> float:
    """sin(2 pi x); 0 where |x| is above 256 (CDNA4 ISA guide, V_SIN_F32), NaN of infinity."""
    if x >= -256.0 and x <= 256.0:
        return float32(sin_of_half_turns(2.0 * float64(x)))
    return float32(0.0 * float64(x))


@compiled
def cos_of_turns(x: float) -> float:
    """cos(2 pi x); 1 where |x| is above 256 (CDNA4 ISA guide, V_COS_F32), NaN of infinity.

    It is sin a quarter of a turn on.
    """
    if x >= -256.0 and x <= 256.0:
        return float32(sin_of_half_turns(2.0 * float64(x) + 0.5))
    return float32(0.0 * float64(x) + 1.0)


@compiled
def bf16_of(bits: int) -> int:
    """Round f32 bits to bf16, to nearest even; a NaN stays one (made quiet)."""
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@compiled
def small_float(bits: int, mantissa: int, bias: int, largest: int, overflow: int) -> int:
    """Round f32 bits to a float of `mantissa` bits with a smaller exponent, to nearest even.

    `largest` is the biggest finite code, `overflow` the code of everything that rounds beyond it.
    Returns the code without sign; NaN is the caller's.
    """
    exponent = (bits >> 23) & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 0:
        return 0  # far below half the smallest denormal of either format
    fraction |= 0x800000
    shift = 23 - mantissa
    e = exponent - 127 + bias
    if e <= 0:
        shift += 1 - e
        e = 0
        if shift > 31:
            return 0
        return (fraction + (1 << (shift - 1)) - 1 + ((fraction >> shift) & 1)) >> shift
    rounded = (fraction + (1 << (shift - 1)) - 1 + ((fraction >> shift) & 1)) >> shift
    code = (e << mantissa) + rounded - (1 << mantissa)
    return code if code <= largest else overflow


@compiled
def e4m3_of(bits: int, clamp: int) -> int:
    """f32 bits to OCP e4m3: what rounds beyond 448 is NaN, or 448 when clamping."""
    sign = (bits >> 24) & 0x80
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return sign | 0x7F
    beyond = 0x7E if clamp else 0x7F
    if (bits & 0x7FFFFFFF) == 0x7F800000:
        return sign | beyond
    return sign | small_float(bits, 3, 7, 0x7E, beyond)


@compiled
def scaled_by(x: float, scale: int, sign: int) -> float:
    """x times 2 to the exponent of the f32 `scale`, or to its negative for `sign` -1; rounded once.

    The exponent field is an E8M0 number (OCP microscaling formats): 255 is NaN.
    """
    field = (scale >> 23) & 0xFF
    if field == 255:
        return float32(np.nan)
    return float32(math.ldexp(float64(x), sign * (field - 127)))


@compiled
def e5m2_of(bits: int, clamp: int) -> int:
    """f32 bits to OCP e5m2: overflow is infinity, or 57344 when clamping."""
    sign = (bits >> 24) & 0x80
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return sign | 0x7F
    if (bits & 0x7FFFFFFF) == 0x7F800000:
        return sign | (0x7B if clamp else 0x7C)
    return sign | small_float(bits, 2, 15, 0x7B, 0x7B if clamp else 0x7C)


@compiled
def f32_of_e4m3(code: int) -> float:
    """OCP e4m3 to f32."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent = (code >> 3) & 15
    fraction = code & 7
    if exponent == 15 and fraction == 7:
        return float32(np.nan)
    if exponent == 0:
        return float32(sign * fraction * 0.001953125)
    return f32_of(uint32((code & 0x80) << 24 | (exponent + 120) << 23 | fraction << 20))


@compiled
def f32_of_e5m2(code: int) -> float:
    """OCP e5m2 to f32: the upper byte of an f16."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent = (code >> 2) & 31
    fraction = code & 3
    if exponent == 31:
        return float32(np.nan) if fraction else float32(sign * np.inf)
    if exponent == 0:
        return float32(sign * fraction * 0.0000152587890625)
    return f32_of(uint32((code & 0x80) << 24 | (exponent + 112) << 23 | fraction << 21))


@compiled
def f16_of(bits: int, clamp: int) -> int:
    """Round f32 bits to f16, to nearest even; finite overflow is 65504 when clamping, else inf."""
    sign = (bits >> 16) & 0x8000
    magnitude = bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return sign | 0x7E00 | ((magnitude >> 13) & 0x3FF)
    if magnitude == 0x7F800000:
        return sign | 0x7C00
    return sign | small_float(bits, 10, 15, 0x7BFF, 0x7BFF if clamp else 0x7C00)


@compiled
def f16_towards_zero(bits: int) -> int:
    """Round f32 bits to f16, towards zero: a finite number stays finite."""
    sign = (bits >> 16) & 0x8000
    magnitude = bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return sign | 0x7E00 | ((magnitude >> 13) & 0x3FF)
    if magnitude == 0x7F800000:
        return sign | 0x7C00
    e = (magnitude >> 23) - 112
    if e > 30:
        return sign | 0x7BFF
    if e > 0:
        return sign | ((magnitude >> 13) - (112 << 10))
    if e < -10:
        return sign
    return sign | ((magnitude & 0x7FFFFF) | 0x800000) >> (14 - e)


@compiled
def f32_of_f16(code: int) -> float:
    """f16 to f32, denormals kept."""
    sign = -1.0 if code & 0x8000 else 1.0
    exponent = (code >> 10) & 31
    fraction = code & 0x3FF
    if exponent == 31:
        return f32_of(uint32((code & 0x8000) << 16 | 0x7F800000 | fraction << 13))
    if exponent == 0:
        return float32(sign * fraction * 5.9604644775390625e-08)
    return f32_of(uint32((code & 0x8000) << 16 | (exponent + 112) << 23 | fraction << 13))


@compiled
def signed16(x: int) -> int:
    return ((x & 0xFFFF) ^ 0x8000) - 0x8000


@compiled
def max_f32(a: float, b: float) -> float:
    """The larger; the other one when one is NaN; +0 over -0."""
    if a != a:
        return b
    if b != b:
        return a
    if a == b:
        return f32_of(bits_of(a) & bits_of(b))
    return a if a > b else b


@compiled
def min_f32(a: float, b: float) -> float:
    """The smaller; the other one when one is NaN; -0 under +0."""
    if a != a:
        return b
    if b != b:
        return a
    if a == b:
        return f32_of(bits_of(a) | bits_of(b))
    return a if a < b else b


@compiled
def u32_of_f32(x: float) -> int:
    """Truncate towards zero and saturate; NaN gives 0."""
    if not x > 0.0:
        return 0
    return 0xFFFFFFFF if x >= 4294967296.0 else int64(x)


@compiled
def i32_of_f32(x: float) -> int:
    """Truncate towards zero and saturate; NaN gives 0."""
    if x != x:
        return 0
    if x >= 2147483648.0:
        return 0x7FFFFFFF
    return -0x80000000 if x <= -2147483648.0 else int64(x)


@compiled
def signed32(x: int) -> int:
    """The int64 value of 32 bits read as two's complement."""
    return int64(int32(uint32(x)))


@compiled
def reverse_bits(x: int) -> int:
    r = 0
    for i in range(32):
        r |= ((x >> i) & 1) << (31 - i)
    return r


@compiled
def first_low(x: int) -> int:
    """Number of the lowest set bit, -1 for none."""
    for i in range(32):
        if (x >> i) & 1:
            return i
    return -1


@compiled
def first_high(x: int) -> int:
    """Count of zeros above the highest set bit, -1 for none."""
    for i in range(32):
        if (x >> (31 - i)) & 1:
            return i
    return -1


@compiled
def count_bits(x: int) -> int:
    n = 0
    while x != 0:
        x &= x - 1
        n += 1
    return n
