"""Published shapes of sparse MLA: prefill over bf16 rows, decode over rows of several formats. All
numbers against fp64 on the GPU, some query rows and heads against both oracles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sparse_gpu import Found, built, called, passes, reference, some
from sparse_published import (
    COSINE,
    DATA,
    FAR,
    FAR_SHARE,
    HEADS,
    MEAN,
    MOST,
    PAGE,
    SINKS,
    TOPK,
    published,
)

from mlagen.families.mla_sparse.inputs import MlaSparseInputs
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.rows import FORMATS

# Decode.
DECODE_HEADS = (16, 64, 128)
DECODE_ROWS = ("bf16", "e4m3_block128", "v32", "model1", "v41")
Q_LENS = (1, 2, 4, 8)
CACHED = (0, 5, 64, 700, 2048)  # keys before the new tokens, sequence by sequence
DECODE_TOPK = (32, 64, 128, 256)
EXTRA = (32, 64, 128, 192)
DECODE_MOST = 0.1


def numbers_hold(
    kernel: Any, inputs: MlaSparseInputs, found: Found, most: float, rounding: float = 0.0
) -> None:
    """O against fp64: no NaN, and errors within the published tolerances, the largest at most
    `most` and `rounding` of O besides."""
    import torch

    want = reference(inputs, kernel)
    o = torch.from_numpy(found.outputs["o"].astype(np.float32)).cuda().double().view(want.shape)
    assert bool(torch.isfinite(o).all())
    error = (o - want).abs()
    assert float((error - rounding * want.abs()).max()) <= most
    assert float(error.mean()) <= MEAN
    if most == MOST:
        assert float((error > FAR).double().mean()) < FAR_SHARE
    if bool(want.any()):
        assert float(torch.cosine_similarity(o.flatten(), want.flatten(), dim=0)) >= COSINE


def empty_rows_are_exact(found: Found, empty: Any) -> None:
    """`empty` [rows]: O is 0 there, and the others -inf; they are finite elsewhere."""
    for name, array in found.outputs.items():
        if name == "o":
            assert not array[empty].astype(np.float32).any()
        else:
            assert np.isneginf(array[empty]).all() and np.isfinite(array[~empty]).all()


@pytest.mark.parametrize("topk", TOPK)
@pytest.mark.parametrize("heads", HEADS)
def test_prefill(heads: int, topk: int) -> None:
    guard = built("prefill", num_heads=heads)
    for call in published(guard.kernel.config, topk):
        inputs, lengths = call.inputs, call.lengths
        found = called(guard, inputs, ahead=call.layer * PAGE * inputs.cache.strides[1])
        empty_rows_are_exact(found, lengths == 0)
        numbers_hold(guard.kernel, inputs, found, MOST, call.rounding)
        chosen = sorted({0, len(lengths) - 1, int(np.argmax(lengths))})
        passes(guard.kernel, *some(inputs, found, chosen))


@pytest.mark.parametrize("rows", list(FORMATS))
@pytest.mark.parametrize("heads", [128, 40, 24, 8])
def test_prefill_of_stored_rows(heads: int, rows: str) -> None:
    for d_qk in FORMATS[rows].widths:
        guard = built("prefill", num_heads=heads, rows=rows, d_qk=d_qk)
        for n, topk in enumerate((97, 512, 1500)):
            inputs = mla_sparse_prefill_inputs(
                guard.kernel.config, rows=12, topk=topk, cache_rows=2048, data=DATA[n], seed=topk,
                page_size=PAGE, layers=2, sink=[1.0] * heads,
            )  # fmt: skip
            found = called(guard, inputs)
            numbers_hold(guard.kernel, inputs, found, DECODE_MOST)
            passes(guard.kernel, *some(inputs, found, [0, 1, 2, 3, 11]))


def with_positions(inputs: Any, cached: Any, rng: np.random.Generator) -> Any:
    """Keys at positions of what is cached and of the new tokens, in any order. Rows that nobody saw
    hold nothing, and stay unseen."""
    if inputs.positions is None:
        return inputs
    places = np.ndindex(inputs.batch, inputs.tokens)
    held = np.concatenate([inputs.parts(*place)[0].read for place in places])
    positions = np.full(inputs.positions.shape, 2**31 - 1, np.int32)
    for entry, before in enumerate(cached):
        for own in positions[entry].reshape(-1, positions.shape[-1]):
            all_of_them = rng.permutation(int(before) + inputs.config.q_len)[: len(own)]
            own[: len(all_of_them)] = all_of_them
    positions[~np.isin(inputs.indices, held)] = 2**31 - 1
    return replace(inputs, positions=positions, first_position=np.array(cached, np.int32))


@pytest.mark.parametrize("q_len", Q_LENS)
@pytest.mark.parametrize("rows", DECODE_ROWS)
@pytest.mark.parametrize("heads", DECODE_HEADS)
def test_decode(heads: int, rows: str, q_len: int) -> None:
    """With a second cache or positions or both; lists no longer than what there is to see."""
    d_qk = FORMATS[rows].widths[0]
    at = DECODE_HEADS.index(heads) + DECODE_ROWS.index(rows) + Q_LENS.index(q_len)
    more = ({"extra": True}, {"causal": True}, {"extra": True, "causal": True})[at % 3]
    for flags in ({}, {**more, "shared_list": at % 2 == 1}):
        guard = built("decode", num_heads=heads, rows=rows, d_qk=d_qk, q_len=q_len, **flags)
        rng = np.random.default_rng(at)
        for n, topk in enumerate(DECODE_TOPK):
            cached = np.array(CACHED)
            lengths = np.minimum(topk, cached + q_len)
            extra = {}
            if "extra" in flags:
                own = EXTRA[(n + at) % 4]
                extra = {"extra_topk": own, "extra_lengths": [own, 0, own // 2, 1, own]}
            sink = SINKS[(n + at) % 4]
            inputs = mla_sparse_decode_inputs(
                guard.kernel.config, batch=len(cached), topk=topk, cache_rows=2112, seed=n,
                data=DATA[n % 3], pattern=("distinct", "invalid")[n // 2 % 2],
                lengths=lengths.tolist(), page_size=PAGE, layers=2,
                sink=None if sink is None else [sink] * heads, **extra,
            )  # fmt: skip
            inputs = with_positions(inputs, cached, rng)
            tiles = -(-topk // 64) + -(-extra.get("extra_topk", 0) // 64)
            for splits in (*sorted({1, min(3, tiles), tiles}), None):
                found = called(guard, inputs, splits=splits)
                numbers_hold(guard.kernel, inputs, found, DECODE_MOST)
                passes(guard.kernel, inputs, found, heads={0, 7, 63, 64})
