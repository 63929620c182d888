"""Mutants of values: what is made, and a sample, another one when the sources have changed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from mutated import listing, prefill
from sources import sources

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.mutation import ArtifactSource, CampaignReport, mutate
from mlagen.mutation.gfx950 import value_judge
from mlagen.mutation.gfx950.mutant import Mutant
from mlagen.mutation.gfx950.subject import make_mutants
from mlagen.mutation.gfx950.value_judge import ValueJudge
from mlagen.mutation.gfx950.value_mutants import join, split

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = {
    "constant", "offset", "register", "lane", "sign", "opcode", "dropped", "operation dropped",
    "guarded code skipped", "branch reversed",
}  # fmt: skip
SAMPLE = 6


def drawn_seed() -> int:
    """Another one when the sources have changed, so that in time every mutant has its turn."""
    return sources("mlagen", "schedules", "templates")


@cache
def mutants() -> list[Mutant]:
    return make_mutants(listing(), 512, ["values"])


@cache
def gemm() -> Artifact:
    schedule = load(str(ROOT / "examples" / "gemm_bf16.py"), "gfx950")
    problem_type: Any = schedule.problem_type
    return build(schedule, problem_type(), knobs={"m_tile": 128, "n_tile": 128})


@cache
def merge() -> Artifact:
    return build("mla_prefill_reduce", MlaReduceConfig(num_heads=1, lse=True))


def changed(what: str, code: str) -> list[str]:
    """What stands instead of a line of that code, for mutants of that description."""
    return [
        lines[0].strip()
        for mutant in mutants()
        for number, lines in mutant.edits.items()
        if mutant.what == what and listing().lines[number].code == code
    ]


def test_all_operators_are_made() -> None:
    assert {mutant.operator for mutant in mutants()} == OPERATORS
    assert len({mutant.name for mutant in mutants()}) == len(mutants())
    assert all(mutant.kind == "values" and mutant.edits for mutant in mutants())


def test_nothing_that_orders_is_touched() -> None:
    untouched = ("s_waitcnt", "s_barrier", "s_nop", "s_setprio", "s_endpgm")
    for mutant in mutants():
        for number, lines in mutant.edits.items():
            assert not listing().lines[number].code.startswith(untouched), mutant.name
            assert len(lines) == 1 and lines[0].strip() != listing().lines[number].code


@pytest.mark.parametrize(
    ("what", "code", "instead"),
    [
        ("31 -> 15", "v_and_b32 v[T+1], 31, v[T]", "v_and_b32 v[T+1], 15, v[T]"),
        ("31 -> 30", "v_and_b32 v[T+1], 31, v[T]", "v_and_b32 v[T+1], 30, v[T]"),
        ("0xff800000 -> 0x7f800000", "v_mov_b32 v[NEG], 0xff800000",
         "v_mov_b32 v[NEG], 0x7f800000"),
        ("v_rcp_f32 -> v_rsq_f32", "v_rcp_f32 v[T], v[L]", "v_rsq_f32 v[T], v[L]"),
    ],
)  # fmt: skip
def test_one_thing_is_changed(what: str, code: str, instead: str) -> None:
    assert instead in changed(what, code)


def test_operands_are_split_from_what_is_behind_them() -> None:
    code = "v_pk_mul_f32 v[O:O+1], v[O:O+1], v[T:T+1] op_sel_hi:[1,0]"
    given, tail = split(code)
    assert given == ["v[O:O+1]", "v[O:O+1]", "v[T:T+1]"] and tail == " op_sel_hi:[1,0]"
    assert join("v_pk_mul_f32", given, 0, given[0], tail) == code


def test_another_register_is_of_the_same_width_and_read_later() -> None:
    found = [mutant for mutant in mutants() if mutant.operator == "register"]
    assert len(found) > 1000
    for mutant in found[:200]:
        old, new = mutant.what.split(" -> ")
        assert old != new and old[0] == new[0] and (":" in old) == (":" in new)


@pytest.mark.parametrize("make", [prefill, gemm, merge], ids=["mha", "gemm", "reduce"])
def test_no_mutant_of_the_sample_is_missed(make: Any) -> None:
    seed = drawn_seed()
    report: CampaignReport = mutate(
        ArtifactSource(make()), classes=["values"], count=SAMPLE, seed=seed
    )
    assert len(report.verdicts) == SAMPLE
    assert report.misses() == [], f"seed {seed}"
    assert report.recall() == "none judged"


@pytest.fixture(scope="module")
def judge() -> ValueJudge:
    return ValueJudge(merge())


def test_what_no_oracle_minds_is_missed(judge: ValueJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are too loose must not make a mutant equivalent."""
    (mutant,) = [
        mutant
        for mutant in make_mutants(judge.listing, 64, ["values"])
        if mutant.what == "v_rcp_f32 -> v_rsq_f32" and mutant.line == first_line(judge, mutant.what)
    ]
    assert judge.judge(mutant).by == "exact oracle"

    class Passed:
        passed = True

    monkeypatch.setattr(value_judge, "compare", lambda *given: Passed)
    verdict = judge.judge(mutant)
    assert (verdict.outcome, verdict.by) == ("missed", "within bounds")


def first_line(judge: ValueJudge, what: str) -> int:
    mutants = make_mutants(judge.listing, 64, ["values"])
    return min(mutant.line for mutant in mutants if mutant.what == what)


def test_what_other_data_alone_shows_is_missed(
    judge: ValueJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = "v_rcp_f32 -> v_rsq_f32"
    line = first_line(judge, what)
    (mutant,) = [
        m for m in make_mutants(judge.listing, 64, ["values"]) if (m.what, m.line) == (what, line)
    ]
    one = judge._one
    monkeypatch.setattr(
        judge,
        "_one",
        lambda m, code, call: one(m, code, call) if not call.oracles else (None, True),
    )
    verdict = judge.judge(mutant)
    assert (verdict.outcome, verdict.by) == ("missed", "weak data")


def test_the_command_takes_a_users_file(mlagen: Any, tmp_path: Path) -> None:
    done = mlagen(
        "mutate", ROOT / "examples" / "gemm_bf16.py", "--target", "gfx950", "--set", "m_tile=128",
        "--set", "n_tile=128", "--class", "values", "--sample", 1, "--processes", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "values" in done.out and "missed                 0" in done.out
