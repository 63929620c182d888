"""What is computed is the problem, how it is computed are knobs: the tiles of prefill kernels."""

from __future__ import annotations

import dataclasses
import re

import pytest

import mlagen
from mlagen.app.build import build_artifact
from mlagen.attention.prefill.facts import TILES
from mlagen.cli.main import run
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.tune.lookup import build_best
from mlagen.tune.space import space_of
from mlagen.tune.verified_workload import VerifiedWorkloads
from mlagen.verify import kind_of, verify

FP8 = {"num_heads": 2, "num_kv_heads": 1, "dtype": "fp8_e4m3"}
CONFIGS = [
    MhaConfigV2(2, 1),
    MhaConfigV2(2, 1, dtype="fp8_e4m3"),
    MlaConfigV2(2, 1),
    MlaConfigV2(2, 1, dtype="fp8_e4m3"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.kernel} {c.dtype}")
def test_a_config_has_the_defaults_of_its_schedule(config):
    """The class and the schedule's file say them both."""
    problem, tiles = config.parts()
    made = schedule_of(load(config.kernel), problem, {})
    assert {name: made.knobs[name] for name in TILES} == tiles
    assert type(config)(**vars(problem)) == problem.with_tiles(**tiles) == config


def test_no_problem_has_a_tile():
    for problem_type in (MhaConfigV2.problem_type, MlaConfigV2.problem_type):
        assert not {field.name for field in dataclasses.fields(problem_type)} & set(TILES)


def test_a_config_a_keyword_and_a_knob_are_one_kernel():
    config = MhaConfigV2(2, 1, dtype="fp8_e4m3", kv_block=128, rescale_threshold=4.0)
    made = mlagen.build(config)
    more = {"kv_block": 128, "rescale_threshold": 4}
    others = [
        mlagen.build("mha_prefill_v2", **FP8, **more),
        mlagen.build("mha_prefill_v2", **FP8, knobs=more),
        mlagen.build("mha_prefill_v2", **FP8, **{n: str(value) for n, value in more.items()}),
    ]
    assert made.config == config
    for other in others:
        assert other.artifact.text == made.artifact.text
        assert other.artifact.manifest.knobs == made.artifact.manifest.knobs
        assert other.config == config
    assert "kv_block" not in made.artifact.manifest.problem
    assert "kv_block=128" in others[0].choice


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kv_block": 65}, r"knob kv_block=65 is not among its choices.*\n.*64, 128"),
        ({"rescale_threshold": 9.0}, r"no number in 0 \.\. 8\.8"),
        ({"rescale_threshold": "high"}, "no number"),
        ({"rescale_threshold": True}, "no number"),
        ({"num_warps": 4}, r"not among its choices.*\n.*8; waves"),
        ({"fp8_mma_k_128": True}, "P could not stay in registers"),
        ({"kv_blok": 64}, "no field 'kv_blok'"),
        ({"kv_block": 64, "knobs": {"kv_block": 128}}, "kv_block is given twice: 64 and 128"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        mlagen.build("mha_prefill_v2", **FP8, **given)
    assert re.search(message, str(error.value))


@pytest.mark.parametrize("knobs", [{"kv_block": 64}, {"rescale_threshold": "4"}])
def test_a_knob_does_not_contradict_the_config(knobs):
    """It neither wins over the config nor is passed over."""
    config = MhaConfigV2(**FP8, kv_block=128)
    (name,) = knobs
    with pytest.raises(ConfigError, match=f"{name} is given twice: {getattr(config, name)} and"):
        build("mha_prefill_v2", config, knobs=knobs)


def test_a_knob_may_say_what_the_config_says():
    config = MhaConfigV2(**FP8, kv_block=128)
    same = {"kv_block": "128", "rescale_threshold": "8", "fp8_mma_k_128": "false"}
    made = build("mha_prefill_v2", config, knobs={**same, "band": 3})
    assert made.manifest.knobs["kv_block"] == 128
    assert made.manifest.knobs["band"] == 3


def test_the_command_line_takes_a_knob_among_the_fields(tmp_path, capsys):
    fields = [part for name, value in FP8.items() for part in ("--set", f"{name}={value}")]
    asked = ["build", "mha_prefill_v2", *fields, "--set", "kv_block={}", "-o", str(tmp_path)]
    for value, code in (("128", 0), ("65", 2)):
        assert run([part.format(value) for part in asked]) == code
    told = capsys.readouterr()
    assert "kv_block=128" in told.out
    assert "choices: 64, 128" in told.err


def test_the_tuner_searches_tiles_and_what_they_bring():
    schedule = load("mla_prefill_v2")
    space = space_of(schedule, MlaConfigV2(2, 1).parts()[0], {})
    choices = {dimension.name: dimension.choices for dimension in space.dimensions}
    assert choices["kv_block"] == (128, 64)
    assert choices["rescale_threshold"] == (8.0, 4.0, 0.0)
    assert set(choices["v_slots"]) == {2, 3, 4}, "more than two slots are there beside 64 keys"
    limited = space_of(schedule, MlaConfigV2(2, 1).parts()[0], {"rescale_threshold": "6,0"})
    (dimension,) = [d for d in limited.dimensions if d.name == "rescale_threshold"]
    assert dimension.choices == (6.0, 0.0)


def test_a_tile_that_is_given_is_kept_beside_winners():
    artifact, choice = build_best("mha_prefill_v2", {**FP8, "kv_block": "128"})
    assert artifact.manifest.knobs["kv_block"] == 128
    assert choice.told == "the schedule's defaults beside kv_block=128"


@pytest.mark.parametrize("more", [{"kv_block": 128}, {"rescale_threshold": 0.0}])
def test_host_code_reads_the_tiles_from_the_knobs(more):
    artifact = build_artifact("mha_prefill_v2", FP8, more)
    kind = kind_of(artifact)
    inputs = kind.inputs(kind.fields(artifact), data="realistic", seed=0, seq_len=300)
    assert {name: getattr(inputs.config, name) for name in more} == more
    assert verify(artifact, seq_len=300, data="every_tile").right


def test_one_call_judges_variants_of_other_tiles():
    """A workload is made once; each variant is held against the oracles of its own tiles."""
    kind = kind_of(build_artifact("mha_prefill_v2", FP8, {}))
    workload = VerifiedWorkloads(kind).workload(FP8, {"seq_len": 64})
    for tile in (64, 128):
        artifact = build_artifact("mha_prefill_v2", FP8, {"kv_block": tile})
        trial = kind.trial(workload._inputs).planned(artifact)
        assert trial.inputs.config.kv_block == tile
