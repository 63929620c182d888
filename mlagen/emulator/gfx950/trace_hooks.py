"""The two hooks of the engine: before an instruction executes, and after it did.

They only run when the context has a tracer; nothing that they do changes what a kernel computes.
Marks follow the order of issue: an asynchronous transfer moves them when it is issued, so a kernel
with a race may be told of the wrong origin (the race itself is a finding).
"""

from __future__ import annotations

from mlagen.binary.operand import EXEC
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.scalar import get32, get64
from mlagen.emulator.gfx950.state import scalar_base
from mlagen.emulator.gfx950.trace_floats import trace_matrix, trace_parts
from mlagen.emulator.gfx950.trace_moves import (
    trace_dma,
    trace_lds_read,
    trace_lds_write,
    trace_load,
    trace_permute,
    trace_read_lane,
    trace_store,
    trace_swap,
    trace_writes,
)
from mlagen.emulator.gfx950.trace_values import snapshot, trace_row
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64


@compiled
def trace_before(context: int, wave: int, p: int) -> None:
    """Keep the lanes and the registers that instruction `p` is about to change."""
    trace = load_i64(context, y.C_TRACE)
    lanes = -1
    if load_i64(p, y.P_ALL_LANES) == 0:
        lanes = get64(scalar_base(context, wave), EXEC)
    store_i64(trace, t.TC_LANES, lanes)
    snapshot(context, trace, wave, p)


@compiled
def trace_after(context: int, wave: int, number: int, p: int) -> None:
    """Look at what program row `number` made, and move the marks."""
    trace = load_i64(context, y.C_TRACE)
    row = trace_row(trace, number)
    nature = load_i64(row, t.T_NATURE)
    lanes = load_i64(trace, t.TC_LANES)
    if nature == t.PARTS:
        trace_parts(context, trace, wave, number, p, row, lanes)
    elif nature == t.MATRIX:
        trace_matrix(context, trace, wave, number, p, row)
    elif nature == t.LOAD:
        trace_load(context, trace, wave, number, p, lanes)
    elif nature == t.STORE:
        trace_store(context, trace, wave, number, p, lanes)
    elif nature == t.DMA:
        trace_dma(context, trace, wave, number, p)
    elif nature == t.LDS_READ:
        trace_lds_read(context, trace, wave, number, p, lanes)
    elif nature == t.LDS_WRITE:
        trace_lds_write(context, trace, wave, p, lanes)
    elif nature == t.PERMUTE:
        trace_permute(context, trace, wave, number, p, lanes)
    elif nature == t.SWAP:
        trace_swap(context, trace, wave, number, p)
    elif nature == t.READ_LANE:
        trace_read_lane(context, trace, wave, number, p)
    else:
        if nature == t.WRITE_LANE:
            lane = load_i64(p, y.P_KIND + 3)
            if load_i64(p, y.P_KIND + 2) == y.S_SCALAR:
                lane = get32(scalar_base(context, wave), lane)
            lanes = 1 << (lane & 63)
        trace_writes(context, trace, wave, number, p, row, lanes)
