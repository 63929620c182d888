"""Attention in Triton: one pass over the keys with a running maximum."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _block(total, weight, most, q, keys, values, row, start, k_len, scale, KEYS: tl.constexpr,
           CAUSAL: tl.constexpr):  # fmt: skip
    """One block of keys: scores, their powers of two, and what is carried on."""
    column = start + tl.arange(0, KEYS)
    scores = tl.dot(q, keys.load([start, 0]).T) * scale
    live = (column < k_len)[None, :]
    if CAUSAL:
        live = live & (column[None, :] <= row[:, None])
    scores = tl.where(live, scores, float("-inf"))
    now = tl.maximum(most, tl.max(scores, 1))
    powers = tl.exp2(scores - now[:, None])
    shrink = tl.exp2(most - now)
    weight = weight * shrink + tl.sum(powers, 1)
    total = tl.dot(powers.to(q.dtype), values.load([start, 0]), total * shrink[:, None])
    return total, weight, now


@triton.jit
def attention(
    q, k, v, out, lse, q_len, k_len, scale,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """softmax(scale q kᵀ) v of one head a program_id(1); `scale` has log2(e) in it already."""
    head = tl.program_id(1)
    keys = tl.make_tensor_descriptor(
        k + head * k_len * DEPTH, [k_len, DEPTH], [DEPTH, 1], [KEYS, DEPTH]
    )
    values = tl.make_tensor_descriptor(
        v + head * k_len * DEPTH, [k_len, DEPTH], [DEPTH, 1], [KEYS, DEPTH]
    )
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = head * q_len * DEPTH + row[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    inside = (row < q_len)[:, None]
    mine = tl.load(q + place, mask=inside, other=0.0)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    total = tl.zeros([ROWS, DEPTH], tl.float32)
    last = k_len
    if CAUSAL:
        last = tl.minimum(k_len, tl.program_id(0) * ROWS + ROWS)
    for start in tl.range(0, last, KEYS):
        total, weight, most = _block(
            total, weight, most, mine, keys, values, row, start, k_len, scale, KEYS, CAUSAL
        )
    tl.store(out + place, (total / weight[:, None]).to(out.dtype.element_ty), mask=inside)
    tl.store(lse + head * q_len + row, most + tl.log2(weight), mask=row < q_len)
