"""The HIP launcher on a real gfx950 GPU: results, streams, graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sparse_calls import given, right

import mlagen
from mlagen.attention.latent.facts import order_of
from mlagen.attention.prefill.exact import exact
from mlagen.compat.aiter import mla_decode_fwd
from mlagen.errors import ConfigError, MissingError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_decode.aiter_plan import aiter_arrays, plan_aiter
from mlagen.families.mla_decode.exact import exact as decode_exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded as decode_rounded
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.launch import HipLauncher
from mlagen.launch.hip import TARGETS
from mlagen.problem.expected import compare


def why_not() -> str:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available() or not torch.version.hip:
        return "torch finds no AMD GPU"
    try:
        arch = HipLauncher().driver.device(torch.cuda.current_device()).arch
    except MissingError as error:
        return error.message
    return "" if arch in TARGETS else f"{torch.cuda.get_device_name()} is a {arch}"


REASON = why_not()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON)]


@pytest.fixture(scope="module")
def kernel() -> Any:
    return mlagen.build("mha_prefill_v2", num_heads=8, num_kv_heads=2, depth=128, mask="causal")


@pytest.fixture(scope="module")
def inputs() -> MhaInputs:
    return mha_inputs(MhaConfigV2(8, 2), batch=2, seq_len=300, num_keys=500, start_pos=200)


def on_gpu(inputs: MhaInputs) -> dict[str, Any]:
    import torch

    return {
        name: torch.from_numpy(getattr(inputs, name).view(np.int16)).cuda().view(torch.bfloat16)
        for name in ("q", "k", "v")
    }


def is_right(inputs: MhaInputs, out: Any) -> bool:
    import torch

    got = out.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16)
    return compare(exact(inputs).output, inputs.output_view(got)).passed


def test_the_result_is_right(kernel: Any, inputs: MhaInputs) -> None:
    import torch

    given = on_gpu(inputs)
    out = torch.full_like(given["q"], float("nan"))
    assert kernel(**given, start_pos=200, out=out) is out
    assert is_right(inputs, out)


def test_a_prepared_launch_follows_torchs_stream(kernel: Any, inputs: MhaInputs) -> None:
    import torch

    given = on_gpu(inputs)
    made = kernel.arguments(**given, start_pos=200, out=torch.full_like(given["q"], float("nan")))
    step = kernel.gpu_launcher.prepare(
        kernel.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
    )
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # a launch that waited for the stream would show it
        step()
        assert not side.query()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    side.synchronize()
    assert is_right(inputs, made.tensors["o"])


def test_a_prepared_launch_is_captured_into_a_graph(kernel: Any, inputs: MhaInputs) -> None:
    import torch

    given = on_gpu(inputs)
    made = kernel.arguments(**given, start_pos=200, out=torch.full_like(given["q"], float("nan")))
    step = kernel.gpu_launcher.prepare(
        kernel.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    assert made.tensors["o"].isnan().all()  # captured, not run
    graph.replay()
    torch.cuda.synchronize()
    assert is_right(inputs, made.tensors["o"])


# ---- MLA decode -----------------------------------------------------------------------------

LENGTHS = (0, 1, 65, 300, 1000, 4097)
SEVERAL, AITER = {"persistent": 1}, {"persistent": 1, "arguments": "aiter"}
FORMS = pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 16},
        {"num_heads": 128, "q_len": 2},
        {"num_heads": 12, "q_len": 3, "page_size": 1, "mask": "null"},
        {"num_heads": 40, "cache_dtype": "fp8_e4m3"},
        {"num_heads": 16, "q_len": 2, "cache_dtype": "fp8_e4m3", "dtype": "fp8_e4m3"},
    ],
    ids=lambda fields: ", ".join(f"{name}={value}" for name, value in fields.items()),
)


def cuda(array: np.ndarray) -> Any:
    """A copy on the GPU, of a type that numpy has or has not."""
    import torch

    kinds = {2: (np.int16, torch.bfloat16), 1: (np.uint8, torch.float8_e4m3fn)}
    if array.dtype.kind in "iu" or array.dtype == np.float32:
        return torch.from_numpy(array.copy()).cuda()
    bits, kind = kinds[array.dtype.itemsize]
    return torch.from_numpy(np.ascontiguousarray(array).view(bits)).cuda().view(kind)


def decode_is_right(kernel: Any, inputs: MlaDecodeInputs, splits: Any, out: Any, lse: Any) -> bool:
    """By both oracles; `lse` as [batch, heads, tokens]."""
    got = out.float().cpu().numpy().reshape(*inputs.q.shape[:3], 512)
    logs = np.ascontiguousarray(lse.cpu().numpy())
    for oracle in (decode_exact, decode_rounded):
        expected = oracle(inputs, splits=splits, order=order_of(kernel.artifact))
        stored = got.astype(ml_dtypes.bfloat16)
        if not compare(expected.output, stored).passed:
            return False
        if not compare_lse(expected.lse, logs).passed:
            return False
    return True


@pytest.mark.parametrize("knobs", [{}, SEVERAL], ids=["one item", "several"])
@FORMS
def test_decode_with_plans(fields: dict[str, Any], knobs: dict[str, Any]) -> None:
    """Whole and in parts, called and prepared; the plan is made anew for other lengths."""
    kernel = mlagen.build("mla_decode_gfx950", **fields, knobs=knobs)
    most = mla_decode_inputs(MlaDecodeConfig(**fields), lengths=LENGTHS, data="late_max", seed=0)
    tensors = {name: cuda(array) for name, array in most.tensors.items()}
    for split_keys in (None, 256):
        plan = kernel.plan(LENGTHS, split_keys=split_keys, room=LENGTHS)
        out, lse = kernel(**tensors, **most.scales, plan=plan, checked=True)
        assert decode_is_right(kernel, most, plan.splits, out, lse)
        step = kernel.prepare(**tensors, **most.scales, plan=plan)
        lengths = np.array(LENGTHS[::-1], np.int32).clip(0, most.cache_lengths)
        tensors["cache_lengths"].copy_(cuda(lengths))
        plan.update(lengths)
        step()
        fewer = replace(most, cache_lengths=lengths)
        assert decode_is_right(kernel, fewer, plan.splits, step.output, step.lse)
        tensors["cache_lengths"].copy_(cuda(most.cache_lengths))


@FORMS
def test_decode_in_aiters_form(fields: dict[str, Any]) -> None:
    """With our reduce kernel after it; and a thousand calls give the bits of the first."""
    import torch

    kernel = mlagen.build("mla_decode_gfx950", **fields, knobs=AITER)
    inputs = mla_decode_inputs(kernel.config, lengths=LENGTHS, data="late_max", seed=0)
    plan = plan_aiter(kernel.config, LENGTHS, workgroups=256, split_keys=256)
    arrays = aiter_arrays(inputs)
    arrays["kv_buffer"] = arrays.pop("cache")
    names = ("work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map",
             "reduce_partial_map")  # fmt: skip
    given = {name: cuda(array) for name, array in arrays.items()}
    given |= {name: cuda(getattr(plan, name)) for name in names}
    out, lse = kernel(**given, scale=inputs.scale, checked=True)
    shape = inputs.q.shape[:3]
    assert decode_is_right(
        kernel, inputs, plan.splits, out, lse.reshape(shape).transpose(1, 2).contiguous()
    )
    first = out.view(torch.int16).clone()
    step = kernel.prepare(**given, scale=inputs.scale, out=out, lse=lse)
    for _ in range(1000):
        step()
    assert torch.equal(first, out.view(torch.int16))
    o = torch.full_like(out, torch.nan)  # under AITER's own name
    lists = "qo_indptr", "kv_indptr", "kv_page_indices", "kv_last_page_lens"
    more = {name: given[name] for name in (*names, "q_scale", "kv_scale") if name in given}
    _, again = mla_decode_fwd(
        given["q"], given["kv_buffer"], o, *(given[name] for name in lists), kernel.config.q_len,
        page_size=kernel.config.page_size, sm_scale=inputs.scale, return_lse=True,
        causal=kernel.config.causal, **more,
    )  # fmt: skip
    assert torch.equal(first, o.view(torch.int16)) and torch.equal(lse, again)
    wrong = given["work_info_set"].clone()
    wrong[0, 5] += 1
    with pytest.raises(ConfigError, match="work_info_set"):
        kernel(**{**given, "work_info_set": wrong}, scale=inputs.scale, checked=True)


def test_decode_as_an_operator() -> None:
    from mlagen.ops import mla_decode, plan_mla_decode

    config = MlaDecodeConfig(24, q_len=2)
    inputs = mla_decode_inputs(config, lengths=LENGTHS, data="late_max", seed=0)
    tensors = [cuda(inputs.tensors[n]) for n in ("q", "cache", "block_table", "cache_lengths")]
    plan = plan_mla_decode(*tensors[:2], LENGTHS)
    out, lse = mla_decode(*tensors, inputs.scale, plan=plan)
    kernel = mlagen.build("mla_decode_gfx950", num_heads=24, q_len=2)
    assert decode_is_right(kernel, inputs, plan.splits, out, lse)


# ---- sparse MLA -----------------------------------------------------------------------------

LISTED = (0, 1, 33, 130, 700)
SPARSE_FORMS = pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 12},
        {"num_heads": 128},
        {"num_heads": 64, "rows": "v32"},
        {"num_heads": 16, "rows": "e4m3_row", "dtype": "fp8_e4m3"},
    ],
    ids=lambda fields: ", ".join(f"{name}={value}" for name, value in fields.items()),
)


def sparse_tensors(inputs: Any) -> dict[str, Any]:
    """Its arrays on the GPU, and its numbers."""
    return {
        name: cuda(x) if isinstance(x, np.ndarray) else x for name, x in given(inputs).items()
    }  # fmt: skip


def on_host(tensor: Any) -> np.ndarray:
    """A copy; bf16 as numpy has it."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16)
    return tensor.cpu().numpy()


@SPARSE_FORMS
def test_sparse_prefill(fields: dict[str, Any]) -> None:
    kernel = mlagen.build("mla_sparse_prefill_gfx950", **fields)
    inputs = mla_sparse_prefill_inputs(
        kernel.config, rows=len(LISTED), topk=700, lengths=LISTED, cache_rows=2048, page_size=8
    )
    outputs = kernel(**sparse_tensors(inputs), checked=True)
    right(kernel, inputs, [on_host(x) for x in outputs])


@pytest.mark.parametrize("more", [{}, {"q_len": 2, "causal": True, "extra": True}], ids=["", "all"])
@SPARSE_FORMS
def test_sparse_decode(fields: dict[str, Any], more: dict[str, Any]) -> None:
    """Whole, in parts, and prepared; and a thousand calls give the bits of the first."""
    import torch

    kernel = mlagen.build("mla_sparse_decode_gfx950", **fields, **more)
    second = {"extra_topk": 70, "extra_lengths": (70, 0, 33, 7, 64)} if more else {}
    inputs = mla_sparse_decode_inputs(
        kernel.config, batch=len(LISTED), topk=700, lengths=LISTED, cache_rows=2048, **second
    )
    tensors = sparse_tensors(inputs)
    for splits in (1, 5):
        outputs = kernel(**tensors, splits=splits, checked=True)
        right(kernel, inputs, [on_host(x) for x in outputs], splits)
        step = kernel.prepare(**tensors, splits=splits)
        for _ in range(1000):
            step()
        assert torch.equal(step.output.view(torch.int16), outputs[0].view(torch.int16))
