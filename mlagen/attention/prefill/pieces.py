"""Query tiles that several work items compute: which keys each has, and what merging them makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from mlagen.attention.prefill.exact import Pair
from mlagen.attention.prefill.merging import merged
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.work import WorkItem
from mlagen.problem.formats import U_FP32

Tile = tuple[int, int, int]  # sequence, query tile in it, head


def pieces_of(plan: WorkPlan) -> Mapping[Tile, tuple[slice, ...]]:
    """The keys of its sequence that each work item of a query tile has, first keys first; items
    without keys are left out."""
    shape = plan.shape
    found: dict[Tile, list[slice]] = defaultdict(list)
    for words in plan.work_info:
        item = WorkItem.of_words(words)
        row = item.qo_start - shape.qo_indptr[item.batch]
        first_block = shape.kv_indptr[item.batch]
        start, end = (
            (block - first_block) * shape.block_size for block in (item.kv_start, item.kv_end)
        )
        end = min(end, shape.kv_lengths[item.batch])
        tile = item.batch, row // shape.tile_q, item.head
        found[tile] += [slice(start, end)] if start < end else []
    return {tile: tuple(sorted(own, key=lambda x: x.start)) for tile, own in found.items()}


def joined(parts: Sequence[tuple[Pair, Pair]]) -> tuple[Pair, Pair]:
    """O with its bound and the LSE with its bound of several pieces' (O, bound), (LSE, bound).

    The pieces' outputs are stored as fp32 and merged in fp32; a weight exp(LSE_p - LSE) carries the
    errors of the piece's own LSE, which move O by that part of its distance from O_p.
    """
    if len(parts) == 1:
        return parts[0]
    outputs, output_bounds = (np.stack([x[0][i] for x in parts]) for i in (0, 1))
    logs, log_bounds = (np.stack([x[1][i] for x in parts]) for i in (0, 1))
    output, bound, lse, lse_bound = merged(outputs[:, :, None], logs)
    output, bound = output[:, 0], bound[:, 0]
    seen = ~np.isneginf(logs)
    distance = np.where(seen, logs, -np.inf) - np.where(np.isneginf(lse), 0.0, lse)
    weights = np.exp(distance)
    of_logs = np.where(seen, log_bounds + U_FP32 * np.abs(np.where(seen, logs, 0.0)), 0.0)
    moved = weights * np.expm1(2 * of_logs)
    bound += (weights * (output_bounds + U_FP32 * np.abs(outputs))).sum(axis=0)
    bound += (moved * (np.abs(outputs) + np.abs(output))).sum(axis=0)
    return (output, bound), (lse, lse_bound + (weights * of_logs).sum(axis=0))
