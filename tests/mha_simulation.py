"""The prefill kernel's arithmetic in numpy fp32, in an order of its own, with faults to switch on.

Not written from the oracles: it walks tiles the way the kernel does and rounds by casting.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
F32 = np.float32

FAULTS = ("dropped key", "swapped keys", "scale off by 1 %", "stale rescale")


def simulate(
    config: Any,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    start_pos: int,
    *,
    order: str = "ascending",
    fault: str | None = None,
) -> np.ndarray:
    """O as the kernel stores it. `order`: "ascending" or "descending" inside an MFMA's 16 terms."""
    batch, seq_len, heads, depth = q.shape
    num_keys = k.shape[1]
    tile = config.kv_block
    if fault == "scale off by 1 %":
        scale *= 1.01
    c = F32(scale * math.log2(math.e))
    padded = -(-seq_len // 32) * 32
    out = np.empty(q.shape, BF16 if config.output_dtype == "bf16" else F32)
    for b in range(batch):
        for head in range(heads):
            kv = config.kv_head_of(head)
            rows = np.zeros((padded, depth), F32)
            rows[:seq_len] = (q[b, :, head].astype(F32) * c).astype(BF16).astype(F32)
            position = start_pos + np.arange(padded)
            keys, values = k[b, :, kv].astype(F32), v[b, :, kv].astype(F32)
            acc = np.zeros((padded, depth), F32)
            total = np.zeros(padded, F32)
            top = np.full(padded, -np.inf, F32)
            tiles = config.mask.tiles(start_pos, padded, num_keys, tile)
            for t in tiles:
                inside = np.arange(t * tile, min((t + 1) * tile, num_keys))
                s = _dot(rows, keys[inside].T, order)
                seen = config.mask.visible(position[:, None], inside[None, :])
                if fault == "dropped key" and t == tiles[0]:
                    seen = seen & (inside != inside[0] + 5)
                s = np.where(seen, s, F32(-np.inf))
                row_top = s.max(axis=1)
                if t == tiles[0]:
                    top = row_top
                else:
                    new = np.maximum(top, row_top)
                    with np.errstate(invalid="ignore"):
                        grew = np.where(np.isneginf(new), 0, new - top)
                    vote = (grew > config.rescale_threshold).reshape(-1, 32).any(axis=1)
                    new = np.where(np.repeat(vote, 32), new, top)
                    with np.errstate(invalid="ignore"):
                        factor = np.exp2(np.where(np.isneginf(new), 0, top - new).astype(F32))
                    if fault != "stale rescale":
                        acc *= factor[:, None]
                    total *= factor
                    top = new
                base = np.where(np.isneginf(top), F32(0), top)
                p = np.exp2(s - base[:, None], dtype=F32)
                total += p.reshape(len(p), -1).sum(axis=1, dtype=F32)
                stored = p.astype(BF16).astype(F32)
                if fault == "swapped keys" and t == tiles[0] and len(inside) >= 16:
                    stored[:, [3, 11]] = stored[:, [11, 3]]
                for strip in range(0, len(inside), 16):
                    part = slice(strip, strip + 16)
                    acc += _dot(stored[:, part], values[inside][part], order)
            with np.errstate(divide="ignore"):
                factor = np.where(total == 0, F32(0), F32(1) / total)
            result = acc * factor[:, None]
            out[b, :, head] = result[:seq_len].astype(out.dtype)
    return out


def _dot(a: np.ndarray, b: np.ndarray, order: str) -> np.ndarray:
    """a @ b, 16 terms at a time."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for start in range(0, a.shape[1], 16):
        step = slice(start, min(start + 16, a.shape[1]))
        if order == "ascending":
            total += a[:, step] @ b[step]
        else:
            for m in range(step.stop - 1, step.start - 1, -1):
                total += a[:, m : m + 1] * b[m : m + 1]
    return total
