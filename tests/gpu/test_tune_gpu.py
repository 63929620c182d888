"""`mlagen tune` on a Hopper GPU: a search, what is wrong or does not end, the device afterwards."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpu_calls import name_of_device, spin

from mlagen.app.build import build_artifact, build_with_defaults
from mlagen.errors import WrongResultError
from mlagen.families.mla_decode.workload import DecodeWorkload
from mlagen.tune import TuneRequest, tune
from mlagen.tune.measured import warm_up, workloads_of
from mlagen.tune.sandbox import Sandbox, TimedOut
from mlagen.tune.store import Store

FIELDS = {"num_heads": 16}
HERE = Path(__file__).parent


def test_a_search_measures_and_confirms(tmp_path: Path) -> None:
    request = TuneRequest("mla_decode_sm90", {"num_heads": "16"}, ["batch=16", "keys=1024"],
                          target="sm_90a", trials=3, sampler="descent", limit=120)  # fmt: skip
    with closing(Store(tmp_path / "s.sqlite")) as store:
        result = tune(request, store)
    assert result.winner is not None
    assert result.winner.confirmed == "yes"
    assert 0.5 < (result.winner.cost or 0) < 1.1
    passed = [trial for trial in result.trials if trial.outcome.verdict == "passed"]
    assert all(len(t.outcome.samples["variant"]) >= 16 for t in passed)
    assert "H" in result.study.question.device["name"]


@pytest.mark.parametrize(
    ("kernel", "fields", "shape"),
    [
        ("mla_sparse_decode_sm90", {"num_heads": 16, "rows": "v32"}, {"batch": 8}),
        ("mla_sparse_decode_sm90", {"num_heads": 64}, {"batch": 2, "keys": 4096}),
        ("mla_sparse_prefill_sm90", {"num_heads": 16}, {"rows": 64, "keys": 4096}),
    ],
)
def test_sparse_calls_are_checked_and_prepared(
    kernel: str, fields: dict[str, Any], shape: dict[str, int]
) -> None:
    artifact = build_artifact(kernel, fields, {})
    made = workloads_of(artifact)
    workload = made.workload(artifact.manifest.problem, shape, made.beside(artifact))
    workload.check(artifact, seed=0)
    for call in workload.calls(artifact, 2):
        call()
    # One that knows a head less, under the same name.
    other = build_artifact(kernel, {**fields, "num_heads": fields["num_heads"] - 1}, {})
    disguised = msgspec.structs.replace(other.manifest, problem=artifact.manifest.problem)
    with pytest.raises(WrongResultError, match="oracle's bounds"):
        workload.check(type(artifact)(disguised, other.code, other.text), seed=0)


def test_a_kernel_that_is_wrong_is_told() -> None:
    """One that sees the last 64 keys only, under the name of one that sees all."""
    artifact = build_artifact("mla_decode_sm90", FIELDS, {})
    workload = DecodeWorkload(
        artifact.manifest.problem, {"batch": 4, "keys": 512}, build_with_defaults
    )
    workload.check(artifact, seed=0)
    windowed = {**FIELDS, "mask": "sliding_window_causal[64]"}
    other = build_artifact("mla_decode_sm90", windowed, {})
    disguised = msgspec.structs.replace(other.manifest, problem=artifact.manifest.problem)
    with pytest.raises(WrongResultError, match="outside the exact oracle's bounds"):
        workload.check(type(artifact)(disguised, other.code, other.text), seed=0)


def test_a_kernel_that_does_not_end_is_stopped_and_the_gpu_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where the other process finds the calls.
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sandbox = Sandbox(warm_up)
    try:
        name = sandbox.call(name_of_device, limit=120)
        with pytest.raises(TimedOut):
            sandbox.call(spin, 40_000_000_000, limit=5)  # some 20 s
        assert sandbox.call(name_of_device, limit=120) == name
    finally:
        sandbox.close()
