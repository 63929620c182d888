"""Rounding of floats to smaller formats, and small formats as f32; integers and floats.

A source that is not exact in f64 is rounded to odd first: f64 has enough bits that the second
rounding then gives what a single one would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from mlagen.emulator.ptx.values.lanes import Lanes

# How a number is rounded (P_FLAGS): to nearest even, towards zero, down, up, nearest away.
RN, RZ, RM, RP, RNA = range(5)
ROUNDINGS = {"rn": RN, "rz": RZ, "rm": RM, "rp": RP, "rna": RNA}


@dataclass(frozen=True)
class FloatFormat:
    """A float: bits of exponent and mantissa, and what its codes say. `largest`: of finite ones.

    `infinity` is None where overflow gives the largest number (.satfinite)."""

    name: str
    exponent: int
    mantissa: int
    largest: int
    infinity: int | None
    nan: int

    @property
    def bias(self) -> int:
        """Exponent code of 1.0."""
        return (1 << self.exponent - 1) - 1

    @property
    def width(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent + self.mantissa

    def saturated(self) -> FloatFormat:
        """The same with overflow to the largest number."""
        return FloatFormat(self.name, self.exponent, self.mantissa, self.largest, None, self.nan)


F64 = FloatFormat("f64", 11, 52, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FFFFFFFFFFFFFFF)
F32 = FloatFormat("f32", 8, 23, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF)
F16 = FloatFormat("f16", 5, 10, 0x7BFF, 0x7C00, 0x7FFF)
BF16 = FloatFormat("bf16", 8, 7, 0x7F7F, 0x7F80, 0x7FFF)
TF32 = FloatFormat("tf32", 8, 10, 0x7F7FE000 >> 13, 0x7F800000 >> 13, 0x7FFFFFFF >> 13)
E4M3 = FloatFormat("e4m3", 4, 3, 0x7E, None, 0x7F)
E5M2 = FloatFormat("e5m2", 5, 2, 0x7B, None, 0x7F)
E2M3 = FloatFormat("e2m3", 2, 3, 0x1F, None, 0x1F)
E3M2 = FloatFormat("e3m2", 3, 2, 0x1F, None, 0x1F)
E2M1 = FloatFormat("e2m1", 2, 1, 0x7, None, 0x7)


def narrow(t: Lanes, value: Any, to: FloatFormat, rounding: Any = RN) -> Any:
    """Floats of 32 or 64 bits as codes of a smaller format, in lanes of the source's width.

    `rounding`: a number of `ROUNDINGS`, or lanes of such numbers. A NaN becomes the format's,
    without sign, where it has one with no sign; denormals are kept.
    """
    width = t.width(value)
    source = F64 if width == 64 else F32
    bits = t.integers(value)
    sign = t.lshr(bits, width - 1)
    size = t.and_(bits, (1 << width - 1) - 1)
    shift: Any = t.const(bits, source.mantissa - to.mantissa)
    base: Any = t.const(bits, 0)
    digits = size
    if source.exponent != to.exponent:
        code = t.lshr(size, source.mantissa)
        normal = t.compare("!=", code, 0)
        hidden = t.select(normal, 1 << source.mantissa, t.const(bits, 0))
        digits = t.b.or_(t.and_(size, (1 << source.mantissa) - 1), hidden)
        exponent = t.select(normal, code, t.const(bits, 1))
        exponent = t.sub(exponent, source.bias - to.bias)
        small = t.compare("<", exponent, 1, True)
        below = t.select(small, t.b.sub(t.const(bits, 1), exponent), t.const(bits, 0))
        shift = t.b.add(shift, below)
        most = source.mantissa + 2
        shift = t.select(t.compare("<", shift, most), shift, most)
        base = t.select(small, 0, t.shl(t.sub(exponent, 1), to.mantissa))
    increment = _increment(t, digits, shift, sign, rounding)
    found = t.b.add(base, t.b.lshr(t.b.add(digits, increment), shift))
    over = t.compare(">", found, to.largest)
    found = t.b.select(over, _overflow(t, bits, sign, to, rounding), found)
    infinite = t.compare("==", size, source.infinity)
    if to.infinity is not None:
        found = t.select(infinite, to.infinity, found)
    found = t.b.or_(found, t.shl(sign, to.width - 1))
    nan = t.compare(">", size, source.infinity)
    return t.select(nan, to.nan, found)


def _increment(t: Lanes, digits: Any, shift: Any, sign: Any, rounding: Any) -> Any:
    """What to add before the low `shift` bits are cut."""
    one, zero = t.const(digits, 1), t.const(digits, 0)
    half = t.b.shl(one, t.sub(shift, 1))
    even = t.b.add(t.sub(half, 1), t.b.and_(t.b.lshr(digits, shift), one))
    if isinstance(rounding, int):
        assert rounding in (RN, RZ, RNA)
        return {RN: even, RZ: zero, RNA: half}[rounding]
    ones = t.sub(t.b.shl(one, shift), 1)
    away = t.b.select(t.compare("==", rounding, RNA), half, zero)
    found = t.b.select(t.compare("==", rounding, RN), even, away)
    return t.b.select(_outwards(t, sign, rounding), ones, found)


def _outwards(t: Lanes, sign: Any, rounding: Any) -> Any:
    """Where .rm and .rp round away from zero."""
    down = t.b.and_(t.compare("==", rounding, RM), t.compare("==", sign, 1))
    up = t.b.and_(t.compare("==", rounding, RP), t.compare("==", sign, 0))
    return t.b.or_(down, up)


def _overflow(t: Lanes, like: Any, sign: Any, to: FloatFormat, rounding: Any) -> Any:
    if to.infinity is None:
        return t.const(like, to.largest)
    if isinstance(rounding, int):
        return t.const(like, to.largest if rounding == RZ else to.infinity)
    nearest = t.b.or_(t.compare("==", rounding, RN), t.compare("==", rounding, RNA))
    outwards = t.b.or_(nearest, _outwards(t, sign, rounding))
    return t.select(outwards, to.infinity, t.const(like, to.largest))


def widen(t: Lanes, codes: Any, form: FloatFormat) -> Any:
    """Codes in lanes of any width as f32: exact."""
    bits = t.resize(codes, 32)
    if form.exponent == 8:
        return t.floats(t.shl(bits, 23 - form.mantissa))
    size = t.and_(bits, (1 << form.width - 1) - 1)
    sign = t.shl(t.and_(t.lshr(bits, form.width - 1), 1), 31)
    moved = t.floats(t.shl(size, 23 - form.mantissa))
    scaled = t.integers(t.b.fmul(moved, t.const(moved, 2.0 ** (127 - form.bias))))
    top = ((1 << form.exponent) - 1) << form.mantissa
    if form.name in ("f16", "e5m2"):
        wide = t.or_(t.shl(size, 23 - form.mantissa), 0x7F800000)
        scaled = t.select(t.compare(">=", size, top), wide, scaled)
    elif form.name == "e4m3":
        scaled = t.select(t.compare("==", size, form.nan), 0x7FFFFFFF, scaled)
    return t.floats(t.b.or_(scaled, sign))


def odd_sum(t: Lanes, a: Any, b: Any) -> Any:
    """a + b of f64, rounded to odd."""
    total = t.b.fadd(a, b)
    part = t.b.fsub(total, a)
    rest = t.b.fadd(t.b.fsub(a, t.b.fsub(total, part)), t.b.fsub(b, part))
    return to_odd(t, total, rest)


def to_odd(t: Lanes, total: Any, rest: Any) -> Any:
    """An f64 that was rounded to nearest, and what it lacks, as the number rounded to odd."""
    zero = t.const(rest, 0.0)
    inexact = t.b.fcmp_ordered("!=", rest, zero)
    inexact = t.b.and_(inexact, t.b.fcmp_ordered("==", t.b.fsub(total, total), zero))
    bits = t.integers(total)
    even = t.compare("==", t.and_(bits, 1), 0)
    same = t.compare(">=", t.xor(bits, t.integers(rest)), 0, True)
    step = t.select(same, 1, t.const(bits, -1))
    moved = t.b.add(bits, step)
    return t.floats(t.b.select(t.b.and_(inexact, even), moved, bits))


def odd_fma(t: Lanes, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of numbers whose product is exact in f64 (f32 and less), rounded to odd."""
    return odd_sum(t, t.b.fmul(a, b), c)


def whole_as_f64(t: Lanes, value: Any, signed: bool) -> Any:
    """Integers of 64 bits as f64, rounded to odd."""
    kind = t.floats(value).type
    high = t.ashr(value, 32) if signed else t.lshr(value, 32)
    top = t.b.sitofp(high, kind)
    low = t.b.uitofp(t.and_(value, 0xFFFFFFFF), kind)
    return odd_sum(t, t.b.fmul(top, t.const(top, 2.0**32)), low)


def f32_of_odd(t: Lanes, value: Any, rounding: Any = RN) -> Any:
    """f64 that were rounded to odd as f32."""
    return t.floats(t.resize(narrow(t, value, F32, rounding), 32))


def machine_rounding(t: Lanes, slot: int) -> Any:
    """LLVM's number of the rounding that a word of the row has: nearest, zero, down, up."""
    numbers = sum(number << 2 * mode for mode, number in ((RN, 1), (RZ, 0), (RM, 3), (RP, 2)))
    word = t.scalar(slot)
    shift = t.b.shl(word, word.type(1))
    return t.b.and_(
        t.b.trunc(t.b.lshr(word.type(numbers), shift), ir.IntType(32)), ir.IntType(32)(3)
    )
