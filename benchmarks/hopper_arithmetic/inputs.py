"""Inputs of the measured words, drawn from a counter, the same on every machine.

A tile is A of 64 rows, B of 8 columns, both of K elements, and C of 64 x 8: 512 dot products. Its
family says what it is good at: wide exponents, cancellation, denormals, Inf and NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlagen.emulator.ptx.arithmetic.formats import FORMATS, OperandFormat

ROWS, COLS = 64, 8
ROW_BYTES = 32  # of one row of A or B, in all formats
U32: TypeAlias = NDArray[np.uint32]
U64: TypeAlias = NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)


def mixed(values: U64) -> U64:
    """The finaliser of splitmix64: a bijection of 64-bit words that leaves no pattern."""
    z = values.astype(np.uint64, copy=True)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def drawn(stream: int, first: int, count: int) -> U64:
    """`count` words of stream `stream`, from place `first` on."""
    places = np.arange(first, first + count, dtype=np.uint64)
    start = mixed(np.array([stream], np.uint64) * _STEP)
    return mixed((places + np.uint64(1)) * _STEP ^ start)


@dataclass(frozen=True, slots=True)
class Family:
    """How a tile's elements are drawn. Exponents lie in `spread` powers of two, the middle of them
    `middle` of the format's range (0 lowest, 1 highest), B's about `b_middle`. Of 256 elements,
    `zeros` are zero and `odd` NaN, Inf, denormal or the greatest. `cancel`: pairs of products sum
    to zero. `mantissa`: random, zero or ones. `c`: zero, near (the exponent close to the
    products'), wide, low, first (minus the first product) or raw."""

    name: str
    spread: int
    middle: float = 0.5
    b_middle: float | None = None  # as `middle`
    zeros: int = 0
    odd: int = 0
    cancel: bool = False
    mantissa: str = "random"
    positive: bool = False
    raw: bool = False
    c: str = "near"

    @property
    def of_b(self) -> float:
        return self.middle if self.b_middle is None else self.b_middle


FAMILIES = (
    Family("flat", 1),
    Family("narrow", 4),
    Family("lowest", 8, middle=0.0, c="low"),
    Family("wide", 20, c="wide"),
    Family("full", 400, c="wide"),
    Family("sparse", 30, zeros=208, c="wide"),
    Family("cancel", 14, cancel=True, zeros=64, c="zero"),
    Family("cancel wide", 36, cancel=True, zeros=96, c="wide"),
    Family("carry", 3, mantissa="ones", positive=True),
    Family("powers", 50, cancel=True, mantissa="zero", zeros=64, c="wide"),
    Family("low", 12, middle=0.0, b_middle=0.5, zeros=32, c="low"),
    Family("high", 6, middle=1.0, c="wide"),
    Family("odd", 4, odd=4),
    Family("signed zeros", 4, zeros=250, c="zero"),
    Family("raw", 1, raw=True, c="raw"),
    Family("first", 24, c="first"),
)


@dataclass(frozen=True, slots=True)
class InputSet:
    """Operands of one kind: formats of A, B and C (`s8`, `u8`, `s32` for integers). `seed` is the
    first of its streams."""

    a: str
    b: str
    c: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.c}.{self.a}.{self.b}"

    @property
    def integer(self) -> bool:
        return self.c == "s32"

    @property
    def element_bytes(self) -> int:
        return 1 if self.integer else max(FORMATS[self.a].bits // 8, 1)

    @property
    def c_bytes(self) -> int:
        return 2 if self.c == "f16" else 4

    @property
    def k(self) -> int:
        return ROW_BYTES // self.element_bytes

    def tiles(self, first: int, count: int) -> tuple[U32, U32, U32]:
        """Words of A (count, 64, k), B (count, 8, k) and C (count, 64, 8)."""
        draws = ROWS * self.k, COLS * self.k, ROWS * COLS
        words = [
            drawn(self.seed * 16 + index, first * size, count * size).reshape(count, -1, last)
            for index, (size, last) in enumerate(zip(draws, (self.k, self.k, COLS), strict=True))
        ]
        if self.integer:
            a, b = ((found >> np.uint64(56)).astype(np.uint32) for found in words[:2])
            return a, b, _integer_c(words[2])
        a, b, c = (np.empty(found.shape, np.uint32) for found in words)
        for which in range(min(len(FAMILIES), count)):
            family = FAMILIES[(first + which) % len(FAMILIES)]
            part = slice(which, None, len(FAMILIES))
            a[part], b[part], c[part] = self._family(family, *(found[part] for found in words))
        return a, b, c

    def _family(self, family: Family, a: U64, b: U64, c: U64) -> tuple[U32, U32, U32]:
        one, other = FORMATS[self.a], FORMATS[self.b]
        a_words = _elements(family, one, family.middle, a)
        b_words = _elements(family, other, family.of_b, b)
        if family.cancel:  # elements 2i and 2i + 1, with opposite signs, where a bit of A says so
            pair = (a[..., ::2] >> np.uint64(3)) & np.uint64(3) != 0
            sign = np.uint32(1 << (one.bits - 1))
            turned = np.where(pair, a_words[..., ::2] ^ sign, a_words[..., 1::2])
            a_words[..., 1::2] = turned
            b_words[..., 1::2] = b_words[..., ::2]
        c_words = _accumulators(family, self, c)
        if family.c == "first":
            c_words = _minus_first(self, a_words, b_words, c_words)
        return a_words, b_words, c_words


def _integer_c(words: U64) -> U32:
    """Small ones, and some close to the ends of 32 bits."""
    small = (words >> np.uint64(44)).astype(np.uint32) - np.uint32(1 << 19)
    ends = np.uint32(0x7FFFFFFF) + (words >> np.uint64(62)).astype(np.uint32) // np.uint32(2)
    near = ends + (words & np.uint64(0xFFFF)).astype(np.uint32) - np.uint32(0x8000)
    found: U32 = np.where(words & np.uint64(0x70000), small, near)
    return found


def _elements(family: Family, kind: OperandFormat, middle: float, words: U64) -> U32:
    if family.raw:
        return (words >> np.uint64(64 - kind.bits)).astype(np.uint32)
    fields = _fields(family.spread, middle, kind, words >> np.uint64(40))
    mantissa = (words >> np.uint64(8)) & np.uint64((1 << (kind.mantissa_bits + kind.unused)) - 1)
    if family.mantissa == "zero":
        mantissa[:] = 0
    elif family.mantissa == "ones":
        mantissa |= np.uint64(max((1 << kind.mantissa_bits + kind.unused) - 4, 0) << kind.unused)
        mantissa &= np.uint64((1 << (kind.mantissa_bits + kind.unused)) - 1)
    sign = np.uint64(0) if family.positive else words >> np.uint64(63)
    body = fields << np.uint64(kind.mantissa_bits + kind.unused) | mantissa
    choice = words & np.uint64(255)
    body = np.where(choice < np.uint64(family.zeros), np.uint64(0), body)
    odd = np.array(_odd(kind), np.uint64)[(words >> np.uint64(40)) % np.uint64(len(_odd(kind)))]
    body = np.where(choice >= np.uint64(256 - family.odd), odd, body)
    found: U32 = (sign << np.uint64(kind.bits - 1) | body).astype(np.uint32)
    return found


def _fields(spread: int, middle: float, kind: OperandFormat, words: U64) -> U64:
    """Fields of exponents, within the ordinary numbers and the denormal ones."""
    width = min(spread, kind.top_field + 1)
    low = min(max(round(middle * kind.top_field) - width // 2, 0), kind.top_field + 1 - width)
    found: U64 = np.uint64(low) + (words & np.uint64(0x7FFFFF)) % np.uint64(width)
    return found


def _odd(kind: OperandFormat) -> list[int]:
    """Bodies: denormal ones, the greatest number, Inf and NaN where there are such."""
    shift = kind.unused
    ones = (1 << kind.mantissa_bits) - 1
    top = kind.top_field + 1 << kind.mantissa_bits
    if kind.finite:
        return [1, ones, top - 1, 0]
    greatest = top - 1 if kind.infinities else top + ones - 1
    special = [top, top, top + 1, top + ones] if kind.infinities else [top + ones, greatest]
    return [word << shift for word in (1, ones, greatest, 0, *special)]


def _accumulators(family: Family, kinds: InputSet, words: U64) -> U32:
    kind = FORMATS[kinds.c]
    if family.c == "raw":
        return (words >> np.uint64(64 - kind.bits)).astype(np.uint32)
    centre = sum(
        round(middle * FORMATS[name].top_field) - FORMATS[name].bias
        for middle, name in ((family.middle, kinds.a), (family.of_b, kinds.b))
    )
    reach = {"near": 8, "wide": 64, "low": 24, "first": 8, "zero": 1}[family.c]
    draw = ((words >> np.uint64(40)) & np.uint64(0x7FFFFF)) % np.uint64(reach)
    fields = draw.astype(np.int64) + (centre + kind.bias - reach // 2)
    body = np.clip(fields, 0, kind.top_field).astype(np.uint64) << np.uint64(kind.mantissa_bits)
    mantissa = (words >> np.uint64(8)) & np.uint64((1 << kind.mantissa_bits) - 1)
    body |= np.where(words & np.uint64(6), mantissa, np.uint64(0))
    no_body = (family.c == "zero") | (words & np.uint64(0xF8) == 0)
    body = np.where(no_body, np.uint64(0), body)
    odd = np.array(_odd(kind), np.uint64)[(words >> np.uint64(40)) % np.uint64(len(_odd(kind)))]
    body = np.where(words & np.uint64(255) >= np.uint64(256 - family.odd), odd, body)
    found: U32 = ((words >> np.uint64(63)) << np.uint64(kind.bits - 1) | body).astype(np.uint32)
    return found


def _minus_first(kinds: InputSet, a: U32, b: U32, c: U32) -> U32:
    """Minus the first product, rounded to C's format, in three of four accumulators."""
    one = values(FORMATS[kinds.a], a[..., 0])[:, :, None]
    product = -(one * values(FORMATS[kinds.b], b[..., 0])[:, None, :])
    with np.errstate(over="ignore"):
        if kinds.c == "f16":
            found = product.astype(np.float16).view(np.uint16).astype(np.uint32)
        else:
            found = product.astype(np.float32).view(np.uint32)
    chosen: U32 = np.where(c & np.uint32(3), found, c)
    return chosen


def values(kind: OperandFormat, words: U32) -> NDArray[np.float64]:
    """What finite words of a format mean. Bits that the hardware does not read are dropped."""
    fields = words.astype(np.int64) >> kind.unused
    mantissa = fields & ((1 << kind.mantissa_bits) - 1)
    field = (fields >> kind.mantissa_bits) & ((1 << kind.exponent_bits) - 1)
    hidden = (field != 0).astype(np.int64) << kind.mantissa_bits
    exponent = np.maximum(field, 1) - kind.bias - kind.mantissa_bits
    sign = 1 - 2 * (fields >> (kind.exponent_bits + kind.mantissa_bits) & 1)
    return np.ldexp((sign * (mantissa + hidden)).astype(np.float64), exponent.astype(np.int32))


INPUT_SETS = (
    InputSet("f16", "f16", "f32", 1),
    InputSet("bf16", "bf16", "f32", 2),
    InputSet("tf32", "tf32", "f32", 3),
    InputSet("e4m3", "e4m3", "f32", 4),
    InputSet("e5m2", "e5m2", "f32", 5),
    InputSet("e4m3", "e5m2", "f32", 6),
    InputSet("e5m2", "e4m3", "f32", 7),
    InputSet("f16", "f16", "f16", 8),
    InputSet("e4m3", "e4m3", "f16", 9),
    InputSet("e5m2", "e5m2", "f16", 10),
    InputSet("s8", "s8", "s32", 11),
    InputSet("u8", "s8", "s32", 12),
)
