"""Top-k sparse MLA on gfx950: the loop over latent rows, over those that lists name.

A lane looks up the index of the row that it fetches, as it looks up a page in MLA decode. For the
mask every wave loads the indices of a tile again, one a lane: which of them name a row is then a
word of 32 bits in a scalar register. Tiles whose word is full skip the mask.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.shape import Shape
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.dsl import Binding, Signature, Tile, Value
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.gfx950.form import (
    SETUP_NUMBERS,
    Problem,
    has,
    is_decode,
    rows_of,
    signature,
)
from mlagen.targets.gfx950.dsl import Entry, Regs, Ring, Space

OWN = (
    "item", "lanes", "copy", "fetch", "convert", "load_scales", "scale_scores",
    "exponent_scaled", "find_rows", "load_list", "mask", "maximum_seldom", "normalise",
    "store_partial", "store",
)  # fmt: skip
BY_KEY = ("e4m3_row", "rope_aware")  # rows with one scale, beside the cache
MINUS_INFINITY = "0xff800000"


class Sparse(LatentLoop):
    """The operations of one sparse kernel over its ring and the schedule's register tiles."""

    list_slots = 4  # tiles whose indices are on their way, or held for the mask
    looked_up = "INDEX", "index of the row that this lane fetches"
    templates = MappingProxyType(dict.fromkeys(OWN, "mla_sparse"))

    def __init__(self, k: Problem, s: Space, entry: Entry, ring: Ring, shape: Shape) -> None:
        super().__init__(k, s, entry, ring, shape)
        rows = rows_of(k, s)
        if rows != shape.rows:  # the host counts workgroups by the knob
            raise ConfigError(f"rows={rows}: this table is that of {shape.rows} heads a wave")
        block = s.registers.block
        what = "index of the key that this lane has in the mask"
        self.listed = block("LISTED", 1, what, slots=self.list_slots, align=1)
        if has(k, "causal"):
            what = "position of that key"
            self.where = block("WHERE", 1, what, slots=self.where_slots, align=1)
            what = "position of the row that this lane fetches"
            self.place = block("PLACE", 1, what, slots=self.page_slots, align=1)
        if has(k, "extra"):
            # Over numbers that the setup alone needs.
            what = "the tile's cache: its address, row_bytes .. page_gap"
            first, *_ = once = [self.arguments[name] for name in SETUP_NUMBERS]
            spent = Regs(first.symbol, first.start, len(once), first.file)
            self.scalars["pool"] = s.registers.scalar("POOL", len(once), what, align=2, over=spent)

    # ---- what is this problem's own -----------------------------------------------------------

    def _signature(self) -> Signature:
        return signature(self.k)

    def _finding(self) -> tuple[str, ...]:
        return "find_rows", "load_list"

    def _masks(self) -> tuple[str, ...]:
        return ("mask",)

    def _storing(self) -> tuple[str, ...]:
        return ("store_partial", "store") if is_decode(self.k) else ("store",)

    def _lane(self) -> dict[str, tuple[str, int, str]]:
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

    def _scalars(self) -> dict[str, tuple[str, int, str, int]]:
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
        if is_decode(self.k):
            held["entry"] = ("ENTRY", 1, "which sequence", 1)
            held["token"] = ("TOKEN", 1, "which of its new tokens", 1)
        if has(self.k, "extra"):
            held["main"] = ("MAIN", 1, "places of the tiles of the first list", 1)
            held["extra_keys"] = ("KEYS2", 1, "places of the second list that count", 1)
            if self.k.rows in BY_KEY:
                what = "the same, of the next tile whose scales are loaded"
                held["scale_key"] = ("SKEY", 1, what, 1)
            held["copy_key"] = ("CKEY", 1, "first place of the next tile that is fetched", 1)
        if has(self.k, "causal"):
            held["last"] = ("LAST", 1, "the position up to which the query sees keys", 1)
        return held

    def _problem(self) -> dict[str, Any]:
        k = self.k
        groups = -(-k.num_heads // (WAVES * self.shape.rows))
        return {
            "decode": is_decode(k),
            "extra": has(k, "extra"),
            "causal": has(k, "causal"),
            "shared_list": has(k, "shared_list"),
            "by_tokens": Divider.of(getattr(k, "q_len", 1)),
            "tokens": getattr(k, "q_len", 1),
            "split": self.entry.group[1],
            "group_shift": (groups - 1).bit_length(),
            "infinity": MINUS_INFINITY,
        }

    # ---- once a tile ----------------------------------------------------------------------------

    def find_rows(self, tile: Tile) -> None:
        """Look up the index, and the position, of the row that each lane fetches."""
        self._record("find_rows", tile, self._row, defines=self._found(tile))

    def _found(self, tile: Tile) -> tuple[Value, ...]:
        place = (self.place.at(tile),) if has(self.k, "causal") else ()
        return (*super()._found(tile), *place)

    def _row(self, at: Binding) -> dict[str, Any]:
        place = self.place.regs(at.phase) if has(self.k, "causal") else None
        return {"index": self.page.regs(at.phase), "place": place}

    def load_list(self, tile: Tile) -> None:
        """Load the tile's indices, and positions, for the mask."""
        blocks = self._loaded_for_mask
        self._record("load_list", tile, self._listed, defines=tuple(b.at(tile) for b in blocks))

    def mask(self, tile: Tile) -> None:
        """Scores of keys that are none become -inf."""
        uses = (Value("S", tile), *(block.at(tile) for block in self._masked_by))
        self._record("mask", tile, self._mask, uses=uses, guarded=True)

    @property
    def where_slots(self) -> int:
        """Tiles whose positions are on their way, or held for the mask."""
        return self.list_slots

    @property
    def _loaded_for_mask(self) -> tuple[Any, ...]:
        return (self.listed, self.where) if has(self.k, "causal") else (self.listed,)

    @property
    def _masked_by(self) -> tuple[Any, ...]:
        return self._loaded_for_mask

    def _listed(self, at: Binding) -> dict[str, Any]:
        where = self.where.regs(at.phase) if has(self.k, "causal") else None
        return {"listed": self.listed.regs(at.phase), "where": where}

    def _mask(self, at: Binding) -> dict[str, Any]:
        return {**self._listed(at), "rows": self.score_keys}

    def _copy(self, at: Binding) -> dict[str, Any]:
        return {**self._row(at), "passes": super()._copy(at)["passes"]}
