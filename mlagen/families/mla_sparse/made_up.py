"""Made-up calls of the sparse MLA kernels: the kinds of `mlagen.attention.latent.made_up`, and

* `peaked`, `diffuse`: standard normal numbers, those of the queries times 8, and through 8.

Lists come in patterns, of which "mixed" takes one after the other, row by row:

* `distinct`: rows drawn without repeats (in ascending order where the kind is of levels that rise
  or fall along the rows);
* `invalid`: the same, and every fourth place or so holds INT_MIN, -123456, -1, the number of rows,
  or INT_MAX;
* `repeated`: few rows, drawn again and again;
* `none`: nothing but such invalid numbers.

Rows that no query sees are NaN, and their scales; so is what lies between the rows and pages of a
pool, which is one layer of several. The same arguments give the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.made_up import LATENT_KINDS, Kind, Model, Sizes
from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.attention.made_up import require_kind
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.coding import encode
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.inputs import MlaSparseDecodeInputs, MlaSparsePrefillInputs
from mlagen.families.mla_sparse.lists import RowList
from mlagen.families.mla_sparse.pool import Pool, empty_pool
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.problem.arrays import untouched
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import ELEMENT_TYPES, Floats

Rng = np.random.Generator
Array = npt.NDArray[Any]
INVALID = (-(2**31), -123456, -1, None, 2**31 - 1)  # None: the number of rows
PATTERNS = ("distinct", "invalid", "repeated", "none")
MIXED = "mixed"
ORDERED = ("late_max", "falling")
ROTARY = 64  # trailing columns that turn with the position, or what stands in their place
FP8_STEP, FP8_QUERY_STEP = 0.125, 0.125


def _strong(factor: float) -> Kind:
    def normal(rng: Rng, m: Model, length: int) -> tuple[Floats, Floats]:
        return factor * rng.standard_normal(m.q), rng.standard_normal((length, m.q[-1]))

    return normal


SPARSE_KINDS: dict[str, Kind] = {**LATENT_KINDS, "peaked": _strong(8.0), "diffuse": _strong(0.125)}


def mla_sparse_prefill_inputs(
    config: MlaSparsePrefillConfig,
    *,
    rows: int = 4,
    topk: int = 200,
    cache_rows: int = 512,
    data: str = "realistic",
    seed: int = 0,
    pattern: str = MIXED,
    lengths: Sequence[int] | None = None,
    **more: Any,
) -> MlaSparsePrefillInputs:
    """Inputs of a prefill call. `lengths`: `topk_length` of each row. `more`: `page_size` (all of
    `cache_rows`), `layers` (1) and `room` (bytes between rows, 0) of the pool, `scale`, `sink`, a
    number a head, and `only`, the query rows that have numbers, a list and the rows of it (all):
    others are zeros that take no memory.

    Raises ConfigError for a number below 1, an unknown kind or pattern, a page size that does not
    divide the rows, and what MlaSparsePrefillInputs refuses.
    """
    only = more.pop("only", None)
    made = _Maker(config, data, seed, pattern, only, **more)
    pool = made.pool(cache_rows)
    queries, numbers = made.numbers(rows, cache_rows)
    indices = made.lists(rows, topk, pool.rows, only)
    length = None if lengths is None else np.array(lengths, np.int32)
    for row in range(rows) if only is None else only:
        count = None if length is None else int(length[row])
        made.fill(RowList(pool, indices[row], count), numbers)
    return MlaSparsePrefillInputs(
        config, queries, pool.cache, indices, topk_length=length,
        kv_scales=pool.scales, **made.given,
    )  # fmt: skip


def mla_sparse_decode_inputs(
    config: MlaSparseDecodeConfig,
    *,
    batch: int = 3,
    topk: int = 200,
    cache_rows: int = 512,
    data: str = "realistic",
    seed: int = 0,
    pattern: str = MIXED,
    lengths: Sequence[int] | None = None,
    **more: Any,
) -> MlaSparseDecodeInputs:
    """Inputs of a decode call, as `mla_sparse_prefill_inputs` makes them; `more` also has
    `extra_topk` (70) and `extra_lengths` for a second cache. Where keys are causal the rows of a
    list have positions around those of the new tokens. `only` counts the tokens of all entries."""
    extra_topk, extra_lengths = more.pop("extra_topk", 70), more.pop("extra_lengths", None)
    only = more.pop("only", None)
    made = _Maker(config, data, seed, pattern, only, **more)
    tokens = batch * config.q_len
    lists_of = np.arange(tokens) // (config.q_len if config.shared_list else 1)
    listed = None if only is None else sorted({int(lists_of[query]) for query in only})
    caches = ((topk, lengths), (extra_topk, extra_lengths))[: 1 + config.extra]
    queries, numbers = made.numbers(tokens, cache_rows * len(caches))
    pools, lists, lengths_of = [], [], []
    for count, own in caches:
        pool = made.pool(cache_rows)
        flat = made.lists(batch * int(np.prod(config.lists)), count, pool.rows, listed)
        length = None if own is None else np.array(own, np.int32)
        pools.append(pool)
        lists.append(flat.reshape(batch, *config.lists, count))
        lengths_of.append(length)
    others: dict[str, Any] = {}
    if config.causal:
        first = made.rng.integers(0, 2 * topk, batch).astype(np.int32)
        others["first_position"] = first
        around = first.reshape(batch, *(1,) * (lists[0].ndim - 1))
        near = made.rng.integers(-topk, config.q_len + topk // 2, lists[0].shape)
        others["positions"] = np.maximum(around + near, 0).astype(np.int32)
    if config.extra:
        others |= {
            "extra_cache": pools[1].cache, "extra_indices": lists[1],
            "extra_topk_length": lengths_of[1], "extra_kv_scales": pools[1].scales,
        }  # fmt: skip
    q = queries.reshape(batch, config.q_len, config.num_heads, config.d_qk)
    for query in range(tokens) if only is None else only:
        entry, token = divmod(query, config.q_len)
        at = (entry,) if config.shared_list else (entry, token)
        for number, pool in enumerate(pools):
            length = lengths_of[number]
            limit = None if length is None else int(length[entry])
            part = RowList(pool, lists[number][at], limit)
            if config.causal and number == 0:
                last = int(others["first_position"][entry]) + token
                part = replace(part, positions=others["positions"][at], last=last)
            # no row is in both caches
            made.fill(part, numbers[number * cache_rows :])
    return MlaSparseDecodeInputs(
        config, q, pools[0].cache, lists[0], topk_length=lengths_of[0], kv_scales=pools[0].scales,
        **made.given, **others,
    )  # fmt: skip


class _Maker:
    """What a call is made of, drawn in turn."""

    def __init__(
        self,
        config: MlaSparsePrefillConfig | MlaSparseDecodeConfig,
        data: str,
        seed: int,
        pattern: str,
        only: Collection[int] | None,
        *,
        sink: Sequence[float] | None = None,
        scale: float = MODEL_SCALE,
        **pool: int,
    ) -> None:
        require_kind(data, SPARSE_KINDS)
        if pattern not in (*PATTERNS, MIXED):
            raise ConfigError(
                f"unknown pattern {pattern!r}", hint=f"pattern: {', '.join((*PATTERNS, MIXED))}"
            )
        if unknown := set(pool) - {"page_size", "layers", "room"}:
            raise ConfigError(f"no number {sorted(unknown)[0]!r} of a sparse call")
        self.config, self.data, self.pattern, self.pages = config, data, pattern, pool
        self.only = None if only is None else sorted(only)
        self.rng = np.random.default_rng([seed, *data.encode()])
        self.kv_scale = FP8_STEP if config.row_format.scale == "cache" else 1.0
        self.q_scale = FP8_QUERY_STEP if config.dtype == "fp8_e4m3" else 1.0
        self.given: dict[str, Any] = {
            "scale": scale, "kv_scale": self.kv_scale, "q_scale": self.q_scale,
            "sink": None if sink is None else np.array(sink, np.float32),
        }  # fmt: skip

    def pool(self, rows: int) -> Pool:
        """A pool of NaN."""
        layers, room = self.pages.get("layers", 1), self.pages.get("room", 0)
        page_size = self.pages.get("page_size", rows)
        for name, value in (("cache_rows", rows), ("page_size", page_size), ("layers", layers)):
            if value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        if rows % page_size or room < 0 or room % 16:
            raise ConfigError(
                f"page_size={page_size}, room={room} do not fit cache_rows={rows}",
                hint="whole pages, and a room of a multiple of 16 bytes",
            )
        config = self.config
        return empty_pool(
            config.row_format, config.d_qk, pages=rows // page_size, page_size=page_size,
            layers=layers, room=room, poisoned=self.only is None,
        )  # fmt: skip

    def numbers(self, tokens: int, rows: int) -> tuple[Array, Floats]:
        """Queries [tokens, heads, d_qk] as they are stored, and rows [rows, d_qk]."""
        if tokens < 1:
            raise ConfigError("a call has at least one query row")
        config, only = self.config, self.only
        if only is not None and not only:
            return self._no_queries(tokens), np.zeros((0, config.d_qk))
        own = tokens if only is None else len(only)
        sizes = Sizes(config.num_heads, own, config.d_qk - ROTARY, ROTARY)
        model = Model(self.rng, sizes, self.given["scale"])
        queries, numbers = SPARSE_KINDS[self.data](self.rng, model, rows)
        stored = self._stored(queries)
        if only is None:
            return stored, numbers
        whole = self._no_queries(tokens)
        whole[only] = stored
        return whole, numbers

    def _no_queries(self, tokens: int) -> Array:
        config = self.config
        return untouched((tokens, config.num_heads, config.d_qk), ELEMENT_TYPES[config.dtype])

    def _stored(self, numbers: Floats) -> Array:
        """Queries as they are stored."""
        element = ELEMENT_TYPES[self.config.dtype]
        if self.config.dtype == "bf16":
            return numbers.astype(element)
        return np.clip(numbers / self.q_scale, -E4M3_MAX, E4M3_MAX).astype(element)

    def lists(
        self, count: int, topk: int, rows: int, only: Collection[int] | None
    ) -> npt.NDArray[np.int32]:
        """Lists [count, topk] of the pattern; where they are not `only`'s, of zeros."""
        if topk < 1:
            raise ConfigError(f"topk={topk} must be at least 1")
        found = np.zeros((count, topk), np.int32)  # which a check reads: memory that is not shared
        for n in range(count) if only is None else only:
            pattern = PATTERNS[n % len(PATTERNS)] if self.pattern == MIXED else self.pattern
            found[n] = self._list(pattern, topk, rows)
        return found

    def _list(self, pattern: str, topk: int, rows: int) -> npt.NDArray[np.int64]:
        nothing = np.array([rows if number is None else number for number in INVALID])
        if pattern == "none":
            return self.rng.choice(nothing, topk)
        few = max(1, min(rows, topk) // 8)
        if pattern == "repeated":
            own = self.rng.choice(self.rng.permutation(rows)[:few], topk)
        else:
            own = np.resize(self.rng.permutation(rows), topk)
            own[rows:] = -1  # a list that is longer than the pool
            if self.data in ORDERED:
                own[:rows] = np.sort(own[:rows])
        if pattern == "invalid":
            at = self.rng.random(topk) < 0.25
            own[at] = self.rng.choice(nothing, int(at.sum()))
        return own

    def fill(self, part: RowList, numbers: Floats) -> None:
        """Stores the rows that are seen of a list."""
        rows = part.read
        part.pool.put(rows, *encode(part.pool.row, numbers[rows], self.kv_scale))
