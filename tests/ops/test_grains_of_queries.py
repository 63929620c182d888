"""Rows of v32 as f16 in multiples of grains on Hopper, 17 heads and more, queries of both types."""

from __future__ import annotations

from typing import Any

import pytest
from sparse_calls import alone, given, kernel, right

from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import KEYS_OF_GRAINS, SEESAW_OF_GRAINS
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
