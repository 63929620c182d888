"""What `mlagen tune --cost measured` does on an AMD GPU, up to the clock: the real kernel through
the real hip-python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hip_standin import StandIn, TorchTensor, call, rocm_torch

from mlagen.app.build import build_artifact
from mlagen.errors import UnsupportedError, WrongResultError
from mlagen.mutation.gfx950.judging import Judge
from mlagen.mutation.gfx950.mutant import assembled
from mlagen.tune import measured, verified_workload
from mlagen.tune.verified_workload import VerifiedWorkload

FIELDS = {"num_heads": 2, "num_kv_heads": 1, "depth": 64}
SHAPE = {"batch": 2, "seq_len": 300, "num_keys": 300}


@pytest.fixture(scope="module")
def artifact() -> Any:
    return build_artifact("mha_prefill_v2", FIELDS, {})


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[TorchTensor]:
    """Tensors that were carried to the GPU, in their order."""
    made: list[TorchTensor] = []

    def to_gpu(array: np.ndarray) -> TorchTensor:
        made.append(TorchTensor(array))
        return made[-1]

    def to_host(tensor: TorchTensor) -> np.ndarray:
        call("hipDeviceSynchronize")
        return tensor.numpy()

    monkeypatch.setitem(sys.modules, "torch", rocm_torch())
    monkeypatch.setattr(verified_workload, "to_gpu", to_gpu)
    monkeypatch.setattr(verified_workload, "to_host", to_host)
    return made


def workload(artifact: Any, **shape: int) -> VerifiedWorkload:
    made = measured.workloads_of(artifact).workload(artifact.manifest.problem, SHAPE | shape)
    assert isinstance(made, VerifiedWorkload)
    return made


def test_a_right_kernel_passes(standin: StandIn, carried: list[TorchTensor], artifact: Any) -> None:
    workload(artifact).check(artifact, seed=1)
    assert len(standin.launches) == 3  # twice the odd call, once this one
    whole = artifact.manifest.grid_for({"num_heads": 2, "seq_len": 300, "batch": 2})
    assert standin.launches[-1].grid == whole  # all of it, though some rows are compared


def test_a_wrong_one_does_not(standin: StandIn, carried: list[TorchTensor], artifact: Any) -> None:
    """One that masks nothing, under the name of one that does."""
    other = build_artifact("mha_prefill_v2", FIELDS | {"mask": "null"}, {})
    disguised = msgspec.structs.replace(other.manifest, problem=artifact.manifest.problem)
    kernel = type(artifact)(disguised, other.code, other.text)
    with pytest.raises(WrongResultError, match="outside the exact oracle's bounds"):
        workload(artifact).check(kernel, seed=1)


def test_prepared_calls_have_copies_of_their_own(
    standin: StandIn, carried: list[TorchTensor], artifact: Any
) -> None:
    made = workload(artifact, seq_len=40, num_keys=70)
    first, second = made.calls(artifact, 2)
    assert not standin.launches
    half = len(carried) // 2
    assert len({tensor.data_ptr() for tensor in carried}) == len(carried) == 2 * half
    outputs = [tensors[-1] for tensors in (carried[:half], carried[half:])]
    second()
    call("hipDeviceSynchronize")
    assert np.isnan(outputs[0].numpy().astype(np.float32)).all()
    right = outputs[1].numpy()
    assert not np.isnan(right.astype(np.float32)).any()
    first()
    call("hipDeviceSynchronize")
    np.testing.assert_array_equal(outputs[0].numpy().view(np.uint16), right.view(np.uint16))
    assert made.bytes == sum(tensor.numpy().nbytes for tensor in carried[: half - 1])


def test_a_users_kernel_is_checked_and_prepared_alike(
    standin: StandIn, carried: list[TorchTensor]
) -> None:
    file = str(Path(__file__).resolve().parents[2] / "examples" / "gemm_bf16.py")
    gemm = build_artifact(file, {}, {"m_tile": 128, "n_tile": 128}, target="gfx950")
    shape = {"m": 130, "n": 136, "k": 72}
    made = measured.workloads_of(gemm).workload(gemm.manifest.problem, shape)
    made.check(gemm, seed=1)
    uneven = gemm.manifest.grid_for({"m": 77, "n": 331})
    assert [launch.grid for launch in standin.launches] == [uneven, uneven, (2, 2, 1)]
    broken = type(gemm)(gemm.manifest, _without_the_tail_of_k(gemm), gemm.text)
    with pytest.raises(WrongResultError, match="outside the exact oracle's bounds"):
        made.check(broken, seed=1)
    launches = len(standin.launches)
    (call_once,) = made.calls(gemm, 1)
    call_once()
    call("hipDeviceSynchronize")
    assert len(standin.launches) == launches + 1
    assert made.bytes == 2 * 72 * (130 + 136)


def _without_the_tail_of_k(gemm: Any) -> bytes:
    """The code object with one product less in the second of two tiles."""
    judge = Judge(gemm)
    line = next(
        number for number, line in judge.listing.lines.items()
        if line.mnemonic.startswith("v_mfma") and line.section == "N = 2"
        and judge.listing.blocks[line.block].title == "cluster mma 0, i = 1"
    )  # fmt: skip
    return assembled(gemm, {line: ("  s_nop 0",)})


def test_what_is_asked_of_a_problem(artifact: Any) -> None:
    assert "seq_len" in measured.workloads_of(artifact).sizes
    assert measured.workloads_of(artifact).beside(artifact) == ()
    persistent = SimpleNamespace(
        manifest=SimpleNamespace(kernel="k", facts=artifact.manifest.facts | {"items": "several"})
    )
    with pytest.raises(UnsupportedError, match="k with a persistent grid"):
        measured.workloads_of(artifact).beside(persistent)  # type: ignore[arg-type]
