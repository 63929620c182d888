"""A user's own kernels from `mlagen.build` on a Hopper GPU: torch's tensors, the same checks as for
arrays, which are emulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlagen
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.errors import ConfigError
from mlagen.family import family_of
from mlagen.problem.expected import compare, four_dimensions

EXAMPLES = Path(__file__).parents[2] / "examples"


def judged(name: str, **call: Any) -> None:
    """Make a call's inputs, run it on the GPU, and hold it against the family's oracles."""
    kernel = mlagen.build(str(EXAMPLES / name), target="sm_90a")
    family = family_of(kernel.artifact)
    kind = family.kind("")
    inputs = kind.inputs(kernel.artifact.manifest.problem, seed=0, **call)
    tensors = {name: to_gpu(array) for name, array in inputs.arrays.items()}
    made = kernel(**tensors)
    given = made.clone().fill_(float("nan"))
    assert kernel(**tensors, out=given) is given
    for tensor in (made, given):
        found = to_host(tensor)
        for expected in kind.trial(inputs).oracles():
            seen = compare(expected, four_dimensions(found))
            assert seen.passed, (call, seen.worst, seen.nans)


@pytest.mark.parametrize("data", ["randn", "near zero"])
@pytest.mark.parametrize(("m", "n"), [(1, 8), (33, 1000), (512, 2048)])
def test_rmsnorm(m: int, n: int, data: str) -> None:
    judged("rmsnorm.py", m=m, n=n, data=data)


@pytest.mark.parametrize(("m", "k"), [(1, 4), (300, 80), (257, 4096)])
def test_row_sums(m: int, k: int) -> None:
    judged("row_sums_sm90.py", m=m, k=k, data="realistic")


def test_what_is_refused_before_a_launch() -> None:
    import torch

    kernel = mlagen.build(str(EXAMPLES / "rmsnorm.py"), target="sm_90a")
    x = torch.ones(3, 64, dtype=torch.bfloat16, device="cuda")
    w = x[0].clone()
    for given, said in (
        ((x.float(), w), "x is fp32"),
        ((x, w.cpu()), "w is a torch tensor in the host's memory"),
        ((x.cpu(), w), "x is a torch tensor in the host's memory"),
        ((x, np.ones(64, np.float32)), "lies in the host's memory"),
        ((x, x[0, :32].clone()), "w has 32 for n, not 64"),
        ((x.T, w), "x"),
    ):
        with pytest.raises(ConfigError, match=said):
            kernel(*given)
