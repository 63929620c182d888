"""Sparse MLA over problems and calls that hypothesis draws, in the emulator: both oracles, poisoned
caches and outputs. `tests/gpu` draws larger ones of the same kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
from sparse_calls import given, kernel, right
from sparse_draws import EMULATED, calls, drawing, hypothesis, problems, st


@drawing(3)
@hypothesis.given(problems(), st.data())
def test_drawn_problems(problem: tuple[str, dict[str, Any]], data: Any) -> None:
    which, fields = problem
    made = kernel(which, **fields)
    drawn = data.draw(calls(made.config, EMULATED), label="call")
    step = made.prepare(**given(drawn.inputs, **drawn.given))
    step()
    empty = float(drawn.given["empty_lse"])
    lse = np.where(step.lse == empty, -np.inf, step.lse)
    assert not np.isposinf(lse).any()
    right(made, drawn.inputs, (step.output, lse, step.max_logits)[: 2 + (which == "prefill")],
          step.splits)  # fmt: skip
