"""The steps of an f32 division: scaling, the scaled multiply-add, and the repair of the result.

A compiler divides as: v_div_scale of both operands, v_rcp and three rounds of v_fma, v_div_fmas,
v_div_fixup. Source: CDNA4 ISA guide, V_DIV_SCALE_F32, V_DIV_FMAS_F32, V_DIV_FIXUP_F32.
"""

from __future__ import annotations

import math

import numpy as np

from mlagen.emulator.gfx950.numeric import compiled, f32_from
from mlagen.emulator.gfx950.vector import read_f32, read_int, write_f32
from mlagen.emulator.native.raw import bits_of, float32, float64, fma_f32, int64

_SMALLEST_NORMAL = 2.0**-126
_LARGEST_RECIPROCAL = 2.0**126  # that of anything larger is denormal
_MOST_DIFFERENT = 128  # exponents further apart: the quotient is not below 2^128


@compiled
def exponent_of(row: int, lane: int) -> int:
    """The biased exponent as it is stored."""
    return (read_int(row, lane) >> 23) & 0xFF


@compiled
def is_denormal(value: float) -> bool:
    return value != 0.0 and abs(value) < _SMALLEST_NORMAL


@compiled
def div_scale(t: int, a: int, b: int, c: int, keep: int) -> int:
    """v_div_scale: a (which is b or c) scaled so that c / b can be formed; lanes to scale back."""
    out = 0
    for i in range(64):
        value = read_f32(a, i, keep)
        divisor = read_f32(b, i, keep)
        dividend = read_f32(c, i, keep)
        scaled = float32(math.ldexp(float64(value), 64))
        result = value
        if dividend == 0.0 or divisor == 0.0:
            result = float32(np.nan)
        elif exponent_of(c, i) - exponent_of(b, i) >= 96:
            out |= 1 << i
            if value == divisor:
                result = scaled
        elif is_denormal(float64(divisor)):
            result = scaled
        elif abs(divisor) > _LARGEST_RECIPROCAL and abs(divisor) < np.inf:
            # The guide's condition names a denormal of f64, which 1 / f32 never is, and scales up
            # where that would overflow. v_rcp flushes denormal results, so it is scaled down here.
            shrunk = float32(math.ldexp(float64(value), -64))
            if is_denormal(float64(dividend) / float64(divisor)):
                out |= 1 << i
                if value == divisor:
                    result = shrunk
            else:
                result = shrunk
        elif is_denormal(float64(dividend) / float64(divisor)):
            out |= 1 << i
            if value == dividend:
                result = scaled
        elif exponent_of(c, i) <= 23:
            result = scaled
        write_f32(t, i, result, keep)
    return out


@compiled
def div_fmas(t: int, a: int, b: int, c: int, mask: int, keep: int) -> None:
    """v_div_fmas: a * b + c; in the lanes of VCC times 2^64, or 2^-64 where c is below 2.

    The CDNA4 guide prints 2^32, with which no scaled division would come out right; the RDNA3 guide
    has these factors, which undo what v_div_scale did.
    """
    for i in range(64):
        x = read_f32(a, i, keep)
        y = read_f32(b, i, keep)
        z = read_f32(c, i, keep)
        if (mask >> i) & 1:
            power = 64 if exponent_of(c, i) > 127 else -64
            # Rounded once: the product is exact in double precision.
            total = float64(x) * float64(y) + float64(z)
            value = float32(math.ldexp(total, power))
        else:
            value = fma_f32(x, y, z)
        write_f32(t, i, value, keep)


@compiled
def div_fixup(t: int, a: int, b: int, c: int, keep: int) -> None:
    """v_div_fixup: quotient a of c / b, with the special cases of division put right.

    The guide's condition for an overflow (a divisor with exponent 255) is reached by no finite
    divisor; here it is a quotient that cannot be below 2^128.
    """
    for i in range(64):
        value = read_f32(a, i, keep)
        divisor = read_f32(b, i, keep)
        dividend = read_f32(c, i, keep)
        negative = (int64(bits_of(divisor)) ^ int64(bits_of(dividend))) >> 31
        sign = float32(-1.0) if negative else float32(1.0)
        infinite = np.inf
        apart = exponent_of(c, i) - exponent_of(b, i)
        if dividend != dividend:
            result = dividend
        elif divisor != divisor:
            result = divisor
        elif (divisor == 0.0 and dividend == 0.0) or (
            abs(divisor) == infinite and abs(dividend) == infinite
        ):
            result = f32_from(0xFFC00000)
        elif divisor == 0.0 or abs(dividend) == infinite:
            result = sign * float32(infinite)
        elif abs(divisor) == infinite or dividend == 0.0 or apart < -150:
            result = sign * float32(0.0)
        elif apart > _MOST_DIFFERENT:
            result = sign * float32(infinite)
        else:
            result = sign * abs(value)
        write_f32(t, i, result, keep)
