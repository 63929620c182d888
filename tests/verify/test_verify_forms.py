"""Verifying ragged and paged kernels, the log-sum-exp, and a sample of the workgroups."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mha_simulation import simulate_inputs

from mlagen.app.texts import verify_from_text
from mlagen.attention.prefill.verification import PrefillTrial
from mlagen.codegen import build
from mlagen.errors import ConfigError, WrongResultError
from mlagen.families.mha_prefill.kernel import MhaKernel
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.launch import LaunchReport
from mlagen.verify import verify, verify_inputs

RAGGED = MhaConfigV2(4, 2, depth=64, ragged=True, page_size=16, sink=True, lse=True)
LENGTHS = [300, 0, 40]


class Simulation:
    """A launcher that simulates the inputs it was made for, then spoils the outputs."""

    def __init__(self, inputs, spoil):
        self.inputs, self.spoil = inputs, spoil

    def launch(self, artifact, *, tensors, scalars, sizes):
        out, lse = simulate_inputs(self.inputs)
        self.spoil(out, lse)
        tensors["o"][...], tensors["lse"][...] = out, lse
        return LaunchReport("simulated", (4, 2, 3), (512, 1, 1), 0.25)


@pytest.fixture(scope="module")
def inputs():
    return mha_inputs(RAGGED, lengths=LENGTHS)


def report(make_artifact, inputs, spoil):
    artifact = make_artifact(family="mha_prefill", config=RAGGED)
    return verify_inputs(
        artifact, inputs, modes=["latest"], launcher=lambda mode: Simulation(inputs, spoil)
    )


def test_both_outputs_are_held_against_both_oracles(make_artifact, inputs):
    good = report(make_artifact, inputs, lambda out, lse: None)
    assert good.right and good.error() is None
    comparisons = good.runs[0].comparisons
    names = [c.oracle for c in comparisons]
    assert names == ["exact", "rounding", "exact LSE", "rounding LSE"]
    assert [c.elements for c in comparisons] == [340 * 4 * 64] * 2 + [340 * 4] * 2
    assert dict(good.facts())["shape"] == (
        "batch 3, lengths 300,0,40, num_keys 300,0,40, start_pos 0,0,0"
    )
    assert "sample" not in dict(good.facts())
    assert good.to_json()["lengths"] == LENGTHS and good.to_json()["sample"] is None


def test_a_wrong_lse_is_named_by_its_sequence(make_artifact, inputs):
    def spoil(out, lse):
        lse[3, 305] += 1e-3

    bad = report(make_artifact, inputs, spoil)
    assert [c.failures for c in bad.runs[0].comparisons[2:]][1] == 1
    assert isinstance(bad.error(), WrongResultError)
    assert "LSE of sequence 2, row 5, head 3" in str(bad.error())
    assert bad.worst().oracle == "rounding LSE"


def test_a_wrong_row_is_named_by_its_sequence(make_artifact, inputs):
    def spoil(out, lse):
        out[300, 1, 7] += 1

    bad = report(make_artifact, inputs, spoil)
    assert "sequence 2, row 0, head 1, depth 7" in str(bad.error())


def test_other_bits_of_the_lse_alone_are_seen(make_artifact, inputs):
    artifact = make_artifact(family="mha_prefill", config=RAGGED)

    def late(out, lse):
        lse.view(np.uint32)[0, 3] ^= 1

    found = verify_inputs(
        artifact,
        inputs,
        launcher=lambda mode: Simulation(
            inputs, late if mode == "earliest" else lambda out, lse: None
        ),
    )
    assert found.right and not found.clean


# ---- samples -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built():
    return build("mha_prefill_v2", MhaConfigV2(4, 2, depth=64, lse=True))


def test_a_sample_runs_and_compares_some_workgroups_only(built):
    some = verify(built, batch=2, seq_len=700, sample=3, seed=5)
    assert some.passed
    assert (some.sample.workgroups, some.sample.of) == (3, 24)
    whole = verify(built, batch=2, seq_len=700, seed=5)
    assert whole.sample is None
    assert some.runs[0].wave_instructions < whole.runs[0].wave_instructions / 4
    facts = dict(some.facts())
    assert facts["sample"] == "3 of 24 workgroups were run; only their rows are compared"
    assert json.loads(json.dumps(some.to_json()))["sample"] == {"workgroups": 3, "of": 24}


def test_what_a_sample_leaves_out_is_not_written(built):
    """Rows beside those of the workgroups that ran are still what they were filled with."""
    inputs = mha_inputs(built_config(built), batch=2, seq_len=700)
    trial = PrefillTrial(inputs, MhaKernel).sampled(4, seed=1)
    from mlagen.launch import EmulatedLauncher

    outputs, _ = trial.run(built, EmulatedLauncher(workgroups=trial.workgroups))
    for oracle in trial.oracles():
        lines = oracle.lines
        written = np.zeros(outputs[oracle.output].shape[:3], np.bool_)
        written[lines.batch, lines.row, lines.head] = True
        finite = np.isfinite(outputs[oracle.output].astype(np.float32)).all(axis=3)
        assert np.array_equal(finite, written)


def built_config(artifact):
    return MhaConfigV2.from_fields(artifact.manifest.problem)


def test_a_sample_has_the_last_tile_of_the_longest_sequence():
    config = MhaConfigV2(2, 1, ragged=True)
    trial = PrefillTrial(mha_inputs(config, lengths=[10, 600, 0, 256]), MhaKernel)
    for seed in range(5):
        sampled = trial.sampled(2, seed)
        assert any(group[1:] == (2, 1) for group in sampled.workgroups)
        assert sampled.workgroups == trial.sampled(2, seed).workgroups
        assert sampled.sample.of == 2 * (1 + 3 + 1)
        assert all(group[2] != 2 for group in sampled.workgroups)
    assert len({trial.sampled(2, seed).workgroups for seed in range(8)}) > 3
    assert trial.sampled(10, 0).workgroups is None
    with pytest.raises(ConfigError, match="sample=0"):
        trial.sampled(0, 0)


def test_a_sample_of_nothing_and_a_sample_elsewhere_are_refused(make_artifact, inputs, built):
    config = MhaConfigV2(2, 1, ragged=True)
    with pytest.raises(ConfigError, match="no sequence has a query row"):
        PrefillTrial(mha_inputs(config, lengths=[0, 0]), MhaKernel).sampled(2, 0)
    with pytest.raises(ConfigError, match="the emulator alone runs some"):
        verify_inputs(
            built,
            mha_inputs(built_config(built), seq_len=40),
            sample=1,
            launcher=lambda mode: Simulation(inputs, None),
        )


def test_large_shapes_are_checked_by_a_sample(built):
    """All 1,024 workgroups of 8,192 rows would take minutes."""
    config = MhaConfigV2(32, 8, lse=True)
    kernel = build("mha_prefill_v2", config)
    large = verify(kernel, seq_len=8192, sample=1, modes=["latest"], data="randn")
    assert large.passed
    assert large.sample.of == 1024


# ---- the command line's texts --------------------------------------------------------------------


def test_shapes_of_each_sequence_are_given_as_text():
    artifact = build("mha_prefill_v2", MhaConfigV2(1, 1, depth=64, ragged=True))
    report = verify_from_text(
        artifact,
        ["lengths=30,0,1", "num_keys=64,5,70", "start_pos=7"],
        data="randn",
        seed=1,
        modes=["latest"],
        sample=1,
    )
    assert report.passed
    assert report.sizes["lengths"] == (30, 0, 1)
    assert report.sizes["num_keys"] == (64, 5, 70)
    assert report.sizes["start_pos"] == (7, 7, 7)
    one = verify_from_text(artifact, ["lengths=30"], data="randn", seed=1, modes=["latest"])
    assert one.sizes["lengths"] == (30,)
    for text, message in (
        ("lengths=3,x", "lengths='3,x' is not an integer, nor several with commas"),
        ("batch=1,2", "batch='1,2' is not an integer$"),
        ("lengths=3,-1", "lengths=3,-1"),
        ("length=3", "unknown size 'length'"),
    ):
        with pytest.raises(ConfigError, match=message):
            verify_from_text(artifact, [text], data="randn", seed=1, modes=["latest"])
