"""The proof of what pipelines compute: schedules of Hopper with one edit each are refused, and so
are printed lines that go another way than the pipeline proof believes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from decode_parts import decode_operations

from mlagen.codegen.dataflow import Effect
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.dsl import (
    Access,
    Operation,
    RingTile,
    Signature,
    Value,
    bind,
    copy,
    prologue,
    record,
    schedule,
    tiles,
)
from mlagen.errors import CapacityError, MlagenError, ScheduleError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.operations import mla_decode
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.nvidia.combine import HOPPER, MlaDecodeMerge
from mlagen.schedules.mla_decode_sm90 import seesaw_knobs
from mlagen.targets.nvidia.codegen.build import prove_pipeline
from mlagen.targets.nvidia.codegen.completeness import check_words
from mlagen.targets.nvidia.codegen.derive import check_pipelines, derive
from mlagen.targets.nvidia.codegen.effects import UnknownInstruction, effect_of
from mlagen.targets.nvidia.codegen.flow import check_flow
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.ptx_text import print_streams
from mlagen.targets.nvidia.dsl import release

ROOT = Path(__file__).resolve().parents[2]
DECODE, MERGE = (
    ROOT / "schedules/tables/seesaw.py",
    ROOT / "schedules/mla_decode_merge_nvidia.py",
)
GEMM = ROOT / "examples/gemm_bf16.py"


def problem_of(path, form):
    if path is MERGE:
        return MlaDecodeMergeConfig(num_heads=64), {}
    if path is GEMM:
        return load(str(path), "sm_90a").problem_type(), {}
    if form == "e4m3":
        return MlaDecodeConfig(64, cache_dtype="fp8_e4m3"), {}
    return MlaDecodeConfig(64), {"boxes": 4, **({"persistent": 1} if form else {})}


def printed(made, templates):
    """The streams with all derived waits, as they are printed, and the runs of their proof."""
    loops = [derive(made, stream) for stream in made.streams]
    proof = prove_pipelines(made, loops, quick=True)
    if proof.violations:
        return loops, None, proof
    return loops, print_streams(made, templates, loops), proof


def complaint(tmp_path, path, edits, form=""):
    """What is said of the schedule with each (old, new) of `edits` put in, in their order."""
    text = path.read_text()
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    (tmp_path / path.name).write_text(text)
    if path is GEMM:
        for name in ("gemm", "templates"):
            (tmp_path / name).symlink_to(path.parent / name)
    problem, knobs = problem_of(path, form)
    function = load(f"{tmp_path / path.name}", "sm_90a", tables=path is DECODE)
    if path is DECODE:
        table = function.function
        function = replace(function, function=lambda k, s: table(k, s, seesaw_knobs, mla_decode))
    try:
        made = schedule_of(function, problem, knobs)
        words = check_words(made)
        if words:
            return "\n".join(words)
        loops, emitter, proof = printed(made, templates_for("sm_90a", function.templates))
    except MlagenError as error:
        return str(error)
    if emitter is None:
        return "\n".join(proof.violations)
    return "\n".join(check_flow(made, loops, emitter, proof.ways))


def row(text):
    return f"        d.{text}\n"


def swapped(first, second):
    """Two neighbouring rows of a tile loop, the other way round."""
    return [(row(first) + row(second), row(second) + row(first))]


EXPONENT = "exponent(i)"
QK = "qk(i + 2, d.right, first=False)"
EDITS = [
    # Dropped, doubled, for the wrong tile of a pass: the row itself tells.
    (DECODE, "", [(row("row_maximum(i)"), "")],
     r"error\[not-done\] .*'row_maximum' of role left is missing in the tile loop for tile i of a "
     r"pass.* First at N = 1"),
    (DECODE, "", [(row("rescale(i + 1)"), "")],
     r"not-done.*'rescale' of role left .* for tile i\+1 .*First at N = 2"),
    (DECODE, "", [(row("zero_tail(i, left)"), "")], r"not-done.*'zero_tail' of role left"),
    (DECODE, "", [(row(QK), 2 * row(QK))],
     r"done-twice.*qk\(i\+2\) \[cache 4\] of role left is there already, at :\d+ as qk\(i\+2\)"),
    (DECODE, "", [(row("take_right_maximum(i + 1)"), row("take_right_maximum(i)"))],
     r"not-of-kernel.*take_right_maximum\(i\) of role left stands .* for tile i\+1 of a pass"),
    (DECODE, "", [("d.refill(d.left, i + 3)", "d.refill(d.left, i + 2)")],
     r"done-twice.*copy\(cache 0, i\+2\)"),
    (DECODE, "", [("d.max_left, fresh=True", "d.max_left, fresh=False")],
     r"not-of-kernel.*running_maximum\(i\) \[M left\] .* does running_maximum M left, fresh"),
    # With the other P, other columns, of the other role.
    (DECODE, "", [("d.pv(i + 1, d.left, d.p_right)", "d.pv(i + 1, d.left)")],
     r"not-of-kernel.*pv\(i\+1\) \[P, left columns\]"),
    (DECODE, "", [("d.pv(i, d.left)", "d.pv(i, d.right)")],
     r"not-of-kernel.*pv\(i\) \[P, right columns\]"),
    (DECODE, "", [("d.zero_tail(i, left)", "d.zero_tail(i, right)")],
     r"zero_tail\(i\) is for role right, not for left"),
    # A pass early or late, or past what it takes from or gives to: what is read tells.
    (DECODE, "", [(row("row_maximum(i)"), row("row_maximum(i + 2)"))],
     r"data-flow.*row_maximum\(i\+2\) of role left for tile 0 takes %s0 .* of nobody.* that "
     r"of qk\(i\+2\) of role left \(:\d+\) for tile 0"),
    (DECODE, "", swapped("running_maximum(i, d.max_left, fresh=True)", EXPONENT),
     r"data-flow.*exponent\(i\) of role left for tile 0 takes %cm0 .* of clear .*\(:\d+\); it "
     r"must be that of running_maximum\(i\) of role left \(:\d+\) for tile 0. First at N = 1"),
    (DECODE, "", swapped("rescale(i)", "pv(i, d.left)"),
     r"data-flow.*pv\(i\) of role left for tile 0 takes %o0 .* must be that of rescale\(i\)"),
    (DECODE, "", swapped("take_right_maximum(i + 1)", "store_p(i, d.p_left)"),
     r"data-flow.*store_p\(i\) .* takes %s0 .* of exponent\(i\) .* must be that of "
     r"take_right_maximum\(i\+1\) of role left \(:\d+\) for tile 1. First at N = 2"),
    (DECODE, "",
     swapped("take_left_maximum(i)", "running_maximum(i + 1, d.max_right, fresh=False)"),
     r"data-flow.*running_maximum\(i\+1\) of role right for tile 1 takes .* must be that of "
     r"take_left_maximum\(i\)"),
    (DECODE, "", [(row("zero_tail(i, left)"), ""), (row("pv(i, d.left)"),
                                                row("pv(i, d.left)") + row("zero_tail(i, left)"))],
     r"data-flow.*pv\(i\) .* takes 'cache 0\[0\]' of copy\(cache 0, i\+2\) .* must be that of "
     "zero_tail"),
    (DECODE, "", [("d.zero_tail(i + 1, right)", "d.zero_tail(i - 1, right)")], "before zero_tail"),
    (DECODE, "", [("        d.queries.hold(i + 3)\n", ""), (
        row("qk(i + 3, d.left, first=False)"),
        row("qk(i + 3, d.left, first=False)") + row("queries.hold(i + 3)"))],
     r"data-flow.*qk\(i\+3\) of role right .* takes %qr0 .* must be that of hold_queries"),
    (DECODE, "", [("            d.output.finish(role)\n", ""),
                  ("            d.output.store_sum(role)\n",
                   "            if role is left:\n                d.output.finish(role)\n"
                   "            d.output.store_sum(role)\n"
                   "            if role is right:\n                d.output.finish(role)\n")],
     r"data-flow.*finish of role left takes %l0 .* must be that of store_sum .*First at N = 0"),
    # Items of a persistent block.
    (DECODE, "persistent", [("            d.begin(role)\n", "")],
     r"not-done.*'begin' .* each_item"),
    (DECODE, "persistent", [(row("next_keys(i + 2, right)"), ""), (
        row("next_tiles(i + 2, right)"),
        row("next_tiles(i + 2, right)") + row("next_keys(i + 2, right)"))],
     r"data-flow.*next_tiles\(i\+2\) of role right takes .* must be that of next_keys"),
    # The feeder of an e4m3 cache.
    (DECODE, "e4m3", [("            rows.convert(d.right, i)\n", "")],
     r"not-done.*'read_e4m3 raw 4' of role feeder"),
    (DECODE, "e4m3", [("rows.convert(d.right, i + 1)", "rows.convert(d.right, i)")],
     r"done-twice.*copy\(cache 4, i\) of role feeder is there already"),
    # The merge, and a kernel that is not attention.
    (MERGE, "", [("        m.add(i)\n", ""), ("  # for the next pass", "\n        m.add(i)  #")],
     r"data-flow.*add\(i\) of role merge for tile 0 takes %taken0 .* of load\(i\) .* must be that "
     r"of load of role merge \(:\d+\). First at N = 1"),
    (GEMM, "", [("gemm.mma(i)\n", "gemm.mma(i)\n        gemm.mma(i)\n")], r"done-twice.*mma\(i\)"),
    (GEMM, "", [("    with epilogue(math):\n        gemm.store()\n", "")], r"not-done.*'store'"),
    (GEMM, "", [("        copy(feed, i)\n", "        copy(feed, i)\n" * 2)],
     r"done-twice.*copy\(feed, i\)"),
    (GEMM, "", [("        release(feed, i - 1)\n", "")], r"not-done.*'release feed'"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "form", "edits", "message"), EDITS)
def test_an_edited_schedule_is_refused(tmp_path, path, form, edits, message):
    said = complaint(tmp_path, path, edits, form)
    assert re.search(message, said), said


@pytest.mark.parametrize(
    ("path", "edits"),
    [
        (DECODE, swapped("row_maximum(i + 1)", "take_left_maximum(i)")),
        (DECODE, [(row("late_arrive(i + 1, d.p_right)"), "")]),  # an arrival comes earlier
        (GEMM, [("gemm.mma(i)", "gemm.mma(i + 1)")]),
        (GEMM, [("copy(feed, i)", "copy(feed, i + 1)")]),
        (GEMM, [("feed, i - 1)", "feed, i - 2)")]),
    ],
)
def test_another_overlap_is_proved(tmp_path, path, edits):
    assert not complaint(tmp_path, path, edits)


# ---- what is printed ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forms():
    """Schedules with what is printed of them and the runs of their proof, by form."""
    found = {}
    for form in ("", "persistent"):
        problem, knobs = problem_of(DECODE, form)
        made = schedule_of(load("mla_decode_sm90", None), problem, knobs)
        found[form] = (made, *printed(made, templates_for("sm_90a")))
    function = load(str(GEMM), "sm_90a")
    made = schedule_of(function, problem_of(GEMM, "")[0], {})
    found["gemm"] = (made, *printed(made, templates_for("sm_90a", function.templates)))
    return found


@pytest.mark.parametrize(
    ("form", "role", "pattern", "new", "message"),
    [
        # The loop runs once too often, or once too little; a drain is skipped.
        ("", "left", r"setp.ge.s32 %done, %i, %last;(?=\n    @%done bra LEFT_DRAIN)",
         "setp.gt.s32 %done, %i, %last;", r"control-flow.*role left is followed by .*, N = 3"),
        ("gemm", "math", "add.u32 %i, %i, 1;", "add.u32 %i, %i, 2;",
         r"is followed by release\(feed, i-1\), where wait_full\(i\) must come, N = 3"),
        ("gemm", "math", "add.u32 %i, %i, 1;", "add.u32 %i, %i, 0;", r"control-flow.*, N = 2"),
        ("gemm", "producer", "bra PRODUCER_LOOP;", "bra EXIT;", r"followed by the end"),
        ("", "right", "bra RIGHT_END;", "bra RIGHT_LOOP;", "control-flow"),
        ("persistent", "left", "setp.ne.u32 %done, %tiles, 0;", "setp.eq.u32 %done, %tiles, 0;",
         "control-flow"),
        ("persistent", "left", "sub.u32 %items, %items, 1;", "sub.u32 %items, %items, 0;",
         "control-flow"),
        # The slot or the phase is not that of the tile.
        ("gemm", "math", r"add.u32 %math_1_slot, %math_1_slot, 1;",
         "add.u32 %math_1_slot, %math_1_slot, 2;", r"mma\(i\) .*slot 2; the tile's is 1, N = 2"),
        ("gemm", "math", r"xor.b32 %turned, %math_0_phase, 1;",
         "xor.b32 %turned, %math_0_phase, 0;",
         r"wait_full.*phase 0; the tile's is 1, N = 5"),
        ("", "left", r"xor.b32 %left_turn0, %left_turn0, 1;",
         "xor.b32 %left_turn0, %left_turn0, 0;",
         "wrong-slot.*phase"),
        ("persistent", "right", r"xor.b32 %right_own, %right_own, 1;",
         "xor.b32 %right_own, %right_own, 0;", "wrong-slot.*'query"),
        ("gemm", "producer", r"xor.b32 %turned, %producer_0_phase, 1;", "mov.b32 %turned, 0;",
         r"wait_empty.*phase 0; the tile's is 1, N = 13"),
        # A wait for matrix groups is not where the pipeline proof takes it to be.
        ("gemm", "math", "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;",
         "is followed by no wait for all groups but 1"),
        # Of the loop alone: it is another one in a prologue.
        ("gemm", "math", r"sub.u32 %wg, %warp, 4;", "sub.u32 %wg, %i, 4;", r"mma.*reads %i, which"),
        # An operation writes what the control flow counts in.
        ("gemm", "math", r"mov.u32 %origin1, %ctaid.x;", "mov.u32 %i, %ctaid.x;",
         "setup of role math writes %i, a register of mlagen's own"),
    ],
)  # fmt: skip
def test_printed_lines_that_go_another_way(forms, form, role, pattern, new, message):
    made, loops, emitter, proof = forms[form]
    kept = list(emitter.lines)
    mine = [x for x, line in enumerate(kept) if line.source and line.source.role == role]
    whole = "\n".join(kept[index].text for index in mine)
    hits = [mine[whole[: hit.start()].count("\n")] for hit in re.finditer(pattern, whole)]
    assert hits, pattern
    try:
        for index in hits:
            emitter.lines[index] = replace(kept[index], text=f"    {new}")
        said = "\n".join(check_flow(made, loops, emitter, proof.ways))
    finally:
        emitter.lines[:] = kept
    assert re.search(message, said), said
    assert not check_flow(made, loops, emitter, proof.ways[:3])


# ---- effects ------------------------------------------------------------------------------------

KNOWN = {"%a", "%b", "%c", "%d"}


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("add.u32 %a, %b, 1;", ("b", "a", "")),
        ("add.u32 %a, %a, %x;", ("a", "a", "")),
        ("mov.b32 %a, 0;\nadd.u32 %b, %a, 1;", ("", "ab", "")),
        ("@%p mov.b32 %a, %b;", ("b", "", "a")),
        ("mov.b32 %a, 0;\n@!%c ld.global.u32 %a, [%b];", ("bc", "a", "")),
        ("ld.shared.v2.f32 {%a, %b}, [%c + 8];", ("c", "ab", "")),
        ("st.shared.v2.f32 [%c + 8], {%a, %b};", ("abc", "", "")),
        ("setp.lt.and.u32 %a|%b, %c, 4, %d;", ("cd", "ab", "")),
        ("mov.b32 {%a, %x}, %b;  // %c", ("b", "a", "")),
        ("mbarrier.arrive.shared::cta.b64 _, [%a];", ("a", "", "")),
        ("mbarrier.try_wait.parity.shared::cta.b64 %a, [%b], %c;", ("bc", "a", "")),
        ("bar.sync %a, 128;", ("a", "", "")),
        # A branch over a write; over the read of what was written there; back.
        ("@%p bra OVER;\nmov.b32 %a, %b;\nOVER:\nadd.u32 %c, %a, 1;", ("ab", "c", "a")),
        ("@%p bra OVER;\nmov.b32 %a, %b;\nadd.u32 %c, %a, 1;\nOVER:", ("b", "", "ac")),
        ("AGAIN: add.u32 %a, %a, 1;\n@%p bra AGAIN;", ("a", "a", "")),
        # Accumulators are added to unless a predicate that never holds says otherwise.
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%a}, %b, %c, %p, 1, 1, 0, 0;",
         ("abc", "a", "")),
        ("setp.ne.u32 %p, 0, 0;\n"
         "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%a}, %b, %c, %p, 1, 1, 0, 0;",
         ("bc", "a", "")),
        ("setp.ne.u32 %p, 1, 0;\n"
         "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%a}, {%b}, %c, %p, 1, 1, 0;",
         ("abc", "a", "")),
    ],
)  # fmt: skip
def test_effects_of_ptx(text, effect):
    reads, writes, may = (frozenset(f"%{name}" for name in names) for names in effect)
    assert effect_of(text.split("\n"), KNOWN) == Effect(reads, writes, may)


def test_an_instruction_that_no_table_has_is_refused(tmp_path):
    with pytest.raises(UnknownInstruction, match="frobnicate"):
        effect_of(["frobnicate.u32 %a, %b;"], KNOWN)
    folder = tmp_path / "sm_90a" / "split_merge"
    folder.mkdir(parents=True)
    (folder / "add.ptx.j2").write_text("frobnicate.f32 {{ acc[0] }};\n")
    made = schedule_of(load("mla_decode_merge_sm90", None), MlaDecodeMergeConfig(64), {})
    with pytest.raises(MlagenError, match=r"add\(i\) of role merge has `frobnicate.f32 %acc0`"):
        prove_pipeline(made, templates_for("sm_90a", tmp_path))


# ---- roles --------------------------------------------------------------------------------------


def decode(groups=(1, 1), registers=(256, 256), step=2, names=("left", "right"), **more):
    @schedule(problem=MlaDecodeConfig, target="sm_90a")
    def other(k, s):
        left = s.role(names[0], warpgroups=groups[0], registers=registers[0])
        right = s.role(names[1], warpgroups=groups[1], registers=registers[1])
        d = decode_operations(k, s, left, right, **more)
        for role in (left, right):
            with prologue(role):
                d.setup(role)
            for i in tiles(role, step=step):
                d.row_maximum(i)

    return schedule_of(other, MlaDecodeConfig(64), {})


def test_roles_that_are_spelled_otherwise_are_refused():
    with pytest.raises(ScheduleError, match="role 'left' has 256 threads"):
        decode(groups=(2, 1), registers=(168, 168))
    with pytest.raises(ScheduleError, match="role 'left' is declared twice"):
        decode(names=("left", "left"))
    with pytest.raises(ScheduleError, match="boxes=0"):
        decode(boxes=0)
    with pytest.raises(ScheduleError, match="held=0"):
        decode(held=0)
    with pytest.raises(ScheduleError, match=r"role 'merge' has warps 0\.\.7"):

        @schedule(problem=MlaDecodeMergeConfig, target="sm_90a")
        def small(k, s):
            merge = s.role("merge", warpgroups=2, registers=64)
            MlaDecodeMerge(k, s, merge, HOPPER, slot_rows=64)

        schedule_of(small, MlaDecodeMergeConfig(64), {})
    assert "role left does 1 tiles a pass; the kernel does 2" in "".join(
        check_words(decode(step=1))
    )


def test_registers_that_a_block_does_not_have_are_refused(tmp_path):
    """setmaxnreg would wait for them for ever."""
    file = tmp_path / "greedy.py"
    file.write_text(MERGE.read_text().replace("registers=64", "registers=72"))
    with pytest.raises(CapacityError, match=r"roles take 36864 registers .* has 32768"):
        schedule_of(load(str(file), None), MlaDecodeMergeConfig(64), {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('single=fetch == "TMA"', "single=False", ""),  # by cp.async then
        ('("math", warpgroups=2, registers=232)', '("math", warpgroups=3, registers=144)',
         "m_tile=128, but 3 warpgroups with 64 rows each"),
        ("math, feed)", "math, feed)\n    s.role('more', warpgroups=1, registers=24)",
         "role 'more' does nothing"),
    ],
)  # fmt: skip
def test_roles_of_a_gemm(tmp_path, old, new, message):
    said = complaint(tmp_path, GEMM, [(old, new)])
    assert (message in said) if message else not said, said


def test_threads_and_arrivals_are_those_that_are_counted():
    def made(*, single=True, releases=4, producer_threads=0, block=256):
        @schedule(problem=MlaDecodeConfig, target="sm_90a")
        def toy(k, s):
            producer = s.role("producer", warpgroups=1, registers=40, single=single)
            math = s.role("math", warpgroups=1, registers=200)
            tile = s.smem.tile("T", "t", rows=64, row_bytes=128, slots=2)
            feed = s.smem.pipeline("feed", tile, producer="producer", consumer="math",
                                  releases=releases, producer_threads=producer_threads)  # fmt: skip
            s.signature = Signature((), (("n", 1),), (block, 1, 1))

            def nothing(at):
                return {}

            def mover(kind, tile):
                access = Access(kind, RingTile("feed", tile))
                return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, nothing, access=access)

            bind(feed, mover)
            for i in tiles(producer):
                copy(feed, i)
            for i in tiles(math):
                record(Operation("look", "x", i, nothing, uses=(Value("feed", i),)))
                release(feed, i)

        return schedule_of(toy, MlaDecodeConfig(64), {})

    check_pipelines(made())
    for wrong, message in (
        ({"single": False}, "128 threads of role 'producer' would announce"),
        ({"producer_threads": 64}, "is filled by 64 threads, role 'producer' has 1"),
        ({"releases": 1}, "is empty after 1 releases; math have 4 warps"),
        ({"block": 128}, "the roles have 256 threads, a block is launched with 128"),
    ):
        with pytest.raises(ScheduleError, match=message):
            check_pipelines(made(**wrong))
