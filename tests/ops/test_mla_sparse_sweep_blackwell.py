"""Sparse prefill and decode on sm_100a over problems and calls that hypothesis draws, in the
emulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sparse_calls import artifact, given, kernel, right
from sparse_draws import EMULATED, TUNED_HEADS, calls, drawing, hypothesis, st

from mlagen.families.mla_sparse.inputs import LARGEST_SCALE
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.rows import FORMATS, ROWS

E4M3 = {"dtype": "fp8_e4m3", "rows": "e4m3", "compute": "fp8"}
BY_ROWS = {**E4M3, "rows": "e4m3_row"}
HEADS = st.one_of(st.sampled_from(TUNED_HEADS), st.integers(1, 128))
# Rows and queries of all formats, which products take as bf16, and products of e4m3.
TYPES = st.sampled_from(
    [
        {"rows": name, "d_qk": d_qk, "dtype": dtype}
        for name in ROWS for d_qk in FORMATS[name].widths for dtype in ("bf16", "fp8_e4m3")
    ]
    + [{**types, "d_qk": d_qk} for types in (E4M3, BY_ROWS) for d_qk in (512, 576)]
)  # fmt: skip


@drawing(2)
@hypothesis.given(HEADS, TYPES, st.data())
def test_drawn_problems(heads: int, types: dict[str, Any], data: Any) -> None:
    fields = {"num_heads": heads, **types}
    made = sparse_kernel(artifact("mla_sparse_prefill_sm100", fields))
    drawn = data.draw(calls(made.config, EMULATED), label="call")
    step = made.prepare(**given(drawn.inputs, **drawn.given))
    step()
    empty = float(drawn.given["empty_lse"])
    lse = np.where(step.lse == empty, -np.inf, step.lse)
    assert not np.isposinf(lse).any()
    right(made, drawn.inputs, (step.output, lse, step.max_logits))


@drawing(2)
@hypothesis.given(HEADS, TYPES, st.integers(1, 8), st.tuples(*[st.booleans()] * 3), st.data())
def test_drawn_decode(
    heads: int, types: dict[str, Any], q_len: int, has: tuple[bool, bool, bool], data: Any
) -> None:
    """All lists, second caches, positions and parts, with the kernel that merges them."""
    flags = dict(zip(("shared_list", "extra", "causal"), has, strict=True))
    made = kernel("decode", target="sm100", num_heads=heads, q_len=q_len, **types, **flags)
    drawn = data.draw(calls(made.config, EMULATED), label="call")
    step = made.prepare(**given(drawn.inputs, **drawn.given))
    step()
    empty = float(drawn.given["empty_lse"])
    lse = np.where(step.lse == empty, -np.inf, step.lse)
    right(made, drawn.inputs, (step.output, lse), step.splits)


@pytest.mark.parametrize("powers", [(-12, 0), (-100, -60), (40, 64), (-149, 64)])
def test_scales_of_rows_that_are_far_apart(powers: tuple[int, int]) -> None:
    """P times a scale stays in e4m3's range, and the row sum in fp32's; zero is a scale."""
    made = sparse_kernel(artifact("mla_sparse_prefill_sm100", {"num_heads": 8, **BY_ROWS}))
    shape = {"rows": 3, "topk": 140, "pattern": "invalid", "data": "randn", "sink": [0.5] * 8}
    inputs = mla_sparse_prefill_inputs(made.config, **shape)
    rng = np.random.default_rng(1)
    with np.errstate(under="ignore"):
        scales = np.exp2(rng.uniform(*powers, len(inputs.kv_scales))).astype(np.float32)
    scales[int(inputs.indices[0].max(where=inputs.indices[0] < len(scales), initial=0))] = 0
    # Scores of the largest scale are those of randn.
    scale = inputs.scale * 2.0 ** (-9 - powers[1])
    inputs = replace(inputs, kv_scales=scales, scale=scale)
    assert scales.max() <= LARGEST_SCALE
    step = made.prepare(**given(inputs))
    step()
    right(made, inputs, (step.output, step.lse, step.max_logits))
