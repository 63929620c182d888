"""Sparse prefill on sm_100a over problems and calls that hypothesis draws, in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sparse_calls import artifact, given, right
from sparse_draws import EMULATED, TUNED_HEADS, calls, drawing, hypothesis, st

from mlagen.families.mla_sparse.kernel import sparse_kernel

E4M3 = {"dtype": "fp8_e4m3", "rows": "e4m3", "compute": "fp8"}
HEADS = st.one_of(st.sampled_from(TUNED_HEADS), st.integers(1, 128))


@drawing(2)
@hypothesis.given(HEADS, st.sampled_from([512, 576]), st.sampled_from([{}, E4M3]), st.data())
def test_drawn_problems(heads: int, d_qk: int, types: dict[str, str], data: Any) -> None:
    fields = {"num_heads": heads, "d_qk": d_qk, **types}
    made = sparse_kernel(artifact("mla_sparse_prefill_sm100", fields))
    drawn = data.draw(calls(made.config, EMULATED), label="call")
    step = made.prepare(**given(drawn.inputs, **drawn.given))
    step()
    empty = float(drawn.given["empty_lse"])
    lse = np.where(step.lse == empty, -np.inf, step.lse)
    assert not np.isposinf(lse).any()
    right(made, drawn.inputs, (step.output, lse, step.max_logits))
