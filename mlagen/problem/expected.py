"""What an oracle says, and how a kernel's output is held against it.

An oracle gives each element an expected value and a bound on the error that the kernel's number may
have *before it is rounded for the output*. The output's own rounding is not bounded but undone: the
stored number stands for the interval of numbers that round to it, and the error is the distance
from the expected value to that interval. So an output may differ by a whole unit in the last place
where the expected value lies near a rounding boundary, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.formats import BF16_BITS, ELEMENT_TYPES, Floats, rounds_from


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another right answer for some rows of one head: a decision in the kernel was too close.

    `values` and `bounds` are [rows, depth]; `rows` index the expected output's second axis.
    """

    batch: int
    head: int  # index into the expected output's third axis
    rows: npt.NDArray[np.int64]
    values: Floats
    bounds: Floats


@dataclass(frozen=True, eq=False)
class Lines:
    """Some rows of an output [batch, rows, heads, depth], each named by its own three indices."""

    batch: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Expected:
    """An oracle's answer: `values` and `bounds`, fp64 [batch, rows, heads, depth].

    `rows` and `heads` are the local query rows and query heads that were evaluated. Where these are
    no product of rows and heads, `lines` names them one by one, and `values` are [1, lines, 1,
    depth]. A value may be -inf: there, -inf alone is right.

    Each group of `alternatives` is judged as a whole: its rows pass when one alternative, or the
    first answer, holds for all of them. `undecided` counts waves with more close decisions than
    were followed. `output` names what is compared, where a kernel has several outputs.
    """

    oracle: str
    values: Floats
    bounds: Floats
    rows: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int64]
    alternatives: tuple[Alternative, ...] = ()
    undecided: int = 0
    lines: Lines | None = None
    output: str = "o"

    @classmethod
    def of(
        cls, oracle: str, values: npt.ArrayLike, bounds: npt.ArrayLike, *, output: str = "o"
    ) -> Expected:
        """The answer to all of an array of one to three dimensions; `bounds` has its shape."""
        found = four_dimensions(np.asarray(values, np.float64))
        around = four_dimensions(np.asarray(bounds, np.float64))
        rows, heads = np.arange(found.shape[1]), np.arange(found.shape[2])
        return cls(oracle, found, around, rows, heads, output=output)

    def select(self, output: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The part of a whole output [batch, seq_len, num_heads, depth] that was evaluated."""
        if self.lines is None:
            return output[:, self.rows][:, :, self.heads]
        lines = self.lines
        return np.asarray(output[lines.batch, lines.row, lines.head][None, :, None])

    def place(self, batch: int, row: int, head: int) -> tuple[int, int, int]:
        """Batch entry, row and head of the output, from indices into `values`."""
        if self.lines is None:
            return batch, int(self.rows[row]), int(self.heads[head])
        return int(self.lines.batch[row]), int(self.lines.row[row]), int(self.lines.head[row])

    def of_head(self, index: int) -> tuple[Any, ...]:
        """What selects the values of `heads[index]`."""
        if self.lines is None:
            return (slice(None), slice(None), index)
        return (slice(None), self.lines.head == self.heads[index])


@dataclass(frozen=True, slots=True)
class Worst:
    """The element with the largest ratio of error to bound (a NaN before all others)."""

    batch: int
    row: int
    head: int
    depth: int
    got: float
    expected: float
    bound: float  # before the output's rounding
    error: float  # likewise
    ratio: float
    output: str = "o"


@dataclass(frozen=True, slots=True)
class HeadErrors:
    """The comparison of one query head, over batch, rows and depth."""

    head: int
    elements: int
    nans: int
    failures: int  # NaNs included
    max_error: float  # |got - expected| as stored, NaNs left out
    max_ratio: float  # of error to bound before the output's rounding; inf: a NaN, or a bound of 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """An output against one oracle. `passed` when every element is within its bound."""

    oracle: str
    elements: int
    nans: int
    failures: int
    max_error: float
    max_ratio: float
    worst: Worst
    heads: tuple[HeadErrors, ...]
    undecided: int

    @property
    def passed(self) -> bool:
        return self.failures == 0


def four_dimensions(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of at most three dimensions as [batch, rows, 1, depth]. ConfigError for more."""
    if array.ndim > 3:
        raise ConfigError(
            f"an output of {array.ndim} dimensions is compared as [batch, rows, heads, depth]"
        )
    shape = *(1,) * (3 - array.ndim), *array.shape
    return array.reshape(shape)[:, :, None]


def compare(expected: Expected, output: npt.NDArray[Any]) -> Comparison:
    """Holds `output` [batch, seq_len, num_heads, depth], bf16 or fp32, against an oracle."""
    got = expected.select(output)
    if got.shape != expected.values.shape:
        raise ConfigError(
            f"output of shape {output.shape} cannot be compared: the {expected.oracle} oracle "
            f"has {expected.values.shape}"
        )
    if not got.size:
        raise ConfigError(f"the {expected.oracle} oracle has no rows: there is nothing to compare")
    errors = _errors(got, expected.values)
    values, bounds = expected.values, expected.bounds
    ratios = _ratios(errors, bounds)
    if expected.alternatives:
        values, bounds = values.copy(), bounds.copy()
        for option in expected.alternatives:
            at = (option.batch, option.rows, option.head)
            tried = _errors(got[at], option.values)
            tried_ratios = _ratios(tried, option.bounds)
            if tried_ratios.max() < ratios[at].max():
                values[at], bounds[at] = option.values, option.bounds
                errors[at], ratios[at] = tried, tried_ratios
    stored = _distance(got.astype(np.float64), values)
    nan = np.isnan(got.astype(np.float32))
    failed = ~(ratios <= 1.0)
    place = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    batch, row, head = expected.place(*(int(index) for index in place[:3]))
    return Comparison(
        oracle=expected.oracle,
        elements=got.size,
        nans=int(nan.sum()),
        failures=int(failed.sum()),
        max_error=_largest(stored),
        max_ratio=float(ratios.max()),
        worst=Worst(
            batch=batch,
            row=row,
            head=head,
            depth=int(place[3]),
            got=float(got[place]),
            expected=float(values[place]),
            bound=float(bounds[place]),
            error=float(errors[place]),
            ratio=float(ratios[place]),
            output=expected.output,
        ),
        heads=tuple(
            HeadErrors(
                head=int(number),
                elements=ratios[at].size,
                nans=int(nan[at].sum()),
                failures=int(failed[at].sum()),
                max_error=_largest(stored[at]),
                max_ratio=float(ratios[at].max()),
            )
            for number, at in (
                (number, expected.of_head(index)) for index, number in enumerate(expected.heads)
            )
        ),
        undecided=expected.undecided,
    )


def _errors(got: npt.NDArray[Any], values: Floats) -> Floats:
    """Distance from `values` to what rounds to `got`; NaN where either is NaN."""
    exact = got.astype(np.float64)
    if got.dtype != ELEMENT_TYPES["bf16"]:
        return _distance(exact, values)  # fp32 is what the kernel computed: nothing to undo
    low, high = rounds_from(exact, BF16_BITS)
    return np.maximum(np.maximum(low - values, values - high), 0.0)


def _distance(got: Floats, values: Floats) -> Floats:
    """|got - values|; 0 for -inf from -inf."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(values) & np.isneginf(got), 0.0, np.abs(got - values))


def _ratios(errors: Floats, bounds: Floats) -> Floats:
    """errors / bounds; 0 / 0 is 0, and whatever is no number is inf: it must not pass."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(errors == 0.0, 0.0, errors / bounds)
    return np.where(np.isnan(ratios) | np.isnan(errors) | np.isnan(bounds), np.inf, ratios)


def _largest(values: Sequence[float] | Floats) -> float:
    finite = np.asarray(values)
    finite = finite[~np.isnan(finite)]
    return float(finite.max()) if finite.size else float("nan")
