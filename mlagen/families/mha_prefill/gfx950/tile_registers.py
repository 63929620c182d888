"""The registers of MHA prefill on gfx950: whole tiles of K and V as operands, two score tiles."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import BF16, KEY_READ, VALUE_READ
from mlagen.attention.prefill.gfx950.registers import PrefillState
from mlagen.dsl import exactly
from mlagen.families.mha_prefill.gfx950.form import signature
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.dsl import EntryRegisters, Ring, Space, laid_out


class PrefillRegisters(PrefillState):
    """The schedule's tiles: Q (B operand, resident), K and V (A operand, named like their rings), S
    (score tile, ring by tile; P is packed in place over the first half of its own S), O
    (accumulator); row state and addresses follow.
    """

    def __init__(
        self, k: MhaConfigV2, s: Space, entry: EntryRegisters, keys: Ring, values: Ring
    ) -> None:
        self.rings, tiles = (keys, values), s.registers
        # What operations touch of the schedule's rings and tiles.
        areas, waves = [(k.kv_block, k.depth * BF16)], k.num_warps
        laid_out(keys, areas, waves=waves, width=KEY_READ)
        laid_out(values, areas, waves=waves, width=VALUE_READ)
        self.key_tile, self.value_tile = (
            tiles.taken(ring.name, exactly("registers", ring.whole_tile[1], "a whole tile")).regs()
            for ring in (keys, values)
        )
        self.scores = tiles.taken("S", exactly("registers", k.kv_block // 2, "scores of a tile"))
        columns = {"Q": k.depth // 4, "O": k.depth // 2}
        self.queries, self.output = (
            tiles.taken(name, exactly("registers", count, "a row's columns")).regs()
            for name, count in columns.items()
        )
        row_bytes = k.kv_row_stride * k.element_bytes
        super().__init__(k, s, entry, signature(k), "QKVO", {"K": row_bytes, "V": row_bytes})

    def _lanes(self, s: Space) -> None:
        self.sources = {}
        for ring in self.rings:
            what = f"byte offset this lane fetches of each {ring.name} tile"
            self.sources[ring.name] = s.registers.block(f"{ring.name}SRC", 1, what, align=1).regs()
        self._addresses(s, self.rings)
