"""Merging partial outputs of the persistent MLA prefill kernel: the oracle of the reduce kernel.

Partial p of a row is (O_p, LSE_p), O_p normalised by its own row sum. With L = ln Σ exp(LSE_p):
O = Σ exp(LSE_p - L) O_p. A partial whose LSE is -inf or NaN has seen no key (its O may be anything,
NaN too): it is left out, not multiplied by 0. Where all are left out, O = 0 and L = -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.plan import WorkPlan
from mlagen.errors import ConfigError
from mlagen.problem.arrays import check_int32, check_offsets, check_type
from mlagen.problem.formats import FP32, Floats


def merge_partials(outputs: npt.ArrayLike, lses: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Merges `outputs` [partials, rows, ..., depth] with `lses` [partials, rows, ...], in fp64.

    Gives O [rows, ..., depth] and LSE [rows, ...].
    """
    parts, logs = np.asarray(outputs, np.float64), np.asarray(lses, np.float64)
    if parts.shape[:-1] != logs.shape:
        raise ConfigError(f"outputs have shape {parts.shape}, but lses have {logs.shape}")
    seen = ~(np.isnan(logs) | np.isneginf(logs))
    logs = np.where(seen, logs, -np.inf)
    top = logs.max(axis=0, initial=-np.inf)
    base = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp(logs - base)
    total = weights.sum(axis=0)
    weights /= np.where(total > 0, total, 1.0)
    merged = (np.where(seen[..., None], parts, 0.0) * weights[..., None]).sum(axis=0)
    with np.errstate(divide="ignore"):
        return merged, base + np.log(total)


def reduce_work(
    plan: WorkPlan, partial_o: npt.NDArray[np.float32], partial_lse: npt.NDArray[np.float32]
) -> dict[tuple[int, int], tuple[Floats, Floats]]:
    """O [rows, heads, depth] and LSE [rows, heads] of all split tiles, by their first row and the
    last + 1.

    `partial_o` fp32 [partial rows, heads, depth], `partial_lse` fp32 [partial rows, heads]. Rows of
    a tile beyond its sequence's end are not looked at. Raises ConfigError for buffers that do not
    fit the plan and for reduce arrays that do not.
    """
    tile, heads = plan.shape.tile_q, plan.shape.heads
    for name, array in (("partial_o", partial_o), ("partial_lse", partial_lse)):
        check_type(name, array, FP32, "fp32", "np.float32")
    if partial_o.shape[:2] != partial_lse.shape or partial_lse.shape[1:] != (heads,):
        raise ConfigError(
            f"partial_o has shape {partial_o.shape} and partial_lse {partial_lse.shape}, not "
            f"(rows, {heads}, depth) and (rows, {heads})"
        )
    groups = check_reduction(plan.reduce_indptr, plan.reduce_final_map, plan.reduce_partial_map)
    made = {}
    for (first, end), slots in groups.items():
        for slot in slots:
            if slot < 0 or slot + tile > len(partial_lse):
                raise ConfigError(
                    f"reduce_partial_map has {slot}: a tile is {tile} rows, the partial buffers "
                    f"have {len(partial_lse)}"
                )
        rows = [slice(slot, slot + end - first) for slot in slots]
        made[first, end] = merge_partials(
            np.stack([partial_o[at] for at in rows]), np.stack([partial_lse[at] for at in rows])
        )
    return made


def check_reduction(
    indptr: Any, final_map: Any, partial_map: Any
) -> dict[tuple[int, int], Sequence[int]]:
    """The partial tiles of each tile of O, by its rows. Raises ConfigError for offsets that fall,
    shapes that do not fit, and rows that are no tile."""
    check_int32("reduce_indptr", indptr, (None,), least=1)
    check_int32("reduce_final_map", final_map, (len(indptr) - 1, 2))
    check_int32("reduce_partial_map", partial_map, (None,))
    if len(indptr) == 1:
        return {}
    check_offsets("reduce_indptr", indptr, len(partial_map), "reduce_partial_map")
    groups: dict[tuple[int, int], Sequence[int]] = {}
    for index, (first, end) in enumerate(final_map.tolist()):
        if not 0 <= first < end or (first, end) in groups:
            raise ConfigError(
                f"reduce_final_map[{index}]=({first}, {end}) is no range of rows of its own"
            )
        groups[first, end] = partial_map[indptr[index] : indptr[index + 1]].tolist()
    return groups
