"""Merging the parts of split MLA decode work on Hopper: the operations a schedule arranges.

A block has one query row and 128 columns of its output, a lane four of them. Each of its four warps
takes every fourth split; the LSE of all splits is found by each warp for itself.
"""

from __future__ import annotations

from typing import Any

from mlagen.dsl import Operation, PipelineSpace, Signature, Tile, Value, WarpRole, record
from mlagen.dsl.signature import pack
from mlagen.problem import MlaDecodeMergeConfig
from mlagen.problem.mla_decode_plan import BLOCK_ROWS, MERGE_BYTES

WARPS, LANE_COLUMNS = 4, 4
COLUMNS = 32 * LANE_COLUMNS  # columns a block
UNROLLED = 16  # splits a warp has in flight


class MlaDecodeMerge:
    """The operations of one merge kernel and its registers."""

    def __init__(self, k: MlaDecodeMergeConfig, s: PipelineSpace, role: WarpRole) -> None:
        self.k, self.role = k, role
        self.sums = s.smem.room("sums of warps", WARPS * COLUMNS * 4)
        self.supply: dict[str, Any] = {
            "k": k, "role": role, "warps": WARPS, "unrolled": UNROLLED, "columns": COLUMNS,
            "block_rows": BLOCK_ROWS, "blocks_a_row": k.d_v // COLUMNS, "sums": self.sums,
            "merge_bytes": MERGE_BYTES,
            "acc": s.named("acc", ".f32", LANE_COLUMNS, "this lane's columns of O"),
            "weight": s.named("weight", ".f32", UNROLLED, "LSE of the splits in flight"),
            "taken": s.named("taken", ".f32", UNROLLED * LANE_COLUMNS, "their columns of O"),
        }  # fmt: skip
        for name, type, why in (
            ("count", ".b32", "splits"),
            ("split", ".b32", "this warp's next split"),
            ("row", ".b32", "row of the merge"),
            ("part", ".b32", "which 128 columns"),
            ("query", ".b32", "row in o"),
            ("above", ".b32", "rows of the sequence before the merge's first"),
            ("place", ".b32", "index in lse of the sequence's head 0 and token 0"),
            ("whole", ".f32", "log2 of the sum of all splits"),
            ("lse_at", ".b64", "this row's LSE of the first split"),
            ("o_at", ".b64", "this lane's columns of the first split's O"),
        ):
            self.supply[name] = s.named(name, type, 1, why)[0]
        s.signature = Signature(
            pack(
                ("merges", "pointer:int32", "read"),
                ("partial_o", "pointer:fp32", "read"),
                ("partial_lse", "pointer:fp32", "read"),
                ("o", f"pointer:{k.output_dtype}", "write"),
                ("lse", "pointer:fp32", "write"),
                ("lse_stride", "u32", "value"),
            ),
            grid=(("merges", 1), ("lines", 1)),
            block=(role.warps.stop * 32, 1, 1),
            dependent=True,
        )

    def place(self) -> None:
        """Which row and columns this block has, and where its splits lie."""
        self._record("place", None)

    def load(self, tile: Tile) -> None:
        """LSE and O of the next splits, to registers."""
        self._record("load", tile, defines=(Value("parts"),))

    def log_sum(self, tile: Tile) -> None:
        """L = log2 of the sum of exp2(LSE) of all splits, once; one without keys adds 0."""
        self._record("log_sum", tile, domain="first")

    def add(self, tile: Tile) -> None:
        """O += exp2(LSE - L) O of the loaded splits that have keys."""
        self._record("add", tile, uses=(Value("O"), Value("parts")), defines=(Value("O"),))

    def finish(self) -> None:
        """The warps' sums, in order, as bf16 to memory; LSE = L ln 2."""
        self._record(
            "finish", None, uses=(Value("O"),), defines=(Value(self.sums.name),), joins=True
        )

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(
            Operation(name, f"mla_decode_merge/{name}.ptx.j2", tile, lambda at: self.supply, **more)
        )
