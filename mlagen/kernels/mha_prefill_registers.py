"""The registers of MHA prefill on gfx950: tiles, row state, lane addresses, scalars.

What only some problems need is allocated for those alone and is None for the others; so a plain
kernel holds nothing for features that it does not have.
"""

from __future__ import annotations

from typing import Any

from mlagen.dsl import Block, Regs, Ring, Space
from mlagen.kernels.fragments import MFMA_K
from mlagen.kernels.mha_prefill_arguments import argument_registers
from mlagen.kernels.mha_prefill_signature import signature
from mlagen.problem import MhaConfig

WINDOWED = ("sliding_window_causal", "chunked_causal")  # masks that hide keys from below


class PrefillRegisters:
    """Register tiles: Q (B operand, resident), K and V (A operand; with `share_kv` in one bank: K
    is alive from its read to QK, V from its read to PV), S[2] (score tile, ring by tile; P is
    packed in place over the first half of its own S), O (accumulator), and a few registers of row
    state.
    """

    def __init__(self, k: MhaConfig, s: Space, keys: Ring, values: Ring, *, share_kv: bool) -> None:
        entry = s.entry("head", "query tile", "batch")
        self.temp, self.kernarg, self.group = entry.temp, entry.kernarg, entry.group
        self.wave, self.tiles = entry.wave, entry.tiles
        self._tiles(k, s, keys, values, share_kv)
        self._rows(k, s)
        self._lanes(s, keys, values)
        self._scalars(k, s)

    def _tiles(self, k: MhaConfig, s: Space, keys: Ring, values: Ring, share_kv: bool) -> None:
        regs = s.registers
        tiles = (keys.whole_tile, values.whole_tile)
        if share_kv:
            blocks = regs.share("KV", *tiles)
        else:
            blocks = tuple(regs.block(name, n, why, align=4) for name, n, why in tiles)
        self.key_tile, self.value_tile = (block.regs() for block in blocks)
        count = k.kv_block // 2  # fp32 registers of a 64-key x 32-query tile
        self.scores: Block = regs.block(
            "S", count, "scores S^T = K Q^T, then P in its first half", slots=2, align=4
        )
        self.queries = regs.block(
            "Q", k.depth // MFMA_K * 4, "queries, prescaled by c", align=4
        ).regs()
        self.output = regs.block(
            "O", k.depth // 2, "output accumulator O^T, 32 depths x 32 queries a block", align=4
        ).regs()

    def _rows(self, k: MhaConfig, s: Space) -> None:
        def one(name: str, comment: str, align: int = 1) -> Regs:
            return s.registers.block(name, 1, comment, align=align).regs()

        self.maximum = one("M", "running row maximum, log2 units", align=2)
        self.row_sum = one("L", "row sum of P")
        self.previous_max = one("MP", "maximum before the last move")
        self.masked = one("NEG", "-inf, the score of a masked key")
        self.limit = one("LIMIT", "first masked key of this lane's query, minus 4 * half")
        self.row_offset = one("QOFF", "byte offset of the query row")
        windowed = k.mask.name in WINDOWED
        self.start = (
            one("START", "first key that this lane's query sees, minus 4 * half")
            if windowed
            else None
        )
        self.lse_offset = one("LSEOFF", "byte offset of the row's LSE") if k.lse else None

    def _lanes(self, s: Space, keys: Ring, values: Ring) -> None:
        regs = s.registers
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

    def _scalars(self, k: MhaConfig, s: Space) -> None:
        scalar = s.registers.scalar
        self.arguments = argument_registers(s, signature(k))
        names = "QKVO"
        self.buffers = {
            name: scalar(f"SRD{name}", 4, f"buffer resource of {name}", align=4) for name in names
        }
        self.grown = scalar("GROWN", 2, "all ones: the maximum moved on this tile", align=2)
        self.compare = scalar("CMP", 8, "lane masks of the key mask", align=2)
        self.lds_wave = scalar("LDSW", 1, "wave * 1024, its part of a DMA pass")
        self.mask_end = scalar("MASKEND", 1, "end key of the tile that is masked next")
        self.visible = scalar("VISIBLE", 1, "keys that every query row of this wave sees")
        self.scratch = scalar("TMP", 6, "scalar temporaries", align=2)
        self._of_features(k, s)

    def _of_features(self, k: MhaConfig, s: Space) -> None:
        """Scalars that only some problems have."""

        def when(needed: bool, name: str, count: int, comment: str, align: int = 1) -> Any:
            return s.registers.scalar(name, count, comment, align=align) if needed else None

        paged = k.page_size > 0
        self.tile_offsets = {
            name: when(not paged, f"{name}OFF", 1, f"byte offset of the next {name} tile to fetch")
            for name in "KV"
        }
        self.all_start = when(
            k.mask.name in WINDOWED, "ALLSTART", 1,
            "end of the first tile whose first key every row of this wave sees",
        )  # fmt: skip
        if k.lse:
            self.buffers["LSE"] = s.registers.scalar("SRDLSE", 4, "buffer resource of lse", align=4)
        self.query_range = when(
            k.ragged, "QROWS", 2, "first query row of this sequence, and how many", 2
        )
        self.key_range = when(
            k.ragged and not paged, "KVROWS", 2, "first row of K and V, and how many", 2
        )
        self.first_position = (
            when(True, "FIRSTPOS", 1, "position of the sequence's first query row")
            if k.by_sequence
            else self.arguments["start_pos"]
        )
        if self.key_range is not None:
            self.key_count = self.key_range[1]
        elif paged:
            self.key_count = when(True, "KEYS", 1, "keys of this sequence")
        else:
            self.key_count = self.arguments["num_keys"]

    def address(self, ring: Ring, window: int, base: int) -> Regs:
        """The register with a lane's LDS address for one window and one base of a ring."""
        return self.addresses[ring.name][window * len(ring.plan.bases) + base]
