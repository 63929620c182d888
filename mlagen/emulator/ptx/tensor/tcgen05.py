"""tcgen05, instruction by instruction."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.tensors import fence_after, fence_before
from mlagen.emulator.ptx.state import program_row, warp_base
from mlagen.emulator.ptx.tensor import tensor_memory as t
from mlagen.emulator.ptx.tensor.allocation import allocate, free, relinquish
from mlagen.emulator.ptx.tensor.issue import issue_commit, issue_copy, issue_product
from mlagen.emulator.ptx.tensor.moves import load, store, wait_loads, wait_stores
from mlagen.emulator.ptx.tensor.word_places import warp_words


@compiled
def run_fence(context: int, warp: int, op: int) -> None:
    """tcgen05.fence."""
    if load_i64(context, y.C_SANITIZE) == 0:
        return
    if op == t.AFTER:
        fence_after(context, warp)
    else:
        fence_before(context, warp, load_i64(warp_words(context, warp), t.TW_ISSUED))


@compiled
def run_pipe(context: int, warp: int, row: int, mask: int) -> None:
    """What each lane issues for itself."""
    op = load_i64(program_row(context, row), y.P_OP)
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        store_i64(warp_base(context, warp), y.W_ACTORS, 1 << lane)
        if op == t.MMA:
            good = issue_product(context, warp, row, lane)
        elif op == t.COPY:
            good = issue_copy(context, warp, row, lane)
        else:
            good = issue_commit(context, warp, row, lane)
        if not good:
            return


@compiled
def run_tensor(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT, or AGAIN while an allocation has no room."""
    op = load_i64(program_row(context, row), y.P_OP)
    if op == t.ALLOC:
        return allocate(context, warp, row, mask)
    if op == t.DEALLOC:
        free(context, warp, row, mask)
    elif op == t.RELINQUISH:
        relinquish(context, warp, row)
    elif op == t.LOAD:
        load(context, warp, row, mask)
    elif op == t.STORE:
        store(context, warp, row, mask)
    elif op == t.WAIT_LOAD:
        wait_loads(context, warp)
    elif op == t.WAIT_STORE:
        wait_stores(context, warp)
    elif op == t.BEFORE or op == t.AFTER:
        run_fence(context, warp, op)
    else:
        run_pipe(context, warp, row, mask)
    return y.NEXT
