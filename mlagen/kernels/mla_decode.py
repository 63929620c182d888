"""MLA decode on Hopper in the absorbed form: the operations a schedule arranges.

One block computes 64 heads of one sequence. S = Q K^T over 576 columns, O += P V over the first 512
columns of the same rows. Two math warpgroups share the work both ways: each computes the scores of
half of a tile's keys, and each accumulates half of the output's columns. P goes through SMEM; the
row maximum is exchanged, so both scale alike.

Softmax in base 2: P = exp2(c * S - c * M) with c = scale * log2(e); P is rounded to bf16 for the
second product, the row sum adds the unrounded values.
"""

from __future__ import annotations

from typing import Any

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
from mlagen.problem import MlaDecodeConfig

HEADS = 64  # query rows a block: one wgmma M
COLUMNS = 64  # bf16 columns of a 128-byte tile
WARPGROUPS = 2


class MlaDecode:
    """The operations of one decode kernel, its tiles and registers."""

    def __init__(
        self,
        k: MlaDecodeConfig,
        s: PipelineSpace,
        producer: WarpRole,
        math: WarpRole,
        *,
        slots: int,
    ) -> None:
        refuse_unsupported(k)
        self.k = k
        self.math = math
        parts, page = k.d_qk // COLUMNS, k.page_size
        row = 2 * COLUMNS
        self.queries = [
            s.smem.tile(f"Q{j}", "q", rows=HEADS, row_bytes=row, slots=1) for j in range(parts)
        ]
        self.keys = [
            s.smem.tile(f"K{j}", "cache", rows=page, row_bytes=row, slots=slots)
            for j in range(parts)
        ]
        self.probabilities = s.smem.buffer("P", HEADS * page * 2, align=1024)
        self.exchange = s.smem.buffer("row exchange", WARPGROUPS * HEADS * 4)
        self.query = s.smem.handoff(
            "query", *self.queries, producer=producer.name, consumer=math.name, resident=True
        )
        self.cache = s.smem.handoff(
            "cache",
            *self.keys,
            producer=producer.name,
            consumer=math.name,
            releases=len(math.warps),
        )
        self.output = s.named("o", ".f32", k.d_v // WARPGROUPS // 2, "O: 64 heads x half of d_v")
        self.scores = s.named("s", ".f32", page // WARPGROUPS // 2, "S: 64 heads x half a page")
        self.state = {
            name: s.named(name, ".f32", 2, why)
            for name, why in (
                ("m", "running maximum of this thread's two rows"),
                ("cm", "c times it"),
                ("l", "row sums of this warpgroup's keys"),
                ("alpha", "what the last maximum does to O and l"),
            )
        }
        self.scalars = {
            name: s.named(name, type, 1, why)[0]
            for name, type, why in (
                ("batch", ".b32", "sequence of this block"),
                ("head", ".b32", "first head of this block"),
                ("length", ".b32", "keys of the sequence"),
                ("valid", ".b32", "keys left from the next tile on"),
                ("wg", ".b32", "math warpgroup, 0 or 1"),
                ("row", ".b32", "first of this thread's two rows"),
                ("c", ".f32", "scale * log2(e)"),
                ("table", ".b64", "this sequence's entries of the block table"),
                ("map_q", ".b64", "tensor map of q"),
                ("map_cache", ".b64", "tensor map of the cache"),
            )
        }
        s.signature = signature(k, 32 * math.warps.stop)
        bind(self.cache, self._cache_mover)

    # ---- producer ---------------------------------------------------------------------------

    def place(self, role: WarpRole) -> None:
        """Which sequence and heads this block has, and how many tiles."""
        self._record(
            "place", None,
            page_shift=self.k.page_size.bit_length() - 1,
            heads=HEADS,
            math=role is self.math,
            first_warp=self.math.warps.start,
        )  # fmt: skip

    def load_queries(self) -> None:
        """The block's 64 heads of Q, once."""
        self._record("load_queries", None, handoff=self.query, tiles_=self.queries,
                     num_heads=self.k.num_heads)  # fmt: skip

    # ---- math -------------------------------------------------------------------------------

    def clear(self) -> None:
        """O = 0, l = 0, M = -inf: what an empty sequence leaves."""
        self._record("clear", None, defines=(Value("O"),))

    def clean(self, tile: Tile) -> Operation:
        """Rows behind the sequence's end become 0 in SMEM: P is 0 there, but 0 * NaN is not."""
        return self._record("clean", tile, keys=self.keys, page=self.k.page_size,
                            threads=32 * len(self.math.warps), first=32 * self.math.warps.start,
                            uses=(Value(self.cache.name, tile),))  # fmt: skip

    def qk(self, tile: Tile) -> Operation:
        """S = Q K^T, this warpgroup's half of the keys."""
        return self._record(
            "qk", tile,
            queries=self.queries, keys=self.keys, page=self.k.page_size,
            uses=(Value(self.cache.name, tile),), defines=(Value("S"),), asynchronous=True,
        )  # fmt: skip

    def softmax(self, tile: Tile) -> Operation:
        """Row maximum over both warpgroups, P in fp32 in place of S, row sums, alpha."""
        return self._record(
            "softmax", tile,
            exchange=self.exchange, page=self.k.page_size, rows=HEADS, threads=self._threads,
            uses=(Value("S"),), defines=(Value("S"),),
        )  # fmt: skip

    def hand_over(self, tile: Tile) -> Operation:
        """O *= alpha, P to SMEM as bf16: the next PV of both warpgroups reads it."""
        return self._record(
            "hand_over", tile,
            probabilities=self.probabilities, page=self.k.page_size, threads=self._threads,
            uses=(Value("S"), Value("O")), defines=(Value("O"),),
        )  # fmt: skip

    def pv(self, tile: Tile) -> Operation:
        """O += P V, this warpgroup's half of the columns."""
        return self._record(
            "pv", tile,
            probabilities=self.probabilities, keys=self.keys,
            columns=self.k.d_v // WARPGROUPS, steps=self.k.page_size // 16,
            uses=(Value(self.cache.name, tile),), defines=(Value("O"),), asynchronous=True,
        )  # fmt: skip

    def finish(self) -> None:
        """Row sums of both warpgroups, O / l to memory, LSE."""
        self._record(
            "finish", None,
            exchange=self.exchange, rows=HEADS, threads=self._threads, d_v=self.k.d_v,
            columns=self.k.d_v // WARPGROUPS, num_heads=self.k.num_heads, uses=(Value("O"),),
        )  # fmt: skip

    # ---- spelling ---------------------------------------------------------------------------

    @property
    def _threads(self) -> int:
        return 32 * len(self.math.warps)

    def _cache_mover(self, kind: str, tile: Tile) -> Operation:
        access = Access(kind, RingTile(self.cache.name, tile))  # type: ignore[arg-type]
        if kind == "copy":
            return self._operation("copy", tile, access=access, handoff=self.cache,
                                   keys=self.keys, page=self.k.page_size)  # fmt: skip
        return Operation("release", "pipeline/release.ptx.j2", tile,
                         lambda at: {"handoff": self.cache}, access=access)  # fmt: skip

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(self._operation(name, tile, **more))

    def _operation(
        self,
        name: str,
        tile: Tile | None,
        *,
        uses: tuple[Value, ...] = (),
        defines: tuple[Value, ...] = (),
        access: Access | None = None,
        asynchronous: bool = False,
        **context: Any,
    ) -> Operation:
        supply = {**self.scalars, **self.state, "o": self.output, "s": self.scores, **context}
        return Operation(
            name, f"mla_decode/{name}.ptx.j2", tile, lambda at: supply,
            defines=defines, uses=uses, access=access, asynchronous=asynchronous,
        )  # fmt: skip


def signature(k: MlaDecodeConfig, threads: int) -> Signature:
    """q: [B, H, 576] and cache: [blocks, page, 576] by tensor map; o: [B, H, 512]; lse: [B, H]."""
    return Signature(
        pack(
            ("q", TensorMap("q", k.dtype, k.d_qk, COLUMNS, HEADS), "read"),
            ("cache", TensorMap("cache", k.dtype, k.d_qk, COLUMNS, k.page_size), "read"),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", "pointer:bf16", "write"),
            ("lse", "pointer:fp32", "write"),
            ("max_pages", "u32", "value"),
            ("scale_log2e", "f32", "value"),
            ("scale", "f32", "value"),
        ),
        grid=(("num_heads", HEADS), ("batch", 1)),
        block=(threads, 1, 1),
    )


def refuse_unsupported(k: MlaDecodeConfig) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    for name, value, made in (
        ("num_heads", k.num_heads % HEADS, f"multiples of {HEADS}"),
        ("page_size", k.page_size != 64, "64"),
        ("q_len", k.q_len != 1, "1"),
        ("dtype", k.dtype != "bf16", "bf16"),
        ("output_dtype", k.output_dtype != "bf16", "bf16"),
    ):
        if value:
            raise ConfigError(
                f"{name}={getattr(k, name)} is a valid MlaDecodeConfig, but mla_decode_sm90 does "
                f"not make it",
                hint=f"{name} generated: {made}",
            )
