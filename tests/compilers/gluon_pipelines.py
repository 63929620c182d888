"""Kernels in Gluon: mbarriers, copies by TMA, cp.async and st.async, wgmma and clusters by hand."""

# ruff: noqa: RUF005  Gluon knows no starred lists.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    async_store,
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _fetch(a, b, a_tiles, b_tiles, full, row, col, step, STAGES: gl.constexpr):
    """Both operands of one step on their way, into the slot that is the step's."""
    slot = step % STAGES
    bar = full.index(slot)
    mbarrier.expect(bar, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [row, step * a.block_shape[1]], bar, a_tiles.index(slot))
    tma.async_load(b, [col, step * b.block_shape[1]], bar, b_tiles.index(slot))


@gluon.jit
def _stored(c, total, row, col):
    """Sums to C, through shared memory."""
    tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    tile.store(total.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, col], tile)
    tma.store_wait(0)


@gluon.jit
def tma_ring(a, b, c, steps, STAGES: gl.constexpr):
    """C = A Bᵀ by one warpgroup: a ring of TMA loads, one wgmma in flight behind the next."""
    M: gl.constexpr = c.block_shape[0]
    N: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    row, col = gl.program_id(0) * M, gl.program_id(1) * N
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(STAGES - 1):
        _fetch(a, b, a_tiles, b_tiles, full, row, col, i, STAGES)
    total = gl.zeros([M, N], gl.float32, layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        total = warpgroup_mma(
            a_tiles.index(slot), b_tiles.index(slot).permute((1, 0)), total, is_async=True
        )
        # The slot of the step before is free once that step's wgmma has read it.
        total = warpgroup_mma_wait(1, deps=[total])
        ahead = step + STAGES - 1
        if ahead < steps:
            _fetch(a, b, a_tiles, b_tiles, full, row, col, ahead, STAGES)
    total = warpgroup_mma_wait(0, deps=[total])
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(i))
    _stored(c, total, row, col)


@gluon.jit
def _load_role(a, b, a_tiles, b_tiles, full, empty, row, col, steps, STAGES: gl.constexpr):
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
        _fetch(a, b, a_tiles, b_tiles, full, row, col, step, STAGES)


@gluon.jit
def _math_role(a_tiles, b_tiles, full, empty, out, steps, STAGES: gl.constexpr):
    M: gl.constexpr = out.shape[0]
    N: gl.constexpr = out.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    total = gl.zeros([M, N], gl.float32, layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        total = warpgroup_mma(
            a_tiles.index(slot), b_tiles.index(slot).permute((1, 0)), total, is_async=True
        )
        total = warpgroup_mma_wait(0, deps=[total])
        mbarrier.arrive(empty.index(slot), count=1)
    out.store(total.to(out.dtype))


@gluon.jit
def roles(a, b, c, steps, STAGES: gl.constexpr):
    """C = A Bᵀ by two partitions of warps: one loads by TMA, one multiplies; registers move."""
    M: gl.constexpr = c.block_shape[0]
    N: gl.constexpr = c.block_shape[1]
    row, col = gl.program_id(0) * M, gl.program_id(1) * N
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    out = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_math_role, (a_tiles, b_tiles, full, empty, out, steps, STAGES)),
            (_load_role, (a, b, a_tiles, b_tiles, full, empty, row, col, steps, STAGES)),
        ],
        [1],
        [40],
    )
    fence_async_shared()
    tma.async_store(c, [row, col], out)
    tma.store_wait(0)


@gluon.jit
def multicast_pair(a, b, c, steps, STAGES: gl.constexpr):
    """C = A Bᵀ by a cluster of two CTAs: each has its rows of A, one load gives B to both."""
    M: gl.constexpr = c.block_shape[0]
    N: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, N, 16], cga_layout=[[1, 0]]
    )
    row, col = gl.program_id(0) * M, gl.program_id(1) * N
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    cluster.barrier(relaxed=True)
    total = gl.zeros([M, N], gl.float32, layout)
    for step in range(steps):
        slot = step % STAGES
        bar = full.index(slot)
        mbarrier.expect(bar, a.nbytes_per_cta + b.nbytes_per_cta)
        # Neither CTA's B may be written before both have read what the slot held.
        cluster.barrier()
        tma.async_load(a, [row, step * a.block_shape[1]], bar, a_tiles.index(slot))
        tma.async_load(b, [col, step * b.block_shape[1]], bar, b_tiles.index(slot), multicast=True)
        mbarrier.wait(bar, step // STAGES & 1, deps=[a_tiles, b_tiles])
        total = warpgroup_mma(
            a_tiles.index(slot), b_tiles.index(slot).permute((1, 0)), total, is_async=True
        )
        total = warpgroup_mma_wait(0, deps=[total])
    cluster.barrier()
    for i in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(i))
    _stored(c, total, row, col)


@gluon.jit
def copied_rows(x, out, n, pitch, ROWS: gl.constexpr, COLS: gl.constexpr, STAGES: gl.constexpr):
    """Sums of row blocks: cp.async into a ring, arrivals that count nothing extra, then groups."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])
    row = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    col = gl.arange(0, COLS, gl.SliceLayout(0, layout))
    tiles = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS, COLS], shared)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=gl.num_warps() * 32)
    blocks = gl.cdiv(n, ROWS)
    place = x + row[:, None] * pitch + col[None, :]
    for i in gl.static_range(STAGES - 1):
        first = ((i * ROWS + row) < n)[:, None] & (col >= 0)[None, :]
        async_copy.async_load(tiles.index(i), place + i * ROWS * pitch, mask=first)
        async_copy.mbarrier_arrive(full.index(i), increment_count=False)
    total = gl.zeros([ROWS, COLS], gl.float32, layout)
    for step in range(blocks):
        ahead = step + STAGES - 1
        if ahead < blocks:
            slot = ahead % STAGES
            live = ((ahead * ROWS + row) < n)[:, None] & (col >= 0)[None, :]
            gl.barrier()  # the slot was read by everybody in the step before
            async_copy.async_load(tiles.index(slot), place + ahead * ROWS * pitch, mask=live)
            async_copy.mbarrier_arrive(full.index(slot), increment_count=False)
        mbarrier.wait(full.index(step % STAGES), step // STAGES & 1)
        total += tiles.index(step % STAGES).load(layout)
    gl.store(out + row[:, None] * COLS + col[None, :], total)


@gluon.jit
def grouped_copies(a, b, c, k, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """C = A B by mma.sync: cp.async in two groups, fragments by ldmatrix."""
    copy: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
    a_tile = gl.allocate_shared_memory(a.dtype.element_ty, [2, M, K], shared)
    b_tile = gl.allocate_shared_memory(b.dtype.element_ty, [2, K, N], shared)
    row = gl.arange(0, M, gl.SliceLayout(1, copy))
    deep_a = gl.arange(0, K, gl.SliceLayout(0, copy))
    deep_b = gl.arange(0, K, gl.SliceLayout(1, copy))
    col = gl.arange(0, N, gl.SliceLayout(0, copy))
    from_a = a + row[:, None] * k + deep_a[None, :]
    from_b = b + deep_b[:, None] * N + col[None, :]
    steps = k // K
    async_copy.async_load(a_tile.index(0), from_a)
    async_copy.async_load(b_tile.index(0), from_b)
    async_copy.commit_group()
    total = gl.zeros([M, N], gl.float32, mma)
    for step in range(steps):
        ahead = step + 1
        if ahead < steps:
            async_copy.async_load(a_tile.index(ahead % 2), from_a + ahead * K)
            async_copy.async_load(b_tile.index(ahead % 2), from_b + ahead * K * N)
        async_copy.commit_group()
        async_copy.wait_group(1)
        left = a_tile.index(step % 2).load(gl.DotOperandLayout(0, mma, 2))
        right = b_tile.index(step % 2).load(gl.DotOperandLayout(1, mma, 2))
        total = mma_v2(left, right, total)
        gl.barrier()
    rows = gl.arange(0, M, gl.SliceLayout(1, mma))
    cols = gl.arange(0, N, gl.SliceLayout(0, mma))
    gl.store(c + rows[:, None] * N + cols[None, :], total)


@gluon.jit
def reduced_tiles(x, out, TILES: gl.constexpr):
    """Tiles of integers added to one tile in global memory by TMA: each program adds its own."""
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    for step in gl.static_range(TILES):
        first = (gl.program_id(0) * TILES + step) * x.block_shape[0]
        mbarrier.expect(bar, x.nbytes_per_cta)
        tma.async_load(x, [first, 0], bar, tile)
        mbarrier.wait(bar, step & 1)
        tma.async_atomic_add(out, [0, 0], tile)
        tma.store_wait(0)
    mbarrier.invalidate(bar)


@gluon.jit
def dealt_pairs(x, out):
    """512 numbers that two CTAs hold pair by pair, sent by st.async so that each has a half."""
    pairs: gl.constexpr = gl.DistributedLinearLayout(
        [[1]], [[4], [8], [16], [32], [64]], [[128], [256]], [[2]], [512]
    )
    halves: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0], cga_layout=[[1]])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[1]])
    line = gl.load(x + gl.arange(0, 512, pairs))
    there = gl.allocate_shared_memory(gl.int32, [512], shared)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 256 * 4)
    cluster.barrier()
    async_store(there, line * 2 + 1, bar)
    mbarrier.wait(bar, 0)
    backwards = there.load(halves)
    gl.store(out + 511 - gl.arange(0, 512, halves), backwards)
    cluster.barrier()
    mbarrier.invalidate(bar)


@gluon.jit
def boxes(x, out, FIRST: gl.constexpr, layout: gl.constexpr, SIZE: gl.constexpr):
    """One box of an array of any rank, by TMA: over its edges, and out by plain stores."""
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load(x, FIRST, bar, tile)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    line: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    values = gl.convert_layout(gl.reshape(tile.load(layout), [SIZE]), line)
    gl.store(out + gl.arange(0, SIZE, line), values)
