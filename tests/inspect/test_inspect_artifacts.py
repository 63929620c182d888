"""Artifacts: names of the schedule, waits with their reasons, PTX roles and pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlagen.artifact import read_artifact
from mlagen.inspect import inspect_path
from mlagen.inspect.gfx950 import slack_of


def test_clusters_have_the_schedules_names(mha_report):
    named = [c.name for c in mha_report.looped if c.end == "barrier"]
    assert named == ["A", "B", "C", "D"] * 2
    kinds = {c.name: c.kind for c in mha_report.looped}
    assert kinds["A"] == kinds["C"] == "matrix + vector + transcendental"
    assert kinds["D"] == "memory"
    assert kinds["B"] in ("vector + memory", "memory")  # with a mask or without
    assert {c.priority for c in mha_report.looped if c.name == "C"} == {1}


def test_roles_and_timeline(mha_report):
    assert [(r.name, r.first, r.last, r.stagger) for r in mha_report.roles] == [
        ("lower", 0, 3, 0),
        ("upper", 4, 7, 1),
    ]
    line = mha_report.timeline
    rows = [
        ["".join(mha_report.cluster(id).name for id in cell
                 if mha_report.cluster(id).kind != "control") for cell in row]
        for _, row in line.rows
    ]  # fmt: skip
    assert rows[0] == ["A", "B", "C", "D"] * 2
    assert rows[1] == ["D", "A", "B", "C"] * 2  # lags by one barrier


def test_lines_lead_to_template_and_schedule(mha_report):
    schedule = Path(__file__).parents[2] / mha_report.schedule_file
    text = schedule.read_text().splitlines()
    matrix = [x for c in mha_report.looped if c.name == "A" for x in c.lines if x.pipe == "matrix"]
    assert matrix
    for line in matrix:
        assert line.template == "mha_prefill/qk.s.j2" and line.template_line > 0
        assert "attention.qk(i)" in text[line.schedule_line - 1]
        assert line.text.startswith("v_mfma_f32_32x32x16_bf16 v[S")


def test_the_mix_is_that_of_the_decoded_code(mha, mha_report):
    from mlagen.binary import load_code_object

    code = load_code_object((mha / "kernel.co").read_bytes()).kernel().instructions
    assert sum(mha_report.mix().values()) == len(code)
    assert mha_report.mix()["matrix"] == sum("mfma" in ins.mnemonic for ins in code)
    assert mha_report.mix()["barrier"] == sum(ins.mnemonic == "s_barrier" for ins in code)
    assert mha_report.mix()["dma"] == sum(bool(ins.modifier("lds")) for ins in code)


def test_derived_waits_need_what_they_say(mha_report):
    closing = {c.name: c.waits[-1] for c in mha_report.looped if c.waits}
    assert {name: wait.text for name, wait in closing.items()} == {
        "B": "vmcnt(4) lgkmcnt(0)",
        "D": "vmcnt(4) lgkmcnt(0)",
    }
    for wait in (w for c in mha_report.clusters for w in c.waits):
        assert wait.source == "derived"
        assert wait.needed == wait.text
        assert wait.slack == ""


def test_waits_placed_by_hand_show_their_slack(hand_placed):
    """The same slack as the generator wrote into the proof."""
    report = inspect_path(hand_placed)
    closing = {c.name: c.waits[-1] for c in report.looped if c.waits}
    assert closing["B"].source == closing["D"].source == "explicit"
    assert closing["B"].slack == "vmcnt(4) is not needed"
    assert closing["D"].slack == "vmcnt(4) would do"
    said = " ".join(read_artifact(hand_placed).manifest.proof.slack)
    assert "cluster B waits for vmcnt(4), none is needed" in said
    assert "cluster D waits for vmcnt(1), vmcnt(4) would do" in said
    assert all(w.source == "derived" for c in report.looped if c.name == "A" for w in c.waits)


@pytest.mark.parametrize(
    ("placed", "needed", "slack"),
    [
        (4 | 7 << 4, "vmcnt(4) lgkmcnt(0)", ""),
        (1 | 7 << 4, "vmcnt(4) lgkmcnt(0)", "vmcnt(4) would do"),
        (4 | 7 << 4, "lgkmcnt(0)", "vmcnt(4) is not needed"),
        (7 << 4, "none", "vmcnt(0) is not needed; lgkmcnt(0) is not needed"),
        (5 | 7 << 4 | 15 << 8, "vmcnt(4)", ""),  # weaker than needed is the proof's business
    ],
)
def test_slack(placed, needed, slack):
    assert slack_of(placed, needed) == slack


def test_the_memory_map_is_the_schedules(mha_report):
    areas = {a.name: (a.kind, a.base, a.slots, a.slot_bytes) for a in mha_report.memory}
    assert areas == {"K": ("ring", 0, 2, 16384), "V": ("ring", 32768, 2, 16384)}
    # What the code reads lies inside.
    for use in mha_report.lds:
        assert use.lowest is not None and 0 <= use.lowest <= use.highest < 65536


def test_an_artifact_without_a_map_is_lifted(add_folder):
    """The small kernel of the tests knows source lines but no registers or memory."""
    report = inspect_path(add_folder)
    assert report.origin == "artifact"
    assert {c.name for c in report.clusters} >= {"A", "B"}
    assert not any(block.declared for block in report.blocks)
    assert dict(report.facts)["knob pattern"] == "even"
