"""Streamed prefill on gfx950: the operations a schedule arranges.

As `PrefillAttention` says, with tiles of 128 keys: K and V do not fit as whole tiles beside one
fp32 score tile of 64 registers, so their fragments pass through small bands of registers, read from
LDS a few products ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mlagen.attention.prefill.gfx950.attention import PrefillAttention, SoftmaxForm
from mlagen.attention.prefill.gfx950.fragments import MFMA_ROWS
from mlagen.attention.prefill.gfx950.pages import PagedArea, PagedRing, Pages
from mlagen.attention.prefill.gfx950.setup import Fetch, FetchLanes, Setup, lds_addresses
from mlagen.attention.prefill.gfx950.streamed_form import StreamedForm
from mlagen.attention.prefill.gfx950.streamed_moves import RingStream
from mlagen.attention.prefill.gfx950.streamed_registers import StreamedRegisters
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Binding, Operation, PlainOrder, Tile, Value, bind
from mlagen.errors import ConfigError
from mlagen.targets.gfx950.dsl import EntryRegisters, Regs, Ring, Space


def begin(s: Space, form: StreamedForm) -> EntryRegisters:
    """Declares the registers that the kernel starts with."""
    if form.facts.persistent:
        return s.entry("workgroup", items=True)
    return s.entry("head", "query tile", "batch")


class StreamedAttention(PrefillAttention):
    """The operations of one streamed prefill kernel over its rings and registers
    (`StreamedRegisters`). `fetch`: the ring that each role fetches, roles in the order of their
    waves.
    """

    regs: StreamedRegisters

    def __init__(
        self,
        k: PrefillConfig,
        s: Space,
        entry: EntryRegisters,
        keys: Ring,
        values: Ring,
        form: StreamedForm,
        softmax: SoftmaxForm,
        *,
        fetch: Mapping[str, Ring],
    ) -> None:
        if softmax.eager and k.rescale_threshold != 0:
            raise ConfigError(
                f"rescale=eager: the maximum moves on every tile, and rescale_threshold="
                f"{k.rescale_threshold:g} lets it lag",
                hint="rescale_threshold=0, or rescale=lazy",
            )
        self.k, self.keys, self.values, self.softmax = k, keys, values, softmax
        self.held, self.fetch = form.operands, fetch
        self.form, self.qk_steps = form.operands.form, form.operands.qk_steps
        self.aiter, self.persistent = form.facts.aiter, form.facts.persistent
        s.signature = self.signature = form.signature
        s.facts = form.facts
        self.regs = StreamedRegisters(k, s, entry, self.signature, self.held, (keys, values))
        if self.aiter:
            self.out_scale = s.registers.scalar("OUTSCALE", 1, "V's scale")
        elif self.fp8:
            self.out_scale = self.regs.arguments["out_scale"]
        if self.fp8:
            self.scale = self.regs.scale
        self.pages = self._pages(s) if k.page_size else None
        self.key_stream = RingStream(self.regs, keys, self.held.keys, self.pages)
        self.value_stream = RingStream(self.regs, values, (), self.pages)
        bind(keys, self.key_stream)
        bind(values, self.value_stream)
        s.plain = self._order()

    def _order(self) -> PlainOrder:
        """The loop without overlap. Each role fetches a ring; the first has the first waves."""
        scales = ("scales",) if self.aiter else ("scale",) if self.fp8 else ()
        begin = (
            *("buffers", "walk"),
            *(("begin_pages",) if self.pages is not None else ()),
            "load_queries",
        )
        share = {}
        for index, (role, ring) in enumerate(self.fetch.items()):
            waves = range(ring.waves * index, ring.waves * (index + 1))
            for name in (f"copy {ring.name}", f"find_{ring.name}_pages"):
                share[name] = (role, waves)
        if self.persistent:
            return self._plain_order(("work", "lanes", *scales), ("item", *begin), share=share)
        sequence = ("sequence",) if self.k.by_sequence else ()
        before = ("arguments", *sequence, "lanes", *scales, *begin)
        return self._plain_order(before, share=share)

    def scores(self, at: Binding) -> Regs:
        return self.regs.scores.regs()

    def score_value(self, tile: Tile) -> Value:
        return self.regs.scores.at(tile)

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Once a workgroup: arguments, lane addresses; where it is one query tile, that tile's head
        and sequence. A workgroup without a row ends here."""
        setup = self._setup
        if self.persistent:
            self._record("work", None, self._of_work(setup.common))
        else:
            for name, context in setup.first():
                leaves = name == "sequence" and self.k.ragged
                self._record(name, None, context, leaves=leaves)
        self._record("lanes", None, setup.lanes(self._lanes))
        if self.aiter:
            self._record("scales", None, setup.common | {"pair": self.regs.scale})
        elif self.fp8:
            scale = {"pair": self.regs.scale, "scale": self.regs.arguments["scale_log2e"]}
            self._record("scale", None, scale)

    def begin(self) -> None:
        """Once a query tile: a work item's head, rows and keys; buffer resources, tiles to walk,
        pages."""
        setup = self._setup
        if self.persistent:
            self._record("item", None, self._of_work(setup.common))
        for name, context in setup.tile(self._rows):
            self._record(name, None, context)
        for name, context in setup.begin_pages(lambda at: (self.fetch[at.role],)):
            self._record(name, None, context)

    def store(self) -> None:
        """O^T accumulators and the LSE to global memory; rows beyond the sequence are dropped by
        the range check."""
        regs = self.regs
        location = regs.place[1] if self.persistent else None
        if location is not None:
            offsets = {a.name: a.offset for a in self.signature.arguments}
            context = {
                "pointer": regs.grown,  # these registers are free by then
                "lse_pointer": regs.scratch[4:6],
                "buffer": regs.compare[4:8],
                "lse_buffer": regs.buffers["Q"],
                "pointer_at": offsets["partial_o"],
                "lse_pointer_at": offsets["partial_lse"],
                "location": location,
                "q_tile": self.k.q_tile,
                "heads": self.k.num_heads,
                "row_bytes": self.k.num_heads * self._partial_bytes,
                "head_bytes": self._partial_bytes,
            }
            self._record("partial_pointers", None, context)
            self._record("store_partial", None, context, guarded=True)
        self._store_lse(location)
        self._store_output(regs.output_offset, partial=location)

    # ---- once a tile ------------------------------------------------------------------------

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T, a block of 32 keys at a time."""
        form, steps = self.form, self.held.qk_steps
        stream = self.key_stream

        def product(at: Binding, fragment: int) -> dict[str, Any]:
            block, step = divmod(fragment, steps)
            target = self.scores(at).part(block, 16)
            return {
                "target": target,
                "a": self.regs.part(self.keys, fragment),
                "b": self.regs.queries.part(step, form.registers),
                "c": target if step else 0,
            }

        return self._products("qk", tile, stream, product, defines=(self.score_value(tile),))

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P, a step of keys at a time."""
        form, blocks = self.form, self.held.depth // MFMA_ROWS

        def product(at: Binding, fragment: int) -> dict[str, Any]:
            step, block = divmod(fragment, blocks)
            target = self.regs.output.part(block, 16)
            return {
                "target": target,
                "a": self.regs.part(self.values, fragment),
                "b": self.scores(at).part(step, form.registers),
                "c": 0 if at.first and step == 0 else target,
            }

        return self._products(
            "pv", tile, self.value_stream, product, uses=(self.score_value(tile),),
            first_differs=True,
        )  # fmt: skip

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
        tensors, half = self.held.tensors, self.form.lane_bytes.bit_length() - 1
        return [
            (self.regs.row_offset, tensors.q.row_bytes, half),
            (self.regs.output_offset, tensors.o.row_bytes, 4),
        ]

    def _of_work(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Operands of what begins a workgroup, and a work item, of a persistent kernel."""
        return dict(common) | {
            "page_size": self.k.page_size,
            "listed": self.aiter,
            "partial_row_bytes": self.k.num_heads * self._partial_bytes,
        }

    def _products(
        self, name: str, tile: Tile, stream: RingStream, product: Any, *,
        uses: tuple[Value, ...] = (), **more: Any,
    ) -> Operation:  # fmt: skip
        """The products of a tile's fragments, each followed by the read of the fragment that takes
        its registers."""

        def context(at: Binding) -> dict[str, Any]:
            ahead = self.regs.band
            return {
                "mfma": self.form.mfma,
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
            name, tile, context, template="products", access=access,
            uses=(*uses, stream.band(tile)), **more,
        )  # fmt: skip

    def _lanes(self, at: Binding) -> FetchLanes:
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
        return FetchLanes(
            tuple(fetches),
            lds_addresses(regs, (self.keys, self.values)),
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
            PagedRing(
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
