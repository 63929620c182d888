"""The tracer's tables and state arrays, as values that Python owns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.binary import MachineInstruction, Operand
from mlagen.binary.operand import words
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.memory import BufferArena
from mlagen.emulator.gfx950.translate import TranslatedKernel
from mlagen.emulator.tracing.float_operands import FloatOperation, float_operation, matrix_formats
from mlagen.targets.gfx950.limits import GFX950

MOVES = frozenset(
    words(
        "v_mov_b32 v_mov_b64 v_pk_mov_b32 v_cndmask_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 "
        "v_accvgpr_mov_b32"
    )
)


_VMEM_NATURES = {
    o.G_LOAD: t.LOAD,
    o.G_STORE: t.STORE,
    o.G_LOAD_LDS: t.DMA,
    o.G_ATOMIC: t.STORE,
}


def _lane_nature(op: int) -> int:
    if op in (o.L_READFIRST, o.L_READ):
        return t.READ_LANE
    return t.WRITE_LANE if op == o.L_WRITE else t.SWAP


def _data_share_nature(op: int) -> int:
    if op >= o.D_BPERMUTE:
        return t.PERMUTE
    return t.LDS_WRITE if op in (o.D_WRITE, o.D_WRITE2) else t.LDS_READ


def trace_program(program: TranslatedKernel) -> np.ndarray:
    """One row of trace_layout.T_* an instruction, int64[rows, T_SIZE]."""
    table = np.zeros((len(program.instructions), t.T_SIZE), dtype=np.int64)
    for ins, row, out in zip(program.instructions, program.rows, table, strict=True):
        kind, op = int(row[y.P_CLASS]), int(row[y.P_OP])
        if kind in (y.X_VALU, y.X_PACKED, y.X_WIDE, y.X_CARRY, y.X_MATRIX, y.X_LANE):
            _note_widths(ins, row, out)
        if kind in (y.X_VALU, y.X_PACKED, y.X_WIDE):
            floats = float_operation(ins)
            if floats is not None:
                _note_parts(floats, row, out)
            elif ins.mnemonic in MOVES:
                out[t.T_NATURE] = t.MOVE
        elif kind == y.X_MATRIX:
            if ins.mnemonic.startswith("v_mfma_i32"):
                continue
            out[t.T_NATURE] = t.MATRIX
            out[t.T_SOURCE : t.T_SOURCE + 2] = matrix_formats(ins)
            out[t.T_RESULT] = out[t.T_SOURCE + 2] = t.F32
        elif kind == y.X_LANE:
            out[t.T_NATURE] = _lane_nature(op)
            out[t.T_COUNT + 1] = 0  # the lane number is no data
        elif kind == y.X_LDS:
            out[t.T_NATURE] = _data_share_nature(op)
        elif kind == y.X_VMEM:
            out[t.T_NATURE] = _VMEM_NATURES[op]
    return table


def _note_widths(ins: MachineInstruction, row: np.ndarray, out: np.ndarray) -> None:
    sources: list[Operand | None] = [
        ins.operand("vsrc0") or ins.operand("src0"),
        ins.operand("vsrc1") or ins.operand("src1"),
        ins.operand("src2"),
    ]
    for which, operand in enumerate(sources):
        if row[y.P_KIND + 2 * which] != y.S_NONE:
            # Without an operand: the destination that v_fmac accumulates on.
            out[t.T_COUNT + which] = operand.count if operand is not None else 1
    if ins.mnemonic == "v_cndmask_b32":
        out[t.T_COUNT + 2] = 0  # the lane mask is no data


def _note_parts(floats: FloatOperation, row: np.ndarray, out: np.ndarray) -> None:
    out[t.T_NATURE] = t.PARTS
    out[t.T_RESULT] = floats.result
    out[t.T_SOURCE : t.T_SOURCE + 3] = floats.sources
    out[t.T_PARTS] = len(floats.parts)
    for number, part in enumerate(floats.parts):
        base = t.T_PART + number * t.PART_SIZE
        out[base : base + 2] = part.result
        for which, (offset, mask) in enumerate(part.sources):
            if row[y.P_KIND + 2 * which] != y.S_NONE and floats.sources[which] != t.BITS:
                out[base + 2 + 2 * which : base + 4 + 2 * which] = (offset, mask)


@dataclass(frozen=True)
class Shadow:
    """What all workgroups of a run share: the table, and marks of global memory by dword."""

    table: np.ndarray
    marks: np.ndarray
    stores: np.ndarray


def make_shadow(program: TranslatedKernel, memory: BufferArena) -> Shadow:
    dwords = memory.arena.size // 4 + 1
    # Pages that nothing stores to stay unallocated.
    marks, stores = (np.zeros(dwords, dtype=np.int64) for _ in range(2))
    return Shadow(trace_program(program), marks, stores)


class Tracer:
    """The tracer's context of one machine."""

    def __init__(self, shadow: Shadow, waves: int) -> None:
        registers = (waves, y.VECTOR_ROWS, y.LANES)
        self._state: dict[int, np.ndarray] = {
            t.TC_MARK: np.zeros(registers, dtype=np.int64),
            t.TC_WRITER: np.zeros(registers, dtype=np.uint32),
            t.TC_ADDRESS: np.zeros(registers, dtype=np.uint32),
            t.TC_SCALAR_MARK: np.zeros((waves, y.SCALAR_SLOTS), dtype=np.int64),
            t.TC_SCALAR_WRITER: np.zeros((waves, y.SCALAR_SLOTS), dtype=np.int64),
            t.TC_LDS_MARK: np.zeros(GFX950.lds_bytes // 4 + 4, dtype=np.int64),
        }
        old = (t.OLD_ROWS, y.LANES)
        self._records = np.zeros((t.MAX_RECORDS, t.R_SIZE), dtype=np.int64)
        self._others: dict[int, np.ndarray] = {
            t.TC_PROGRAM: shadow.table,
            t.TC_ARENA_MARK: shadow.marks,
            t.TC_ARENA_STORE: shadow.stores,
            t.TC_OLD: np.zeros(old, dtype=np.uint32),
            t.TC_OLD_MARK: np.zeros(old, dtype=np.int64),
            t.TC_OLD_WRITER: np.zeros(old, dtype=np.uint32),
            t.TC_OLD_ADDRESS: np.zeros(old, dtype=np.uint32),
            t.TC_SCAN: np.zeros(64, dtype=np.int64),
            t.TC_RECORDS: self._records,
        }
        self.context = np.zeros(t.TC_SIZE, dtype=np.int64)
        for slot, array in (*self._state.items(), *self._others.items()):
            self.context[slot] = array.ctypes.data

    @property
    def address(self) -> int:
        return int(self.context.ctypes.data)

    def reset(self) -> None:
        """Before a workgroup: nothing was written, nothing is known."""
        for array in self._state.values():
            array.fill(0)
        self.context[t.TC_COUNT] = 0

    def records(self) -> np.ndarray:
        """What the workgroup found, in execution order: int64[n, R_SIZE]."""
        return self._records[: int(self.context[t.TC_COUNT])].copy()
