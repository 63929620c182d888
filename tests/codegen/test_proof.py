"""The proof refuses what the waits do not order, and says so at the schedule's lines."""

from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.errors import ProofError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.proof import prove

CONFIG = MhaConfigV2(num_heads=8, num_kv_heads=2)
REFERENCE = {"k_slots": 2, "v_slots": 2, "spare_slots": 0}  # few waits: each proof takes a second
SCHEDULES = Path(__file__).parent / "schedules"


def refusal(name):
    with pytest.raises(ProofError) as caught:
        build(str(SCHEDULES / f"{name}.py"), CONFIG)
    return str(caught.value)


def test_shipped_schedule_is_proved():
    artifact = build("mha_prefill_v2", CONFIG)
    proof = artifact.manifest.proof
    assert proof.status == "proved" and not proof.reasons and not proof.slack
    assert proof.checked_tiles >= 9 and proof.pairs > 500


def test_the_upstream_race_is_refused():
    """DMA waits left out before the closing barriers."""
    text = refusal("no_dma_waits")
    assert text.startswith(
        "error[wait-missing] schedules/no_dma_waits.py:30 cluster D, read(K, i+1): waves 4-7 wrote "
        "this slot at :22 (cluster B);\n"
        "  2 of their DMAs may still be in flight. Needs vmcnt(0) before the barrier that closes "
        "cluster B. First at N = 1."
    )
    assert "read(V, i-1): waves 4-7 wrote this slot at :29 (cluster D)" in text


def test_a_read_one_cluster_before_the_overwrite_is_refused():
    """With the stagger, no wait helps: the other half is already there."""
    assert refusal("late_key_read") == (
        "error[race-war] schedules/late_key_read.py:23 cluster B, copy(K, i+2): waves 4-7 still "
        "read this slot at :20 (cluster A);\n"
        "  16 of their LDS reads may still be in flight. No wait can order them: the clusters are "
        "1 apart and the roles' stagger is 1, so waves 0-3 may be there first. First at N = 3."
    )


def test_a_wait_one_too_weak_is_refused_where_it_first_matters():
    assert refusal("weak_wait") == (
        "error[wait-missing] schedules/weak_wait.py:30 cluster D, read(K, i+1): waves 4-7 wrote "
        "this slot at :22 (cluster B);\n"
        "  2 of their DMAs may still be in flight. Needs vmcnt(4) before the barrier that closes "
        "cluster B. First at N = 5."
    )


def test_hand_placed_waits_are_checked_and_slack_is_reported():
    proof = build(str(SCHEDULES / "hand_placed.py"), CONFIG).manifest.proof
    assert proof.status == "proved"
    assert "cluster D waits for vmcnt(1), vmcnt(4) would do" in " ".join(proof.slack)


@pytest.mark.parametrize("name", ["no_dma_waits", "late_key_read", "weak_wait"])
def test_overridden_artifacts_are_marked(name):
    proof = build(str(SCHEDULES / f"{name}.py"), CONFIG, allow_unproved=True).manifest.proof
    assert proof.status == "unproved"
    assert proof.reasons


def test_the_loop_state_repeats_after_one_pass():
    schedule = schedule_of(load("mha_prefill_v2"), CONFIG, {})
    layout = generate(schedule, templates_for("gfx950")).layout
    result = prove(schedule, layout)
    assert not result.violations
    assert result.repeats <= 2


@pytest.mark.parametrize("knobs", [{"k_slots": 3, "v_slots": 3}, {"v_slots": 2}, REFERENCE])
def test_other_rings_are_proved_too(knobs):
    assert build("mha_prefill_v2", CONFIG, knobs=knobs).manifest.proof.status == "proved"


def test_no_derived_wait_can_be_left_out():
    """Every wait of the program is needed: without it, the proof fails."""
    schedule = schedule_of(load("mha_prefill_v2"), CONFIG, REFERENCE)
    layout = generate(schedule, templates_for("gfx950")).layout
    removed = 0
    for piece in layout.pieces():
        for index, x in enumerate(list(piece.body)):
            if x.pipe == "wait":
                del piece.body[index]
                assert prove(schedule, layout).violations, (piece.key, x.text)
                piece.body.insert(index, x)
                removed += 1
    assert removed > 100
    assert not prove(schedule, layout).violations
