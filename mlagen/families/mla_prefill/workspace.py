"""What a persistent MLA prefill kernel takes besides a call's tensors, and what is made of its
partial outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.work import WorkItem, check_work
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.call import work_shape
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.split_merge.prefill_kernel import MlaReduceKernel
from mlagen.families.split_merge.prefill_partials import check_reduction, reduce_work
from mlagen.problem.arrays import unwritten

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WorkCall:
    """Arrays of a launch by their argument's name, and the workgroups that share its work.

    `partial_o` and `partial_lse`, which are among them, are filled with NaN.
    """

    plan: WorkPlan
    tensors: dict[str, Array]
    workgroups: int


def work_call(
    inputs: MlaPrefillInputs,
    plan: WorkPlan,
    partial_o: Array | None = None,
    partial_lse: Array | None = None,
    *,
    listed: bool = False,
    compared: bool = True,
) -> WorkCall:
    """The plan's arrays, and partial buffers, which are made where they are not given. `listed`
    as in `mla_prefill.call`. Not `compared`: buffers that are made are not filled.

    Raises ConfigError for a plan of another call, for work that is not all of the call's work
    done once (see `check_work`), and for partial buffers that are too small or of another type.
    """
    shape = work_shape(inputs, listed=listed)
    if plan.shape != shape:
        raise ConfigError(
            "the plan is for another call: its rows, keys, start positions, heads or mask differ",
            hint="plan_inputs(inputs, workgroups) makes the plan of a call",
        )
    config = inputs.config
    row = {"partial_o": (config.num_heads, config.depth), "partial_lse": (config.num_heads,)}
    given = {"partial_o": partial_o, "partial_lse": partial_lse}
    made = {}
    for name, array in given.items():
        if array is None:
            of_all = (plan.partial_rows, *row[name])
            made[name] = unwritten(of_all, np.float32, compared=compared)
            continue
        made[name] = _checked(name, array, row[name])
        made[name].fill(np.nan)
    rows = min(len(array) for array in made.values())
    groups = check_work(shape, plan.work_indptr, plan.work_info, partial_rows=rows)
    _check_merges(plan, (item for group in groups for item in group))
    tensors = {**made, "work_indptr": plan.work_indptr, "work_info": plan.work_info}
    return WorkCall(plan, tensors, len(plan.work_indptr) - 1)


def merge(
    inputs: MlaPrefillInputs,
    call: WorkCall,
    output: Array,
    lse: Array | None = None,
    kernel: MlaReduceKernel | None = None,
) -> None:
    """Merges the partial outputs into `output` and `lse`: by `kernel`, or in fp64 on the host.

    FindingsError when the emulator's sanitizer found a defect in the reduce kernel's run.
    """
    rows_of = output.reshape(-1, inputs.config.num_heads, inputs.config.depth)
    for (first, end), (o, log_sum) in _merged(call, len(rows_of), kernel).items():
        rows_of[first:end] = o.astype(output.dtype)
        if lse is None:
            continue
        if inputs.config.ragged:
            lse[:, first:end] = log_sum.T
            continue
        sequence, row = divmod(first, inputs.seq_len)
        lse[sequence, :, row : row + end - first] = log_sum.T


def _check_merges(plan: WorkPlan, items: Iterable[WorkItem]) -> None:
    """ConfigError unless the plan merges each split tile from its own parts, once, in all heads."""
    parts: dict[tuple[int, int], dict[int, list[int]]] = {}
    for item in items:
        if item.partial:
            of_heads = parts.setdefault((item.qo_start, item.qo_end), {})
            of_heads.setdefault(item.head, []).append(item.partial_o_loc)
    merges = check_reduction(plan.reduce_indptr, plan.reduce_final_map, plan.reduce_partial_map)
    for (first, end), slots in merges.items():
        there = parts.pop((first, end), {})
        if (slots and not there) or any(sorted(own) != sorted(slots) for own in there.values()):
            raise ConfigError(
                f"the plan merges rows {sorted(slots)} of the partial buffers into rows {first} .. "
                f"{end - 1}, whose parts are at {sorted(there.values()) or 'no rows'}"
            )
    if parts:
        first, end = min(parts)
        raise ConfigError(f"rows {first} .. {end - 1} are in parts, and the plan merges none")


def _merged(
    call: WorkCall, rows: int, kernel: MlaReduceKernel | None
) -> dict[tuple[int, int], tuple[Array, Array]]:
    """O [rows, heads, depth] and LSE [rows, heads] of all split tiles, by their rows."""
    plan = call.plan
    parts = call.tensors["partial_o"], call.tensors["partial_lse"]
    if kernel is None:
        return dict(reduce_work(plan, *parts))
    if not kernel.config.lse:
        raise ConfigError("the reduce kernel writes no log-sum-exp", hint="lse=true")
    o, log_sum = kernel(
        *parts, plan.reduce_indptr, plan.reduce_final_map, plan.reduce_partial_map, rows=rows
    )
    ranges = [(int(first), int(end)) for first, end in plan.reduce_final_map]
    return {(first, end): (o[first:end], log_sum[first:end]) for first, end in ranges}


def _checked(name: str, array: Array, row: tuple[int, ...]) -> Array:
    if array.dtype != np.float32 or array.ndim != 1 + len(row) or array.shape[1:] != row:
        raise ConfigError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, the kernel wants fp32 "
            f"(rows, {', '.join(str(extent) for extent in row)})"
        )
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ConfigError(f"{name} is not C-contiguous, or read-only")
    return array
