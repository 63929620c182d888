"""AITER's fmha_v3_fwd objects on the emulator: right results, and a verdict for every finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from aiter import HISTORY, MODES, object_file
from aiter_fmha import NAMES, PROBLEMS, Problem, answers, judge, launch, run, sequence, tensors
from fmha_verdicts import LATE_WAIT, REFILL_V, TIGHT, verdict

from mlagen.binary import load_code_object
from mlagen.emulator import EmulationResult

SMALL = ((200, 300),)


def at(name: str) -> str:
    return f"fmha_v3_fwd/{name}.co"


def verdicts(problem: Problem, code: bytes, result: EmulationResult) -> set[str]:
    """The classes that a run's findings fall into; all must have one."""
    assert not result.dropped_findings
    kernel = load_code_object(code).kernel()
    made = {finding: verdict(problem.path, kernel, finding) for finding in result.findings}
    assert [str(f) for f, name in made.items() if name is None] == []
    return {name for name in made.values() if name is not None}


def expected_classes(name: str) -> set[str]:
    """The classes that a launch of 200 queries and 300 keys shows, of one query tile if it can."""
    if name.startswith("fwd_hd128_bf16"):
        return {TIGHT}
    return {TIGHT, REFILL_V} | ({LATE_WAIT} if "fp8" in name else set())


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{Path(p.path).stem}-{p.label}")
def test_results_are_right(problem):
    code = object_file(problem.path).read_bytes()
    result, o, lse = launch(problem, code, "earliest", 0)
    errors = judge(problem, o, lse)
    assert {e.output for e in errors} == ({"O", "LSE"} if problem.lse else {"O"})
    assert all(e.ratio <= 1.0 and e.nans == 0 for e in errors), errors
    verdicts(problem, code, result)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_findings_are_the_known_ones(name, mode):
    problem = Problem(at(name), SMALL)
    code = object_file(problem.path).read_bytes()
    result, o, lse = launch(problem, code, mode, 7)
    found = verdicts(problem, code, result)
    assert expected_classes(name) <= found
    if expected_classes(name) == {TIGHT}:
        assert found == {TIGHT}
    # Where nothing but wait states is found, no legal timing changes the result.
    if found == {TIGHT} or mode == "earliest":
        assert all(e.ratio <= 1.0 and e.nans == 0 for e in judge(problem, o, lse))


def with_waits(code: bytes, result: EmulationResult) -> bytes:
    """The object with every lgkmcnt in front of a "missing-wait" as small as the finding asks."""
    kernel = load_code_object(code).kernel()
    start = code.index(kernel.code)
    patched = bytearray(code)
    places = {ins.offset: i for i, ins in enumerate(kernel.instructions)}
    for finding in result.findings:
        if finding.kind != "missing-wait":
            continue
        before = reversed(kernel.instructions[: places[finding.pc]])
        wait = next(ins for ins in before if ins.mnemonic.startswith(("s_waitcnt", "ds_")))
        assert wait.mnemonic == "s_waitcnt", finding
        byte = start + wait.offset + 1  # lgkmcnt: bits 11:8 of the immediate
        count = min(patched[byte] & 15, int(finding.needs[len("lgkmcnt(") : -1]))
        patched[byte] = patched[byte] & 0xF0 | count
    return bytes(patched)


@pytest.mark.parametrize("name", ["fwd_hd128_fp8", "fwd_hd256_fp8"])
def test_late_waits_are_repaired_by_their_counts(name):
    """Nothing else is wrong there: the count that each finding asks for, and it is gone."""
    problem = Problem(at(name), SMALL)
    code = object_file(problem.path).read_bytes()
    for _ in range(3):  # what comes after a poisoned branch is only seen when it is repaired
        code = with_waits(code, launch(problem, code, "earliest", 0)[0])
    result, o, lse = launch(problem, code, "earliest", 0)
    assert not [f for f in result.findings if f.kind == "missing-wait"]
    assert all(e.ratio <= 1.0 and e.nans == 0 for e in judge(problem, o, lse))


@pytest.mark.parametrize("name", [n for n in NAMES if "causal" not in n and "group" not in n])
def test_bounds_notice_one_key(name):
    """The same output fails, in O and in LSE, against an oracle that does not see one key. For fp8,
    whose P has 4 bits, it has to be a key that matters to a row."""
    fp8 = "fp8" in name
    problem = Problem(at(name), ((40, 150),), spread=2.0 if fp8 else 1.0)
    _, o, lse = launch(problem, object_file(problem.path).read_bytes(), "earliest", 0)
    assert all(e.ratio <= 1.0 for e in judge(problem, o, lse))
    head = sequence(problem, 0, 0)
    favourites = (head.q @ head.k.T).argmax(axis=1)
    for key in map(int, favourites[:3]) if fp8 else (0, 77, 149):
        assert all(e.ratio > 1.5 for e in judge(problem, o, lse, drop=key)), key


def test_what_the_oracle_compares_with_is_poisoned():
    """Outputs that a launch does not write fail, and so does what it writes elsewhere."""
    problem = Problem(at("fwd_hd128_bf16"), SMALL)
    _, o, lse = launch(problem, object_file(problem.path).read_bytes(), "earliest", 0,
                       workgroups=[(0, 0, 0)])  # fmt: skip
    assert all(e.ratio <= 1.0 for e in judge(problem, o, lse))
    problem = replace(problem, lengths=((300, 300),))
    _, o, lse = launch(problem, object_file(problem.path).read_bytes(), "earliest", 0,
                       workgroups=[(0, 0, 0)])  # fmt: skip
    assert {e.output: e.nans for e in judge(problem, o, lse)} == {"O": 44 * 128, "LSE": 44}
    o[0, -1] = 1.0
    assert [e.ratio for e in judge(problem, o, lse) if e.output == "outside"] == [np.inf]


def test_keys_beyond_the_diagonal_are_not_seen():
    """The oracle's mask: bottom-right, and rows above it see nothing."""
    problem = Problem(at("fwd_hd128_bf16_causal"), ((300, 100),))
    answer = answers(problem)[0][0]
    assert np.isneginf(answer.lse[:200]).all() and np.isfinite(answer.lse[200:]).all()
    assert not answer.o[:200].any()
    v = tensors(problem).v[0, :128].astype(np.float64)
    np.testing.assert_allclose(answer.o[200], v)


FIXED = ("fwd_hd192_hd128_bf16", "fwd_hd192_hd128_bf16_group", "fwd_hd192_hd128_bf16_causal",
         "fwd_hd192_hd128_bf16_causal_group")  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_the_fix_of_f1077c48c7(name):
    """AITER's "Fix 192x128 kernel deterministic bug" added four waits. Without them four runs of
    matrix instructions use a[192:207] of V that no wait covers; with them none does."""
    problem = Problem(at(name), ((300, 700),))
    used = {}
    for version in ("f1077c48c7p", "f1077c48c7"):
        code = object_file(f"{version}/hsa/gfx950/{problem.path}", HISTORY).read_bytes()
        result = launch(problem, code, "earliest", 0)[0]
        used[version] = [f for f in result.findings if f.kind == "missing-wait"]
    assert used["f1077c48c7"] == []
    old = used["f1077c48c7p"]
    assert all(f.other_asm.startswith("ds_read_b64_tr_b16 a[") for f in old)
    assert all(f.asm.startswith("v_mfma_f32_32x32x16_bf16 v[208:223], a[") for f in old)
    assert {f.resource for f in old} == {f"a{number}" for number in range(192, 208, 2)}
    assert len({f.pc for f in old}) == 4 * 4  # four instructions in each of the loop's four copies


def test_run_gives_an_outcome():
    outcome = run(Problem(at("fwd_hd128_bf16"), SMALL), "latest")
    assert outcome.right and outcome.wave_instructions > 10_000
