"""MLA decode on Hopper with products of e4m3, in numpy: its M, bias, P and sums, and faults.

Not written from the oracles: P is rounded by casting, M has the bias in it, and a step of a product
is what the emulator's model of the tensor core says of words (`emulator.ptx.arithmetic.dot`).
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from mlagen.emulator.ptx.arithmetic.dot import dot, rule_of

BF16, E4M3, F32 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32
TILE, STEP, SLACK, BIAS, FINE = 64, 32, 2, 6, 512
RULE = rule_of("wgmma", "e4m3", "f32")

# And data that shows them.
FAULTS = {
    "dropped key": "randn", "swapped keys": "randn", "scale off by 1 %": "randn",
    "stale rescale": "late_max", "P without its bias": "realistic", "bias in the LSE": "randn",
    "M that follows at once": "realistic", "P of bf16": "randn", "sums of fp32": "randn",
    "scale of values left out": "randn",
}  # fmt: skip


def simulate(inputs, *, fault=None, off=2.0**-22):
    """(O [B, q_len, H, 512] bf16, LSE [B, H, q_len] fp32) as the kernel stores them. `off`: the
    relative error of exp2 at most."""
    config = inputs.config
    out = np.empty((*inputs.q.shape[:3], config.d_v), BF16)
    lse = np.empty((inputs.batch, config.num_heads, config.q_len), F32)
    for sequence in range(inputs.batch):
        length = int(inputs.cache_lengths[sequence])
        pages = inputs.block_table[sequence, : -(-length // config.page_size)]
        rows = inputs.cache[pages].reshape(-1, config.d_qk)[:length]
        for token, keys in enumerate(config.visible(length)):
            seen = np.isin(np.arange(length), keys)
            at = sequence, token
            out[at], lse[sequence, :, token] = _attention(
                inputs, inputs.q[at], rows, seen, (fault, off)
            )
    return out, lse


def product(sums, a, b, fault=None):
    """`sums` and a @ b.T of e4m3 numbers, a step after another."""
    for step in range(0, a.shape[1], STEP):
        left, right = a[:, step : step + STEP], b[:, step : step + STEP]
        if fault == "sums of fp32" or left.dtype != E4M3:
            sums = (sums + left.astype(float) @ right.astype(float).T).astype(F32)
        else:
            words = left.view(np.uint8), np.ascontiguousarray(right).view(np.uint8)
            of_sums = np.ascontiguousarray(sums, F32).view(np.uint32)
            words = [word.astype(np.uint32) for word in words]
            sums = dot(RULE, ("e4m3", "e4m3", "f32"), *words, of_sums).view(F32)
    return sums


def _attention(inputs, q, rows, seen, wrong):
    """One token's heads."""
    fault, off = wrong
    heads = len(q)
    scale = inputs.score_scale * (1.01 if fault == "scale off by 1 %" else 1.0)
    c = F32(scale * math.log2(math.e))
    bias = 0 if fault == "P without its bias" else BIAS
    slack = 0 if fault == "M that follows at once" else SLACK
    rng = np.random.default_rng(7)
    o, total = np.zeros((512, heads), F32), np.zeros(heads, F32)
    m = np.full(heads, -np.finfo(F32).max)
    for first in range(0, len(rows), TILE):
        part = rows[first : first + TILE]
        tile = np.zeros((TILE, rows.shape[1]), E4M3)
        tile[: len(part)] = part
        s = product(np.zeros((heads, TILE), F32), np.ascontiguousarray(q), tile, fault)
        hidden = ~np.pad(seen[first : first + TILE], (0, TILE - len(part)))
        hidden[5] |= fault == "dropped key" and first == 0
        s = np.where(hidden, F32(-np.inf), s)
        largest = (s.max(axis=1) * c).astype(F32)
        moves = largest > m + F32(bias + slack)
        begins = np.ceil(largest * FINE) / FINE - bias
        later = m + np.ceil((largest - (m + F32(bias))).astype(F32))
        later = np.where(m == -np.finfo(F32).max, begins, later)
        new = np.where(moves, later, m).astype(F32)
        with np.errstate(under="ignore"):
            alpha = (np.exp2(np.maximum(m - new, F32(-127))) * (m - new > -127)).astype(F32)
            p = np.exp2((s.astype(float) * float(c) - new[:, None]).astype(F32))
        m = new
        p = (p * (1 + rng.uniform(-off, off, p.shape))).astype(F32)
        total = (total * alpha).astype(F32) + p.sum(axis=1, dtype=F32)
        stored = np.minimum(p, 448).astype(BF16 if fault == "P of bf16" else E4M3)
        if fault == "swapped keys" and first == 0:
            stored[:, [3, 11]] = stored[:, [11, 3]]
        kept = np.ones(heads, F32) if fault == "stale rescale" and first else alpha
        values = np.ascontiguousarray(tile[:, :512].T)
        if stored.dtype != E4M3:
            values = values.astype(BF16)
        o = product((o * kept).astype(F32), values, stored, fault)
    unit = F32(1) if fault == "scale of values left out" else F32(inputs.kv_scale)
    with np.errstate(divide="ignore"):
        log = np.log2(total).astype(F32)
        inverse = np.where(total == 0, F32(0), F32(1) / total).astype(F32) * unit
    added = m + BIAS if fault == "bias in the LSE" else m
    lse = np.where(total == 0, F32(-np.inf), (added + log).astype(F32) * F32(math.log(2)))
    return (o * inverse).T.astype(BF16), lse.astype(F32)
