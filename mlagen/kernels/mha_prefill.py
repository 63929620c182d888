"""MHA / GQA prefill on gfx950: the operations a schedule arranges, and the registers they share.

Dataflow, 32 query rows a wave (S^T = K Q^T, O^T += V^T P): one lane owns one query row, so row
maximum and row sum are in-lane reductions plus one exchange between the two half-waves, and P feeds
the second product from the registers that held S.

Softmax in base 2: Q is multiplied by c = scale * log2(e) in fp32 and rounded back to bf16 once.
The running maximum M lags: it moves only when some row of the wave grew by more than
`rescale_threshold`; then O and l are multiplied by exp2(M_old - M_new) after the PV of the
previous tile has been issued, so no P that was already cast needs a second rounding.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal

from mlagen.dsl import (
    Access,
    Binding,
    Operation,
    Regs,
    Ring,
    Signature,
    Space,
    Subtiled,
    Tile,
    Value,
    Xor,
    bind,
    record,
)
from mlagen.dsl.layout import BitMap
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.kernels.fragments import (
    BF16,
    MFMA_K,
    MFMA_ROWS,
    accumulator_row,
    key_fragments,
    value_fragments,
)
from mlagen.problem import MhaConfig

DMA_PASS_BYTES = 1024  # one wave's LDS-DMA instruction: 64 lanes x 16 bytes

SWIZZLES = {
    # Address bits 8, 9 of a 32 x 64 B sub-block select the row's group of four: XORed into the
    # 16-byte column they spread the 16 lanes of a ds_read_b128 phase over all 64 banks.
    "8-9 into 4-5": Xor((8, 9), (4, 5)),
    "9-8 into 4-5": Xor((9, 8), (4, 5)),
    "none": None,
}


def key_ring(s: Space, k: MhaConfig, *, slots: int, swizzle: str) -> Ring:
    """K in LDS: sub-blocks of 32 keys x 64 bytes, swizzled."""
    return s.lds.ring(
        "K",
        layout=Subtiled(k.kv_block, k.depth * BF16, 32, 64, SWIZZLES[swizzle]),
        slots=slots,
        waves=k.num_warps,
        fragments=key_fragments(k.kv_block, k.depth),
        width=16,
        comment="keys x depth, read by ds_read_b128",
    )


def value_ring(s: Space, k: MhaConfig, *, slots: int) -> Ring:
    """V in LDS: sub-blocks of 8 keys x 64 bytes, unswizzled, for transposing reads."""
    return s.lds.ring(
        "V",
        layout=Subtiled(k.kv_block, k.depth * BF16, 8, 64),
        slots=slots,
        waves=k.num_warps,
        fragments=value_fragments(k.kv_block, k.depth),
        width=8,
        comment="keys x depth, read transposed by ds_read_b64_tr_b16",
    )


class Attention:
    """The operations of one prefill kernel over its rings and registers.

    Register tiles: Q (B operand, resident), K and V (A operand; with `share_kv` in one bank: K is
    alive from its read to QK, V from its read to PV), S[2] (score tile, ring by tile; P is packed
    in place over the first half of its own S), O (accumulator), and a few registers of row state.
    """

    def __init__(
        self, k: MhaConfig, s: Space, keys: Ring, values: Ring, *, share_kv: bool = True
    ) -> None:
        refuse_unsupported(k)
        self.k, self.keys, self.values = k, keys, values
        regs = s.registers
        entry = s.entry("head", "query tile", "batch")
        self.temp, self.kernarg, self.group = entry.temp, entry.kernarg, entry.group
        self.wave, self.tiles = entry.wave, entry.tiles
        scores = k.kv_block // 2  # fp32 registers of a 64-key x 32-query tile
        tiles = (keys.whole_tile, values.whole_tile)
        if share_kv:
            blocks = regs.share("KV", *tiles)
        else:
            blocks = tuple(regs.block(name, n, why, align=4) for name, n, why in tiles)
        self.key_tile, self.value_tile = (block.regs() for block in blocks)
        self.scores = regs.block(
            "S", scores, "scores S^T = K Q^T, then P in its first half", slots=2, align=4
        )
        self.queries = regs.block(
            "Q", k.depth // MFMA_K * 4, "queries, prescaled by c", align=4
        ).regs()
        self.output = regs.block(
            "O", k.depth // 2, "output accumulator O^T, 32 depths x 32 queries a block", align=4
        ).regs()
        state = regs.block("M", 1, "running row maximum, log2 units").regs()
        self.maximum, self.row_sum = state, regs.block("L", 1, "row sum of P", align=1).regs()
        self.previous_max = regs.block("MP", 1, "maximum before the last move", align=1).regs()
        self.masked = regs.block("NEG", 1, "-inf, the score of a masked key", align=1).regs()
        self.limit = regs.block(
            "LIMIT", 1, "first masked key of this lane's query, minus 4 * half", align=1
        ).regs()
        self.row_offset = regs.block("QOFF", 1, "byte offset of the query row", align=1).regs()
        self.sources = {
            ring.name: regs.block(
                f"{ring.name}SRC",
                1,
                f"byte offset this lane fetches of each {ring.name} tile",
                align=1,
            ).regs()
            for ring in (keys, values)
        }
        self.addresses = {
            ring.name: regs.block(
                f"{ring.name}ADR",
                len(ring.plan.bases) * len(ring.windows),
                f"LDS address this lane reads of each {ring.name} tile",
                align=1,
            ).regs()
            for ring in (keys, values)
        }
        self._scalars(s)
        s.signature = signature(k)
        for ring in (keys, values):
            bind(ring, self._mover(ring))

    def _scalars(self, s: Space) -> None:
        scalar = s.registers.scalar
        self.pointers = scalar("PTR", 8, "arguments q, k, v, o", align=4)
        self.sizes = scalar("SIZE", 4, "arguments seq_len, num_keys, start_pos, batch", align=4)
        self.scale = scalar("SCALE", 1, "argument scale * log2(e)")
        self.buffers = {
            name: scalar(f"SRD{name}", 4, f"buffer resource of {name}", align=4) for name in "QKVO"
        }
        self.grown = scalar("GROWN", 2, "all ones: the maximum moved on this tile", align=2)
        self.compare = scalar("CMP", 8, "lane masks of the key mask", align=2)
        self.lds_wave = scalar("LDSW", 1, "wave * 1024, its part of a DMA pass")
        self.tile_offsets = {
            name: scalar(f"{name}OFF", 1, f"byte offset of the next {name} tile to fetch")
            for name in "KV"
        }
        self.mask_end = scalar("MASKEND", 1, "end key of the tile that is masked next")
        self.visible = scalar("VISIBLE", 1, "keys that every query row of this wave sees")
        self.scratch = scalar("TMP", 6, "scalar temporaries", align=2)

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Arguments, head remap, tile count, buffer resources and lane addresses."""
        k = self.k
        half = BitMap.of(lambda thread: thread >> 5 & 1, 9)
        row = BitMap.of(lambda thread: (thread >> 6) * k.q_block_size + thread % 32, 9)
        loads = {
            ring.name: {
                "source": self.sources[ring.name],
                "row": ring.dma.row.moves(),
                "byte": ring.dma.byte.moves(),
                "addresses": [
                    (self._address(ring, window, index), base.moves(), base.constant, start)
                    for window, start in enumerate(ring.windows)
                    for index, base in enumerate(ring.plan.bases)
                ],
            }
            for ring in (self.keys, self.values)
        }
        self._record(
            "setup",
            None,
            {
                "kernarg": self.kernarg,
                "group_x": self.group[0],
                "group_y": self.group[1],
                "group_z": self.group[2],
                "pointers": self.pointers,
                "sizes": self.sizes,
                "scale": self.scale,
                "buffers": self.buffers,
                "wave": self.wave,
                "tiles": self.tiles,
                "lds_wave": self.lds_wave,
                "tile_offsets": self.tile_offsets,
                "mask_end": self.mask_end,
                "visible": self.visible,
                "scratch": self.scratch,
                "temp": self.temp,
                "limit": self.limit,
                "masked": self.masked,
                "row_sum": self.row_sum,
                "row_offset": self.row_offset,
                "loads": loads,
                "half": half.moves(),
                "row_map": row.moves(),
                "causal": k.mask.name == "causal",
                "q_tile": k.q_tile,
                "kv_block": k.kv_block,
                "kv_shift": k.kv_block.bit_length() - 1,
                "group": k.group,
                "group_magic": exact_reciprocal(k.group, k.num_heads),
                "kv_heads": k.num_kv_heads,
                "kv_magic": exact_reciprocal(k.group, k.num_heads),
                "q_row_bytes": k.num_heads * k.depth * BF16,
                "o_row_bytes": k.num_heads * k.depth * self.output_bytes,
                "kv_row_bytes": k.num_kv_heads * k.depth * BF16,
                "q_head_bytes": k.depth * BF16,
                "o_head_bytes": k.depth * self.output_bytes,
            },
            defines=(Value("limit"),),
        )

    def load_queries(self) -> None:
        """Global to registers: this wave's 32 query rows as MFMA B operand."""
        self._record(
            "load_queries",
            None,
            {"Q": self.queries, "offset": self.row_offset, "buffer": self.buffers["Q"]},
            defines=(Value("Q raw"),),
        )

    def prescale(self, tile: Tile) -> None:
        """Q = bf16(fp32(Q) * c), once, when the first tile is on its way."""
        self._record(
            "prescale",
            tile,
            {"Q": self.queries, "scale": self.scale, "temp": self.temp},
            domain="first",
            uses=(Value("Q raw"),),
        )

    def normalise(self) -> None:
        """O *= 1 / l; a row without a visible key gets 0."""
        self._record(
            "normalise",
            None,
            {"O": self.output, "row_sum": self.row_sum, "temp": self.temp},
        )

    def store(self) -> None:
        """O^T accumulators to global memory; rows beyond seq_len are dropped by the range check."""
        self._record(
            f"store_{self.k.output_dtype}",
            None,
            {
                "O": self.output,
                "offset": self.row_offset,
                "buffer": self.buffers["O"],
                "temp": self.temp,
            },
        )

    def no_tiles(self) -> None:
        """What the epilogue needs when there is no tile at all: O = 0."""
        self._record("no_tiles", None, {"O": self.output}, domain="empty")

    # ---- once a tile ------------------------------------------------------------------------

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T."""
        blocks = self.k.kv_block // MFMA_ROWS
        return self._record(
            "qk",
            tile,
            lambda at: {
                "S": [self._scores(tile, at).part(b, 16) for b in range(blocks)],
                "K": self.key_tile,
                "Q": self.queries,
                "steps": self.k.depth // MFMA_K,
                "blocks": blocks,
            },
            defines=(self.scores.at(tile),),
            uses=(self.keys.register_value(tile),),
        )

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P, strip of 16 keys by strip."""
        blocks = self.k.depth // MFMA_ROWS
        return self._record(
            "pv",
            tile,
            lambda at: {
                "O": [self.output.part(b, 16) for b in range(blocks)],
                "V": self.value_tile,
                "P": self._scores(tile, at),
                "strips": self.k.kv_block // MFMA_K,
                "blocks": blocks,
                "first": at.first,
            },
            uses=(self.values.register_value(tile), self.scores.at(tile)),
            first_differs=True,
        )

    def mask(self, tile: Tile) -> Operation:
        """Scores of keys beyond the row's limit become -inf; skipped on fully visible tiles."""
        return self._record(
            "mask",
            tile,
            lambda at: {
                "S": self._scores(tile, at),
                "rows": [
                    MFMA_ROWS * (r // 16) + accumulator_row(r % 16)
                    for r in range(self.k.kv_block // 2)
                ],
                "kv_block": self.k.kv_block,
                "mask_end": self.mask_end,
                "visible": self.visible,
                "limit": self.limit,
                "masked": self.masked,
                "compare": self.compare,
                "temp": self.temp,
            },
            uses=(self.scores.at(tile),),
            guarded=True,
        )

    def partial_softmax(self, tile: Tile) -> Operation:
        """Row maximum with the lagging running maximum, subtract, exp2 of the first half."""
        return self._record(
            "partial_softmax",
            tile,
            lambda at: {
                "S": self._scores(tile, at),
                "maximum": self.maximum,
                "state": Regs(self.maximum.symbol, 0, 2),
                "previous": self.previous_max,
                "grown": self.grown,
                "threshold": hex(float_bits(self.k.rescale_threshold)),
                "temp": self.temp,
                "first": at.first,
            },
            uses=(self.scores.at(tile),),
            first_differs=True,
        )

    def rescale(self, tile: Tile) -> Operation:
        """O and l follow the maximum where it moved; skipped where it did not."""
        return self._record(
            "rescale",
            tile,
            {
                "O": self.output,
                "row_sum": self.row_sum,
                "maximum": self.maximum,
                "previous": self.previous_max,
                "grown": self.grown,
                "temp": self.temp,
            },
            domain="rest",
            guarded=True,
        )

    def tail_softmax(self, tile: Tile) -> Operation:
        """exp2 of the second half, row sum of the fp32 P, cast to bf16 in place."""
        return self._record(
            "tail_softmax",
            tile,
            lambda at: {
                "S": self._scores(tile, at),
                "row_sum": self.row_sum,
                "temp": self.temp,
            },
            uses=(self.scores.at(tile),),
        )

    # ---- spelling ---------------------------------------------------------------------------

    @property
    def output_bytes(self) -> int:
        return 2 if self.k.output_dtype == "bf16" else 4

    def _scores(self, tile: Tile, at: Binding) -> Regs:
        return self.scores.regs(at.phase)

    def _address(self, ring: Ring, window: int, base: int) -> Regs:
        return self.addresses[ring.name][window * len(ring.plan.bases) + base]

    def _mover(self, ring: Ring) -> Any:
        registers = {self.keys.name: self.key_tile, self.values.name: self.value_tile}[ring.name]
        row_bytes = self.k.num_kv_heads * self.k.depth * BF16

        def mover(kind: Literal["copy", "read"], tile: Tile) -> Operation:
            access = Access(kind, ring.at(tile))
            if kind == "copy":
                return self._operation(
                    "copy",
                    tile,
                    lambda at: {
                        "passes": [
                            (ring.slot_base(at.phase) + lds, rows * row_bytes)
                            for lds, rows in zip(
                                ring.dma.lds_offsets, ring.dma.row_offsets, strict=True
                            )
                        ],
                        "source": self.sources[ring.name],
                        "buffer": self.buffers[ring.name],
                        "tile_offset": self.tile_offsets[ring.name],
                        "tile_bytes": self.k.kv_block * row_bytes,
                        "lds_wave": self.lds_wave,
                        "scratch": self.scratch,
                    },
                    access=access,
                )
            width = ring.plan.width // 4
            return self._operation(
                "read",
                tile,
                lambda at: {
                    "mnemonic": "ds_read_b128" if width == 4 else "ds_read_b64_tr_b16",
                    "reads": [
                        (
                            registers.part(index, width),
                            self._address(ring, ring.window(at.phase), base),
                            ring.slot_base(at.phase) - ring.windows[ring.window(at.phase)] + offset,
                        )
                        for index, (base, offset) in enumerate(ring.plan.reads)
                    ],
                },
                access=access,
                defines=(ring.register_value(tile),),
            )

        return mover

    def _record(self, name: str, tile: Tile | None, context: Any, **more: Any) -> Operation:
        return record(self._operation(name, tile, context, **more))

    def _operation(self, name: str, tile: Tile | None, context: Any, **more: Any) -> Operation:
        supply = context if callable(context) else _constant(context)
        return Operation(name, f"mha/{name}.s.j2", tile, supply, **more)


def signature(k: MhaConfig) -> Signature:
    """q, o: [B, S, H, D]; k, v: [B, num_keys, H_kv, D], contiguous. A workgroup computes `q_tile`
    query rows of one head; `scale_log2e` is the softmax scale times log2(e)."""
    return Signature(
        pack(
            ("q", "pointer", "read"),
            ("k", "pointer", "read"),
            ("v", "pointer", "read"),
            ("o", "pointer", "write"),
            ("seq_len", "u32", "value"),
            ("num_keys", "u32", "value"),
            ("start_pos", "u32", "value"),
            ("batch", "u32", "value"),
            ("scale_log2e", "f32", "value"),
        ),
        grid=(("num_heads", 1), ("seq_len", k.q_tile), ("batch", 1)),
        block=(64 * k.num_warps, 1, 1),
    )


def _constant(context: Mapping[str, Any]) -> Any:
    return lambda at: context


def float_bits(value: float) -> int:
    """The fp32 encoding of `value`."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def exact_reciprocal(divisor: int, limit: int) -> int:
    """m with (x * m) >> 32 == x // divisor for all 0 <= x < limit; 0 when divisor is 1."""
    if divisor == 1:
        return 0
    magic = (1 << 32) // divisor + 1
    for x in range(limit):
        if x * magic >> 32 != x // divisor:
            raise ConfigError(f"{limit} heads in groups of {divisor}: no exact 32-bit reciprocal")
    return magic


def refuse_unsupported(k: MhaConfig) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    if k.dtype != "bf16":
        raise ConfigError(
            f"dtype={k.dtype} is a valid MhaConfig, but the fp8 operations (32x32x64 MFMA, "
            f"ds_read_b64_tr_b8, in-place fp8 P) of mha_prefill_v2 are missing",
            hint="dtype=bf16 is generated",
        )
    if k.mask.name not in ("null", "causal"):
        raise ConfigError(
            f"mask={k.mask} is a valid MhaConfig, but mha_prefill_v2 has no tile walk that starts "
            f"past hidden tiles",
            hint="masks null and causal are generated",
        )
    if k.num_warps != 8:
        raise ConfigError(
            f"num_warps={k.num_warps} is a valid MhaConfig, but mha_prefill_v2 staggers two "
            f"halves of 8 waves",
            hint="num_warps=8 is generated",
        )
