"""Published shapes of sparse MLA: prefill over bf16 rows, decode over rows of several formats. All
numbers against fp64 on the GPU, some query rows and heads against both oracles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sparse_gpu import Found, built, called, passes, reference, some

from mlagen.families.mla_sparse.inputs import MlaSparseInputs
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.rows import FORMATS

PAGE = 64
# Prefill: heads, lists, keys of a list (None: all of its places), rows of a batch, rows of a cache.
HEADS = (128, 64, 32, 24, 16, 8)
TOPK = (64, 128, 192, 256, 512, 1024, 2048)
VALID = (0, 37, 40, 63, 64, 96, 97, 128, 192, None)
ROWS = tuple(batch * rows for batch in (1, 4) for rows in (1, 13, 16, 32, 64))
CACHE = (8192, 256, 1024)
SINKS: tuple[float | None, ...] = (None, 1.0, -np.inf, -1e38)
DATA = ("peaked", "diffuse", "randn")
# The tolerances of those tests, of O.
COSINE, MEAN, MOST, FAR, FAR_SHARE = 0.99, 0.01, 0.02, 0.01, 0.0015
BF16_ROUNDING = 2.0**-9
# Decode.
DECODE_HEADS = (16, 64, 128)
DECODE_ROWS = ("bf16", "e4m3_block128", "v32", "model1")
Q_LENS = (1, 2, 4, 8)
CACHED = (0, 5, 64, 700, 2048)  # keys before the new tokens, sequence by sequence
DECODE_TOPK = (32, 64, 128, 256)
EXTRA = (32, 64, 128, 192)
DECODE_MOST = 0.1


def numbers_hold(inputs: MlaSparseInputs, found: Found, most: float, rounding: float = 0.0) -> None:
    """O against fp64: no NaN, and errors within the published tolerances, the largest at most
    `most` and `rounding` of O besides."""
    import torch

    want = reference(inputs)
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


def shortened(inputs: Any, lengths: Any) -> Any:
    """The same keys, lists going on with -1 in the place of lengths."""
    places = np.arange(inputs.indices.shape[-1])
    lists = np.where(places < lengths[:, None], inputs.indices, -1).astype(np.int32)
    return replace(inputs, indices=lists, topk_length=None)


@pytest.mark.parametrize("topk", TOPK)
@pytest.mark.parametrize("heads", HEADS)
def test_prefill(heads: int, topk: int) -> None:
    """Calls of all numbers of rows, each row with another number of keys."""
    guard = built("prefill", num_heads=heads)
    at = HEADS.index(heads) + TOPK.index(topk)
    valid = [topk if n is None else n for n in VALID if n is None or n <= topk]
    for n, rows in enumerate(ROWS, start=at):
        lengths = np.array([valid[(3 * n + row) % len(valid)] for row in range(rows)])
        sink, data, layer = SINKS[n % 4], DATA[n % 3], n // 2 % 2
        inputs = mla_sparse_prefill_inputs(
            guard.kernel.config, rows=rows, topk=topk, cache_rows=CACHE[n // 3 % 3], data=data,
            seed=n, pattern="distinct", lengths=lengths.tolist(), page_size=PAGE, layers=2,
            sink=None if sink is None else [sink + head % 3 for head in range(heads)],
        )  # fmt: skip
        if n % 2:
            inputs = shortened(inputs, lengths)
        found = called(guard, inputs, ahead=layer * PAGE * inputs.cache.strides[1])
        empty_rows_are_exact(found, lengths == 0)
        numbers_hold(inputs, found, MOST, BF16_ROUNDING if data == "peaked" else 0.0)
        chosen = sorted({0, rows - 1, int(np.argmax(lengths))})
        passes(guard.kernel, *some(inputs, found, chosen))


@pytest.mark.parametrize("rows", [name for name, row in FORMATS.items() if not row.decode_only])
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
            numbers_hold(inputs, found, DECODE_MOST)
            passes(guard.kernel, *some(inputs, found, [0, 1, 2, 3, 11]))


def with_positions(inputs: Any, cached: Any, rng: np.random.Generator) -> Any:
    """Keys at positions of what is cached and of the new tokens, in any order."""
    if inputs.positions is None:
        return inputs
    positions = np.full(inputs.positions.shape, 2**31 - 1, np.int32)
    for entry, before in enumerate(cached):
        for own in positions[entry].reshape(-1, positions.shape[-1]):
            all_of_them = rng.permutation(int(before) + inputs.config.q_len)[: len(own)]
            own[: len(all_of_them)] = all_of_them
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
                numbers_hold(inputs, found, DECODE_MOST)
                passes(guard.kernel, inputs, found, heads={0, 7, 63, 64})
