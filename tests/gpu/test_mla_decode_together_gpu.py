"""Parts of row blocks that their blocks put together, on a Hopper GPU: right by both oracles, the
same bits whoever adds them up, counts of zero afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_mla_decode_gpu import NATIVE, built, launched, on_gpu, passes, poisoned
from under_load import same_bits_under_load

from mlagen.attention.latent.facts import order_of
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.families.mla_decode.made_up import mla_decode_inputs

LENGTHS = (0, 1, 63, 65, 129, 450, 3000)
FORMS: tuple[dict[str, Any], ...] = (
    {"num_heads": 16},
    {"num_heads": 8, "q_len": 2, "page_size": 16},
    {"num_heads": 24, "page_size": 1},
    {"num_heads": 32, "page_size": 192},
    {"num_heads": 5, "q_len": 3, "mask": "sliding_window_causal[100]"},
    {"num_heads": 16, "num_kv_heads": 2, "q_len": 2},
    {"num_heads": 16, "cache_dtype": "fp8_e4m3"},
    {"num_heads": 32, "cache_dtype": "fp8_e4m3", "page_size": 1},
    {"num_heads": 128, **NATIVE},
    {"num_heads": 16, **NATIVE, "page_size": 16, "q_len": 3},
    {"num_heads": 12, **NATIVE, "num_kv_heads": 3, "mask": "null"},
    {"num_heads": 40, **NATIVE, "mask": "sliding_window_causal[100]", "q_len": 2},
    {"num_heads": 32, **NATIVE},
    {"num_heads": 16, "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 4, **NATIVE, "q_len": 3, "page_size": 1},
)


@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_forms(fields: dict[str, Any]) -> None:
    """The last lengths are others than those of the plan: parts without keys, a longer last one."""
    kernel = built(**fields)
    for data, together, planned in (
        ("realistic", 2, LENGTHS), ("late_max", 8, LENGTHS), ("randn", 16, (700, 9, 0, 64, 1, 2, 3))
    ):  # fmt: skip
        inputs = mla_decode_inputs(kernel.config, lengths=LENGTHS, data=data)
        plan = poisoned(kernel.plan(planned, together=together))
        assert plan.merges is None
        out, lse = launched(kernel, inputs, plan)
        heads = sorted({0, kernel.config.num_heads // 2, kernel.config.num_heads - 1})
        passes(inputs, out, lse, order=order_of(kernel.artifact), heads=heads, splits=plan.splits)
        assert not bool(plan.arrivals.any())


@pytest.mark.parametrize("fields", [FORMS[0], FORMS[6], FORMS[8], FORMS[12], FORMS[13]], ids=str)
@pytest.mark.parametrize("batch", [7, 60])
def test_the_same_bits_under_load(fields: dict[str, Any], batch: int) -> None:
    """With 60 sequences more blocks than fit at once: some leave their slices to later ones."""
    kernel = built(**fields)
    inputs = mla_decode_inputs(kernel.config, batch=batch, max_length=3000, seed=3)
    plan = kernel.plan(inputs.cache_lengths, together=8)
    step = kernel.prepare(**on_gpu(inputs), **inputs.scales, plan=plan)
    same_bits_under_load(step, (step.output, step.lse), (plan.partial_o, plan.partial_lse))
    assert not bool(plan.arrivals.any())


def test_two_streams_that_fill_the_gpu() -> None:
    """Calls whose blocks fill the GPU each, at the same time on two streams, end with the bits of a
    call alone; and a graph of one is replayed."""
    import torch

    kernel = built(num_heads=16)
    inputs = mla_decode_inputs(kernel.config, batch=8, max_length=3000, seed=4)
    steps = []
    for _ in range(2):
        plan = kernel.plan(inputs.cache_lengths, together=16)
        with torch.cuda.stream(torch.cuda.Stream()):
            steps.append(kernel.prepare(**on_gpu(inputs), **inputs.scales, plan=plan))
            stream = torch.cuda.current_stream()
        steps[-1]()
        torch.cuda.synchronize()
        steps[-1] = (steps[-1], stream, steps[-1].output.clone(), plan)
    for _ in range(300):
        for step, stream, _, _ in steps:
            with torch.cuda.stream(stream):
                step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps[0][0]()
    steps[0][0].output.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    for step, _, first, plan in steps:
        assert torch.equal(step.output, first) and not bool(plan.arrivals.any())


def test_lengths_that_change() -> None:
    kernel = built(num_heads=16)
    inputs = mla_decode_inputs(kernel.config, lengths=(900, 1400, 65), data="realistic")
    plan = poisoned(kernel.plan((100, 200, 2000), together=8, room=(2000, 2000, 2000)))
    assert plan.merges is None
    tensors = [to_gpu(a) for a in (inputs.q, inputs.cache, inputs.block_table)]
    step = kernel.prepare(*tensors, to_gpu(inputs.cache_lengths), scale=inputs.scale, plan=plan)
    plan.update(np.array([900, 1400, 65]))
    step.output.fill_(float("nan"))
    step()
    passes(inputs, to_host(step.output), to_host(step.lse), heads=[0, 15], splits=plan.splits)
