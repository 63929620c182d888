"""GEMM on Hopper: the operations that the schedule arranges.

A block computes 128 rows and `n_tile` columns of C; each of two math warpgroups has 64 rows. The
producer fetches tiles of 64 columns of K, one thread by TMA or a warpgroup by cp.async; what lies
outside of A or B arrives as zeros, so M, N and K need no other care before the store.
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
)
from mlagen.dsl.signature import TmaMatrix, pack
from mlagen.errors import ConfigError
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, WarpRole, filled, tiles_of

ROWS = 64  # of one wgmma
# wgmma descriptor of a K-major operand: 128-byte swizzle, 8 rows are 1024 bytes.
K_MAJOR = hex(1 << 62 | 1024 >> 4 << 32 | 1 << 16)


def rows_of(tile: Tiles, math: WarpRole) -> int:
    """Rows of C that a block computes; ConfigError where the role has others."""
    if tile.m != ROWS * len(math.warps) // 4:
        raise ConfigError(
            f"m_tile={tile.m}, but {len(math.warps) // 4} warpgroups with {ROWS} rows each "
            f"multiply",
            hint=f"m_tile={ROWS * len(math.warps) // 4}, or other warpgroups",
        )
    return tile.m


class PipelinedGemm:
    """The operations of one GEMM kernel over the schedule's pipeline of A and B, and its
    accumulators acc."""

    def __init__(
        self, k: GemmConfig, tile: Tiles, s: PipelineSpace, producer: WarpRole, math: WarpRole,
        feed: Pipeline,
    ) -> None:  # fmt: skip
        self.k, self.tile, self.math, self.producer, self.feed = k, tile, math, producer, feed
        self.a, self.b = feed.tiles
        # What operations touch of the schedule's tiles and registers.
        tiles_of("A", [self.a], 1, rows=tile.m)
        tiles_of("B", [self.b], 1, rows=tile.n)
        filled(feed, threads=0 if producer.single else producer.threads)
        sums = exactly("registers", tile.n // 2, "sums of a thread")
        self.acc = s.names("acc", sums)
        self.supply: dict[str, Any] = {"maps": [], "column_of_k": "", "addresses": []}
        if producer.single:
            self.supply["column_of_k"] = s.named("kcol", ".b32", 1, "column of the next tile")[0]
            self.supply["maps"] = s.named("map", ".b64", 2, "tensor maps of a and b")
        else:
            self.supply["addresses"] = s.named("from", ".b64", 2, "next tile's first rows in a, b")
            self.supply["pitch"] = s.named("pitch", ".b64", 1, "bytes of a row of a or b")[0]
            self.supply["rows_left"] = s.named("rows", ".b32", 2, "rows of a, b from the block on")
            self.supply["bytes_left"] = s.named("bytes", ".b32", 1, "row bytes from there on")[0]
        self.row, self.col = s.named("origin", ".b32", 2, "first row and column of this block")
        s.signature = Signature(
            pack(
                ("a", self._operand("a", tile.m), "read"),
                ("b", self._operand("b", tile.n), "read"),
                ("c", f"pointer:{k.output_dtype}", "write"),
                ("m", "u32", "value"),
                ("n", "u32", "value"),
                ("k", "u32", "value"),
            ),
            grid=(("n", tile.n), ("m", tile.m)),
            block=(32 * math.warps.stop, 1, 1),
        )
        # Without overlap: a tile is fetched, multiplied and given back.
        who, does = producer.name, math.name
        s.plain = PipelineOrder(
            before=(*by(who, "setup"), *by(does, "setup")),
            tiles=(*by(who, "copy feed"), *by(does, "mma", "release feed")),
            after=by(does, "store"),
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
        supply, tiles = self.supply, (self.a, self.b)
        context: dict[str, Any] = {"pipeline": self.feed, "role": self.producer}
        template = kind
        if self.producer.single:
            column = supply["column_of_k"]
            context["boxes"] = [
                (tile, map, column, first)
                for tile, map, first in zip(
                    tiles, supply["maps"], (self.row, self.col), strict=True
                )
            ]  # fmt: skip
            context["steps"] = [(column, self.tile.k)]
        elif kind == "copy":
            template = "gather"
            context["parts"] = [
                (tile, address, supply["pitch"], rows, supply["bytes_left"])
                for tile, address, rows in zip(
                    tiles, supply["addresses"], supply["rows_left"], strict=True
                )
            ]
        return Operation(
            kind, f"pipeline/{template}.ptx.j2", tile, lambda at: context, access=access
        )

    def _operand(self, name: str, rows: int) -> TmaMatrix | str:
        """How the kernel receives a or b."""
        if self.producer.single:
            return TmaMatrix(name, self.k.dtype, "k", self.tile.k, rows)
        return f"pointer:{self.k.dtype}"

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        k, t = self.k, self.tile

        def context(at: Any) -> dict[str, Any]:
            return {
                "a": self.a, "b": self.b, "acc": self.acc, **self.supply,
                "row": self.row, "col": self.col,
                "m_tile": t.m, "n_tile": t.n, "k_tile": t.k,
                "k_shift": t.k.bit_length() - 1, "bytes": k.output_bytes,
                "first_warp": self.math.warps.start, "k_major": K_MAJOR, "first": at.first,
            }  # fmt: skip

        return record(Operation(name, f"gemm/{name}.ptx.j2", tile, context, **more))
