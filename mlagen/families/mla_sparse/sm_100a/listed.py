"""Top-k sparse MLA on Blackwell: rows that lists name, and how those come that products take as
stored.

A block has up to 64 heads of a query, and all keys of its list, or in decode a split of them, 64 a
tile. A block without keys has one tile, whose P is 0. In decode tiles of a second cache follow
those of the first. A block that has all keys of its query writes O and LSE; a split writes both in
fp32, for the merge kernel. Of a pair, either block has half of a tile's keys as K, and of all of
them half of each 256 columns as V: its halves of the operand B of the pair's products.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.sm_100a.kernel import VALUES, TensorMemoryKernel
from mlagen.attention.latent.sm_100a.parts import Rows
from mlagen.dsl import Tile, bind, by, exactly, touched
from mlagen.dsl.plain import Part
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.nvidia.signature import decode_signature, signature
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.dsl import WarpRole, filled, tiles_of

# Tools find FlashMLA's kernels in a profile by parts of these names.
SYMBOL = "mlagen_sparse_attn_fwd_kernel_sm100"
DECODE_SYMBOL = "mlagen_flash_fwd_splitkv_mla_fp8_sparse_kernel_sm100"
LANES_A_ROW = 8  # threads that fetch 128 bytes of a row, 16 each
Config = MlaSparsePrefillConfig | MlaSparseDecodeConfig


class Listed:
    """Rows that the list of a query names, of decode those of a second cache after them."""

    name, persists = "listed", False

    def __init__(self, kernel: TensorMemoryKernel, softmax: WarpRole) -> None:
        k, s = kernel.k, kernel.s
        self.kernel, self.softmax, self.form = kernel, softmax, row_form(k) or RowForm(k.d_qk)
        self.weighs = self.form.scales == "key"
        self.queries = f"queries/{'load' if k.as_stored else 'read_listed'}"
        self.ahead = ("load_list", *(["load_scales"] if self.weighs else []))
        lists: dict[str, bool | int] = {
            "decode": False,
            "extra": False,
            "causal": False,
            "shared_list": False,
        }
        if isinstance(k, MlaSparseDecodeConfig):
            lists = {
                "decode": True, "extra": k.extra, "causal": k.causal, "shared_list": k.shared_list,
                "blocks": s.smem.blocks, "slot_rows": ROWS,
            }  # fmt: skip
        self.positions = bool(lists["causal"])
        kernel.context |= {
            "groups": -(-k.num_heads // ROWS), "scaled": k.rows == "e4m3", "place_where": (),
            "query_row": "%y", "finds_query": "rows/listed/query_row.ptx.j2", **lists,
        }  # fmt: skip
        kernel.name(
            ("unit", ".b32", "this block's heads of a query, among all queries'"),
            ("table", ".b64", "this query's list"),
            ("keys", ".b32", "keys of the list"),
            ("ahead", ".b32", "tile to look up next"),
            ("listed_key", ".b32", "a key of the list of this warp's next tile"),
        )
        if not lists["decode"]:
            kernel.name(("best", ".f32", "the largest score of this thread's head"))
            s.signature = signature(k, kernel.threads, grid="units", clusters=s.smem.blocks)
            s.symbol = SYMBOL
            return
        kernel.name(("split", ".b32", "which split of the query's keys"))
        if lists["extra"]:
            kernel.name(
                ("main", ".b32", "tiles of the first list"),
                ("extra_table", ".b64", "the query's second list"),
                ("extra_keys", ".b32", "keys of that list"),
                ("bound", ".b32", "rows that an index of this warp's next tile may name"),
            )
        if self.positions:
            kernel.name(
                ("positions", ".b64", "positions of the list's keys"),
                ("last", ".b32", "the position up to which this query sees keys"),
                ("where", ".b32", "the position of the listed key"),
            )
        s.signature = decode_signature(k, kernel.threads, clusters=s.smem.blocks)
        s.symbol = DECODE_SYMBOL

    @staticmethod
    def on_a_pair(k: Config) -> bool:
        """Whether a query has more heads than one block."""
        return k.num_heads > ROWS

    def setup(self, role: WarpRole) -> None:
        """Find this block's query, its list, and how many tiles that has."""
        feeds = any(role.name == pipeline.producer for pipeline in self.kernel.rows)
        self.kernel.record("rows/listed/setup", None, feeds=feeds, masks=role is self.softmax)

    def begin(self, role: WarpRole) -> None:
        """A block has one item."""

    def load_list(self, tile: Tile) -> None:
        """Load what the list names in this warp's half of a tile, a key a lane."""
        self.kernel.record("rows/listed/load_list", tile)

    def look_up_scales(self, tile: Tile) -> None:
        """The list says where they are."""

    def load_scales(self, tile: Tile) -> None:
        """Load the scales of these rows, where each has one."""
        if self.weighs:
            self.kernel.record("rows/listed/load_scales", tile)


class Gathered:
    """Rows that a warpgroup fetches by cp.async, as they are stored. That completes barriers of the
    own block alone: so the feeder of a CTA pair waits for the rows that it fetched a tile before,
    and then tells the leader."""

    converts, lands = False, True

    def __init__(self, kernel: TensorMemoryKernel, rows: Rows) -> None:
        k, s, self.kernel = kernel.k, kernel.s, kernel
        threads = self.threads(s.smem.blocks)
        fetched, half = TILE * LANES_A_ROW // threads, VALUES // 2 * k.product_bytes
        values = k.d_v * k.product_bytes
        kernel.context |= {
            "rows_apart": threads // LANES_A_ROW, "fetched": fetched,
            "value_bytes": [
                at + n for at in range(0, values, 2 * half) for n in range(0, half, 128)
            ],
        }  # fmt: skip
        for operand, type, count, why in (
            ("place", ".b32", fetched, "rows of the next tile that this thread fetches"),
            ("place_where", ".b32", fetched * rows.positions, "their positions"),
            ("src", ".b64", fetched, "where the rows of this tile lie"),
        ):
            if count:
                kernel.context[operand] = s.named(operand, type, count, why)
        kernel.name(("there", ".b32", "which of them are rows, a bit each"))
        for pipeline in kernel.rows:
            filled(pipeline, threads=threads, arrive="fenced" if kernel.pair else "")
            if not kernel.pair:
                bind(pipeline, kernel.mover(pipeline, "storage/gathered/fetch"))
                continue
            raw = filled(s.smem.pipelines[f"raw {pipeline.name}"], threads=threads)
            landing = tiles_of("rows that are fetched", raw.tiles, len(pipeline.tiles),
                               rows=pipeline.tiles[0].rows)  # fmt: skip
            for tile, whole in zip(landing, pipeline.tiles, strict=True):
                touched(tile, exactly("base", whole.base, f"over {whole.name}"))
            bind(raw, kernel.mover(raw, f"storage/gathered/fetch_{pipeline.name}"))
            bind(pipeline, kernel.mover(pipeline, "storage/gathered/hand_on", loaded=raw.name))

    @staticmethod
    def threads(ctas: int) -> int:
        return 128

    @staticmethod
    def fills(ctas: int) -> dict[str, Any]:
        return {"producer_threads": 128, "by_warps": "fenced" if ctas == 2 else False}

    @property
    def steps(self) -> tuple[Part, ...]:
        rows, landed = self.kernel.rows, ("raw ", "") if self.kernel.pair else ("",)
        copies = (f"copy {raw}{pipeline.name}" for pipeline in rows for raw in landed)
        return by(rows[0].producer, "look_up", "find_rows", *copies)

    def look_up(self, tile: Tile) -> None:
        """Load what the list names of the rows that this thread fetches."""
        self.kernel.record("storage/gathered/look_up", tile)

    def find_rows(self, tile: Tile) -> None:
        """Compute where these rows lie."""
        self.kernel.record("storage/gathered/find_rows", tile)
