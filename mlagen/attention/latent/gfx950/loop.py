"""Attention to latent rows on gfx950: the operations of the loop, and the registers they share.

A lane has one query row, its row sum over a part of the keys, and a part of its output (`Shape`).
With tiles in their order, M' = max(M, c max S), O and the row sum l follow by exp2(M - M') where
the maximum of some row moved, P = exp2(c S - M'). M starts at the lowest finite number: a row that
sees nothing of a tile has -inf minus a number there, which makes P = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from mlagen.attention.latent.gfx950.queries import (
    BF16 as PLAIN,
)
from mlagen.attention.latent.gfx950.queries import (
    Columns,
    query_of,
    query_registers,
)
from mlagen.attention.latent.gfx950.shape import FRAGMENT, HALF, QUAD, Shape
from mlagen.attention.latent.gfx950.sizes import BF16, ELEMENT_BYTES, KEYS, SPAN, VECTOR, WAVES
from mlagen.attention.prefill.gfx950.arguments import argument_registers
from mlagen.attention.prefill.gfx950.float_literals import LN2, LOG2E, LOWEST, hex_float
from mlagen.dsl import (
    Access,
    Binding,
    Extent,
    Operation,
    PlainOrder,
    Signature,
    Tile,
    Value,
    bind,
    exactly,
    record,
)
from mlagen.targets.gfx950.dsl import Entry, Regs, Ring, Space, laid_out
from mlagen.targets.gfx950.dsl.layout import BitMap
from mlagen.targets.gfx950.dsl.lds import Fragment, ReadPlan, plan_reads

THREAD_BITS = 8
MOST = 256  # registers of a file
Reading = list[tuple[Regs, Regs, int]]  # registers, address, offset


class LatentLoop(ABC):
    """The operations of one kernel over its ring and the schedule's register tiles: S, O, Q and the
    bands KB and VB. `accumulated`: quads of O in accumulation registers; `looked_up`: the register
    of where a lane finds the row that it fetches; `templates`: folders of a family's own.

    What a problem has of its own are the methods up to `_problem`."""

    accumulated: tuple[Regs, ...] = ()
    looked_up: tuple[str, str]
    templates: Mapping[str, str] = {}

    def __init__(self, k: Any, s: Space, entry: Entry, ring: Ring, shape: Shape) -> None:
        self.k, self.entry, self.ring, self.tiles = k, entry, ring, s.registers
        self.shape = shape
        s.signature = self._signature()
        self.arguments = argument_registers(s, self._loaded(s.signature))
        self._check_ring()
        self._check_tiles()
        self.values = plan_reads(ring.areas[0].layout, self.value_fragments(), 8)
        self.band = len(self.tiles["KB"].regs()) // FRAGMENT
        name, what = self.looked_up
        self.page = s.registers.block(name, 1, what, slots=self.page_slots, align=1)
        self.lane = {
            name: s.registers.block(symbol, count, what, align=2 if count > 1 else 1).regs()
            for name, (symbol, count, what) in (self._lane() | self._more_lane()).items()
        }
        self.scalars = {
            name: s.registers.scalar(symbol, count, what, align=align)
            for name, (symbol, count, what, align) in self._scalars().items()
        }
        before, item = self._before(("item", "lanes", "load_queries"))
        s.plain = PlainOrder(
            before=before,
            item=item,
            tile=(
                *self._finding(),
                *("copy KV", "read KV", "qk", "read_values"),
                *self._masks(),
                *("maximum", "rescale", "exponent", "pv"),
            ),
            after=("normalise", *self._storing()),
        )
        bind(ring, self._mover)

    @property
    def page_slots(self) -> int:
        """Tiles whose rows are looked up, or on their way; the loop is unrolled by it and by the
        ring."""
        return 4

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return KEYS

    def columns(self) -> tuple[Columns, ...]:
        """A row's columns, as cache and queries store them."""
        return (Columns(self.k.d_qk, PLAIN, self.k.dtype),)

    def value_fragments(self) -> list[Fragment]:
        """V in an area of the ring, as operand A."""
        return self.shape.value_fragments()

    # ---- extents --------------------------------------------------------------------------------

    def _check_ring(self) -> None:
        """Checks the tile in LDS: spans of the columns of all keys, as the copies land there."""
        spans = sum(run.count * BF16 for run in self.columns()) // SPAN
        laid_out(self.ring, [(self.keys, SPAN)] * spans, waves=WAVES, width=VECTOR)

    def _check_tiles(self) -> None:
        """Checks the schedule's register tiles against what operations touch of them."""
        for name, extent in self._extents().items():
            self.tiles.taken(name, extent)

    def _extents(self) -> dict[str, Extent]:
        """What operations touch of the schedule's register tiles, by name: scores of a tile, all
        columns of O and of Q, and bands of whole fragments, of V no fewer than of K."""
        shape, columns = self.shape, self.columns()
        bands = band_sizes(self._band_unit)
        held = len(self.tiles["KB"].regs())
        return {
            "S": exactly("registers", self._score_registers, "scores of a tile"),
            **self._output_extents(self.k.d_v // shape.parts),
            "Q": exactly("registers", query_registers(columns, shape), "a row's columns"),
            "KB": exactly("registers", bands, "whole reads of K"),
            "VB": exactly("registers", [n for n in bands if n >= held], "as many reads as of K"),
        }

    @property
    def _band_unit(self) -> int:
        """Registers that belong together in a band."""
        return FRAGMENT

    @property
    def _score_registers(self) -> int:
        return self.shape.score_registers

    def _output_extents(self, columns: int) -> dict[str, Extent]:
        """Where the `columns` of O lie that a lane has."""
        return {"O": exactly("registers", columns, "a lane's columns")}

    @abstractmethod
    def _signature(self) -> Signature:
        """What the host passes."""

    def _loaded(self, made: Signature) -> Signature:
        """The arguments that the kernel itself loads."""
        return made

    def _before(self, begin: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What comes once a workgroup, and once an item of those that have several."""
        return begin, ()

    @abstractmethod
    def _finding(self) -> tuple[str, ...]:
        """What looks up where a tile's rows lie."""

    @abstractmethod
    def _masks(self) -> tuple[str, ...]:
        """What hides scores."""

    @abstractmethod
    def _storing(self) -> tuple[str, ...]:
        """What stores a work item's results."""

    @abstractmethod
    def _lane(self) -> dict[str, tuple[str, int, str]]:
        """Row state and addresses."""

    def _more_lane(self) -> dict[str, tuple[str, int, str]]:
        """What shapes add to it."""
        return {}

    @abstractmethod
    def _scalars(self) -> dict[str, tuple[str, int, str, int]]:
        """Those of a work item, and temporaries."""

    @abstractmethod
    def _problem(self) -> dict[str, Any]:
        """What templates may name of the problem and of the work item."""

    @cached_property
    def operands(self) -> Mapping[str, Any]:
        """What the templates of all operations may name."""
        k = self.k
        dma = self.ring.areas[0].dma
        columns = self.columns()
        return {
            **self._problem(),
            "thread": self.entry.temp[0],
            **self.lane,
            **self.scalars,
            "items": self.entry.items,
            "item": self.entry.item,
            "arguments": self._arguments(),
            "argument_loads": self.arguments.loads,
            "kernarg": self.entry.kernarg,
            "group": self.entry.group[0],
            "wave": self.entry.wave,
            "tiles": self.entry.tiles,
            "temp": self.entry.temp,
            "O": self.tiles["O"].regs(),
            "OA": self.accumulated,
            "Q": self.tiles["Q"].regs(),
            "kv_block": self.keys,
            "kv_shift": self.keys.bit_length() - 1,
            "groups": (),
            "minus_bias": None,
            "heads": k.num_heads,
            "row_bytes": sum(run.count * ELEMENT_BYTES[run.query] for run in columns),
            "output_bytes": k.d_v * BF16,
            "slot_rows": WAVES * self.shape.rows,
            "query_row": _map(self.shape.query_row),
            "part_name": self.shape.part,
            "row_part": _map(self.shape.part_of),
            "swaps": self.shape.swaps,
            "part_bytes": 8 * (self.shape.parts - 1),
            "step_bytes": self.shape.step * BF16,
            "quad_bytes": self.shape.key(QUAD) * BF16,
            "fetched_row": dma.row.moves(),
            "fetched_byte": dma.byte.moves(),
            "key_map": self.ring.areas[0].plan.bases[0].moves(),
            "value_map": self.values.bases[0].moves(),
            "lowest": hex_float(LOWEST),
            "ln2": hex_float(LN2),
            "factor": self.lane.get("factor"),
            "scale_log2e": self._scale(),
            "scale": self.lane.get("factor") or self._scale(),
            "kv_scale": self.scalars.get("kv_scale") or self.arguments.regs.get("kv_scale"),
            "query": query_of(columns, self.shape, self.tiles["Q"].regs()),
            "log2e": hex_float(LOG2E),
            **self.more,
        }

    def _scale(self) -> Regs:
        """The scalar part of what scores are multiplied by."""
        return self.arguments["scale_log2e"]

    def _arguments(self) -> Mapping[str, Regs]:
        """The arguments by name."""
        return self.arguments.regs

    @property
    def more(self) -> Mapping[str, Any]:
        """What the templates of other shapes may name besides."""
        return {}

    # ---- once a workgroup -------------------------------------------------------------------

    def begin(self) -> None:
        """Once a work item: its rows and keys, lane addresses, the state before any key; Q."""
        self._record("item", None)
        self._record("lanes", None)
        stored = any(run.key != "bf16" or run.query != "bf16" for run in self.columns())
        template = "load_stored_queries" if stored else ""
        self._record("load_queries", None, template=template)

    def normalise(self) -> None:
        """O *= 1 / l; a row without a visible key gets 0."""
        self._record("normalise", None)

    def store(self) -> None:
        """O and the LSE: to a slot where the item is a part of its sequence, otherwise as they
        are. Rows past the item's last are dropped by the range check."""
        ways = self._storing()
        for name in ways:
            self._record(name, None, guarded=len(ways) > 1)

    # ---- once a tile ------------------------------------------------------------------------

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T, the blocks of keys in turn."""
        shape = self.shape

        def product(fragment: int, at: Binding) -> dict[str, Any]:
            step, block = divmod(fragment, shape.key_blocks)
            target = self.tiles["S"].regs(at.phase).part(block, shape.result)
            return {
                "target": target,
                "a": self._part("KB", fragment),
                "b": self.tiles["Q"].regs().part(step, FRAGMENT),
                "c": target if step else 0,
            }

        return self._products(
            "qk", tile, product, self._key_reads, self.k.d_qk // shape.step * shape.key_blocks,
            uses=(Value("KB", tile),), defines=(Value("S", tile),),
        )  # fmt: skip

    def read_values(self, tile: Tile) -> None:
        """The first fragments of V from LDS."""
        self._record(
            "read_values", tile, self._reads("value", self.values, self._value_reads),
            template="read", access=self._read(tile), defines=(Value("VB", tile),),
        )  # fmt: skip

    def softmax(self, tile: Tile) -> None:
        """The tile's P, packed; O and l follow the maximum where it moved."""
        self.mask(tile)
        self.maximum(tile)
        self.rescale(tile)
        self.exponent(tile)

    @abstractmethod
    def mask(self, tile: Tile) -> None:
        """Scores of keys that a row does not see become -inf."""

    @property
    def score_keys(self) -> list[int]:
        """The key of a tile whose score each register of S has, in the first lane of a row."""
        return [self.shape.key(r) for r in range(len(self.tiles["S"].regs()))]

    def maximum(self, tile: Tile) -> Operation:
        """The rows' maxima, and whether one moved."""
        return self._record("maximum", tile, uses=(Value("S", tile),))

    def rescale(self, tile: Tile) -> Operation:
        """O and l follow the maxima, where one moved."""
        return self._record("rescale", tile, guarded=True)

    def exponent(self, tile: Tile) -> Operation:
        """P, its sum, and P packed."""
        return self._record("exponent", tile, uses=(Value("S", tile),))

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P."""
        shape = self.shape

        def product(fragment: int, at: Binding) -> dict[str, Any]:
            block, step = shape.value_product(fragment)
            target = self._output(block)
            p = self.tiles["S"].regs(at.phase).part(step, FRAGMENT)
            return {"target": target, "a": self._part("VB", fragment), "b": p, "c": target}

        return self._products(
            "pv", tile, product, self._value_reads, self.k.d_v // shape.rows * shape.value_steps,
            uses=(Value("S", tile), Value("VB", tile)),
        )  # fmt: skip

    def _output(self, block: int) -> Regs:
        """O of a block of columns, as many as the wave has rows."""
        return self.tiles["O"].regs().part(block, self.shape.result)

    # ---- LDS --------------------------------------------------------------------------------

    def _mover(self, kind: Literal["copy", "read", "release"], tile: Tile) -> Operation:
        if kind == "copy":
            return self._operation(
                "copy", tile, self._copy, access=Access("copy", self.ring.at(tile)),
                uses=self._found(tile),
            )  # fmt: skip
        return self._operation(
            "read", tile, self._reads("key", self.ring.areas[0].plan, self._key_reads),
            access=self._read(tile), defines=(Value("KB", tile),),
        )  # fmt: skip

    def _found(self, tile: Tile) -> tuple[Value, ...]:
        """What a look-up of the tile's rows has left."""
        return (self.page.at(tile),)

    def _copy(self, at: Binding) -> dict[str, Any]:
        """Passes (M0, offset), one for each span of a row. The instruction's offset moves the LDS
        side too: M0 makes up for it."""
        slot = self.ring.slot_base(at.phase)
        return {
            "page": self.page.regs(at.phase),
            "passes": [
                (slot + area.start - SPAN * n, SPAN * n) for n, area in enumerate(self.ring.areas)
            ],
        }

    def _read(self, tile: Tile) -> Access:
        return Access("read", self.ring.at(tile))

    def _part(self, name: str, fragment: int) -> Regs:
        """Where a fragment lies while it waits for its product."""
        return self.tiles[name].regs().part(fragment % self.band, FRAGMENT)

    def _key_reads(self, fragment: int) -> Reading:
        """The LDS read of a fragment of K, by its tile's addresses."""
        area, number = divmod(fragment, len(self.ring.areas[0].plan.reads))
        base, offset = self.ring.areas[area].plan.reads[number]
        at = self.ring.areas[area].start + offset
        return [(self._part("KB", fragment), self._addresses("key")[base], at)]

    def _value_reads(self, fragment: int) -> Reading:
        """Those of a fragment of V: its keys in two halves."""
        parts = FRAGMENT // HALF
        area, first = divmod(parts * fragment, len(self.values.reads))
        found = []
        for part in range(parts):
            base, offset = self.values.reads[first + part]
            target = self._part("VB", fragment).part(part, HALF)
            at = self.ring.areas[area].start + offset
            found.append((target, self._addresses("value")[base], at))
        return found

    def _addresses(self, name: str) -> Regs:
        """Where this lane reads K ("key") or V ("value") in this tile's slot."""
        return self.lane["address"]

    def _reads(self, name: str, plan: ReadPlan, reads: Any) -> Any:
        """This tile's addresses, and the first fragments."""

        def context(at: Binding) -> dict[str, Any]:
            return {
                "base": self.lane[f"{name}_base"],
                "address": self._addresses(name),
                "slot": self.ring.slot_base(at.phase),
                "columns": [base.constant for base in plan.bases],
                "mnemonic": MNEMONICS[plan.width],
                "reads": [read for fragment in range(self.band) for read in reads(fragment)],
            }

        return context

    # ---- templates --------------------------------------------------------------------------

    def _products(
        self, name: str, tile: Tile, product: Any, reads: Any, fragments: int, **more: Any
    ) -> Operation:
        """The products of a tile's fragments, each followed by the reads of the fragment that takes
        its registers."""

        def context(at: Binding) -> dict[str, Any]:
            ahead = self.band
            return {
                "mfma": self.shape.mfma,
                "mnemonic": MNEMONICS[16 if name == "qk" else 8],
                "products": [
                    product(n, at) | {"refill": reads(n + ahead) if n + ahead < fragments else ()}
                    for n in range(fragments)
                ],
            }

        return self._record(
            name, tile, context, template="products", folder="prefill", access=self._read(tile),
            **more,
        )  # fmt: skip

    def _operation(
        self, name: str, tile: Tile | None, context: Any = None, *, template: str = "",
        folder: str = "latent", **more: Any,
    ) -> Operation:  # fmt: skip
        def supply(at: Binding) -> Mapping[str, Any]:
            scores = self.tiles["S"].regs(at.phase)
            return {**self.operands, "S": scores, **(context(at) if context else {})}

        file = template or name
        return Operation(
            name, f"{self.templates.get(file, folder)}/{file}.s.j2", tile, supply, **more
        )

    def _record(self, name: str, tile: Tile | None, context: Any = None, **more: Any) -> Operation:
        return record(self._operation(name, tile, context, **more))


def band_sizes(unit: int) -> range:
    """Sizes of bands of whole units of registers."""
    return range(unit, MOST + 1, unit)


MNEMONICS = {16: "ds_read_b128", 8: "ds_read_b64_tr_b16"}


def _map(function: Any) -> tuple[tuple[int, int], ...]:
    """What the function makes of a thread's number, as shifted fields."""
    return BitMap.of(function, THREAD_BITS, what="lane map").moves()
