"""The arithmetic of streamed prefill (MLA, MHA in fp8) in numpy fp32, with faults to switch on.

Not written from the oracles: it walks pages and tiles the way a kernel does and rounds by casting.
`style`: "fused" rounds c * m to fp32 and computes P from one fused c * dot - M; "unfused" keeps m
as it is and multiplies the difference by c, as AITER's kernel does, and adds up in another order.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

BF16, E4M3, F32 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32
LOG2E = F32(math.log2(math.e))
FAULTS = (
    "dropped key", "swapped keys", "scale off by 1 %", "stale rescale", "rope of another key",
    "value scale off by 1 %",
)  # fmt: skip
SINK_FAULTS = ("sink ignored", "sink mis-seeded")  # of kernels with a sink
# What moves no row sum is no business of the LSE's.
OUTPUT_ONLY = ("swapped keys", "stale rescale", "value scale off by 1 %")


def simulate(inputs, *, style="fused", fault=None):
    """(O, LSE) as a kernel of the problem stores them."""
    config = inputs.config
    out = np.full((*inputs.q.shape[:-1], config.depth), np.nan, F32)
    lse = np.full(inputs.lse_shape, np.nan, F32)
    for sequence in inputs.sequences:
        for head in range(config.num_heads):
            k, v = _rows(inputs, sequence, head // config.group, fault)
            at = slice(sequence.first_row, sequence.first_row + sequence.rows)
            q = inputs.q[at, head] if config.ragged else inputs.q[sequence.index, :, head]
            sink = F32(-np.inf)
            if config.sink and fault != "sink ignored":
                sink = inputs.sinks[head]
            made, log_sum = _head(inputs, sequence.start_pos, q, k, v, sink, style, fault)
            if config.ragged:
                out[at, head], lse[head, at] = made, log_sum
            else:
                out[sequence.index, :, head], lse[sequence.index, head] = made, log_sum
    return (out.astype(BF16) if config.output_dtype == "bf16" else out), lse


def _rows(inputs, sequence, kv, fault):
    """K [keys, qk_width] and V [keys, depth] of a head, key by key."""
    config, k, v = inputs.config, [], []
    kv_form = getattr(config, "kv_form", "k_and_v")
    for j in range(sequence.keys):
        if config.page_size:
            page = inputs.page_table[sequence.index, j // config.page_size]
            at = (page, j % config.page_size)
        elif config.ragged:
            at = (inputs.kv_offsets[sequence.index] + j,)
        else:
            at = (sequence.index, j)
        row = inputs.k[(*at, kv)]
        if kv_form == "latent":
            offset = config.rope_cache_offset
            k.append(np.concatenate([row[:128], row[offset : offset + 64]]))
            v.append(row[:128])
        else:
            rope = [inputs.k_rope[at]] if kv_form == "nope_rope" else []
            k.append(np.concatenate([row, *rope]))
            v.append(inputs.v[(*at, kv)])
    keys = np.array(k, F32).reshape(-1, config.qk_width)
    if fault == "rope of another key" and len(keys) > 9:
        keys[[5, 9], 128:] = keys[[9, 5], 128:]
    return keys, np.array(v, F32).reshape(-1, config.depth)


def _head(inputs, start_pos, q, k, v, sink, style, fault):
    config = inputs.config
    fp8 = config.dtype == "fp8_e4m3"
    scale = inputs.scale * (1.01 if fault == "scale off by 1 %" else 1.0)
    c = F32(F32(F32(scale) * F32(inputs.q_scale)) * F32(inputs.k_scale)) * LOG2E
    if not fp8:
        c = F32(scale * math.log2(math.e))
    out, lse = np.empty((len(q), config.depth), F32), np.empty(len(q), F32)
    for first in range(0, len(q), config.q_tile):
        count = min(config.q_tile, len(q) - first)
        rows = np.zeros((-(-count // 32) * 32, config.qk_width), F32)
        rows[:count] = q[first : first + count].astype(F32)
        factor = c
        if not fp8:
            rows, factor = (rows * c).astype(BF16).astype(F32), F32(1)
        positions = start_pos + first + np.arange(len(rows))
        tiles = config.mask.tiles(start_pos + first, count, len(k), config.kv_block)
        level = F32(sink) * LOG2E
        acc, total, top = _walk(config, rows, k, v, positions, tiles, factor, level, style, fault)
        with np.errstate(divide="ignore"):
            inverse = np.where(total == 0, F32(0), F32(1) / total)
            log_sum = F32(math.log(2.0)) * (top + np.log2(total))
        v_scale = F32(inputs.v_scale * (1.01 if fault == "value scale off by 1 %" else 1.0))
        out[first : first + count] = ((acc * inverse[:, None]) * v_scale)[:count]
        lse[first : first + count] = np.where(total == 0, F32(-np.inf), log_sum)[:count]
    return out, lse


def _walk(config, rows, keys, values, positions, tiles, c, level, style, fault):
    """O before the division, row sums, and maxima in log2 units."""
    fp8 = config.dtype == "fp8_e4m3"
    element, step = (E4M3, 64) if fp8 else (BF16, 16)
    acc = np.zeros((len(rows), config.depth), F32)
    # M starts at the sink, which is one term of the row sum.
    c_top = F32(1) if style == "fused" else c
    top = np.full(len(rows), level / c_top, F32)
    total = np.full(len(rows), 0 if np.isneginf(level) else 1, F32)
    for t in tiles:
        inside = np.arange(t * config.kv_block, min((t + 1) * config.kv_block, len(keys)))
        dots = _dot(rows, keys[inside].T, step, style)
        seen = config.mask.visible(positions[:, None], inside[None, :])
        if fault == "dropped key" and t == tiles[0]:
            seen = seen & (inside != inside[0] + 5)
        dots = np.where(seen, dots, F32(-np.inf))
        new = np.maximum(top, dots.max(axis=1) * (c if style == "fused" else F32(1)))
        if t != tiles[0]:
            grew = _difference(new, top) * c_top
            vote = (grew > config.rescale_threshold).reshape(-1, 32).any(axis=1)
            new = np.where(np.repeat(vote, 32), new, top)
        if t == tiles[0] and fault == "sink mis-seeded":  # it stays 1 in the row sum
            new = dots.max(axis=1) * (c if style == "fused" else F32(1))
        else:
            factor = np.exp2(-_difference(new, top) * c_top, dtype=F32)
            total *= factor
            if fault != "stale rescale":
                acc *= factor[:, None]
        top = new
        base = np.where(np.isneginf(top), F32(0), top)[:, None]
        if style == "fused":
            exponent = (dots.astype(float) * float(c) - base).astype(F32)
        else:
            exponent = (dots - base) * c
        p = np.exp2(exponent, dtype=F32)
        parts = p if style == "fused" else p[:, ::-1]
        total += parts.sum(axis=1, dtype=F32)
        stored = p.astype(element).astype(F32)
        if fault == "swapped keys" and t == tiles[0] and len(inside) >= 16:
            stored[:, [3, 11]] = stored[:, [11, 3]]
        for strip in range(0, len(inside), step):
            part = slice(strip, strip + step)
            acc += _dot(stored[:, part], values[inside][part], step, style)
    return acc, total, top * c_top


def _difference(new, old):
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(new), F32(0), new - old)


def _dot(a, b, step, style):
    """a @ b, `step` terms at a time; or one after the other, last first."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for start in range(0, a.shape[1], step):
        part = slice(start, min(start + step, a.shape[1]))
        if style == "fused":
            total += a[:, part] @ b[part]
        else:
            for m in range(part.stop - 1, part.start - 1, -1):
                total += a[:, m : m + 1] * b[m : m + 1]
    return total
