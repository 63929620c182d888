"""MHA / GQA prefill on gfx950: the operations a schedule arranges.

Dataflow, 32 query rows a wave (S^T = K Q^T, O^T += V^T P): one lane owns one query row, so row
maximum and row sum are in-lane reductions plus one exchange between the two half-waves, and P feeds
the second product from the registers that held S.

Softmax in base 2: Q is multiplied by c = scale * log2(e) in fp32 and rounded back to bf16 once.
The running maximum M lags: it moves only when some row of the wave grew by more than
`rescale_threshold`; then O and l are multiplied by exp2(M_old - M_new) after the PV of the
previous tile has been issued, so no P that was already cast needs a second rounding. A sink is
where M starts; where a mask may hide a row's first tile, M starts at the lowest finite number, and
the first visible key moves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.prefill.gfx950.float_literals import LN2, LOWEST, hex_float
from mlagen.attention.prefill.gfx950.fragments import BF16, MFMA_K, MFMA_ROWS, accumulator_row
from mlagen.attention.prefill.gfx950.pages import Paged, PagedArea, Pages, page_value
from mlagen.attention.prefill.gfx950.registers import WINDOWED
from mlagen.attention.prefill.gfx950.setup import Fetch, Lanes, LdsAddress, Setup
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors, RowTensor
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
from mlagen.families.mha_prefill.gfx950.moves import Mover
from mlagen.families.mha_prefill.gfx950.registers import PrefillRegisters
from mlagen.families.mha_prefill.gfx950.signature import refuse_unsupported, signature
from mlagen.families.mha_prefill.problem import MhaConfig


def begin(k: MhaConfig, s: Space) -> Entry:
    """Declares the registers that the kernel starts with. ConfigError for a problem that these
    operations are not for."""
    if k.dtype != "bf16":
        raise ConfigError(
            f"dtype={k.dtype}: these operations multiply bf16",
            hint="those of StreamedAttention (prefill/gfx950/streamed) multiply fp8 as well",
        )
    refuse_unsupported(k)
    return s.entry("head", "query tile", "batch")


class Attention:
    """The operations of one prefill kernel over its rings and registers (`PrefillRegisters`).

    `mixed`: exp2 and other instructions of the softmax take turns; otherwise each kind follows the
    other.
    """

    def __init__(
        self, k: MhaConfig, s: Space, entry: Entry, keys: Ring, values: Ring, *, mixed: bool = False
    ) -> None:
        self.k, self.keys, self.values, self.mixed = k, keys, values, mixed
        self.regs = PrefillRegisters(k, s, entry, keys, values)
        paged = [
            Paged(
                ring,
                (PagedArea(tensor, self.regs.sources[ring.name], 0),),
                self.regs.buffers[ring.name],
            )
            for ring, tensor in zip((keys, values), self._tensors().key_rows, strict=True)
        ]
        self.pages = Pages(k, s, self.regs, paged) if k.page_size else None
        self.windowed = k.mask.name in WINDOWED
        self.floored = self.windowed or k.sink  # M starts at a number
        s.signature = signature(k)
        s.plain = self._plain_order()
        for ring, target in ((keys, self.regs.key_tile), (values, self.regs.value_tile)):
            bind(ring, Mover(k, self.regs, ring, target, self.pages))

    def _plain_order(self) -> PlainOrder:
        """The loop without overlap."""
        k, paged = self.k, self.pages is not None
        return PlainOrder(
            before=(
                "arguments",
                *(("sequence",) if k.by_sequence else ()),
                *("buffers", "walk", "lanes"),
                *(("begin_pages",) if paged else ()),
                "load_queries",
            ),
            tile=(
                *(("find_K_pages",) if paged else ()),
                *("copy K", "read K", "prescale", "qk", "mask"),
                *(("mask_start",) if self.windowed else ()),
                *("partial_softmax", "rescale", "tail_softmax"),
                *(("find_V_pages",) if paged else ()),
                *("copy V", "read V", "pv"),
            ),
            after=(
                *("no_tiles", "normalise"),
                *(("store_lse",) if k.lse else ()),
                f"store_{k.output_dtype}",
            ),
        )

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Arguments, head remap, the sequence's rows and keys, tiles to walk, buffer resources and
        lane addresses. A workgroup without a row ends here."""
        lanes = self._lanes()
        setup = Setup(self.k, self.regs, self._tensors(), self.pages)
        for name, context in (
            *setup.first(),
            *setup.tile([(self.regs.row_offset, self.k.q_row_stride * BF16, 4)]),
            ("lanes", setup.lanes(lambda at: lanes)),
            *setup.begin_pages(lambda at: (self.keys, self.values)),
        ):
            leaves = name == "sequence" and self.k.ragged
            self._record(name, None, context, leaves=leaves)

    def load_queries(self) -> None:
        """Global to registers: this wave's 32 query rows as MFMA B operand."""
        self._record(
            "load_queries",
            None,
            {
                "loads": [
                    (self.regs.queries.part(step, 4), 2 * MFMA_K * step)
                    for step in range(self.k.depth // MFMA_K)
                ],
                "offset": self.regs.row_offset,
                "buffer": self.regs.buffers["Q"],
            },
            defines=(Value("Q raw"),),
        )

    def prescale(self, tile: Tile) -> None:
        """Q = bf16(fp32(Q) * c), once, when the first tile is on its way."""
        self._record(
            "prescale",
            tile,
            {
                "Q": self.regs.queries,
                "scale": self.regs.arguments["scale_log2e"],
                "temp": self.regs.temp,
            },
            domain="first",
            uses=(Value("Q raw"),),
        )

    def normalise(self) -> None:
        """O *= 1 / l; a row without a visible key gets 0."""
        self._record(
            "normalise",
            None,
            {
                "O": self.regs.output,
                "row_sum": self.regs.row_sum,
                "temp": self.regs.temp,
                "out_scale": None,
            },
        )

    def store(self) -> None:
        """O^T accumulators and the LSE to global memory; rows beyond the sequence are dropped by
        the range check."""
        if self.k.lse:
            self._record(
                "store_lse",
                None,
                {
                    "row_sum": self.regs.row_sum,
                    "maximum": self.regs.maximum,
                    "ln2": hex_float(LN2),
                    "offset": self.regs.lse_offset,
                    "buffer": self.regs.buffers["LSE"],
                    "temp": self.regs.temp,
                    "partial": None,
                },
            )
        self._record(
            f"store_{self.k.output_dtype}",
            None,
            {
                "O": self.regs.output,
                "offset": self.regs.row_offset,
                "buffer": self.regs.buffers["O"],
                "temp": self.regs.temp,
                "of_bf16_rows": True,
                "partial": None,
            },
        )

    def no_tiles(self) -> None:
        """What the epilogue needs when there is no tile at all: O = 0."""
        self._record(
            "no_tiles",
            None,
            {
                "O": self.regs.output,
                "sink": self.k.sink,
                "lse": self.k.lse,
                "floored": self.floored,
                "previous": self.regs.previous_max,
                "maximum": self.regs.maximum,
                "row_sum": self.regs.row_sum,
                "lowest": hex_float(LOWEST),
                "temp": self.regs.temp,
            },
            domain="empty",
        )

    # ---- once a tile ------------------------------------------------------------------------

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T."""
        blocks = self.k.kv_block // MFMA_ROWS
        return self._record(
            "qk",
            tile,
            lambda at: {
                "S": [self._scores(tile, at).part(b, 16) for b in range(blocks)],
                "K": self.regs.key_tile,
                "Q": self.regs.queries,
                "steps": self.k.depth // MFMA_K,
                "blocks": blocks,
            },
            defines=(self.regs.scores.at(tile),),
            uses=(self.keys.register_value(tile),),
        )

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P, strip of 16 keys by strip."""
        blocks = self.k.depth // MFMA_ROWS
        return self._record(
            "pv",
            tile,
            lambda at: {
                "O": [self.regs.output.part(b, 16) for b in range(blocks)],
                "V": self.regs.value_tile,
                "P": self._scores(tile, at),
                "strips": self.k.kv_block // MFMA_K,
                "blocks": blocks,
                "first": at.first,
            },
            uses=(self.values.register_value(tile), self.regs.scores.at(tile)),
            first_differs=True,
        )

    def find_pages(self, ring: Ring, tile: Tile) -> None:
        """Look up the pages of a tile ahead of its copy; nothing where K and V are contiguous."""
        if self.pages is None:
            return
        self._record(
            f"find_{ring.name}_pages",
            tile,
            self.pages.lookup(ring),
            template="find_pages",
            defines=(page_value(ring, tile),),
        )

    def mask(self, tile: Tile) -> None:
        """Scores of keys that the row does not see become -inf: after its last key, and before
        its first where a mask has such. Each side is skipped on tiles that it does not cut."""

        def context(at: Binding) -> dict[str, Any]:
            return {
                "S": self._scores(tile, at),
                "rows": [
                    MFMA_ROWS * (r // 16) + accumulator_row(r % 16)
                    for r in range(self.k.kv_block // 2)
                ],
                "kv_block": self.k.kv_block,
                "mask_end": self.regs.mask_end,
                "visible": self.regs.visible,
                "limit": self.regs.limit,
                "all_start": self.regs.all_start,
                "start": self.regs.start,
                "masked": self.regs.masked,
                "compare": self.regs.compare,
                "temp": self.regs.temp,
            }

        for name in ("mask", "mask_start") if self.windowed else ("mask",):
            self._record(name, tile, context, uses=(self.regs.scores.at(tile),), guarded=True)

    def partial_softmax(self, tile: Tile) -> Operation:
        """Row maximum with the lagging running maximum, subtract, exp2 of the first half."""
        return self._record(
            "partial_softmax",
            tile,
            lambda at: {
                "S": self._scores(tile, at),
                "maximum": self.regs.maximum,
                "state": Regs(self.regs.maximum.symbol, 0, 2),
                "previous": self.regs.previous_max,
                "grown": self.regs.grown,
                "threshold": hex_float(self.k.rescale_threshold),
                "temp": self.regs.temp,
                "first": at.first,
                "floored": self.floored,
                "sink": self.k.sink,
                "row_sum": self.regs.row_sum,
                "scale": None,
                "eager": False,
                "early": self.k.kv_block // 4,
                "mixed": self.mixed,
            },
            uses=(self.regs.scores.at(tile),),
            first_differs=True,
        )

    def rescale(self, tile: Tile) -> Operation:
        """O and l follow the maximum where it moved; skipped where it did not."""
        return self._record(
            "rescale",
            tile,
            {
                "O": self.regs.output,
                "row_sum": self.regs.row_sum,
                "maximum": self.regs.maximum,
                "previous": self.regs.previous_max,
                "grown": self.regs.grown,
                "temp": self.regs.temp,
                "eager": False,
            },
            domain="rest",
            guarded=True,
        )

    def tail_softmax(self, tile: Tile) -> Operation:
        """exp2 of the second half, row sum of the fp32 P, cast to bf16 in place."""
        return self._record(
            "tail_softmax",
            tile,
            lambda at: {
                "S": self._scores(tile, at),
                "row_sum": self.regs.row_sum,
                "temp": self.regs.temp,
                "early": self.k.kv_block // 4,
                "fp8": False,
                "packed": True,
            },
            uses=(self.regs.scores.at(tile),),
            template="tail_softmax_mixed" if self.mixed else "",
        )

    # ---- templates --------------------------------------------------------------------------

    def _tensors(self) -> PrefillTensors:
        k = self.k
        head = k.depth * BF16
        queries = k.q_row_stride * BF16
        output = k.num_heads * k.depth * k.output_bytes
        return PrefillTensors(
            RowTensor("Q", "q", queries, head),
            RowTensor("O", "o", output, k.depth * k.output_bytes),
            tuple(
                RowTensor(name, name.lower(), k.kv_row_stride * BF16, head) for name in ("K", "V")
            ),
        )

    def _lanes(self) -> Lanes:
        rings = (self.keys, self.values)
        row_bytes = self.k.kv_row_stride * BF16
        rows = [
            self.pages.plans[ring.name].areas[0].lane_row if self.pages else ring.dma.row
            for ring in rings
        ]
        fetches = [
            Fetch(ring.name, self.regs.sources[ring.name], row, ring.dma.byte, row_bytes)
            for ring, row in zip(rings, rows, strict=True)
        ]
        return Lanes(
            tuple(fetches),
            tuple(
                LdsAddress(self.regs.address(ring, window, index), base, start)
                for ring in rings
                for window, start in enumerate(ring.windows)
                for index, base in enumerate(ring.plan.bases)
            ),
            ((self.regs.lds_wave, 0, self.keys.dma.wave_stride),),
        )

    def _scores(self, tile: Tile, at: Binding) -> Regs:
        return self.regs.scores.regs(at.phase)

    def _record(
        self, name: str, tile: Tile | None, context: Any, *, template: str = "", **more: Any
    ) -> Operation:
        supply = context if callable(context) else _constant(context)
        return record(Operation(name, f"mha/{template or name}.s.j2", tile, supply, **more))


def _constant(context: Mapping[str, Any]) -> Any:
    return lambda at: context
