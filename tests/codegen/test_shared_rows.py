"""Rows that two blocks of a CTA cluster share: waits are derived for both, and proved."""

from dataclasses import replace

import pytest

from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError, ScheduleError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.targets.nvidia.codegen.derive import looped
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.proof_run import ProofRun
from mlagen.targets.nvidia.codegen.thin import plan
from mlagen.targets.nvidia.dsl.pipeline import PipelineSpace
from mlagen.targets.nvidia.dsl.smem import Smem
from mlagen.targets.nvidia.dsl.tmem import Tmem
from mlagen.targets.sm_90a.limits import SM_90A

PROBLEM = MlaSparseDecodeConfig(num_heads=128, rows="v32")
LEFT, RIGHT, FEEDER = range(3)


@pytest.fixture(scope="module")
def made():
    return schedule_of(load("mla_sparse_decode_sm90", None), PROBLEM, {"boxes": 2})


@pytest.fixture(scope="module")
def loops(made):
    return plan(made)[0]


def violations(made, loops, at, steps):
    loop = loops[at]
    tried = looped(made, loop.stream, loop.prologue, steps, loop.epilogue)
    return prove_pipelines(made, [*loops[:at], tried, *loops[at + 1 :]], quick=True).violations


def test_all_forms_are_proved(made, loops):
    assert made.blocks == 2 and not prove_pipelines(made, loops).violations
    wide = schedule_of(load("mla_sparse_decode_sm90", None), PROBLEM, {})
    assert wide.blocks == 2 and not prove_pipelines(wide, plan(wide)[0]).violations
    alone = schedule_of(load("mla_sparse_decode_sm90", None), PROBLEM, {"cluster": 1})
    assert alone.blocks == 1 and not prove_pipelines(alone, plan(alone)[0]).violations


def test_the_proof_covers_both_blocks(made, loops):
    alone = schedule_of(load("mla_sparse_decode_sm90", None), PROBLEM, {"cluster": 1, "boxes": 2})
    one = prove_pipelines(alone, plan(alone)[0]).checked
    assert prove_pipelines(made, loops).checked > 1.8 * one


@pytest.mark.parametrize("at", [LEFT, RIGHT])
def test_every_derived_wait_of_math_roles_is_needed(made, loops, at):
    steps = loops[at].cluster.operations()
    waits = [op for op in steps if op.name in WAITS]
    assert len(waits) >= 10
    for gone in waits:
        rest = [op for op in steps if op is not gone]
        assert violations(made, loops, at, rest), f"{gone.name} {gone.uses} at {gone.line}"


@pytest.mark.parametrize(("tile", "columns"), [(0, (0, 2)), (0, (4, 6, 8)), (1, (0, 2))])
def test_the_feeder_waits_for_both_blocks(made, loops, tile, columns):
    """All pieces of a half are given back together: one of these waits would do."""
    steps = loops[FEEDER].cluster.operations()
    names = [f"cache {n}" for n in columns]
    waits = [op for op in steps if op.name == "wait_empty" and op.tile.offset == tile
             and op.uses[0].block in names]  # fmt: skip
    assert len(waits) == len(columns)
    assert violations(made, loops, FEEDER, [op for op in steps if op not in waits])


def test_a_release_that_does_not_reach_the_other_block_is_found(made, loops, monkeypatch):
    """Its feeder would wait for ever; where it counts its own alone, it overwrites what is read."""
    real = ProofRun._release

    def release_here(run, warp, does, event):
        name = does.op.access.target.ring
        real(run, warp, does, event)
        run.releases[(1 - warp.block, name, event.tile)].pop(warp.actor)

    monkeypatch.setattr(ProofRun, "_release", release_here)
    (problem, *_) = prove_pipelines(made, loops, quick=True).violations
    assert "deadlock" in problem
    monkeypatch.setattr(
        ProofRun, "_releases_of",
        lambda run, pipeline: sum(run.members[name] for name in pipeline.released_by),
    )  # fmt: skip
    (problem, *_) = prove_pipelines(made, loops, quick=True).violations
    assert "may still" in problem


def test_bytes_of_the_other_block_need_a_fence_behind_the_wait(made):
    waits = [
        op for loop in plan(made)[0][:2] for op in loop.operations
        if op.name == "wait_full" and op.uses[0].block.startswith("cache")
    ]  # fmt: skip
    assert waits and all(op.context(None)["fence"] for op in waits)
    fenced = {
        name: replace(pipeline, fenced=True) for name, pipeline in made.smem.pipelines.items()
    }
    # The proof does not trust that: whoever waits must know.
    loops = plan(replace(made, smem=replace(made.smem, pipelines=fenced)))[0]
    (problem, *_) = prove_pipelines(made, loops, quick=True).violations
    assert "through the async proxy without a fence after copy" in problem


def test_up_to_64_heads_share_nothing():
    few = MlaSparseDecodeConfig(num_heads=64, rows="v32")
    assert schedule_of(load("mla_sparse_decode_sm90", None), few, {}).blocks == 1
    with pytest.raises(ConfigError, match="cluster"):
        schedule_of(load("mla_sparse_decode_sm90", None), few, {"cluster": 2})


def space():
    from mlagen.dsl.knobs import Knobs

    return PipelineSpace(Knobs({}), Smem(SM_90A.smem_bytes), Tmem(0, 0))


def test_what_a_cta_cluster_cannot_be_is_refused():
    s = space()
    with pytest.raises(ScheduleError, match="a CTA cluster of 3 blocks"):
        s.cta_cluster(3)
    tile = s.smem.tile("K", "cache", rows=64, row_bytes=128, slots=2)
    how = {"producer": "feeder", "consumer": "math", "producer_threads": 128}
    with pytest.raises(ScheduleError, match="for all blocks of a CTA cluster"):
        s.smem.pipeline("a", tile, releases=4, by_warps="for all", **how)
    s.smem.pipeline("b", tile, releases=4, by_warps=True, **how)
    with pytest.raises(ScheduleError, match="is declared after pipelines"):
        s.cta_cluster(2)


@pytest.mark.parametrize(
    ("single", "persistent", "what"),
    [(True, False, "a role of one thread"), (False, True, "one item after another")],
)
def test_roles_of_one_thread_and_several_items_are_refused(single, persistent, what):
    from mlagen.targets.nvidia.dsl.pipeline import Stream, WarpRole, _check_cluster

    class Made:
        name, blocks, smem = "kernel", 2, Smem(SM_90A.smem_bytes)
        streams = (Stream(WarpRole("feeder", range(4), 24, single, 1), (), (), (), 1),)

    Made.persistent = persistent
    with pytest.raises(ScheduleError, match=what):
        _check_cluster(Made)


def test_rooms_lie_where_their_readers_need_them():
    """A product's operand at a multiple of its swizzle, whatever was declared before it."""
    smem = Smem(SM_90A.smem_bytes)
    assert smem.room("of warps", 20).base == 0
    assert smem.room("P", 128 * 8, align=8 * 128).base == 1024
    assert smem.room("sums", 8).base == 2048
