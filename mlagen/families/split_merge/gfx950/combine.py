"""Merging split MLA prefill work on gfx950: the operations a schedule arranges.

A wave owns `LINES` consecutive lines (128 columns of one row and head each) of a group: lanes 0..31
the first half, lanes 32..63 the second, 4 columns a lane. Every lane keeps M, L and O of all the
lines of its half, so nothing is exchanged between lanes. Where a head has 512 columns a lane's four
lines are one head, with one M and L.

With partials in the order of the map, M' = max(M, LSE), a = exp(M - M'), b = exp(LSE - M'):
L' = a L + b, O' = a O + b O_p; at the end O / L and M + ln L. A partial whose LSE is -inf or NaN
has b = 0 and its O is *replaced* by 0: it may be NaN. M starts at the lowest finite number, so no
difference of infinities is ever taken; L = 0 at the end means that no partial saw a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mlagen.attention.prefill.gfx950.arguments import argument_registers
from mlagen.attention.prefill.gfx950.float_literals import LN2, LOG2E, LOWEST, hex_float
from mlagen.dsl import (
    Binding,
    Operation,
    PlainOrder,
    Signature,
    Tile,
    Value,
    at_least,
    exactly,
    record,
)
from mlagen.dsl.signature import pack
from mlagen.families.split_merge.prefill_problem import LINE, MlaReduceConfig
from mlagen.targets.gfx950.dsl import EntryRegisters, Space

LANE_COLUMNS = 4  # of each of its lines
LANE_LINES = 4  # lines of a lane: their LSEs are one load of 16 bytes
LINES = 2 * LANE_LINES  # of a wave
FP32 = 4
ROW = "partial row"  # the value that `find` makes and `load` uses


def signature(k: MlaReduceConfig, waves: int) -> Signature:
    """Arguments as in `split_merge.prefill_problem`. The grid is `lines` of the longest group, and
    `groups`."""
    arguments = [
        ("partial_o", "pointer:fp32", "read", True),
        ("partial_lse", "pointer:fp32", "read", True),
        ("reduce_indptr", "pointer:int32", "read", True),
        ("reduce_final_map", "pointer:int32", "read", True),
        ("reduce_partial_map", "pointer:int32", "read", True),
        ("o", f"pointer:{k.output_dtype}", "write", True),
        ("lse", "pointer:fp32", "write", k.lse),
    ]
    return Signature(
        pack(*((name, kind, access) for name, kind, access, there in arguments if there)),
        grid=(("lines", LINES * waves), ("groups", 1)),
        block=(64 * waves, 1, 1),
    )


class Merge:
    """The operations of one reduce kernel over the schedule's registers: P and W (rings by
    partial), O, M and L."""

    def __init__(self, k: MlaReduceConfig, s: Space, entry: EntryRegisters, *, waves: int) -> None:
        self.k, self.waves, self.entry, regs = k, waves, entry, s.registers
        s.signature = self.signature = signature(k, waves)
        columns = exactly("registers", LANE_LINES * LANE_COLUMNS, "columns of a lane's lines")
        lses = exactly("registers", LANE_LINES // k.head_lines, "one a head")
        self.partial = regs.taken("P", columns)
        self.weight = regs.taken("W", at_least("registers", max(lses.exactly), "LSEs of a partial"))
        self.output, self.maximum, self.row_sum = (
            regs.taken(name, extent).regs()
            for name, extent in (("O", columns), ("M", lses), ("L", lses))
        )

        def one(name: str, comment: str) -> Any:
            return regs.block(name, 1, comment, align=1).regs()

        self.masked = one("NEG", "-inf, the LSE of a partial that saw no key")
        self.offset = one("POFF", "byte offset of this lane's columns in a partial's O")
        self.lse_offset = one("WOFF", "byte offset of this lane's lines in a partial's LSE")
        self.final_offset = one("LSEOFF", "byte offset of the LSE it stores") if k.lse else None
        self.pick = one("PICK", "which of its lines that is") if k.lse else None
        self._scalars(s)
        s.plain = PlainOrder(
            before=("group", "lanes"),
            tile=("find", "load", "add"),
            after=(
                "normalise",
                *(("store_lse",) if k.lse else ()),
                f"store_{k.output_dtype}",
            ),
        )

    def _scalars(self, s: Space) -> None:
        scalar = s.registers.scalar
        self.arguments = argument_registers(s, self.signature)
        names = {"partial_o": "SRDP", "partial_lse": "SRDW", "o": "SRDO"}
        if self.k.lse:
            names["lse"] = "SRDLSE"
        self.buffers = {
            name: scalar(symbol, 4, f"buffer resource of the group's {name}", align=4)
            for name, symbol in names.items()
        }
        self.masks = scalar("MASKS", 2 * LANE_LINES, "lane masks, one a line", align=2)
        self.entries = scalar("ENTRIES", 2, "the group's entries of the partial map", align=2)
        self.rows = scalar("ROWS", 2, "the group's rows of O", align=2)
        self.found = scalar("ROW", 1, "first row of the next partial")
        self.at = scalar("ENTRY", 1, "byte offset of the next entry of the partial map")
        self.scratch = scalar("TMP", 4, "scalar temporaries", align=2)

    @cached_property
    def operands(self) -> Mapping[str, Any]:
        """Operands of all operations, but for the rings by partial."""
        line = LINE * FP32
        return {
            "arguments": self.arguments.regs,
            "argument_loads": self.arguments.loads,
            "kernarg": self.entry.kernarg,
            "chunk": self.entry.group[0],
            "group": self.entry.group[1],
            "wave": self.entry.wave,
            "partials": self.entry.tiles,
            "temp": self.entry.temp,
            "highest": self.entry.temp[:LANE_LINES],
            "decay": self.entry.temp[LANE_LINES:],
            "scratch": self.scratch,
            "masks": self.masks,
            "entries": self.entries,
            "rows": self.rows,
            "found": self.found,
            "at": self.at,
            "buffers": self.buffers,
            "offset": self.offset,
            "lse_offset": self.lse_offset,
            "final_offset": self.final_offset,
            "pick": self.pick,
            "masked": self.masked,
            "O": self.output,
            "maximum": self.maximum,
            "row_sum": self.row_sum,
            "row_lines": self.k.num_heads * self.k.head_lines,
            "lse_bytes": FP32 // self.k.head_lines,
            "lse_shift": (FP32 // self.k.head_lines).bit_length() - 1,
            "waves": self.waves,
            "lines": LINES,
            "lane_shift": LANE_LINES.bit_length() - 1,
            "line_bytes": line,
            "line_shift": line.bit_length() - 1,
            "final_line_bytes": LINE * self.k.output_bytes,
            "lowest": hex_float(LOWEST),
            "log2e": hex_float(LOG2E),
            "ln2": hex_float(LN2),
            "lse": self.k.lse,
        }

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Arguments, the group, buffer resources, lane offsets, the state before any partial. A
        workgroup without a line, or whose group has no partial, ends here."""
        self._record("group", None, leaves=True)
        self._record("lanes", None)

    def normalise(self) -> None:
        """O / L; 0 where no partial saw a key."""
        self._record("normalise", None)

    def store(self) -> None:
        """O and the LSE to global memory; lines past the group's last are dropped by the range
        check."""
        if self.k.lse:
            self._record("store_lse", None)
        self._record(f"store_{self.k.output_dtype}", None)

    # ---- once a partial ---------------------------------------------------------------------

    def find(self, tile: Tile) -> None:
        """Look up the first row of a partial, ahead of its load."""
        self._record("find", tile, defines=(Value(ROW, tile),))

    def load(self, tile: Tile) -> None:
        """O and LSE of a partial's lines, global memory to registers."""
        made = (self.partial.at(tile), self.weight.at(tile))
        self._record("load", tile, defines=made, uses=(Value(ROW, tile),))

    def add(self, tile: Tile) -> None:
        """A partial's O and weight to those before it."""
        self._record("add", tile, uses=(self.partial.at(tile), self.weight.at(tile)))

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        operands = self.operands

        def supply(at: Binding) -> Mapping[str, Any]:
            if tile is None:
                return operands
            rings = {"P": self.partial.regs(at.phase), "W": self.weight.regs(at.phase)}
            return {**operands, **rings}

        return record(Operation(name, f"split_merge/{name}.s.j2", tile, supply, **more))
