"""Persistent pipeline schedules: what is fetched ahead for the next item, and that the proof, which
runs over sequences of items, finds what an item may do to the one before or after it."""

import re
from dataclasses import replace

import pytest
from test_seesaw import changed, moved

from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.dsl import Tile, Value
from mlagen.errors import ConfigError, ScheduleError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen import derive as deriving
from mlagen.targets.nvidia.codegen import tracks
from mlagen.targets.nvidia.codegen.derive import derive
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.runs import ItemRun, every, item_runs, walk
from mlagen.targets.nvidia.codegen.thin import plan
from mlagen.targets.nvidia.dsl.smem import Scratch

PROBLEM = MlaDecodeConfig(num_heads=64)


@pytest.fixture(scope="module")
def made():
    return schedule_of(load("mla_decode_sm90", None), PROBLEM, {"boxes": 4, "persistent": 1})


@pytest.fixture(scope="module")
def loops(made):
    return plan(made)[0]


def quick(made, loops):
    return prove_pipelines(made, loops, quick=True).violations


def test_runs_are_of_every_order():
    for length, symbols in ((1, 4), (2, 5), (3, 3)):
        row = every(range(symbols), length)
        found = [row[at : at + length] for at in range(len(row) - length + 1)]
        assert len(found) == len(set(found)) == symbols**length
    pairs, triples = item_runs(3, 2, quick=False)[-2:]
    assert max(pairs) == 6 and max(triples) == 3


def test_an_item_begins_with_a_new_pass():
    line = ItemRun((3, 0, 2, 1, 4), 2)
    assert line.starts == (0, 4, 4, 6, 8)
    assert sorted(line.items) == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
    assert [line.turn(place, 2) for place in sorted(line.items)] == [0, 0, 1, 2, 1, 3, 4, 2, 5, 3]
    assert line.before(9, 2) == 5 and line.before(4, 2) == 2 and line.before(1, 2) is None
    assert [line.loads(item) for item in range(5)] == [0, 1, 1, 2, 3]


def test_the_last_pass_fetches_for_the_next_item(loops):
    left = loops[0]

    def ahead(counts):
        return [
            (one.section, one.item, str(op), place)
            for one in walk(left, counts)
            for op, place in one.steps
            if op.ahead == "fetches" and op.name in ("copy", "load_queries")
        ]

    queries = [("load_queries(i+2)", 4)] * 2
    for counts, where in (((3, 2), "drain, i = N-1"), ((4, 1), "drain, i = N-2")):
        found = [one for one in ahead(counts) if one[3] >= 4]
        assert {one[:2] for one in found} == {(where, 0)}
        assert [one[2:] for one in found if one[2] in dict(queries)] == queries
        assert {place for *_, place in found} == set(range(4, 4 + counts[1]))
    # After an empty item nobody has fetched; for an empty one there is nothing to fetch.
    assert {one[0] for one in ahead((0, 2))} == {"fetch"}
    assert not [one for one in ahead((2, 0)) if one[3] >= 2]


def test_it_is_proved(made, loops):
    proof = prove_pipelines(made, loops)
    assert not proof.violations and proof.checked > 30_000 and proof.tiles == 6


@pytest.mark.parametrize(
    ("role", "who", "before", "message"),
    [
        # The next item's tile, before this one's last product is over.
        (0, "copy(cache 0, i+2)", "pv(i)", r"may still read K0\[0\]"),
        # Q, before the last Q K of both, of which the right one's maximum tells.
        (0, "load_queries(i+2)", "arrive_and_wait(i+1)", r"role right may still read Q0\[0\]"),
        # Its last columns, before P of the other is read, which lies there.
        (0, "load_queries(i+2)", "pv(i+1)", "may still read P right"),
        (1, "copy(cache 4, i+3)", "pv(i+1)", r"K4\[1\]"),
        (1, "store_p(i+1)", "arrive_and_wait(i)", "P right"),
    ],
)
def test_steps_out_of_order(made, loops, role, who, before, message):
    problems = quick(made, moved(made, loops, role, who, before))
    assert problems and any(re.search(message, problem) for problem in problems), problems


def test_staging_over_a_slot_that_is_filled_is_found(made, loops):
    """O over the odd tile's slot, where the next item's tile 1 is on its way."""
    tile = made.smem.tiles["K0"]
    scratch = Scratch("O left", tile.slot_base(1), tile.bytes)
    smem = replace(made.smem, scratches={**made.smem.scratches, "O left": scratch})
    staging = replace(made, smem=smem)
    left = loops[0]
    epilogue = [
        replace(op, defines=(Value("O left"),), joins=True) if op.name == "finish" else op
        for op in left.epilogue
    ]
    tried = deriving.looped(
        staging, left.stream, left.prologue, left.cluster.operations(), epilogue
    )
    problems = quick(staging, [tried, loops[1]])
    assert problems and re.search(r"O left .* the copy engine", problems[0]), problems


def test_sums_are_not_overwritten_before_they_are_read(made, loops):
    """Without the word that they are read: an item of one tile tells the left one nothing else."""
    silent = [
        deriving.looped(
            made, loop.stream, loop.prologue, loop.cluster.operations(),
            [op for op in loop.epilogue if "l is read" not in {v.block for v in op.uses}],
        )
        for loop in loops
    ]  # fmt: skip
    problems = quick(made, silent)
    assert problems and "l left" in problems[0], problems


def test_empty_items_need_a_meeting(made, loops, monkeypatch):
    def hurried(loop, counts):
        return (one for one in walk(loop, counts) if one.section != "empty")

    monkeypatch.setattr(tracks, "walk", hurried)
    problems = quick(made, loops)
    assert problems and "store_sum" in problems[0], problems


def test_nobody_misses_a_phase(made, loops):
    """Where the right one waits for Q in an item of one tile too, in which it has no use for it and
    the left one does not hear of it, the next Q may be there before it looks."""
    steps = [
        replace(op, domain="first", tile=Tile(2))
        if op.name == "wait_full" and op.uses[0].block.startswith("query")
        else op
        for op in loops[1].cluster.operations()
    ]
    problems = quick(made, [loops[0], changed(made, loops[1], steps)])
    assert problems and "whose phase it would miss" in problems[0], problems


@pytest.mark.slow
def test_every_derived_wait_is_needed(made, loops):
    for at, loop in enumerate(loops):
        steps = loop.cluster.operations()
        for gone in [op for op in steps if op.name in WAITS]:
            tried = changed(made, loop, [op for op in steps if op is not gone])
            others = [*loops[:at], tried, *loops[at + 1 :]]
            assert quick(made, others), f"{gone.name} {gone.uses} at {gone.line}"


def test_what_a_loop_cannot_run_on_with(made):
    left = made.streams[0]

    def refused(loop, words, schedule=made):
        with pytest.raises(ScheduleError, match=words):
            derive(schedule, replace(left, loop=tuple(loop)))

    copies = [op for op in left.loop if op.access is not None]
    early = [replace(op, tile=op.tile - 2) if op in copies else op for op in left.loop]
    refused(early, r"what is ahead is for the tiles of the next pass, i\+2 .. i\+3")
    late = [replace(op, tile=op.tile + 2) if op.name == "qk" else op for op in left.loop]
    refused(late, "begun more than one pass ahead")
    refused([op for op in left.loop if op.ahead != "seeks"], "nothing in its loop seeks the next")
    pipelines = made.smem.pipelines
    released = replace(pipelines["cache 0"], releases=8)
    smem = replace(made.smem, pipelines={**pipelines, "cache 0": released})
    refused(left.loop, "'cache 0' has 2 slots and 8 releases|releases it 0 times",
            replace(made, smem=smem))  # fmt: skip


def test_only_bf16_has_the_form():
    for fields in ({"cache_dtype": "fp8_e4m3"}, {"dtype": "fp8_e4m3"}):
        with pytest.raises(ConfigError, match="persistent=1") as caught:
            schedule_of(
                load("mla_decode_sm90", None), MlaDecodeConfig(64, **fields), {"persistent": 1}
            )
        assert "all bf16" in str(caught.value.hint)


def guarded(made, loops, **changes):
    """The loops with `zero_tail` of the left role changed."""
    left = loops[0]
    steps = [
        replace(op, **changes) if op.name == "zero_tail" else op for op in left.operations
    ]  # fmt: skip
    return [changed(made, left, steps), loops[1]]


def test_what_may_skip_itself_is_in_order_where_it_is_done(made, loops):
    """Without its meetings no other warp knows that it is done, nor it what they have done."""
    problems = quick(made, guarded(made, loops, joins=False))
    assert problems and re.search(r"zero_tail\(i\)", problems[0]), problems


def test_meetings_of_what_may_skip_itself_order_nothing_else(made, loops):
    """The left role's barrier before its copies stays needed: where the operation is skipped its
    warps do not meet. Done always, it stands for that barrier."""
    left = loops[0]
    syncs = [op for op in left.operations if op.name == "sync"]
    assert syncs
    for sync in syncs:
        steps = [op for op in left.operations if op is not sync]
        assert quick(made, [changed(made, left, steps), loops[1]]), sync
    always = guarded(made, loops, guarded=False)
    spared = [
        sync for sync in syncs
        if not quick(made, [changed(made, always[0], [op for op in always[0].operations
                                                      if op is not sync]), always[1]])
    ]  # fmt: skip
    assert not quick(made, always) and spared


def test_what_others_wait_for_may_not_skip_itself(made):
    left, right = made.streams
    loop = tuple(replace(op, guarded=op.name == "pv" or op.guarded) for op in left.loop)
    with pytest.raises(ScheduleError, match=r"pv\(i\) may skip itself, and others wait for it"):
        deriving.check_pipelines(replace(made, streams=(replace(left, loop=loop), right)))
