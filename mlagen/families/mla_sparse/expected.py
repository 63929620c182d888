"""What an oracle of sparse MLA says, and how a kernel's outputs are held against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.attended import Attended, Block
from mlagen.attention.latent.order import D_V, SEESAW, Order
from mlagen.attention.latent.sink import with_sink
from mlagen.attention.latent.splits import merged
from mlagen.attention.latent.walk import Ints, QueryRows
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.inputs import MlaSparseInputs
from mlagen.families.mla_sparse.lists import ListedKeys, listed
from mlagen.families.mla_sparse.plain import plain
from mlagen.problem.expected import Comparison, Expected, compare
from mlagen.problem.formats import U_FP32, confidence


@dataclass(frozen=True, eq=False)
class MlaSparseExpected:
    """An oracle's answer: `output` [batch, tokens, heads, 512], `max_logits` and `lse` [batch,
    tokens, heads, 1] in natural units, -inf for a row without keys. Prefill is one batch entry.
    """

    output: Expected
    max_logits: Expected
    lse: Expected


def compare_outputs(
    inputs: MlaSparseInputs, expected: MlaSparseExpected, outputs: Mapping[str, npt.NDArray[Any]]
) -> dict[str, Comparison]:
    """Holds whole outputs, by name, against an oracle's: prefill's `o` [rows, heads, 512] bf16,
    `max_logits` and `lse` fp32 [rows, heads]; decode's `o` [batch, q_len, heads, 512], `lse`
    [batch, heads, q_len]. A row without keys must be 0 and -inf, exactly. ConfigError for another
    shape, type or name."""
    decode = isinstance(inputs.config, MlaSparseDecodeConfig)
    heads = inputs.config.num_heads
    whole: tuple[int, ...] = (inputs.batch, inputs.tokens, heads)
    flat = (inputs.batch, heads, inputs.tokens) if decode else whole[1:]
    shapes = {"o": (*whole, D_V) if decode else (*whole[1:], D_V), "lse": flat}
    if not decode:
        shapes["max_logits"] = flat
    found = {}
    for name, given in outputs.items():
        if name not in shapes:
            raise ConfigError(f"no output {name!r}", hint=f"outputs: {', '.join(shapes)}")
        if given.shape != shapes[name] or (name != "o" and given.dtype != np.float32):
            raise ConfigError(
                f"{name} has shape {given.shape} and dtype {given.dtype}, not {shapes[name]}"
                + ("" if name == "o" else " of float32")
            )
        if name == "o":
            found[name] = compare(expected.output, given.reshape(*whole, D_V))
            continue
        shown = given.transpose(0, 2, 1) if decode else given
        found[name] = compare(getattr(expected, name), shown.reshape(*whole, 1))
    return found


@dataclass(frozen=True, slots=True)
class SparseOracle:
    """What a kernel should compute, query row by query row. `exact`: of the numbers that are
    stored, else of those that a kernel computes with."""

    name: str
    block: Block
    exact: bool

    def __call__(
        self,
        inputs: MlaSparseInputs,
        *,
        heads: Sequence[int] | None = None,
        splits: Sequence[Sequence[int]] | None = None,
        order: Order = SEESAW,
    ) -> MlaSparseExpected:
        """Attention of `inputs` with a bound of a right kernel's error, for some heads or for all.

        `splits`: the first tile of each split of the lists of each batch entry (of each row, in
        prefill), where a kernel splits them. ConfigError: no such head, a key or a query that is
        not finite.
        """
        chosen = inputs.heads(heads)
        shape = (inputs.batch, inputs.tokens, len(chosen))
        values, bounds = np.zeros((2, *shape, D_V))
        tops, lses = np.full((2, *shape, 1), -np.inf)
        top_bounds, lse_bounds = np.zeros((2, *shape, 1))
        for entry, token in np.ndindex(shape[:2]):
            of_columns = order.grained or bool(order.scaled_columns)
            keys = listed(inputs.parts(entry, token), order.tile, of_columns=of_columns)
            if not keys.seen.any():
                continue
            which = entry if isinstance(inputs.config, MlaSparseDecodeConfig) else token
            starts = (0,) if splits is None else splits[which]
            rows = _rows(inputs, entry, token, chosen, keys)
            factor = confidence(int(np.prod(shape)) * (len(keys.seen) + D_V))
            pieces = _ranges(starts, len(keys.seen), order.tile)
            found = self._attended(rows, keys, inputs.score_scale, order, factor, pieces)
            at = (entry, token)
            values[at], bounds[at], lse, lse_bound = found.partial
            if inputs.sink is not None:
                sink = inputs.sink[chosen].astype(np.float64)
                values[at], bounds[at] = with_sink(
                    found, sink, len(pieces) > 1, keys.kernel.behind(order)
                )
            lses[at], lse_bounds[at] = lse[:, None], lse_bound[:, None]
            tops[at], top_bounds[at] = found.top[:, None], found.top_bound[:, None]
        if inputs.kv_scale != 1.0:
            # O is of stored numbers; the factor is rounded, and 1 / l times it, and O times that.
            values *= inputs.kv_scale
            bounds = bounds * inputs.kv_scale + 3 * U_FP32 * np.abs(values)
        tokens = np.arange(inputs.tokens)
        return MlaSparseExpected(
            Expected(self.name, values, bounds, tokens, chosen),
            Expected(f"{self.name} max", tops, top_bounds, tokens, chosen, output="max_logits"),
            Expected(f"{self.name} LSE", lses, lse_bounds, tokens, chosen, output="lse"),
        )

    def _attended(
        self,
        rows: QueryRows,
        keys: ListedKeys,
        scale: float,
        order: Order,
        factor: float,
        pieces: Sequence[tuple[int, int]],
    ) -> Attended:
        parts = [
            self.block(
                rows.within(start, stop), keys.computed(start, stop, order), scale, order, factor
            )
            for start, stop in pieces
        ]
        top = np.max([part.top for part in parts], axis=0)
        high, low = (
            np.max([part.top + sign * part.top_bound for part in parts], axis=0) for sign in (1, -1)
        )
        top_bound = np.maximum(high - top, top - low)
        output, bound, lse, lse_bound = merged(
            [part.partial for part in parts], running=order.running
        )
        if self.exact and (keys.rounded or order.grained):
            # How far apart the numbers are that are stored and that a kernel computes with, and
            # what follows from it, is known: no bound of it is needed.
            output_of, lse_of, top_of = plain(rows, keys, scale)
            bound = bound + np.abs(output_of - output)
            lse_bound = lse_bound + np.abs(lse_of - lse)
            top_bound = top_bound + np.abs(top_of - top)
            output, lse, top = output_of, lse_of, top_of
        return Attended((output, bound, lse, lse_bound), top, top_bound)


def _rows(
    inputs: MlaSparseInputs, entry: int, token: int, heads: Ints, keys: ListedKeys
) -> QueryRows:
    q = inputs.queries(entry, token)[heads]
    if not np.isfinite(q).all():
        where = f"row {token}" if inputs.batch == 1 else f"sequence {entry}, token {token}"
        raise ConfigError(f"q of {where} is not finite: nothing is expected of it")
    seen = np.broadcast_to(keys.seen, (len(heads), len(keys.seen)))
    return QueryRows(q, np.ones(len(heads)), seen)


def _ranges(starts: Sequence[int], keys: int, tile: int) -> list[tuple[int, int]]:
    """Keys of each split that has any, from the splits' first tiles. ConfigError unless `starts`
    begin with 0 and ascend."""
    if not len(starts) or starts[0] != 0 or any(np.diff(starts) <= 0):
        raise ConfigError(f"splits {list(starts)}: they ascend from 0")
    edges = [min(edge, keys) for edge in (*(int(start) * tile for start in starts), keys)]
    return [(start, stop) for start, stop in pairwise(edges) if start < stop]
