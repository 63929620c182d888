"""The registers of streamed prefill on gfx950: one score tile, and bands for fragments."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import KEY_READ, VALUE_READ
from mlagen.attention.prefill.gfx950.registers import PrefillState
from mlagen.attention.prefill.gfx950.streamed_form import Operands
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Signature, exactly
from mlagen.targets.gfx950.dsl import EntryRegisters, Regs, Ring, Space, laid_out

MOST = 256  # registers of a file


class StreamedRegisters(PrefillState):
    """The schedule's tiles: Q (B operand, resident), S (one score tile; P is packed in place over
    its first quarter, or half for bf16), O (accumulator). K and V pass through bands of fragments,
    KB and VB: fragment f lies in part f of its band, modulo the parts, until its product is done.
    Row state and addresses follow.

    `sources`: what a lane fetches of each area of the ring that its role fetches.
    """

    def __init__(
        self,
        k: PrefillConfig,
        s: Space,
        entry: EntryRegisters,
        signature: Signature,
        held: Operands,
        rings: tuple[Ring, Ring],
    ) -> None:
        self.k, self.held, self.rings, tiles = k, held, rings, s.registers
        # What operations touch of the schedule's rings and tiles.
        fragment, size = held.form.registers, k.element_bytes
        columns = ([area.columns for area in held.keys], [held.depth])
        for ring, areas, width in zip(rings, columns, (KEY_READ, VALUE_READ), strict=True):
            shapes = [(k.kv_block, count * size) for count in areas]
            laid_out(ring, shapes, waves=k.num_warps // len(rings), width=width)
        self.scores = tiles.taken("S", exactly("registers", k.kv_block // 2, "scores of a tile"))
        self.output, self.queries = (
            tiles.taken(name, exactly("registers", count, "a row's columns")).regs()
            for name, count in (("O", held.depth // 2), ("Q", held.qk_steps * fragment))
        )
        self.bands = {
            ring.name: tiles.taken(
                f"{ring.name}B",
                exactly("registers", range(fragment, MOST + 1, fragment), "whole fragments"),
            ).regs()
            for ring in rings
        }
        self.band = min(map(len, self.bands.values())) // fragment  # fragments of each
        # The resource of a page is made anew for each; pages of one key have none.
        pages = ["PAGE"] if k.page_size > 1 else []
        rows = pages if k.page_size else [tensor.name for tensor in held.tensors.key_rows]
        names = ["Q", "O", *rows]
        # K and V of one row are still fetched at times of their own.
        walks = {tensor.name: tensor.row_bytes for tensor in held.tensors.key_rows}
        walks["V"] = held.values.row_bytes
        super().__init__(k, s, entry, signature, names, walks)
        self.scale = s.registers.scalar("C", 2, "c, twice", align=2)
        if entry.items is not None:
            self._work(s)

    def _work(self, s: Space) -> None:
        """What a kernel that walks work items has besides."""

        def one(name: str, comment: str) -> Regs:
            return s.registers.block(name, 1, comment, align=1).regs()

        self.thread = one("TID", "thread of the workgroup")
        self.partial_offset = one("POFF", "byte offset of the row in a partial output")
        self.partial_lse_offset = one("PLOFF", "byte offset of the row's LSE in a partial output")
        scalar = s.registers.scalar
        self.own_keys = self.grown  # free while an item is set up
        self.first_item = scalar("FIRSTITEM", 1, "number of its first work item")
        self.place = scalar("PLACE", 2, "the work item's sequence, and partial_o_loc", align=2)
        self.heads_word = scalar("HEADS", 1, "the work item's heads, as the host wrote them")
        self.blocks = self.key_range or scalar(
            "BLOCKS", 2, "the work item's first and last + 1 page", align=2
        )

    def _lanes(self, s: Space) -> None:
        regs = s.registers
        self.output_offset = regs.block("OOFF", 1, "byte offset of the output row", align=1).regs()
        areas = max(len(ring.areas) for ring in self.rings)
        what = "byte offsets this lane fetches of each tile that its role fetches"
        width = 1
        if self.k.page_size == 1:
            what, width = "addresses that what this lane fetches of a page counts from", 2
        block = regs.block("SRC", width * areas, what, align=width).regs()
        self.sources = [block.part(area, width) for area in range(areas)]
        self._addresses(s, self.rings)

    def part(self, ring: Ring, fragment: int) -> Regs:
        """Where a fragment of a ring lies while it waits for its product."""
        return self.bands[ring.name].part(fragment % self.band, self.held.form.registers)
