"""The sparse kernels' seesaw in numpy: lists, formats of rows and faults, over decode's arithmetic.

Not written from the oracles: it reads single rows by their addresses in bytes, and converts them as
a kernel does, in fp32.
"""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
from mla_decode_simulation import attention

from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
F32 = np.float32

FAULTS = (
    "dropped key", "swapped keys", "scale off by 1 %", "stale rescale", "invalid key counted",
    "sink left out", "sink in the LSE", "maximum in base 2",
)  # fmt: skip


def simulate(inputs, *, arithmetic="hopper", fault=None):
    """Outputs by name as a kernel stores them: prefill's o, max_logits, lse; decode's o, lse."""
    config = inputs.config
    decode = isinstance(config, MlaSparseDecodeConfig)
    shape = (*inputs.q.shape[:-1],)
    o = np.empty((*shape, 512), BF16)
    lse, top = np.empty(shape, F32), np.empty(shape, F32)
    scale = inputs.score_scale
    for at in np.ndindex(shape[:-1]):
        own = [_keys(inputs, "", at, fault)]
        if decode and config.extra:
            own.append(_keys(inputs, "extra_", at, fault))
        if len(own) > 1:
            rows, seen, weights = own[0]
            room = (0, -len(seen) % 64)
            own[0] = np.pad(rows, (room, (0, 0))), np.pad(seen, room), np.pad(weights, room)
        rows, seen, weights = (np.concatenate(parts) for parts in zip(*own, strict=True))
        plain = config.rows not in ("e4m3_row", "rope_aware")
        scales = scale, F32(1), inputs.kv_scale, None if plain else weights
        found = attention(
            inputs.q[at].astype(F32), (rows, seen), scales, arithmetic=arithmetic, fault=fault,
            sink=None if fault == "sink left out" else inputs.sink,
        )  # fmt: skip
        o[at], lse[at], top[at] = found[0].astype(BF16), *found[1:]
    if decode:
        return {"o": o, "lse": lse.transpose(0, 2, 1)}
    return {"o": o, "max_logits": top, "lse": lse}


def simulate_splits(inputs, splits, *, sink_in_each=False):
    """O [rows, heads, 512] and LSE [rows, heads] of a prefill call whose lists are split at these
    tiles, with a merge in fp32 that takes the sink in. `sink_in_each`: a fault, in every split."""
    out = np.empty((*inputs.q.shape[:-1], 512), BF16)
    whole = np.empty(out.shape[:-1], F32)
    log2e, none = F32(math.log2(math.e)), F32(-np.inf)
    sink = np.full(out.shape[1], none) if inputs.sink is None else inputs.sink
    for row, starts in enumerate(splits):
        keys, seen, _ = _keys(inputs, "", (row,), None)
        edges = [*(64 * start for start in starts), len(seen)]
        scales = inputs.score_scale, F32(1), inputs.kv_scale, None
        parts = [
            attention(
                inputs.q[row].astype(F32), (keys[a:b], seen[a:b]), scales,
                sink=sink if sink_in_each else None,
            )
            for a, b in itertools.pairwise(edges)
        ]  # fmt: skip
        logs = np.array([lse * log2e for _, lse, _ in parts], F32)
        top = logs.max(axis=0)
        total = (top + np.log2(np.exp2(logs - top).sum(axis=0, dtype=F32))).astype(F32)
        with np.errstate(over="ignore"):
            left = F32(1) / (F32(1) + np.exp2((sink * log2e - total).astype(F32)))
        o = sum(
            np.exp2(log - total)[:, None] * o for log, (o, _, _) in zip(logs, parts, strict=True)
        )
        if not sink_in_each:
            o = o * left[:, None]
        out[row], whole[row] = o.astype(BF16), total * F32(math.log(2))
    return {"o": out, "lse": whole}


def _keys(inputs, which, at, fault):
    """Rows [places, columns], which are seen, and their scales, of the list of query row `at`."""
    config = inputs.config
    cache = getattr(inputs, f"{which}cache")
    indices = getattr(inputs, f"{which}indices")
    lengths = getattr(inputs, f"{which}topk_length")
    shared = getattr(config, "shared_list", False)
    own = indices[at[:1] if shared else at]
    count = len(own) if lengths is None else int(np.clip(lengths[at[0]], 0, len(own)))
    total = cache.shape[0] * cache.shape[1]
    seen = [0 <= r < total for r in own[:count].tolist()]
    if which == "" and getattr(config, "causal", False):
        last = int(inputs.first_position[at[0]]) + at[1]
        near = inputs.positions[at[:1] if shared else at]
        seen = [ok and int(p) <= last for ok, p in zip(seen, near[:count], strict=True)]
    rows = np.zeros((count, config.d_qk), F32)
    weights = np.ones(count, F32)
    for place, ok in enumerate(seen):
        if ok:
            side = getattr(inputs, f"{which}kv_scales")
            rows[place], weights[place] = _row(config, cache, side, int(own[place]))
    if fault == "invalid key counted":
        seen = [True] * count  # zeros: they draw weight
    return rows, np.array(seen, bool), weights


def _row(config, cache, side, row):
    """A row's numbers as a kernel has them in bf16, and its scale."""
    page, place = divmod(row, cache.shape[1])
    name, width = config.rows, config.d_qk
    if name == "model1":
        memory = cache[page].reshape(-1).view(np.uint8)
        data = memory[576 * place : 576 * place + 576]
        start = 576 * cache.shape[1] + 8 * place
        powers = memory[start : start + 7].astype(int)
        each = np.repeat(np.exp2(powers - 127.0).astype(F32), 64)
        return _content(data[:448], each, data[448:].view(BF16)), F32(1)
    stored = np.ascontiguousarray(cache[page, place])
    if name in ("bf16", "e4m3", "e4m3_row"):
        return stored.astype(F32), F32(1) if side is None else side[row]
    if name == "rope_aware":
        return np.concatenate([stored[:512].astype(F32), stored[512:].view(BF16)]), side[row]
    if name == "v41":
        powers = stored[512:].view(np.uint8).astype(int)
        each = np.repeat(np.exp2(powers - 127.0).astype(F32), 32)
        return _content(stored[:512].view(np.uint8), each, np.zeros(0, BF16)), F32(1)
    if name == "v32":
        each = np.repeat(stored[512:528].view(F32), 128)
        return _content(stored[:512].view(np.uint8), each, stored[528:].view(BF16)), F32(1)
    block = int(name.removeprefix("e4m3_block"))
    each = np.array([side[row, column // block] for column in range(width)], F32)
    return _content(stored.view(np.uint8), each, np.zeros(0, BF16)), F32(1)


def _content(stored, each, rope):
    return np.concatenate([(stored.view(E4M3).astype(F32) * each).astype(BF16), rope]).astype(F32)
