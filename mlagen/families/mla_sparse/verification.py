"""Sparse MLA as a kind of problem that can be verified.

A kernel is launched by itself: what its blocks leave of split keys is merged here, in fp64. The
kernel that merges it on a GPU is another artifact, verified by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.latent.block_sizes import TOGETHER
from mlagen.attention.latent.facts import facts_of, order_of
from mlagen.attention.latent.order import D_V, SEESAW, Order
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.unit import cannot_put_together
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.inputs import (
    MlaSparseDecodeInputs,
    MlaSparseInputs,
    MlaSparsePrefillInputs,
)
from mlagen.families.mla_sparse.made_up import (
    PATTERNS,
    SPARSE_KINDS,
    mla_sparse_decode_inputs,
    mla_sparse_prefill_inputs,
)
from mlagen.families.mla_sparse.paging import Paging, extent, split_numbers
from mlagen.families.mla_sparse.pool import Pool
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.families.mla_sparse.splits import check_together, groups_of
from mlagen.family.covering import Call, Covering, tile_counts
from mlagen.family.kinds import Chosen, ProblemKind, Size, TileWalk, Trial
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem.arrays import unwritten
from mlagen.problem.expected import Expected, Worst
from mlagen.problem.formats import ELEMENT_TYPES, scale_log2e

Array = npt.NDArray[Any]
TILE = 64
ONE_WARPGROUP = (128, 1, 1)  # threads of a block
EMPTY_LSE = 0xFF800000  # -inf


# Lengths that end in each sixteen places of three tiles. What a list names past its length is, with
# so many rows, most often a row that no list names, of NaN; so with the first two of four lists.
CUT = tuple(
    length
    for first in range(0, 3 * TILE, 32)
    for length in (first + 1 + first // TILE, first + 17 + first // TILE, 0, 0)
)
CUT_ROWS = 4096
# Pages that lie apart, where data gives all tiles weight: an address of a row that leaves their
# distance out reads another key.
GAPS: Mapping[str, Any] = {"page_size": 8, "layers": 2}


@dataclass(frozen=True, eq=False)
class SplitInputs:
    """Inputs, and how many blocks share a query's keys (decode) or take turns at queries.
    `together`: parts of a query that their blocks put together, all of them; 1: none."""

    inputs: MlaSparseInputs
    splits: int = 1
    blocks: int = 1
    together: int = 1


@dataclass(frozen=True)
class MlaSparseTrial(Trial):
    """A call of a sparse kernel, its split keys merged on the host."""

    given: SplitInputs
    order: Order = SEESAW
    compared: bool = True

    def uncompared(self) -> MlaSparseTrial:
        return replace(self, compared=False)

    @property
    def inputs(self) -> MlaSparseInputs:
        return self.given.inputs

    @property
    def sizes(self) -> Mapping[str, Size]:
        inputs = self.inputs
        sizes: dict[str, Size] = {"topk": int(inputs.indices.shape[-1])}
        if isinstance(inputs, MlaSparseDecodeInputs):
            more = {"together": self.given.together} if self.given.together > 1 else {}
            return {"batch": inputs.batch, **sizes, "splits": self.given.splits, **more}
        return {"rows": inputs.tokens, **sizes}

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"scale": self.inputs.scale}

    @property
    def walk(self) -> TileWalk:
        tiles = max(self._tiles(entry) for entry in range(self._lists))
        return TileWalk(tiles, "topk", self.order.tile)

    def planned(self, artifact: Artifact) -> MlaSparseTrial:
        return replace(self, order=order_of(artifact))

    @property
    def _lists(self) -> int:
        """Entries whose lists have lengths of their own."""
        inputs = self.inputs
        return inputs.batch if isinstance(inputs, MlaSparseDecodeInputs) else inputs.tokens

    def _tiles(self, entry: int) -> int:
        inputs = self.inputs
        at = (entry, 0) if isinstance(inputs, MlaSparseDecodeInputs) else (0, entry)
        return sum(-(-part.places // self.order.tile) for part in inputs.parts(*at))

    @property
    def splits(self) -> list[tuple[int, ...]]:
        """The first tile of each split of each entry's lists."""
        found = []
        for entry in range(self._lists):
            tiles = self._tiles(entry)
            each = max(-(-tiles // self.given.splits), 1)
            found.append(tuple(range(0, max(tiles, 1), each)))
        return found

    def groups(self, artifact: Artifact) -> int:
        """Blocks that share the heads of a query."""
        if artifact.manifest.block == ONE_WARPGROUP:
            return 1
        return groups_of(self.inputs.config.num_heads, facts_of(artifact.manifest).rows)

    def launched(self, artifact: Artifact) -> dict[str, int]:
        """The sizes that a launch's grid is told by."""
        inputs, splits = self.inputs, self.given.splits
        units = inputs.batch * inputs.tokens * self.groups(artifact)
        decode = isinstance(inputs, MlaSparseDecodeInputs)
        blocks = units * splits if decode else min(self.given.blocks, units)
        return {"units": units, "blocks": blocks, "splits": splits}

    def oracles(self) -> tuple[Expected, ...]:
        found: list[Expected] = []
        for oracle in (exact, rounded):
            expected = oracle(self.inputs, splits=self.splits, order=self.order)
            found += [expected.output, expected.lse]
            if not isinstance(self.inputs, MlaSparseDecodeInputs):
                found.append(expected.max_logits)
        return tuple(found)

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, Array], LaunchReport]:
        """From poisoned memory."""
        inputs = self.inputs
        decode = isinstance(inputs, MlaSparseDecodeInputs)
        heads = inputs.config.num_heads
        queries = inputs.batch * inputs.tokens
        output = partial(unwritten, compared=self.compared)
        o = output((queries * heads, D_V), ELEMENT_TYPES["bf16"])
        lse, most = output((2, queries * heads), np.float32)
        facts, groups = facts_of(artifact.manifest), self.groups(artifact)
        slots = queries * groups * self.given.splits
        partial_o = output((slots, facts.rows, D_V), np.float32)
        partial_lse = output((slots, facts.rows), np.float32)
        tensors = {
            **call_tensors(inputs), "o": o, "lse": lse, "max_logits": most,
            "partial_o": partial_o, "partial_lse": partial_lse,
            "arrivals": np.zeros((slots, 2), np.int32),
        }  # fmt: skip
        numbers = {
            **call_numbers(inputs), **split_numbers(self.given.splits), "units": queries * groups,
            "empty_lse": EMPTY_LSE, "together": self.given.together * (self.given.together > 1),
        }  # fmt: skip
        numbers["bulk"] = (inputs.batch + self.given.splits) % 2  # both are right
        blocks = self.launched(artifact)
        if self.given.together > 1 and facts.together == 1:
            raise cannot_put_together(self.given.together)
        args = artifact.manifest.args
        report = launcher.launch(
            artifact,
            tensors={arg.tensor: tensors[arg.tensor] for arg in args if arg.tensor},
            scalars={
                arg.name: numbers[arg.name]
                for arg in args
                if not arg.tensor and arg.name not in blocks.keys() - numbers.keys()
            },
            sizes={each.size: blocks[each.size] for each in artifact.manifest.grid},
        )
        if self.compared and self.given.splits > self.given.together:
            self._merge(o, lse, partial_o, partial_lse, groups)
        whole = (inputs.batch, inputs.tokens, heads)
        outputs = {"o": o.reshape(*whole, D_V)}
        if decode:
            outputs["lse"] = lse.reshape(inputs.batch, heads, -1, 1).swapaxes(1, 2)
        else:
            outputs |= {"lse": lse.reshape(*whole, 1), "max_logits": most.reshape(*whole, 1)}
        return outputs, report

    def _merge(
        self, o: Array, lse: Array, partial_o: Array, partial_lse: Array, groups: int
    ) -> None:
        """Adds up what splits left, with sinks; `groups` of blocks have a query's heads."""
        inputs, count = self.inputs, self.given.splits
        heads, tokens = inputs.config.num_heads, inputs.tokens
        sinks = np.full(heads, -np.inf) if inputs.sink is None else inputs.sink.astype(np.float64)
        for unit in range(len(partial_o) // count):
            query, first = unit // groups, unit % groups * partial_lse.shape[1]
            which = np.arange(first, min(heads, first + partial_lse.shape[1]))
            rows, sink = len(which), sinks[which]
            own = slice(unit * count, (unit + 1) * count)
            logs = partial_lse[own, :rows].astype(np.float64)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                top = np.where(np.isneginf(logs.max(axis=0)), 0.0, logs.max(axis=0))
                whole = top + np.log2(np.exp2(logs - top).sum(axis=0))
                base = np.where(np.isneginf(whole), 0.0, whole)
                weights = np.exp2(logs - base) / (1 + np.exp2(sink / np.log(2.0) - base))
            seen = ~np.isneginf(logs)[:, :, None]
            parts = np.where(seen, partial_o[own, :rows].astype(np.float64), 0.0)
            o[query * heads + which] = (weights[:, :, None] * parts).sum(axis=0)
            at = (query // tokens * heads + which) * tokens + query % tokens
            lse[at] = whole * np.log(2.0)

    def place(self, worst: Worst) -> str:
        decode = isinstance(self.inputs, MlaSparseDecodeInputs)
        row = f"sequence {worst.batch}, token {worst.row}" if decode else f"row {worst.row}"
        where = f"{row}, head {worst.head}"
        names = {"lse": "LSE of ", "max_logits": "largest score of "}
        if worst.output in names:
            return names[worst.output] + where
        return f"{where}, column {worst.depth}"


def call_tensors(inputs: MlaSparseInputs) -> dict[str, Array]:
    """The tensors of a call by the names of a kernel's arguments, but for its outputs."""
    heads = inputs.config.num_heads
    lists = len(inputs.indices.reshape(-1, inputs.indices.shape[-1]))
    entries = inputs.batch if isinstance(inputs, MlaSparseDecodeInputs) else lists
    found: dict[str, Array] = {
        "q": inputs.q.reshape(-1, inputs.q.shape[-1]),
        **_pool_tensors("", inputs.pool, inputs.indices, inputs.topk_length, entries),
        "sink": np.full(heads, -np.inf, np.float32) if inputs.sink is None else inputs.sink,
        "zeros": np.zeros(inputs.config.d_qk, ELEMENT_TYPES["bf16"]),
    }
    if isinstance(inputs, MlaSparseDecodeInputs):
        if inputs.positions is not None and inputs.first_position is not None:
            found |= {"positions": inputs.positions, "first_position": inputs.first_position}
        if inputs.extra_pool is not None and inputs.extra_indices is not None:
            lengths = inputs.extra_topk_length
            found |= _pool_tensors(
                "extra_", inputs.extra_pool, inputs.extra_indices, lengths, entries
            )
    return found


def _pool_tensors(
    prefix: str, pool: Pool, indices: Array, lengths: Array | None, entries: int
) -> dict[str, Array]:
    if lengths is None:
        lengths = np.full(entries, indices.shape[-1], np.int32)
    found = {"cache": _flat(pool), "indices": indices, "topk_length": lengths}
    if pool.scales is not None:
        found["kv_scales"] = pool.scales
    return {prefix + name: tensor for name, tensor in found.items()}


def _flat(pool: Pool) -> Array:
    """The memory of a pool from its first element to its last."""
    cache = pool.cache
    bytes_ = extent(pool.row, pool.d_qk, cache.shape[:2], cache.strides[:2])
    return np.lib.stride_tricks.as_strided(cache, (bytes_ // cache.itemsize,), (cache.itemsize,))


def call_numbers(inputs: MlaSparseInputs) -> dict[str, Any]:
    """The numbers of a call by the names of a kernel's arguments."""
    found: dict[str, Any] = {
        **_pool_numbers("", inputs.pool, inputs.indices, inputs.topk_length),
        "scale_log2e": scale_log2e(inputs.score_scale),
        "kv_scale": inputs.kv_scale,
    }
    if isinstance(inputs, MlaSparseDecodeInputs) and inputs.extra_pool is not None:
        assert inputs.extra_indices is not None
        lengths = inputs.extra_topk_length
        found |= _pool_numbers("extra_", inputs.extra_pool, inputs.extra_indices, lengths)
    return found


def _pool_numbers(prefix: str, pool: Pool, indices: Array, lengths: Array | None) -> dict[str, int]:
    shape, strides = pool.cache.shape[:2], pool.cache.strides[:2]
    topk = int(indices.shape[-1])
    paging = Paging.of(pool.row, pool.d_qk, (shape[0], shape[1]), (strides[0], strides[1]))
    numbers = {"topk": topk, "list_stride": topk, "whole": int(lengths is None)}
    return paging.numbers(prefix) | {prefix + name: one for name, one in numbers.items()}


class _SparseKind(ProblemKind):
    """What both kinds make for the cycle model."""

    def simulated(
        self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any
    ) -> SplitInputs:
        trial = MlaSparseTrial(self._simulated(artifact, seed, (), shape))
        groups = chosen(artifact.manifest.grid_for(trial.launched(artifact)))
        queries = {group[0] // trial.groups(artifact) for group in groups}  # x: the unit
        most = trial.inputs.batch * trial.inputs.tokens
        only = [query for query in sorted(queries) if query < most]
        return self._simulated(artifact, seed, only, shape)

    def _simulated(self, artifact: Artifact, seed: int, only: Any, shape: Any) -> Any:
        return self.made(artifact, data="realistic", seed=seed, **shape, only=only)


class MlaSparsePrefillKind(_SparseKind):
    """Inputs from `mla_sparse_prefill_inputs`; `blocks` of them take turns."""

    sizes = ("rows", "topk", "cache_rows", "lengths", "page_size", "layers", "room", "blocks")
    lists = ("lengths",)
    data = tuple(SPARSE_KINDS)
    uneven: ClassVar[Mapping[str, Any]] = {"rows": 3, "topk": 150, "lengths": (150, 3, 0)}

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> SplitInputs:
        blocks = shape.pop("blocks", 2)
        if blocks < 1:
            raise ConfigError(f"blocks={blocks}", hint="blocks is at least 1")
        config = MlaSparsePrefillConfig.from_fields(problem)
        sink = np.random.default_rng(seed).standard_normal(config.num_heads)
        made = mla_sparse_prefill_inputs(
            config, data=data, seed=seed, sink=sink.tolist(), **_listed(shape)
        )
        return SplitInputs(made, blocks=blocks)

    def trial(self, inputs: MlaSparsePrefillInputs | SplitInputs) -> MlaSparseTrial:
        given = inputs if isinstance(inputs, SplitInputs) else SplitInputs(inputs)
        return MlaSparseTrial(given)

    def covering(self, artifact: Artifact) -> Covering:
        """Lists for every number of tiles that the text tells apart, whole and cut, one after
        another in a block; lists of one key and of none; lists that go on past their length;
        then invalid and repeated indices."""
        lengths = covering_lengths(max(tile_counts(artifact.manifest)), order_of(artifact).tile)
        problem = MlaSparsePrefillConfig.from_fields(artifact.manifest.problem)
        twice = 8 // problem.product_bytes  # tiles, around the ring of keys
        shape = {"rows": len(lengths), "topk": max(lengths), "lengths": lengths, "blocks": 1}
        return Covering(
            (
                Call("realistic", {**shape, **GAPS}),
                Call("randn", {"rows": len(CUT), "topk": max(CUT) + 2, "lengths": CUT,
                               "cache_rows": CUT_ROWS}),
                Call("late_max", {"rows": 5, "topk": twice * TILE + 4, "blocks": 3, "page_size": 8,
                                  "layers": 2, "room": 16}),
                *_by_tiles(artifact, "rows"),
            )
        )  # fmt: skip


class MlaSparseDecodeKind(_SparseKind):
    """Inputs from `mla_sparse_decode_inputs`; `splits` divide a query's keys."""

    sizes = ("batch", "topk", "cache_rows", "lengths", "extra_topk", "extra_lengths", "page_size",
             "layers", "room", "splits", "together")  # fmt: skip
    lists = ("lengths", "extra_lengths")
    data = tuple(SPARSE_KINDS)
    uneven: ClassVar[Mapping[str, Any]] = {"batch": 2, "topk": 150, "lengths": (150, 3)}

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> SplitInputs:
        splits, together = shape.pop("splits", 1), shape.pop("together", 1)
        if splits < 1:
            raise ConfigError(f"splits={splits}", hint="splits is at least 1")
        check_together(together, splits)
        config = MlaSparseDecodeConfig.from_fields(problem)
        sink = np.random.default_rng(seed).standard_normal(config.num_heads)
        if not config.extra:
            shape = {name: size for name, size in shape.items() if not name.startswith("extra_")}
        made = mla_sparse_decode_inputs(
            config, data=data, seed=seed, sink=sink.tolist(), **_listed(shape)
        )
        return SplitInputs(made, splits=splits, together=together)

    def trial(self, inputs: MlaSparseDecodeInputs | SplitInputs) -> MlaSparseTrial:
        given = inputs if isinstance(inputs, SplitInputs) else SplitInputs(inputs)
        return MlaSparseTrial(given)

    def covering(self, artifact: Artifact) -> Covering:
        """Lists for every number of tiles that the text tells apart, whole and cut; lists that go
        on past their length; then split ones."""
        lengths = covering_lengths(max(tile_counts(artifact.manifest)), order_of(artifact).tile)
        shape = {"batch": len(lengths), "topk": max(lengths), "lengths": lengths}
        return Covering(
            (
                Call("realistic", {**shape, **GAPS}),
                Call("randn", {"batch": len(CUT), "topk": max(CUT) + 2, "lengths": CUT,
                               "cache_rows": CUT_ROWS}),
                Call("late_max", {"batch": 2, "topk": 4 * TILE + 4, "splits": 3, "page_size": 8,
                                  "layers": 2}),
                *_together(artifact),
                *_by_tiles(artifact, "batch"),
            )
        )  # fmt: skip


def _together(artifact: Artifact) -> tuple[Call, ...]:
    """Parts that are put together, of each number that the text has code for: some have a tile,
    some have none, and so have all of a query. Scores are small, so that sinks count."""
    if facts_of(artifact.manifest).together == 1:
        return ()
    shape = {"batch": 2, "topk": 4 * TILE + 4, "lengths": (4 * TILE + 4, 5)}
    return tuple(
        Call("diffuse", {**shape, "splits": count, "together": count}) for count in TOGETHER[1:]
    )


def covering_lengths(most: int, tile: int = TILE) -> tuple[int, ...]:
    """Of lists of 0 to `most` + 1 tiles, whole and cut: the last tile of an odd number of them has
    almost all its keys, of an even number a few. Every fourth list of a made-up call names no row
    at all: it is one more there, so that each number of tiles has keys. `tile`: keys of one."""
    found: list[int] = []
    cut = (tile * n + (n if n % 2 else tile - n) for n in range(1, most + 2))
    for length in (0, tile, 1, *cut, 0, tile):
        found += [tile] * (len(found) % len(PATTERNS) == PATTERNS.index("none"))
        found.append(length)
    return tuple(found)


def _by_tiles(artifact: Artifact, entries: str) -> tuple[Call, ...]:
    """Where code is skipped in some tiles, lists of all numbers of whole tiles: the maximum moves
    in each tile; then invalid indices are in each, among keys of equal weight. Lists come several
    times where positions may hide a tile, or the maximum that is kept seldom moves."""
    manifest, order = artifact.manifest, order_of(artifact)
    if not order.running:  # no code is skipped by waves
        return ()
    most, often = max(tile_counts(manifest)) + 1, manifest.problem.get("causal") or order.slack
    lengths = tuple(order.tile * n for n in range(most + 1)) * (4 if often else 1)
    shape = {entries: len(lengths), "topk": max(lengths), "lengths": lengths}
    if manifest.problem.get("extra"):
        shape["extra_lengths"] = (0,) * len(lengths)
    return (
        Call("late_max", {**shape, "pattern": "distinct"}),
        Call("diffuse", {**shape, "pattern": "invalid"}),
    )


def _listed(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths as lists, where one number is given."""
    return {
        name: (size,) if name.endswith("lengths") and isinstance(size, int) else size
        for name, size in shape.items()
    }


PREFILL, DECODE = MlaSparsePrefillKind(), MlaSparseDecodeKind()
