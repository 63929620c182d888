"""MLA decode as torch's operator and under FlashMLA's names, on a Hopper GPU."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import mlagen.ops
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.problem.expected import compare

LENGTHS = (0, 130, 1000, 64)


def given(**fields: Any) -> tuple[Any, list[Any]]:
    """Inputs, and their first tensors in the order of the operator's arguments."""
    inputs = mla_decode_inputs(MlaDecodeConfig(**fields), lengths=LENGTHS, data="realistic")
    arrays = (inputs.q, inputs.cache, inputs.block_table, inputs.cache_lengths)
    return inputs, [to_gpu(array) for array in arrays]


def right(inputs: Any, out: Any, lse: Any, splits: Any) -> None:
    expected = exact(inputs, splits=splits)
    assert compare(expected.output, to_host(out)).passed
    assert compare_lse(expected.lse, to_host(lse)).passed


@pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 16},
        {"num_heads": 16, "q_len": 2, "cache_dtype": "fp8_e4m3"},
        {"num_heads": 16, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
        {"num_heads": 16, "q_len": 2, "cache_dtype": "fp8_rope_aware"},
        {"num_heads": 16, "dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware"},
    ],
    ids=str,
)
def test_the_operator(fields: dict[str, Any]) -> None:
    import torch

    inputs, tensors = given(**fields)
    plan = mlagen.ops.plan_mla_decode(*tensors[:2], LENGTHS, split_keys=256)
    names = ("kv_scales", "q_scales")
    rows = {n: to_gpu(inputs.tensors[n]) if n in inputs.tensors else None for n in names}
    out, lse = mlagen.ops.mla_decode(*tensors, **inputs.scales, **rows, plan=plan)
    right(inputs, out, lse, plan.splits)
    arguments = (*tensors, inputs.scale, "causal", inputs.kv_scale, inputs.q_scale,
                 *rows.values())  # fmt: skip
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if "cache_dtype" not in fields:  # torch compares by a product, which e4m3 lacks
        checks.append("test_schema")
    torch.library.opcheck(torch.ops.mlagen.mla_decode.default, arguments, test_utils=checks)
    torch.library.opcheck(
        torch.ops.mlagen.mla_decode_planned.default,
        (*tensors, plan.items, plan.merges, plan.shares, plan.partial_o, plan.partial_lse,
         plan.arrivals, plan.config.q_len, *arguments[4:]),
        test_utils=checks,
    )  # fmt: skip


def test_what_watches_a_call_sees_the_operator() -> None:
    """Modes, profilers and gradients do; a call that nothing watches has the same bits."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    inputs, tensors = given(num_heads=16)
    plan = mlagen.ops.plan_mla_decode(*tensors[:2], LENGTHS, split_keys=256)
    op = torch.ops.mlagen.mla_decode_planned.default
    seen: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    def call() -> Any:
        return mlagen.ops.mla_decode(*tensors, inputs.scale, plan=plan)

    plain = call()
    with Watch():
        watched = call()
    assert op in seen
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        profiled = call()
    assert any("mla_decode_planned" in event.name for event in profile.events())
    tensors[0].requires_grad_()
    with torch.enable_grad():
        graded = call()
    for found in (watched, profiled, graded):
        assert all(torch.equal(x, y.detach()) for x, y in zip(plain, found, strict=True))


def test_compiled_and_captured() -> None:
    import torch

    inputs, tensors = given(num_heads=16)
    decode = mlagen.ops.mla_decode
    plan = mlagen.ops.plan_mla_decode(*tensors[:2], LENGTHS, split_keys=256)

    def step(q: Any, *rest: Any) -> Any:
        out, lse = decode(q * 1.0, *rest, inputs.scale, plan=plan)
        return out * 1.0, lse

    out, lse = torch.compile(step, fullgraph=True)(*tensors)
    right(inputs, out, lse, plan.splits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = decode(*tensors, inputs.scale, plan=plan)
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    right(inputs, out, lse, plan.splits)


def test_flash_mla(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that people import, +inf on empty rows, the usual scale."""
    import torch

    from mlagen.compat import flash_mla as ours

    monkeypatch.delitem(sys.modules, "flash_mla", raising=False)
    ours.install()
    import flash_mla  # type: ignore[import-not-found,unused-ignore]

    _inputs, tensors = given(num_heads=32, q_len=2)
    q, cache, table, lengths = tensors
    for causal in (True, False):
        metadata, splits = flash_mla.get_mla_metadata(lengths, 64, 1)
        out, lse = flash_mla.flash_mla_with_kvcache(
            q, cache, table, lengths, 512, metadata, splits, causal=causal
        )
        for b, n in enumerate(LENGTHS):
            rows = cache[table[b, : -(-n // 64)].long()].reshape(-1, 576)[:n].double()
            for token in range(2):
                seen = max(n - (1 - token), 0) if causal else n
                if not seen:
                    assert bool((lse[b, :, token] == float("inf")).all())
                    assert not bool(out[b, token].any())
                    continue
                z = q[b, token].double() @ rows[:seen].T * 576**-0.5
                expected = torch.softmax(z, -1) @ rows[:seen, :512]
                error = (out[b, token].double() - expected).norm() / expected.norm()
                assert float(error) < 2.0**-7
                torch.testing.assert_close(
                    lse[b, :, token].double(), torch.logsumexp(z, -1), atol=1e-4, rtol=1e-4
                )
    with pytest.raises(ConfigError, match="topk_length is given, but indices are not"):
        flash_mla.flash_mla_with_kvcache(
            q, cache, table, lengths, 512, metadata, topk_length=lengths
        )
    with pytest.raises(UnsupportedError, match="dense prefill"):
        flash_mla.flash_attn_varlen_func(q, cache, cache)
    with pytest.raises(ConfigError, match="head_dim_v=256"):
        flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 256, metadata)
    with pytest.raises(ConfigError, match="another one"):
        monkeypatch.setitem(sys.modules, "flash_mla", sys)
        ours.install()


def test_what_no_kernel_takes() -> None:
    import torch

    _, (q, cache, table, lengths) = given(num_heads=16)
    for bad, message in (
        ((q[..., :512].contiguous(), cache), "d_qk=512"),
        ((q, cache.half()), "float16"),
        ((q, torch.zeros(8, 64, 1, 640, device="cuda").to(torch.float8_e4m3fn)), "kv_scales are"),
        ((q, cache.view(-1, 32 * 2 * 576)), "cache"),
        ((q[:, 0].contiguous(), cache), "need a plan"),
    ):
        with pytest.raises((ConfigError, RuntimeError), match=message):
            mlagen.ops.mla_decode(*bad, table, lengths, 0.07)
