"""Sparse MLA as torch's operators and under FlashMLA's names, on a Hopper GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlagen.ops
from mlagen.attention.latent.order import (
    KEYS_AS_ROWS,
    SEESAW,
    SEESAW_OF_GRAINS,
    keys_in_registers,
)
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.verification import MlaSparseTrial, SplitInputs

CHECKS = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
OPTIONAL = (
    "topk_length", "sink", "kv_scales", "positions", "first_position", "extra_cache",
    "extra_indices", "extra_topk_length", "extra_kv_scales",
)  # fmt: skip


def tensors(inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The first arguments of an operator, and those by name that are there."""
    first = [to_gpu(getattr(inputs, name)) for name in ("q", "cache", "indices")]
    more = {name: getattr(inputs, name, None) for name in OPTIONAL}
    return first, {name: to_gpu(array) for name, array in more.items() if array is not None}


def prefill(heads: int, **fields: Any) -> Any:
    config = MlaSparsePrefillConfig(heads, **fields)
    return mla_sparse_prefill_inputs(
        config, rows=40, topk=300, cache_rows=1024, sink=np.linspace(-2, 2, heads).tolist()
    )


def decode(heads: int, **fields: Any) -> Any:
    config = MlaSparseDecodeConfig(heads, **fields)
    sink = np.linspace(-2, 2, heads).tolist()
    return mla_sparse_decode_inputs(config, batch=4, topk=700, cache_rows=2048, sink=sink)


def right(inputs: Any, outputs: Any, splits: int = 1) -> None:
    """Holds outputs against the exact oracle."""
    names = ("o", "lse", "max_logits")[: len(outputs)]
    config = inputs.config
    order = SEESAW if config.num_heads > 32 else KEYS_AS_ROWS
    if config.num_heads > 32 and config.rows == "v32":
        order = SEESAW_OF_GRAINS
    if config.num_heads <= 16 and config.rows != "bf16":
        order = keys_in_registers(config.d_qk, 128 if config.rows == "v32" else 0)
    starts = MlaSparseTrial(SplitInputs(inputs, splits)).splits
    found = {name: to_host(x) for name, x in zip(names, outputs, strict=True)}
    for name, compared in compare_outputs(
        inputs, exact(inputs, splits=starts, order=order), found
    ).items():
        assert compared.passed, (name, compared)


@pytest.mark.parametrize(
    ("heads", "fields"),
    [
        (8, {"rows": "v32"}),
        (16, {"rows": "e4m3_block64"}),
        (13, {}),
        (13, {"dtype": "fp8_e4m3"}),
        (64, {}),
        (128, {"d_qk": 512}),
        (128, {"dtype": "fp8_e4m3"}),
        (128, {"rows": "v32", "dtype": "fp8_e4m3"}),
    ],
    ids=str,
)
def test_prefill(heads: int, fields: dict[str, Any]) -> None:
    import torch

    inputs = prefill(heads, **fields)
    first, more = tensors(inputs)
    right(
        inputs,
        mlagen.ops.mla_sparse_prefill(*first, inputs.scale, q_scale=inputs.q_scale, **more),
    )
    given = [more.get(name) for name in OPTIONAL[:3]]
    torch.library.opcheck(
        torch.ops.mlagen.mla_sparse_prefill.default,
        (*first, inputs.scale, *given, 1.0, inputs.q_scale, "-inf"),
        test_utils=CHECKS,
    )


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    "fields",
    [
        {"rows": "v32", "q_len": 2},
        {"rows": "v32", "q_len": 2, "dtype": "fp8_e4m3"},
        {"rows": "model1", "d_qk": 512, "extra": True},
        {"rows": "v41", "d_qk": 512, "extra": True},
    ],
    ids=str,
)
def test_decode(fields: dict[str, Any], splits: int) -> None:
    import torch

    inputs = decode(16, **fields)
    first, more = tensors(inputs)
    found = mlagen.ops.mla_sparse_decode(
        *first, inputs.scale, splits=splits, q_scale=inputs.q_scale, **more
    )
    right(inputs, found, splits)
    given = [more.get(name) for name in OPTIONAL]
    torch.library.opcheck(
        torch.ops.mlagen.mla_sparse_decode.default,
        (*first, inputs.scale, *given, 1.0, inputs.q_scale, "-inf", splits),
        test_utils=CHECKS,
    )


def test_compiled_and_captured() -> None:
    import torch

    inputs = decode(16, rows="v32", q_len=2)
    first, more = tensors(inputs)

    def step(q: Any, *rest: Any) -> Any:
        out, lse = mlagen.ops.mla_sparse_decode(q * 1.0, *rest, inputs.scale, splits=3, **more)
        return out * 1.0, lse

    right(inputs, torch.compile(step, fullgraph=True)(*first), splits=3)
    mlagen.ops.mla_sparse_decode(*first, inputs.scale, splits=3, **more)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = mlagen.ops.mla_sparse_decode(*first, inputs.scale, splits=3, **more)
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    right(inputs, (out, lse), splits=3)


def test_flash_mla() -> None:
    """Both functions, with gaps in q and lists, and +inf on rows without keys."""
    import torch

    from mlagen.compat import flash_mla

    def spread(tensor: Any) -> Any:
        *leading, last = tensor.shape
        wide = tensor.new_zeros([*(n + 1 for n in leading), last + 128])
        view = wide[tuple(slice(0, n) for n in tensor.shape)]
        view.copy_(tensor)
        return view

    inputs = prefill(64)
    (q, cache, lists), more = tensors(inputs)
    lists[3] = -1
    out, most, lse = flash_mla.flash_mla_sparse_fwd(
        spread(q), spread(cache[0][:, None]), spread(lists[:, None]), inputs.scale,
        attn_sink=more["sink"],
    )  # fmt: skip
    plain = mlagen.ops.mla_sparse_prefill(
        q, cache, lists, inputs.scale, sink=more["sink"], empty_lse="+inf"
    )
    assert all(torch.equal(x, y) for x, y in zip((out, lse, most), plain, strict=True))
    assert bool(torch.isposinf(lse[3]).all()) and not bool(out[3].any())
    inputs = decode(16, rows="v32", q_len=2)
    (q, cache, lists), more = tensors(inputs)
    schedule, _ = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(
        spread(q), cache.view(torch.uint8)[:, :, None], None, None, 512, schedule, None,
        inputs.scale, is_fp8_kvcache=True, indices=spread(lists), attn_sink=more["sink"],
    )  # fmt: skip
    found = mlagen.ops.mla_sparse_decode(
        q, cache, lists, inputs.scale, sink=more["sink"], empty_lse="+inf"
    )
    assert torch.equal(out, found[0]) and torch.equal(lse, found[1])
