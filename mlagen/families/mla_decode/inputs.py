"""One call's data of an MLA decode kernel: queries, the paged cache and what leads to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.rope_aware import rope_aware_numbers
from mlagen.attention.latent.scales import check_scale, scale_of
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.problem import arrays
from mlagen.problem.arrays import check_int32, check_tensor
from mlagen.problem.formats import Floats


@dataclass(frozen=True, eq=False)
class MlaDecodeInputs:
    """Queries, cache and run-time numbers of one call of an MLA decode kernel.

    `q` [batch, q_len, num_heads, 576]; `cache` [num_blocks, page_size, num_kv_heads, 576], the pool
    of pages;
    `block_table` int32 [batch, max_pages]: sequence b's row r lies in page `block_table[b, r //
    page_size]`; `cache_lengths` int32 [batch], rows of each sequence, 0 allowed. Rows past a
    length, pages that no sequence uses and table entries past a sequence's pages have no meaning.

    `scale` multiplies the dot products. It is the model's (`MODEL_SCALE` of `latent.scales`), not
    1 / sqrt(576).
    Rope-aware rows: `cache` [num_blocks, page_size, 1, 640] bytes, named e4m3, and `kv_scales` fp32
    [num_blocks, page_size], a row's scale each. Rope-aware queries: `q` [batch, q_len, num_heads,
    640] and `q_scales` fp32 [batch, q_len].

    `q_scale` and `kv_scale`: what the numbers of q and of the cache are multiples of, 1 where they
    are bf16.

    Raises ConfigError for shapes, types and numbers that do not fit.
    """

    config: MlaDecodeConfig
    q: npt.NDArray[Any]
    cache: npt.NDArray[Any]
    block_table: npt.NDArray[np.int32]
    cache_lengths: npt.NDArray[np.int32]
    scale: float
    kv_scale: float = 1.0
    q_scale: float = 1.0
    kv_scales: npt.NDArray[np.float32] | None = None
    q_scales: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        config = self.config
        shape = (None, config.q_len, config.num_heads, config.q_columns)
        check_tensor("q", self.q, shape, config.q_element)
        pool = (None, config.page_size, config.num_kv_heads, config.cache_columns)
        check_tensor("cache", self.cache, pool, config.cache_element)
        require_row_scales(config, self.kv_scales, self.q_scales)
        if self.q_scales is not None:
            check_tensor("q_scales", self.q_scales, (self.batch, config.q_len), "fp32")
        if self.kv_scales is not None:
            check_tensor("kv_scales", self.kv_scales, (self.num_blocks, config.page_size), "fp32")
        check_int32("block_table", self.block_table, (self.batch, None), least=1)
        check_int32("cache_lengths", self.cache_lengths, (self.batch,))
        scales = check_stored(config, self.scale, self.kv_scale, self.q_scale)
        for name, number in zip(("scale", "kv_scale", "q_scale"), scales, strict=True):
            object.__setattr__(self, name, number)
        check_pages(config, self.block_table, self.cache_lengths, self.num_blocks)

    @property
    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """What a call is given by name, besides its scales."""
        names = ("q", "cache", "block_table", "cache_lengths", "kv_scales", "q_scales")
        arrays = {name: getattr(self, name) for name in names}
        return {name: array for name, array in arrays.items() if array is not None}

    @property
    def scales(self) -> dict[str, Any]:
        """What a call is given by name besides its tensors."""
        return {"scale": self.scale, "kv_scale": self.kv_scale, "q_scale": self.q_scale}

    @property
    def score_scale(self) -> float:
        """What multiplies dot products of stored rows."""
        return self.scale * self.kv_scale * self.q_scale

    @property
    def batch(self) -> int:
        """Sequences."""
        return int(self.q.shape[0])

    @property
    def num_blocks(self) -> int:
        """Pages of the pool."""
        return int(self.cache.shape[0])

    @property
    def max_pages(self) -> int:
        """Table entries a sequence."""
        return int(self.block_table.shape[1])

    def rows(self, sequence: int, kv_head: int = 0) -> Floats:
        """The cache rows of a sequence in their order, [length, 576], of one KV head, in fp64, as
        they are stored: without `kv_scale` and the rows' scales."""
        config = self.config
        rows = self._of(self.cache[:, :, kv_head], sequence)
        return (
            rope_aware_numbers(rows, config.d_v) if config.rope_aware else rows.astype(np.float64)
        )

    def queries(self, sequence: int) -> Floats:
        """The queries of a sequence, [q_len, num_heads, 576], as they are stored."""
        q = self.q[sequence]
        return (
            rope_aware_numbers(q, self.config.d_v)
            if self.config.rope_aware_queries
            else q.astype(np.float64)
        )

    def row_scales(self, sequence: int) -> Floats:
        """What the rows of a sequence are multiples of, [length]: 1 where they have no scales."""
        if self.kv_scales is None:
            return np.ones(int(self.cache_lengths[sequence]))
        return self._of(self.kv_scales, sequence).astype(np.float64)

    def _of(self, pool: npt.NDArray[Any], sequence: int) -> npt.NDArray[Any]:
        """What a pool has for each row of a sequence."""
        length = int(self.cache_lengths[sequence])
        pages = self.block_table[sequence, : self.config.pages(length)]
        return pool[pages].reshape(-1, *pool.shape[2:])[:length]

    def heads(self, heads: Sequence[int] | None) -> npt.NDArray[np.int64]:
        """Query heads, ascending and without repeats; None: all. ConfigError: no such head."""
        count = self.config.num_heads
        if heads is None:
            return np.arange(count)
        chosen = np.unique(np.asarray(heads, dtype=np.int64))
        if chosen.size == 0 or chosen[0] < 0 or chosen[-1] >= count:
            raise ConfigError(f"heads {list(heads)} are not all in 0 .. {count - 1}")
        return chosen


def check_stored(
    config: MlaDecodeConfig, scale: float, kv_scale: float, q_scale: float = 1.0
) -> tuple[float, float, float]:
    """`scale`, `kv_scale` and `q_scale` as floats. Raises ConfigError unless they are positive and
    finite, also their product, and 1 for what needs none."""
    scale = check_scale(scale)
    if config.rope_aware_queries and q_scale != 1.0:
        raise ConfigError(
            f"q_scale={q_scale}: rope-aware queries have a scale a token",
            hint="q_scales=, fp32 [batch, q_len]; q_scale is of dtype=fp8_e4m3",
        )
    q = scale_of("q_scale", q_scale, "bf16 queries are", "dtype", config.dtype)
    if config.rope_aware and kv_scale != 1.0:
        raise ConfigError(
            f"kv_scale={kv_scale}: rope-aware rows have a scale each",
            hint="kv_scales=, fp32 [num_blocks, page_size]; kv_scale is of cache_dtype=fp8_e4m3",
        )
    kv = scale_of("kv_scale", kv_scale, "a bf16 cache holds", "cache_dtype", config.cache_dtype)
    check_scale(q * kv * scale)
    return scale, kv, q


def require_row_scales(config: MlaDecodeConfig, kv_scales: object, q_scales: object) -> None:
    """Raises ConfigError unless scales of rows are given where rows have them, and only there."""
    if config.rope_aware_queries and q_scales is None:
        raise ConfigError(
            "q_scales are missing: rope-aware queries have a scale a token",
            hint="q_scales=, fp32 [batch, q_len]",
        )
    if not config.rope_aware_queries and q_scales is not None:
        raise ConfigError(
            f"q_scales are given, but {config.dtype} queries have none",
            hint="q_scales go with dtype=fp8_rope_aware; q_scale is of dtype=fp8_e4m3",
        )
    if config.rope_aware and kv_scales is None:
        raise ConfigError(
            "kv_scales are missing: rope-aware rows have a scale each",
            hint="kv_scales=, fp32 [num_blocks, page_size]",
        )
    if not config.rope_aware and kv_scales is not None:
        raise ConfigError(
            f"kv_scales are given, but rows of a {config.cache_dtype} cache have none",
            hint="kv_scales go with cache_dtype=fp8_rope_aware; kv_scale is of a whole e4m3 cache",
        )


def check_pages(
    config: MlaDecodeConfig,
    block_table: npt.NDArray[Any],
    cache_lengths: npt.NDArray[Any],
    num_blocks: int,
) -> None:
    """Raises ConfigError for a length that the table cannot hold, and for a used page that the
    pool does not have. Entries past a sequence's pages are not looked at.
    """
    arrays.check_pages(
        ("cache_lengths", "block_table", "the block table"), block_table, cache_lengths,
        page_size=config.page_size, pool=num_blocks, of="rows",
    )  # fmt: skip
