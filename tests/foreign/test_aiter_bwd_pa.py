"""AITER's fmha_v3_bwd and pa objects: in full, right in "earliest", findings with verdicts.

In the other modes an object is right unless a finding says why it need not be
(docs/foreign_kernels_bwd_pa.md).
"""

from dataclasses import replace

import aiter_bwd
import aiter_pa
import pytest
from aiter import MODES, object_file, objects
from backward_verdicts import BEYOND, LATE_WAIT, NEXT_Q, NEXT_TILE, verdict
from family_report import coverage

CASES = [*aiter_bwd.CASES, *aiter_pa.CASES]
HARMFUL = {LATE_WAIT, NEXT_TILE, NEXT_Q, BEYOND}
SOME = ("bwd_hd64_fp16_a32_pssk", "bwd_hd64_bf16_a16_rtne", "bwd_hd128_bf16_causal_a32_psskddv",
        "bwd_hd192_128_bf16_a32_pssk", "pa_fp16_noquant_gqa8_1tg_4w",
        "pa_bf16_pertokenInt8_gqa8_2tg_4w", "pa_bf16_pertokenFp8_gqa16_2tg_4w")  # fmt: skip
BOTTOM = "fmha_v3_bwd/bwd_hd128_fp16_causal_br_a32_psskddv.co"


def judged(path, outcome):
    """The verdicts of all findings; fails where one has none."""
    made = {finding: verdict(path, finding) for finding in outcome.findings}
    assert [str(finding) for finding, name in made.items() if name is None] == []
    return set(made.values())


@pytest.mark.parametrize("folder", ["pa", "fmha_v3_bwd"])
def test_every_object_executes_in_full(folder):
    paths = objects(folder)
    if not paths:
        object_file(f"{folder}/none.co")  # skips, and says why
    for path in paths:
        assert coverage(object_file(path).read_bytes()).executes, path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_in_earliest(case):
    object_file(case.path)
    outcome = case.run("earliest", 1)
    assert outcome.right, outcome.errors
    judged(case.path, outcome)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "earliest"])
@pytest.mark.parametrize("name", SOME)
def test_right_in_every_mode_or_a_finding_says_why(name, mode):
    case = next(c for c in CASES if c.path.endswith(f"/{name}.co"))
    object_file(case.path)
    outcome = case.run(mode, 1)
    found = judged(case.path, outcome)
    assert outcome.right or found & HARMFUL, outcome.errors


@pytest.mark.parametrize("path", ["pa/pa_fp16_noquant_gqa8_1tg_4w.co"])
def test_the_bounds_notice_one_key_of_decode(path):
    problem = aiter_pa.Problem(path, (150, 61))
    object_file(path)
    assert aiter_pa.run(problem, "earliest").right
    assert not aiter_pa.run(problem, "earliest", drop=40).right


@pytest.mark.parametrize("name", ["bwd_hd64_fp16_a32_pssk", "bwd_hd128_bf16_a32_psskddv"])
def test_the_bounds_notice_one_key_of_the_gradients(name):
    problem = next(p for p in aiter_bwd.PROBLEMS if p.path.endswith(f"/{name}.co"))
    code = object_file(problem.path).read_bytes()
    _, *outputs = aiter_bwd.launch(problem, code, "earliest", 0)
    ratios = {e.output: e.ratio for e in aiter_bwd.judge(problem, *outputs)}
    assert max(ratios.values()) <= 1.0
    without = {e.output: e.ratio for e in aiter_bwd.judge(problem, *outputs, drop=40)}
    assert min(without.values()) > 1.0


def test_rows_beyond_the_last_key_reach_the_next_batch_entry():
    """The sanitizer names the stores; where the next entry's workgroups ran first, its rows go."""
    problem = replace(next(p for p in aiter_bwd.PROBLEMS if p.path == BOTTOM), batch=2)
    code = object_file(BOTTOM).read_bytes()
    result, *outputs = aiter_bwd.launch(problem, code, "earliest", 0)
    assert BEYOND in {verdict(BOTTOM, finding) for finding in result.findings}
    assert all(e.ratio <= 1.0 for e in aiter_bwd.judge(problem, *outputs))
    _, *outputs = aiter_bwd.launch(problem, code, "earliest", 0, backwards=True)
    wrong = {e.output for e in aiter_bwd.judge(problem, *outputs) if e.ratio > 1.0}
    assert wrong == {"dK", "dV"}
