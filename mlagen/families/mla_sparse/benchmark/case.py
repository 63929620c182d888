"""The tensors of a call that all contenders share, of torch or of numpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.families.mla_sparse.benchmark.work import SparseDecodeWork, Work
from mlagen.families.mla_sparse.rows import RowFormat

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


class HeldPool(Protocol):
    """A cache, wherever it lies: `cache` [pages, page_size, columns] and `scales` beside it, or
    None."""

    @property
    def row(self) -> RowFormat: ...
    @property
    def cache(self) -> Any: ...
    @property
    def scales(self) -> Any: ...
    def stored(self, rows: Indices) -> tuple[Array, Array | None]:
        """Copies of these rows and their scales in the host's memory, as `pool.Pool.stored`."""

    def bf16(self) -> Any:
        """The numbers of all rows, [rows, d_qk] bf16."""


@dataclass(frozen=True, eq=False)
class SparseCase:
    """`q` [rows, H, d_qk] or [batch, q_len, H, d_qk]; `indices` [rows, topk], or [batch, q_len,
    topk], or [batch, topk] where tokens share lists; `topk_length` int32 [rows] or [batch], where
    lists have lengths: places past them hold -1. `positions`, `first_position`: where keys are
    causal. `q_scale`: what queries of e4m3 are multiples of."""

    work: Work
    q: Any
    pool: HeldPool
    indices: Any
    topk_length: Any = None
    positions: Any = None
    first_position: Any = None
    extra_pool: HeldPool | None = None
    extra_indices: Any = None
    scale: float = MODEL_SCALE
    q_scale: float = 1.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of our call, by name."""
        given = {
            "q": self.q, "cache": self.pool.cache, "indices": self.indices, "scale": self.scale,
            "q_scale": self.q_scale,
            "topk_length": self.topk_length, "kv_scales": self.pool.scales,
        }  # fmt: skip
        if not isinstance(self.work, SparseDecodeWork):
            return given
        given |= {"positions": self.positions, "first_position": self.first_position}
        if self.extra_pool is None:
            return given
        return given | {
            "extra_cache": self.extra_pool.cache, "extra_indices": self.extra_indices,
            "extra_kv_scales": self.extra_pool.scales,
        }  # fmt: skip

    @cached_property
    def bf16_q(self) -> Any:
        """The numbers of all queries in bf16, shaped as `q`: itself where it is bf16."""
        if self.work.config.dtype == "bf16":
            return self.q
        return (self.q.float() * self.q_scale).bfloat16()

    @cached_property
    def bf16_rows(self) -> Any:
        """The numbers of all rows of the first cache, [rows, d_qk] bf16."""
        return self.pool.bf16()

    @cached_property
    def lists(self) -> Any:
        """Lists of the first cache, one for each query row: [query rows, topk]."""
        lists, tokens = self.indices, self.work.tokens
        if self.work.lists < self.work.queries:
            lists = lists[:, None].expand(-1, tokens, -1)
        return lists.reshape(self.work.queries, -1)

    @cached_property
    def lengths(self) -> Any:
        """Lengths of `lists`, int32 [query rows]; None where all places count."""
        if self.topk_length is None:
            return None
        return self.topk_length.repeat_interleave(self.work.tokens)

    def shaped(self, out: Any) -> Any:
        """O [query rows, heads or more, 512], heads that are ours alone, as our call has it."""
        config = self.work.config
        return out.view(*self.q.shape[:-2], *out.shape[-2:])[..., : config.num_heads, :]
