"""MLA decode problems over a paged cache, and the work of persistent kernels.

Every page that no table names is NaN, so that reading one shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from mla_oracle import Format, Rows, attention

from mlagen.problem.formats import BF16

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES: dict[Format, np.dtype[Any]] = {"bf16": BF16, "e4m3": E4M3}
D_QK, D_V = 576, 512
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work of a persistent kernel.

    Query tokens [qo_start, qo_end) of a sequence over entries [kv_start, kv_end) of the page list;
    `kv_offset` keys of the sequence lie after these. `partial`: -1 writes the final output, else
    the row of the partial buffers. `head` is read by the prefill kernels only.
    """

    sequence: int
    partial: int
    qo_start: int
    qo_end: int
    kv_start: int
    kv_end: int
    kv_offset: int = 0
    head: int = 0

    def words(self) -> list[int]:
        return [
            self.sequence,
            self.partial,
            self.qo_start,
            self.qo_end,
            self.kv_start,
            self.kv_end,
            self.kv_offset,
            self.head | (self.head + 1) << 16,
        ]


def work_tables(groups: Sequence[Sequence[Item]]) -> tuple[Array, Array]:
    """`work_indptr` [groups + 1] and `work_info` [items, 8] of each workgroup's items."""
    counts = np.cumsum([0, *(len(group) for group in groups)])
    info = [item.words() for group in groups for item in group]
    return counts.astype(np.int32), np.array(info, np.int32).reshape(-1, 8)


@dataclass(frozen=True)
class Decode:
    """A decode problem: `lengths` keys a sequence, `tokens` queries each, over a paged cache.

    `dyadic`: scores are whole numbers of log2 units, where no P is rounded (`mla_oracle`).
    `world`, `rank`: of a cache dealt out by token (context parallel); `lengths` are then global and
    this rank's are those at rank, rank + world, ...
    """

    heads: int
    lengths: tuple[int, ...]
    tokens: int = 1
    q_format: Format = "bf16"
    kv_format: Format = "bf16"
    causal: bool = True
    page_size: int = 1
    dyadic: bool = False
    q_scale: float = 1.0
    kv_scale: float = 1.0
    world: int = 1
    rank: int = 0
    seed: int = 0
    spread: float = 1.0  # of the scores, in natural units
    spare_pages: int = 5
    nan_near: bool = False

    @property
    def sequences(self) -> int:
        return len(self.lengths)

    def local(self, sequence: int) -> int:
        """Keys of a sequence that lie in this rank's cache."""
        return len(range(self.rank, self.lengths[sequence], self.world))

    @cached_property
    def kv_indptr(self) -> Array:
        pages = [-(-self.local(b) // self.page_size) for b in range(self.sequences)]
        return np.cumsum([0, *pages]).astype(np.int32)

    @cached_property
    def last_page(self) -> Array:
        counts = [self.local(b) for b in range(self.sequences)]
        return np.array([(n - 1) % self.page_size + 1 if n else 0 for n in counts], np.int32)

    @cached_property
    def qo_indptr(self) -> Array:
        return (np.arange(self.sequences + 1) * self.tokens).astype(np.int32)

    @cached_property
    def scale(self) -> float:
        """The softmax scale that the kernel is handed (without those of q and kv)."""
        if self.dyadic:
            return float(np.log(2.0)) / (self.q_scale * self.kv_scale)
        return float(np.float32(self.spread * D_QK**-0.5 / (self.q_scale * self.kv_scale)))

    @cached_property
    def pages(self) -> Array:
        """The page list: a random choice of the cache's pages, in random order."""
        rng = np.random.default_rng((self.seed, 1))
        used = int(self.kv_indptr[-1])
        return rng.permutation(used + self.spare_pages)[:used].astype(np.int32)

    @cached_property
    def q(self) -> Array:
        """[sequences * tokens, heads, 576]."""
        rng = np.random.default_rng((self.seed, 2))
        shape = (self.sequences * self.tokens, self.heads, D_QK)
        if not self.dyadic:
            return rng.standard_normal(shape, np.float32).astype(DTYPES[self.q_format])
        # Four columns of each row count, of all parts of the depth; k is -1, 0 or 1 everywhere.
        q = np.zeros(shape, np.float32)
        at = np.argsort(rng.random(shape), axis=-1)[..., :4]
        np.put_along_axis(q, at, rng.choice([-1.0, 1.0], at.shape).astype(np.float32), axis=-1)
        return q.astype(DTYPES[self.q_format])

    @cached_property
    def keys(self) -> tuple[Array, ...]:
        """Each sequence's rows of this rank, [local, 576]."""
        rng = np.random.default_rng((self.seed, 3))
        rows = []
        for b in range(self.sequences):
            shape = (self.local(b), D_QK)
            plain = rng.standard_normal(shape, np.float32)
            if self.dyadic:
                plain = rng.integers(-1, 2, shape).astype(np.float32)
            rows.append(plain.astype(DTYPES[self.kv_format]))
        return tuple(rows)

    @cached_property
    def cache(self) -> Array:
        """[pages, page_size, 576]; NaN wherever no key lies.

        Except (unless `nan_near`) in page 0 and in the last page of a sequence: where the page list
        ends, range checking gives the kernels page 0, they read last pages to their ends, and a P
        of 0 does not hide a NaN.
        """
        total = len(self.pages) + self.spare_pages
        cache = np.full((total, self.page_size, D_QK), np.nan, DTYPES[self.kv_format])
        if not self.nan_near:
            near = [0, *(self.pages[end - 1] for end in self.kv_indptr[1:])]
            rng = np.random.default_rng((self.seed, 4))
            cache[near] = rng.standard_normal(cache[near].shape)
        for b, rows in enumerate(self.keys):
            for i, row in enumerate(rows):
                page = self.pages[self.kv_indptr[b] + i // self.page_size]
                cache[page, i % self.page_size] = row
        return cache

    def visible(self, sequence: int, tokens: range, keys: range) -> npt.NDArray[np.bool_]:
        """[tokens, keys]: which of this rank's keys the tokens (of the sequence's) see."""
        place = np.array(keys) * self.world + self.rank
        length = self.lengths[sequence]
        last = np.full(len(tokens), length)
        if self.causal:
            last = length - self.tokens + np.array(tokens) + 1
        return place[None, :] < last[:, None]

    def expected(self, sequence: int, tokens: range, keys: range, p_format: Format) -> Rows:
        """Rows (token, head) over a range of this rank's keys."""
        start = sequence * self.tokens
        q = self.q[start + tokens.start : start + tokens.stop].astype(np.float64)
        k = self.keys[sequence][keys.start : keys.stop].astype(np.float64)
        visible = np.repeat(self.visible(sequence, tokens, keys), self.heads, axis=0)
        return attention(
            q.reshape(-1, D_QK),
            k,
            k[:, :D_V],
            visible,
            scale=float(np.float32(self.scale)) * self.q_scale * self.kv_scale,
            p_format=p_format,
            v_scale=self.kv_scale,
        )
