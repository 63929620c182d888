"""Stored rows of many heads: what orders the feeder and the math roles is needed, and what is
missing is told."""

from dataclasses import replace

import pytest

from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKnobs
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ScheduleError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.targets.nvidia.codegen.derive import check_pipelines, looped
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.thin import plan

PROBLEM = MlaSparseDecodeConfig(num_heads=64, rows="v32")


@pytest.fixture(scope="module")
def made():
    return schedule_of(load("mla_sparse_decode_sm90", None), PROBLEM, {})


@pytest.fixture(scope="module")
def loops(made):
    return plan(made)[0]


def violations(made, loops, at, steps):
    loop = loops[at]
    tried = looped(made, loop.stream, loop.prologue, steps, loop.epilogue)
    return prove_pipelines(made, [*loops[:at], tried, *loops[at + 1 :]], quick=True).violations


def with_cache(made, **changes):
    """The schedule with other pipelines of rows."""
    pipelines = {
        name: replace(pipeline, **changes) if name.startswith("cache") else pipeline
        for name, pipeline in made.smem.pipelines.items()
    }
    return replace(made, smem=replace(made.smem, pipelines=pipelines))


def test_it_is_proved(made, loops):
    assert not prove_pipelines(made, loops).violations


@pytest.mark.parametrize("at", [0, 1])
def test_every_derived_wait_of_math_roles_is_needed(made, loops, at):
    steps = loops[at].cluster.operations()
    waits = [op for op in steps if op.name in WAITS]
    assert len(waits) >= 10
    for gone in waits:
        rest = [op for op in steps if op is not gone]
        assert violations(made, loops, at, rest), f"{gone.name} {gone.uses} at {gone.line}"


@pytest.mark.parametrize(("tile", "columns"), [(0, (0, 2)), (0, (4, 6, 8)), (1, (0, 2))])
def test_the_feeder_waits_for_each_half_of_a_tile(made, loops, tile, columns):
    """All pieces of a half are given back together: one of these waits would do. Right columns of
    the odd tile are given back before those of the even one."""
    steps = loops[2].cluster.operations()
    names = [f"cache {n}" for n in columns]
    waits = [op for op in steps if op.name == "wait_empty" and op.tile.offset == tile
             and op.uses[0].block in names]  # fmt: skip
    assert len(waits) == len(columns)
    assert violations(made, loops, 2, [op for op in steps if op not in waits])


@pytest.mark.parametrize("name", ["publish", "look_up", "find_rows", "fetch"])
def test_what_feeds_stands_once_for_each_tile(name, loops):
    steps = [op for op in loops[2].cluster.operations() if op.name == name]
    assert len(steps) == (2 * 5 if name == "fetch" else 2)


def test_keys_that_count_are_published_behind_the_wait(made, loops):
    """Before it, the role that has the tile's scores may still read those of the tile before."""
    steps = list(loops[2].cluster.operations())
    publish = next(op for op in steps if op.name == "publish")
    rest = [op for op in steps if op is not publish]
    (problem,) = violations(made, loops, 2, [publish, *rest])
    assert "fills keys that count 0" in problem and "may still" in problem


def test_a_missing_fence_is_found(made, loops):
    (problem, *_) = prove_pipelines(with_cache(made, fenced=False), loops, quick=True).violations
    assert "through the async proxy without a fence after copy" in problem


def test_a_role_that_does_not_release_is_refused(made):
    with pytest.raises(ScheduleError, match="empty after 4 releases; left and right have 8 warps"):
        check_pipelines(with_cache(made, released_by=("left", "right")))


def test_a_piece_has_room_for_two_tiles_of_columns(monkeypatch):
    wide = lambda _, *given, **more: SeesawKnobs(3, *given, **more)  # noqa: E731
    monkeypatch.setattr("mlagen.schedules.mla_sparse_sm90.SeesawKnobs", wide)
    with pytest.raises(ScheduleError, match="boxes=3 over rows of e4m3"):
        schedule_of(load("mla_sparse_decode_sm90", None), PROBLEM, {})
