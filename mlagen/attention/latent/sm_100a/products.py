"""Products of attention to latent rows, by one thread: S = Q K^T and O += P V.

They are `tcgen05.mma.ws` of 64 rows, or `tcgen05.mma` of 128 rows of a CTA pair, 64 in each. Sums
of either are folded: a row's first half of columns lies in one of lanes 0 to 63, the other half in
the lane 64 further. The last columns of Q are copied to tensor memory once, to both halves of the
lanes, where products find them as operand A. With compute=fp8 all four operands are e4m3, 32
numbers a step.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.sm_100a.kernel import VALUES, TensorMemoryKernel
from mlagen.dsl import Tile, Value, exactly, touched
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import TmemRegion, tiles_of
from mlagen.targets.nvidia.dsl.smem import SWIZZLE_ROW_BYTES
from mlagen.targets.sm_100a.dsl import Product, matrix_descriptor

BOX = 32  # columns of TMEM that a tile of Q takes, four bytes a column
SWIZZLED = 1024  # bytes of 8 rows in the 128-byte swizzle


class Products:
    """Over the pipelines query, keys, weights and scores, of a CTA pair also values, the sums `o`
    and the region Q of what is copied of the queries."""

    def __init__(self, kernel: TensorMemoryKernel, o: TmemRegion) -> None:
        pipelines, kept = kernel.s.smem.pipelines, kernel.s.tmem.regions["Q"]
        query, weights, scores = (pipelines[name] for name in ("query", "weights", "scores"))
        keys, values = kernel.rows[0], kernel.rows[-1]
        if kept.columns % BOX or kept.columns // BOX > len(query.tiles):
            raise ScheduleError(
                f"{kept.columns} columns of TMEM for Q",
                hint=f"{BOX} for each of its {len(query.tiles)} tiles that products read there",
            )
        k, pair, element = kernel.k, kernel.pair, kernel.k.product_bytes
        if (keys.tiles[0].rows, values is keys) != (TILE // (1 + pair), not pair):
            raise ScheduleError(
                f"keys of {keys.tiles[0].rows} rows",
                hint=f"{TILE}; of a CTA pair {TILE // 2}, and values of {TILE} beside them",
            )
        boxes = -(-k.d_qk * element // SWIZZLE_ROW_BYTES)
        tiles_of("Q", query.tiles, boxes, rows=ROWS, slots=1)
        tiles_of("K", keys.tiles, boxes, rows=TILE // (1 + pair))
        if pair:
            half = k.d_v * element // 2 // SWIZZLE_ROW_BYTES
            tiles_of("V", values.tiles, half, rows=TILE)
        touched(o, exactly("columns", k.d_v // 2, "O, folded"))
        self.kernel, self.query, self.keys, self.values = kernel, query.name, keys.name, values.name
        self.weights, self.scores = weights.name, scores.name
        qk, pv = products(k.compute, pair)
        apart = values.tiles[1].base - values.tiles[0].base
        kernel.context |= {
            "queries": query.tiles, "keys_": keys.tiles, "values": values.tiles,
            "from_smem": len(query.tiles) - kept.columns // BOX, "kept": kept, "o_region": o,
            "row_bits": hex(matrix_descriptor(leading=16, stride=SWIZZLED)),
            "column_bits": hex(matrix_descriptor(leading=apart, stride=SWIZZLED)),
            "qk": qk, "pv": pv,
        }  # fmt: skip

    def keep_queries(self, tile: Tile) -> None:
        """Copy the last columns of Q to TMEM, where products of the scores read them."""
        self.kernel.record(
            "products/keep_queries", tile, domain="first", uses=(Value(self.query),),
            defines=(Value("Q"),), asynchronous=True,
        )  # fmt: skip

    def qk(self, tile: Tile) -> None:
        """S = Q K^T."""
        self.kernel.record(
            "products/qk", tile, uses=(Value(self.keys, tile), Value(self.query), Value("Q")),
            defines=(Value(self.scores, tile),), asynchronous=True,
        )  # fmt: skip

    def pv(self, tile: Tile) -> None:
        """O += P V; the first tile overwrites."""
        self.kernel.record(
            "products/pv", tile, uses=(Value(self.values, tile), Value(self.weights, tile)),
            defines=(Value("O"),), asynchronous=True, first_differs=True,
        )  # fmt: skip


def products(compute: str, pair: bool) -> tuple[Product, Product]:
    """Q K^T, and P V of 256 columns of values."""
    element = "fp8_e4m3" if compute == "fp8" else "bf16"
    form: dict[str, Any] = {"cta_group": 2} if pair else {"weights": True}
    form |= {"a": element, "b": element}
    rows = ROWS * (1 + pair)
    return Product(rows, TILE, **form), Product(rows, VALUES, b_major="mn", **form)
