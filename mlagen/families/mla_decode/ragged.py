"""Calls whose sequences have different numbers of new tokens.

Inputs have q_len tokens of each sequence. Such a call has the last ones of them, which follow each
other in q as [tokens, H, 576]: a token sees the same keys whether those before it are there or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.problem.expected import Expected, Lines

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ragged:
    """`kept` [batch, q_len]: which tokens of the inputs the call has."""

    kept: npt.NDArray[np.bool_]

    @staticmethod
    def of(inputs: MlaDecodeInputs, q_lens: Sequence[int] | None = None) -> Ragged:
        """Of a call with so many new tokens of each sequence; None: all of them. ConfigError unless
        `q_lens` has a number from 0 to q_len for each sequence."""
        most = inputs.config.q_len
        if q_lens is None:
            return Ragged(np.ones((inputs.batch, most), np.bool_))
        if len(q_lens) != inputs.batch or not all(0 <= n <= most for n in q_lens):
            raise ConfigError(
                f"q_lens {list(q_lens)} of {inputs.batch} sequences of up to {most} new tokens",
                hint=f"q_lens has a number from 0 to {most} for each sequence",
            )
        return Ragged(np.arange(most) >= most - np.array(q_lens)[:, None])

    @property
    def q_lens(self) -> list[int]:
        """New tokens of each sequence."""
        return [int(n) for n in self.kept.sum(axis=1)]

    def tensors(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """A call's tensors, those of tokens packed."""
        of_tokens = ("q", "q_scales")
        return {
            name: array[self.kept] if name in of_tokens else array
            for name, array in tensors.items()
        }

    def unpacked(self, found: Array) -> Array:
        """What a call left of its tokens [tokens, ..], in the inputs' places; NaN elsewhere."""
        whole = np.full((*self.kept.shape, *found.shape[1:]), np.nan, found.dtype)
        whole[self.kept] = found
        return whole

    def of_tokens(self, expected: Expected) -> Expected:
        """The part of an oracle's answer that is about the call's tokens."""
        batch, row = np.nonzero(self.kept)
        heads = len(expected.heads)
        lines = Lines(
            np.repeat(batch, heads), np.repeat(row, heads), np.tile(expected.heads, len(batch))
        )
        values, bounds = (
            array[self.kept].reshape(1, len(lines.row), 1, array.shape[-1])
            for array in (expected.values, expected.bounds)
        )
        return replace(expected, values=values, bounds=bounds, lines=lines)
