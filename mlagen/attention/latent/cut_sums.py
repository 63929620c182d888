"""Sums of products of e4m3 as Hopper's tensor core makes them (docs/ptx_arithmetic.md).

A step adds its products to the accumulator. The largest exponent among all of them sets a window:
each is cut toward zero so many bits below it, their sum is exact and cut to so many bits of its
own. Exponents of factors are added and the product is not normalised; a denormal factor has the
least normal exponent. What is left out is no rounding error of fp32: 13 bits are kept of 24. So
the oracles do not bound these cuts where they can follow them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mlagen.problem.formats import E4M3_NORMAL, Floats

Ints = npt.NDArray[np.int32]
FAR = -(1 << 20)  # the exponent of what is 0
AT_ONCE = 64  # columns of sums: it keeps arrays small


def cut_products(a: Floats, b: Floats, depth: int, kept: int) -> Floats:
    """a @ b.T of e4m3 numbers, `depth` columns a step, [rows, keys]."""
    found = np.zeros((len(a), len(b)))
    for column in range(0, a.shape[1], depth):
        step = slice(column, column + depth)
        found = cut_columns(found, a[:, step], b[:, step], kept)
    return found


def cut_columns(sums: Floats, a: Floats, b: Floats, kept: int) -> Floats:
    """`cut_step`, some columns of `sums` at once."""
    parts = [slice(start, start + AT_ONCE) for start in range(0, len(b), AT_ONCE)]
    return np.concatenate([cut_step(sums[:, part], a, b[part], kept) for part in parts], axis=1)


def cut_step(sums: Floats, a: Floats, b: Floats, kept: int) -> Floats:
    """`sums` [rows, columns] and one step of a @ b.T, a [rows, depth], b [columns, depth]."""
    of_a, of_b = _exponents(a), _exponents(b)
    greatest = (of_a[:, None] + of_b[None]).max(axis=2)
    of_sums = np.where(sums == 0, FAR, np.frexp(sums)[1] - 1)
    greatest = np.maximum(np.maximum(greatest, of_sums), -126)
    window = np.exp2((kept - greatest).astype(np.float64))
    terms = np.trunc(a[:, None] * b[None] * window[:, :, None]).sum(axis=2)
    total = (terms + np.trunc(sums * window)) / window
    unit = np.exp2(np.frexp(total)[1] - 1.0 - kept)
    return np.asarray(np.trunc(total / unit) * unit)


def largest_terms(numbers: Floats) -> Floats:
    """The magnitudes by which numbers set a window: not below the least normal one."""
    size = np.abs(numbers)
    return np.where(size > 0, np.maximum(size, E4M3_NORMAL), 0.0)


def _exponents(numbers: Floats) -> Ints:
    sizes = largest_terms(numbers)
    return np.where(sizes > 0, np.frexp(sizes)[1] - 1, FAR).astype(np.int32)
