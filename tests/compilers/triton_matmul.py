"""Matrix products in Triton: by pointers and descriptors, specialised, persistent, split."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_pointers(
    a,
    b,
    c,
    m,
    n,
    k,
    a_pitch,
    b_pitch,
    c_pitch,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SUM: tl.constexpr = tl.float32,
):
    """C = A B of row-major A [m, k] and B [k, n]; masks on every side."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    col = tl.program_id(1) * N + tl.arange(0, N)
    deep = tl.arange(0, K)
    total = tl.zeros([M, N], SUM)
    for start in tl.range(0, k, K):
        left = tl.load(
            a + row[:, None] * a_pitch + (start + deep)[None, :],
            mask=(row < m)[:, None] & (start + deep < k)[None, :],
            other=0.0,
        )
        right = tl.load(
            b + (start + deep)[:, None] * b_pitch + col[None, :],
            mask=(start + deep < k)[:, None] & (col < n)[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total, out_dtype=SUM)
    live = (row < m)[:, None] & (col < n)[None, :]
    place = c + row[:, None] * c_pitch + col[None, :]
    tl.store(place, total.to(c.dtype.element_ty), mask=live)


@triton.jit
def matmul_transposed(
    a,
    b,
    c,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SUM: tl.constexpr,
):
    """C = A Bᵀ of A [m, k] and B [n, k], whole tiles only: 8-bit formats want K innermost."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    col = tl.program_id(1) * N + tl.arange(0, N)
    deep = tl.arange(0, K)
    total = tl.zeros([M, N], SUM)
    for start in tl.range(0, k, K):
        left = tl.load(a + row[:, None] * k + (start + deep)[None, :])
        right = tl.load(b + col[:, None] * k + (start + deep)[None, :])
        total = tl.dot(left, right.T, total, out_dtype=SUM)
    tl.store(c + row[:, None] * n + col[None, :], total.to(c.dtype.element_ty))


@triton.jit
def matmul_descriptors(
    a,
    b,
    c,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SPECIALISE: tl.constexpr,
):
    """C = A B through tensor maps that the host made; roles by warps if asked."""
    row, col = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros([M, N], tl.float32)
    for start in tl.range(0, k, K, warp_specialize=SPECIALISE):
        total = tl.dot(a.load([row, start]), b.load([start, col]), total)
    c.store([row, col], total.to(c.dtype))


@triton.jit
def matmul_device_maps(
    a,
    b,
    c,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """C = A Bᵀ through tensor maps that the kernel itself makes, in scratch memory."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    out = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N])
    row, col = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros([M, N], tl.float32)
    for start in tl.range(0, k, K):
        total = tl.dot(left.load([row, start]), right.load([col, start]).T, total)
    out.store([row, col], total.to(c.dtype.element_ty))


@triton.jit
def matmul_persistent(
    a,
    b,
    c,
    m,
    n,
    k,
    PROGRAMS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Few programs take the tiles of C in turn; loads of the next tile begin during this one."""
    cols = tl.cdiv(n, N)
    tiles = tl.cdiv(m, M) * cols
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        row, col = tile // cols * M, tile % cols * N
        total = tl.zeros([M, N], tl.float32)
        for start in tl.range(0, k, K):
            total = tl.dot(a.load([row, start]), b.load([col, start]).T, total)
        c.store([row, col], total.to(c.dtype))


@triton.jit
def matmul_split(
    a,
    b,
    c,
    m,
    n,
    k,
    PARTS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    """C += A B, the inner dimension split over programs that add by atomics."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    col = tl.program_id(1) * N + tl.arange(0, N)
    part = tl.program_id(2)
    total = tl.zeros([M, N], tl.float32)
    for start in tl.range(part * K, k, PARTS * K):
        deep = start + tl.arange(0, K)
        left = tl.load(a + row[:, None] * k + deep[None, :], mask=(deep < k)[None, :], other=0.0)
        right = tl.load(b + deep[:, None] * n + col[None, :], mask=(deep < k)[:, None], other=0.0)
        total = tl.dot(left, right, total)
    tl.atomic_add(c + row[:, None] * n + col[None, :], total, sem="relaxed")


@triton.jit
def matmul_chain(a, b, c, out, ROWS: tl.constexpr, MID: tl.constexpr, COLS: tl.constexpr):
    """(A Bᵀ) C in small tiles: the first product is rounded to be an operand in registers."""
    row, mid, col = tl.arange(0, ROWS), tl.arange(0, MID), tl.arange(0, COLS)
    left = tl.load(a + row[:, None] * COLS + col[None, :])
    right = tl.load(b + mid[:, None] * COLS + col[None, :])
    third = tl.load(c + mid[:, None] * COLS + col[None, :])
    first = tl.dot(left, right.T)
    second = tl.dot(first.to(third.dtype), third)
    tl.store(out + row[:, None] * COLS + col[None, :], second)


@triton.jit
def batched_tiles(x, out, ROWS: tl.constexpr, COLS: tl.constexpr, SHIFT: tl.constexpr):
    """Tiles of a rank-3 array moved by descriptors, over its edges: zeros come in, none go out."""
    batch = tl.program_id(0)
    row, col = tl.program_id(1) * ROWS, tl.program_id(2) * COLS
    tile = x.load([batch, row - SHIFT, col + SHIFT])
    out.store([batch, row, col], tile * 2)
