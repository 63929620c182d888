"""Persistent schedules whose roles go apart from item to item: what goes on, and that the proof,
which runs over sequences of items, finds what one may do to the item before or after it."""

import re
from dataclasses import replace
from itertools import pairwise, product

import pytest

from mlagen.codegen.build import run_schedule
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ProofError, ScheduleError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen import build, derive, tracks
from mlagen.targets.nvidia.codegen.emit_apart import ApartEmitter
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.runs import AROUND, apart_runs, walk
from mlagen.targets.nvidia.codegen.tensor import given_back
from mlagen.targets.nvidia.codegen.thin import plan

KNOBS = {"persistent": 1}
SOFTMAX, FEEDER, MATH = range(3)


def schedule(heads):
    return schedule_of(load("mla_decode_sm100", None), MlaDecodeConfig(heads), KNOBS)


@pytest.fixture(scope="module", params=(64, 128), ids=("block", "pair"))
def made(request):
    return schedule(request.param)


@pytest.fixture(scope="module")
def loops(made):
    return plan(made)[0]


def problems(made, loops, role, steps=None, epilogue=None, leaving=None):
    """What is wrong with the streams where one does otherwise."""
    loop = loops[role]
    tried = derive.looped(
        made, loop.stream, loop.prologue, loop.cluster.operations() if steps is None else steps,
        loop.epilogue if epilogue is None else epilogue,
    )  # fmt: skip
    if leaving is not None:
        tried = replace(tried, leaving=leaving)
    changed = [tried if at == role else loop for at, loop in enumerate(loops)]
    return prove_pipelines(made, changed, quick=True).violations


def test_runs_are_of_items_with_tiles():
    pairs, triples, fours, ones = apart_runs(5, 2, quick=False)
    assert {*pairwise(pairs)} == {*product(range(1, 6), repeat=2)}
    assert len({*zip(triples, triples[1:], triples[2:], strict=False)}) == 27
    assert ones == (1,) * 6 and apart_runs(5, 2, quick=True) == [pairs]
    assert any(fours[at : at + 4] == (1,) * 4 for at in range(len(fours)))


def test_each_item_is_walked_whole(loops):
    """The prologue once, each item from its beginning to its end, and what the block leaves."""
    softmax = loops[SOFTMAX]
    parts = list(walk(softmax, (2, 1)))
    around = [(one.section, one.item) for one in parts if one.section in AROUND]
    assert around == [
        ("start", 0), ("item", 0), ("end", 0), ("item", 1), ("end", 1), ("leave", 1)
    ]  # fmt: skip
    scores = [(p.item, at) for p in parts for op, at in p.steps if op.name == "load_scores"]
    assert scores == [(0, 0), (0, 1), (1, 2)]
    assert [str(op) for op in softmax.leaving] == ["free"]
    assert not any(op.name == "free" for op in softmax.epilogue)


def test_it_is_proved(made, loops):
    proof = prove_pipelines(made, loops)
    assert not proof.violations and proof.checked > 5_000
    assert {(1, 1), (2, 1), (1, 2)} <= {
        pair for way in proof.ways for pair in pairwise(way.line.counts)
    }


def named(op, name, block):
    return op.name == name and (op.uses[0].block if op.uses else "") == block


def test_what_only_the_next_item_needs_is_found(made, loops):
    """Q is filled again before the last scores of the item before; keys take a slot of it; what
    math does in tensor memory goes on without a fence."""
    feeder, math = (list(loops[role].cluster.operations()) for role in (FEEDER, MATH))
    query, keys = (
        next(op for op in feeder if named(op, "wait_empty", name)) for name in ("query", "keys")
    )
    weights = next(at for at, op in enumerate(math) if named(op, "wait_full", "weights"))
    assert math[weights + 1].name == "fence_after"
    tried = [
        (FEEDER, [op for op in feeder if op is not query], "fills .* while .* may still"),
        (MATH, [*math[: weights + 1], *math[weights + 2 :]], "without tcgen05.fence::after"),
    ]
    if not made.smem.pair:  # whose values tell
        first = [replace(op, domain="rest") if op is keys else op for op in feeder]
        tried.append((FEEDER, first, "K0"))
    for role, steps, message in tried:
        found = problems(made, loops, role, steps)
        assert found and any(re.search(message, one) for one in found), found
        assert "items of" in found[0] or role == MATH


def test_sums_that_are_stored_too_late_are_found(made, loops, monkeypatch):
    """O is read when the next item's first weights were given on: its products overwrite it."""

    def late(loop, counts):
        held = None
        for one in walk(loop, counts):
            if one.section == "end" and loop.stream.role.name == "softmax":
                held = one
                continue
            if held and one.section == "leave":
                yield held
            yield one
            if held and one.section not in AROUND:
                yield held
                held = None

    monkeypatch.setattr(tracks, "walk", late)
    found = prove_pipelines(made, loops, quick=True).violations
    assert found and any("may still read O (finish" in one for one in found), found


def test_sums_that_nobody_waits_for_are_found(made, loops):
    epilogue = [op for op in loops[SOFTMAX].epilogue if op.name != "wait_committed"]
    found = problems(made, loops, SOFTMAX, epilogue=epilogue)
    assert found and "uses O" in found[0], found


def test_memory_that_is_given_back_with_the_first_item_is_found(made, loops):
    softmax = loops[SOFTMAX]
    early = [*softmax.epilogue, *given_back(made, softmax.stream)]
    found = problems(made, loops, SOFTMAX, epilogue=early, leaving=())
    assert found and any("given back" in one or "gives TMEM back" in one for one in found), found


def test_queries_are_released_after_their_last_use(made, loops):
    """Released before the last scores, and for another tile than the last."""
    math = made.streams[-1]
    release = next(op for op in math.loop if str(op).startswith("release(query"))
    rest = [op for op in math.loop if op is not release]
    first = rest.index(next(op for op in rest if op.name == "qk"))
    early = replace(math, loop=(*rest[:first], release, *rest[first:]))
    with pytest.raises(ProofError, match="released before"):
        derive.derive(made, early)
    for loop in ((*rest, replace(release, last_tiles=0)), tuple(rest)):
        with pytest.raises(ScheduleError, match="once an item, for its last tile"):
            derive.derive(made, replace(math, loop=loop))


@pytest.mark.parametrize("what", ["anew", "alike"])
def test_phases_that_do_not_go_on_are_found(made, monkeypatch, what):
    """Parities that begin anew with an item, and those of Q and O that stay."""
    if what == "anew":
        around = ApartEmitter._around

        def again(self, stream, operations, where):
            around(self, stream, operations, where)
            if where == "item":
                for cursor in self.cursors:
                    if cursor.slot.startswith(f"%{stream.role.name}_"):
                        self._code(stream, f"mov.u32 {cursor.phase}, {cursor.phase_at_start};")

        monkeypatch.setattr(ApartEmitter, "_around", again)
    else:
        monkeypatch.setattr(ApartEmitter, "_phases", staticmethod(lambda role: ("0", "1")))
        monkeypatch.setattr(ApartEmitter, "registers", property(lambda self: []))
        code = ApartEmitter._code
        monkeypatch.setattr(
            ApartEmitter, "_code",
            lambda self, stream, *lines, **more: code(
                self, stream, *(x for x in lines if not re.search(r" [01], ", x)), **more
            ),
        )  # fmt: skip
    with pytest.raises(ProofError, match="wrong-slot"):
        build.prove_pipeline(*run_schedule("mla_decode_sm100", made.problem, None, KNOBS)[1:])


def test_what_cannot_go_apart(made):
    stream = made.streams[FEEDER]
    for wrong, says in (
        (replace(stream, step=2), "passes of one tile"),
        (replace(stream, items=()), "nothing begins its items"),
        (replace(stream, loop=(replace(stream.loop[0], ahead="fetches"), *stream.loop[1:])),
         "nothing is ahead"),
    ):  # fmt: skip
        with pytest.raises(ScheduleError, match=says):
            derive.check_apart(made, wrong)
    one = schedule_of(load("mla_decode_sm100", None), MlaDecodeConfig(64), {})
    for persistent, pipelines, says in (
        ("apart", one.smem.pipelines, "nobody releases it"),
        ("", made.smem.pipelines, "nothing fills it again"),
    ):
        smem = replace(made.smem, pipelines=pipelines)
        tried = replace(made, smem=smem, persistent=persistent)
        with pytest.raises(ScheduleError, match=says):
            derive.derive(tried, tried.streams[FEEDER])
