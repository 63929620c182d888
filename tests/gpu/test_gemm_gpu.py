"""The GEMM of the examples on a Hopper GPU: both oracles over sizes, equal bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemm.oracles import exact, rounded
from gemm.problem import GemmConfig
from gemm.verification import gemm_inputs

from mlagen.artifact import Artifact
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.launch import CudaLauncher
from mlagen.problem.expected import compare

EXAMPLE = Path(__file__).parents[2] / "examples" / "gemm_bf16.py"


@pytest.fixture(scope="module", params=["TMA", "cp.async"])
def artifact(request: pytest.FixtureRequest) -> Artifact:
    schedule = load(str(EXAMPLE), "sm_90a")
    return build(schedule, GemmConfig(), knobs={"feed": request.param})


@pytest.mark.parametrize("data", ["randn", "realistic", "late"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 8, 8), (128, 256, 64), (128, 256, 128), (129, 264, 192), (200, 520, 72), (300, 328, 1000)],
)
def test_sizes(artifact: Artifact, data: str, m: int, n: int, k: int) -> None:
    import torch

    inputs = gemm_inputs(GemmConfig(), m=m, n=n, k=k, data=data)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    sizes = {"m": m, "n": n, "k": k}
    tensors = {"a": to_gpu(inputs.a), "b": to_gpu(inputs.b), "c": c}
    CudaLauncher().launch(artifact, tensors=tensors, scalars=sizes, sizes=sizes)
    torch.cuda.synchronize()
    got = to_host(c)
    for oracle in (exact, rounded):
        expected = oracle(inputs)
        found = compare(expected, got.reshape(1, m, 1, n) if got.ndim == 2 else got)
        assert found.passed, (expected.oracle, found.worst, found.nans)


def test_the_same_bits(artifact: Artifact) -> None:
    import torch

    torch.manual_seed(1)
    a, b = (torch.randn(2048, 2048, device="cuda").bfloat16() for _ in range(2))
    first = torch.empty(2048, 2048, device="cuda", dtype=torch.bfloat16)
    again = torch.empty_like(first)
    sizes = dict.fromkeys("mnk", 2048)
    launcher = CudaLauncher()
    launcher.launch(artifact, tensors={"a": a, "b": b, "c": first}, scalars=sizes, sizes=sizes)
    differences = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(1000):
        again.fill_(float("nan"))
        launcher.launch(artifact, tensors={"a": a, "b": b, "c": again}, scalars=sizes, sizes=sizes)
        differences += (again.view(torch.int16) != first.view(torch.int16)).sum()
    torch.cuda.synchronize()
    assert int(differences) == 0
