"""Merging the parts of split MLA decode work on gfx950: the operations a schedule arranges.

With parts in their order, M' = max(M, LSE), L' = exp2(M - M') L + exp2(LSE - M'), and O' likewise;
at the end O / L and M + log2 L. A part whose LSE is -inf saw no key: its weight is 0, and its O,
which may be NaN, is *replaced* by 0. M starts at the lowest finite number. A sink a, in natural
units, multiplies O by 1 / (1 + exp2(a log2 e - M - log2 L)).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mlagen.attention.latent.block_sizes import LINES_A_ROW, MERGE_BYTES, MERGE_WARPS
from mlagen.attention.prefill.gfx950.arguments import argument_registers
from mlagen.attention.prefill.gfx950.division import Divider
from mlagen.attention.prefill.gfx950.float_literals import LN2, LOG2E, LOWEST, hex_float
from mlagen.dsl import Binding, Operation, PlainOrder, Signature, Tile, exactly, record
from mlagen.dsl.signature import pack
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.facts import MergeFacts, merge_arguments
from mlagen.targets.gfx950.dsl import EntryRegisters, Space

FP32 = 4
LANES = 64  # of a wave, which has a line


def signature(k: MlaDecodeMergeConfig) -> Signature:
    """One workgroup a merge of the plan; tensors as in `split_merge.decode_problem`, but for the
    rows of a slot: 64, or the `slot_rows` that the workgroups which left them have."""
    return Signature(
        pack(*merge_arguments(k, 0)),
        grid=(("merges", 1),),
        block=(64 * MERGE_WARPS, 1, 1),
    )


class DecodeMerge:
    """The operations of one merge kernel over the schedule's registers: P and W, rings by part, and
    O."""

    def __init__(self, k: MlaDecodeMergeConfig, s: Space, entry: EntryRegisters) -> None:
        self.k, self.entry, regs = k, entry, s.registers
        s.signature, s.facts = signature(k), MergeFacts(running=True, slot_rows=0)
        self.arguments = argument_registers(s, s.signature)
        columns = exactly("registers", k.d_v // LINES_A_ROW // LANES, "columns of a lane")
        self.part, self.output = regs.taken("P", columns), regs.taken("O", columns).regs()
        self.weight = regs.taken("W", exactly("registers", 1, "LSE of a part"))
        self.lane = {
            name: regs.block(symbol, 1, what, align=1).regs()
            for name, symbol, what in (
                ("maximum", "M", "largest LSE so far"),
                ("row_sum", "L", "sum of weights"),
                ("offset", "POFF", "byte offset of this lane's columns in a part"),
                ("lse_offset", "WOFF", "byte offset of the row's LSE in a part"),
            )
        }
        self.scalars = {
            name: regs.scalar(symbol, count, what, align=align)
            for name, symbol, count, what, align in (
                ("merge", "MERGE", 8, "the merge, as the plan has it", 4),
                ("line", "LINE", 1, "this wave's line of the row block", 1),
                ("rows", "ROWS", 1, "rows of the row block; 0 where the wave has no line", 1),
                ("buffer", "SRD", 4, "buffer resource of the next part's O, then of O", 4),
                ("lse_buffer", "SRDLSE", 4, "buffer resource of its LSE, then of the LSE", 4),
                ("slot_bytes", "SLOTO", 1, "bytes of a slot's O", 1),
                ("slot_lse_bytes", "SLOTLSE", 1, "bytes of a slot's LSE", 1),
                ("scratch", "TMP", 4, "scalar temporaries", 2),
            )
        }
        if k.sink:
            what = "sink of the row's head"
            self.lane["sink"] = regs.block("SINK", 1, what, align=1).regs()
        s.plain = PlainOrder(before=("begin",), tile=("load", "add"), after=("store",))

    @cached_property
    def operands(self) -> Mapping[str, Any]:
        """Operands of all operations, but for the rings by part."""
        k = self.k
        return {
            **self.lane,
            **self.scalars,
            "arguments": self.arguments.regs,
            "argument_loads": self.arguments.loads,
            "kernarg": self.entry.kernarg,
            "group": self.entry.group[0],
            "wave": self.entry.wave,
            "parts": self.entry.tiles,
            "temp": self.entry.temp,
            "O": self.output,
            "by_heads": Divider.of(k.num_heads),
            "heads": k.num_heads,
            "waves": MERGE_WARPS,
            "merge_shift": MERGE_BYTES.bit_length() - 1,
            "part_row_bytes": k.d_v * FP32,
            "output_row_bytes": k.d_v * 2,
            "line_shift": (k.d_v * FP32 // LINES_A_ROW).bit_length() - 1,
            "lowest": hex_float(LOWEST),
            "log2e": hex_float(LOG2E),
            "with_sink": k.sink,
            "ln2": hex_float(LN2),
        }

    def setup(self) -> None:
        """The merge, this wave's line, the state before any part."""
        self._record("begin", None)

    def load(self, tile: Tile) -> None:
        """O and LSE of a part's line, global memory to registers."""
        made = (self.part.at(tile), self.weight.at(tile))
        self._record("load", tile, defines=made)

    def add(self, tile: Tile) -> None:
        """A part's O and weight to those before it."""
        self._record("add", tile, uses=(self.part.at(tile), self.weight.at(tile)))

    def store(self) -> None:
        """O / L and the LSE to global memory; what is no line is dropped by the range check."""
        self._record("store", None)

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        def supply(at: Binding) -> Mapping[str, Any]:
            if tile is None:
                return self.operands
            rings = {"P": self.part.regs(at.phase), "W": self.weight.regs(at.phase)}
            return {**self.operands, **rings}

        return record(Operation(name, f"mla_decode_merge/{name}.s.j2", tile, supply, **more))
