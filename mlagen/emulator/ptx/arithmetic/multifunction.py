"""Hopper's multifunction unit, bit for bit: quadratic interpolation in small tables.

The tables were found from words of the chip: every coefficient reproduces all 2^23 mantissas of its
function (`mufu.json` says which run). The unit's squarer drops its low columns, which is modelled;
sums are exact, and are cut. Denormal inputs and results count as zero, as with `.ftz`.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]
Whole: TypeAlias = NDArray[np.int64]
DATA = Path(__file__).parent / "mufu.json"
FRACTION = 20  # bits of a table's result below one unit in the last place
TANH_FIRST = 119  # tanh: the least field of the exponent that has a table, and the bits of the
TANH_DROPPED = (6, 6, 6, 5, 5, 4, 4, 4, 3, 2, 3)  # mantissa that are not read, field by field
LOG_CUT = 8  # of these, lg2 drops as many before it adds the exponent
NAN, INF, SIGN, ONE = 0x7FFFFFFF, 0x7F800000, 0x80000000, 0x3F800000


@dataclass(frozen=True, slots=True)
class Table:
    """c0 + c1 x + c2 x^2 in units of 2^-20 ulp. The upper bits of a 23-bit argument choose the
    coefficients, its `low` others are x. c1 is in units of 2^(c1_shift - 20), c2 of 2^-(20 +
    c2_shift)."""

    low: int
    c1_shift: int
    c2_shift: int
    c0: Whole
    c1: Whole
    c2: Whole

    def at(self, argument: Whole) -> Whole:
        place, x = argument >> self.low, argument & ((1 << self.low) - 1)
        linear = self.c1[place] * x << self.c1_shift
        found: Whole = (
            self.c0[place] + linear + (self.c2[place] * squared(self.low, x) >> self.c2_shift)
        )
        return found


@functools.cache
def tables() -> dict[str, Table]:
    """All tables by name."""
    found = json.loads(DATA.read_text())["tables"]
    return {
        name: Table(
            one["low"], one["c1_shift"], one["c2_shift"],
            *(np.array(one[part], np.int64) for part in ("c0", "c1", "c2")),
        )
        for name, one in found.items()
    }  # fmt: skip


def squared(low: int, x: Whole) -> Whole:
    """x^2 as the unit's folded squarer has it: of the columns of partial products it keeps 15. A
    pair of bits i > j stands in column i + j + 1, a bit alone in column 2i."""
    cut = 2 * low - 15
    total = np.zeros_like(x)
    for i in range(low):
        bit = x >> i & 1
        if 2 * i >= cut:
            total += bit << 2 * i
        least = max(cut - i - 1, 0)
        if least < i:
            below = (x & ((1 << i) - 1)) >> least << least
            total += np.where(bit, below << (i + 1), 0)
    return total


def fields(words: Words) -> tuple[Whole, Whole, NDArray[np.bool_]]:
    """Exponent's field, mantissa and whether the sign is set."""
    wide = words.astype(np.int64)
    return wide >> 23 & 255, wide & 0x7FFFFF, wide >> 31 != 0


def packed(value: Whole, base: Whole | int) -> Words:
    """f32 words of positive numbers in units of 2^-20 ulp of the exponent field `base`, cut. Zero
    for zero and below the normal numbers, Inf above them."""
    _, high = np.frexp(np.maximum(value, 1).astype(np.float64))
    high = high.astype(np.int64)
    high = np.where(value >> np.minimum(high - 1, 62) == 0, high - 1, high)  # rounded up to 2^n
    shift = high - 24
    mantissa = np.where(shift >= 0, value >> np.maximum(shift, 0), value << np.maximum(-shift, 0))
    field = base + shift - FRACTION
    words = field << 23 | mantissa & 0x7FFFFF
    words = np.where((value <= 0) | (field <= 0), 0, np.where(field >= 255, INF, words))
    return words.astype(np.uint32)


def chosen(*pairs: tuple[NDArray[np.bool_], int | Words], otherwise: Words) -> Words:
    """The first of `pairs` whose condition holds, by element."""
    found = otherwise
    for condition, value in reversed(pairs):
        found = np.where(condition, np.asarray(value, np.uint32), found)
    return found.astype(np.uint32)


def _signed(words: Words | int, negative: NDArray[np.bool_]) -> Words:
    found: Words = np.asarray(words, np.uint32) | np.where(negative, np.uint32(SIGN), np.uint32(0))
    return found


def rcp(words: Words) -> Words:
    """1 / x."""
    field, mantissa, negative = fields(words)
    value = packed(tables()["rcp"].at(mantissa), 253 - field)
    return chosen(
        ((field == 255) & (mantissa != 0), NAN),
        (field == 255, _signed(0, negative)),
        (field == 0, _signed(INF, negative)),
        otherwise=_signed(value, negative),
    )


def rsq(words: Words) -> Words:
    """1 / sqrt(x)."""
    field, mantissa, negative = fields(words)
    odd = field & 1 == 0  # 127 is even as an exponent
    value = np.where(odd, tables()["rsq1"].at(mantissa), tables()["rsq0"].at(mantissa))
    value = np.where(~odd & (mantissa == 0), 1 << 44, value)  # powers of four are exact
    result = packed(value, 126 - (field - 127 - odd) // 2)
    return chosen(
        ((field == 255) & (mantissa != 0), NAN),
        (field == 0, _signed(INF, negative)),
        (negative, NAN),
        (field == 255, 0),
        otherwise=result,
    )


def sqrt(words: Words) -> Words:
    """sqrt(x)."""
    field, mantissa, negative = fields(words)
    odd = field & 1 == 0
    value = np.where(odd, tables()["sqrt1"].at(mantissa), tables()["sqrt0"].at(mantissa))
    result = packed(value, 127 + (field - 127 - odd) // 2)
    return chosen(
        ((field == 255) & (mantissa != 0), NAN),
        (field == 0, _signed(0, negative)),
        (negative, NAN),
        (field == 255, INF),
        otherwise=result,
    )


def ex2(words: Words) -> Words:
    """2^x. The argument is cut to 23 bits behind the point; a negative one is complemented bit by
    bit, so that it is one unit off unless it is whole."""
    field, mantissa, negative = fields(words)
    full = mantissa | 1 << 23
    shift = field - 127
    fixed = np.where(
        shift >= 0, full << np.clip(shift, 0, 8), full >> np.minimum(np.maximum(-shift, 0), 40)
    )
    whole, rest = fixed >> 23, fixed & 0x7FFFFF
    complement = np.where(rest == 0, 0, 0x7FFFFF - rest)
    exponent = np.where(negative, -whole - (rest != 0), whole)
    value = tables()["ex2"].at(np.where(negative, complement, rest))
    result = packed(value, 127 + exponent)
    large = (field >= 135) & (field < 255)
    return chosen(
        ((field == 255) & (mantissa != 0), NAN),
        ((field == 255) | large, np.where(negative, np.uint32(0), np.uint32(INF))),
        (field == 0, ONE),
        otherwise=result,
    )


def lg2(words: Words) -> Words:
    """log2(x). The logarithm of the mantissa has 36 bits behind the point; a negative sum is
    complemented bit by bit."""
    field, mantissa, negative = fields(words)
    value = (tables()["lg2"].at(mantissa) >> LOG_CUT) + ((field - 127) << (44 - LOG_CUT))
    below = value < 0
    result = packed(np.where(below, ~value, value), 126 + LOG_CUT)
    return chosen(
        ((field == 255) & (mantissa != 0), NAN),
        (field == 0, SIGN | INF),
        (negative, NAN),
        (field == 255, INF),
        (words == ONE, 0),
        otherwise=_signed(result, below),
    )


def sin(words: Words) -> Words:
    """sin(2 pi x): the argument is in turns, cut to 25 bits behind the point."""
    field, mantissa, negative = fields(words)
    quarter, rest = _quarters(field, mantissa)
    value = _wave(quarter, rest)
    return chosen(
        (field == 255, NAN),
        (field == 0, _signed(0, negative)),
        otherwise=_signed(value, negative ^ (quarter >= 2)),
    )


def cos(words: Words) -> Words:
    """cos(2 pi x), of turns as well: a quarter ahead of the sine."""
    field, mantissa, _ = fields(words)
    quarter, rest = _quarters(field, mantissa)
    quarter = quarter + 1 & 3
    value = _wave(quarter, rest)
    return chosen((field == 255, NAN), (field == 0, ONE), otherwise=_signed(value, quarter >= 2))


def _quarters(field: Whole, mantissa: Whole) -> tuple[Whole, Whole]:
    """Quarters of a turn modulo four, and the 23 bits behind them."""
    full, shift = mantissa | 1 << 23, field - 125
    fixed = np.where(
        shift >= 0, full << np.clip(shift, 0, 30), full >> np.minimum(np.maximum(-shift, 0), 40)
    )
    return fixed >> 23 & 3, fixed & 0x7FFFFF


def _wave(quarter: Whole, rest: Whole) -> Words:
    """The sine's magnitude; every second quarter runs backward, by complemented bits."""
    return packed(tables()["sin"].at(np.where(quarter & 1, 0x7FFFFF - rest, rest)), 126)


def tanh(words: Words) -> Words:
    """tanh(x): x itself below 2^-8, 1 from 8 on. Denormal numbers are kept."""
    field, mantissa, negative = fields(words)
    dropped = np.array(TANH_DROPPED, np.int64)
    segments = np.concatenate([[0], np.cumsum(1 << (6 - dropped))])
    which = np.clip(field - TANH_FIRST, 0, len(dropped) - 1)
    low = tables()["tanh"].low
    value = tables()["tanh"].at((segments[which] << low) + (mantissa >> dropped[which]))
    whole = value >> FRACTION << FRACTION
    result = packed(whole, np.where(field >= 127, 126, field - 1))
    return chosen(
        ((field == 255) & (mantissa != 0), NAN),
        (field < TANH_FIRST, words),
        (field >= TANH_FIRST + len(dropped), _signed(ONE, negative)),
        otherwise=_signed(result, negative),
    )
