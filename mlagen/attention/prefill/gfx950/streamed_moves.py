"""How tiles move in streamed prefill: `copy` from global memory to LDS, and fragments from LDS to
their band of registers."""

from __future__ import annotations

from typing import Any, Literal

from mlagen.attention.prefill.gfx950.pages import Pages, page_value
from mlagen.attention.prefill.gfx950.streamed_form import KeyArea
from mlagen.attention.prefill.gfx950.streamed_registers import StreamedRegisters
from mlagen.dsl import Access, Binding, Operation, Tile, Value
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl import Regs, Ring


class RingStream:
    """One ring, from global memory to its products.

    `areas`: the ring's areas as columns of tensors. Fragments are numbered in the order of their
    products.
    """

    def __init__(
        self,
        regs: StreamedRegisters,
        ring: Ring,
        areas: tuple[KeyArea, ...],
        pages: Pages | None = None,
    ) -> None:
        self.regs, self.ring, self.areas, self.pages = regs, ring, areas, pages
        self.mnemonic = (
            "ds_read_b128" if ring.areas[0].plan.width == 16 else regs.held.form.transposing
        )
        self.order = self._order()

    @property
    def fragments(self) -> int:
        """Fragments of a tile."""
        return len(self.order)

    @property
    def waiting(self) -> int:
        """Fragments that can be read before their first product."""
        return min(self.regs.band, self.fragments)

    def band(self, tile: Tile) -> Value:
        """The first fragments of a tile, from their read to their products."""
        return Value(f"{self.ring.name} band", tile)

    def __call__(self, kind: Literal["copy", "read", "release"], tile: Tile) -> Operation:
        access = Access(kind, self.ring.at(tile))
        pages = self.pages
        if kind == "copy" and pages is not None:
            template = "prefill/copy_rows.s.j2" if pages.by_lane else "prefill/copy_pages.s.j2"
            return Operation(
                "copy", template, tile, lambda at: pages.copy(self.ring, at), access=access,
                uses=(page_value(self.ring, tile),),
            )  # fmt: skip
        if kind == "copy":
            return Operation("copy", "prefill/copy.s.j2", tile, self._copy, access=access)
        if kind == "read":
            return Operation(
                "read",
                "prefill/read.s.j2",
                tile,
                self._read,
                access=access,
                defines=(self.band(tile),),
            )  # fmt: skip
        raise ScheduleError(f"release({self.ring.name}): a slot is free after its last read")

    def reads(self, at: Binding, fragment: int) -> list[tuple[Regs, Regs, int]]:
        """(registers, address, offset) of each LDS read of a fragment."""
        index, first = self.order[fragment]
        area, target = self.ring.areas[index], self.regs.part(self.ring, fragment)
        width = area.plan.width // 4
        window = self.ring.window(at.phase)
        slot = self.ring.slot_base(at.phase) + area.start - self.ring.windows[window]
        addresses = self.regs.addresses[self.ring.name]
        found = []
        for number in range(len(target) // width):
            base, offset = area.plan.reads[first + number]
            found.append(
                (
                    target.part(number, width),
                    addresses[window, area.plan.bases[base]],
                    slot + offset,
                )
            )
        return found

    def _order(self) -> list[tuple[int, int]]:
        """(area, number of its first read) of each fragment. V: as the layout has them. K: a block
        of 32 keys at a time, through all columns."""
        form = self.regs.held.form
        reads = form.registers * 4 // self.ring.areas[0].plan.width
        if len(self.areas) == 0:
            return [(0, first) for first in range(0, len(self.ring.plan.reads), reads)]
        blocks = self.regs.k.kv_block // 32
        found = []
        for block in range(blocks):
            for index, area in enumerate(self.areas):
                steps = area.columns // form.k
                found += [(index, (block * steps + step) * reads) for step in range(steps)]
        return found

    def _copy(self, at: Binding) -> dict[str, Any]:
        regs, base = self.regs, self.ring.slot_base(at.phase)
        tensors = [area.tensor for area in self.areas] or [regs.held.values]
        # V of a latent row lies in K's tensor, but is walked on its own.
        walks = [area.tensor.name for area in self.areas] or ["V"]
        parts = []
        for area, tensor, walk, source in zip(
            self.ring.areas, tensors, walks, regs.sources, strict=False
        ):
            passes = [
                (base + area.start + lds, rows * tensor.row_bytes + columns)
                for lds, rows, columns in zip(
                    area.dma.lds_offsets, area.dma.row_offsets, area.dma.byte_offsets, strict=True
                )
            ]
            parts.append(
                {
                    "passes": passes,
                    "source": source,
                    "buffer": regs.buffers[tensor.name],
                    "tile_offset": regs.tile_offsets[walk],
                    "first_seen": regs.first_seen if walk == "V" else None,
                    "row_bytes": tensor.row_bytes,
                }
            )
        advance = {
            walk: (regs.tile_offsets[walk], regs.k.kv_block * tensor.row_bytes)
            for tensor, walk in zip(tensors, walks, strict=True)
        }
        return {
            "parts": parts,
            "advance": list(advance.values()),
            "lds_wave": regs.lds_wave,
            "scratch": regs.scratch,
            "temp": regs.temp,
        }

    def _read(self, at: Binding) -> dict[str, Any]:
        """The first fragments, as many as wait for their products."""
        reads = [read for fragment in range(self.waiting) for read in self.reads(at, fragment)]
        return {"mnemonic": self.mnemonic, "reads": reads}
