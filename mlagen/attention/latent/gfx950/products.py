"""The products S^T = K Q^T and O^T = V^T P over latent rows on gfx950, and what feeds them.

Operands of K and of V come from LDS as they lie there, some reads ahead of their products, in a
band of registers each that they take in turn. Numbers of e4m3 that are multiplied in bf16 are
converted, exactly, one product ahead; where queries are e4m3, too, both are multiplied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mlagen.attention.latent.gfx950.loop import LatentLoop
from mlagen.attention.latent.gfx950.parts import Context
from mlagen.attention.latent.gfx950.queries import (
    BF16,
    DWORD,
    E4M3,
    Converted,
    query_registers,
    widened,
)
from mlagen.attention.latent.gfx950.shape import FRAGMENT, HALF
from mlagen.dsl import Binding, Extent, Operation, Tile, Value, at_least, exactly
from mlagen.targets.gfx950.dsl import Regs
from mlagen.targets.gfx950.dsl.lds import ReadPlan

AHEAD = 2  # operands of bf16 that converted numbers take in turn
MOST = 256  # registers of a file
E4M3_MFMA = {16: "v_mfma_f32_16x16x32_fp8_fp8", 32: "v_mfma_f32_32x32x64_f8f6f4"}  # by rows
Place = tuple[Regs, int]  # address and offset of a read


@dataclass(frozen=True, slots=True)
class LdsProduct:
    """A matrix product whose operand A comes from LDS by `reads`, and as it is or `converted`."""

    reads: tuple[Place, ...]
    converted: bool
    mfma: str
    target: Regs
    b: Regs
    c: Regs | int


class Bf16Products:
    """P is bf16, and so is what V is multiplied as."""

    multiplied = BF16

    def __init__(self, loop: LatentLoop) -> None:
        self.loop = loop

    def extents(self) -> dict[str, Extent]:
        """Scores of a tile, all columns of Q, and bands of whole operands, of V no fewer than of
        K."""
        tile = self.loop.storage.tile
        unit = max(run.pieces for run in tile.columns) * tile.key_read // DWORD
        bands, held = range(unit, MOST + 1, unit), len(self.loop.tiles["KB"].regs())
        found = {
            "S": exactly("registers", tile.score_registers, "scores of a tile"),
            "Q": exactly("registers", self.query_registers, "a row's columns"),
            "KB": exactly("registers", bands, "whole reads of K"),
            "VB": exactly("registers", [n for n in bands if n >= held], "as many reads as of K"),
        }
        if self._converts_values or any(run.key != run.product for run in tile.columns):
            what = "operands that converted numbers take in turn"
            found["WIDE"] = at_least("registers", AHEAD * FRAGMENT, what)
        return found

    @property
    def query_registers(self) -> int:
        """Registers of a row's columns."""
        return query_registers(self.loop.storage.tile.columns, self.loop.shape)

    @property
    def _converts_values(self) -> bool:
        return self.loop.storage.tile.columns[0].key != self.multiplied

    # ---- operations ---------------------------------------------------------------------------

    def load_queries(self) -> None:
        """A wave's rows of Q, as operand B."""
        columns = self.loop.storage.tile.columns
        plain = all(run.key == run.query == BF16 for run in columns)
        template = "load_queries" if plain else "load_quantized_queries"
        self.loop.record("load_queries", None, f"products/{template}")

    def read(self, tile: Tile) -> Operation:
        """The first reads of K from LDS."""
        loop = self.loop
        context = self._first("key", "KB", loop.ring.areas[0].plan, self._key_products)
        return loop.operation(
            "read", tile, "products/read", context, access=loop.read(tile),
            defines=(Value("KB", tile),),
        )  # fmt: skip

    def read_values(self, tile: Tile) -> None:
        """The first reads of V."""
        loop = self.loop
        context = self._first("value", "VB", loop.values, self._value_products)
        loop.record(
            "read_values", tile, "products/read", context, access=loop.read(tile),
            defines=(Value("VB", tile),),
        )  # fmt: skip

    def qk(self, tile: Tile) -> Operation:
        """S^T = K Q^T, the blocks of keys in turn."""
        uses, defines = (Value("KB", tile),), (Value("S", tile),)
        return self._stream("qk", tile, "KB", self._key_products, uses=uses, defines=defines)

    def pv(self, tile: Tile) -> Operation:
        """O^T += V^T P."""
        uses = (Value("S", tile), Value("VB", tile))
        return self._stream("pv", tile, "VB", self._value_products, uses=uses)

    # ---- their products -----------------------------------------------------------------------

    def _key_products(self, scores: Regs) -> list[LdsProduct]:
        """Those of a tile whose scores are `scores`."""
        loop, shape = self.loop, self.loop.shape
        queries = loop.context["query"].operands
        found = []
        for step, run, block, places in loop.storage.tile.key_products():
            target = scores.part(block, shape.result)
            reads = tuple(self._place("key", loop.ring.areas[a].plan, a, n) for a, n in places)
            converted, c = run.key != run.product, target if step else 0
            mfma = self._mfma(run.product)
            found.append(LdsProduct(reads, converted, mfma, target, queries[step], c))
        return found

    def _value_products(self, p: Regs) -> list[LdsProduct]:
        """Those of a tile whose P is `p`."""
        tile = self.loop.storage.tile
        converted, mfma = self._converts_values, self._mfma(self.multiplied)
        found = []
        for block, part, places in tile.value_products(self.loop.k.d_v):
            reads = tuple(self._place("value", self.loop.values, a, n) for a, n in places)
            target, b = self.loop.output.block(block), p.part(part, tile.value_part)
            found.append(LdsProduct(reads, converted, mfma, target, b, target))
        return found

    def _mfma(self, element: str) -> str:
        shape = self.loop.shape
        return E4M3_MFMA[shape.rows] if element == E4M3 else shape.mfma

    def _place(self, name: str, plan: ReadPlan, area: int, number: int) -> Place:
        base, offset = plan.reads[number]
        return self.loop.addresses(name)[base], self.loop.ring.areas[area].start + offset

    def _read_of(self, band: str) -> tuple[str, int]:
        """A read from LDS of a band, and the registers that it takes."""
        tile = self.loop.storage.tile
        if band == "VB":
            return tile.value_read, HALF
        return f"ds_read_b{8 * tile.key_read}", tile.key_read // DWORD

    # ---- what feeds them ----------------------------------------------------------------------

    def _first(
        self, name: str, band: str, plan: ReadPlan, products: Callable[[Regs], Sequence[LdsProduct]]
    ) -> Context:
        """This tile's addresses, and the first reads."""
        loop = self.loop
        held = loop.tiles[band].regs()
        mnemonic, width = self._read_of(band)

        def context(at: Binding) -> dict[str, Any]:
            places = [place for one in products(loop.tiles["S"].regs()) for place in one.reads]
            return {
                "base": loop.lane[f"{name}_base"],
                "address": loop.addresses(name),
                "slot": loop.ring.slot_base(at.phase),
                "columns": [base.constant for base in plan.bases],
                "mnemonic": mnemonic,
                "reads": [
                    (_ring(held, width, n, n + 1), *place)
                    for n, place in enumerate(places[: len(held) // width])
                ],
            }

        return context

    def _stream(
        self, name: str, tile: Tile, band: str, products: Callable[[Regs], Sequence[LdsProduct]],
        **more: Any,
    ) -> Operation:  # fmt: skip
        """The products in order, with all that feeds them."""
        loop = self.loop

        def context(at: Binding) -> dict[str, Any]:
            fed = list(self._fed(band, products(loop.tiles["S"].regs(at.phase))))
            return {"mnemonic": self._read_of(band)[0], "products": fed}

        return loop.record(name, tile, "products/products", context, access=loop.read(tile), **more)

    def _fed(self, band: str, products: Sequence[LdsProduct]) -> Iterator[dict[str, Any]]:
        """Each product with the conversions before it, one product ahead, and after it the reads
        that take the registers which were read by then."""
        held = self.loop.tiles[band].regs()
        convert = any(product.converted for product in products)
        wide = self.loop.tiles["WIDE"].regs() if convert else held
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


class E4m3Products(Bf16Products):
    """P, V, K and Q are multiplied as e4m3; nothing is converted but P. A lane's scores, packed,
    are its P, four keys a register; the bytes that transposing reads bring of V have the same keys
    in the same order."""

    multiplied = E4M3


def _ring(held: Regs, width: int, first: int, stop: int) -> Regs:
    """The registers of reads first .. stop - 1, of `width` each, which a band takes in turn."""
    at = width * first % len(held)
    return held[at : at + width * (stop - first)]
