"""Persistent kernels: one work item after another, of any number of tiles each."""

from pathlib import Path

import numpy as np
import pytest

from mlagen.artifact import write_artifact
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.dsl import each_item, record, schedule
from mlagen.errors import ScheduleError
from mlagen.inspect import inspect_path
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.gfx950.listing import read_listing
from mlagen.mutation.gfx950.subject import make_mutants
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.proof import prove
from mlagen.targets.gfx950.dsl import cluster, roles

FILE = Path(__file__).parent / "schedules" / "work_items.py"
ROWS, COLUMNS = 512, 8


@pytest.fixture(scope="module")
def function():
    return load(str(FILE))


@pytest.fixture(scope="module", params=["shared", "apart"])
def streams(request):
    return request.param


@pytest.fixture(scope="module")
def artifact(function, streams):
    return build(function, function.problem_type(), knobs={"streams": streams})


@pytest.fixture(scope="module")
def made(function, streams):
    schedule = schedule_of(function, function.problem_type(), {"streams": streams})
    return schedule, generate(schedule, templates_for("gfx950", function.templates)).layout


@pytest.mark.parametrize("mode", ["latest", "earliest"])
@pytest.mark.parametrize(
    ("counts", "items", "groups"),
    [
        ([1, 0, 3, 5, 0, 2, 7], 3, 3),  # the last workgroup has one item left
        ([4, 4, 0, 0, 9, 1], 6, 1),
        ([3], 2, 3),  # two workgroups without an item
        ([6, 5, 4, 3, 2, 1, 0, 1], 4, 2),
    ],
)
def test_items_of_any_number_of_tiles(artifact, mode, counts, items, groups):
    rng = np.random.default_rng(len(counts))
    m, k = ROWS * len(counts) - 100, COLUMNS * max(counts)
    x = rng.standard_normal((m, k)).astype(np.float32)
    bias = rng.standard_normal(m).astype(np.float32)
    columns = COLUMNS * np.repeat(counts, ROWS)[:m]
    taken = np.where(np.arange(k) < columns[:, None], x, 0).astype(np.float64)
    added = np.where(columns > 0, bias, 0).astype(np.float64)
    out = np.full(m, np.nan, np.float32)
    report = EmulatedLauncher(mode=mode).launch(
        artifact,
        tensors={"x": x, "counts": np.array(counts, np.uint32), "out": out, "bias": bias},
        scalars={"m": m, "k": k, "items": items},
        sizes={"groups": groups},
    )
    assert not report.emulation.findings
    bound = (columns + 1) * 2.0**-24 * (np.abs(taken).sum(1) + np.abs(added))
    assert np.all(np.abs(out - taken.sum(1) - added) <= bound)


def names(made):
    """Prefixes of the keys of each stream's pieces."""
    return [f"{stream.role}: " if stream.role else "" for stream in made[1].streams]


def test_an_item_waits_for_what_the_former_one_left(made):
    """The bias of an item without tiles is still on its way when the next one loads its own; the
    store of the sum was issued after it."""
    for name in names(made):
        body = made[1].by_key()[f"{name}item"].body
        assert body[0].mnemonic == "s_barrier"
        load = next(index for index, x in enumerate(body) if x.mnemonic == "buffer_load_dword")
        assert body[load - 1].text == "s_waitcnt vmcnt(1)"


def test_what_the_control_flow_reads_is_waited_for(made):
    """N comes from memory: the compare after the item's operations reads it."""
    for name in names(made):
        piece = made[1].by_key()[f"{name}item"]
        assert piece.body[-1].text == "s_waitcnt lgkmcnt(0)"
        wait = piece.body.pop()
        problems = prove(*made).violations
        piece.body.append(wait)
        assert any("`s_cmp_eq_u32 s[N], 0` uses a register" in x.text for x in problems)


def test_no_derived_wait_can_be_left_out(made):
    schedule, layout = made
    assert not prove(schedule, layout).violations
    tried = ("setup", "item", "loop0", "drain0", "epilogue")  # the others are like these
    for piece in layout.pieces():
        if not piece.key.partition(": ")[2 if ": " in piece.key else 0].startswith(tried):
            continue
        for index, x in enumerate(list(piece.body)):
            if x.pipe == "wait":
                del piece.body[index]
                assert prove(schedule, layout).violations, (piece.key, x.text)
                piece.body.insert(index, x)


def test_items_are_ordered_by_their_barrier(made):
    schedule, layout = made
    items = [layout.by_key()[f"{name}item"].body for name in names(made)]
    taken = [body.pop(0) for body in items]
    try:
        problems = prove(schedule, layout).violations
    finally:
        for body, barrier in zip(items, taken, strict=True):
            body.insert(0, barrier)
    assert problems and problems[0].code == "race-item"
    assert "copy(X, i+2) of role lower may come too early" in problems[0].text


def test_the_barrier_between_items_is_mutated_for_all(artifact):
    listing = read_listing(artifact.text, "work_items")
    mutants = make_mutants(listing, ROWS, ["barriers"])
    (between,) = [m for m in mutants if m.what == "s_barrier between work items"]
    items = {n for n, x in listing.lines.items() if x.section == "item"}
    assert between.edits and set(between.edits) <= items
    barriers = {n for n, x in listing.lines.items() if x.mnemonic == "s_barrier"}
    assert barriers <= {n for m in mutants for n in m.edits}


def test_an_inspection_shows_a_loop_in_a_loop(artifact, tmp_path):
    report = inspect_path(write_artifact(artifact, tmp_path / "made"))
    assert [(r.name, r.stagger) for r in report.roles] == [("lower", 0), ("upper", 2)]
    inner = [loop for loop in report.loops if "." in loop.name]
    assert {loop.barriers for loop in inner} == {8}
    assert len(report.loops) == 2 * len(inner)
    assert {role for loop in inner for role in loop.roles} == {"lower", "upper"}


def test_reads_that_nobody_uses_end_with_the_item(function, streams):
    knobs = {"streams": streams, "fault": "unused reads"}
    schedule = schedule_of(function, function.problem_type(), knobs)
    layout = generate(schedule, templates_for("gfx950", function.templates)).layout
    assert not prove(schedule, layout).violations
    for stream in layout.streams:
        name = f"{stream.role}: " if stream.role else ""
        epilogue = layout.by_key()[f"{name}epilogue"].body
        assert epilogue[-1].text == "s_waitcnt lgkmcnt(0)"
        wait = epilogue.pop()
        problems = prove(schedule, layout).violations
        epilogue.append(wait)
        assert [x.code for x in problems] == ["race-item"]
        assert "may be in flight when the next item begins" in problems[0].text


def test_lds_is_not_filled_ahead_of_the_items(function):
    with pytest.raises(ScheduleError, match=r"copy\(X, i\) stands ahead of the work items"):
        build(function, function.problem_type(), knobs={"fault": "copy ahead of items"})


def test_an_item_does_not_end_the_workgroup(function):
    with pytest.raises(ScheduleError, match="leave may end the workgroup"):
        build(function, function.problem_type(), knobs={"fault": "late exit"})


@pytest.mark.parametrize("declared", [True, False])
def test_items_are_declared_where_they_are_used(function, declared):
    operation = schedule_of(function, function.problem_type(), {}).items[0]

    @schedule(problem=int, target="gfx950")
    def mine(k, s):
        s.entry("workgroup", items=declared)
        s.signature = object()
        roles(all=range(4))
        if not declared:
            with each_item():
                record(operation)
        with cluster("A"):
            pass

    with pytest.raises(ScheduleError, match=r"entry\(items=True\).*one without the other"):
        schedule_of(mine, 1, {})
