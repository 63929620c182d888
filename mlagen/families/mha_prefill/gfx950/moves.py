"""How tiles of K and V move: `copy` from global memory to LDS, `read` from LDS to registers."""

from __future__ import annotations

from typing import Any, Literal

from mlagen.attention.prefill.gfx950.fragments import (
    BF16,
    FORMATS,
    KEY_READ,
    VALUE_READ,
    key_fragments,
    transposed_fragments,
)
from mlagen.attention.prefill.gfx950.pages import Pages, page_value
from mlagen.dsl import Access, Binding, Operation, Tile
from mlagen.errors import ScheduleError
from mlagen.families.mha_prefill.gfx950.tile_registers import PrefillRegisters
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.dsl import Reads, Regs, Ring


def key_reads(k: MhaConfigV2) -> Reads:
    """K as operand A of S^T = K Q^T."""
    fragments = key_fragments(k.kv_block, k.depth)
    return Reads(fragments, KEY_READ, "keys x depth, read by ds_read_b128")


def value_reads(k: MhaConfigV2) -> Reads:
    """V^T as operand A of O^T = V^T P."""
    form = FORMATS["bf16"]
    fragments = transposed_fragments(form, k.kv_block, k.depth)
    return Reads(fragments, VALUE_READ, f"keys x depth, read transposed by {form.transposing}")


class Mover:
    """Spells `copy(ring, tile)` and `read(ring, tile)` of one ring."""

    def __init__(
        self, k: MhaConfigV2, regs: PrefillRegisters, ring: Ring, target: Regs, pages: Pages | None
    ) -> None:
        self.k, self.regs, self.ring, self.target, self.pages = k, regs, ring, target, pages
        self.row_bytes = k.num_kv_heads * k.depth * BF16

    def __call__(self, kind: Literal["copy", "read", "release"], tile: Tile) -> Operation:
        if kind == "release":
            raise ScheduleError(f"release({self.ring.name}): a slot is free after its last read")
        access = Access(kind, self.ring.at(tile))
        if kind == "read":
            value = self.ring.register_value(tile)
            return Operation(
                "read", "prefill/read.s.j2", tile, self._read, access=access, defines=(value,)
            )
        if self.pages is None:
            return Operation("copy", "prefill/copy.s.j2", tile, self._copy, access=access)
        pages = self.pages
        return Operation(
            "copy", "prefill/copy_pages.s.j2", tile, lambda at: pages.copy(self.ring, at),
            access=access, uses=(page_value(self.ring, tile),),
        )  # fmt: skip

    def _copy(self, at: Binding) -> dict[str, Any]:
        name = self.ring.name
        return {
            "parts": [
                {
                    "passes": self._passes(at),
                    "source": self.regs.sources[name],
                    "buffer": self.regs.buffers[name],
                    "tile_offset": self.regs.tile_offsets[name],
                    "first_seen": self.regs.first_seen if name == "V" else None,
                    "row_bytes": self.row_bytes,
                }
            ],
            "advance": [(self.regs.tile_offsets[name], self.k.kv_block * self.row_bytes)],
            "lds_wave": self.regs.lds_wave,
            "scratch": self.regs.scratch,
            "temp": self.regs.temp,
        }

    def _passes(self, at: Binding) -> list[tuple[int, int]]:
        """(LDS base, byte offset of its rows in the tile) of each DMA instruction."""
        ring = self.ring
        return [
            (ring.slot_base(at.phase) + lds, rows * self.row_bytes)
            for lds, rows in zip(ring.dma.lds_offsets, ring.dma.row_offsets, strict=True)
        ]

    def _read(self, at: Binding) -> dict[str, Any]:
        ring, width = self.ring, self.ring.plan.width // 4
        window, addresses = ring.window(at.phase), self.regs.addresses[ring.name]
        return {
            "mnemonic": "ds_read_b128" if width == 4 else "ds_read_b64_tr_b16",
            "reads": [
                (
                    self.target.part(index, width),
                    addresses[window, ring.plan.bases[base]],
                    ring.slot_base(at.phase) - ring.windows[window] + offset,
                )
                for index, (base, offset) in enumerate(ring.plan.reads)
            ],
        }
