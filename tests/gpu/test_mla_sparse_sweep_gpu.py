"""Sparse MLA on a Hopper GPU over problems and calls that hypothesis draws: both oracles, poisoned
caches, outputs and workspaces between canaries. MLAGEN_SWEEP says how many problems."""

from __future__ import annotations

from typing import Any

import numpy as np
from sparse_draws import GPU, calls, drawing, hypothesis, problems, st
from sparse_gpu import built, called, passes

CALLS = 3  # of each kernel: building it takes most of the time


@drawing(6)
@hypothesis.given(problems(), st.data())
def test_drawn_problems(problem: tuple[str, dict[str, Any]], data: Any) -> None:
    which, fields = problem
    guard = built(which, **fields)
    for _ in range(CALLS):
        drawn = data.draw(calls(guard.kernel.config, GPU), label="call")
        found = called(guard, drawn.inputs, **drawn.given)
        heads = {0, data.draw(st.integers(0, fields["num_heads"] - 1), label="head")}
        passes(guard.kernel, drawn.inputs, found, heads)
        assert not np.isnan(found.outputs["o"].astype(np.float32)).any()
