"""Floats as exact fractions, and fractions rounded to any binary format: Python's integers only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

MODES = ("rn", "rz", "rm", "rp", "rna")


@dataclass(frozen=True)
class Form:
    """`infinite`: the top exponent has an infinity and NaNs; `nan`: the canonical one."""

    exponent: int
    mantissa: int
    nan: int
    infinite: bool = True
    largest: int = 0

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @property
    def sign(self) -> int:
        return 1 << self.exponent + self.mantissa

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def top(self) -> int:
        """The largest finite code."""
        return self.infinity - 1 if self.infinite else self.largest


F64 = Form(11, 52, 0x7FFFFFFFFFFFFFFF)
F32 = Form(8, 23, 0x7FFFFFFF)
F16 = Form(5, 10, 0x7FFF)
BF16 = Form(8, 7, 0x7FFF)
TF32 = Form(8, 10, 0x3FFFF)
E4M3 = Form(4, 3, 0x7F, False, 0x7E)
E5M2 = Form(5, 2, 0x7F)
E2M3 = Form(2, 3, 0x1F, False, 0x1F)
E3M2 = Form(3, 2, 0x1F, False, 0x1F)
E2M1 = Form(2, 1, 0x7, False, 0x7)

INF = "inf"
NAN = "nan"
Number = Fraction | str  # a Fraction, "inf", "-inf", "nan"


def value(code: int, form: Form) -> Number:
    """What a code says; -0 is 0."""
    size = code & form.sign - 1
    negative = bool(code & form.sign)
    if form.infinite and size >= form.infinity:
        if size > form.infinity:
            return NAN
        return "-inf" if negative else INF
    if not form.infinite and form.nan > form.top and size == form.nan:
        return NAN
    e, fraction = size >> form.mantissa, size & (1 << form.mantissa) - 1
    if e:
        fraction |= 1 << form.mantissa
    shift = max(e, 1) - form.bias - form.mantissa
    number = Fraction(fraction) * (Fraction(2) ** shift)
    return -number if negative else number


def _whole(x: Fraction, mode: str, negative: bool) -> int:
    """A positive number as an integer."""
    low = x.numerator // x.denominator
    rest = x - low
    if not rest or mode == "rz":
        return low
    if mode in ("rm", "rp"):
        return low + ((mode == "rm") == negative)
    if rest == Fraction(1, 2):
        return low + 1 if mode == "rna" else low + (low & 1)
    return low + (rest > Fraction(1, 2))


def code(x: Number, form: Form, mode: str = "rn", minus: bool = False, finite: bool = False) -> int:
    """The code of a number. `minus`: what is 0 is -0; `finite`: overflow gives the largest."""
    finite = finite or not form.infinite
    if x == NAN:
        return form.nan
    if x in (INF, "-inf"):
        return (form.top if finite else form.infinity) | (form.sign if x == "-inf" else 0)
    assert isinstance(x, Fraction)
    negative = x < 0 or (x == 0 and minus)
    sign = form.sign if negative else 0
    x = abs(x)
    if x == 0:
        return sign
    e = x.numerator.bit_length() - x.denominator.bit_length()
    while Fraction(2) ** e > x:
        e -= 1
    while Fraction(2) ** (e + 1) <= x:
        e += 1
    e = max(e, 1 - form.bias)
    digits = _whole(x / Fraction(2) ** (e - form.mantissa), mode, negative)
    found = ((e + form.bias - 1) << form.mantissa) + digits
    if found > form.top:
        inwards = mode == "rz" or (mode in ("rm", "rp") and (mode == "rm") != negative)
        return sign | (form.top if finite or inwards else form.infinity)
    return sign | found


def integer(x: Fraction, mode: str) -> int:
    """A number as an integer; `mode` as of floats."""
    found = _whole(abs(x), mode, x < 0)
    return -found if x < 0 else found
