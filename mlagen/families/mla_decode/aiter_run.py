"""One run of a kernel that takes AITER's arguments, from poisoned memory, for `mlagen verify`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.merging import merge_partials
from mlagen.families.mla_decode.aiter_plan import AiterPlan, aiter_arrays, aiter_numbers
from mlagen.families.mla_decode.aiter_work import AiterShape, check_aiter_work
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.ragged import Ragged
from mlagen.launch import Launcher, LaunchReport
from mlagen.launch.emulated import place_of
from mlagen.problem.arrays import unwritten
from mlagen.problem.formats import ELEMENT_TYPES

Array = npt.NDArray[Any]


def table_of(artifact: Artifact, tensors: dict[str, Array]) -> Array:
    """`work_meta_data` of an emulated launch: where the work's two arrays lie."""
    names = ("work_indptr", "work_info_set")
    places = [place_of(artifact, name, tensors[name].nbytes) for name in names]
    return np.array(places, np.int64)


def run_aiter(
    artifact: Artifact,
    launcher: Launcher,
    inputs: MlaDecodeInputs,
    plan: AiterPlan,
    ragged: Ragged,
    *,
    compared: bool = True,
) -> tuple[Array, Array, LaunchReport]:
    """O [tokens, H, 512] and LSE [tokens, H], parts merged in fp64, and what the launch says. Not
    `compared`: the outputs are neither poisoned before nor merged after."""
    config = inputs.config
    given = aiter_arrays(inputs, ragged)
    shape = AiterShape.of(
        config, given["qo_indptr"], given["kv_indptr"], given["kv_last_page_lens"]
    )
    check_aiter_work(shape, plan.work_indptr, plan.work_info_set, partial_rows=plan.partial_rows)
    rows, parts = len(given["q"]), max(plan.partial_rows, 1)
    heads, wide = config.num_heads, config.d_v
    output = partial(unwritten, compared=compared)
    o = output((rows, heads, wide), ELEMENT_TYPES[config.output_dtype])
    lse = output((rows, heads), np.float32)
    partial_o = output((parts, heads, wide), np.float32)
    partial_lse = output((parts, heads), np.float32)
    tensors = {
        **given, "o": o, "lse": lse, "partial_o": partial_o, "partial_lse": partial_lse,
        "work_indptr": plan.work_indptr, "work_info_set": plan.work_info_set,
    }  # fmt: skip
    report = launcher.launch(
        artifact,
        tensors={**tensors, "work_meta_data": table_of(artifact, tensors)},
        scalars=aiter_numbers(config, inputs.scale, config.q_len),
        sizes={"workgroups": plan.workgroups},
    )
    for group, (first, end) in enumerate(plan.reduce_final_map.tolist() if compared else ()):
        own = plan.reduce_partial_map[plan.reduce_indptr[group] : plan.reduce_indptr[group + 1]]
        of = [slice(place, place + end - first) for place in own]
        whole, log_sum = merge_partials(
            np.stack([partial_o[at] for at in of]), np.stack([partial_lse[at] for at in of])
        )
        o[first:end], lse[first:end] = whole.astype(o.dtype), log_sum
    return o, lse, report
