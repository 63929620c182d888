"""Paged K and V: registers of the page look-ups, and the operands of finding and copying.

Where a page holds whole tiles, a tile has one page, one buffer resource, and a byte offset inside
the page. Where it does not, a tile lies in several pages, but each DMA instruction of a wave in
one: the wave looks up the pages of its own instructions, and the resource is made anew for each.
Either way a resource starts at its page and ends with the page's last key of the sequence, so that
rows after it arrive as zeros whatever the pool holds there.

With pages of one key each lane looks up its rows' pages and fetches from 64-bit addresses. Nothing
checks a range there: past the last key of the sequence that key stands in, whose score is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.attention.prefill.gfx950.page_plan import RingPlan, plan_pages, unit_of
from mlagen.attention.prefill.gfx950.registers import PrefillState
from mlagen.attention.prefill.gfx950.tensors import RowTensor
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Binding, Tile, Value
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl import Regs, Ring, Space
from mlagen.targets.gfx950.dsl.layout import BitMap
from mlagen.targets.gfx950.limits import GFX950


@dataclass(frozen=True, slots=True)
class Lookup:
    """The page that a tile's key `row` after its walk's start lies in: its number, and the key of
    the page that it is, where the look-up finds that too."""

    row: int
    page: Regs
    inside: Regs | None


@dataclass(frozen=True, slots=True)
class PageWalk:
    """The look-ups of a `WalkPlan` from tile to tile. `next_key`: key that this wave's part of the
    next tile starts at; `entry`: byte offset of its page in the table's row, for pages of one key
    that of each lane; `inside`: key of its page that the tile starts at. None where not needed."""

    start: BitMap
    lookups: tuple[Lookup, ...]
    next_key: Regs | None
    entry: Regs | None
    inside: Regs | None


@dataclass(frozen=True, slots=True)
class PagedArea:
    """Where an area's columns lie: in heads of `tensor` from `first_byte` on. `source`: register of
    the byte offset that a lane fetches of a page; for pages of one key, of the address that its
    bytes count from in the pool."""

    tensor: RowTensor
    source: Regs
    first_byte: int


@dataclass(frozen=True, slots=True)
class PagedRing:
    """A ring whose tiles come from pages, and the buffer resource that they are fetched through;
    none for pages of one key."""

    ring: Ring
    areas: tuple[PagedArea, ...]
    buffer: Regs | None


class Pages:
    """Page look-ups of some rings. `shared`: different waves fetch the rings, which share the
    registers then.

    Raises ScheduleError where an instruction would need two pages.
    """

    def __init__(
        self,
        k: PrefillConfig,
        s: Space,
        regs: PrefillState,
        rings: Sequence[PagedRing],
        *,
        shared: bool = False,
    ) -> None:
        self.k, self.regs, self.unit = k, regs, unit_of(k)
        self.divider = Divider.of(k.page_size)
        self.paged = {paged.ring.name: paged for paged in rings}
        self.plans = {paged.ring.name: plan_pages(paged.ring, self.unit) for paged in rings}
        self.last_entry = (
            s.registers.scalar("LASTPAGE", 1, "byte offset of the last page in the table's row")
            if self.small
            else None
        )
        plans = list(self.plans.values())
        if shared:
            held = _Registers(k, s, "", plans, self)
            self.walks = {name: held.walks(plan) for name, plan in self.plans.items()}
        else:
            self.walks = {
                name: _Registers(k, s, name, [plan], self).walks(plan)
                for name, plan in self.plans.items()
            }
        self.address = (
            s.registers.block("ADR", 2, "address that this lane fetches from", align=2).regs()
            if self.by_lane
            else None
        )

    @property
    def small(self) -> bool:
        """Whether a tile lies in several pages."""
        return self.unit < self.k.kv_block

    @property
    def by_lane(self) -> bool:
        """Whether each lane looks up its own pages."""
        return self.unit == 1

    @property
    def divided(self) -> bool:
        """Whether a tile lies in several pages that are larger than what a look-up serves."""
        return self.small and self.k.page_size > self.unit

    @property
    def buffers(self) -> tuple[Regs, ...]:
        """Every resource that pages are fetched through."""
        found = (paged.buffer for paged in self.paged.values())
        return tuple(dict.fromkeys(buffer for buffer in found if buffer is not None))

    def begin(self, rings: Sequence[Ring]) -> dict[str, Any]:
        """Operands of `prefill/begin_pages` for rings that a wave fetches."""
        addresses = [
            {
                "source": of.source,
                "byte": area.dma.byte,
                "first_byte": of.first_byte,
                "pool": self.regs.arguments[of.tensor.argument],
            }
            for ring in rings
            for area, of in zip(ring.areas, self.paged[ring.name].areas, strict=True)
        ]
        return {
            "walks": [walk for ring in rings for walk in self.walks[ring.name]],
            "addresses": addresses if self.by_lane else (),
            "last_entry": self.last_entry,
            "page_divider": self.divider,
            "page_size": self.k.page_size,
        }

    def lookup(self, ring: Ring) -> dict[str, Any]:
        """Operands of `prefill/find_pages`, or `prefill/find_rows` for pages of one key."""
        return {
            "walks": self.walks[ring.name],
            "last_entry": self.last_entry,
            "page_size": self.k.page_size,
            "page_divider": self.divider if self.divided else None,
        }

    def copy(self, ring: Ring, at: Binding) -> dict[str, Any]:
        """Operands of `prefill/copy_pages`, or `prefill/copy_rows` for pages of one key."""
        return {
            "parts": self._parts_by_lane(ring, at) if self.by_lane else self._parts(ring, at),
            "walks": self.walks[ring.name],
            "small": self.small,
            "seen_keys": self.regs.seen_keys,
            "page_size": self.k.page_size,
            "kv_block": self.k.kv_block,
            "buffer": self.paged[ring.name].buffer,
            "address": self.address,
            "lds_wave": self.regs.lds_wave,
            "scratch": self.regs.scratch,
            "temp": self.regs.temp,
        }

    def _parts(self, ring: Ring, at: Binding) -> list[dict[str, Any]]:
        """What is fetched through one resource: passes (LDS base, byte offset, source) of areas of
        one tensor, from one looked-up page."""
        paged, plan, walks = self.paged[ring.name], self.plans[ring.name], self.walks[ring.name]
        slot = ring.slot_base(at.phase)
        found: dict[tuple[int, int, RowTensor], list[tuple[int, int, Regs]]] = {}
        for area, planned, of in zip(ring.areas, plan.areas, paged.areas, strict=True):
            for lookup, rows, lds, columns in zip(
                planned.lookups, planned.rows, area.dma.lds_offsets, area.dma.byte_offsets,
                strict=True,
            ):  # fmt: skip
                offset = rows * of.tensor.row_bytes + columns
                passes = found.setdefault((planned.walk, lookup, of.tensor), [])
                passes.append((slot + area.start + lds, offset, of.source))
        parts = []
        for (number, lookup, tensor), passes in found.items():
            walk = walks[number]
            looked_up = walk.lookups[lookup]
            parts.append(
                self._operands(tensor)
                | {
                    "row": looked_up.row,
                    "page": looked_up.page,
                    "inside": looked_up.inside or walk.inside,
                    "next_key": walk.next_key,
                    "page_bytes": self.k.page_size * tensor.row_bytes,
                    "passes": passes,
                    "first_seen": self.regs.first_seen if ring.name == "V" else None,
                }
            )
        return parts

    def _parts_by_lane(self, ring: Ring, at: Binding) -> list[dict[str, Any]]:
        """What is fetched from one address: passes (LDS base, byte offset) of one area, of the same
        rows."""
        paged, plan, walks = self.paged[ring.name], self.plans[ring.name], self.walks[ring.name]
        slot, parts = ring.slot_base(at.phase), []
        for area, planned, of in zip(ring.areas, plan.areas, paged.areas, strict=True):
            passes: dict[int, list[tuple[int, int]]] = {}
            for lookup, lds, columns in zip(
                planned.lookups, area.dma.lds_offsets, area.dma.byte_offsets, strict=True
            ):
                base = slot + area.start + lds
                # The instruction's offset moves the LDS side too: M0 makes up for it.
                if columns > min(base, GFX950.global_offset_max):
                    raise ScheduleError(
                        f"ring {ring.name!r}: passes {columns} bytes apart in a row; pages of one "
                        f"key reach {min(base, GFX950.global_offset_max)}"
                    )
                passes.setdefault(lookup, []).append((base - columns, columns))
            parts += [
                self._operands(of.tensor)
                | {
                    "page": walks[planned.walk].lookups[lookup].page,
                    "source": of.source,
                    "passes": fetched,
                }
                for lookup, fetched in passes.items()
            ]
        return parts

    def _operands(self, tensor: RowTensor) -> dict[str, Any]:
        return {"pool": self.regs.arguments[tensor.argument], "row_bytes": tensor.row_bytes}


class _Registers:
    """Registers of look-ups, as many as the largest of some plans needs."""

    def __init__(
        self, k: PrefillConfig, s: Space, name: str, plans: Sequence[RingPlan], pages: Pages
    ) -> None:
        scalar = s.registers.scalar
        walks = max(len(plan.walks) for plan in plans)
        lookups = max(plan.lookups for plan in plans)
        tile = f"{name} tile".strip()
        self.next_key = self.inside = self.insides = self.entry = None
        if pages.by_lane:
            what = "byte offset of this lane's next page in the table's row"
            self.entry = s.registers.block(f"{name}ENTRY", walks, what, align=1).regs()
            what = f"pages that this lane fetches of the next {tile}"
            self.pages = s.registers.block(f"{name}PAGE", lookups, what, align=1).regs()
            return
        what = f"key of the next {tile}, or of this wave's part"
        self.next_key = scalar(f"{name}NEXT", walks, what)
        if not pages.divided:
            what = f"byte offset of its {f'{name} page'.strip()} in the table's row"
            self.entry = scalar(f"{name}ENTRY", walks, what)
        number = "page" if lookups == 1 and not pages.small else "pages"
        self.pages = scalar(f"{name}PAGE", lookups, f"{number} of the next {tile}")
        if pages.divided:
            what = f"key of its page that each part of the next {tile} starts at"
            self.insides = scalar(f"{name}IN", lookups, what)
        elif k.page_size > k.kv_block:
            what = f"key of its page that the next {tile} is at"
            self.inside = scalar(f"{name}IN", 1, what)

    def walks(self, plan: RingPlan) -> tuple[PageWalk, ...]:
        """The registers in the order of a plan."""
        found, at = [], 0
        for number, walk in enumerate(plan.walks):
            lookups = tuple(
                Lookup(row, self.pages[at + index], self.insides and self.insides[at + index])
                for index, row in enumerate(walk.rows)
            )
            at += len(walk.rows)
            found.append(
                PageWalk(
                    walk.start,
                    lookups,
                    self.next_key and self.next_key[number],
                    self.entry and self.entry[number],
                    self.inside,
                )
            )
        return tuple(found)


def page_value(ring: Ring, tile: Tile) -> Value:
    """The page numbers of a ring's tile, from their look-up to its copy."""
    return Value(f"{ring.name} page", tile)
