"""Values of 32 lanes that the tests of instructions begin with, and what they ask of a number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import rounding as x
from rounding import Form

FORMS = {"f32": x.F32, "f64": x.F64, "f16": x.F16, "bf16": x.BF16}
NAMES = {"f32": "f", "f64": "d", "f16": "h", "bf16": "h"}  # of registers
WORDS = {16: np.uint16, 32: np.uint32, 64: np.uint64}  # of integers


def codes(form: Form, seed: int) -> np.ndarray:
    """32 codes: ends of the range, denormals, zeros, infinities, NaNs, numbers near 1."""
    r = np.random.default_rng(seed)
    size = form.sign
    one = form.bias << form.mantissa
    low = (1 << form.mantissa) - 1
    fixed = [
        0,
        size,
        1,
        size | 1,
        low,
        size | low,
        low + 1,
        form.top,
        size | form.top,
        form.infinity,
    ]
    fixed += [size | form.infinity, form.infinity + 1, form.nan, size | form.nan, one, size | one]
    near = [one + int(v) for v in r.integers(-(4 << form.mantissa), 4 << form.mantissa, 8)]
    far = [int(v) % (2 * size) for v in r.integers(0, 1 << 63, 8)]
    signs = [size * int(v) for v in r.integers(0, 2, 8)]
    drawn = [n | s for n, s in zip(near, signs, strict=True)]
    return r.permutation(np.array([*fixed, *drawn, *far], dtype=np.uint64))


def flushed(code: int, form: Form) -> int:
    return code & form.sign if code & form.infinity == 0 else code


def negative(code: int, form: Form) -> bool:
    return bool(code & form.sign)


def saturated(code: int, form: Form) -> int:
    number = x.value(code, form)
    if number == x.NAN or negative(code, form):
        return 0
    one = form.bias << form.mantissa
    return min(code, one)


def order(code: int, form: Form) -> tuple[Fraction, int]:
    number = x.value(code, form)
    if isinstance(number, str):
        number = Fraction(2) ** 2000 * (1 if number == "inf" else -1)
    return number, 0 if negative(code, form) else 1


def signed(x: int, width: int) -> int:
    return x - (1 << width) if x >> width - 1 & 1 else x


def edges(width: int, seed: int) -> np.ndarray:
    """32 numbers: random ones, few bits, and the ends of the range."""
    r = np.random.default_rng(seed)
    top = (1 << width) - 1
    fixed = [0, 1, 2, 3, 7, 24, 31, 32, 33, 63, 64, 65, 255, 256, top, top - 1, top >> 1]
    fixed += [(top >> 1) + 1, (top >> 1) + 2, 0x5555555555555555 & top]
    drawn = [int(x) & top for x in r.integers(0, 1 << 63, 12)]
    chosen = np.array([*fixed, *drawn], dtype=np.uint64)
    return r.permutation(chosen).astype(WORDS[width])
