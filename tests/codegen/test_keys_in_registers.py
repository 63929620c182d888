"""The schedules that have operands in registers while others of them are made: what waits they
derive, and that the proof finds each of them missing."""

from dataclasses import replace

import pytest

from mlagen.codegen.schedules import load
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.sm_90a.codegen.derive import looped
from mlagen.targets.sm_90a.codegen.proof import prove_pipelines
from mlagen.targets.sm_90a.codegen.thin import plan

FORMS = [
    ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(16, rows="e4m3")),
    ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(16, rows="v32")),
    ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(16, d_qk=512, rows="model1")),
]
VALUES_IN_SMEM = [(*form, {"values": "smem"}) for form in FORMS]
VALUES_IN_REGISTERS = [(*form, {}) for form in FORMS]
ROWS_OF_BF16 = [
    ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(32), {}),
    ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, d_qk=512), {"sets": 2}),
]
ALL = [*VALUES_IN_REGISTERS, *VALUES_IN_SMEM, *ROWS_OF_BF16]


def schedule_of(form):
    name, problem, knobs = form
    return load(name, None).build(problem, knobs)


def only_loop(schedule):
    (loop,) = plan(schedule)[0]
    return loop


@pytest.fixture(params=ALL, ids=lambda form: f"{form[1].rows} {form[2]}")
def made(request):
    return schedule_of(request.param)


@pytest.fixture
def loop(made):
    return only_loop(made)


def test_every_group_wait_is_needed(made, loop):
    assert not prove_pipelines(made, [loop]).violations
    assert len([where for where, _ in loop.groups if where == "loop"]) >= 8
    for key, count in loop.groups.items():
        for weaker in (None, count + 1):
            groups = {k: w for k, w in loop.groups.items() if k != key}
            if weaker is not None:
                groups[key] = weaker
            tried = replace(loop, groups=groups)
            assert prove_pipelines(made, [tried]).violations, (key, weaker)


@pytest.mark.parametrize("form", VALUES_IN_SMEM + VALUES_IN_REGISTERS, ids=str)
def test_values_are_freed_in_all_warps(form):
    """A warp's own wait says nothing of the others, whose products read its keys."""
    made = schedule_of(form)
    loop = only_loop(made)
    steps = [replace(op, joins=op.joins and op.name != "free_values") for op in loop.operations]
    tried = looped(made, loop.stream, loop.prologue, steps, loop.epilogue)
    (problem, *_) = prove_pipelines(made, [tried]).violations
    assert "free_values" in problem and "while role math may still" in problem


def test_an_operand_in_flight_is_not_read():
    """Values that were multiplied early are stored when their product is done."""
    made = schedule_of(VALUES_IN_SMEM[-1])
    loop = only_loop(made)
    at, store = next(
        (index, op) for index, op in enumerate(loop.operations)
        if op.name == "store_values" and ("loop", index) in loop.groups
    )  # fmt: skip
    groups = {key: wait for key, wait in loop.groups.items() if key != ("loop", at)}
    found = prove_pipelines(made, [replace(loop, groups=groups)]).violations
    assert found and f"touches {store.uses[0].block} while qk" in " ".join(found)


@pytest.mark.parametrize("form", ROWS_OF_BF16, ids=str)
def test_rows_that_warps_still_load_are_not_fetched_over(form):
    """Each of the two halves of a tile has one barrier, and needs it."""
    made = schedule_of(form)
    loop = only_loop(made)
    barriers = [op for op in loop.operations if op.name == "sync"]
    assert len(barriers) == 2
    for barrier in barriers:
        steps = [op for op in loop.operations if op is not barrier]
        tried = looped(made, loop.stream, loop.prologue, steps, loop.epilogue)
        (problem, *_) = prove_pipelines(made, [tried]).violations
        assert "load_values" in problem and "copy(keys" in problem


@pytest.mark.parametrize(("knobs", "fenced"), [({}, False), ({"operands": "smem"}, True)])
def test_a_fence_is_for_what_matrix_instructions_read(knobs, fenced):
    loop = only_loop(schedule_of(("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(16), knobs)))
    waits = [op for op in loop.operations if op.name == "wait_full" and "keys" in op.uses[0].block]
    assert waits and {op.context(None)["fence"] for op in waits} == {fenced}


def test_an_operand_is_not_loaded_over_while_it_is_multiplied():
    for form in (VALUES_IN_REGISTERS[0], ROWS_OF_BF16[0]):
        made = schedule_of(form)
        loop = only_loop(made)
        loads = [
            ("loop", at) for at, op in enumerate(loop.operations)
            if op.name == "load_values" and ("loop", at) in loop.groups
        ]  # fmt: skip
        assert len(loads) >= 8
        for place in loads:
            groups = {key: wait for key, wait in loop.groups.items() if key != place}
            (problem, *_) = prove_pipelines(made, [replace(loop, groups=groups)]).violations
            assert "touches a " in problem and "is in flight" in problem
