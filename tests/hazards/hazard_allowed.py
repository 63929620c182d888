"""Where the three tables may differ, and why: everything else fails the tests."""

from __future__ import annotations

from dataclasses import dataclass

from hazard_llvm import Measurement
from hazard_probes import (
    DOT_TABLE,
    F32_2,
    MATRIX_TABLE,
    STORE_TABLE,
    STREAM_TABLE,
    VECTOR_TABLE,
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Probes that may differ: a table and, where given, some of its rows and columns.

    `gap` False allows only asking more than LLVM, True only asking less or not decoding the pair.
    """

    reason: str
    table: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    gap: bool = False

    def covers(self, item: Measurement, states: int | None) -> bool:
        """True when this entry explains `states` where LLVM asks `item.llvm`."""
        probe = item.probe
        return (
            probe.table == self.table
            and (not self.rows or probe.row in self.rows)
            and (not self.columns or probe.column in self.columns)
            and self.gap == (states is None or states < item.llvm)
        )


# The generator's table against LLVM: always on the strict side.
GENERATOR: tuple[Allowed, ...] = (
    Allowed(
        "LLVM forwards an accumulator between different opcodes; the guide asks for equal pass "
        "counts and documents forwarding within one opcode only",
        MATRIX_TABLE,
        columns=("other opcode, SrcC = D", "other f32 opcode, SrcC = D"),
    ),
    Allowed(
        "the guide has no row for two matrix instructions writing the same registers; the "
        "generator treats the second as any vector instruction, LLVM asks nothing",
        MATRIX_TABLE,
        columns=("MFMA overwrites D",),
    ),
    Allowed(
        "a two-pass f32 result read by another kind of matrix instruction: LLVM asks 2 when the "
        "registers are equal and 0 when they overlap, the generator 2 for both",
        MATRIX_TABLE,
        rows=(F32_2.row,),
        columns=("MFMA SrcC overlaps D",),
    ),
    Allowed(
        "the guide asks 1 between two conversions that write parts of one register, in whichever "
        "order; LLVM only after the high half",
        VECTOR_TABLE,
        columns=("cvt_pk_fp8, low half", "cvt_pk_fp8, high half"),
    ),
    Allowed(
        "the same, between the two conversions that pack four values",
        STREAM_TABLE,
        columns=("whole",),
    ),
    Allowed(
        "the guide asks 1 before anything overwrites the data of a wide store, LLVM only looks at "
        "vector instructions",
        STORE_TABLE,
        columns=("ds_read",),
    ),
    Allowed(
        "the guide asks 3 before any other instruction reads a dot product, LLVM leaves out matrix "
        "instructions",
        DOT_TABLE,
        columns=("MFMA SrcA",),
    ),
    Allowed(
        "an SGPR offset exempts nothing on gfx950 (LLVM PR 197267); LLVM 22.1.8 is older",
        STORE_TABLE,
        rows=("buffer_store_dwordx4, SGPR offset",),
    ),
)

# The checkers' table against LLVM: on the strict side in the same places.
CHECKER: tuple[Allowed, ...] = (
    Allowed(
        "as the generator's table: forwarding between opcodes is undocumented",
        MATRIX_TABLE,
        columns=("other opcode, SrcC = D", "other f32 opcode, SrcC = D"),
    ),
    Allowed(
        "as the generator's table: a two-pass f32 result read by another kind of instruction",
        MATRIX_TABLE,
        rows=(F32_2.row,),
        columns=("MFMA SrcC overlaps D",),
    ),
    Allowed(
        "as the generator's table: an SGPR offset exempts nothing on gfx950 (LLVM PR 197267); LLVM "
        "22.1.8 is older",
        STORE_TABLE,
        rows=("buffer_store_dwordx4, SGPR offset",),
    ),
)


def generator_differs(item: Measurement) -> bool:
    """True when the generator's padding is not LLVM's, for the pair or anywhere in the probe."""
    return not item.agrees


def checker_differs(item: Measurement, states: int | None) -> bool:
    """True when the checkers ask something else than LLVM between the pair."""
    if states is None:
        return True
    return states != item.llvm if item.exact else states > item.llvm
