"""Groups of chosen numbers of partials, and a model of the reduce kernel written apart from it."""

from __future__ import annotations

import numpy as np

from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.work import WorkShape
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_made_up import planned_inputs
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig

F32 = np.float32


def grouped(
    config: MlaReduceConfig,
    counts: list[int],
    rows: list[int],
    *,
    tile_q: int = 16,
    data: str = "realistic",
    seed: int = 0,
) -> MlaReduceInputs:
    """Groups of `counts[g]` partials and `rows[g]` rows of O, with a row of nobody's between."""
    firsts = np.cumsum([3, *(n + 1 for n in rows)])[:-1]
    indptr = np.cumsum([0, *counts], dtype=np.int32)
    final = np.stack([firsts, firsts + rows], axis=1).astype(np.int32)
    total = int(final[-1, 1]) + 2
    shape = WorkShape((0, total), (0, 0), (0,), (0,), config.num_heads, False, tile_q)
    nothing = np.zeros(0, np.int32)
    slots = np.arange(indptr[-1], dtype=np.int32) * np.int32(tile_q)
    plan = WorkPlan(shape, nothing, nothing, indptr, final, slots)
    return planned_inputs(config, plan, total, data=data, seed=seed)


def simulated(inputs: MlaReduceInputs, *, mistake: str = "") -> tuple[np.ndarray, np.ndarray]:
    """O (fp32) and LSE of a kernel in fp32, with a mistake or without."""
    config = inputs.config
    out = np.full((inputs.rows, config.num_heads, config.depth), np.nan, F32)
    lse = np.full(out.shape[:2], np.nan, F32)
    log2e, ln2 = F32(np.log2(np.e)), F32(np.log(2.0))
    for group in inputs.merged:
        parts, logs = (list(arrays) for arrays in inputs.parts(group))
        if mistake == "drops the last partial":
            parts, logs = parts[:-1], logs[:-1]
        if mistake == "swaps two LSEs":
            logs[0], logs[-1] = logs[-1], logs[0]
        shape = logs[0].shape if logs else parts
        maximum, total = np.full(shape, np.finfo(F32).min), np.zeros(shape, F32)
        o = np.zeros((*shape, config.depth), F32)
        for part, log in zip(parts, logs, strict=True):
            seen = log > -np.inf
            if mistake == "multiplies by 0":
                seen = ~np.isnan(log)
            log = np.where(seen, log, F32(-np.inf))
            highest = np.maximum(maximum, log)
            with np.errstate(over="ignore"):  # a distance from the lowest number becomes infinite
                decay = np.exp2((maximum - highest) * log2e)
                weight = np.exp2((log - highest) * log2e)
            decay_o = np.ones_like(decay) if mistake == "never rescales O" else decay
            total = total * decay + weight
            part = np.where(seen[..., None], part, F32(0))
            o = o * decay_o[..., None] + part * weight[..., None]
            maximum = highest
        safe = np.where(total > 0, total, F32(1))
        at = slice(group.first, group.end)
        out[at] = o * (F32(1) / safe)[..., None]
        with np.errstate(divide="ignore"):
            scale = F32(1) if mistake == "log2 for ln" else ln2
            lse[at] = maximum + np.log2(total) * scale
        if mistake == "weights of base 2":
            weights = np.exp2(np.array(logs) - np.array(logs).max(axis=0))
            out[at] = (weights[..., None] * np.array(parts)).sum(0) / weights.sum(0)[..., None]
    return out, lse
