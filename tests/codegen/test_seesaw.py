"""The hardest pipeline schedule, and what it needs of the language: exchanges, refills, two tiles a
pass. Every derived wait of it is needed; whatever is taken out or moved is found by the proof."""

import re
from dataclasses import replace

import pytest
from decode_parts import decode_operations

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.dsl import copy, epilogue, prologue, schedule, tiles
from mlagen.errors import CapacityError, ScheduleError, TemplateError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen.derive import derive, looped
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.runs import Loop
from mlagen.targets.nvidia.codegen.thin import plan

PROBLEM = MlaDecodeConfig(num_heads=64)


@pytest.fixture(scope="module")
def made():
    return schedule_of(load("mla_decode_sm90", None), PROBLEM, {"boxes": 4})


@pytest.fixture(scope="module")
def loops(made):
    return plan(made)[0]


def changed(made, loop, steps):
    return looped(made, loop.stream, loop.prologue, steps, loop.epilogue)


def names(loop: Loop, *which: str) -> list[str]:
    return [f"{op.name} {op.uses[0].block}" for op in loop.cluster.operations() if op.name in which]


def test_it_is_proved(made, loops):
    proof = prove_pipelines(made, loops)
    assert not proof.violations and proof.checked > 3_000


def test_every_derived_wait_is_needed(made, loops):
    """Of both roles: barrier waits, meetings, arrivals and waits for exchanges, group waits."""
    for at, loop in enumerate(loops):
        steps = loop.cluster.operations()
        for gone in [op for op in steps if op.name in WAITS]:
            tried = changed(made, loop, [op for op in steps if op is not gone])
            others = [*loops[:at], tried, *loops[at + 1 :]]
            assert prove_pipelines(made, others).violations, (
                f"{gone.name} {gone.uses} at {gone.line}"
            )
        for key in loop.groups:
            groups = {k: w for k, w in loop.groups.items() if k != key}
            others = [*loops[:at], replace(loop, groups=groups), *loops[at + 1 :]]
            assert prove_pipelines(made, others).violations, key


def test_what_is_converted_in_place_is_ordered():
    """An e4m3 cache: the feeder's waits and meetings, and the refills of both roles, are needed."""
    made = schedule_of(
        load("mla_decode_sm90", None), MlaDecodeConfig(64, cache_dtype="fp8_e4m3"), {}
    )
    loops = plan(made)[0]
    assert not prove_pipelines(made, loops).violations
    feeder = loops[2]
    steps = feeder.cluster.operations()
    assert [op.name for op in steps[:4]] == ["wait_full", "read_e4m3", "sync", "copy"]
    for name in ("wait_full", "sync"):
        gone = next(op for op in steps if op.name == name)
        tried = changed(made, feeder, [op for op in steps if op is not gone])
        assert prove_pipelines(made, [*loops[:2], tried]).violations, name


def test_what_exchanges_order_is_not_waited_for(made, loops):
    left, right = loops
    assert "wait_full cache 0" in names(derive(made, left.stream), "wait_full")
    # The left one learns from the right one's maximum that the odd tile is there.
    assert names(left, "wait_full").count("wait_full cache 0") == 1
    assert names(left, "arrive_and_wait", "arrive") == [
        "arrive M left", "arrive_and_wait M right", "arrive P left", "arrive_and_wait P right",
    ]  # fmt: skip
    assert names(right, "arrive_and_wait", "arrive") == [
        "arrive_and_wait M left", "arrive M right", "arrive_and_wait P left", "arrive P right",
    ]  # fmt: skip


def test_only_what_matrix_instructions_read_is_fenced(loops):
    arrivals = {
        op.uses[0].block: op.context(None)["fence"]
        for loop in loops
        for op in (*loop.cluster.operations(), *loop.epilogue)
        if op.name == "arrive"
    }
    assert arrivals == {"M left": False, "P left": True, "l left": False,
                       "M right": False, "P right": True, "l right": False}  # fmt: skip


@pytest.mark.parametrize(("name", "last"), [("P left", "store_p"), ("P right", "late_arrive")])
def test_a_missing_fence_is_found(made, loops, name, last):
    def unfenced(op):
        if op.name != "arrive" or op.uses[0].block != name:
            return op
        return replace(op, context=lambda at: {"fence": False})

    broken = [changed(made, x, [unfenced(op) for op in x.cluster.operations()]) for x in loops]
    (problem,) = prove_pipelines(made, broken).violations
    assert f"through the async proxy without a fence after {last}" in problem


def moved(made, loops, at, who, before, *, tile=None):
    """The loops with the operations `who` of role `at` before the first operation `before`."""
    steps = list(loops[at].cluster.operations())
    taken = [op for op in steps if str(op).startswith(who)]
    rest = [op for op in steps if op not in taken]
    index = next(i for i, op in enumerate(rest) if str(op).startswith(before))
    tried = changed(made, loops[at], [*rest[:index], *taken, *rest[index:]])
    return [*loops[:at], tried, *loops[at + 1 :]]


@pytest.mark.parametrize(
    ("role", "who", "before", "message"),
    [
        (0, "copy(cache 0, i+3)", "pv(i+1)", r"uses K0\[1\] of tile 1, which holds that of tile 3"),
        (1, "store_p(i+1)", "arrive_and_wait(i)", "fills P right .* may still read Q8"),
        (1, "pv(i)", "pv(i+1)", "uses P left"),
        (1, "qk(i+3)", "rescale(i)", ""),
    ],
)
def test_steps_out_of_order(made, loops, role, who, before, message):
    problems = prove_pipelines(made, moved(made, loops, role, who, before)).violations
    assert problems and re.search(message, problems[0]), problems


def scores(d, i):
    for tile in (i, i + 1):
        d.qk(tile, d.left, first=True)
        d.qk(tile, d.right, first=False)


def written(body, *, boxes=4):
    """A schedule of the decode's operations whose left role does `body(d, i)` more."""

    @schedule(problem=MlaDecodeConfig, target="sm_90a")
    def other(k, s):
        left = s.role("left", warpgroups=1, registers=256)
        right = s.role("right", warpgroups=1, registers=256)
        d = decode_operations(k, s, left, right, boxes=boxes)
        with prologue(left):
            d.setup(left)
        for i in tiles(left, step=2):
            for columns in d.left:
                copy(columns, i)
                copy(columns, i + 1)
            body(d, i)
        with epilogue(left):
            d.output.store_sum(left)
        for i in tiles(right, step=2):
            for columns in d.right:
                copy(columns, i)
                copy(columns, i + 1)
            scores(d, i)

    return schedule_of(other, PROBLEM, {})


def test_a_message_goes_one_way():
    with pytest.raises(ScheduleError, match=r"'P right', which goes from 'right' to 'left'"):
        plan(written(lambda d, i: (scores(d, i), d.store_p(i, d.p_right))))


def test_a_message_that_nobody_reads_is_refused():
    made = written(lambda d, i: (scores(d, i), d.store_p(i, d.p_left)))
    assert prove_pipelines(made, plan(made)[0]).violations


def test_a_message_is_there_for_one_tile_a_pass():
    def body(d, i):
        scores(d, i)
        d.store_p(i, d.p_left)
        d.store_p(i + 1, d.p_left)

    with pytest.raises(ScheduleError, match=r"several tiles a pass.*store_p"):
        plan(written(body))


def test_a_role_that_fills_half_of_the_tiles_is_refused():
    @schedule(problem=MlaDecodeConfig, target="sm_90a")
    def half(k, s):
        left = s.role("left", warpgroups=1, registers=256)
        right = s.role("right", warpgroups=1, registers=256)
        d = decode_operations(k, s, left, right)
        for i in tiles(left, step=2):
            copy(d.left[0], i)
            d.qk(i, d.left, first=True)
        for i in tiles(right, step=2):
            copy(d.right[0], i)

    with pytest.raises(ScheduleError, match="fills 'cache 0' 1 times for 2 tiles"):
        plan(schedule_of(half, PROBLEM, {}))


def test_capacities():
    @schedule(problem=MlaDecodeConfig, target="sm_90a")
    def many(k, s):
        s.role("a", warpgroups=1, registers=128)
        for index in range(16):
            s.smem.exchange(f"m{index}", 16, producer="a", consumer="b")

    with pytest.raises(CapacityError, match="no named barrier is left for 'm14': a block has 16"):
        schedule_of(many, PROBLEM, {})

    @schedule(problem=MlaDecodeConfig, target="sm_90a")
    def large(k, s):
        tile = s.smem.tile("T", "t", rows=8, row_bytes=128, slots=1)
        s.smem.exchange("m", 2048, producer="a", consumer="b", over=tile)

    with pytest.raises(CapacityError, match="2048 bytes over 'T', which has 1024"):
        schedule_of(large, PROBLEM, {})


def test_a_register_of_a_template_must_not_hide_one_of_the_schedule(tmp_path):
    """PTX takes `.reg .b32 %p<4>` in an inner scope, and `%p0` is then another register."""
    folder = tmp_path / "sm_90a" / "latent"
    folder.mkdir(parents=True)
    (folder / "store_p.ptx.j2").write_text("{\n.reg .b32 %at, %p<4>;\n}\n")
    with pytest.raises(TemplateError, match=r"store_p.ptx.j2:2: the register %p hides .*%p0 .. 15"):
        build("mla_decode_sm90", PROBLEM, templates_dir=tmp_path)
