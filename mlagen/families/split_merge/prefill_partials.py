"""The partial outputs of a planned MLA prefill call: which merge into which rows, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.merging import merge_partials
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.errors import ConfigError
from mlagen.problem.arrays import check_int32, check_offsets, check_type
from mlagen.problem.formats import FP32, Floats


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
