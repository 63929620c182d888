"""How mutants of PTX are made: each one defect, of texts that still read; and what becomes of them
on a small kernel whose right answer is known."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlagen.audit.ptx import Given
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Settings, emulate
from mlagen.errors import ConfigError, FindingsError
from mlagen.family import MutantCall
from mlagen.mutation.ptx import ORDER
from mlagen.mutation.ptx.auditing import AuditJudge, MutantAudit
from mlagen.mutation.ptx.judging import PtxJudge
from mlagen.mutation.ptx.makers import CLASSES, make_mutants
from mlagen.mutation.ptx.mutant import PtxMutant, TextEdit, applied
from mlagen.mutation.ptx.mutated_kernel import MutatedKernel, split_operands
from mlagen.mutation.ptx.runs import Outputs, Runs
from mlagen.mutation.ptx.subject import PtxSubject
from mlagen.ptx import read_ptx

# A producer warp copies a row into shared memory, a consumer adds one to each number of it.
RING = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry ring(.param .u64 source, .param .u64 result)
.reqntid 64, 1, 1
{
    .reg .pred %p, %ready;
    .reg .b32 %t, %lane, %smem, %v, %at, %i, %parity;
    .reg .b64 %from, %to, %wide;
    .shared .align 128 .b8 row[128];
    .shared .align 8 .b8 full[8], empty[8];
    mov.u32 %t, %tid.x;
    and.b32 %lane, %t, 31;
    mov.u32 %smem, row;
    ld.param.u64 %from, [source];
    ld.param.u64 %to, [result];
    mov.u32 %parity, 0;
    mov.u32 %i, 0;
    setp.ne.u32 %p, %t, 0;
    @%p bra READY;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [empty], 32;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    setp.lt.u32 %p, %t, 32;
    @%p bra CONSUMER;
    setp.ne.u32 %p, %t, 32;
    @%p bra END;
PRODUCER:
    {
    .reg .b32 %other;
    xor.b32 %other, %parity, 1;
    FREE: mbarrier.try_wait.parity.shared::cta.b64 %ready, [empty], %other;
    @!%ready bra FREE;
    }
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%smem], [%from], 128, [full];
    add.u64 %from, %from, 128;
    xor.b32 %parity, %parity, 1;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 4;
    @%p bra PRODUCER;
    bra END;
CONSUMER:
    shl.b32 %at, %lane, 2;
    add.u32 %at, %at, %smem;
    mul.wide.u32 %wide, %lane, 4;
    add.u64 %to, %to, %wide;
TILE:
    FULL: mbarrier.try_wait.parity.shared::cta.b64 %ready, [full], %parity;
    @!%ready bra FULL;
    ld.shared.u32 %v, [%at];
    add.u32 %v, %v, 1;
    st.global.u32 [%to], %v;
    mbarrier.arrive.shared::cta.b64 _, [empty];
    add.u64 %to, %to, 128;
    xor.b32 %parity, %parity, 1;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 4;
    @%p bra TILE;
END:
    ret;
}
"""
KERNEL = MutatedKernel(RING, read_ptx(RING).entries[0])
MUTANTS = make_mutants(KERNEL, CLASSES)


class RingRuns(Runs):
    """Four rows, whose right result is known."""

    problem, judged = "4 rows of 32 numbers", True
    calls = (MutantCall("four rows"),)

    def run(
        self, call: MutantCall, text: str, mode: Any, seed: int, limit: int | None
    ) -> tuple[Outputs, EmulationResult]:
        source = np.arange(128, dtype=np.uint32)
        result = np.zeros(128, np.uint32)
        arguments = [Argument(0, Buffer("source", source, "read")),
                     Argument(8, Buffer("result", result))]  # fmt: skip
        launch = Launch((1, 1, 1), (64, 1, 1), arguments)
        settings = Settings(mode=mode, seed=seed, threads=1, max_instructions=limit)
        return {"result": result}, emulate(text, launch, settings)

    def wrong(self, call: MutantCall, outputs: Outputs) -> str:
        good = (outputs["result"] == np.arange(1, 129)).all()
        return "" if good else "exact oracle"


@pytest.fixture(scope="module")
def judge() -> PtxJudge:
    return PtxJudge(RING, RingRuns(), AuditJudge(RING, "ring", Given()))


def of(kind: str, operator: str, line: str) -> PtxMutant:
    """The one mutant so described; `line` is a part of the instruction."""
    (found,) = [m for m in MUTANTS if (m.kind, m.operator) == (kind, operator) and line in m.before]
    return found


def test_every_class_that_the_kernel_has_is_made() -> None:
    made = Counter(m.kind for m in MUTANTS)
    assert set(made) == {"waits", "arrivals", "fences", "barriers", "phases", "copies", "swizzle",
                         "values"}  # fmt: skip
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert [m.kind for m in MUTANTS] == sorted((m.kind for m in MUTANTS), key=CLASSES.index)
    assert not {m.kind for m in make_mutants(KERNEL, ORDER)} - set(ORDER)


@pytest.mark.parametrize("mutant", MUTANTS[::7], ids=lambda m: m.name[:60])
def test_a_mutant_reads_and_keeps_its_lines(mutant: PtxMutant) -> None:
    text = mutant.apply(RING)
    assert text != RING and text.count("\n") == RING.count("\n")
    before, after = (read_ptx(t).entries[0].instructions for t in (RING, text))
    kept = {i.line: i.text for i in after}
    changed = [i for i in before if kept.get(i.line) != i.text]
    assert {i.line for i in changed} <= {mutant.line - 1, mutant.line}, mutant


@pytest.mark.parametrize("predicate", ["P1", "%ready"])
@pytest.mark.parametrize("guard", ["", "@%p "])
def test_a_wait_is_removed_whatever_its_predicate_is_called(predicate: str, guard: str) -> None:
    wait = "mbarrier.try_wait.parity.shared::cta.b64 %ready, [full], %parity;"
    named = wait.replace("%ready", predicate)
    text = RING.replace(f"FULL: {wait}", f"FULL: {{ .reg .pred P1; {guard}{named} }}")
    assert text != RING
    made = make_mutants(MutatedKernel(text, read_ptx(text).entries[0]), ["waits"])
    (one,) = [m for m in made if m.operator == "wait removed" and "[full]" in m.before]
    assert one.after == f"setp.eq.u32 {predicate}, 0, 0;"
    assert read_ptx(one.apply(text)).entries


def test_a_fence_of_init_beside_a_proxy_fence_is_told_from_the_text() -> None:
    """Where other blocks wait on the mbarriers, or nothing follows, it is not."""
    fence = "fence.mbarrier_init.release.cluster;"
    beside = RING.replace(fence, f"{fence} fence.proxy.async;")
    elsewhere = beside.replace("END:", "END: barrier.cluster.arrive; barrier.cluster.wait;")
    for text, told in ((RING, False), (beside, True), (elsewhere, False)):
        made = make_mutants(MutatedKernel(text, read_ptx(text).entries[0]), ["fences"])
        (one,) = [m for m in made if m.operator == "fence.mbarrier_init removed"]
        assert bool(one.excuse) is told
    made = make_mutants(MutatedKernel(beside, read_ptx(beside).entries[0]), ["fences"])
    both = PtxJudge(beside, RingRuns(), AuditJudge(beside, "ring", Given()))
    verdicts = [both.judge(m) for m in made if m.operator == "fence.mbarrier_init removed"]
    assert [(v.outcome, v.by) for v in verdicts] == [("equivalent", "text")]


def test_comparisons_swap_what_they_compare() -> None:
    line = "setp.lt.and.u32 %p, %i, %t, %p;"
    text = RING.replace("READY:\n", f"{line}\nREADY:\n")
    made = make_mutants(MutatedKernel(text, read_ptx(text).entries[0]), ["values"])
    (one,) = [m for m in made if m.before == line and m.operator == "operands swapped"]
    assert one.after == "setp.lt.and.u32 %p, %t, %i, %p;"


def removed_warp_barriers(text: str) -> list[PtxMutant]:
    made = make_mutants(MutatedKernel(text, read_ptx(text).entries[0]), ["barriers"])
    return [m for m in made if m.operator == "bar.warp.sync removed"]


def test_a_barrier_of_a_warp_whose_lanes_exchange_nothing_orders_nothing() -> None:
    text = RING.replace("    ld.shared.u32 %v", "    bar.warp.sync -1; ld.shared.u32 %v")
    (one,) = removed_warp_barriers(text)
    alone = PtxJudge(text, RingRuns(), None).judge(one)
    assert (alone.outcome, alone.by) == ("equivalent", "runs")
    both = PtxJudge(text, RingRuns(), AuditJudge(text, "ring", Given())).judge(one)
    assert (both.outcome, both.by) == ("equivalent", "audit and runs")


# Each lane reads its neighbour's number and gives it back by way of shared memory. The next tile's
# stores come after the mbarriers of the ring.
EXCHANGED = RING.replace(
    "    ld.shared.u32 %v, [%at];",
    """    .shared .align 128 .b8 swap[128];
    .reg .b32 %next, %there;
    xor.b32 %next, %at, 4;
    ld.shared.u32 %v, [%next];
    mov.u32 %there, swap;
    sub.u32 %there, %there, %smem;
    add.u32 %next, %next, %there;
    add.u32 %there, %at, %there;
    st.shared.u32 [%next], %v;
    bar.warp.sync -1;
    ld.shared.u32 %v, [%there];""",
)


def test_the_emulator_alone_finds_that_lanes_of_a_warp_exchange_without_a_barrier() -> None:
    (one,) = removed_warp_barriers(EXCHANGED)
    verdict = PtxJudge(EXCHANGED, RingRuns(), None).judge(one)
    assert (verdict.outcome, verdict.by) == ("killed", "race-raw"), verdict


def test_operands_are_split_at_commas_outside_of_brackets() -> None:
    source = "@!%p wgmma.mma_async.x {%a, %b}, %d, [%m, {%x, %y}], 1 ;"
    assert [source[a:b] for a, b in split_operands(source)] == [
        "{%a, %b}", "%d", "[%m, {%x, %y}]", "1"
    ]  # fmt: skip
    assert split_operands("wgmma.fence.sync.aligned;") == []


def test_edits_fill_up_lines() -> None:
    text = "a\nb\nc\nd"
    assert applied(text, [TextEdit(2, 5, "x"), TextEdit(0, 0, "y ")]) == "y a\nx\n\nd"


KILLED = [
    # class, change, instruction, what the emulator says of it
    ("waits", "wait removed", "[full]", "race-raw"),
    ("waits", "wait removed", "[empty]", "mbarrier-misuse"),
    ("arrivals", "moved before the last access", "[empty]", "race-war"),
    ("arrivals", "mbarrier.arrive removed", "mbarrier.arrive.shared", "deadlock"),
    ("arrivals", "count +1", "[empty]", "deadlock"),
    ("arrivals", "bytes +16", "expect_tx", "deadlock"),
    ("phases", "the other parity", "[full]", "race"),
    ("barriers", "bar removed", "bar.sync", "race-waw"),
    ("copies", "16 bytes further, from or with", "cp.async.bulk", "global-bounds"),
    ("copies", "bulk copy to shared memory removed", "cp.async.bulk", "deadlock"),
    ("values", "constant", "add.u32 %v, %v, 1", "exact oracle"),
    ("values", "dropped", "add.u32 %v", "exact oracle"),
]


def test_the_kernel_itself_is_clean(judge: PtxJudge) -> None:
    assert len(judge.reached) == len(KERNEL.entry.instructions)


def test_what_the_letter_alone_forbids_is_no_mutant_that_was_found(judge: PtxJudge) -> None:
    """The barrier of the block orders the initialisation before the copy, on hardware."""
    verdict = judge.judge(of("fences", "fence.mbarrier_init removed", "fence"))
    assert (verdict.outcome, verdict.by) == ("equivalent", "letter")
    assert "mbarrier-visible" in verdict.why


def test_a_kernel_that_is_not_clean_judges_nothing() -> None:
    """What it does itself is known where that is asked for: a mutant's findings are new ones."""
    text = RING.replace(
        "mov.u32 %i, 0;", "mov.u32 %i, 0; st.shared.u32 [row], %t; xor.b32 %v, %t, %t;"
    )
    with pytest.raises(FindingsError, match="the unmutated kernel has errors"):
        _ = PtxJudge(text, RingRuns(), None).reached
    judge = PtxJudge(text, RingRuns(), None, clean=False)
    mutants = make_mutants(MutatedKernel(text, read_ptx(text).entries[0]), ["waits", "values"])
    removed = next(m for m in mutants if m.operator == "wait removed" and "[full]" in m.before)
    assert judge.judge(removed).by.startswith("race")
    swapped = next(m for m in mutants if m.operator == "operands swapped" and "%t, 32" in m.before)
    assert judge.judge(swapped).outcome == "killed"
    unsigned = next(m for m in mutants if m.operator == "dropped" and "xor.b32 %v" in m.before)
    assert judge.judge(unsigned).outcome == "equivalent"


def test_an_unknown_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown judge"):
        PtxSubject(KERNEL, RingRuns(), Given(), ("nobody",), clean=True)


@pytest.mark.parametrize(("kind", "operator", "line", "said"), KILLED, ids=str)
def test_a_defect_is_found(judge: PtxJudge, kind: str, operator: str, line: str, said: str) -> None:
    verdict = judge.judge(of(kind, operator, line))
    assert verdict.outcome == "killed" and verdict.emulator is not None
    assert verdict.by.startswith(said), verdict
    if kind in ("waits", "arrivals", "phases", "barriers"):
        assert verdict.by_finding and verdict.audit


def test_the_emulator_alone_and_the_audit_alone(judge: PtxJudge) -> None:
    removed = of("waits", "wait removed", "[full]")
    alone = PtxJudge(RING, RingRuns(), None).judge(removed)
    assert (alone.outcome, alone.audit) == ("killed", None) and alone.emulator
    audited = PtxJudge(RING, RingRuns(), AuditJudge(RING, "ring", Given()), emulate=False)
    verdict = audited.judge(removed)
    assert (verdict.outcome, verdict.emulator, verdict.by) == ("killed", None, "deadlock")
    assert audited.judge(of("values", "dropped", "add.u32 %v")).outcome == "missed"


def test_a_text_s_own_reason_is_enough(judge: PtxJudge) -> None:
    verdict = judge.judge(of("barriers", "named barrier 1", "bar.sync"))
    assert (verdict.outcome, verdict.by) == ("equivalent", "text")
    assert "all threads of the block meet" in verdict.why


def test_an_equivalent_one_has_both_reasons(judge: PtxJudge) -> None:
    verdict = judge.judge(replace(of("barriers", "named barrier 1", "bar.sync"), excuse=""))
    assert (verdict.outcome, verdict.by) == ("equivalent", "audit and runs")
    assert "on all" in verdict.why and "in mode latest" in verdict.why


def test_what_has_no_reason_is_missed(judge: PtxJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are silent, and the audit cannot tell why: nobody may call that equivalent."""
    monkeypatch.setattr(AuditJudge, "judge", lambda *_: MutantAudit("", ""))
    verdict = judge.judge(replace(of("barriers", "named barrier 1", "bar.sync"), excuse=""))
    assert (verdict.outcome, verdict.by) == ("missed", "no reason")


def test_a_mutant_that_does_not_end_is_killed(judge: PtxJudge) -> None:
    steps = [m for m in MUTANTS if m.operator == "dropped" and "add.u32 %i" in m.before]
    for mutant in steps:  # of the producer, of the consumer
        assert judge.judge(mutant).by in ("deadlock", "global-bounds")
    endless = "mov.u32 %t, %tid.x; AGAIN: bra AGAIN;"
    edits = (TextEdit(*KERNEL.entry.instructions[0].span, endless),)
    assert judge.judge(replace(steps[0], edits=edits)).by == "no end"


def test_a_text_that_is_refused_is_killed(judge: PtxJudge) -> None:
    first = MUTANTS[0]
    broken = replace(first, edits=(TextEdit(*KERNEL.entry.instructions[0].span, "mov.u32 %t;"),))
    verdict = judge.judge(broken)
    assert (verdict.outcome, verdict.by) == ("killed", "reader")


def test_other_bits_within_the_bounds_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lenient(RingRuns):
        judged = True

        def wrong(self, call: MutantCall, outputs: Outputs) -> str:
            return ""

    verdict = PtxJudge(RING, Lenient(), None).judge(of("values", "dropped", "add.u32 %v"))
    assert (verdict.outcome, verdict.by) == ("missed", "within bounds")


LAUNCH = """grid = [1, 1, 1]
block = [64, 1, 1]
[buffers]
source = { dtype = "u32", shape = [128], fill = 3 }
result = { dtype = "u32", shape = [128], output = "result.npy" }
[[arguments]]
name = "source"
buffer = "source"
[[arguments]]
name = "result"
buffer = "result"
"""


def test_the_command_judges_a_file_and_a_launch(mlagen: Any, tmp_path: Any) -> None:
    (tmp_path / "ring.ptx").write_text(RING)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    out = tmp_path / "out"
    done = mlagen(
        "mutate", tmp_path / "ring.ptx", "--launch", tmp_path / "launch.toml", "--processes", 1,
        "--sample", 8, "--class", "waits", "--class", "arrivals", "-o", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "by emulator  by audit" in done.out
    report = json.loads((out / "mutate.json").read_text())
    assert (report["schema"], report["judged"], report["missed"]) == ("mlagen.mutate/1", 8, 0)
    assert all({"emulator", "audit"} <= set(verdict) for verdict in report["verdicts"])
    assert not (tmp_path / "result.npy").exists()


def test_a_mutant_runs_on_each_launch_that_reaches_it(mlagen: Any, tmp_path: Any) -> None:
    """A branch that one launch takes and the other does not."""
    text = RING.replace(".param .u64 result)", ".param .u64 result, .param .u32 twice)")
    text = text.replace(
        "    st.global.u32 [%to], %v;",
        "    ld.param.u32 %other, [twice]; setp.eq.u32 %p, %other, 0; @%p bra ONCE;\n"
        "    add.u32 %v, %v, 5;\nONCE: st.global.u32 [%to], %v;",
    ).replace("%i, %parity;", "%i, %parity, %other;", 1)
    (tmp_path / "ring.ptx").write_text(text)
    for name, twice in (("no", 0), ("yes", 1)):
        told = f'[[arguments]]\nname = "twice"\ntype = "u32"\nvalue = {twice}\n'
        (tmp_path / f"{name}.toml").write_text(LAUNCH + told)
    made = []
    for names in (("no",), ("no", "yes")):
        launches = [word for name in names for word in ("--launch", tmp_path / f"{name}.toml")]
        done = mlagen("mutate", tmp_path / "ring.ptx", *launches, "--processes", 1, "--class",
                      "values", "--judge", "emulator", "--json")  # fmt: skip
        report = json.loads(done.out)
        own = [v for v in report["verdicts"] if "%v, %v, 5" in v["mutant"]["before"]]
        made.append([(v["outcome"], v["shape"].rpartition("/")[2]) for v in own])
    assert made[0] == [] and made[1] and set(made[1]) == {("killed", "yes.toml")}
    (tmp_path / "other.toml").write_text('kernel = "turned"\n' + LAUNCH)
    done = mlagen("mutate", tmp_path / "ring.ptx", "--launch", tmp_path / "no.toml", "--launch",
                  tmp_path / "other.toml")  # fmt: skip
    assert done.code == 2 and "name several kernels: none, turned" in done.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "needs a launch file"),
        (["--launch", "no.toml"], "cannot be read"),
        (["--launch", "launch.toml", "--class", "nops"], "unknown class of mutants 'nops'"),
    ],
)
def test_the_command_says_what_is_missing(
    mlagen: Any, tmp_path: Any, more: list[str], said: str
) -> None:
    (tmp_path / "ring.ptx").write_text(RING)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    more = [str(tmp_path / word) if word.endswith("toml") else word for word in more]
    done = mlagen("mutate", tmp_path / "ring.ptx", *more)
    assert done.code in (2, 5) and said in done.err
