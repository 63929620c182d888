"""What an oracle of MLA decode says, and how a kernel's log-sum-exp is held against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.attended import Block
from mlagen.attention.latent.order import HOPPER_E4M3, SEESAW, Order
from mlagen.attention.latent.splits import merged
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.problem import TILE
from mlagen.families.mla_decode.sequence import sequence_keys, sequence_rows
from mlagen.problem.expected import Comparison, Expected, compare
from mlagen.problem.formats import U_FP32, confidence

F32 = np.float32


@dataclass(frozen=True, eq=False)
class MlaDecodeExpected:
    """An oracle's answer. `output` [batch, q_len, heads, 512] is for `compare`.

    `lse` [batch, q_len, heads, 1], natural logarithm, -inf for a row without keys, is for
    `compare_lse`. Rows and heads are those that were evaluated.
    """

    output: Expected
    lse: Expected


def compare_lse(expected: Expected, lse: npt.NDArray[Any]) -> Comparison:
    """Holds a whole LSE [batch, num_heads, q_len], fp32, against an oracle's.

    A row without keys must be -inf, exactly; nothing else there passes.
    """
    batch, rows, heads, _ = expected.values.shape
    fits = lse.ndim == 3 and lse.shape[::2] == (batch, rows) and lse.shape[1] >= heads
    if not fits or lse.dtype != np.float32:
        raise ConfigError(
            f"lse has shape {lse.shape} and dtype {lse.dtype}, not ({batch}, num_heads, {rows}) of "
            f"float32"
        )
    output = lse.transpose(0, 2, 1)[..., None]
    # A difference of infinities is no number: there, 0 stands for -inf and +inf for all else.
    empty = np.zeros(output.shape, np.bool_)
    empty[:, :, expected.heads] = np.isneginf(expected.values)
    shown = np.where(empty, np.where(np.isneginf(output), F32(0), F32(np.inf)), output)
    finite = replace(expected, values=np.where(np.isneginf(expected.values), 0.0, expected.values))
    comparison = compare(finite, shown)
    worst = comparison.worst
    at = (worst.batch, worst.row, worst.head, 0)
    if not empty[at]:
        return comparison
    honest = replace(worst, got=float(output[at]), expected=-np.inf)
    return replace(comparison, worst=honest)


@dataclass(frozen=True, slots=True)
class DecodeOracle:
    """What a kernel should compute, block of rows by block."""

    name: str
    block: Block

    def __call__(
        self,
        inputs: MlaDecodeInputs,
        *,
        heads: Sequence[int] | None = None,
        splits: Sequence[Sequence[int]] | None = None,
        order: Order | None = None,
    ) -> MlaDecodeExpected:
        """Attention of `inputs` with a bound of a right kernel's error, for some heads or for all.

        `splits`: the first tile of 64 keys of each split of each sequence, where a kernel splits
        them; the splits' results are merged (`latent.splits`). `order`: the kernel's arithmetic,
        Hopper's if none. A row that sees no key has O = 0 and LSE = -inf, exactly. ConfigError: no
        such head, a key or a query that is not finite.
        """
        if order is None:
            order = HOPPER_E4M3 if inputs.config.compute == "fp8" else SEESAW
        chosen = inputs.heads(heads)
        shape = (inputs.batch, inputs.config.q_len * len(chosen))
        values = np.zeros((*shape, inputs.config.d_v))
        bounds = np.zeros(values.shape)
        lse = np.full(shape, -np.inf)
        lse_bounds = np.zeros(lse.shape)
        factor = confidence(lse.size * (int(inputs.cache_lengths.max()) + inputs.config.d_v))
        for sequence in range(inputs.batch):
            pieces = key_ranges(inputs, sequence, splits[sequence] if splits is not None else (0,))
            for kv_head, rows, part in sequence_rows(inputs, sequence, chosen):
                keys = sequence_keys(inputs, sequence, kv_head)
                partials = [
                    self.block(
                        part.within(start, stop), keys.within(start, stop), inputs.score_scale,
                        order, factor,
                    ).partial
                    for start, stop in pieces
                ]  # fmt: skip
                if partials:
                    at = (sequence, rows)
                    values[at], bounds[at], lse[at], lse_bounds[at] = merged(
                        partials, running=order.running
                    )
        if inputs.kv_scale != 1.0:
            # O is of stored numbers; the factor is rounded, and 1 / l times it, and O times that.
            values *= inputs.kv_scale
            bounds = bounds * inputs.kv_scale + 3 * U_FP32 * np.abs(values)
        tokens = np.arange(inputs.config.q_len)
        whole = (inputs.batch, len(tokens), len(chosen), -1)
        output, log_sum = (
            Expected(self.name, found.reshape(whole), error.reshape(whole), tokens, chosen)
            for found, error in ((values, bounds), (lse, lse_bounds))
        )
        return MlaDecodeExpected(output, log_sum)


def key_ranges(
    inputs: MlaDecodeInputs, sequence: int, starts: Sequence[int]
) -> list[tuple[int, int]]:
    """Keys of each split of a sequence that has any, from the splits' first tiles.

    ConfigError unless `starts` begin with 0 and ascend.
    """
    if not len(starts) or starts[0] != 0 or any(np.diff(starts) <= 0):
        raise ConfigError(f"splits {list(starts)} of sequence {sequence}: they ascend from 0")
    length = int(inputs.cache_lengths[sequence])
    seen = [keys.start for keys in inputs.config.visible(length) if keys]
    low = min(seen, default=0) // TILE * TILE
    edges = [*(int(start) * TILE for start in starts), length]
    ranges = [(max(start, low), min(stop, length)) for start, stop in pairwise(edges)]
    return [(start, stop) for start, stop in ranges if start < stop]
