"""What becomes of mutants: a seeded sample without a miss, and each verdict once by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from mutated import SYMBOL, listing, prefill

from mlagen import emulator
from mlagen.errors import FindingsError
from mlagen.mutation import ArtifactSource, CampaignReport, mutate
from mlagen.mutation.campaign import SYNCHRONISATION
from mlagen.mutation.gfx950 import judging
from mlagen.mutation.gfx950.judging import Judge
from mlagen.mutation.gfx950.mutant import Mutant, assembled
from mlagen.mutation.gfx950.subject import make_mutants

SAMPLE = 12


@pytest.fixture(scope="module")
def report() -> CampaignReport:
    return mutate(ArtifactSource(prefill()), count=SAMPLE, seed=7)


@pytest.fixture(scope="module")
def judged() -> Iterator[Judge]:
    yield Judge(prefill())


def find(kind: str, operator: str, place: str, **fields: str) -> Mutant:
    """The one mutant so described."""
    (found,) = [
        m
        for m in make_mutants(listing(), 512, [kind])
        if m.operator == operator
        and m.place == place
        and all(getattr(m, name) == value for name, value in fields.items())
    ]
    return found


def test_no_mutant_of_the_sample_is_missed(report: CampaignReport) -> None:
    assert len(report.verdicts) == SAMPLE
    assert report.missed == ()
    assert report.error() is None
    assert len(report.killed) > SAMPLE // 2


def test_waits_barriers_and_nops_are_found_by_the_sanitizer(report: CampaignReport) -> None:
    own = [v for v in report.killed if v.mutant.kind in SYNCHRONISATION]
    assert own
    assert [v.mutant.name for v in own if not v.by_finding] == []


def test_the_sample_is_counted(report: CampaignReport) -> None:
    total = report.rows()[-1]
    assert total[:3] == ("all", "", str(SAMPLE))
    assert int(total[3]) + int(total[6]) + int(total[7]) == SAMPLE
    described = report.to_json()
    assert described["schema"] == "mlagen.mutate/1"
    assert json.loads(json.dumps(described))["judged"] == SAMPLE


def test_a_weaker_wait_before_a_barrier_is_a_race(judged: Judge) -> None:
    mutant = find(
        "waits", "count + 1", "loop, i % 2 = 0, cluster B, i", what="vmcnt(4) -> vmcnt(5)"
    )
    verdict = judged.judge(mutant)
    assert (verdict.outcome, verdict.located) == ("killed", True)
    assert verdict.by in ("race-raw", "missing-wait")
    assert "buffer_load_dwordx4" in verdict.why


def test_the_weakest_wait_asks_for_something(judged: Judge) -> None:
    """A field of all ones would wait for nothing; one below is what the generator stops at."""
    assert not {"lgkmcnt(15)", "vmcnt(63)"} & set(prefill().text.split())
    mutant = find("waits", "counter removed", "N = 1, cluster A, i = 0", what="lgkmcnt(14)")
    verdict = judged.judge(mutant)
    assert verdict.outcome == "killed"
    assert verdict.by_finding


def test_a_bare_barrier_may_move_over_nothing(judged: Judge) -> None:
    place = "N = 1, cluster C, i = -2"
    mutant = find("barriers", "moved to the next cluster", place, role="upper")
    verdict = judged.judge(mutant)
    assert (verdict.outcome, verdict.by) == ("equivalent", "order")
    assert "without memory operations" in verdict.why


def test_without_the_staggers_first_barrier_waves_go_in_step(judged: Judge) -> None:
    """That costs speed alone: all meet at the same barriers, and none misses a wave that ended."""
    verdict = judged.judge(find("barriers", "removed", "setup", role="upper"))
    assert verdict.outcome == "equivalent", verdict.why


def test_waves_that_end_before_the_staggers_last_barrier_count_as_arrived(judged: Judge) -> None:
    """They do nothing in LDS behind it, and hardware does not wait for waves that have ended."""
    verdict = judged.judge(find("barriers", "removed", "epilogue", role="lower"))
    assert verdict.outcome == "equivalent"


def test_what_only_the_letter_forbids_is_not_found(judged: Judge) -> None:
    """A wait state that AMD's own kernels do without."""
    verdict = judged.judge(find("nops", "removed", "N = 1, cluster B, i = -2"))
    assert (verdict.outcome, verdict.by) == ("equivalent", "letter")
    assert "1 are required" in verdict.why


def test_a_swizzle_on_one_side_gives_wrong_values(judged: Judge) -> None:
    mutant = find(
        "swizzle",
        "bit of the consumer",
        "setup",
        what="v_and_b32 12 -> 8 for v[KADR]",
    )
    verdict = judged.judge(mutant)
    assert (verdict.outcome, verdict.by) == ("killed", "values")


def test_what_a_blind_checker_does_not_see_is_missed(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without findings a nop too few changes no value: the verdict must not be "equivalent"."""
    emulate = emulator.emulate

    def blind(*arguments: Any, **options: Any) -> Any:
        return replace(emulate(*arguments, **options), findings=())

    monkeypatch.setattr(emulator, "emulate", blind)
    monkeypatch.setattr(judging, "RANDOM_RUNS", 2)
    mutant = find("nops", "one shorter", "N = 2, cluster C, i = 0", what="s_nop 1 -> s_nop 0")
    verdict = judged.judge(mutant)
    assert verdict.outcome == "missed"
    report = CampaignReport(SYMBOL, "", 1, (verdict,), 0.0, 1)
    error = report.error()
    assert isinstance(error, FindingsError)
    assert error.exit_code == 4
    assert "1 of 1 mutants" in error.message
    assert report.misses()[0][1] == verdict.why


def test_a_mutant_that_nothing_executes_is_missed(judged: Judge) -> None:
    mutant = find("waits", "counter removed", "N = 1, cluster A, i = 0", what="lgkmcnt(14)")
    elsewhere = replace(mutant, sections=("N = 3",))
    assert judged.judge(mutant).outcome == "killed"
    verdict = judged.judge(elsewhere)
    assert (verdict.outcome, verdict.by) == ("missed", "not executed")
    assert judged.judge(replace(mutant, sections=("N = 0",))).by == "not executed"


def test_a_kernel_that_is_not_clean_judges_nothing() -> None:
    mutant = find("waits", "counter removed", "N = 1, cluster A, i = 0", what="lgkmcnt(14)")
    code = assembled(prefill(), mutant.edits)
    dirty = Judge(replace_code(code))
    with pytest.raises(FindingsError, match="unmutated kernel has errors"):
        dirty.judge(mutant)


def replace_code(code: bytes) -> Any:
    from mlagen.artifact import Artifact

    original = prefill()
    return Artifact(manifest=original.manifest, code=code, text=original.text)


def test_the_command_judges_writes_and_reports(mlagen: Any, tmp_path: Any) -> None:
    out = tmp_path / "out"
    done = mlagen(
        "mutate", SYMBOL, "--set", "num_heads=2", "--set", "num_kv_heads=1", "--set", "mask=causal",
        "--class", "nops", "--sample", 2, "--processes", 1, "-o", out, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.mutate/1"
    assert (report["judged"], report["missed"]) == (2, 0)
    assert report["made"] > 50
    assert json.loads((out / "mutate.json").read_text()) == report


def test_the_command_refuses_what_it_does_not_know(mlagen: Any) -> None:
    assert mlagen("mutate", SYMBOL, "--class", "typos").code == 2
    assert "at least 1" in mlagen(
        "mutate", SYMBOL, "--set", "num_heads=1", "--set", "num_kv_heads=1",
        "--sample", 0,
    ).err  # fmt: skip
