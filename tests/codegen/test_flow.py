"""The proof of what is computed: each operation of each tile once, on the plain loop's values."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.codegen.dataflow import Done, Effect, differences
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.errors import ProofError, ScheduleError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.dsl import Schedule

MHA = MhaConfigV2(num_heads=1, num_kv_heads=1, depth=64)
MLA = MlaConfigV2(num_heads=1, num_kv_heads=1, dtype="fp8_e4m3")


def edited(folder: Path, name: str, *changes: tuple[str, str]) -> str:
    """A copy of a shipped schedule with lines replaced."""
    text = resources.files("mlagen.schedules").joinpath(f"{name}.py").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / f"{name.rpartition('/')[2]}.py"
    path.write_text(text)
    return f"{path}:{name}"


def refusal(folder: Path, name: str, problem: object, *changes: tuple[str, str]) -> str:
    with pytest.raises(ProofError) as caught:
        build(edited(folder, name, *changes), problem)
    return str(caught.value)


READ_K = "            read(K, i + 1)\n"
COPY_K = "            copy(K, i + k_slots - spare)\n"
RESCALE = "            attention.rescale(i)\n"

MHA_EDITS = {
    "a read done twice": (
        [(READ_K, READ_K + "            read(K, i + 2)\n")],
        "error[done-twice] mha_prefill_v2.py:91 read(K, i+2) is there already, at :90 as "
        "read(K, i+1): it is done once a tile",
    ),
    "a copy done twice": ([(COPY_K, COPY_K + COPY_K)], "error[done-twice]"),
    "a rescale of two tiles": (
        [(RESCALE, RESCALE + "            attention.rescale(i - 1)\n")],
        "error[done-twice]",
    ),
    "no rescale": (
        [(RESCALE, "")],
        "error[not-done] mha_prefill_v2.py:79 'rescale' is missing in the tile loop: the kernel "
        "does copy K, read K, ",
    ),
    "no mask": ([("            attention.mask(i)\n", "")], "error[not-done]"),
    "no store": ([("        attention.store()\n", "")], "error[not-done]"),
    "nothing for rows without a tile": (
        [("        attention.no_tiles()\n", "")],
        "error[not-done] mha_prefill_v2.py:94 'no_tiles' is missing in the epilogue: ",
    ),
    "a rescale of a later tile": (
        [(RESCALE, "            attention.rescale(i + 2)\n")],
        "error[data-flow]",
    ),
    "a mask of the tile before": (
        [("attention.mask(i)", "attention.mask(i - 1)")],
        "error[data-flow] mha_prefill_v2.py:86 cluster C, partial_softmax(i) of tile 0 uses "
        "v[S0] of qk(i) (:79) for tile 0; it must be that of mask(i-1) (:83) for tile 0. "
        "First at N = 1.",
    ),
    "a rescale ahead of the softmax": (
        [(RESCALE, ""), ('        with cluster("A"):\n', '        with cluster("A"):\n' + RESCALE)],
        "error[data-flow]",
    ),
    "a store for one role": (
        [("        attention.store()\n",
          '        with only(waves["upper"]):\n            attention.store()\n'),
         ("interleave, read, roles", "interleave, only, read, roles")],
        "error[not-done]",
    ),
    "what the epilogue does in the prologue": (
        [("        attention.no_tiles()\n", ""),
         ("        attention.setup()\n",
          "        attention.setup()\n        attention.no_tiles()\n")],
        "error[not-of-kernel]",
    ),
    "queries loaded ahead of what says where": (
        [("        attention.setup()\n        attention.load_queries()\n",
          "        attention.load_queries()\n        attention.setup()\n")],
        "error[data-flow]",
    ),
    "other waves": (
        [("lower=range(4), upper=range(4, 8)", "lower=range(2), upper=range(2, 4)")],
        "error[roles] mha_prefill_v2.py:34 the roles have 4 waves, the kernel is launched with 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MHA_EDITS)
def test_an_edit_that_computes_something_else_is_refused(what, tmp_path):
    changes, text = MHA_EDITS[what]
    assert text in refusal(tmp_path, "mha_prefill_v2", MHA, *changes).replace(
        f"{tmp_path.name}/", ""
    )


MLA_EDITS = {
    "K fetched by those who have the addresses of V": (
        [("fetch={\"lower\": K, \"upper\": V}", "fetch={\"lower\": V, \"upper\": K}")],
        "error[roles]",
    ),
    "a half of other waves": (
        [("lower=range(4), upper=range(4, 8)", "lower=range(2), upper=range(2, 8)")],
        "is written for waves 0..3, role lower has 0..1",
    ),
    "a product that one half leaves out": (
        [("interleave(attention.qk(i), copy(V, i + v_ahead, when=not two), pattern=qk_pattern)\n",
          "copy(V, i + v_ahead, when=not two)\n")],
        "'qk' is missing in the tile loop of role upper",
    ),
    "a softmax finished before it is begun": (
        [("            attention.partial_softmax(i)\n", ""),
         ("            attention.tail_softmax(i)\n",
          "            attention.tail_softmax(i)\n            attention.partial_softmax(i)\n")],
        "error[data-flow]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MLA_EDITS)
def test_roles_of_their_own_are_proved_too(what, tmp_path):
    changes, text = MLA_EDITS[what]
    edited(tmp_path, "tables/streamed_prefill", *changes)
    own = ("from mlagen.schedules.tables.streamed_prefill", "from streamed_prefill")
    assert text in refusal(tmp_path, "mla_prefill_v2", MLA, own)


def test_the_printed_control_flow_is_followed(monkeypatch):
    """A loop that counts from one more does a tile that is not there."""
    schedule = schedule_of(
        load("mla_prefill_reduce"), load("mla_prefill_reduce").problem_type(8), {}
    )
    assert isinstance(schedule, Schedule)
    right = generate(schedule, templates_for("gfx950"))
    assert not right.proof.violations
    from mlagen.targets.gfx950.codegen import code_layout

    prologue = code_layout.StreamBuilder._prologue

    def one_more(self):
        segment = prologue(self)
        low, high = self.edge.low, self.edge.high
        segment.head[:] = self.control.code(f"s_sub_u32 s[LEFT], s[N], {low + high - 1}")
        return segment

    monkeypatch.setattr(code_layout.StreamBuilder, "_prologue", one_more)
    wrong = generate(schedule, templates_for("gfx950"))
    texts = [violation.text for violation in wrong.proof.violations]
    assert "error[control-flow]" in texts[0] and "all tiles are done if it goes to" in texts[0]


def test_an_empty_cluster_is_a_bare_barrier(tmp_path):
    """Also ahead of all others, where the loop begins with it."""
    name = edited(
        tmp_path, "mla_prefill_reduce",
        ('        with cluster("merge"):\n',
         '        with cluster("none"):\n            pass\n        with cluster("merge"):\n'),
    )  # fmt: skip
    function = load(name)
    made = generate(schedule_of(function, function.problem_type(8), {}), templates_for("gfx950"))
    assert not made.proof.violations
    pieces = [piece for piece in made.layout.pieces() if "loop" in piece.key]
    assert {piece.cluster.name for piece in pieces if piece.cluster} == {"none", "merge"}


@pytest.mark.parametrize("slots", [0, -1])
def test_a_ring_without_slots_is_refused(tmp_path, slots):
    name = edited(
        tmp_path, "mha_prefill_v2",
        ('s.lds.ring("K", slots=k_slots,', f's.lds.ring("K", slots={slots},'),
    )  # fmt: skip
    with pytest.raises(ScheduleError, match=f"ring 'K': {slots} slots; a ring has 1 or more"):
        build(name, MHA)


# ---- the comparison itself -----------------------------------------------------------------------


def done(key, tile, reads="", writes="", may=""):
    effect = Effect(frozenset(reads), frozenset(writes), frozenset(may))
    return Done(key, tile, effect, f"{key}({tile})", 1)


def test_overlap_that_keeps_values_is_no_difference():
    plain = [done("load", t, "", "ab"[t % 2]) for t in (0, 1)]
    plain = [plain[0], done("use", 0, "as", "s"), plain[1], done("use", 1, "bs", "s")]
    program = [plain[0], plain[2], plain[1], plain[3]]
    assert differences(program, plain) == []


@pytest.mark.parametrize(
    "program, kind",
    [
        ("load0 load1 use0 use1", "value"),  # one register for both
        ("load0 use0 load1", "missing"),
        ("load0 use0 load1 use1 use1", "twice"),
        ("load0 use0 load1 use1 other", "foreign"),
    ],
)
def test_differences(program, kind):
    steps = {
        "load0": done("load", 0, "", "a"),
        "load1": done("load", 1, "", "a"),
        "use0": done("use", 0, "as", "s"),
        "use1": done("use", 1, "as", "s"),
        "other": done("other", None),
    }
    plain = [steps[name] for name in ("load0", "use0", "load1", "use1")]
    found = differences([steps[name] for name in program.split()], plain)
    assert found[0].kind == kind


def test_what_may_be_skipped_keeps_what_was_there():
    """A guarded write: whoever reads depends on both, the write and what was there before."""
    first, other = done("set", 0, "", "a"), done("set", 1, "", "a")
    skip, use = done("skip", 0, "", "", "a"), done("use", 0, "a", "")
    assert not differences([first, other, skip, use], [first, other, skip, use])
    (found,) = differences([other, first, skip, use], [first, other, skip, use])
    assert found.found == first and found.wanted == other


def test_what_the_next_item_reads_must_be_the_same():
    a, b = done("a", None, "", "x"), done("b", None, "", "x")
    assert not differences([a, b], [b, a])
    assert differences([a, b], [b, a], live={"x"})[0].kind == "value"
