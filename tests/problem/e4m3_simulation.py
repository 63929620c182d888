"""A kernel with products of e4m3 in numpy: its M, its bias, its P, and faults.

Not written from the oracles: P is rounded by casting, and M has the bias in it, as in a kernel.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from mla_decode_simulation import wgmma
from mla_sparse_simulation import _keys

BF16, E4M3, F32 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32
TILE, STEP, SLACK, BIAS = 64, 32, 2, 6
LOG2E, LN2 = F32(math.log2(math.e)), F32(math.log(2))

# And data that shows them.
FAULTS = {
    "dropped key": "randn", "swapped keys": "randn", "scale off by 1 %": "randn",
    "stale rescale": "late_max", "invalid key counted": "falling", "sink left out": "randn",
    "sink in the LSE": "randn", "P without its bias": "realistic", "bias in the LSE": "randn",
    "sink without the bias": "randn", "M that follows at once": "realistic", "P of bf16": "randn",
    "scale of values left out": "randn",
}  # fmt: skip
OF_ROWS = {"P without row scales": "randn", "M not lifted": "realistic"}  # where rows have scales


def simulate(inputs, *, fault=None):
    """O, the largest scores and the LSE of a prefill call, as a kernel stores them."""
    found = [
        _attention(inputs, row, _keys(inputs, "", (row,), fault), fault)
        for row in range(inputs.tokens)
    ]
    names = ("o", "max_logits", "lse")
    return dict(zip(names, map(np.stack, zip(*found, strict=True)), strict=True))


def _product(acc, a, b):
    for step in range(0, a.shape[1], STEP):
        acc = wgmma(acc, a[:, step : step + STEP], b[step : step + STEP])
    return acc


def _attention(inputs, row, listed, fault):
    """One query's heads."""
    keys, seen, sigma = listed
    weighs = inputs.config.rows == "e4m3_row"
    q, heads = inputs.q[row].astype(F32), inputs.config.num_heads
    scale = inputs.score_scale * (1.01 if fault == "scale off by 1 %" else 1.0)
    c = F32(scale * math.log2(math.e))
    bias = 0 if fault == "P without its bias" else BIAS
    slack = 0 if fault == "M that follows at once" else SLACK
    rng = np.random.default_rng(7)
    o, total = np.zeros((heads, 512), F32), np.zeros(heads, F32)
    m, best = np.full(heads, -np.finfo(F32).max), np.full(heads, -np.inf, F32)
    for first in range(0, len(keys), TILE):
        part = keys[first : first + TILE]
        rows = np.pad(part, ((0, TILE - len(part)), (0, 0)))
        weights = np.pad(sigma[first : first + TILE], (0, TILE - len(part)))
        s = _product(np.zeros((heads, TILE), F32), q, rows.T)
        s = (s * weights).astype(F32) if weighs else s
        hidden = ~np.pad(seen[first : first + TILE], (0, TILE - len(part)))
        hidden[5] |= fault == "dropped key" and first == 0
        s[:, hidden] = -np.inf
        best = np.maximum(best, s.max(axis=1))
        lift = np.maximum(np.frexp(weights)[1], -64) if weighs and fault != "M not lifted" else 0
        largest = (s.astype(float) * float(c) + lift).astype(F32).max(axis=1)
        moves = largest > m + F32(bias + slack)
        new = np.where(moves, np.ceil(largest) - bias, m).astype(F32)
        with np.errstate(under="ignore"):
            alpha = np.exp2(np.maximum(m - new, F32(-127))) * (m - new > -127)
            p = np.exp2((s.astype(float) * float(c) - new[:, None]).astype(F32))
        m = new
        p = (p * (1 + rng.uniform(-(2.0**-22), 2.0**-22, p.shape))).astype(F32)
        total = (total * alpha).astype(F32) + p.sum(axis=1, dtype=F32)
        if weighs and fault != "P without row scales":
            p = (p * weights).astype(F32)
        stored = np.minimum(p, 448).astype(BF16 if fault == "P of bf16" else E4M3).astype(F32)
        if fault == "swapped keys" and first == 0:
            stored[:, [3, 11]] = stored[:, [11, 3]]
        kept = np.ones(heads) if fault == "stale rescale" and first else alpha
        o = _product((o * kept[:, None]).astype(F32), stored, rows[:, :512])
    return _finished(inputs, (o, total, m, best, c), fault)


def _finished(inputs, sums, fault):
    """O, the largest score and the LSE."""
    o, total, m, best, c = sums
    sink = np.full(len(o), -np.inf, F32) if inputs.sink is None else inputs.sink
    base = m + BIAS if fault == "sink without the bias" else m
    with np.errstate(over="ignore", divide="ignore"):
        drawn = np.exp2((sink * LOG2E - base).astype(F32))
        below = total if fault == "sink left out" else total + drawn
        log = np.log2(below if fault == "sink in the LSE" else total).astype(F32)
    added = m + BIAS if fault == "bias in the LSE" else m
    lse = np.where(total == 0, F32(-np.inf), (added + log).astype(F32) * LN2).astype(F32)
    unit = F32(1) if fault == "scale of values left out" else F32(inputs.kv_scale)
    inverse = np.where(total == 0, F32(0), F32(1) / np.where(total == 0, F32(1), below)) * unit
    highest = ((best * c).astype(F32) * LN2).astype(F32)
    return (o * inverse[:, None]).astype(BF16), highest, lse
