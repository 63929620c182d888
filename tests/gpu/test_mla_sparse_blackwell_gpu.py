"""Sparse prefill and decode on a Blackwell GPU: operators, FlashMLA's names, graphs. No such GPU
has run these yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mlagen.ops
from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import OF_E4M3, SELDOM_MOVED
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.families.mla_sparse.rows import FORMATS, ROWS
from mlagen.families.mla_sparse.verification import MlaSparseTrial, SplitInputs

REPEATS = 200
E4M3 = {"dtype": "fp8_e4m3", "rows": "e4m3", "compute": "fp8"}
FORMS = [{}, E4M3, {**E4M3, "rows": "e4m3_row"}]


def prefill(heads: int, d_qk: int = 576, topk: int = 300, **fields: str) -> Any:
    """40 queries, of which some have lists without keys or with invalid places."""
    config = MlaSparsePrefillConfig(heads, d_qk=d_qk, **fields)
    return mla_sparse_prefill_inputs(
        config, rows=40, topk=topk, cache_rows=4096, sink=np.linspace(-2, 2, heads).tolist()
    )


def call(inputs: Any) -> Any:
    *tensors, sink = (to_gpu(x) for x in (inputs.q, inputs.cache, inputs.indices, inputs.sink))
    scales = None if inputs.kv_scales is None else to_gpu(inputs.kv_scales)
    return lambda: mlagen.ops.mla_sparse_prefill(
        *tensors, inputs.scale, sink=sink, kv_scales=scales, kv_scale=inputs.kv_scale,
        q_scale=inputs.q_scale, compute=inputs.config.compute,
    )  # fmt: skip


def right(inputs: Any, outputs: Any) -> None:
    """Holds outputs against both oracles."""
    from mlagen.ops.torch_sparse import prefill_kernel

    scales = None if inputs.kv_scales is None else to_gpu(inputs.kv_scales)
    made = prefill_kernel(to_gpu(inputs.q), to_gpu(inputs.cache), scales, inputs.config.compute)
    assert made.artifact.manifest.target == "sm_100a"
    found = dict(zip(("o", "lse", "max_logits"), map(to_host, outputs), strict=True))
    splits = MlaSparseTrial(SplitInputs(inputs, 1)).splits
    for oracle in (exact, rounded):
        expected = oracle(inputs, splits=splits, order=order_of(made.artifact))
        for name, compared in compare_outputs(inputs, expected, found).items():
            assert compared.passed, (oracle.name, name, compared)


def repeated(step: Any) -> Any:
    """What a graph of the call leaves, replayed many times: each time the bits of the call."""
    import torch

    first = step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(REPEATS):
        for tensor in found:
            tensor.fill_(float("nan"))
        graph.replay()
        for one, other in zip(first, found, strict=True):
            size = {2: torch.int16, 4: torch.int32}[one.element_size()]
            assert torch.equal(one.view(size), other.view(size))
    return found


@pytest.mark.parametrize(("heads", "d_qk"), [(8, 576), (64, 576), (64, 512), (72, 576), (128, 576)])
@pytest.mark.parametrize("topk", [1, 300, 2048])
@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_operator(heads: int, d_qk: int, topk: int, fields: dict[str, str]) -> None:
    """Blocks alone and CTA pairs, whose heads end in the middle of a block."""
    inputs = prefill(heads, d_qk, topk, **fields)
    right(inputs, call(inputs)())


@pytest.mark.parametrize("heads", [8, 64, 72, 128])
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("rows", ROWS)
def test_rows_and_queries_of_e4m3(rows: str, dtype: str, heads: int) -> None:
    """Every format that is converted to bf16, with queries that are and that are not."""
    inputs = prefill(heads, FORMATS[rows].widths[0], rows=rows, dtype=dtype)
    right(inputs, call(inputs)())


@pytest.mark.parametrize("heads", [64, 128])
@pytest.mark.parametrize("fields", [*FORMS, {"rows": "e4m3_row"}, {"rows": "v32"}], ids=str)
def test_captured_and_repeated(heads: int, fields: dict[str, str]) -> None:
    """A graph's launches, and many of them, leave the same bits."""
    inputs = prefill(heads, **fields)
    right(inputs, repeated(call(inputs)))


@pytest.mark.parametrize("rows", ["bf16", "v32"])
def test_flash_mla(rows: str) -> None:
    import torch

    from mlagen.compat import flash_mla

    inputs = prefill(64, rows=rows)
    q, cache, lists = (to_gpu(x) for x in (inputs.q, inputs.cache, inputs.indices))
    sink = to_gpu(inputs.sink)
    out, most, lse = flash_mla.flash_mla_sparse_fwd(
        q, cache[0][:, None], lists[:, None], inputs.scale, attn_sink=sink
    )
    plain = mlagen.ops.mla_sparse_prefill(
        q, cache, lists, inputs.scale, sink=sink, empty_lse="+inf"
    )
    assert all(torch.equal(x, y) for x, y in zip((out, lse, most), plain, strict=True))


def decode(heads: int, q_len: int = 2, **fields: Any) -> Any:
    """9 sequences, of which some have lists without keys or with invalid places."""
    config = MlaSparseDecodeConfig(heads, q_len=q_len, **fields)
    more = {"extra_topk": 130, "extra_lengths": (130, 0, 64) * 3} if config.extra else {}
    return mla_sparse_decode_inputs(
        config, batch=9, topk=700, lengths=(700, 65, 0) * 3, cache_rows=4096, page_size=64,
        sink=np.linspace(-2, 2, heads).tolist(), **more,
    )  # fmt: skip


OPTIONAL = ("topk_length", "sink", "positions", "first_position", "extra_cache", "extra_indices",
            "extra_topk_length", "kv_scales", "extra_kv_scales")  # fmt: skip


def decoding(inputs: Any, **more: Any) -> Any:
    tensors = [to_gpu(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    given = {
        name: to_gpu(getattr(inputs, name))
        for name in OPTIONAL if getattr(inputs, name) is not None
    }  # fmt: skip
    return lambda: mlagen.ops.mla_sparse_decode(
        *tensors, inputs.scale, kv_scale=inputs.kv_scale, q_scale=inputs.q_scale,
        compute=inputs.config.compute, **given, **more,
    )  # fmt: skip


def decode_right(inputs: Any, outputs: Any, splits: int) -> None:
    """Holds outputs against both oracles."""
    order = OF_E4M3 if inputs.config.compute == "fp8" else SELDOM_MOVED
    found = dict(zip(("o", "lse"), map(to_host, outputs), strict=True))
    starts = MlaSparseTrial(SplitInputs(inputs, splits), order).splits
    for oracle in (exact, rounded):
        expected = oracle(inputs, splits=starts, order=order)
        for name, compared in compare_outputs(inputs, expected, found).items():
            assert compared.passed, (oracle.name, name, compared)


@pytest.mark.parametrize("heads", [8, 64, 72, 128])
@pytest.mark.parametrize(
    "flags", [{}, {"extra": True, "causal": True, "shared_list": True}], ids=str
)
@pytest.mark.parametrize("rows", ROWS)
def test_decode_operator(rows: str, flags: dict[str, bool], heads: int) -> None:
    inputs = decode(heads, rows=rows, d_qk=FORMATS[rows].widths[-1], **flags)
    for splits in (1, 4):
        decode_right(inputs, decoding(inputs, splits=splits)(), splits)


@pytest.mark.parametrize("heads", [8, 128])
@pytest.mark.parametrize("fields", FORMS[1:], ids=str)
def test_decode_with_products_of_e4m3(heads: int, fields: dict[str, str]) -> None:
    inputs = decode(heads, **fields)
    for splits in (1, 4):
        decode_right(inputs, decoding(inputs, splits=splits)(), splits)


@pytest.mark.parametrize("heads", [64, 128])
@pytest.mark.parametrize("fields", [*FORMS, {"rows": "v32"}], ids=str)
def test_decode_captured_and_repeated(heads: int, fields: dict[str, str]) -> None:
    """Parts and their merge, which is launched ahead: the same bits each time, and in any batch."""
    import torch

    inputs = decode(heads, **fields)
    found = repeated(decoding(inputs, split_keys=128))
    decode_right(inputs, found, 6)
    alone = {name: getattr(inputs, name)[:1] for name in ("q", "indices", "topk_length")}
    one = decoding(replace(inputs, **alone), split_keys=128)()
    assert all(torch.equal(x, y[:1]) for x, y in zip(one, found, strict=True))


@pytest.mark.parametrize("rows", ["v32", "model1"])
def test_flash_mla_decode(rows: str) -> None:
    import torch

    from mlagen.compat import flash_mla

    inputs = decode(64, rows=rows, d_qk=FORMATS[rows].widths[-1], extra=True)
    lists, more, lengths = (
        to_gpu(x) for x in (inputs.indices, inputs.extra_indices, inputs.topk_length)
    )
    schedule, _ = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(
        to_gpu(inputs.q), to_gpu(inputs.cache[:, :, None]), None, None, 512, schedule, None,
        inputs.scale, is_fp8_kvcache=True, indices=lists, attn_sink=to_gpu(inputs.sink),
        topk_length=lengths, extra_k_cache=to_gpu(inputs.extra_cache[:, :, None]),
        extra_indices_in_kvcache=more, extra_topk_length=to_gpu(inputs.extra_topk_length),
    )  # fmt: skip
    plain = decoding(inputs, empty_lse="+inf")()
    assert torch.equal(out, plain[0]) and torch.equal(lse, plain[1])
