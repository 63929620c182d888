"""`mlagen inspect SCHEDULE`: the table with what is derived from it, against what a build makes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--set", "num_heads=1", "--set", "num_kv_heads=1")
GEMM = ROOT / "examples" / "gemm_bf16.py"
HOPPER = ("--target", "sm_90a")


def shown(mlagen, *arguments):
    done = mlagen("inspect", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.inspect.schedule/2"
    return report


def row_of(report, operation, role=""):
    (row,) = [
        row for row in report["rows"]
        if row["operation"] == operation and (not role or role in row["roles"])
    ]  # fmt: skip
    return row


def passes(row, part):
    return [place["at"] for place in row[part]]


def test_rows_stand_in_prologue_and_drain_where_their_tiles_are(mlagen):
    report = shown(mlagen, "mha_prefill_v2", *SMALL)
    copied = row_of(report, "copy(K, i+3)")
    assert passes(copied, "prologue") == ["-3", "-2", "-1", "0", "1"]
    assert passes(copied, "drain") == []
    product = row_of(report, "pv(i-1)")
    assert passes(product, "prologue") == ["1"]
    assert passes(product, "drain") == ["N-3", "N-2", "N-1", "N"]
    assert product["beside"] == "partial_softmax(i)"
    once = row_of(report, "prescale(i+1)")
    assert (passes(once, "prologue"), passes(once, "drain"), once["waits"]) == (["-1"], [], [])


def test_waits_and_counts_are_those_of_the_machine_code(mlagen, tmp_path):
    """What the generator says of a pass is what the checkers read in the code object."""
    pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
    report = shown(mlagen, "mha_prefill_v2", *SMALL)
    assert mlagen("build", "mha_prefill_v2", *SMALL, "-o", tmp_path / "k").code == 0
    code = json.loads(mlagen("inspect", tmp_path / "k", "--json").out)
    slots = {area["name"]: area["slots"] for area in report["map"]["memory"]}
    steady = [c for c in code["clusters"] if c["section"].startswith("loop,")]
    one_pass = [c for c in steady if c["section"] == steady[0]["section"]]
    mix = Counter()
    for cluster in one_pass:
        mix.update(dict(cluster["mix"]))
    told = Counter()
    for row in report["rows"]:
        told.update(row["units"])
    names = {"memory": "lds"}
    for unit in ("matrix", "vector", "transcendental", "memory", "dma"):
        assert told[unit] == mix[names.get(unit, unit)] > 0
    assert slots == {"K": 4, "V": 4}
    for name in "ABCD":
        (cluster,) = [c for c in one_pass if c["name"] == name]
        waits = [wait for row in report["rows"] if row["cluster"] == name for wait in row["waits"]]
        assert waits == [wait["text"].removeprefix("s_waitcnt ") for wait in cluster["waits"]]


def test_who_does_a_row(mlagen):
    report = shown(mlagen, "mla_prefill_v2", *SMALL, "--set", "dtype=fp8_e4m3")
    assert row_of(report, "copy(K, i+2)")["roles"] == ["lower"]
    assert row_of(report, "copy(V, i+1)")["roles"] == ["upper"]
    assert row_of(report, "mask(i)")["roles"] == []
    barriers = [r for r in report["rows"] if r["operation"] == "s_barrier" and r["cluster"] == "B"]
    assert [(r["roles"], r["waits"]) for r in barriers] == [
        (["lower"], ["vmcnt(6)"]), (["upper"], ["vmcnt(0)"]),
    ]  # fmt: skip


def test_layout_and_budget(mlagen):
    report = shown(mlagen, "mha_prefill_v2", *SMALL, "--knob", "k_slots=2")
    assert report["knobs"]["k_slots"] == 2
    key = next(area for area in report["map"]["memory"] if area["name"] == "K")
    assert (key["slots"], key["slot_bytes"]) == (2, 64 * 256)
    assert "bit4 ^= bit8" in key["layout"]
    used = {use["of"]: (use["used"], use["limit"]) for use in report["uses"]}
    assert used["LDS bytes"] == (6 * 64 * 256, 163840)
    assert used["vector registers of a lane"] == (240, 256)
    text = mlagen("inspect", "mha_prefill_v2", *SMALL).out
    assert "S      64         2 x 32" in text and "lgkmcnt 14..0 (15 times)" in text
    assert "KERNARG" not in text
    assert "KERNARG" in mlagen("inspect", "mha_prefill_v2", *SMALL, "--all").out


def test_a_wait_by_hand(mlagen, tmp_path):
    """A strict one is shown with what is needed; one that is too weak is shown as unproved."""
    early = shown(mlagen, "mla_prefill_v2", *SMALL, "--set", "dtype=fp8_e4m3",
                  "--knob", "dma_wait=early")  # fmt: skip
    lower = next(r for r in early["rows"] if r["by_hand"])
    assert (lower["waits"], lower["needed"]) == (["vmcnt(0)"], "none")
    shutil.copytree(GEMM.parent, tmp_path / "mine")
    file = tmp_path / "mine" / "gemm_bf16.py"
    word = "from mlagen.targets.gfx950.dsl import Wait\n"
    text = file.read_text().replace("from mlagen.dsl import", f"{word}from mlagen.dsl import", 1)
    weak = text.replace('cluster("read 0")', 'cluster("read 0", wait=Wait(vm=60, lgkm=0))')
    assert weak != text
    file.write_text(weak)
    done = mlagen("inspect", file, "--target", "gfx950")
    assert done.code == 0 and "UNPROVED" in done.out and "error[" in done.out
    assert "vmcnt(60) lgkmcnt(0) by hand, needed: vmcnt(8)" in done.out


def test_hopper(mlagen, tmp_path):
    report = shown(mlagen, GEMM, *HOPPER)
    assert [role["name"] for role in report["map"]["roles"]] == ["producer", "math"]
    copied, product = row_of(report, "copy(feed, i)"), row_of(report, "mma(i)")
    assert copied["roles"] == ["producer"] and copied["units"]["dma"] == 2
    assert [wait.partition(":")[0] for wait in copied["waits"]] == ["mbarrier empty(feed, i)"]
    assert [wait.partition(":")[0] for wait in product["waits"]] == ["mbarrier full(feed, i)"]
    assert product["units"]["matrix"] == 4 and passes(product, "prologue") == ["0"]
    released = row_of(report, "release(feed, i-1)")
    assert released["waits"] == ["wgmma.wait_group 1"]
    assert released["units"] == {"vector": 3, "other": 2}  # a guarded arrival is no vector work
    assert released["drain"] == [{"at": "N", "waits": ["wgmma.wait_group 0"]}]


def test_messages_of_hopper_roles(mlagen):
    report = shown(mlagen, "mla_decode_sm90", "--set", "num_heads=64")
    published = row_of(report, "store_p(i) of P left")
    assert published["waits"] == ["then fence.proxy.async; bar.arrive 3 (P left)"]
    taken = row_of(report, "pv(i) of P left, right columns")
    assert taken["roles"] == ["right"] and taken["waits"] == ["bar.sync 3 (P left)"]
    first = row_of(report, "qk(i+2) of cache 0, first")
    assert first["waits"] == ["mbarrier full(cache 0, i+2): slot 0, parity %left_turn1"]
    used = {use["of"]: use["used"] for use in report["uses"]}
    assert used["SMEM bytes"] == 231424


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("mha_prefil_v2",), 2, "did you mean 'mha_prefill_v2'?"),
        (("absent.py",), 5, "absent.py does not exist"),
        (("mha_prefill_v2",), 2, "needs num_heads"),
        (("mha_prefill_v2", *SMALL, "--knob", "k_slot=2"), 2, "did you mean 'k_slots'?"),
        (("mha_prefill_v2", *SMALL, "--html", "x.html"), 2, "--html is for what is built"),
        (("mha_prefill_v2", *SMALL, "--kernel", "x"), 2, "--kernel is for what is built"),
        ((".", "--set", "a=b"), 2, "--set is for schedules"),
    ],
)
def test_wrong_usage(mlagen, arguments, code, said):
    done = mlagen("inspect", *arguments)
    assert done.code == code and done.out == ""
    assert said in done.err and done.err.startswith("error: ")
