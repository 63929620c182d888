"""What all prefill kernels on gfx950 do, for schedules to arrange: softmax and what surrounds it.

Dataflow, 32 query rows a wave (S^T = K Q^T, O^T += V^T P): one lane owns one query row, so row
maximum and row sum are in-lane reductions plus one exchange between the two half-waves, and P feeds
the second product from the registers that held S.

Softmax in base 2. bf16 multiplies Q by c = scale * log2(e) in fp32 and rounds it back once; fp8
applies c, with the scales of Q and K, to the fp32 scores in one fused c S - M, and V's scale to O
at the end. The running maximum M lags: it moves only when some row of the wave grew by more than
`rescale_threshold`; then O and l are multiplied by exp2(M_old - M_new) after the PV of the
previous tile has been issued, so no P that was already cast needs a second rounding. With fp8, P
reaches 2^threshold, which e4m3 holds. A sink is where M starts; where a mask may hide a row's first
tile, M starts at the lowest finite number, and the first visible key moves it.

How K and V come to the products, and the products, are each kernel's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlagen.attention.prefill.gfx950.float_literals import LN2, LOG2E, LOWEST, hex_float
from mlagen.attention.prefill.gfx950.fragments import MFMA_ROWS, MatrixFormat, accumulator_row
from mlagen.attention.prefill.gfx950.pages import Pages, page_value
from mlagen.attention.prefill.gfx950.registers import WINDOWED, PrefillState
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Binding, Operation, PlainOrder, Tile, Value, record
from mlagen.targets.gfx950.dsl import Regs, Ring


@dataclass(frozen=True, slots=True)
class SoftmaxForm:
    """`early`: scores of a lane whose exp2 is taken with the maximum, the others' with the row sum.
    `eager`: the maximum moves on every tile. `packed_sums`: two additions of P an instruction.
    `mixed`: exp2 and other instructions take turns; otherwise each kind follows the other."""

    early: int
    eager: bool = False
    packed_sums: bool = True
    mixed: bool = False


class PrefillAttention:
    """The operations that all prefill kernels have, over their registers. A kernel's own class sets
    these before it records anything; `persistent`: its workgroups walk work items."""

    k: PrefillConfig
    regs: PrefillState
    form: MatrixFormat
    qk_steps: int  # matrix instructions of a block of 32 keys
    softmax: SoftmaxForm
    pages: Pages | None
    persistent = False
    scale: Regs | None = None  # c, where scores are multiplied by it
    out_scale: Regs | None = None  # of V

    @property
    def fp8(self) -> bool:
        return self.k.dtype == "fp8_e4m3"

    @property
    def windowed(self) -> bool:
        """Whether the mask has a first key."""
        return self.k.mask.name in WINDOWED

    @property
    def floored(self) -> bool:
        """M starts at a number: with a sink, and where part of a tile may be hidden from a row."""
        return self.windowed or self.k.sink or self.persistent

    def scores(self, at: Binding) -> Regs:
        """The scores of the tile that is bound."""
        raise NotImplementedError

    def score_value(self, tile: Tile) -> Value:
        """The scores of a tile, from QK to PV."""
        raise NotImplementedError

    def _plain_order(
        self,
        before: Sequence[str],
        item: Sequence[str] = (),
        *,
        share: Any = None,
    ) -> PlainOrder:
        """The loop without overlap, after what is done once a workgroup and once a work item."""
        k, paged = self.k, self.pages is not None
        return PlainOrder(
            before=tuple(before),
            item=tuple(item),
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
            share=share or {},
        )

    # ---- once a query tile ------------------------------------------------------------------

    def load_queries(self) -> None:
        """Global to registers: this wave's 32 query rows as MFMA B operand."""
        form, regs = self.form, self.regs
        step_bytes = form.k * form.element_bytes
        loads = [
            (regs.queries.part(step, form.registers).part(part, 4), step_bytes * step + 16 * part)
            for step in range(self.qk_steps)
            for part in range(form.registers // 4)
        ]
        self._record("load_queries", None, {"loads": loads}, defines=(Value("Q raw"),))

    def prescale(self, tile: Tile) -> None:
        """bf16: Q = bf16(fp32(Q) * c), once, when the first tile is on its way."""
        if self.fp8:
            return
        self._record("prescale", tile, domain="first", uses=(Value("Q raw"),))

    def normalise(self) -> None:
        """O *= 1 / l, and V's scale; a row without a visible key gets 0."""
        self._record("normalise", None)

    def _store_lse(self, partial: Regs | None = None) -> None:
        """The LSE, where the problem has one. `partial`: where a work item's partial result goes,
        or -1."""
        if self.k.lse:
            self._record("store_lse", None, {"partial": partial}, guarded=partial is not None)

    def _store_output(
        self, offset: Regs, *, of_bf16_rows: bool = False, partial: Regs | None = None
    ) -> None:
        """O^T accumulators to the rows at `offset`; those beyond the sequence are dropped by the
        range check. `of_bf16_rows`: the offset counts rows of bf16, whatever O's type."""
        context = {"offset": offset, "of_bf16_rows": of_bf16_rows, "partial": partial}
        self._record(f"store_{self.k.output_dtype}", None, context, guarded=partial is not None)

    def no_tiles(self) -> None:
        """What the epilogue needs when there is no tile at all: O = 0."""
        lse = self.k.lse or self.persistent
        self._record("no_tiles", None, {"lse": lse}, domain="empty")

    # ---- once a tile ------------------------------------------------------------------------

    def find_pages(self, ring: Ring, tile: Tile) -> None:
        """Look up the pages of a tile ahead of its copy, for whoever copies it; nothing where K and
        V are contiguous."""
        if self.pages is None:
            return
        rows = self.pages.by_lane
        self._record(
            f"find_{ring.name}_pages", tile, self.pages.lookup(ring),
            template="find_rows" if rows else "find_pages",
            defines=(page_value(ring, tile),),
        )  # fmt: skip

    def mask(self, tile: Tile) -> None:
        """Scores of keys that the row does not see become -inf: after its last key, and before
        its first where a mask has such. Each side is skipped on tiles that it does not cut."""
        held = range(self.k.kv_block // 2)
        rows = [MFMA_ROWS * (r // 16) + accumulator_row(r % 16) for r in held]

        def context(at: Binding) -> dict[str, Any]:
            return {"S": self.scores(at), "rows": rows}

        for name in ("mask", "mask_start") if self.windowed else ("mask",):
            self._record(name, tile, context, uses=(self.score_value(tile),), guarded=True)

    def partial_softmax(self, tile: Tile) -> Operation:
        """Row maximum with the lagging running maximum, c S - M, exp2 of the first `early`."""
        state = Regs(self.regs.maximum.symbol, 0, 2)
        return self._record(
            "partial_softmax",
            tile,
            lambda at: {"S": self.scores(at), "state": state, "first": at.first},
            uses=(self.score_value(tile),),
            first_differs=True,
        )

    def rescale(self, tile: Tile) -> Operation:
        """O and l follow the maximum where it moved; skipped where it did not."""
        return self._record("rescale", tile, domain="rest", guarded=not self.softmax.eager)

    def tail_softmax(self, tile: Tile) -> Operation:
        """exp2 of the other scores, row sum of the fp32 P, packed in place."""
        return self._record(
            "tail_softmax",
            tile,
            lambda at: {"S": self.scores(at)},
            uses=(self.score_value(tile),),
            template="tail_softmax_mixed" if self.softmax.mixed else "",
        )

    # ---- templates --------------------------------------------------------------------------

    @cached_property
    def _operands(self) -> dict[str, Any]:
        """What the templates of all operations may name, besides an operation's own."""
        k, softmax = self.k, self.softmax
        return self.regs.operands | {
            "kv_block": k.kv_block,
            "sink": k.sink,
            "fp8": self.fp8,
            "floored": self.floored,
            "scale": self.scale,
            "out_scale": self.out_scale,
            "threshold": hex_float(k.rescale_threshold),
            "early": softmax.early,
            "eager": softmax.eager,
            "mixed": softmax.mixed,
            "packed": softmax.packed_sums,
            "lowest": hex_float(LOWEST),
            "ln2": hex_float(LN2),
            "log2e": hex_float(LOG2E),
        }

    def _record(
        self, name: str, tile: Tile | None, context: Any = None, *, folder: str = "prefill",
        template: str = "", **more: Any,
    ) -> Operation:  # fmt: skip
        def supply(at: Binding) -> dict[str, Any]:
            own = context(at) if callable(context) else context or {}
            return {**self._operands, **own}

        return record(Operation(name, f"{folder}/{template or name}.s.j2", tile, supply, **more))
