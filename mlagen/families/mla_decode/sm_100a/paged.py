"""MLA decode on Blackwell: rows of a paged cache, and how those come that products take as stored.

A block computes a work item: up to 64 query rows of one sequence (heads, or heads of several new
tokens) over a range of its keys. Or a CTA pair does, 64 rows of up to 128 in each block: of a tile
either block has half of the rows as K, and of all of them half of each 256 columns as V, its halves
of operand B of the pair's products. An item that has all keys of its rows writes O and LSE; one
that has a part of them writes both in fp32, for the merge kernel. An item without keys has one
tile, of which nothing is a key.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.sm_100a.dequantized import column_boxes
from mlagen.attention.latent.sm_100a.kernel import TensorMemoryKernel
from mlagen.attention.latent.sm_100a.parts import Rows
from mlagen.dsl import Tile, bind, by
from mlagen.dsl.plain import Part
from mlagen.families.mla_decode.problem import ITEM_BYTES, ROPE_AWARE, MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.form import SYMBOL, box_columns, box_rows, signature
from mlagen.targets.nvidia.dsl import WarpRole, filled

QUERIES = {"fp8_e4m3": "read_paged", ROPE_AWARE: "read_rope"}  # templates that make bf16 of them
BEFORE = ("before", ".b32", "rows from there on before the first that some token sees")
ROWS_A_LANE = 4  # whose numbers one instruction takes


class Paged:
    """Rows of a work item's sequence, in the pages that its table names. Those past the sequence's
    end, and of pages out of the pool, are 0. Each role looks up the pages of its own rows."""

    name, persists, positions = "paged", True, False

    def __init__(self, kernel: TensorMemoryKernel, softmax: WarpRole) -> None:
        k, s = kernel.k, kernel.s
        self.kernel, self.softmax, self.weighs = kernel, softmax, k.rope_aware
        self.form = (
            RowForm(k.d_v, rope=k.d_rope, rope_at=k.d_v, scales="key")
            if k.rope_aware
            else RowForm(k.d_qk)
        )
        self.queries = f"queries/{'load' if k.as_stored else QUERIES[k.dtype]}"
        self.ahead = ("look_up_scales", "load_scales") if self.weighs else ()
        self.several = bool(s.persistent)
        kernel.context |= {
            "item_bytes": ITEM_BYTES, "row_columns": k.d_qk, "page_rows": min(k.page_size, TILE),
            "tiles_a_page": max(k.page_size // TILE, 1), "slot_rows": ROWS * s.smem.blocks,
            "slanted": k.causal and k.q_len > 1, "scaled": k.cache_dtype == "fp8_e4m3",
            "finds_query": "",
        }  # fmt: skip
        kernel.name(
            *([("item", ".b64", "the work item")] if self.several else ()),
            *([("begin", ".b32", "the first key that it sees, likewise")] if k.chunk else ()),
            *([BEFORE] if k.cut_at_start else ()),
            *([("scale_page", ".b32", "page of its key of the next tile")] if self.weighs else ()),
            ("query_row", ".b32", "first of this block's rows of Q"),
            ("kv_column", ".b32", "first column of its KV head"),
            ("table", ".b64", "its sequence's pages"),
            ("ahead", ".b32", "tile to look up next"),
            ("left", ".b32", "keys of the sequence from there on"),
            ("found", ".b32", "keys of the sequence from the found tile on"),
            ("seen", ".b32", "keys that this thread's row sees, from its first of the tile on"),
        )
        s.signature = signature(k, kernel.threads, s.smem.blocks, persistent=self.several)
        s.symbol = SYMBOL

    @staticmethod
    def on_a_pair(k: MlaDecodeConfig) -> bool:
        """Whether more query rows share keys than one block has."""
        return k.num_kv_heads == 1 and k.num_heads * k.q_len > ROWS

    def setup(self, role: WarpRole) -> None:
        """Load this block's work item, and count its tiles. Where it has several: find them."""
        self._set_up("setup", role, "setup_block" if self.several else "setup")

    def begin(self, role: WarpRole) -> None:
        """The next work item, where a block has several."""
        if self.several:
            self._set_up("begin", role, "setup")

    def _set_up(self, name: str, role: WarpRole, template: str) -> None:
        feeds = any(role.name == pipeline.producer for pipeline in self.kernel.rows)
        self.kernel.record(f"rows/paged/{template}", None, name=name, feeds=feeds,
                           masks=role is self.softmax)  # fmt: skip

    def load_list(self, tile: Tile) -> None:
        """No key is named by a list."""

    def look_up_scales(self, tile: Tile) -> None:
        """Load which page this lane's key lies in, where rows have scales."""
        if self.weighs:
            self.kernel.record("rows/paged/look_up_scales", tile)

    def load_scales(self, tile: Tile) -> None:
        """Load the scales of these rows, where each has one."""
        if self.weighs:
            self.kernel.record("rows/paged/load_scales", tile)


class Boxes:
    """Rows that one warp fetches by TMA, as they are stored; the bytes of either block of a pair
    complete the leader's barrier.

    Of a tile that is whole it fetches boxes of 64 columns, 128 of e4m3, one for each page that the
    tile lies in. A tile in which the sequence ends it fetches by the numbers of its rows: those
    past the end have none, and arrive as zeros. So nothing past a sequence's length is read, and P,
    which is 0 there, meets no NaN. Pages of one row are always fetched so.
    """

    converts, lands = False, False

    def __init__(self, kernel: TensorMemoryKernel, rows: Rows) -> None:
        k, s, self.kernel = kernel.k, kernel.s, kernel
        pages = ROWS_A_LANE if k.page_size == 1 else 1
        kernel.context |= {
            "box_rows": box_rows(k, s.smem.blocks),
            "place": s.named("place", ".b32", pages, "pages of this lane's rows"),
            "rows": s.named("row", ".b32", ROWS_A_LANE, "numbers of these rows"),
        }
        for pipeline in kernel.rows:
            filled(pipeline, threads=0)
            boxes = column_boxes(kernel, pipeline, box_columns(k))
            bind(pipeline, kernel.mover(pipeline, "storage/boxes/copy", boxes=boxes,
                                        half=kernel.half(pipeline)))  # fmt: skip

    @staticmethod
    def threads(ctas: int) -> int:
        return 32

    @staticmethod
    def fills(ctas: int) -> dict[str, Any]:
        return {"producer_threads": 0}

    @property
    def steps(self) -> tuple[Part, ...]:
        rows = self.kernel.rows
        return by(rows[0].producer, "look_up", "find_rows", *(f"copy {x.name}" for x in rows))

    def look_up(self, tile: Tile) -> None:
        """Load which pages the tile lies in."""
        self.kernel.record("storage/boxes/look_up", tile)

    def find_rows(self, tile: Tile) -> None:
        """Compute the numbers of the tile's rows, four a lane; -1 past the sequence's end."""
        self.kernel.record("storage/boxes/find_rows", tile)
