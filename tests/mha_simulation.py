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
# Of kernels with a sink, with pages, with a window.
SINK_FAULTS = ("sink ignored", "sink mis-seeded")
PAGE_FAULT = "swapped pages"
WINDOW_FAULTS = ("window one longer", "window one shorter")


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
    """O [batch, rows, heads, depth] of a dense kernel without a sink, as it stores it.

    `order`: "ascending" or "descending" inside an MFMA's 16 terms.
    """
    out = np.empty(q.shape, BF16 if config.output_dtype == "bf16" else F32)
    for b, head in np.ndindex(q.shape[0], q.shape[2]):
        kv = config.kv_head_of(head)
        out[b, :, head], _ = _head(
            config, q[b, :, head], k[b, :, kv], v[b, :, kv], scale, start_pos, -np.inf, order, fault
        )
    return out


def simulate_inputs(
    inputs: Any, *, order: str = "ascending", fault: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """O and the LSE of a call in any form, in its own layout."""
    config = inputs.config
    out = np.empty(inputs.q.shape, BF16 if config.output_dtype == "bf16" else F32)
    lse = np.empty(inputs.lse_shape, F32)
    for sequence in inputs.sequences:
        local = np.arange(sequence.rows)
        for head in range(config.num_heads):
            k, v = _keys(inputs, sequence, config.kv_head_of(head), fault)
            made, log_sum = _head(
                config,
                inputs.queries(sequence, local, head),
                k,
                v,
                inputs.scale,
                sequence.start_pos,
                -np.inf if inputs.sinks is None else inputs.sinks[head],
                order,
                fault,
            )
            if config.ragged:
                rows = slice(sequence.first_row, sequence.first_row + sequence.rows)
                out[rows, head], lse[head, rows] = made, log_sum
            else:
                out[sequence.index, :, head], lse[sequence.index, head] = made, log_sum
    return out, lse


def _keys(inputs: Any, sequence: Any, kv: int, fault: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values row by row through the table, as a page walk finds them."""
    if not inputs.config.page_size:
        return inputs.key_rows(sequence, kv)
    size = inputs.config.page_size
    table = inputs.page_table[sequence.index].copy()
    if fault == PAGE_FAULT and sequence.keys >= 2 * size:
        table[[0, 1]] = table[[1, 0]]
    rows = [(table[j // size], j % size, kv) for j in range(sequence.keys)]
    shape = (sequence.keys, inputs.config.depth)
    k, v = ([pool[at] for at in rows] for pool in (inputs.k, inputs.v))
    return np.array(k, BF16).reshape(shape), np.array(v, BF16).reshape(shape)


def _visible(mask: Any, position: np.ndarray, keys: np.ndarray, fault: str | None) -> np.ndarray:
    if fault == "window one longer":
        mask = type(mask)(mask.window + 1)
    if fault == "window one shorter":
        mask = type(mask)(mask.window - 1)
    return mask.visible(position[:, None], keys[None, :])


def _head(
    config: Any,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    start_pos: int,
    sink: float,
    order: str,
    fault: str | None,
) -> tuple[np.ndarray, np.ndarray]:
    """O [rows, depth] and LSE [rows] of one head: `k`, `v` [keys, depth]."""
    if fault == "scale off by 1 %":
        scale *= 1.01
    if fault == "sink ignored":
        sink = -np.inf
    c = F32(scale * math.log2(math.e))
    a = F32(sink) * F32(math.log2(math.e))
    keys, values = k.astype(F32), v.astype(F32)
    out, lse = np.empty((len(q), config.depth), F32), np.empty(len(q), F32)
    for first in range(0, len(q), config.q_tile):
        group = slice(first, min(first + config.q_tile, len(q)))
        rows = np.zeros((-(-(group.stop - first) // 32) * 32, config.depth), F32)
        rows[: group.stop - first] = (q[group].astype(F32) * c).astype(BF16).astype(F32)
        acc, total, top = _walk(config, rows, keys, values, start_pos + first, a, order, fault)
        with np.errstate(divide="ignore"):
            factor = np.where(total == 0, F32(0), F32(1) / total)
            log_sum = F32(math.log(2.0)) * (top + np.log2(total))
        out[group] = (acc * factor[:, None])[: group.stop - first]
        lse[group] = log_sum[: group.stop - first]
    return out, lse


def _walk(
    config: Any,
    rows: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    start: int,
    sink: np.float32,
    order: str,
    fault: str | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One workgroup over its tiles: O before the division, row sums, maxima."""
    tile = config.kv_block
    position = start + np.arange(len(rows))
    acc = np.zeros((len(rows), config.depth), F32)
    total = np.full(len(rows), 0 if np.isneginf(sink) else 1, F32)
    top = np.full(len(rows), sink, F32)
    tiles = config.mask.tiles(start, len(rows), len(keys), tile)
    for t in tiles:
        inside = np.arange(t * tile, min((t + 1) * tile, len(keys)))
        s = _dot(rows, keys[inside].T, order)
        seen = _visible(config.mask, position, inside, fault)
        if fault == "dropped key" and t == tiles[0]:
            seen = seen & (inside != inside[0] + 5)
        s = np.where(seen, s, F32(-np.inf))
        row_top = s.max(axis=1)
        if t == tiles[0]:
            top = np.maximum(top, row_top)
            if not np.isneginf(sink):
                total = np.exp2(sink - top, dtype=F32)
            if fault == "sink mis-seeded":
                # The tile's own maximum overwrites the sink's, whose 1 in the sum stays.
                top, total = row_top, np.full(len(rows), 1, F32)
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
    return acc, total, top


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
