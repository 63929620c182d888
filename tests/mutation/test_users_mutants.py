"""Mutants of kernels whose families bring no inputs for them: on the calls that verify takes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.attention.prefill.mutants import PrefillMutants
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.mla_prefill.verification import KIND
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.mutation import ArtifactSource, mutate
from mlagen.mutation.covering import CoveringInputs
from mlagen.mutation.gfx950.judging import Judge
from mlagen.mutation.gfx950.mutant import Mutant
from mlagen.mutation.gfx950.subject import make_mutants

ROOT = Path(__file__).resolve().parents[2]
GEMM = ROOT / "examples" / "gemm_bf16.py"


def test_the_command_judges_a_users_file(mlagen: Any) -> None:
    done = mlagen(
        "mutate", GEMM, "--target", "gfx950", "--set", "m_tile=128", "--set", "n_tile=128",
        "--sample", 8, "--processes", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    total = next(line for line in done.out.split("\n") if line.startswith("  all ")).split()
    mutants, killed, by_finding, _, equivalent, missed = map(int, total[1:])
    assert (mutants, killed + equivalent, missed) == (8, 8, 0)
    assert by_finding >= 4


def test_a_merge_is_judged_by_its_covering_calls() -> None:
    report = mutate(
        ArtifactSource(build("mla_prefill_reduce", MlaReduceConfig(num_heads=1))), count=6, seed=2
    )
    assert (len(report.verdicts), report.misses()) == (6, [])
    assert report.killed


@pytest.fixture(scope="module")
def gemm() -> Judge:
    schedule = load(str(GEMM), "gfx950")
    problem_type: Any = schedule.problem_type
    return Judge(build(schedule, problem_type(), knobs={"m_tile": 128, "n_tile": 128}))


def of(judge: Judge, kind: str, operator: str) -> list[Mutant]:
    made = make_mutants(judge.listing, 512, [kind])
    return [mutant for mutant in made if mutant.operator == operator]


def test_calls_that_execute_the_same_run_once(gemm: Judge) -> None:
    calls = gemm.inputs.calls([1])
    several = [call for call in calls if not call.once]
    assert isinstance(gemm.inputs, CoveringInputs)
    assert 6 <= len(several) < len(calls)
    assert calls[: len(several)] == tuple(several)  # what all modes run comes first
    executed = [gemm.original(call).result.executions for call in several]
    assert all(one != other for n, one in enumerate(executed) for other in executed[:n])


def test_a_mutant_runs_on_the_calls_that_execute_it(
    gemm: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    run = gemm._run

    def watched(code: bytes, call: Any, *given: Any, **more: Any) -> Any:
        if code != gemm.artifact.code:
            ran.append(call)
        return run(code, call, *given, **more)

    monkeypatch.setattr(gemm, "_run", watched)
    mutant = next(m for m in of(gemm, "waits", "counter removed") if m.section == "N = 2")
    verdict = gemm.judge(mutant)
    assert (verdict.outcome, verdict.by_finding, verdict.located) == ("killed", True, True)
    assert ran
    assert all(mutant.line in gemm.original(call).lines for call in ran)


def test_random_runs_are_launched_until_there_are_enough(
    gemm: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of four workgroups has four interleavings."""
    seeds: dict[Any, list[int]] = {}
    run = gemm._run

    def watched(code: bytes, call: Any, mode: str, **more: Any) -> Any:
        if mode == "random":
            seeds.setdefault(call, []).append(more["seed"])
        return run(code, call, mode, **more)

    monkeypatch.setattr(gemm, "_run", watched)
    monkeypatch.setattr("mlagen.mutation.gfx950.judging.RANDOM_RUNS", 7)
    mutant = next(
        m for m in of(gemm, "barriers", "moved to the next cluster")
        if m.role == "upper" and m.what == "s_barrier over cluster mma 1, i = N-1"
    )  # fmt: skip
    verdict = gemm.judge(mutant)
    assert (verdict.outcome, verdict.by) == ("equivalent", "runs"), verdict
    assert list(seeds.values()) == [[0, 1]] * 3
    assert "3 calls in mode latest" in verdict.why


def test_what_nothing_here_executes_is_refused(gemm: Judge) -> None:
    manifest = msgspec.structs.replace(gemm.artifact.manifest, target="sm_120a")
    with pytest.raises(ConfigError, match="there is no emulator"):
        mutate(ArtifactSource(replace(gemm.artifact, manifest=manifest)), count=1)


@pytest.mark.parametrize(
    ("fields", "items", "message"),
    [
        ({"ragged": True}, "several", "a persistent grid, whose workgroups walk"),
        ({"kv_form": "latent"}, "one", "keys in"),
    ],
)
def test_prefill_that_has_no_inputs_for_mutants_is_refused(
    fields: dict, items: Any, message: str
) -> None:
    config = MlaConfigV2(num_heads=1, num_kv_heads=1, **fields)
    problem, knobs = config.parts()
    fields, facts = problem.to_fields(), asdict(PrefillFacts.of(config, items))
    manifest = SimpleNamespace(kernel="k", problem=fields, knobs=knobs, facts=facts)
    artifact: Any = SimpleNamespace(manifest=manifest)
    with pytest.raises(UnsupportedError, match=message):
        PrefillMutants(KIND, artifact)
