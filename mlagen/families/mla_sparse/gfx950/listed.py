"""Rows of sparse MLA on gfx950: those that a query's list names.

A lane looks up the index of the row that it fetches, as it looks up a page in MLA decode. For the
mask every wave loads the indices of a tile again, one a lane: which of them name a row is then a
word of 32 bits in a scalar register. Tiles whose word is full skip the mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Request
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.dsl import Binding, Signature, Tile, Value
from mlagen.families.mla_sparse.gfx950.form import (
    SETUP_NUMBERS,
    has,
    is_decode,
    refuse_products,
    signature,
)
from mlagen.targets.gfx950.dsl import Block, EntryRegisters, Regs, Space

MINUS_INFINITY = "0xff800000"


class Listed:
    """The rows of a list, or of two, one after another."""

    name, persistent, work = "listed", False, ()
    looked_up = "INDEX", "index of the row that this lane fetches"
    finding, masks = ("find_rows", "load_list"), ("mask",)

    def __init__(self, loop: LatentLoop) -> None:
        self.loop, self.k = loop, loop.k
        refuse_products(loop.k)
        self.decode, self.causal, self.extra = (
            is_decode(loop.k),
            *(has(loop.k, field) for field in ("causal", "extra")),
        )
        self.keeps_largest = not self.decode
        self.storing = ("store_partial", "store") if self.decode else ("store",)
        self.signature: Signature = signature(loop.k)
        self.loaded = self.signature

    def entry(self, s: Space) -> EntryRegisters:
        return s.entry("unit", "part of its keys", temporaries=4)

    def declare(self) -> None:
        loop, block = self.loop, self.loop.space.registers.block
        slots = 2 if loop.two_tiles else 4  # indices on their way, or held for the mask
        what = "index of the key that this lane has in the mask"
        self.listed: tuple[Block, ...] = (block("LISTED", 1, what, slots=slots, align=1),)
        self.place: tuple[Block, ...] = ()
        # What scores are masked by. Where scales of keys are loaded, keys that positions hide
        # become none there.
        self.masked: tuple[Block, ...] = self.listed
        if self.causal:
            scaled = "load_scales" in loop.storage.fetching
            what = "position of that key"
            where = block("WHERE", 1, what, slots=2 if scaled else slots, align=1)
            self.listed = (*self.listed, where)
            self.masked = self.masked if scaled else self.listed
            what = "position of the row that this lane fetches"
            slots = loop.storage.page_slots
            self.place = (block("PLACE", 1, what, slots=slots, align=1),)
        if self.extra:
            # Over numbers that the setup alone needs.
            what = "the tile's cache: its address, row_bytes .. page_gap"
            first, *_ = once = [loop.arguments[name] for name in SETUP_NUMBERS]
            spent = Regs(first.symbol, first.start, len(once), first.file)
            scalar = loop.space.registers.scalar
            loop.scalars["pool"] = scalar("POOL", len(once), what, align=2, over=spent)

    def lane(self) -> dict[str, Request]:
        return {
            "maximum": ("M", 1, "running maximum M of the row, log2 units"),
            "row_sum": ("L", 1, "row sum l of this lane's keys"),
            "key_base": ("KBASE", 1, "where this lane reads K in a slot"),
            "value_base": ("VBASE", 1, "where this lane reads V in a slot"),
            "address": ("ADR", 4, "the same in this tile's slot, by swizzled columns"),
            "places": (
                "PLACES",
                1,
                "row of a tile that this lane fetches; from bit 8 on its key in the mask",
            ),
            "output_offset": ("OOFF", 1, "byte offset of this lane's part of the output row"),
            "column": ("COLUMN", 1, "first byte that this lane fetches of a row"),
            "sink": ("SINK", 1, "sink of the row's head"),
        }

    def scalars(self) -> dict[str, tuple[str, int, str, int]]:
        held = {
            "unit": ("UNIT", 1, "first row of the unit in Q and O", 1),
            "heads_here": ("ROWS", 1, "heads of the unit", 1),
            "first_head": ("HEAD", 1, "its first one", 1),
            "keys": ("KEYS", 1, "places of the list that count", 1),
            "find_key": ("FKEY", 1, "first place of the next tile whose indices are looked up", 1),
            "list_key": ("LKEY", 1, "the same, of those that are loaded for the mask", 1),
            "mask_key": ("MKEY", 1, "the same, of the next one that is masked", 1),
            "lds_wave": ("LDSW", 1, "wave * 1024, its part of a DMA pass", 1),
            "grown": ("GROWN", 2, "-1 where some row's maximum moved", 2),
            "compare": ("COMPARE", 4, "lane masks", 2),
            "buffer": ("SRD", 4, "buffer resource of Q, then of the output", 4),
            "lse_buffer": ("SRDLSE", 4, "buffer resource of sinks, then of the LSE", 4),
            "scratch": ("TMP", 6, "scalar temporaries", 2),
        }
        if self.decode:
            held["entry"] = ("ENTRY", 1, "which sequence", 1)
            held["token"] = ("TOKEN", 1, "which of its new tokens", 1)
        if self.extra:
            held["main"] = ("MAIN", 1, "places of the tiles of the first list", 1)
            held["extra_keys"] = ("KEYS2", 1, "places of the second list that count", 1)
            if "load_scales" in self.loop.storage.fetching:
                what = "the same, of the next tile whose scales are loaded"
                held["scale_key"] = ("SKEY", 1, what, 1)
            held["copy_key"] = ("CKEY", 1, "first place of the next tile that is fetched", 1)
        if self.causal:
            held["last"] = ("LAST", 1, "the position up to which the query sees keys", 1)
        return held

    def context(self) -> Mapping[str, Any]:
        k, loop = self.k, self.loop
        groups = -(-k.num_heads // (WAVES * loop.shape.rows))
        tokens = k.q_len
        return {
            "decode": self.decode,
            "extra": self.extra,
            "causal": self.causal,
            "shared_list": has(k, "shared_list"),
            "by_tokens": Divider.of(tokens),
            "tokens": tokens,
            "split": loop.entry.group[1],
            "scale_key": loop.scalars.get("scale_key"),
            "group_shift": (groups - 1).bit_length(),
            "infinity": MINUS_INFINITY,
        }

    # ---- operations ---------------------------------------------------------------------------

    def setup(self) -> None:
        """Nothing: a workgroup has one work item."""

    def begin(self) -> None:
        """Its rows and lists, lane addresses, the state before any key."""
        for name in ("item", "lanes"):
            self.loop.record(name, None, f"rows/listed/{name}")

    def find(self, tile: Tile) -> None:
        """Look up the index, and the position, of the row that each lane fetches."""
        found = self.found(tile)
        self.loop.record("find_rows", tile, "rows/listed/find_rows", self.row, defines=found)

    def found(self, tile: Tile) -> tuple[Value, ...]:
        return tuple(block.at(tile) for block in (self.loop.page, *self.place))

    def row(self, at: Binding) -> Mapping[str, Any]:
        index, *place = (block.regs(at.phase) for block in (self.loop.page, *self.place))
        return {"index": index, "place": place[0] if place else None}

    def load_list(self, tile: Tile) -> None:
        """Load the tile's indices, and positions, for the mask."""
        self.loop.record(
            "load_list", tile, "rows/listed/load_list", lambda at: named(self.listed, at),
            defines=tuple(block.at(tile) for block in self.listed),
        )  # fmt: skip

    def mask(self, tile: Tile) -> None:
        """Scores of keys that are none become -inf."""

        def context(at: Binding) -> Mapping[str, Any]:
            return {**named(self.masked, at), "rows": self.loop.score_keys}

        uses = (Value("S", tile), *(block.at(tile) for block in self.masked))
        self.loop.record("mask", tile, "rows/listed/mask", context, uses=uses, guarded=True)


def named(listed: tuple[Block, ...], at: Binding) -> Mapping[str, Any]:
    """Registers of indices, and of positions."""
    index, *where = (block.regs(at.phase) for block in listed)
    return {"listed": index, "where": where[0] if where else None}
