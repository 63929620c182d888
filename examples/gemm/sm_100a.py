"""GEMM on Blackwell: the operations that the schedule arranges.

A block computes 128 rows and `n_tile` columns of C. One thread fetches tiles of 64 columns of K by
TMA, one issues their products, whose sums lie in TMEM, a lane a row of C; four warps store them.
What lies outside of A or B arrives as zeros, so M, N and K need no other care before the store.
"""

from __future__ import annotations

from typing import Any

from gemm.problem import GemmConfig, Tiles
from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    RingTile,
    Signature,
    Tile,
    Value,
    bind,
    by,
    exactly,
    record,
    touched,
)
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.targets.nvidia.dsl import (
    Pipeline,
    PipelineSpace,
    TmemRegion,
    WarpRole,
    filled,
    tiles_of,
)
from mlagen.targets.sm_100a.dsl import Product, matrix_descriptor

LOADED = (8, 16, 32, 64, 128)  # columns of C that a thread may load at once
# Of a K-major operand in the 128-byte swizzle: 8 rows are 1024 bytes.
K_MAJOR = hex(matrix_descriptor(leading=16, stride=1024))


class TensorGemm:
    """The operations of one GEMM kernel over the schedule's pipeline of A and B, and its sums C."""

    def __init__(
        self, k: GemmConfig, tile: Tiles, s: PipelineSpace, producer: WarpRole, math: WarpRole,
        out: WarpRole, feed: Pipeline, c: TmemRegion, ctas: int,
    ) -> None:  # fmt: skip
        self.k, self.tile, self.feed, self.c = k, tile, feed, c
        self.producer, self.out = producer, out
        self.ctas = ctas
        self.product = Product(ctas * tile.m, tile.n, cta_group=2 if ctas == 2 else 1)
        # What operations touch of the schedule's tiles, region and registers.
        a, b = feed.tiles
        tiles_of("A", [a], 1, rows=tile.m)
        tiles_of("B", [b], 1, rows=tile.n // ctas)
        filled(feed, threads=0)
        touched(out, exactly("threads", tile.m, "a row of C each"))
        touched(c, exactly("columns", tile.n, "a sum each"))
        self.acc = s.names("acc", exactly("registers", LOADED, "columns of a load"))
        self.column = s.named("kcol", ".b32", 1, "column of the next tile")[0]
        self.maps = s.named("map", ".b64", 2, "tensor maps of a and b")
        self.row, self.col = s.named("origin", ".b32", 2, "first row and column of this block")
        self.b_row = s.named("brow", ".b32", 1, "first row of B that it fetches")[0]
        s.signature = Signature(
            pack(
                ("a", TmaMatrix("a", k.dtype, "k", tile.k, tile.m), "read"),
                ("b", TmaMatrix("b", k.dtype, "k", tile.k, tile.n // ctas), "read"),
                ("c", f"pointer:{k.output_dtype}", "write"),
                ("m", "u32", "value"),
                ("n", "u32", "value"),
                ("k", "u32", "value"),
            ),
            grid=(("m", tile.m), ("n", tile.n)),
            block=(32 * s.roles[-1].warps.stop, 1, 1),
            clusters=ctas,
        )
        # Without overlap: a tile is fetched, multiplied and given back.
        who, does, stores = producer.name, math.name, out.name
        s.plain = PipelineOrder(
            before=(*by(who, "setup"), *by(does, "setup"), *by(stores, "setup")),
            tiles=(*by(who, "copy feed"), *by(does, "mma", "release feed")),
            after=by(stores, "store"),
        )
        bind(self.feed, self._mover)

    def setup(self) -> None:
        """Which block of C this is, and how many tiles K has."""
        self._record("setup", None)

    def mma(self, tile: Tile) -> Operation:
        """C += A B^T over one tile; the first one overwrites."""
        return self._record("mma", tile, uses=(Value("feed", tile),), defines=(Value("C"),),
                            asynchronous=True, first_differs=True)  # fmt: skip

    def store(self) -> None:
        """C to memory; rows and columns that do not exist are left out."""
        self._record("store", None, uses=(Value("C"),))

    def _mover(self, kind: str, tile: Tile) -> Operation:
        access = Access(kind, RingTile("feed", tile))  # type: ignore[arg-type]
        boxes = [
            (part, map, self.column, first)
            for part, map, first in zip(
                self.feed.tiles, self.maps, (self.row, self.b_row), strict=True
            )
        ]
        context = {"pipeline": self.feed, "role": self.producer, "boxes": boxes,
                   "steps": [(self.column, self.tile.k)]}  # fmt: skip
        return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, lambda at: context, access=access)

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        k, t = self.k, self.tile
        a, b = self.feed.tiles

        def context(at: Any) -> dict[str, Any]:
            return {
                "a": a, "b": b, "c": self.c, "acc": self.acc, "chunk": len(self.acc),
                "maps": self.maps, "column_of_k": self.column, "row": self.row, "col": self.col,
                "b_row": self.b_row, "pair": self.ctas == 2, "b_rows": t.n // self.ctas,
                "m_tile": t.m, "n_tile": t.n, "k_tile": t.k,
                "k_shift": t.k.bit_length() - 1, "bytes": k.output_bytes,
                "first_warp": self.out.warps.start, "k_major": K_MAJOR, "first": at.first,
                "product": self.product,
            }  # fmt: skip

        return record(Operation(name, f"gemm/{name}.ptx.j2", tile, context, **more))
