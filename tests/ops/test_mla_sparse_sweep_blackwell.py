"""Sparse prefill on sm_100a over problems and calls that hypothesis draws, in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sparse_calls import artifact, given, right
from sparse_draws import EMULATED, TUNED_HEADS, calls, drawing, hypothesis, st

from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.rows import FORMATS, PREFILL_ROWS

HEADS = st.one_of(st.sampled_from(TUNED_HEADS), st.integers(1, 128))
ROWS = st.sampled_from([(name, d_qk) for name in PREFILL_ROWS for d_qk in FORMATS[name].widths])


@drawing(1)
@hypothesis.given(HEADS, ROWS, st.sampled_from(["bf16", "fp8_e4m3"]), st.data())
def test_drawn_problems(heads: int, rows: tuple[str, int], dtype: str, data: Any) -> None:
    fields = {"num_heads": heads, "rows": rows[0], "d_qk": rows[1], "dtype": dtype}
    made = sparse_kernel(artifact("mla_sparse_prefill_sm100", fields))
    drawn = data.draw(calls(made.config, EMULATED), label="call")
    step = made.prepare(**given(drawn.inputs, **drawn.given))
    step()
    empty = float(drawn.given["empty_lse"])
    lse = np.where(step.lse == empty, -np.inf, step.lse)
    assert not np.isposinf(lse).any()
    right(made, drawn.inputs, (step.output, lse, step.max_logits))
