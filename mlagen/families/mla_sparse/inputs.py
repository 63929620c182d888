"""One call's data of the sparse MLA kernels: queries, caches, lists of rows, and numbers.

Both classes answer the same questions, so that oracles need not tell prefill from decode: a call is
`batch` times `tokens` query rows of all heads (prefill: 1 times rows), each with a list of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.call_checks import check_goes_with, check_scales
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.lists import RowList, check_read
from mlagen.families.mla_sparse.pool import Pool
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.problem.arrays import check_int32, check_tensor
from mlagen.problem.formats import Floats

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
# Of a row, with products of e4m3: M lies so far above scores, and the row sum must stay in fp32.
LARGEST_SCALE = 2.0**64
Fp32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Call:
    """What both kinds of call have."""

    config: MlaSparsePrefillConfig | MlaSparseDecodeConfig
    q: Array
    cache: Array
    indices: Int32
    scale: float
    topk_length: Int32 | None = None
    sink: Fp32 | None = None
    kv_scales: Fp32 | None = None
    kv_scale: float = 1.0
    q_scale: float = 1.0

    def _check_shared(self) -> None:
        """Scales and sinks. ConfigError for what does not fit."""
        config = self.config
        scales = check_scales(config, self.scale, self.kv_scale, self.q_scale)
        for name, number in zip(("scale", "kv_scale", "q_scale"), scales, strict=True):
            object.__setattr__(self, name, number)
        if self.sink is not None:
            check_tensor("sink", self.sink, (config.num_heads,), "fp32")
            if np.isnan(self.sink).any():
                head = int(np.flatnonzero(np.isnan(self.sink))[0])
                raise ConfigError(f"sink[{head}] is NaN", hint="-inf is a sink that adds nothing")

    @property
    def _largest_scale(self) -> float:
        """That a row which a query sees may have."""
        return LARGEST_SCALE if self.config.compute == "fp8" else math.inf

    @cached_property
    def pool(self) -> Pool:
        """The cache."""
        return Pool(self.config.row_format, self.config.d_qk, self.cache, self.kv_scales)

    @property
    def score_scale(self) -> float:
        """What multiplies dot products of stored numbers."""
        return self.scale * self.kv_scale * self.q_scale

    def heads(self, heads: Sequence[int] | None) -> npt.NDArray[np.int64]:
        """Query heads, ascending and without repeats; None: all. ConfigError: no such head."""
        count = self.config.num_heads
        if heads is None:
            return np.arange(count)
        chosen = np.unique(np.asarray(heads, dtype=np.int64))
        if chosen.size == 0 or chosen[0] < 0 or chosen[-1] >= count:
            raise ConfigError(f"heads {list(heads)} are not all in 0 .. {count - 1}")
        return chosen


@dataclass(frozen=True, eq=False)
class MlaSparsePrefillInputs(_Call):
    """Queries, cache, lists and numbers of one call of a sparse prefill kernel.

    `q` [rows, num_heads, d_qk]; `cache` and `kv_scales` as `pool.Pool` has them; `indices` int32
    [rows, topk], topk at least 1: any number may stand there. `topk_length` int32 [rows]: places of
    a list that count; all where it is larger or not given, none where it is negative. `sink` fp32
    [num_heads], natural units, +inf and -inf among them. `scale` multiplies the dot products;
    `q_scale`, `kv_scale`: what e4m3 queries and rows of `e4m3` are multiples of, else 1.

    Raises ConfigError for shapes, types and numbers that do not fit, and for a row that a query
    sees and whose scales are not all finite and at least 0.
    """

    config: MlaSparsePrefillConfig

    def __post_init__(self) -> None:
        config = self.config
        check_tensor("q", self.q, (None, config.num_heads, config.d_qk), config.dtype)
        check_int32("indices", self.indices, (len(self.q), None), least=1)
        if self.topk_length is not None:
            check_int32("topk_length", self.topk_length, (len(self.q),))
        self._check_shared()
        check_read(self, self._largest_scale)

    @property
    def batch(self) -> int:
        """Entries of the batch: prefill has one, of all rows."""
        return 1

    @property
    def tokens(self) -> int:
        """Query rows of an entry."""
        return len(self.q)

    def queries(self, entry: int, token: int) -> Floats:
        """[num_heads, d_qk], as they are stored."""
        return self.q[token].astype(np.float64)

    def parts(self, entry: int, token: int) -> tuple[RowList, ...]:
        """The list of a query row."""
        length = None if self.topk_length is None else int(self.topk_length[token])
        return (RowList(self.pool, self.indices[token], length),)


@dataclass(frozen=True, eq=False)
class MlaSparseDecodeInputs(_Call):
    """Queries, caches, lists and numbers of one call of a sparse decode kernel.

    As `MlaSparsePrefillInputs`, with `q` [batch, q_len, num_heads, d_qk], `indices` int32 [batch,
    q_len, topk], or [batch, topk] where tokens share a list, and `topk_length` int32 [batch].

    `positions` int32, of the shape of `indices`, and `first_position` int32 [batch]: where keys are
    causal, and only there. `extra_cache`, `extra_indices` [batch, q_len, extra_topk], or [batch,
    extra_topk]: where there is a second cache, and only there; `extra_topk_length` int32 [batch]
    and `extra_kv_scales` go with them. Both caches have one `kv_scale`.
    """

    config: MlaSparseDecodeConfig
    positions: Int32 | None = None
    first_position: Int32 | None = None
    extra_cache: Array | None = None
    extra_indices: Int32 | None = None
    extra_topk_length: Int32 | None = None
    extra_kv_scales: Fp32 | None = None

    def __post_init__(self) -> None:
        config = self.config
        shape = (None, config.q_len, config.num_heads, config.d_qk)
        check_tensor("q", self.q, shape, config.dtype)
        lists = (self.batch, *config.lists, None)
        check_int32("indices", self.indices, lists, least=1)
        if self.topk_length is not None:
            check_int32("topk_length", self.topk_length, (self.batch,))
        self._check_shared()
        check_goes_with("causal", config.causal, vars(self))
        if self.positions is not None:
            check_int32("positions", self.positions, self.indices.shape)
            check_int32("first_position", self.first_position, (self.batch,))
        check_goes_with("extra", config.extra, vars(self))
        if self.extra_cache is not None:
            check_int32("extra_indices", self.extra_indices, lists, least=1)
        if self.extra_topk_length is not None:
            check_int32("extra_topk_length", self.extra_topk_length, (self.batch,))
        check_read(self, self._largest_scale)

    @property
    def batch(self) -> int:
        """Sequences."""
        return int(self.q.shape[0])

    @property
    def tokens(self) -> int:
        """New tokens a sequence."""
        return self.config.q_len

    @cached_property
    def extra_pool(self) -> Pool | None:
        """The second cache."""
        if self.extra_cache is None:
            return None
        row, d_qk = self.config.row_format, self.config.d_qk
        return Pool(row, d_qk, self.extra_cache, self.extra_kv_scales, "extra_cache")

    def queries(self, entry: int, token: int) -> Floats:
        """[num_heads, d_qk], as they are stored."""
        return self.q[entry, token].astype(np.float64)

    def parts(self, entry: int, token: int) -> tuple[RowList, ...]:
        """The lists of a token, one a cache."""
        at: tuple[int, ...] = (entry,) if self.config.shared_list else (entry, token)
        length = None if self.topk_length is None else int(self.topk_length[entry])
        positions, last = None, math.inf
        if self.positions is not None and self.first_position is not None:
            positions, last = self.positions[at], int(self.first_position[entry]) + token
        first = RowList(self.pool, self.indices[at], length, positions, last)
        if self.extra_pool is None or self.extra_indices is None:
            return (first,)
        length = None if self.extra_topk_length is None else int(self.extra_topk_length[entry])
        return first, RowList(self.extra_pool, self.extra_indices[at], length)


MlaSparseInputs = MlaSparsePrefillInputs | MlaSparseDecodeInputs
