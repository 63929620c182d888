"""The HIP launcher on a real gfx950 GPU: results, streams, graphs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mlagen
from mlagen.attention.prefill.exact import exact
from mlagen.errors import MissingError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
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
