"""Sparse MLA on a Hopper GPU: the same bits from a thousand launches under load, one kernel of each
form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sparse_gpu import Found, built, on_gpu, passes, some
from under_load import same_bits_under_load

from mlagen.bench.torch_arrays import to_host
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs

# More queries than blocks fit at once; decode's in parts, which are merged.
FORMS: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("prefill", {"num_heads": 16}, 400, 1),
    ("prefill", {"num_heads": 16, "rows": "v32"}, 400, 1),
    ("prefill", {"num_heads": 32, "rows": "e4m3_block64"}, 400, 1),
    ("prefill", {"num_heads": 128}, 300, 1),
    ("prefill", {"num_heads": 64, "d_qk": 512}, 300, 1),
    ("prefill", {"num_heads": 128, "rows": "v32"}, 200, 1),
    ("prefill", {"num_heads": 24, "rows": "v41", "d_qk": 512}, 300, 1),
    ("decode", {"num_heads": 16, "q_len": 2}, 70, 3),
    ("decode", {"num_heads": 16, "rows": "v32"}, 140, 3),
    ("decode", {"num_heads": 8, "rows": "model1", "d_qk": 512, "extra": True}, 140, 3),
    ("decode", {"num_heads": 8, "rows": "v41", "d_qk": 512, "extra": True}, 140, 3),
    ("decode", {"num_heads": 128, "rows": "v32"}, 50, 3),
    ("decode", {"num_heads": 64, "rows": "v32", "q_len": 2}, 50, 3),
    ("decode", {"num_heads": 64, "rows": "model1", "d_qk": 512, "extra": True}, 100, 3),
    ("decode", {"num_heads": 64, "rows": "v41", "d_qk": 512, "q_len": 2}, 50, 3),
    ("decode", {"num_heads": 128, "rows": "v41", "d_qk": 512, "extra": True}, 50, 3),
    ("decode", {"num_heads": 128, "causal": True}, 50, 3),
)


@pytest.mark.parametrize(("which", "fields", "count", "splits"), FORMS, ids=str)
def test_the_same_bits_under_load(
    which: str, fields: dict[str, Any], count: int, splits: int
) -> None:
    guard = built(which, **fields)
    config = guard.kernel.config
    sink = np.linspace(-2, 2, config.num_heads).tolist()
    if which == "prefill":
        inputs: Any = mla_sparse_prefill_inputs(
            config, rows=count, topk=700, cache_rows=8192, data="randn", sink=sink
        )
    else:
        inputs = mla_sparse_decode_inputs(
            config, batch=count, topk=700, cache_rows=8192, data="randn", sink=sink
        )
    given = {} if which == "prefill" else {"splits": splits}
    step = guard.kernel.prepare(**on_gpu(inputs), **given)
    outputs = {"o": step.output, "lse": step.lse, "max_logits": step.max_logits}
    outputs = {name: tensor for name, tensor in outputs.items() if tensor is not None}
    same_bits_under_load(step, tuple(outputs.values()), step.partials)
    assert guard.memory.untouched()
    found = Found({name: to_host(tensor) for name, tensor in outputs.items()}, step.splits)
    passes(guard.kernel, *some(inputs, found, [0, 1, 2, count - 1]))
