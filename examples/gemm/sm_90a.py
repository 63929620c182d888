"""GEMM on Hopper: the operations that the schedule arranges.

A block computes 128 rows and `n_tile` columns of C; each of two math warpgroups has 64 rows. A
producer thread fetches tiles of 64 columns of K by TMA; what lies outside of A or B arrives as
zeros, so M, N and K need no other care before the store.
"""

from __future__ import annotations

from typing import Any

from gemm.problem import GemmConfig
from mlagen.dsl import (
    Access,
    Operation,
    PipelineSpace,
    RingTile,
    Signature,
    Tile,
    Value,
    WarpRole,
    bind,
    record,
)
from mlagen.dsl.signature import TensorMap, pack
from mlagen.errors import ConfigError

ROWS = 64  # of one wgmma
# wgmma descriptor of a K-major operand: 128-byte swizzle, 8 rows are 1024 bytes.
K_MAJOR = hex(1 << 62 | 1024 >> 4 << 32 | 1 << 16)


class PipelinedGemm:
    """The operations of one GEMM kernel, its tiles and registers."""

    def __init__(
        self, k: GemmConfig, s: PipelineSpace, producer: WarpRole, math: WarpRole, *, stages: int
    ) -> None:
        if k.m_tile != ROWS * len(math.warps) // 4:
            raise ConfigError(
                f"m_tile={k.m_tile} is a valid GemmConfig, but on sm_90a two warpgroups have "
                f"{ROWS} rows each",
                hint="m_tile=128 is generated",
            )
        self.k, self.math = k, math
        row = 2 * k.k_tile
        self.a = s.smem.tile("A", "a", rows=k.m_tile, row_bytes=row, slots=stages)
        self.b = s.smem.tile("B", "b", rows=k.n_tile, row_bytes=row, slots=stages)
        self.feed = s.smem.handoff(
            "feed", self.a, self.b, producer=producer.name, consumer=math.name,
            releases=len(math.warps),
        )  # fmt: skip
        self.acc = s.named("acc", ".f32", k.n_tile // 2, "C: 64 rows x n_tile a warpgroup")
        self.column_of_k = s.named("kcol", ".b32", 1, "first column of the next tile")[0]
        self.row, self.col = s.named("origin", ".b32", 2, "first row and column of this block")
        self.maps = s.named("map", ".b64", 2, "tensor maps of a and b")
        s.signature = Signature(
            pack(
                ("a", TensorMap("a", k.dtype, "k", k.k_tile, k.m_tile), "read"),
                ("b", TensorMap("b", k.dtype, "k", k.k_tile, k.n_tile), "read"),
                ("c", f"pointer:{k.output_dtype}", "write"),
                ("m", "u32", "value"),
                ("n", "u32", "value"),
                ("k", "u32", "value"),
            ),
            grid=(("n", k.n_tile), ("m", k.m_tile)),
            block=(32 * math.warps.stop, 1, 1),
        )
        bind(self.feed, self._mover)

    def place(self) -> None:
        """Which block of C this is, and how many tiles K has."""
        self._record("place", None)

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
            (self.a, self.maps[0], self.column_of_k, self.row),
            (self.b, self.maps[1], self.column_of_k, self.col),
        ]
        context = {
            "handoff": self.feed, "boxes": boxes, "steps": [(self.column_of_k, self.k.k_tile)],
        }  # fmt: skip
        return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, lambda at: context, access=access)

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        k = self.k

        def context(at: Any) -> dict[str, Any]:
            return {
                "a": self.a, "b": self.b, "acc": self.acc, "maps": self.maps,
                "row": self.row, "col": self.col, "column_of_k": self.column_of_k,
                "m_tile": k.m_tile, "n_tile": k.n_tile, "k_tile": k.k_tile,
                "k_shift": k.k_tile.bit_length() - 1, "bytes": k.output_bytes,
                "first_warp": self.math.warps.start, "k_major": K_MAJOR, "first": at.first,
            }  # fmt: skip

        return record(Operation(name, f"gemm/{name}.ptx.j2", tile, context, **more))
