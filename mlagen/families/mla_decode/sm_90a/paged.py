"""MLA decode of few query rows on Hopper: rows of a paged cache, and the role that fetches them.

A block computes a work item: up to 32 query rows of one sequence over a range of its keys. The
producer, one thread by TMA, or a warpgroup by cp.async where a page is one row, looks up the pages
of a tile some tiles ahead. An item that has all keys of its rows writes O and LSE; one that has a
part of them writes both in fp32, and blocks may combine parts.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.problem import LatentProblem, item_rows
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy, check_ahead
from mlagen.attention.latent.sm_90a.registers import SEEN_FROM
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel, check_rows
from mlagen.dsl import Tile
from mlagen.dsl.builder import Mover
from mlagen.errors import ScheduleError
from mlagen.families.mla_decode.problem import ITEM_BYTES
from mlagen.families.mla_decode.sm_90a.signature import SYMBOL, refuse_chunks, signature
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, TmaTile, WarpRole

ITEM = (
    ("query_row", ".b32", "first query row of this block"),
    ("item_rows", ".b32", "its query rows"),
    ("above", ".b32", "rows of its sequence before them"),
    ("slot_of", ".b32", "where it leaves a part of its sequence, or -1"),
    ("valid", ".b32", "keys left from the next tile on"),
    ("table", ".b64", "this sequence's row of the block table"),
    ("entries", ".b32", "entries of that row which the sequence uses"),
    ("later", ".b32", "two more than the next tile to fetch"),
    ("end_tile", ".b32", "the tile after this block's last"),
)


class Paged:
    """Rows of a work item's sequence, in the pages that its table names."""

    @staticmethod
    def role(k: LatentProblem, s: PipelineSpace) -> WarpRole:
        """One thread that fetches pages by TMA, or four warps where a page is one row."""
        single = k.page_size > 1
        return s.role("producer", warps=1 if single else 4, single=single)

    def __init__(self, kernel: SwapAbKernel, producer: WarpRole) -> None:
        """Declares the kernel's signature, and what its setup finds. Raises UnsupportedError for
        chunks."""
        k, s = kernel.k, kernel.s
        refuse_chunks(k)
        check_rows(kernel.rows, item_rows(k))
        self.kernel, self.producer = kernel, producer
        s.choice("persistent", 0, comment="a block takes one work item")
        ways = (0, 1, 2) if k.page_size > 1 else (0,)
        self.ahead = s.choice("ahead", *ways, comment="tile after the fetched one that L2 fetches")
        self.paged = paged = PagedCopy.of(k)
        self.producer_threads = paged.producer_threads
        if producer.threads != (paged.producer_threads or 1):
            raise ScheduleError(
                f"role {producer.name!r} has {producer.threads} threads",
                hint="one thread fetches pages by TMA, a warpgroup fetches single rows",
            )
        check_ahead(paged, self.ahead)
        slanted = k.causal and k.q_len > 1  # rows of a block see different keys: of several tokens
        kernel.context |= {
            "paged": paged, "slanted": slanted, "persistent": False, "item_bytes": ITEM_BYTES,
            "slot_rows": BLOCK_ROWS, "scaled": k.cache_dtype == "fp8_e4m3", "key_scales": False,
            "count_from": TILE,  # the softmax counts down before it compares
        }  # fmt: skip
        self._registers(slanted)
        s.signature = signature(k, kernel.threads, rows=kernel.rows, together=True)
        s.symbol = SYMBOL

    def _registers(self, slanted: bool) -> None:
        kernel, k, paged = self.kernel, self.kernel.k, self.paged
        single, count = bool(paged.producer_threads), max(self.ahead, 1) + 1
        kernel.name(
            *ITEM,
            ("cache", ".b64", "the cache, this KV head's columns of a thread" if single
             else "tensor map of the cache"),
        )  # fmt: skip
        if single or k.rope_aware:
            kernel.name(("keys", ".b32", "keys of the sequence"))
        if k.window and k.rope_aware:
            kernel.name(SEEN_FROM)
        if k.num_kv_heads > 1 and not single:
            kernel.name(("kv_column", ".b32", "first column of this block's KV head"))
        if slanted:
            kernel.name(("slack", ".b32", "keys that this block's first row does not see"))
            kernel.names(("unseen", ".b32", kernel.held_rows,
                          "keys at the end that query rows do not see"))  # fmt: skip
        kernel.names(
            ("page", ".b32", count * paged.lookups, f"pages of the next {count} tiles"),
            ("ahead", ".b32", count, "tile to look up next, and before the loop those after it"),
        )
        pages = kernel.context["page"]
        self.places = [pages[n : n + paged.lookups] for n in range(0, len(pages), paged.lookups)]
        kernel.context["pages"] = self.places

    def find(self, role: WarpRole) -> None:
        """Find this block's work item and its number of tiles; in the producer also where the first
        two of them lie."""
        users = self.kernel.users
        self.kernel.record("swap_ab/rows/paged/setup", None, role=role, scores=role in users,
                           fetches=role is self.producer, multiplies=role is users[0])  # fmt: skip

    def look_up(self, tile: Tile) -> None:
        """Look up where the tile lies that is next to be looked up."""
        self.kernel.record("swap_ab/rows/paged/look_up", tile, role=self.producer)

    def prefetch(self, tile: Tile) -> None:
        """Prefetch a tile after `tile` to L2, where a knob asks for it."""
        if self.ahead:
            columns = range(0, self.kernel.k.d_qk, COLUMNS)
            self.kernel.record("swap_ab/rows/paged/prefetch", tile, role=self.producer,
                               columns=columns, distance=self.ahead,
                               places=self.places[self.ahead])  # fmt: skip

    def mover(self, pipeline: Pipeline, boxes: list[tuple[TmaTile, int]]) -> Mover:
        """How the producer fills a pipeline of keys."""
        by_rows = bool(self.paged.producer_threads)
        template = "latent/gather" if by_rows else "swap_ab/rows/paged/copy"
        more: dict[str, Any] = {"boxes": boxes, "role": self.producer, "places": self.places[0]}
        return self.kernel.mover(pipeline, template, **more)
