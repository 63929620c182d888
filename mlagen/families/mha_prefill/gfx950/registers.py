"""The registers of MHA prefill on gfx950: whole tiles of K and V as operands, two score tiles."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import MFMA_K
from mlagen.attention.prefill.gfx950.registers import PrefillState
from mlagen.dsl import Block, Regs, Ring, Space
from mlagen.families.mha_prefill.gfx950.signature import signature
from mlagen.families.mha_prefill.problem import MhaConfig


class PrefillRegisters(PrefillState):
    """Register tiles: Q (B operand, resident), K and V (A operand; with `share_kv` in one bank: K
    is alive from its read to QK, V from its read to PV), S[2] (score tile, ring by tile; P is
    packed in place over the first half of its own S), O (accumulator).
    """

    def __init__(self, k: MhaConfig, s: Space, keys: Ring, values: Ring, *, share_kv: bool) -> None:
        self.k, self.rings, self.share_kv = k, (keys, values), share_kv
        row_bytes = k.kv_row_stride * k.element_bytes
        super().__init__(k, s, signature(k), "QKVO", {"K": row_bytes, "V": row_bytes})

    def _tiles(self, s: Space) -> None:
        k, (keys, values) = self.k, self.rings
        regs = s.registers
        tiles = (keys.whole_tile, values.whole_tile)
        if self.share_kv:
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

    def _lanes(self, s: Space) -> None:
        regs = s.registers
        self.sources = {
            ring.name: regs.block(
                f"{ring.name}SRC",
                1,
                f"byte offset this lane fetches of each {ring.name} tile",
                align=1,
            ).regs()
            for ring in self.rings
        }
        self.addresses = {
            ring.name: regs.block(
                f"{ring.name}ADR",
                len(ring.plan.bases) * len(ring.windows),
                f"LDS address this lane reads of each {ring.name} tile",
                align=1,
            ).regs()
            for ring in self.rings
        }

    def address(self, ring: Ring, window: int, base: int) -> Regs:
        """The register with a lane's LDS address for one window and one base of a ring."""
        return self.addresses[ring.name][window * len(ring.plan.bases) + base]
