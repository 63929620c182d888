"""What runs reach of an artifact, and the calls that reach all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlagen.artifact import Artifact, SourceLine
from mlagen.attention.prefill.calls import TilePlace, _candidates, _tiles
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.split_merge.prefill_made_up import mla_reduce_inputs
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.family import tile_counts
from mlagen.mutation.gfx950.mutant import assembled
from mlagen.mutation.gfx950.subject import make_mutants
from mlagen.mutation.gfx950.value_judge import ValueJudge
from mlagen.verify import kind_of, verify, verify_thoroughly

GEMM = Path(__file__).resolve().parents[2] / "examples" / "gemm_bf16.py"
# A loop of two tiles.
KNOBS = {
    "k_slots": 2, "v_slots": 2, "spare_slots": 0, "softmax": "grouped",
    "qk_pattern": "6x1:3 10x1:5", "pv_pattern": "4x1:5 6x1:5 6x1:3",
}  # fmt: skip


@cache
def prefill() -> Artifact:
    return build("mha_prefill_v2", MhaConfigV2(num_heads=1, num_kv_heads=1), knobs=KNOBS)


@cache
def gemm() -> Artifact:
    schedule = load(str(GEMM), "gfx950")
    problem_type: Any = schedule.problem_type
    return build(schedule, problem_type(), knobs={"m_tile": 128, "n_tile": 128})


def test_the_default_calls_reach_every_instruction() -> None:
    report = verify_thoroughly(prefill(), modes=["latest"])
    assert report.passed and report.coverage.complete
    assert report.coverage.total > 5000
    facts = dict(report.facts())
    assert facts["verdict"] == (
        f"passed; reached {report.coverage.total} of {report.coverage.total} instructions "
        f"in {len(report.calls)} calls"
    )


def test_a_kind_of_a_users_own_file_has_its_calls() -> None:
    report = verify_thoroughly(gemm(), modes=["latest"])
    assert report.passed and report.coverage.complete
    assert [call.sizes["k"] for call in report.calls[:6]] == [64, 120, 192, 248, 320, 440]
    assert {call.sizes["n"] for call in report.calls[6:]} > {1, 4, 8, 12, 60, 64}


def test_what_one_call_leaves_out_is_told_by_section_and_operation() -> None:
    report = verify(gemm(), modes=["latest"], m=5, n=24, k=64)
    coverage = report.coverage
    assert report.passed and coverage is not None and not coverage.complete
    assert coverage.reached + sum(gap.instructions for gap in coverage.gaps) == coverage.total
    whole = {gap.section for gap in coverage.gaps if not gap.operation}
    assert {"N = 2", "prologue", "loop, i % 2 = 0", "drain, (N - 2) % 2 = 1"} <= whole
    narrow = [gap for gap in coverage.gaps if gap.operation == "store_narrow_bf16"]
    assert narrow and all(gap.schedule_line and gap.asm_line for gap in narrow)
    shown = coverage.rows("gemm.py")
    assert any(row[:2] == ("N = 2", "all of it") for row in shown)
    told = json.loads(json.dumps(report.to_json()))["coverage"]
    assert told["instructions"] == coverage.total and len(told["not_reached"]) == len(coverage.gaps)
    facts = dict(report.facts())
    assert facts["verdict"] == "passed"
    assert facts["covered"].startswith(f"{coverage.reached} of {coverage.total} instructions (")


@pytest.fixture(scope="module")
def judge() -> ValueJudge:
    return ValueJudge(prefill())


def test_a_rescale_left_out_of_one_printed_copy_is_wrong(judge: ValueJudge) -> None:
    """Ordinary data hides it, in every copy of the loop; the default calls do not."""
    skipped = [
        mutant
        for mutant in make_mutants(judge.listing, 512, ["values"])
        if mutant.operator == "guarded code skipped" and "rescale" in mutant.what
    ]
    loops = [mutant for mutant in skipped if mutant.section.startswith("loop")]
    drains = [mutant for mutant in skipped if mutant.section.startswith("drain")]
    assert len(loops) == 2 and len(drains) > 3
    hidden = 0
    for mutant in (*loops, drains[-1]):
        verdict = judge.judge(mutant)
        assert (verdict.outcome, verdict.by_finding) == ("killed", False), mutant.name
        if mutant in loops:
            changed = replace(prefill(), code=assembled(prefill(), mutant.edits))
            shape = {"seq_len": 512, "modes": ["latest"]}
            hidden += verify(changed, data="realistic", **shape).right
    assert hidden == len(loops)


def test_a_zero_missing_for_rows_without_keys_is_found(judge: ValueJudge) -> None:
    (mutant,) = [
        mutant
        for mutant in make_mutants(judge.listing, 512, ["values"])
        if mutant.section == "N = 0" and mutant.what == "v_mov_b32 v[O+5], 0"
    ]
    assert judge.judge(mutant).outcome == "killed"


@pytest.mark.parametrize(
    "mask", ["null", "causal", "sliding_window_causal[300]", "chunked_causal[1000]"]
)
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
def test_every_number_of_tiles_has_a_call(mask: str, dtype: str) -> None:
    config = MhaConfigV2(1, 1, mask=mask, dtype=dtype)
    for count in range(10):
        places = list(_candidates(config, count, config.q_tile))
        assert any(_tiles(config, place) == count for place in places), count
        assert all(isinstance(place, TilePlace) and place.keys >= 0 for place in places)


def test_numbers_of_tiles_are_those_that_the_text_tells_apart() -> None:
    assert tile_counts(gemm().manifest) == (0, 1, 2, 3, 4, 5, 7)
    lines = tuple(SourceLine(n, name, "", "all", "t", 1, 1) for n, name in enumerate(["setup"], 1))
    assert tile_counts(replace_source(gemm(), lines)) == (0,)


def replace_source(artifact: Artifact, lines: tuple[SourceLine, ...]) -> Any:
    import msgspec

    return msgspec.structs.replace(artifact.manifest, source=lines)


def test_what_no_call_can_reach_is_said() -> None:
    config = MhaConfigV2(1, 1, mask="sliding_window_causal[64]")
    artifact = build("mha_prefill_v2", config)
    limits = kind_of(artifact).covering(artifact).limits
    assert "no query tile was found that walks 7, 8, 9, 13 tiles" in limits[0]
    assert any("cuts the end of at most the last" in limit for limit in limits)


def test_groups_of_given_numbers_of_partials() -> None:
    config = MlaReduceConfig(num_heads=2)
    inputs = mla_reduce_inputs(config, seq_len=9, partials=[0, 1, 3])
    assert [len(group.slots) for group in inputs.groups] == [0, 1, 3]
    assert [group.end - group.first for group in inputs.groups] == [9, 9, 9]
    with pytest.raises(ConfigError, match="partials=1,-1 must not be negative"):
        mla_reduce_inputs(config, seq_len=9, partials=[1, -1])


def test_data_with_something_in_every_tile() -> None:
    """Half of the rows spike in each tile, others step once, and whole waves are at rest."""
    config = MhaConfigV2(1, 1, mask="null", dtype="bf16")
    inputs = mha_inputs(config, seq_len=256, num_keys=384, data="every_tile")
    q, k = (x[0, :, 0].astype(np.float64) for x in (inputs.q, inputs.k))
    scores = q @ k.T * inputs.scale * np.log2(np.e)
    maxima = scores.reshape(256, 6, 64).max(axis=2)
    grown = np.diff(np.maximum.accumulate(maxima, axis=1), axis=1)
    row = np.arange(256)
    rest = row // 32 % 4 == 3
    spikes, steps = ~rest & (row % 2 == 0), ~rest & (row % 2 == 1)
    assert (grown[rest] < config.rescale_threshold).all()
    assert (grown[spikes] > 127).all()
    over = grown[steps] > config.rescale_threshold
    assert (over.sum(axis=1) == 1).all()
    assert over.any(axis=0).all()  # in each tile after the first some row
    top = scores[spikes].reshape(-1, 6, 64).argmax(axis=2)
    odd = mha_inputs(config, seq_len=256, num_keys=384, start_pos=1, data="every_tile")
    q, k = (x[0, :, 0].astype(np.float64) for x in (odd.q, odd.k))
    other = (q @ k.T)[spikes].reshape(-1, 6, 64).argmax(axis=2)
    assert set(np.unique(top)) | set(np.unique(other)) == set(range(64))
