"""Sums of products as the tensor core makes them: Hopper's bit for bit, Blackwell's by models.

One pass adds all its products and the accumulator at once. Products are exact. Each term is shifted
to the greatest exponent among them and loses what lies below a window; the sum of what is left is
exact, and is cut to the format of the accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlagen.emulator.ptx.arithmetic.formats import E4M3, E5M2, F16, F32, OperandFormat, format_named
from mlagen.errors import ConfigError

Words: TypeAlias = NDArray[np.uint32]
Whole: TypeAlias = NDArray[np.int64]
_FAR = -(1 << 20)  # the exponent of what is not there
CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


@dataclass(frozen=True, slots=True)
class SummingRule:
    """How an instruction sums. `window`: bits kept below the greatest exponent. `kept`: bits of the
    result's fraction. `interleaved`: the products are summed in two passes, of elements 0 and 1 of
    each four and then of 2 and 3, and C is added afterwards, as ordinary numbers are; otherwise in
    one pass with C."""

    window: int
    kept: int
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """Numbers as significand x 2^(exponent - fraction). Inf and NaN stand apart."""

    significand: Whole
    exponent: Whole  # as the hardware compares them: of denormal numbers, the least normal one
    fraction: int  # bits of the significand below one
    inf: NDArray[np.int8]  # its sign, or 0
    nan: NDArray[np.bool_]


def rule_of(instruction: str, a: str, c: str) -> SummingRule:
    """The rule of `wgmma`, `mma` or `tcgen05` for A's format and C's. ConfigError: there is none.

    tcgen05's was not measured: it is what two public models of it say, for every format."""
    if c not in ("f32", "f16") or instruction not in ("wgmma", "mma", "tcgen05"):
        raise ConfigError(f"no sum of {instruction} with accumulators of {c} is modelled")
    if instruction == "tcgen05":
        return SummingRule(25, 23 if c == "f32" else 10)
    kind = format_named(a)
    eight = kind in (E4M3, E5M2)
    if eight and instruction == "wgmma":
        return SummingRule(13, 13 if c == "f32" else 10)
    return SummingRule(25, 23 if c == "f32" else 10, interleaved=eight)


def split(kind: OperandFormat, words: Words) -> Terms:
    """Words of a format as terms of their own shape."""
    fields = words.astype(np.int64) >> kind.unused
    mantissa = fields & ((1 << kind.mantissa_bits) - 1)
    field = (fields >> kind.mantissa_bits) & ((1 << kind.exponent_bits) - 1)
    sign = 1 - 2 * (fields >> (kind.exponent_bits + kind.mantissa_bits) & 1)
    top = field == kind.top_field + 1
    if kind.infinities:
        nan, inf = top & (mantissa != 0), top & (mantissa == 0)
    else:
        nan, inf = top & (mantissa == (1 << kind.mantissa_bits) - 1), np.zeros_like(top)
    hidden = (field != 0).astype(np.int64) << kind.mantissa_bits
    exponent = np.maximum(field, 1) - kind.bias
    return Terms(
        np.where(nan | inf, 0, sign * (mantissa + hidden)), exponent, kind.mantissa_bits,
        (inf * sign).astype(np.int8), nan,
    )  # fmt: skip


def products(a: Terms, b: Terms) -> Terms:
    """Exact products. Not normalised: a significand is below 4, the exponents are added."""
    zero_a = (a.significand == 0) & (a.inf == 0) & ~a.nan
    zero_b = (b.significand == 0) & (b.inf == 0) & ~b.nan
    sign_a = np.where(a.inf != 0, a.inf, np.sign(a.significand))
    sign_b = np.where(b.inf != 0, b.inf, np.sign(b.significand))
    inf = (a.inf != 0) | (b.inf != 0)
    nan = a.nan | b.nan | (inf & (zero_a | zero_b))
    significand = a.significand * b.significand
    exponent = np.where(significand == 0, _FAR, a.exponent + b.exponent)
    return Terms(
        significand, exponent, a.fraction + b.fraction,
        np.where(inf & ~nan, sign_a * sign_b, 0).astype(np.int8), nan,
    )  # fmt: skip


def dot(
    rule: SummingRule, kinds: tuple[str, str, str], a: Words, b: Words, c: Words | None = None
) -> Words:
    """D = A . B^T + C in words of C's format. `kinds`: the formats of A, B, C. Shapes: a (..., m,
    k), b (..., n, k), c and the result (..., m, n). Without `c` the accumulator is not read."""
    formats = tuple(format_named(name) for name in kinds)
    if not rule.interleaved:
        left, right = split(formats[0], a), split(formats[1], b)
        return _pass(rule, formats[2], left, right, None if c is None else split(formats[2], c))
    left, right = split(F16, as_f16(formats[0], a)), split(F16, as_f16(formats[1], b))
    places = np.arange(a.shape[-1]) % 4 < 2
    first = _at(left, (..., places)), _at(right, (..., places))
    total = _pass(rule, formats[2], *first, None)
    left, right = _at(left, (..., ~places)), _at(right, (..., ~places))
    total = _pass(rule, formats[2], left, right, split(formats[2], total))
    return total if c is None else added(kinds[2], total, c)


def as_f16(kind: OperandFormat, words: Words) -> Words:
    """Words of an 8-bit format as words of f16, which holds them all. A denormal e4m3 becomes a
    normal f16: its exponent then counts as it is."""
    terms = split(kind, words)
    numbers = np.ldexp(
        terms.significand.astype(np.float64), (terms.exponent - terms.fraction).astype(np.int32)
    )
    numbers = np.where(terms.inf != 0, np.copysign(np.inf, terms.inf), numbers)
    found = numbers.astype(np.float16).view(np.uint16)
    negative = (words >> np.uint32(kind.bits - 1) & np.uint32(1)).astype(np.uint16)
    found = np.where(terms.nan, np.uint16(0x7FFF), found | negative << np.uint16(15))
    return found.astype(np.uint32)


def added(kind: str, one: Words, other: Words) -> Words:
    """The rounded sum of ordinary f32 or f16 numbers, with the hardware's one NaN."""
    narrow = np.uint32 if kind == "f32" else np.uint16
    typed = np.float32 if kind == "f32" else np.float16
    with np.errstate(all="ignore"):
        total = one.astype(narrow).view(typed) + other.astype(narrow).view(typed)
    words = total.view(narrow).astype(np.uint32)
    return np.where(np.isnan(total), np.uint32(CANONICAL_NAN[kind]), words).astype(np.uint32)


def _pass(rule: SummingRule, kind: OperandFormat, a: Terms, b: Terms, c: Terms | None) -> Words:
    """All products of rows of `a` and `b`, and `c`, in one sum."""
    rows, cols = (..., slice(None), None, slice(None)), (..., None, slice(None), slice(None))
    all_terms = products(_at(a, rows), _at(b, cols))
    greatest = all_terms.exponent.max(axis=-1)
    infs = [all_terms.inf.max(axis=-1), all_terms.inf.min(axis=-1)]
    nan = all_terms.nan.any(axis=-1)
    if c is not None:
        greatest = np.maximum(greatest, np.where(c.significand == 0, _FAR, c.exponent))
        infs += [c.inf, c.inf]
        nan = nan | c.nan
    total = _cut(all_terms, rule.window, greatest[..., None]).sum(axis=-1)
    if c is not None:
        total = total + _cut(c, rule.window, greatest)
    highest, lowest = np.maximum.reduce(infs), np.minimum.reduce(infs)
    nan = nan | ((highest > 0) & (lowest < 0))
    exponent = np.where(total == 0, 0, greatest - rule.window).astype(np.int32)
    exact = np.ldexp(total.astype(np.float64), exponent)
    exact = np.where(highest > 0, np.inf, np.where(lowest < 0, -np.inf, exact))
    words = truncated(exact, rule.kept) if kind is F32 else rounded_f16(exact)
    words = np.where(words == np.uint32(1 << (kind.bits - 1)), np.uint32(0), words)  # never -0
    return np.where(nan, np.uint32(CANONICAL_NAN[kind.name]), words).astype(np.uint32)


def _at(terms: Terms, index: Any) -> Terms:
    return Terms(
        terms.significand[index], terms.exponent[index], terms.fraction, terms.inf[index],
        terms.nan[index],
    )  # fmt: skip


def _cut(terms: Terms, window: int, greatest: Whole) -> Whole:
    """Terms in units of 2^(greatest - window), cut toward zero."""
    left = max(window - terms.fraction, 0)
    right = np.minimum(greatest - terms.exponent, 62) + max(terms.fraction - window, 0)
    size = (np.abs(terms.significand) << left) >> np.minimum(np.maximum(right, 0), 62)
    return np.sign(terms.significand) * size


def truncated(exact: NDArray[np.float64], kept: int) -> Words:
    """f32 words of `exact`, cut toward zero to `kept` bits of fraction; Inf from 2^128 on."""
    with np.errstate(over="ignore", under="ignore"):
        near = exact.astype(np.float32)
    words = near.view(np.uint32)
    past = np.abs(near.astype(np.float64)) > np.abs(exact)
    words = words - past.astype(np.uint32)
    infinite = np.abs(exact) >= 2.0**128
    cut = words & np.uint32(0xFFFFFFFF << (23 - kept) & 0xFFFFFFFF)
    found: Words = np.where(infinite, near.view(np.uint32), cut).astype(np.uint32)
    return found


def rounded_f16(exact: NDArray[np.float64]) -> Words:
    """f16 words of `exact`, rounded to nearest even."""
    with np.errstate(over="ignore", under="ignore"):
        return exact.astype(np.float16).view(np.uint16).astype(np.uint32)


def dot_integer(
    kinds: tuple[str, str], a: Words, b: Words, c: Words, *, saturate: bool = False
) -> Words:
    """The same for bytes and 32-bit accumulators: exact, modulo 2^32 or held at the ends."""
    left, right = (
        found.astype(np.uint8).view(np.int8 if kind == "s8" else np.uint8).astype(np.int64)
        for kind, found in zip(kinds, (a, b), strict=True)
    )
    total = np.matmul(left, np.swapaxes(right, -1, -2)) + c.view(np.int32)
    if saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    found: Words = total.astype(np.int32).view(np.uint32)
    return found
