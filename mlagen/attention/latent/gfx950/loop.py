"""Attention to latent rows on gfx950: what the parts of a kernel share.

A lane has one query row, its row sum over a part of the keys, and a part of its output (`Shape`).
With tiles in their order, M' = max(M, c max S), O and the row sum l follow by exp2(M - M') where
the maximum of some row moved, P = exp2(c S - M'). M starts at the lowest finite number: a row that
sees nothing of a tile has -inf minus a number there, which makes P = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from mlagen.attention.latent.gfx950.parts import (
    Context,
    LatentForm,
    Output,
    Products,
    Rows,
    Softmax,
    Storage,
)
from mlagen.attention.latent.gfx950.queries import query_of
from mlagen.attention.latent.gfx950.shape import QUAD
from mlagen.attention.latent.gfx950.sizes import BF16, ELEMENT_BYTES, WAVES
from mlagen.attention.prefill.gfx950.arguments import argument_registers
from mlagen.attention.prefill.gfx950.float_literals import LN2, LOG2E, LOWEST, hex_float
from mlagen.dsl import Access, Operation, PlainOrder, Tile, bind, record
from mlagen.targets.gfx950.dsl import EntryRegisters, Regs, Ring, Space, laid_out
from mlagen.targets.gfx950.dsl.layout import BitMap
from mlagen.targets.gfx950.dsl.lds import plan_reads

THREAD_BITS = 8


class LatentLoop:
    """One kernel over its ring and the schedule's register tiles: S, O, Q and the bands KB and VB,
    and what its storage asks for."""

    def __init__(self, k: Any, s: Space, parts: LatentForm) -> None:
        self.k, self.space, self.shape, self.tiles = k, s, parts.shape, s.registers
        self.products: Products = parts.products(self)
        self.storage: Storage = parts.storage(self)
        self.rows: Rows = parts.rows(self)
        self.softmax: Softmax = parts.softmax(self)
        self.output: Output = parts.output(self)

    def over(self, entry: EntryRegisters, ring: Ring) -> None:
        """Holds the ring and the tiles against what operations touch of them, and declares all
        other registers."""
        s, rows, storage, tile = self.space, self.rows, self.storage, self.storage.tile
        self.entry, self.ring = entry, ring
        s.signature = rows.signature
        self.arguments = argument_registers(s, rows.loaded)
        areas = [(tile.keys, tile.span)] * tile.spans
        laid_out(ring, areas, waves=WAVES, width=tile.key_read, extra=storage.scale_bytes)
        for part in (self.output, self.products, storage):
            for name, extent in part.extents().items():
                self.tiles.taken(name, extent)
        self.values = plan_reads(ring.areas[0].layout, tile.value_fragments(), 8)
        name, what = rows.looked_up
        self.page = s.registers.block(name, 1, what, slots=storage.page_slots, align=1)
        two = {"value_address": ("VADR", 4, "the same for V")} if self.two_tiles else {}
        lane = rows.lane() | storage.lane() | two | self.softmax.lane()
        self.lane = {
            name: s.registers.block(symbol, count, what, align=2 if count > 1 else 1).regs()
            for name, (symbol, count, what) in lane.items()
        }
        self.scalars = {
            name: s.registers.scalar(symbol, count, what, align=align)
            for name, (symbol, count, what, align) in rows.scalars().items()
        }
        rows.declare()
        storage.declare()
        s.plain = self._plain()
        bind(ring, self._mover)

    @property
    def two_tiles(self) -> bool:
        """Whether S has two slots: K of one tile is read between two reads of V of another, so that
        each has its addresses."""
        return self.tiles["S"].slots > 1

    def _plain(self) -> PlainOrder:
        begin, rows = ("item", "lanes", "load_queries"), self.rows
        scales = ("scale_scores",) if self.storage.scales else ()
        return PlainOrder(
            before=rows.work if rows.persistent else begin,
            item=begin if rows.persistent else (),
            tile=(
                *(*rows.finding, *self.storage.fetching),
                *("copy KV", "read KV", "qk", "read_values", *scales, *rows.masks),
                *("maximum", "rescale", "exponent", "pv"),
            ),
            after=("normalise", *rows.storing),
        )

    def _mover(self, kind: Literal["copy", "read", "release"], tile: Tile) -> Operation:
        return self.storage.copy(tile) if kind == "copy" else self.products.read(tile)

    # ---- what parts record ------------------------------------------------------------------

    def read(self, tile: Tile) -> Access:
        """That of an operation which reads the tile's slot."""
        return Access("read", self.ring.at(tile))

    def addresses(self, name: str) -> Regs:
        """Where this lane reads K ("key") or V ("value") in this tile's slot."""
        return self.lane["value_address" if name == "value" and self.two_tiles else "address"]

    @property
    def score_keys(self) -> list[int]:
        """The key of a tile whose score each register of S has, in the first lane of a row."""
        return [self.shape.key(r) for r in range(len(self.tiles["S"].regs()))]

    def operation(
        self, name: str, tile: Tile | None, template: str, context: Context | None = None,
        **more: Any,
    ) -> Operation:  # fmt: skip
        """The operation that a template below `latent` is."""

        def supply(at: Any) -> Mapping[str, Any]:
            scores = self.tiles["S"].regs(at.phase)
            return {**self.context, "S": scores, **(context(at) if context else {})}

        return Operation(name, f"latent/{template}.s.j2", tile, supply, **more)

    def record(self, name: str, tile: Tile | None, template: str, *more: Any, **named: Any) -> Any:
        """The same, called by the schedule."""
        return record(self.operation(name, tile, template, *more, **named))

    @cached_property
    def context(self) -> Mapping[str, Any]:
        """What the templates of all operations may name."""
        k, shape, area = self.k, self.shape, self.ring.areas[0]
        tile = self.storage.tile
        factor, scale = self.lane.get("factor"), self.arguments.regs.get("scale_log2e")
        return {
            "thread": self.entry.temp[0],
            **self.lane,
            **self.scalars,
            "items": self.entry.items,
            "item": self.entry.item,
            "arguments": self.arguments.regs,
            "argument_loads": self.arguments.loads,
            "kernarg": self.entry.kernarg,
            "group": self.entry.group[0],
            "wave": self.entry.wave,
            "tiles": self.entry.tiles,
            "temp": self.entry.temp,
            "O": self.tiles["O"].regs(),
            "OA": self.output.quads,
            "Q": self.tiles["Q"].regs(),
            "kv_block": tile.keys,
            "kv_shift": tile.keys.bit_length() - 1,
            "heads": k.num_heads,
            "row_bytes": sum(run.count * ELEMENT_BYTES[run.query] for run in tile.columns),
            "output_bytes": k.d_v * BF16,
            "slot_rows": WAVES * shape.rows,
            "query_row": _map(shape.query_row),
            "part_name": shape.part,
            "row_part": _map(shape.part_of),
            "swaps": shape.swaps,
            "part_bytes": 8 * (shape.parts - 1),
            "step_bytes": shape.step * BF16,
            "quad_bytes": shape.key(QUAD) * BF16,
            "fetched_row": area.dma.row.moves(),
            "fetched_byte": area.dma.byte.moves(),
            "key_map": area.plan.bases[0].moves(),
            "value_map": self.values.bases[0].moves(),
            "lowest": hex_float(LOWEST),
            "ln2": hex_float(LN2),
            "log2e": hex_float(LOG2E),
            "factor": factor,
            "scale_log2e": scale,
            "scale": factor or scale,
            "weights": None,
            "kv_scale": self.scalars.get("kv_scale") or self.arguments.regs.get("kv_scale"),
            "query": query_of(tile.columns, shape, self.tiles["Q"].regs()),
            **self.softmax.context(),
            **self.storage.context(),
            **self.rows.context(),
        }


def _map(function: Any) -> tuple[tuple[int, int], ...]:
    """What the function makes of a thread's number, as shifted fields."""
    return BitMap.of(function, THREAD_BITS, what="lane map").moves()
