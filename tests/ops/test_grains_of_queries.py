"""Rows of v32 as f16 in multiples of grains on Hopper, 17 heads and more, queries of both types."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sparse_calls import alone, given, kernel, right

from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import KEYS_OF_GRAINS, SEESAW_OF_GRAINS
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs

# Of heads: of keys as rows; one block's, not all of its rows; two blocks' that share rows, in full
# and in part.
CASES = [
    ("prefill", {"num_heads": 20, "dtype": "fp8_e4m3"}, 1),
    ("prefill", {"num_heads": 32}, 1),
    ("decode", {"num_heads": 24, "dtype": "fp8_e4m3", "causal": True}, 1),
    ("decode", {"num_heads": 32, "q_len": 2, "extra": True}, 2),
    ("prefill", {"num_heads": 40, "dtype": "fp8_e4m3"}, 1),
    ("prefill", {"num_heads": 128, "dtype": "fp8_e4m3"}, 1),
    ("prefill", {"num_heads": 128}, 1),
    ("decode", {"num_heads": 64, "dtype": "fp8_e4m3"}, 1),
    ("decode", {"num_heads": 72, "dtype": "fp8_e4m3"}, 2),
    ("decode", {"num_heads": 64, "q_len": 2}, 2),
    ("decode", {"num_heads": 64, "q_len": 3}, 1),
    ("decode", {"num_heads": 128, "causal": True}, 1),
    ("decode", {"num_heads": 128, "extra": True}, 1),
]


@pytest.mark.parametrize(("which", "fields", "splits"), CASES, ids=str)
def test_right(which: str, fields: dict[str, Any], splits: int) -> None:
    """Several queries, lists of three tiles, one of them with invalid numbers."""
    made = (alone if which == "prefill" else kernel)(which, rows="v32", **fields)
    own = KEYS_OF_GRAINS if fields["num_heads"] <= 32 else SEESAW_OF_GRAINS
    assert order_of(made.artifact) == own
    sizes: dict[str, Any] = {"topk": 150, "cache_rows": 256, "seed": 4}
    if which == "prefill":
        inputs: Any = mla_sparse_prefill_inputs(made.config, rows=2, **sizes)
        right(made, inputs, made(**given(inputs)))
        return
    inputs = mla_sparse_decode_inputs(made.config, batch=1, **sizes)
    right(made, inputs, made(**given(inputs), splits=splits), splits)


def growing(inputs: Any) -> Any:
    """The same with scales that are eight times as large from the second tile on."""
    cache = inputs.cache.copy()
    pages, size = cache.shape[:2]
    own = inputs.indices[..., 64:].reshape(-1)
    own = np.unique(own[(own >= 0) & (own < pages * size)])
    scales = np.ascontiguousarray(cache[own // size, own % size, 512:528])
    cache[own // size, own % size, 512:528] = (scales.view(np.float32) * np.float32(8)).view(
        cache.dtype
    )
    return replace(inputs, cache=cache)


@pytest.mark.parametrize("heads", [20, 40, 128])
def test_growing_grains(heads: int) -> None:
    """O follows what the largest grain grows by; a kernel whose O does not is wrong."""
    made = kernel("decode", rows="v32", num_heads=heads)
    inputs = mla_sparse_decode_inputs(
        made.config, batch=1, topk=150, cache_rows=256, data="diffuse", seed=4
    )
    inputs = growing(inputs)
    right(made, inputs, made(**given(inputs), splits=1))
    stale, count = re.subn(
        r"mov\.b32 %grown, %grain\d*;", "mov.b32 %grown, 0x3F800000;", made.artifact.text
    )
    assert count
    edited = sparse_kernel(replace(made.artifact, text=stale))
    with pytest.raises(AssertionError):
        right(edited, inputs, edited(**given(inputs), splits=1))
