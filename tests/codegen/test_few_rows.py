"""MLA decode of few query rows on Hopper: each derived wait of its two roles is needed, and what is
given back or fetched too early is found by the proof."""

from dataclasses import replace

import pytest

from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen.derive import looped
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.thin import plan

FP8 = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}
FORMS = (
    ({}, {}), ({}, {"boxes": 3}), ({"cache_dtype": "fp8_e4m3"}, {"variant": "swap_ab"}),
    (FP8, {"held": 2}), ({"cache_dtype": "fp8_rope_aware"}, {}), ({"dtype": "fp8_e4m3"}, {}),
    ({"dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware"}, {}),
)  # fmt: skip


@pytest.fixture(scope="module", params=FORMS, ids=str)
def made(request):
    fields, knobs = request.param
    return schedule_of(
        load("mla_decode_sm90", None), MlaDecodeConfig(num_heads=16, **fields), knobs
    )


def implied(made, op):
    """Whether a wait is for columns that are no values: the math warpgroup gives them back after
    those that are, and their place is waited for after these."""
    name = op.uses[0].block
    return name == list(made.smem.pipelines)[-1].replace("raw", "keys") and op.name == "wait_empty"


def test_every_wait_is_needed(made):
    loops = plan(made)[0]
    assert not prove_pipelines(made, loops).violations
    for at, loop in enumerate(loops):
        steps = loop.cluster.operations()
        for gone in [op for op in steps if op.name in WAITS and not implied(made, op)]:
            tried = looped(made, loop.stream, loop.prologue, [op for op in steps if op is not gone],
                           loop.epilogue)  # fmt: skip
            others = [*loops[:at], tried, *loops[at + 1 :]]
            assert prove_pipelines(made, others).violations, f"{gone} at {gone.line}"
        for key in loop.groups:
            groups = {k: w for k, w in loop.groups.items() if k != key}
            others = [*loops[:at], replace(loop, groups=groups), *loops[at + 1 :]]
            assert prove_pipelines(made, others).violations, key


def test_a_tile_is_not_given_back_before_its_product(made):
    loops = plan(made)[0]
    at, loop = next((n, x) for n, x in enumerate(loops) if x.stream.role.name == "math")
    steps = list(loop.cluster.operations())
    given = next(op for op in steps if op.name == "release")
    steps.remove(given)
    last = {op.name: n for n, op in reversed(list(enumerate(steps)))}
    steps.insert(last.get("load_values", last["rescale"]), given)
    tried = replace(
        looped(made, loop.stream, loop.prologue, steps, loop.epilogue), groups=loop.groups
    )
    assert prove_pipelines(made, [*loops[:at], tried, *loops[at + 1 :]]).violations


@pytest.mark.parametrize(
    ("fields", "few"),
    [
        ({"num_heads": 32}, True),
        ({"num_heads": 33}, False),
        ({"num_heads": 8, "q_len": 4}, True),
        ({"num_heads": 11, "q_len": 3}, False),
        ({"num_heads": 128, "num_kv_heads": 4, "q_len": 8}, True),
        ({"num_heads": 16, "cache_dtype": "fp8_e4m3"}, True),
        ({"num_heads": 16, "cache_dtype": "fp8_e4m3", "dtype": "fp8_e4m3"}, True),
        ({"num_heads": 32, "dtype": "fp8_e4m3"}, True),
        ({"num_heads": 16, "cache_dtype": "fp8_rope_aware"}, True),
        ({"num_heads": 16, "cache_dtype": "fp8_rope_aware", "dtype": "fp8_e4m3"}, True),
        ({"num_heads": 8, "q_len": 4, **FP8}, True),
        ({"num_heads": 40, **FP8}, False),
    ],
)
def test_rows_and_types_decide_the_form(fields, few):
    """And a problem of many rows does not take the knob."""
    config = MlaDecodeConfig(**fields)
    assert is_few(config) == few
    schedule = load("mla_decode_sm90", None)
    roles = {stream.role.name for stream in schedule_of(schedule, config, {}).streams}
    assert ("producer" in roles) == few
    seesaw = "seesaw_qkv_fp8" if config.compute == "fp8" else "seesaw"
    if not few:
        with pytest.raises(ConfigError, match="variant=swap_ab does not serve"):
            schedule_of(schedule, config, {"variant": "swap_ab"})
    else:
        streams = schedule_of(schedule, config, {"variant": seesaw}).streams
        assert {stream.role.name for stream in streams} >= {"left", "right"}
