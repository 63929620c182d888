"""The decode kernel's arithmetic in numpy, with Hopper's matrix instruction, and faults.

Not written from the oracles: it walks pages the way the kernel does, rounds by casting, and cuts
numbers off where the tensor cores do.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
F32 = np.float32

# Each is wrong in the output; all but "swapped keys" and "stale rescale" also in the LSE.
FAULTS = ("dropped key", "swapped keys", "scale off by 1 %", "stale rescale")
LSE_FAULTS = ("dropped key", "scale off by 1 %", "base 2", "maximum left out", "stale row sum")


def simulate(inputs, *, arithmetic="hopper", fault=None):
    """(O [B, q_len, H, 512] bf16, LSE [B, H, q_len] fp32) as the kernel stores them.

    `arithmetic`: "hopper" cuts like the tensor cores and errs like ex2.approx; "nearest" adds one
    product after the other, last first, with rounding to nearest.
    """
    config = inputs.config
    out = np.empty((*inputs.q.shape[:3], config.d_v), BF16)
    lse = np.empty((inputs.batch, config.num_heads, config.q_len), F32)
    for sequence in range(inputs.batch):
        length = int(inputs.cache_lengths[sequence])
        for token in range(config.q_len):
            seen = length - (config.q_len - 1 - token)
            rows, weights = _gather(inputs, sequence, length)
            q, own = inputs.q[sequence, token], F32(1)
            if inputs.q_scales is not None:
                q, own = _wide(q), inputs.q_scales[sequence, token]
            scales = inputs.score_scale, own, inputs.kv_scale, weights
            q = q.astype(F32)
            keys = rows, np.arange(length) < seen
            o, at, _ = attention(q, keys, scales, arithmetic=arithmetic, fault=fault)
            out[sequence, token], lse[sequence, :, token] = o.astype(BF16), at
    return out, lse


def _gather(inputs, sequence, length):
    """Rows as they are stored, and their scales, or None."""
    size = inputs.config.page_size
    at = [(inputs.block_table[sequence, r // size], r % size) for r in range(length)]
    rows = [inputs.cache[where][0] for where in at]
    if inputs.kv_scales is None:
        return np.array(rows, BF16).reshape(length, inputs.config.d_qk).astype(F32), None
    wide = [_wide(row) for row in rows]
    weights = np.array([inputs.kv_scales[where] for where in at], F32)
    return np.array(wide, F32).reshape(length, inputs.config.d_qk), weights


def _wide(row):
    """The numbers of rope-aware rows [.., 640]."""
    rope = np.ascontiguousarray(row[..., 512:]).view(BF16)
    return np.concatenate([row[..., :512].astype(F32), rope.astype(F32)], axis=-1)


def attention(q, keys, scales, *, arithmetic="hopper", fault=None, sink=None):
    """O [heads, 512], LSE and largest score [heads], fp32, of `keys`: rows [keys, columns] and
    which of them are seen, [keys]."""
    rows, seen = keys
    scale, own, unit, weights = scales
    d_v = 512
    product = {"hopper": wgmma, "nearest": _nearest}[arithmetic]
    rng = np.random.default_rng(7)
    if fault == "scale off by 1 %":
        scale *= 1.01
    c = F32(scale * math.log2(math.e)) * own
    heads, half = len(q), d_v // 2
    top = np.full(heads, -np.inf, F32)  # c M
    total = np.zeros((2, heads), F32)  # of even and of odd tiles
    left, right = (np.zeros((heads, half), F32) for _ in range(2))
    some = np.zeros(heads, bool)
    waiting = None  # an even tile's P and V, and what has rescaled O since

    def add(acc, p, v):
        for step in range(0, 64, 16):
            acc = product(acc, p[:, step : step + 16], v[step : step + 16])
        return acc

    def rounded(p, first, count):
        stored = p.astype(BF16).astype(F32)
        if fault == "swapped keys" and first == 0 and count > 11:
            stored[:, [3, 11]] = stored[:, [11, 3]]
        return stored

    for first in range(0, len(rows), 64):
        odd = first // 64 % 2
        tile = np.zeros((64, rows.shape[1]), F32)
        part = rows[first : first + 64]
        tile[: len(part)] = part
        s = np.zeros((heads, 64), F32)
        for step in np.roll(np.arange(0, rows.shape[1], 16), -16 if odd else 0):
            columns = slice(step, step + 16)
            s = product(s, q[:, columns], tile[:, columns].T)
        sigma = np.ones(64, F32)
        if weights is not None:
            sigma[: len(part)] = weights[first : first + 64]
        s = s * sigma
        hidden = np.ones(64, bool)
        hidden[: len(part)] = ~seen[first : first + 64]
        if fault == "dropped key" and first == 0:
            hidden[5] = True
        s[:, hidden] = -np.inf
        new = np.maximum(top, (s.max(axis=1) * c).astype(F32))
        some = ~np.isneginf(new)
        base = np.where(some, new, F32(0))
        alpha = np.exp2(np.where(some, top - base, F32(-np.inf)).astype(F32))
        top = new
        with np.errstate(invalid="ignore"):
            x = (s.astype(float) * float(c) - base[:, None]).astype(F32)  # one rounding, as fma
        p = np.exp2(x)
        if arithmetic == "hopper":  # ex2.approx: 2 ulp
            p = (p * (1 + rng.uniform(-(2.0**-22), 2.0**-22, p.shape))).astype(F32)
        if fault != "stale row sum":
            total = total * alpha
        total[odd] += p.sum(axis=1, dtype=F32)
        if fault != "P without row scales":
            p = p * sigma
        left = add(left * alpha[:, None], rounded(p, first, len(part)), tile[:, :half])
        if odd:
            earlier, v, before, at = waiting
            both = before * alpha
            if fault == "stale rescale":  # neither O nor the P that is handed over follows
                both = alpha = np.where(some, 1, 0)
            right = add(right * both[:, None], rounded(p, first, len(part)), tile[:, half:d_v])
            right = add(right, rounded(earlier * alpha[:, None], at, 64), v)
            waiting = None
        else:
            waiting = p, tile[:, half:d_v], alpha, first
    if waiting is not None:
        p, v, alpha, at = waiting
        if fault == "stale rescale":
            alpha = np.where(some, 1, 0)
        right = add(right * alpha[:, None], rounded(p, at, len(rows) - at), v)
    row_sum = total[0] + total[1]
    below = row_sum
    if sink is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            drawn = np.exp2(
                (sink * F32(math.log2(math.e)) - np.where(some, top, F32(0))).astype(F32)
            )
            below = np.where(row_sum == 0, row_sum, (row_sum + drawn).astype(F32))
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(row_sum == 0, F32(0), F32(1) / below) * F32(unit)
        log = np.log2(below if fault == "sink in the LSE" else row_sum).astype(F32)
    ln2 = F32(math.log(2))
    lse = np.where(row_sum == 0, F32(-np.inf), ((top + log).astype(F32) * ln2).astype(F32))
    if fault == "base 2":
        lse = (lse * F32(math.log2(math.e))).astype(F32)
    if fault == "maximum left out":
        lse = (log * ln2).astype(F32)
    highest = top if fault == "maximum in base 2" else (top * ln2).astype(F32)
    return np.concatenate([left, right], axis=1) * inverse[:, None], lse, highest


def wgmma(acc, a, b):
    """Hopper: products and accumulator cut 25 bits below the largest exponent, the sum to fp32."""
    products = a[:, :, None].astype(float) * b[None].astype(float)
    exponents = np.frexp(a)[1][:, :, None] + np.frexp(b)[1][None] - 2
    exponents = np.where(products == 0, -1000, exponents).max(axis=1)
    own = np.where(acc == 0, -1000, np.frexp(acc)[1] - 1)
    grid = np.ldexp(1.0, np.maximum(np.maximum(exponents, own), -200) - 25)
    units = np.trunc(products / grid[:, None]).sum(axis=1) + np.trunc(acc / grid)
    fraction, exponent = np.frexp(units * grid)
    return np.ldexp(np.trunc(fraction * 2.0**24), exponent - 24).astype(F32)


def _nearest(acc, a, b):
    for m in range(a.shape[1] - 1, -1, -1):
        acc = acc + a[:, m : m + 1] * b[m : m + 1]
    return acc
