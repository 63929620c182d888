"""Rows of MLA decode on gfx950: work items, pages, and which keys a row sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Request
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.latent.problem import item_rows
from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.dsl import Binding, Signature, Tile, Value
from mlagen.families.mla_decode.gfx950.aiter_arguments import loaded
from mlagen.families.mla_decode.gfx950.form import cache_bytes
from mlagen.families.mla_decode.gfx950.work_form import work_form_of
from mlagen.families.mla_decode.problem import ITEM_BYTES, TILE
from mlagen.targets.gfx950.dsl import EntryRegisters, Space

MOST_STARTED = 2  # tiles with code of their own for keys before a row's first one


class Paged:
    """A work item's keys, page by page; how a workgroup gets its items, two knobs say."""

    name, keeps_largest = "paged", False
    looked_up = "PAGE", "page of the row that this lane fetches"
    finding, storing = ("find_pages",), ("store_partial", "store")

    def __init__(self, loop: LatentLoop) -> None:
        self.loop, self.k = loop, loop.k
        self.form = work_form_of(loop.k, loop.space)
        self.persistent, self.work = self.form.persistent, (self.form.work,)
        self.signature: Signature = self.form.signature(loop.k)
        self.loaded = loaded(self.signature)

    def entry(self, s: Space) -> EntryRegisters:
        return self.form.entry(s)

    @property
    def masks(self) -> tuple[str, ...]:
        return ("mask_start", "mask") if self.hides_starts else ("mask",)

    def declare(self) -> None: ...

    def lane(self) -> dict[str, Request]:
        held = {
            "maximum": ("M", 1, "running maximum M of the row, log2 units"),
            "row_sum": ("L", 1, "row sum l of this lane's keys"),
            "limit": (
                "LIMIT",
                1,
                f"keys that the row sees, from the item's first, less 4 * {self.loop.shape.part}",
            ),
            "key_base": ("KBASE", 1, "where this lane reads K in a slot"),
            "value_base": ("VBASE", 1, "where this lane reads V in a slot"),
            "address": ("ADR", 4, "the same in this tile's slot, by swizzled columns"),
            "own_row": ("ROW", 1, "row of a tile that this lane fetches"),
            "output_offset": ("OOFF", 1, "byte offset of this lane's part of the output row"),
            "source": ("SRC", 2, "address in the pool that what this lane fetches counts from"),
        }
        if self.hides_starts:
            what = f"keys of the item before the row's first one, less 4 * {self.loop.shape.part}"
            held["start"] = ("START", 1, what)
        if self.form.persistent:
            held["thread"] = ("TID", 1, "thread of the workgroup")
        return held

    def scalars(self) -> dict[str, tuple[str, int, str, int]]:
        held = {
            "work": ("WORK", 12, "the work item, as the plan has it", 4),
            "length": ("LENGTH", 1, "keys of the sequence", 1),
            "first_key": ("FIRST", 1, "first key of the item", 1),
            "stop": ("STOP", 1, "its last key + 1", 1),
            "last_key": ("LAST", 1, "its last key", 1),
            "find_key": ("FKEY", 1, "first key of the next tile whose pages are looked up", 1),
            "copy_key": ("CKEY", 1, "first key of the next tile that is fetched", 1),
            "mask_end": (
                "MASKED",
                1,
                "keys of the item up to this tile's end, in the last tiles",
                1,
            ),
            "visible": ("VISIBLE", 1, "keys of the item that all its rows see", 1),
            "lds_wave": ("LDSW", 1, "wave * 1024, its part of a DMA pass", 1),
            "grown": ("GROWN", 2, "-1 where some row's maximum moved", 2),
            "compare": ("COMPARE", 8, "lane masks", 2),
            "buffer": ("SRD", 4, "buffer resource of Q, then of the output", 4),
            "lse_buffer": ("SRDLSE", 4, "buffer resource of the LSE", 4),
            "scratch": ("TMP", 6, "scalar temporaries", 2),
        }
        if self.hides_starts:
            what = "keys of the item before one that all rows see, and a tile"
            held["all_start"] = ("ALLSTART", 1, what, 1)
            what = "keys of the item up to this tile's end, while some may be before a row's first"
            held["start_end"] = ("STARTED", 1, what, 1)
            held["first_seen_key"] = ("SEEN", 1, "first key that some row of the item sees", 1)
        if self.form.persistent:
            held["first_item"] = ("FIRSTITEM", 1, "number of its first work item", 1)
        if self.form.aiter:
            held["work_info"] = ("WORKINFO", 2, "address of the work items", 2)
            held["c"] = ("C", 1, "c, the scale in log2 units", 1)
        if self.form.aiter and self.k.cache_dtype != "bf16":
            held["kv_scale"] = ("KVSCALE", 1, "the cache's scale", 1)
        return held

    def context(self) -> Mapping[str, Any]:
        k, loop = self.k, self.loop
        row_blocks = -(-k.num_heads * k.q_len // (WAVES * loop.shape.rows))
        of_aiter = {}
        if self.form.aiter:  # a list of pages is looked up like a row of a block table
            regs, c = loop.arguments.regs, loop.scalars["c"]
            arguments = {**regs, "block_table": regs["kv_page_indices"]}
            of_aiter = {"arguments": arguments, "scale": c, "scale_log2e": c}
        return {
            **of_aiter,
            "item_bytes": ITEM_BYTES,
            "plan_shift": TILE.bit_length() - 1,
            "causal": k.causal,
            "cut_at_start": k.cut_at_start,
            "hides_starts": self.hides_starts,
            "older_rows": self.older_rows,
            "cut_tiles": self.cut_tiles,
            "window": k.window,
            "chunk": k.chunk,
            "by_chunk": Divider.of(max(k.chunk, 1)),
            "by_heads": Divider.of(k.num_heads),
            "cache_row_bytes": cache_bytes(k),
            "pool_row_bytes": k.num_kv_heads * cache_bytes(k),
            "kv_heads": k.num_kv_heads,
            "page_size": k.page_size,
            "by_page": Divider.of(k.page_size),
            "last_page": loop.arguments.regs.get("num_blocks"),
            "q_len": k.q_len,
            "persistent": self.form.persistent,
            "aiter": self.form.aiter,
            "row_blocks": row_blocks,
            "by_row_blocks": Divider.of(row_blocks),
        }

    # ---- operations ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Which items a persistent workgroup has; another one has one, its own."""
        if self.persistent:
            self.loop.record(self.form.work, None, f"rows/paged/{self.form.work}")

    def begin(self) -> None:
        """Once a work item: its rows and keys, lane addresses, the state before any key."""
        for name in ("item", "lanes"):
            self.loop.record(name, None, f"rows/paged/{name}")

    def find(self, tile: Tile) -> None:
        """Look up the page of the row that each lane fetches."""
        found = self.found(tile)
        self.loop.record("find_pages", tile, "rows/paged/find_pages", self.row, defines=found)

    def found(self, tile: Tile) -> tuple[Value, ...]:
        return (self.loop.page.at(tile),)

    def row(self, at: Binding) -> Mapping[str, Any]:
        return {"page": self.loop.page.regs(at.phase)}

    def load_list(self, tile: Tile) -> None:
        """Nothing: pages have no list that a mask needs."""

    def mask(self, tile: Tile) -> None:
        cut = {"mask_start": {"first_tiles": self.started_tiles},
               "mask": {"last_tiles": self.cut_tiles}}  # fmt: skip
        for name in self.masks:
            self.loop.record(
                name, tile, f"rows/paged/{name}", lambda at: {"rows": self.loop.score_keys},
                uses=(Value("S", tile),), guarded=True, **cut[name],
            )  # fmt: skip

    @property
    def older_rows(self) -> bool:
        """Whether an item may be without rows of its sequence's newest token, and so without the
        last keys."""
        k = self.k
        together = k.num_kv_heads == 1 and item_rows(k) <= WAVES * self.loop.shape.rows
        return k.causal and k.q_len > 1 and not together

    @property
    def cut_tiles(self) -> int:
        """Last tiles of an item that may have keys behind a row's last one, of which there are
        fewer than new tokens. An item of one of several KV heads has rows of one token."""
        k = self.k
        return 2 if k.causal and k.q_len > 2 and k.num_kv_heads == 1 else 1

    @property
    def hides_starts(self) -> bool:
        """Whether tiles may have keys before a row's first one: not where all tokens of an item
        begin with a chunk, and it with a tile."""
        k = self.k
        keys = self.loop.storage.tile.keys
        return k.cut_at_start and bool(k.window or k.q_len > 1 or k.chunk % keys)

    @property
    def started_tiles(self) -> int:
        """First tiles of an item that may have keys before a row's first one; 0: any tile. The
        oldest token's first key is in the item's first tile, the newest one's as many keys on as
        there are more tokens, or whole chunks that these need."""
        step = max(self.k.chunk, 1)
        others = -(-(self.k.q_len - 1) // step) * step
        tiles = -(-(self.loop.storage.tile.keys - 1 + others) // self.loop.storage.tile.keys)
        return tiles if tiles <= MOST_STARTED else 0
