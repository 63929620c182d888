"""Numbers of heads change no result over peaked data: each within what its manifest states, and two
apart by no more than both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from guarded import Guarded
from sparse_gpu import Guard, artifact, called, passes

from mlagen.attention.latent.facts import order_of
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.rows import FORMATS
from mlagen.problem.formats import U_BF16

HEADS = (8, 16, 24, 40, 64, 128)
SHARED = 8  # heads that are the same ones in all calls


def of_first_heads(which: str, heads: int, rows: str, **knobs: Any) -> Any:
    problem = {"num_heads": heads, "rows": rows, "d_qk": FORMATS[rows].widths[0]}

    def build(name: str, given: Any, *_: Any) -> Any:
        return artifact(name, tuple(sorted(given.items())))

    name = f"mla_sparse_{which}_sm90"
    made = artifact(name, tuple(sorted(problem.items())), tuple(sorted(knobs.items())))
    kernel = sparse_kernel(made, build=build)
    kernel._memory = Guarded()
    make = mla_sparse_prefill_inputs if which == "prefill" else mla_sparse_decode_inputs
    one = replace(kernel.config, num_heads=SHARED)
    shape: dict[str, Any] = {"rows": 2} if which == "prefill" else {"batch": 2}
    inputs = make(one, topk=500, cache_rows=1024, data="peaked", seed=7, page_size=64, **shape)
    q = np.concatenate([inputs.q] * -(-heads // SHARED), axis=-2)[..., :heads, :]
    inputs = replace(inputs, config=kernel.config, q=q)
    more = {} if which == "prefill" else {"splits": 1}
    found = called(Guard(kernel, kernel._memory), inputs, **more)
    passes(kernel, inputs, found, heads={0, 3, 7})
    order = order_of(kernel.artifact)
    expected = exact(inputs, heads=list(range(SHARED)), order=order).output
    o = found.outputs["o"].astype(np.float64)[..., :SHARED, :].reshape(expected.values.shape)
    return o, expected.bounds + U_BF16 * (np.abs(expected.values) + expected.bounds)


@pytest.mark.parametrize("rows", FORMATS)
@pytest.mark.parametrize("which", ["prefill", "decode"])
def test_heads(which: str, rows: str) -> None:
    found = [of_first_heads(which, heads, rows) for heads in HEADS]
    o, bounds = found[0]
    for other, of_other in found[1:]:
        assert (np.abs(other - o) <= bounds + of_other).all()
