"""Top-k sparse MLA on gfx950 over rows of e4m3: what differs from bf16.

A tile's rows are loaded to accumulation registers, and from there stored in LDS as bf16: each
number is converted once for all waves, and what follows is that of bf16 rows. With one scale for a
key, S is multiplied by it before the softmax, and P after the row sum has it. Each lane loads the
scale of one key; the lanes that have its score take it from there.
"""

from __future__ import annotations

from typing import Any, Literal

from mlagen.attention.latent.gfx950.shape import Shape
from mlagen.dsl import Access, Binding, Extent, Operation, Tile, Value, at_least
from mlagen.families.mla_sparse.gfx950.form import Problem
from mlagen.families.mla_sparse.gfx950.operations import Sparse
from mlagen.families.mla_sparse.gfx950.stored import Stored, numbered
from mlagen.targets.gfx950.dsl import Entry, Ring, Space

WIDE = 8  # registers in which numbers are converted


class FedSparse(Sparse):
    """The operations over the register tiles RAW, a tile's rows as they are stored, and WIDE, eight
    registers in which they are converted, and in which scales of keys wait for their weights."""

    def __init__(
        self, k: Problem, s: Space, entry: Entry, ring: Ring, shape: Shape, stored: Stored
    ) -> None:
        self.stored = stored
        super().__init__(k, s, entry, ring, shape)
        if stored.by_key:
            what = "scale of the key that this lane has in the mask"
            self.scales = s.registers.block("SCALES", 1, what, slots=2, align=1)

    def _extents(self) -> dict[str, Extent]:
        stored = at_least("registers", self.stored.registers, "a tile's rows as they are stored")
        wide = at_least("registers", WIDE, "numbers in conversion")
        return {**super()._extents(), "RAW": stored, "WIDE": wide}

    @property
    def page_slots(self) -> int:
        return 2

    @property
    def where_slots(self) -> int:
        """Where scales of keys are loaded, keys that positions hide become none there."""
        return 2 if self.stored.by_key else self.list_slots

    @property
    def _masked_by(self) -> tuple[Any, ...]:
        return (self.listed,) if self.stored.by_key else super()._masked_by

    def _mask(self, at: Binding) -> dict[str, Any]:
        found = super()._mask(at)
        return {**found, "where": None} if self.stored.by_key else found

    def _finding(self) -> tuple[str, ...]:
        more = ("load_scales",) if self.stored.by_key else ()
        return (*super()._finding(), "fetch", *more)

    def _masks(self) -> tuple[str, ...]:
        more = ("scale_scores",) if self.stored.by_key else ()
        return (*more, *super()._masks())

    def _problem(self) -> dict[str, Any]:
        stored = self.stored
        return {
            **super()._problem(),
            "stored": stored,
            "RAW": self.tiles["RAW"].regs(),
            "WIDE": self.tiles["WIDE"].regs(),
            "loads": [(numbered(self.tiles["RAW"].regs(), load), load) for load in stored.loads],
        }

    # ---- once a tile ----------------------------------------------------------------------------

    def fetch(self, tile: Tile) -> None:
        """Load a tile's rows, as they are stored, to registers."""
        self._record(
            "fetch", tile, self._row, uses=self._found(tile), defines=(Value("RAW", tile),),
        )  # fmt: skip

    def load_scales(self, tile: Tile) -> None:
        """Load the scale of the key that each lane has in the mask, where keys have one."""
        if not self.stored.by_key:
            return

        def context(at: Binding) -> dict[str, Any]:
            return {**self._listed(at), "scales": self.scales.regs(at.phase)}

        self._record(
            "load_scales", tile, context, uses=tuple(b.at(tile) for b in self._loaded_for_mask),
            defines=(self.scales.at(tile),),
        )  # fmt: skip

    def mask(self, tile: Tile) -> None:
        """Scores times the scales of their keys, where these have one; then as of bf16 rows."""
        if self.stored.by_key:

            def context(at: Binding) -> dict[str, Any]:
                return {"scales": self.scales.regs(at.phase), "rows": self.score_keys}

            self._record(
                "scale_scores", tile, context, uses=(Value("S", tile), self.scales.at(tile)),
                defines=(Value("WIDE", tile),),
            )  # fmt: skip
        super().mask(tile)

    def exponent(self, tile: Tile) -> Operation:
        """P, its sum, and P packed; before that times the scales of keys."""
        if not self.stored.by_key:
            return super().exponent(tile)
        return self._record(
            "exponent", tile, uses=(Value("S", tile), Value("WIDE", tile)),
            template="exponent_scaled",
        )  # fmt: skip

    # ---- LDS ------------------------------------------------------------------------------------

    def _mover(self, kind: Literal["copy", "read", "release"], tile: Tile) -> Operation:
        if kind != "copy":
            return super()._mover(kind, tile)
        return self._operation(
            "copy", tile, self._converted, access=Access("copy", self.ring.at(tile)),
            uses=(Value("RAW", tile),), template="convert",
        )  # fmt: skip

    def _converted(self, at: Binding) -> dict[str, Any]:
        raw, before = self.tiles["RAW"].regs(), None
        areas = []
        for area, place in zip(self.stored.areas, self.ring.areas, strict=True):
            known, before = (area.scale, area.bit) == before, (area.scale, area.bit)
            areas.append(
                {
                    "at": place.start,
                    "rope": raw[area.raw : area.raw + 4] if area.rope else None,
                    "words": list(raw[area.raw : area.raw + 2]),
                    "scaled": area.scale is not None,
                    "scale": None if area.scale is None or known else raw[area.scale],
                    "bit": area.bit,
                }
            )
        return {"slot": self.ring.slot_base(at.phase), "areas": areas}
