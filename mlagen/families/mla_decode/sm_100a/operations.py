"""MLA decode on Blackwell: the operations that the schedule arranges.

A block computes a work item: up to 64 query rows of one sequence (heads, or heads of several new
tokens) over a range of its keys. Or a CTA pair does, 64 rows of up to 128 in each block: of a tile
either block has half of the rows as K, and of all of them half of each 256 columns as V, its halves
of operand B of the pair's products. Products and softmax are those of
`attention.latent.sm_100a.in_tensor`. An item that has all keys of its rows writes O and LSE; one
that has a part of them writes both in fp32, for the merge kernel. An item without keys has one
tile, of which nothing is a key.

One warp feeds; the bytes of either block of a pair complete the leader's barrier. Of a tile that is
whole it fetches boxes of 64 columns, one for each page that the tile lies in. A tile in which the
sequence ends it fetches by the numbers of its rows: those past the end have none, and arrive as
zeros. So nothing past a sequence's length is read, and P, which is 0 there, meets no NaN. Pages of
one row are always fetched so. Rows of e4m3 come likewise where products are of e4m3 (compute=fp8),
128 columns a box; otherwise `FedDecode` converts them.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.sm_100a.in_tensor import VALUES, InTensor, by_rows, check_roles
from mlagen.dsl import PipelineOrder, Tile, Value, bind, by
from mlagen.dsl.plain import Part
from mlagen.families.mla_decode.problem import ITEM_BYTES, ROPE_AWARE, MlaDecodeConfig
from mlagen.families.mla_decode.sm_100a.form import (
    SYMBOL,
    as_stored,
    box_columns,
    box_rows,
    signature,
)
from mlagen.targets.nvidia.dsl import (
    Pipeline,
    PipelineSpace,
    TmemRegion,
    WarpRole,
    filled,
    release,
)
from mlagen.targets.nvidia.dsl.smem import TmaTile

FLOAT = 4  # bytes of a scale
CONVERTED = {"fp8_e4m3": "read_queries", ROPE_AWARE: "read_rope_queries"}  # templates by type
ROWS_A_LANE = 4  # whose numbers one instruction takes


class Decode(InTensor):
    """The operations of one kernel over the schedule's pipelines (query, keys, weights, scores;
    of a CTA pair also values), sums `o`, the region Q of what is copied of the queries, and
    registers (s, p, o)."""

    folder = "mla_decode"
    converts = False  # whether a feeder makes bf16 of rows

    def __init__(
        self,
        k: MlaDecodeConfig,
        s: PipelineSpace,
        softmax: WarpRole,
        feeder: WarpRole,
        o: TmemRegion,
    ) -> None:
        check_roles(s, {softmax.name: (128,), **self._feeders(s)})
        super().__init__(k, s, o, element=k.product_bytes, weighs=k.rope_aware)
        self.softmax, self.feeder, self.persistent = softmax, feeder, bool(s.persistent)
        filled(self.query, **({"threads": 0} if as_stored(k) else by_rows(softmax)))
        ctas = s.smem.blocks
        self.supply |= {
            "item_bytes": ITEM_BYTES, "columns": box_columns(k), "row_columns": k.d_qk,
            "box_rows": box_rows(k, ctas), "page_rows": min(k.page_size, TILE),
            "tiles_a_page": max(k.page_size // TILE, 1), "slot_rows": ROWS * ctas,
            "slanted": k.causal and k.q_len > 1, "scaled": k.cache_dtype == "fp8_e4m3",
            "persistent": self.persistent,
        }  # fmt: skip
        self._registers(s)
        if self.persistent:
            self._name(s, ("item", ".b64", "the work item"))
            bind(self.query, self._mover(self.query, ""))
        if k.chunk:
            self._name(s, ("begin", ".b32", "the first key that it sees, likewise"))
        if self.weighs:
            self._name(s, ("weight", ".f32", "the scale of its key"),
                       ("scale_page", ".b32", "page of its key of the next tile"))  # fmt: skip
            room = s.smem.room("row scales", FLOAT * softmax.threads)
            self.supply |= {"weights_room": room, "float_bytes": FLOAT}
        threads = s.roles[-1].warps.stop * 32
        s.signature = signature(k, threads, ctas, persistent=self.persistent)
        s.symbol, s.plain = SYMBOL, self._plain()
        self._feeding(s)
        bind(self.weights, self._mover(self.weights, "store_p"))
        bind(self.scores, self._mover(self.scores, ""))

    def _registers(self, s: PipelineSpace) -> None:
        before = ("before", ".b32", "rows from there on before the first that some token sees")
        self._name(
            s,
            *((before,) if self.k.cut_at_start else ()),
            ("query_row", ".b32", "first of this block's rows of Q"),
            ("kv_column", ".b32", "first column of its KV head"),
            ("table", ".b64", "its sequence's pages"),
            ("ahead", ".b32", "tile to look up next"),
            ("left", ".b32", "keys of the sequence from there on"),
            ("found", ".b32", "keys of the sequence from the found tile on"),
            ("seen", ".b32", "keys that this thread's row sees, from its first of the tile on"),
            ("turn", ".b32", "which half of the room for maxima is written next"),
            ("c", ".f32", "scale * log2(e)"),
            ("cm", ".f32", "M of this thread's row, in log2 units"),
            ("top", ".f32", "the tile's largest score of the row"),
            ("l", ".f32", "sum of P over this thread's keys"),
            ("alpha", ".f32", "what the tile's maximum does to O"),
        )

    def _feeding(self, s: PipelineSpace) -> None:
        """Declares what the feeder needs, and says how it fills the pipeline of rows."""
        pages = ROWS_A_LANE if self.k.page_size == 1 else 1
        self.supply["place"] = s.named("place", ".b32", pages, "pages of this lane's rows")
        self.supply["rows"] = s.named("row", ".b32", ROWS_A_LANE, "numbers of these rows")
        for pipeline in self._rows():
            filled(pipeline, threads=0)
            boxes, half = self._boxes(pipeline, box_columns(self.k)), self._half(pipeline)
            bind(pipeline, self._mover(pipeline, "copy", boxes=boxes, half=half))

    def _feeders(self, s: PipelineSpace) -> dict[str, tuple[int, ...]]:
        """The threads that roles which fill pipelines of rows may have."""
        return {s.smem.pipelines["keys"].producer: (32,)}

    def _rows(self) -> tuple[Pipeline, ...]:
        """The pipelines of rows: of K and of V, or one of both."""
        return (self.keys, self.values) if self.pair else (self.keys,)

    def _half(self, pipeline: Pipeline) -> str:
        """What the second block of a pair has instead of the first one's: the other rows of a tile,
        or the next columns. "": there is no other block."""
        if not self.pair:
            return ""
        return "rows" if pipeline is self.keys else "columns"

    def _boxes(self, pipeline: Pipeline, width: int) -> tuple[tuple[TmaTile, int], ...]:
        """Tiles of `width` columns with the first of these, of a pair in the first block."""
        if self._half(pipeline) != "columns":
            return tuple((tile, width * n) for n, tile in enumerate(pipeline.tiles))
        starts = [
            at + n for at in range(0, self.k.d_v, VALUES) for n in range(0, VALUES // 2, width)
        ]
        return tuple(zip(pipeline.tiles, starts, strict=True))

    def _plain(self) -> PipelineOrder:
        """Without overlap: a tile's rows are fetched, its scores, its P, and its values added."""
        math, softmax = self.keys.consumers[0], self.softmax.name
        feeders = {pipeline.producer: None for pipeline in self._rows()}

        def all_of(key: str) -> tuple[Part, ...]:
            return tuple(part for role in (*feeders, math, softmax) for part in by(role, key))

        queries = by(self.query.producer, "load_queries")
        several = self.persistent
        return PipelineOrder(
            before=(*all_of("setup"), *(() if several else queries)),
            item=all_of("begin") if several else (),
            tiles=(
                *(queries if several else ()),
                *self._fetched(),
                *by(math, "keep_queries", "qk", *(["release query"] if several else [])),
                *by(softmax, *(["look_up_scales", "load_scales"] if self.weighs else []),
                    "load_scores", "release scores", "row_maximum", "exponent", "rescale",
                    "copy weights"),
                *by(math, "pv", "release weights",
                    *(f"release {pipeline.name}" for pipeline in self._rows())),
            ),
            after=by(softmax, "finish"),
        )  # fmt: skip

    def _fetched(self) -> tuple[Part, ...]:
        """How a tile's rows come to SMEM, of the plain order."""
        copies = (f"copy {pipeline.name}" for pipeline in self._rows())
        return by(self.feeder.name, "look_up", "find_rows", *copies)

    # ---- before the loop --------------------------------------------------------------------

    def setup(self, role: WarpRole) -> None:
        """Load this block's work item, and count its tiles. Where it has several: find them."""
        self._set_up("setup", role, "setup_block" if self.persistent else "setup")

    def begin(self, role: WarpRole) -> None:
        """The next work item, where a block has several."""
        if self.persistent:
            self._set_up("begin", role, "setup")

    def _set_up(self, name: str, role: WarpRole, template: str) -> None:
        feeds = any(role.name == pipeline.producer for pipeline in self._rows())
        self._record(name, None, template=template, feeds=feeds, masks=role is self.softmax)

    def load_queries(self, role: WarpRole) -> None:
        """Fetch 64 rows of Q by TMA: those past the item's own are of others, or zero. Or make bf16
        of those of e4m3. Only in the role that fills the pipeline, of a block of one item."""
        if not self.persistent:
            self._load_queries(role, None)

    def load_item_queries(self, role: WarpRole, tile: Tile) -> None:
        """The same with an item's first tile, of a block of several items."""
        if self.persistent:
            self._load_queries(role, tile, domain="first")

    def release_queries(self, tile: Tile) -> None:
        if self.persistent:
            release(self.query, tile)

    def _load_queries(self, role: WarpRole, tile: Tile | None, **more: Any) -> None:
        if role.name == self.query.producer:
            self._record(
                "load_queries", tile, pipeline=self.query, defines=(Value(self.query.name),),
                template="load_queries" if as_stored(self.k) else CONVERTED[self.k.dtype], **more,
            )  # fmt: skip

    # ---- keys -------------------------------------------------------------------------------

    def look_up(self, tile: Tile) -> None:
        """Load which pages the tile lies in."""
        self._record("look_up", tile)

    def find_rows(self, tile: Tile) -> None:
        """Compute the numbers of the tile's rows, four a lane; -1 past the sequence's end."""
        self._record("find_rows", tile)

    # ---- scales of rows ---------------------------------------------------------------------

    def look_up_scales(self, tile: Tile) -> None:
        """Load which page this lane's key lies in, where rows have scales."""
        if self.weighs:
            self._record("look_up_scales", tile)

    def load_scales(self, tile: Tile) -> None:
        """Load the scales of these rows, where each has one."""
        if self.weighs:
            self._record("load_scales", tile)

    # ---- after the loop ---------------------------------------------------------------------

    def finish(self) -> None:
        """Store O / l and LSE, or a part in fp32."""
        self._record("finish", None, uses=(Value("O"),))
