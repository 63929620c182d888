"""MLA decode on gfx950 over rows that are stored in e4m3, or partly so: what differs from bf16.

Fragments of K and V come from LDS as they are stored, some reads ahead of their products. Those
that are multiplied in bf16 are converted, exactly, one product ahead. Queries of e4m3 are
multiplied with K's e4m3 as both are. P is bf16.

Rows with scales: S is multiplied by its row's before the softmax, and P after the row sum has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from mlagen.attention.latent.gfx950.queries import (
    DWORD,
    E4M3,
    Columns,
    Converted,
    widened,
)
from mlagen.attention.latent.gfx950.shape import FRAGMENT, QUAD
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.dsl import Access, Binding, Extent, Operation, Tile, Value, at_least
from mlagen.families.mla_decode.gfx950.operations import Decode
from mlagen.families.mla_decode.gfx950.stored import AHEAD, COPIES, KEYS, PAIR, SPAN, Stored
from mlagen.families.mla_decode.gfx950.work_form import WorkForm
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import Entry, Regs, Ring, Space, laid_out
from mlagen.targets.gfx950.dsl.lds import Fragment, ReadPlan

Place = tuple[Regs, int]  # address and offset of a read
# By rows of a wave.
E4M3_MFMA = {16: "v_mfma_f32_16x16x32_fp8_fp8", 32: "v_mfma_f32_32x32x64_f8f6f4"}


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product whose operand A comes from LDS by `reads`, and as it is or `converted`."""

    reads: tuple[Place, ...]
    converted: bool
    mfma: str
    target: Regs
    b: Regs
    c: Regs | int


Products = Callable[[Regs], Sequence[Product]]  # by the registers of the tile's scores


class StoredDecode(Decode):
    """The operations of one kernel over its ring and the schedule's register tiles: S, O, Q, the
    bands KB and VB, WIDE and, where rows have scales, SCALES."""

    def __init__(
        self, k: MlaDecodeConfig, s: Space, entry: Entry, ring: Ring, stored: Stored, form: WorkForm
    ) -> None:
        self.stored = stored
        super().__init__(k, s, entry, ring, stored.shape, form)
        if k.rope_aware and s.plain is not None:
            at = s.plain.tile.index(self._masks()[0])
            before, after = s.plain.tile[:at], s.plain.tile[at:]
            s.plain = replace(s.plain, tile=(*before, "scale_scores", *after))

    def _lane(self) -> dict[str, tuple[str, int, str]]:
        held = super()._lane()
        if self.k.rope_aware_queries:
            held["factor"] = ("FACTOR", 1, "what makes the row's dot products log2 units")
        return held

    def columns(self) -> tuple[Columns, ...]:
        return self.stored.columns

    def value_fragments(self) -> list[Fragment]:
        return self.stored.value_fragments()

    @property
    def page_slots(self) -> int:
        return self.ring.slots

    @property
    def keys(self) -> int:
        return KEYS

    # ---- extents ----------------------------------------------------------------------------

    def _check_ring(self) -> None:
        stored = self.stored
        areas = [(KEYS, SPAN)] * stored.spans
        extra, width = stored.scale_bytes, stored.key_read
        laid_out(self.ring, areas, waves=WAVES, width=width, extra=extra)

    def _extents(self) -> dict[str, Extent]:
        found = super()._extents()
        if any(run.key != run.product for run in self.stored.columns) or self.converts_values:
            what = "operands that converted numbers take in turn"
            found["WIDE"] = at_least("registers", AHEAD * FRAGMENT, what)
        if self.stored.scale_bytes:
            found["SCALES"] = at_least("registers", 1, "scales of some keys")
        return found

    @property
    def converts_values(self) -> bool:
        """Whether V is multiplied in bf16."""
        return True

    @property
    def _band_unit(self) -> int:
        """Reads that make one operand lie side by side."""
        return max(run.pieces for run in self.stored.columns) * self.stored.key_read // DWORD

    @property
    def _score_registers(self) -> int:
        return self.stored.score_registers

    # ---- once a tile ------------------------------------------------------------------------

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T, the blocks of keys in turn."""
        return self._stream(
            "qk", tile, "KB", self._key_products,
            uses=(Value("KB", tile),), defines=(Value("S", tile),),
        )  # fmt: skip

    def read_values(self, tile: Tile) -> None:
        """The first reads of V from LDS."""
        self._record(
            "read_values", tile, self._first("value", "VB", self.values, self._value_products),
            template="read", access=self._read(tile), defines=(Value("VB", tile),),
        )  # fmt: skip

    def softmax(self, tile: Tile) -> None:
        """The tile's P, packed; O and l follow the maximum where it moved."""
        if self.k.rope_aware:
            self._record(
                "scale_scores", tile, self._scales, access=self._read(tile),
                uses=(Value("S", tile),), defines=(Value("SCALES", tile),),
            )  # fmt: skip
        super().softmax(tile)

    def exponent(self, tile: Tile) -> Operation:
        """P, its row sum, and P times its row's scale where rows have scales."""
        if not self.k.rope_aware:
            return super().exponent(tile)
        return self._record(
            "exponent", tile, self._scales, access=self._read(tile),
            uses=(Value("S", tile), Value("SCALES", tile)),
        )  # fmt: skip

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P."""
        return self._stream(
            "pv", tile, "VB", self._value_products, uses=(Value("S", tile), Value("VB", tile)),
        )  # fmt: skip

    # ---- products ---------------------------------------------------------------------------

    def _key_products(self, s: Regs) -> list[Product]:
        """Those of a tile whose scores are `s`."""
        shape, queries = self.shape, self.operands["query"].operands
        types = [run for run in self.stored.columns for _ in range(run.steps(shape))]
        found = []
        for step, block, reads in self.stored.key_reads():
            target = s.part(block, shape.result)
            run = types[step]
            found.append(
                Product(
                    tuple(self._key_place(a, n) for a, n in reads),
                    run.key != run.product,
                    E4M3_MFMA[shape.rows] if run.product == E4M3 else shape.mfma,
                    target,
                    queries[step],
                    target if step else 0,
                )
            )
        return found

    def _value_products(self, p: Regs) -> list[Product]:
        """Those of a tile whose P is `p`: all columns by the first keys, then by the next."""
        shape = self.shape
        steps, in_area = KEYS // shape.step, SPAN // shape.rows
        found = []
        for step in range(steps):
            for block in range(self.k.d_v // shape.rows):
                target = self._output(block)
                number = block % in_area * steps + step
                place = self._value_place(block // in_area, number)
                b = p.part(step, FRAGMENT)
                found.append(Product((place,), True, shape.mfma, target, b, target))
        return found

    def _read_of(self, band: str) -> tuple[str, int]:
        """A read from LDS of a band, and the registers that it takes."""
        if band == "VB":
            return "ds_read_b64_tr_b8", PAIR
        width = self.stored.key_read
        return f"ds_read_b{8 * width}", width // DWORD

    def _key_place(self, area: int, number: int) -> Place:
        base, offset = self.ring.areas[area].plan.reads[number]
        return self._addresses("key")[base], self.ring.areas[area].start + offset

    def _value_place(self, area: int, number: int) -> Place:
        base, offset = self.values.reads[number]
        return self._addresses("value")[base], self.ring.areas[area].start + offset

    def _stream(
        self, name: str, tile: Tile, band: str, products: Products, **more: Any
    ) -> Operation:
        """The products in order, with all that feeds them."""

        def context(at: Binding) -> dict[str, Any]:
            fed = list(self._fed(band, products(self.tiles["S"].regs(at.phase))))
            return {"mnemonic": self._read_of(band)[0], "products": fed}

        return self._record(
            name, tile, context, template="stored_products", access=self._read(tile), **more
        )

    def _fed(self, band: str, products: Sequence[Product]) -> Iterator[dict[str, Any]]:
        """Each product with the conversions before it, one product ahead, and after it the reads
        that take the registers which were read by then."""
        held = self.tiles[band].regs()
        convert = any(product.converted for product in products)
        wide = self.tiles["WIDE"].regs() if convert else held
        places = [place for product in products for place in product.reads]
        first = [0, *accumulate(len(product.reads) for product in products)]
        width = self._read_of(band)[1]
        begun, issued = 0, len(held) // width
        for n, product in enumerate(products):
            conversions: list[Converted] = []
            while begun < min(n + AHEAD, len(products)):
                if products[begun].converted:
                    raw = _ring(held, width, first[begun], first[begun + 1])
                    conversions += widened(wide.part(begun % AHEAD, FRAGMENT), raw)
                begun += 1
            following = n + 1 < len(products) and products[n + 1].converted
            room = first[n + 2 if following else n + 1] + len(held) // width
            room = min(room, len(places))
            yield {
                "converted": conversions,
                "mfma": product.mfma,
                "target": product.target,
                "a": wide.part(n % AHEAD, FRAGMENT)
                if product.converted
                else _ring(held, width, first[n], first[n + 1]),
                "b": product.b,
                "c": product.c,
                "refill": [
                    (_ring(held, width, read, read + 1), *places[read])
                    for read in range(issued, room)
                ],
            }
            issued = room

    # ---- LDS --------------------------------------------------------------------------------

    def _mover(self, kind: Literal["copy", "read", "release"], tile: Tile) -> Operation:
        if kind == "copy":
            return self._operation(
                "copy", tile, self._copy, template="copy_stored",
                access=Access("copy", self.ring.at(tile)), uses=(self.page.at(tile),),
            )  # fmt: skip
        plan = self.ring.areas[0].plan
        return self._operation(
            "read", tile, self._first("key", "KB", plan, self._key_products),
            access=self._read(tile), defines=(Value("KB", tile),),
        )  # fmt: skip

    def _copy(self, at: Binding) -> dict[str, Any]:
        """Passes (M0, offset), one for each area; and M0 of the scales, 4 bytes a lane."""
        slot = self.ring.slot_base(at.phase)
        areas = enumerate(self.ring.areas)
        return {
            "page": self.page.regs(at.phase),
            "passes": [(slot + area.start - SPAN * n, SPAN * n) for n, area in areas],
            "scales_at": slot + self.ring.extra_start if self.ring.extra else None,
        }

    def _first(self, name: str, band: str, plan: ReadPlan, products: Products) -> Any:
        """This tile's addresses, and the first reads."""
        held = self.tiles[band].regs()
        mnemonic, width = self._read_of(band)
        places = [place for product in products(self.tiles["S"].regs()) for place in product.reads]

        def context(at: Binding) -> dict[str, Any]:
            return {
                "base": self.lane[f"{name}_base"],
                "address": self._addresses(name),
                "slot": self.ring.slot_base(at.phase),
                "columns": [base.constant for base in plan.bases],
                "mnemonic": mnemonic,
                "reads": [
                    (_ring(held, width, n, n + 1), *place)
                    for n, place in enumerate(places[: len(held) // width])
                ],
            }

        return context

    def _scales(self, at: Binding) -> dict[str, Any]:
        """A tile's scales in LDS; which registers of S they go with, as many at once as there are
        registers for."""
        held, scores = self.tiles["SCALES"].regs(), self.tiles["S"].regs()
        every = range(len(scores))
        return {
            "scales": held,
            "scales_at": self.ring.slot_base(at.phase) + self.ring.extra_start,
            "part_stride": QUAD * COPIES * 4,
            "groups": [
                [(r, self.stored.scale_offset(r)) for r in every[first : first + len(held)]]
                for first in range(0, len(scores), len(held))
            ],
        }


def _ring(held: Regs, width: int, first: int, stop: int) -> Regs:
    """The registers of reads first .. stop - 1, of `width` each, which a band takes in turn."""
    at = width * first % len(held)
    return held[at : at + width * (stop - first)]
