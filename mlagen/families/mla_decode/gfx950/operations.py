"""MLA decode on gfx950: the loop over latent rows with work items, pages and masks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.shape import Shape
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.latent.problem import item_rows
from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.dsl import Signature, Tile, Value
from mlagen.families.mla_decode.gfx950.aiter_arguments import loaded
from mlagen.families.mla_decode.gfx950.form import cache_bytes
from mlagen.families.mla_decode.gfx950.work_form import ONE_ITEM, WorkForm
from mlagen.families.mla_decode.problem import ITEM_BYTES, TILE
from mlagen.targets.gfx950.dsl import Entry, Regs, Ring, Space

OWN = (
    "work", "aiter_work", "item", "lanes", "find_pages", "copy", "copy_stored", "mask",
    "mask_start", "scale_scores", "stored_products", "normalise", "store_partial", "store",
)  # fmt: skip
MOST_STARTED = 2  # tiles with code of their own for keys before a row's first one


class Decode(LatentLoop):
    """The operations of one kernel over its ring and the schedule's register tiles; `form`: how it
    gets its work."""

    looked_up = "PAGE", "page of the row that this lane fetches"
    templates = MappingProxyType(dict.fromkeys(OWN, "mla_decode"))

    def __init__(
        self, k: Any, s: Space, entry: Entry, ring: Ring, shape: Shape, form: WorkForm = ONE_ITEM
    ) -> None:
        self.form = form
        super().__init__(k, s, entry, ring, shape)

    def _signature(self) -> Signature:
        return self.form.signature(self.k)

    def _loaded(self, made: Signature) -> Signature:
        return loaded(made)

    def _before(self, begin: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ((self.form.work,), begin) if self.form.persistent else (begin, ())

    def _finding(self) -> tuple[str, ...]:
        return ("find_pages",)

    def _masks(self) -> tuple[str, ...]:
        return ("mask_start", "mask") if self.hides_starts else ("mask",)

    def _storing(self) -> tuple[str, ...]:
        return "store_partial", "store"

    def _lane(self) -> dict[str, tuple[str, int, str]]:
        held = {
            "maximum": ("M", 1, "running maximum M of the row, log2 units"),
            "row_sum": ("L", 1, "row sum l of this lane's keys"),
            "limit": (
                "LIMIT",
                1,
                f"keys that the row sees, from the item's first, less 4 * {self.shape.part}",
            ),
            "key_base": ("KBASE", 1, "where this lane reads K in a slot"),
            "value_base": ("VBASE", 1, "where this lane reads V in a slot"),
            "address": ("ADR", 4, "the same in this tile's slot, by swizzled columns"),
            "own_row": ("ROW", 1, "row of a tile that this lane fetches"),
            "output_offset": ("OOFF", 1, "byte offset of this lane's part of the output row"),
            "source": ("SRC", 2, "address in the pool that what this lane fetches counts from"),
        }
        if self.hides_starts:
            what = f"keys of the item before the row's first one, less 4 * {self.shape.part}"
            held["start"] = ("START", 1, what)
        if self.form.persistent:
            held["thread"] = ("TID", 1, "thread of the workgroup")
        return held

    def _scalars(self) -> dict[str, tuple[str, int, str, int]]:
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

    def _problem(self) -> dict[str, Any]:
        k = self.k
        row_blocks = -(-k.num_heads * k.q_len // (WAVES * self.shape.rows))
        return {
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
            "last_page": self.arguments.regs.get("num_blocks"),
            "q_len": k.q_len,
            "persistent": self.form.persistent,
            "aiter": self.form.aiter,
            "row_blocks": row_blocks,
            "by_row_blocks": Divider.of(row_blocks),
        }

    def _scale(self) -> Regs:
        return self.scalars["c"] if self.form.aiter else super()._scale()

    def _arguments(self) -> Mapping[str, Regs]:
        """A list of pages is looked up like a row of a block table."""
        regs = super()._arguments()
        return {**regs, "block_table": regs["kv_page_indices"]} if self.form.aiter else regs

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Which items a persistent workgroup has; another one has one, its own."""
        if self.form.persistent:
            self._record(self.form.work, None)

    # ---- once a tile ------------------------------------------------------------------------

    def find_pages(self, tile: Tile) -> None:
        """Look up the page of the row that each lane fetches."""
        self._record(
            "find_pages", tile, lambda at: {"page": self.page.regs(at.phase)},
            defines=(self.page.at(tile),),
        )  # fmt: skip

    def mask(self, tile: Tile) -> None:
        cut = {"mask_start": {"first_tiles": self.started_tiles},
               "mask": {"last_tiles": self.cut_tiles}}  # fmt: skip
        for name in self._masks():
            self._record(
                name, tile, lambda at: {"rows": self.score_keys}, uses=(Value("S", tile),),
                guarded=True, **cut[name],
            )  # fmt: skip

    @property
    def older_rows(self) -> bool:
        """Whether an item may be without rows of its sequence's newest token, and so without the
        last keys."""
        k = self.k
        together = k.num_kv_heads == 1 and item_rows(k) <= WAVES * self.shape.rows
        return k.causal and k.q_len > 1 and not together

    @property
    def cut_tiles(self) -> int:
        """Last tiles of an item that may have keys behind a row's last one, of which there are
        fewer than new tokens."""
        return 1 if not self.k.causal or self.k.q_len <= 2 else 2

    @property
    def hides_starts(self) -> bool:
        """Whether tiles may have keys before a row's first one: not where all tokens of an item
        begin with a chunk, and it with a tile."""
        k = self.k
        return k.cut_at_start and bool(k.window or k.q_len > 1 or k.chunk % self.keys)

    @property
    def started_tiles(self) -> int:
        """First tiles of an item that may have keys before a row's first one; 0: any tile. The
        oldest token's first key is in the item's first tile, the newest one's as many keys on as
        there are more tokens, or whole chunks that these need."""
        step = max(self.k.chunk, 1)
        others = -(-(self.k.q_len - 1) // step) * step
        tiles = -(-(self.keys - 1 + others) // self.keys)
        return tiles if tiles <= MOST_STARTED else 0
