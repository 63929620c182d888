"""Kernels with tcgen05: the audit says what it looked at and what not, and judges no mutant by its
silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptx_snippets import INIT, kernel, wait

from mlagen.audit.ptx import audit_ptx, mutate
from mlagen.cli.main import run

ARRIVE = "    @%one mbarrier.arrive.shared::cta.b64 _, [%bar];\n"
ALLOC = "    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+16], 64;\n"
FREE = "    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64;\n"
LOAD = "    tcgen05.ld.sync.aligned.32x32b.x1.b32 %r2, [%r1+32];\n"
SUM = "    tcgen05.mma.cta_group::1.kind::f16 [%r1], %da, %db, %r3, 1;\n"
TEXT = kernel(
    "    setmaxnreg.dec.sync.aligned.u32 232;\n" + INIT + ALLOC
    + "    mov.b32 %r3, 0x8400490;\n" + SUM + LOAD + ARRIVE + wait(1) + FREE,
    target="sm_100a",
)  # fmt: skip
BY_TEXT = ("the form of instructions", "the size of shared memory", "numbers of setmaxnreg")
TENSOR = (
    ".cta_group of 4 tcgen05 instructions",
    "columns of 2 tcgen05.alloc and .dealloc",
    "lanes and columns of 1 tcgen05.ld and .st from their bases on",
    "instruction descriptors of 1 tcgen05.mma",
)
REASON = "only its text was read, as it has tcgen05, whose commits are not modelled"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.ptx"
    path.write_text(TEXT)
    return path


def test_it_says_what_it_looked_at_and_what_not() -> None:
    (entry,) = audit_ptx(TEXT).entries
    assert not entry.findings
    assert entry.checked == BY_TEXT + TENSOR
    assert entry.unfollowed == REASON
    (gap,) = (gap for gap in entry.unchecked if "no path" in gap)
    assert gap == (
        f"no path of this kernel was followed: {REASON}; not looked at: mbarriers, named barriers, "
        "the order of accesses to shared and tensor memory, fences, copies, divergence"
    )


def test_what_the_text_does_not_tell_is_unchecked() -> None:
    text = TEXT.replace("mov.b32 %r3, 0x8400490;", "add.u32 %r3, %t, 1;").replace("1+32]", "1-32]")
    (entry,) = audit_ptx(text).entries
    assert entry.checked == BY_TEXT + TENSOR[:2]
    sum_line, load_line = (
        next(n for n, line in enumerate(text.splitlines(), 1) if what in line)
        for what in ("tcgen05.mma", "tcgen05.ld")
    )
    told = "the text does not tell them"
    assert {gap for gap in entry.unchecked if told in gap} == {
        f"instruction descriptors of 1 of 1 tcgen05.mma: {told} (line {sum_line})",
        "lanes and columns of 1 of 1 tcgen05.ld and .st from their bases on: "
        f"{told} (line {load_line})",
    }


def test_a_kernel_whose_paths_are_followed_says_nothing_of_it() -> None:
    (entry,) = audit_ptx(kernel(INIT + ARRIVE + wait(1))).entries
    assert not entry.unfollowed and not entry.checked


def test_silence_is_no_verdict() -> None:
    """What the text alone tells is reported, or equivalent; nothing is missed."""
    report = mutate(TEXT)
    assert not report.missed
    outcomes = {(m.change, m.outcome) for m in report.mutants}
    assert ("registers +8", "equivalent") not in outcomes
    assert ("registers -8", "equivalent") in outcomes
    unjudged = [m for m in report.mutants if m.outcome == "not judged"]
    assert {"mbarrier.arrive removed"} <= {m.change for m in unjudged}
    assert all(m.unjudged == REASON for m in unjudged)
    assert report.summary().endswith(f" 0 missed, {len(unjudged)} not judged")
    assert report.why_unjudged() == (f"k: no path of it is followed: {REASON}",)
    # 264 registers are none that there are: the text alone tells it.
    more = mutate(TEXT.replace("u32 232;", "u32 256;"))
    assert ("registers +8", ("setmaxnreg-value",)) in {(m.change, m.rules) for m in more.mutants}


def test_the_same_mutant_is_missed_where_paths_are_followed() -> None:
    text = kernel(
        "    ld.volatile.global.u32 %r5, [%g];\n    add.u32 %r5, %r5, %base;\n"
        "    st.shared.b32 [%r5], %t;\n    bar.sync 0;\n    ld.shared.b32 %r6, [%r5];\n"
    )
    assert [m.change for m in mutate(text).missed] == ["bar removed"]
    assert not mutate(text).why_unjudged()


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(file)]) == 6
    said = " ".join(capsys.readouterr().out.split())
    assert f"checked: k: by the text alone, {', '.join(BY_TEXT + TENSOR)}" in said
    assert "128 threads, no path followed" in said
    assert f"unchecked: k: no path of this kernel was followed: {REASON}; not looked at" in said
    assert run(["audit", str(file), "--mutate"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0 missed" in said and "MISSED" not in said
    assert f"not judged: k: no path of it is followed: {REASON}" in said
    assert "`mlagen mutate` judges mutants in the emulator." in said
    assert run(["audit", str(file), "--mutate", "--json"]) == 0
    mutants = json.loads(capsys.readouterr().out)["mutants"]
    assert "not judged" in {mutant["outcome"] for mutant in mutants}
