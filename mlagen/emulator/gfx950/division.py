"""The steps of an f32 division: scaling, the scaled multiply-add, and the repair of the result.

A compiler divides as: v_div_scale of both operands, v_rcp and three rounds of v_fma, v_div_fmas,
v_div_fixup. Source: CDNA4 ISA guide, V_DIV_SCALE_F32, V_DIV_FMAS_F32, V_DIV_FIXUP_F32.
"""

from __future__ import annotations

import math

import numpy as np

from mlagen.emulator.gfx950.numeric import compiled
from mlagen.emulator.gfx950.raw import bits_of, float32, float64, fma_f32, int64
from mlagen.emulator.gfx950.vector import read_f32, read_int, write_f32

_SMALLEST_NORMAL = 2.0**-126


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
        wide = float64(divisor)
        result = value
        if dividend == 0.0 or divisor == 0.0:
            result = float32(np.nan)
        elif exponent_of(c, i) - exponent_of(b, i) >= 96:
            out |= 1 << i
            if value == divisor:
                result = float32(math.ldexp(float64(value), 64))
        elif is_denormal(wide):
            result = float32(math.ldexp(float64(value), 64))
        else:
            tiny_reciprocal = is_denormal(1.0 / wide)
            tiny_quotient = is_denormal(float64(dividend) / wide)
            if tiny_quotient:
                out |= 1 << i
                scaled = divisor if tiny_reciprocal else dividend
                if value == scaled:
                    result = float32(math.ldexp(float64(value), 64))
            elif tiny_reciprocal:
                result = float32(math.ldexp(float64(value), -64))
            elif exponent_of(c, i) <= 23:
                result = float32(math.ldexp(float64(value), 64))
        write_f32(t, i, result, keep)
    return out


@compiled
def div_fmas(t: int, a: int, b: int, c: int, mask: int, keep: int) -> None:
    """v_div_fmas: a * b + c, times 2^32 in the lanes of VCC."""
    for i in range(64):
        value = fma_f32(read_f32(a, i, keep), read_f32(b, i, keep), read_f32(c, i, keep))
        if (mask >> i) & 1:
            value = float32(4294967296.0) * value
        write_f32(t, i, value, keep)


@compiled
def div_fixup(t: int, a: int, b: int, c: int, keep: int) -> None:
    """v_div_fixup: quotient a of c / b, with the special cases of division put right."""
    for i in range(64):
        value = read_f32(a, i, keep)
        divisor = read_f32(b, i, keep)
        dividend = read_f32(c, i, keep)
        negative = (int64(bits_of(divisor)) ^ int64(bits_of(dividend))) >> 31
        sign = float32(-1.0) if negative else float32(1.0)
        infinite = np.inf
        if dividend != dividend:
            result = dividend
        elif divisor != divisor:
            result = divisor
        elif (divisor == 0.0 and dividend == 0.0) or (
            abs(divisor) == infinite and abs(dividend) == infinite
        ):
            result = float32(-np.nan)
        elif divisor == 0.0 or abs(dividend) == infinite:
            result = sign * float32(infinite)
        elif abs(divisor) == infinite or dividend == 0.0:
            result = sign * float32(0.0)
        elif exponent_of(c, i) - exponent_of(b, i) < -150:
            result = sign * float32(0.0)
        else:
            result = sign * abs(value)
        write_f32(t, i, result, keep)
