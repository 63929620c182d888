"""Streamed prefill on gfx950 (MLA, and MHA in fp8): the operations a schedule arranges.

Dataflow, 32 query rows a wave (S^T = K Q^T, O^T += V^T P), as in `mha_prefill`, but with tiles of
128 keys: K and V do not fit as whole tiles beside one fp32 score tile of 64 registers, so their
fragments pass through small bands of registers, read from LDS a few products ahead.

fp8 is not prescaled: c = scale * q_scale * k_scale * log2(e) is applied to the fp32 scores in one
fused c S - M, and V's scale to O at the end. bf16 prescales Q. The running maximum lags (see
`mha_prefill`): with fp8, P reaches 2^threshold, which e4m3 holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlagen.attention.prefill.gfx950.float_literals import LN2, LOG2E, LOWEST, hex_float
from mlagen.attention.prefill.gfx950.fragments import MFMA_ROWS, accumulator_row
from mlagen.attention.prefill.gfx950.pages import Paged, PagedArea, Pages, page_value
from mlagen.attention.prefill.gfx950.registers import WINDOWED
from mlagen.attention.prefill.gfx950.setup import Fetch, Lanes, LdsAddress, Setup
from mlagen.attention.prefill.gfx950.streamed_moves import Stream
from mlagen.attention.prefill.gfx950.streamed_operands import operands
from mlagen.attention.prefill.gfx950.streamed_registers import StreamedRegisters
from mlagen.attention.prefill.gfx950.streamed_signature import (
    aiter_signature,
    refuse_persistent,
    refuse_unsupported,
    signature,
)
from mlagen.dsl import (
    Binding,
    Entry,
    Operation,
    PlainOrder,
    Regs,
    Ring,
    Space,
    Tile,
    Value,
    bind,
    record,
)
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.problem import MhaConfig
from mlagen.families.mla_prefill.problem import MlaConfig


@dataclass(frozen=True, slots=True)
class Softmax:
    """`early`: 64ths of a lane's scores whose exp2 is taken with the maximum, the others' with the
    row sum. `eager`: the maximum moves on every tile. `packed_sums`: two additions of P an
    instruction."""

    early: int
    eager: bool
    packed_sums: bool


def begin(k: MhaConfig | MlaConfig, s: Space, *, persistent: bool) -> Entry:
    """Declares the registers that the kernel starts with. `persistent`: a workgroup walks work
    items; otherwise it is one query tile. ConfigError for a problem that this is not for."""
    refuse_unsupported(k)
    if persistent:
        refuse_persistent(k)
        return s.entry("workgroup", items=True)
    return s.entry("head", "query tile", "batch")


class StreamedAttention:
    """The operations of one streamed prefill kernel over its rings and registers
    (`StreamedRegisters`). `fetch`: the ring that each role fetches, roles in the order of their
    waves.
    """

    def __init__(
        self,
        k: MhaConfig | MlaConfig,
        s: Space,
        entry: Entry,
        keys: Ring,
        values: Ring,
        softmax: Softmax,
        *,
        fetch: Mapping[str, Ring],
        aiter: bool = False,
    ) -> None:
        persistent = entry.items is not None
        if softmax.eager and k.rescale_threshold != 0:
            raise ConfigError(
                f"rescale=eager: the maximum moves on every tile, and rescale_threshold="
                f"{k.rescale_threshold:g} lets it lag",
                hint="rescale_threshold=0, or rescale=lazy",
            )
        if aiter and (not persistent or not isinstance(k, MlaConfig)):
            raise ConfigError(
                "arguments=aiter: AITER's arguments are those of its persistent MLA prefill",
                hint="a MlaConfig and grid=persistent; or arguments=mlagen",
            )
        self.k, self.keys, self.values = k, keys, values
        self.held, self.fetch = operands(k), fetch
        self.early, self.eager = softmax.early * k.kv_block // 128, softmax.eager
        self.aiter = aiter
        s.signature = self.signature = (
            aiter_signature(k)
            if aiter and isinstance(k, MlaConfig)
            else signature(k, persistent=persistent)
        )
        self.persistent, self.packed_sums = persistent, softmax.packed_sums
        self.regs = StreamedRegisters(k, s, entry, self.signature, self.held, (keys, values))
        self.out_scale = None
        if aiter:
            self.out_scale = s.registers.scalar("OUTSCALE", 1, "V's scale")
        elif self.fp8:
            self.out_scale = self.regs.arguments["out_scale"]
        self.windowed = k.mask.name in WINDOWED
        # M starts at a number: with a sink, and where a part of a tile may be hidden from a row.
        self.floored = self.windowed or k.sink or persistent
        self.pages = self._pages(s) if k.page_size else None
        self.key_stream = Stream(self.regs, keys, self.held.keys, self.pages)
        self.value_stream = Stream(self.regs, values, (), self.pages)
        bind(keys, self.key_stream)
        bind(values, self.value_stream)
        s.plain = self._plain_order()

    def _plain_order(self) -> PlainOrder:
        """The loop without overlap. Each role fetches a ring; the first has the first waves."""
        k, paged = self.k, self.pages is not None
        scales = ("scales",) if self.aiter else ("scale",) if self.fp8 else ()
        begin = (
            *("buffers", "walk"),
            *(("begin_pages",) if paged else ()),
            "load_queries",
        )
        if self.persistent:
            before, item = ("work", "lanes", *scales), ("item", *begin)
        else:
            sequence = ("sequence",) if k.by_sequence else ()
            before, item = ("arguments", *sequence, "lanes", *scales, *begin), ()
        share = {}
        for index, (role, ring) in enumerate(self.fetch.items()):
            waves = range(ring.waves * index, ring.waves * (index + 1))
            for name in (f"copy {ring.name}", f"find_{ring.name}_pages"):
                share[name] = (role, waves)
        return PlainOrder(
            before=before,
            item=item,
            tile=(
                *(("find_K_pages",) if paged else ()),
                *("copy K", "read K"),
                *(() if self.fp8 else ("prescale",)),
                *("qk", "mask"),
                *(("mask_start",) if self.windowed else ()),
                *("partial_softmax", "rescale", "tail_softmax"),
                *(("find_V_pages",) if paged else ()),
                *("copy V", "read V", "pv"),
            ),
            after=(
                *("no_tiles", "normalise"),
                *(("partial_pointers", "store_partial") if self.persistent else ()),
                *(("store_lse",) if k.lse else ()),
                f"store_{k.output_dtype}",
            ),
            share=share,
        )

    @property
    def fp8(self) -> bool:
        return self.k.dtype == "fp8_e4m3"

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Once a workgroup: arguments, lane addresses; where it is one query tile, that tile's head
        and sequence. A workgroup without a row ends here."""
        setup = self._setup
        if self.persistent:
            self._record("work", None, self._of_work(setup.common), folder="mla")
        else:
            for name, context in setup.first():
                leaves = name == "sequence" and self.k.ragged
                self._record(name, None, context, leaves=leaves)
        self._record("lanes", None, setup.lanes(self._lanes))
        if self.aiter:
            scales = setup.common | {
                "pair": self.regs.scale,
                "out_scale": self.out_scale,
                "log2e": hex_float(LOG2E),
            }
            self._record("scales", None, scales, folder="mla")
        elif self.fp8:
            scale = {"pair": self.regs.scale, "scale": self.regs.arguments["scale_log2e"]}
            self._record("scale", None, scale, folder="mla")

    def begin(self) -> None:
        """Once a query tile: a work item's head, rows and keys; buffer resources, tiles to walk,
        pages."""
        setup = self._setup
        if self.persistent:
            self._record("item", None, self._of_work(setup.common), folder="mla")
        for name, context in setup.tile(self._rows):
            self._record(name, None, context)
        for name, context in setup.begin_pages(lambda at: (self.fetch[at.role],)):
            self._record(name, None, context)

    def load_queries(self) -> None:
        """Global to registers: this wave's 32 query rows as MFMA B operand."""
        form, regs = self.held.form, self.regs
        step_bytes = form.k * form.element_bytes
        loads = [
            (regs.queries.part(step, form.registers).part(part, 4), step_bytes * step + 16 * part)
            for step in range(self.held.qk_steps)
            for part in range(form.registers // 4)
        ]
        context = {"loads": loads, "offset": regs.row_offset, "buffer": regs.buffers["Q"]}
        self._record("load_queries", None, context, defines=(Value("Q raw"),))

    def prescale(self, tile: Tile) -> None:
        """bf16: Q = bf16(fp32(Q) * c), once, when the first tile is on its way."""
        if self.fp8:
            return
        context = {
            "Q": self.regs.queries,
            "scale": self.regs.arguments["scale_log2e"],
            "temp": self.regs.temp,
        }
        self._record("prescale", tile, context, domain="first", uses=(Value("Q raw"),))

    def normalise(self) -> None:
        """O *= v_scale / l; a row without a visible key gets 0."""
        context = {
            "O": self.regs.output,
            "row_sum": self.regs.row_sum,
            "temp": self.regs.temp,
            "out_scale": self.out_scale,
        }
        self._record("normalise", None, context)

    def store(self) -> None:
        """O^T accumulators and the LSE to global memory; rows beyond the sequence are dropped by
        the range check."""
        regs = self.regs
        location = regs.place[1] if self.persistent else None
        if location is not None:
            pointers = regs.grown, regs.scratch[4:6]  # free by then
            offsets = {a.name: a.offset for a in self.signature.arguments}
            context = {
                "kernarg": regs.kernarg,
                "pointer": pointers[0],
                "lse_pointer": pointers[1],
                "offset": offsets["partial_o"],
                "lse_offset": offsets["partial_lse"],
            }
            self._record("partial_pointers", None, context, folder="mla")
            context = {
                "O": regs.output,
                "row_sum": regs.row_sum,
                "maximum": regs.maximum,
                "ln2": hex_float(LN2),
                "temp": regs.temp,
                "scratch": regs.scratch,
                "location": location,
                "heads_word": regs.heads,
                "q_tile": self.k.q_tile,
                "heads": self.k.num_heads,
                "row_bytes": self.k.num_heads * self._partial_bytes,
                "head_bytes": self._partial_bytes,
                "pointer": pointers[0],
                "lse_pointer": pointers[1],
                "offset": regs.partial_offset,
                "lse_offset": regs.partial_lse_offset,
                "buffer": regs.compare[4:8],
                "lse_buffer": regs.buffers["Q"],
            }
            self._record("store_partial", None, context, folder="mla", guarded=True)
        if self.k.lse:
            context = {
                "row_sum": regs.row_sum,
                "maximum": regs.maximum,
                "ln2": hex_float(LN2),
                "offset": regs.lse_offset,
                "buffer": regs.buffers["LSE"],
                "temp": regs.temp,
                "partial": location,
            }
            self._record("store_lse", None, context, guarded=self.persistent)
        context = {
            "O": regs.output,
            "offset": regs.output_offset,
            "buffer": regs.buffers["O"],
            "temp": regs.temp,
            "of_bf16_rows": False,
            "partial": location,
        }
        self._record(f"store_{self.k.output_dtype}", None, context, guarded=self.persistent)

    def no_tiles(self) -> None:
        """What the epilogue needs when there is no tile at all: O = 0."""
        context = {
            "O": self.regs.output,
            "sink": self.k.sink,
            "lse": self.k.lse or self.persistent,
            "floored": self.floored,
            "maximum": self.regs.maximum,
            "previous": self.regs.previous_max,
            "row_sum": self.regs.row_sum,
            "temp": self.regs.temp,
            "lowest": hex_float(LOWEST),
        }
        self._record("no_tiles", None, context, domain="empty")

    # ---- once a tile ------------------------------------------------------------------------

    def find_pages(self, ring: Ring, tile: Tile) -> None:
        """Look up the pages of a tile ahead of its copy; nothing where K and V are contiguous. For
        the role that copies it."""
        if self.pages is None:
            return
        rows = self.pages.by_lane
        self._record(
            f"find_{ring.name}_pages", tile, self.pages.lookup(ring),
            folder="mla" if rows else "mha", template="find_rows" if rows else "find_pages",
            defines=(page_value(ring, tile),),
        )  # fmt: skip

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T, a block of 32 keys at a time."""
        form, steps = self.held.form, self.held.qk_steps
        stream = self.key_stream

        def product(at: Binding, fragment: int) -> dict[str, Any]:
            block, step = divmod(fragment, steps)
            target = self._scores.part(block, 16)
            return {
                "target": target,
                "a": self.regs.part(self.keys, fragment),
                "b": self.regs.queries.part(step, form.registers),
                "c": target if step else 0,
            }

        return self._products("qk", tile, stream, product, defines=(self._score_value(tile),))

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P, a step of keys at a time."""
        form, blocks = self.held.form, self.held.depth // MFMA_ROWS

        def product(at: Binding, fragment: int) -> dict[str, Any]:
            step, block = divmod(fragment, blocks)
            target = self.regs.output.part(block, 16)
            return {
                "target": target,
                "a": self.regs.part(self.values, fragment),
                "b": self._scores.part(step, form.registers),
                "c": 0 if at.first and step == 0 else target,
            }

        return self._products(
            "pv", tile, self.value_stream, product, uses=(self._score_value(tile),),
            first_differs=True,
        )  # fmt: skip

    def mask(self, tile: Tile) -> None:
        """Scores of keys that the row does not see become -inf: after its last key, and before
        its first where a mask has such. Each side is skipped on tiles that it does not cut."""
        regs = self.regs
        context = {
            "S": self._scores,
            "rows": [
                MFMA_ROWS * (r // 16) + accumulator_row(r % 16) for r in range(len(self._scores))
            ],
            "kv_block": self.k.kv_block,
            "mask_end": regs.mask_end,
            "visible": regs.visible,
            "limit": regs.limit,
            "all_start": regs.all_start,
            "start": regs.start,
            "masked": regs.masked,
            "compare": regs.compare,
            "temp": regs.temp,
        }
        for name in ("mask", "mask_start") if self.windowed else ("mask",):
            self._record(name, tile, context, uses=(self._score_value(tile),), guarded=True)

    def partial_softmax(self, tile: Tile) -> Operation:
        """Row maximum with the lagging running maximum, c S - M, exp2 of the first `early`."""
        regs = self.regs
        return self._record(
            "partial_softmax",
            tile,
            lambda at: {
                "S": self._scores,
                "maximum": regs.maximum,
                "state": Regs(regs.maximum.symbol, 0, 2),
                "previous": regs.previous_max,
                "grown": regs.grown,
                "threshold": hex_float(self.k.rescale_threshold),
                "temp": regs.temp,
                "first": at.first,
                "floored": self.floored,
                "sink": self.k.sink,
                "row_sum": regs.row_sum,
                "scale": regs.scale if self.fp8 else None,
                "eager": self.eager,
                "early": self.early,
                "mixed": False,
            },
            uses=(self._score_value(tile),),
            first_differs=True,
        )

    def rescale(self, tile: Tile) -> Operation:
        """O and l follow the maximum where it moved; skipped where it did not."""
        context = {
            "O": self.regs.output,
            "row_sum": self.regs.row_sum,
            "maximum": self.regs.maximum,
            "previous": self.regs.previous_max,
            "grown": self.regs.grown,
            "temp": self.regs.temp,
            "eager": self.eager,
        }
        return self._record("rescale", tile, context, domain="rest", guarded=not self.eager)

    def tail_softmax(self, tile: Tile) -> Operation:
        """exp2 of the other scores, row sum of the fp32 P, packed in place."""
        context = {
            "S": self._scores,
            "row_sum": self.regs.row_sum,
            "temp": self.regs.temp,
            "early": self.early,
            "fp8": self.fp8,
            "packed": self.packed_sums,
        }
        return self._record("tail_softmax", tile, context, uses=(self._score_value(tile),))

    # ---- templates --------------------------------------------------------------------------

    @property
    def _partial_bytes(self) -> int:
        """Bytes of a head's partial O, which is fp32."""
        return self.held.depth * 4

    @cached_property
    def _setup(self) -> Setup:
        return Setup(self.k, self.regs, self.held.tensors, self.pages)

    @property
    def _rows(self) -> list[tuple[Regs, int, int]]:
        """Lane offsets of the query's and the output's row; a half-wave has its part of a step."""
        tensors, half = self.held.tensors, self.held.form.lane_bytes.bit_length() - 1
        return [
            (self.regs.row_offset, tensors.q.row_bytes, half),
            (self.regs.output_offset, tensors.o.row_bytes, 4),
        ]

    def _of_work(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Operands of what begins a workgroup, and a work item, of a persistent kernel."""
        return dict(common) | {
            "items": self.regs.items,
            "item": self.regs.item,
            "first_item": self.regs.first_item,
            "page_size": self.k.page_size,
            "place": self.regs.place,
            "listed": self.aiter,
            "own_keys": self.regs.own_keys,
            "blocks": self.regs.blocks,
            "heads_word": self.regs.heads,
            "partial_offset": self.regs.partial_offset,
            "partial_lse_offset": self.regs.partial_lse_offset,
            "partial_row_bytes": self.k.num_heads * self._partial_bytes,
        }

    @property
    def _scores(self) -> Regs:
        return self.regs.scores.regs()

    def _score_value(self, tile: Tile) -> Value:
        return self.regs.scores.at(tile)

    def _products(
        self, name: str, tile: Tile, stream: Stream, product: Any, *,
        uses: tuple[Value, ...] = (), **more: Any,
    ) -> Operation:  # fmt: skip
        """The products of a tile's fragments, each followed by the read of the fragment that takes
        its registers."""

        def context(at: Binding) -> dict[str, Any]:
            ahead = self.regs.band
            return {
                "mfma": self.held.form.mfma,
                "mnemonic": stream.mnemonic,
                "products": [
                    product(at, fragment)
                    | {
                        "refill": stream.reads(at, fragment + ahead)
                        if fragment + ahead < stream.fragments
                        else ()
                    }
                    for fragment in range(stream.fragments)
                ],
            }

        access = stream("read", tile).access
        return self._record(
            name, tile, context, folder="mla", template="products", access=access,
            uses=(*uses, stream.band(tile)), **more,
        )  # fmt: skip

    def _lanes(self, at: Binding) -> Lanes:
        regs = self.regs
        ring = self.fetch[at.role]
        columns = [(area.name, area.tensor, area.first_byte) for area in self.held.keys]
        if ring is self.values:
            columns = [("V", self.held.values, 0)]
        rows = [area.dma.row for area in ring.areas]
        if self.pages is not None:
            rows = [area.lane_row for area in self.pages.plans[ring.name].areas]
        fetches = [
            Fetch(name, source, row, area.dma.byte, tensor.row_bytes, first)
            for (name, tensor, first), row, area, source in zip(
                columns, rows, ring.areas, regs.sources, strict=False
            )
            if self.pages is None or not self.pages.by_lane
        ]
        first_wave = ring.waves * list(self.fetch).index(at.role)
        return Lanes(
            tuple(fetches),
            tuple(
                LdsAddress(register, base, ring.windows[window])
                for ring in (self.keys, self.values)
                for (window, base), register in regs.addresses[ring.name].items()
            ),
            ((regs.lds_wave, first_wave, ring.areas[0].dma.wave_stride),),
        )

    def _pages(self, s: Space) -> Pages:
        """Look-ups whose registers K and V share, as each role fetches one of them."""
        regs = self.regs
        buffer = regs.buffers.get("PAGE")
        columns = {
            self.keys: [(area.tensor, area.first_byte) for area in self.held.keys],
            self.values: [(self.held.values, 0)],
        }
        paged = [
            Paged(
                ring,
                tuple(
                    PagedArea(tensor, source, first)
                    for (tensor, first), source in zip(of, regs.sources, strict=False)
                ),
                buffer,
            )
            for ring, of in columns.items()
        ]
        return Pages(self.k, s, regs, paged, shared=True)

    def _record(
        self, name: str, tile: Tile | None, context: Any, *, folder: str = "mha",
        template: str = "", **more: Any,
    ) -> Operation:  # fmt: skip
        supply = context if callable(context) else lambda at: context
        return record(Operation(name, f"{folder}/{template or name}.s.j2", tile, supply, **more))
