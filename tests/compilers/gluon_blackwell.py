"""Kernels in Gluon for sm_100a: tensor memory, tcgen05 of one CTA and of a pair, work that is
taken from clusters which have not begun."""

# ruff: noqa: RUF005  Gluon knows no starred lists.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
)


@gluon.jit
def tensor_ring(a, b, c, steps, STAGES: gl.constexpr, CTAS: gl.constexpr, CGA: gl.constexpr):
    """C = A Bᵀ in tensor memory, of one CTA or of a pair: a ring of TMA loads; a slot is filled
    again when the commit behind its product has arrived."""
    M: gl.constexpr = c.block_shape[0]
    N: gl.constexpr = c.block_shape[1]
    K: gl.constexpr = a.block_shape[1]
    pair: gl.constexpr = CTAS == 2
    layout: gl.constexpr = TensorMemoryLayout([128, N], 1, cga_layout=CGA, two_ctas=pair)
    row, col = gl.program_id(0) * M, gl.program_id(1) * N
    total = allocate_tensor_memory(gl.float32, [M, N], layout)
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=pair)
    done = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(done.index(i), count=1)
    if pair:
        cluster.barrier()
    for step in range(steps):
        slot = step % STAGES
        phase = step // STAGES & 1
        mbarrier.wait(done.index(slot), phase ^ 1, pred=step >= STAGES)
        mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, step * K], full.index(slot), a_tiles.index(slot))
        tma.async_load(b, [col, step * K], full.index(slot), b_tiles.index(slot))
        mbarrier.wait(full.index(slot), phase)
        tcgen05_mma(
            a_tiles.index(slot), b_tiles.index(slot).permute((1, 0)), total, use_acc=step > 0
        )
        tcgen05_commit(done.index(slot), descs=[a_tiles.index(slot), b_tiles.index(slot)])
    last = steps - 1
    mbarrier.wait(done.index(last % STAGES), last // STAGES & 1)
    tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    tile.store(total.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, col], tile)
    tma.store_wait(0)


@gluon.jit
def copied_cells(x, out, ROWS: gl.constexpr, COLS: gl.constexpr):
    """Shared memory to tensor memory by tcgen05.cp, and back through registers."""
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 32, rank=2)
    tensor: gl.constexpr = TensorMemoryLayout([ROWS, COLS], 1)
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, blocked))
    cols = gl.arange(0, COLS, gl.SliceLayout(0, blocked))
    places = rows[:, None] * COLS + cols[None, :]
    tile = gl.allocate_shared_memory(gl.float32, [ROWS, COLS], layout)
    tile.store(gl.load(x + places))
    fence_async_shared()
    cells = allocate_tensor_memory(gl.float32, [ROWS, COLS], tensor)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    tcgen05_copy(tile, cells)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    gl.store(out + places, gl.convert_layout(cells.load(), blocked))


@gluon.jit
def taken_work(out, n):
    """Each program counts its own number, and those of programs that it takes over."""
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    number = gl.program_id(0)
    phase = 0
    going = True
    while going:
        gl.atomic_add(out + number, 1)
        mbarrier.expect(bar, 16)
        clc.try_cancel(answer, bar)
        mbarrier.wait(bar, phase)
        found = clc.load_result(answer)
        going = found.is_canceled()
        number = found.program_id(0)
        phase ^= 1
        fence_async_shared()
