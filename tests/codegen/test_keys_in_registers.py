"""The schedule that has operands in registers while others of them are made: what waits it derives,
and that the proof finds each of them missing."""

from dataclasses import replace

import pytest

from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.codegen.derive import looped
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.thin import plan

FORMS = [
    ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(16, rows="e4m3")),
    ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(16, rows="v32")),
    ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, rows="v32")),
    ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(16, d_qk=512, rows="model1")),
    ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(16, d_qk=512, rows="v41")),
]


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]} {form[1].rows}")
def made(request):
    name, problem = request.param
    return schedule_of(load(name, None), problem, {})


@pytest.fixture
def loop(made):
    (only,) = plan(made)[0]
    return only


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


def test_values_are_freed_in_all_warps(made, loop):
    """A warp's own wait says nothing of the others, whose products read its keys."""
    steps = [replace(op, joins=op.joins and op.name != "free_values") for op in loop.operations]
    tried = looped(made, loop.stream, loop.prologue, steps, loop.epilogue)
    (problem, *_) = prove_pipelines(made, [tried]).violations
    assert "free_values" in problem and "while role math may still" in problem


def test_an_operand_in_flight_is_not_read():
    """Values that were multiplied early are stored when their product is done."""
    name, problem = FORMS[-1]
    made = schedule_of(load(name, None), problem, {})
    (loop,) = plan(made)[0]
    at, store = next(
        (index, op) for index, op in enumerate(loop.operations)
        if op.name == "store_values" and ("loop", index) in loop.groups
    )  # fmt: skip
    groups = {key: wait for key, wait in loop.groups.items() if key != ("loop", at)}
    found = prove_pipelines(made, [replace(loop, groups=groups)]).violations
    assert found and f"touches {store.uses[0].block} while qk" in " ".join(found)
