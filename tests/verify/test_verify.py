"""verify: reports of good and of faulty runs. What runs is the numpy simulation of the kernel."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from mha_simulation import FAULTS, simulate

from mlagen.artifact import Proof
from mlagen.emulator import EmulationResult, SanitizerFinding
from mlagen.errors import ConfigError, FindingsError, WrongResultError
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.launch import LaunchReport
from mlagen.severity import LETTER, UNPROVED
from mlagen.verify import SCHEMA, verify, verify_inputs

CONFIG = MhaConfigV2(4, 2)
RACE = SanitizerFinding(
    "race-raw", "wave 1 reads what wave 0 wrote", 32, "global_load_dword", 1, (0, 0, 0),
    44, "v_add_u32_e32", 0, "LDS 0x0..0xf", "vmcnt(0)", 3,
)  # fmt: skip


class Simulation:
    """A launcher that simulates, then lets `spoil` change the output."""

    def __init__(self, fault=None, spoil=None, findings=()):
        self.fault, self.spoil, self.findings = fault, spoil, findings

    def launch(self, artifact, *, tensors, scalars, sizes):
        out = simulate(
            MhaConfigV2.from_fields(artifact.manifest.problem),
            tensors["q"],
            tensors["k"],
            tensors["v"],
            scalars["scale_log2e"] / math.log2(math.e),
            scalars["start_pos"],
            fault=self.fault,
        )
        if self.spoil:
            self.spoil(out)
        tensors["o"][...] = out
        counts = {"v_exp_f32": 5, "s_endpgm": 2}
        result = EmulationResult(tuple(self.findings), 7, counts, 0.0)
        return LaunchReport("simulated", (4, 2, 1), (512, 1, 1), 0.25, result)


@pytest.fixture(scope="module")
def artifact(make_artifact):
    return make_artifact(kernel="mha", family="mha_prefill", config=CONFIG)


@pytest.fixture(scope="module")
def inputs():
    return mha_inputs(CONFIG, seq_len=320, data="late_max")


def report(artifact, inputs, *, modes=("latest", "earliest"), **faults):
    return verify_inputs(artifact, inputs, modes=modes, launcher=lambda mode: Simulation(**faults))


def test_a_right_kernel_passes(artifact, inputs):
    good = report(artifact, inputs)
    assert good.passed and good.right and good.clean and good.proved
    assert good.error() is None
    assert [run.mode for run in good.runs] == ["latest", "earliest"]
    for run in good.runs:
        assert [c.oracle for c in run.comparisons] == ["exact", "rounding"]
        assert all(0 < c.max_ratio <= 1 for c in run.comparisons)
        assert all(c.elements == 320 * 4 * 128 for c in run.comparisons)
        assert run.wave_instructions == 7 and run.counts["v_exp_f32"] == 5
    facts = dict(good.facts())
    assert facts["verdict"] == "passed"
    assert facts["sanitizer"] == "clean; the same bits in modes latest, earliest"
    assert facts["shape"] == "batch 1, seq_len 320, num_keys 320, start_pos 0"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_wrong_result_that_names_the_worst_element(artifact, inputs, fault):
    bad = report(artifact, inputs, fault=fault)
    assert not bad.passed and not bad.right and bad.clean
    assert all(not c.passed for run in bad.runs for c in run.comparisons)
    error = bad.error()
    assert isinstance(error, WrongResultError) and error.exit_code == 3
    worst = bad.worst().worst
    assert f"row {worst.row}, head {worst.head}, depth {worst.depth}" in str(error)
    assert dict(bad.facts())["verdict"] == "FAILED"


def test_one_wrong_element_is_found_where_it_is(artifact, inputs):
    def spoil(out):
        out[0, 217, 3, 100] += 1

    bad = report(artifact, inputs, spoil=spoil)
    for comparison in bad.runs[0].comparisons:
        assert comparison.failures == 1
        assert (comparison.worst.row, comparison.worst.head) == (217, 3)
        assert comparison.worst.depth == 100
    wrong = [row for row in bad.head_rows() if row[2] != "0"]
    assert [(row[0], row[1], row[2]) for row in wrong] == [
        ("3", "exact", "1"),
        ("3", "rounding", "1"),
    ]


def test_nan_is_counted_and_fails(artifact, inputs):
    def spoil(out):
        out[0, 5:7, 1] = np.nan

    bad = report(artifact, inputs, spoil=spoil)
    assert not bad.right
    assert [c.nans for c in bad.runs[0].comparisons] == [256, 256]
    assert "256 of them NaN" in str(bad.error())
    assert [row[4] for row in bad.error_rows()] == ["256"] * 4


def test_bits_that_depend_on_completion_times_are_a_finding(artifact, inputs):
    def late(out):
        out[0, 300, 2, 8] *= 1.0 + 2.0**-6

    differing = verify_inputs(
        artifact,
        inputs,
        modes=("latest", "earliest", "random"),
        launcher=lambda mode: Simulation(spoil=late if mode == "earliest" else None),
    )
    assert [run.same_bits for run in differing.runs] == [True, False, True]
    assert not differing.clean and not differing.passed
    assert "other bits in mode earliest" in dict(differing.facts())["sanitizer"]


def test_other_bits_alone_end_in_a_findings_error(make_artifact):
    # fp32 output: one unit in the last place is within the bounds.
    config = MhaConfigV2(4, 2, output_dtype="fp32")
    artifact = make_artifact(family="mha_prefill", config=config)
    inputs = mha_inputs(config, seq_len=32)

    def late(out):
        out.view(np.uint32)[0, 30, 2, 8] ^= 1

    differing = verify_inputs(
        artifact,
        inputs,
        launcher=lambda mode: Simulation(spoil=late if mode == "earliest" else None),
    )
    assert differing.right and not differing.clean
    error = differing.error()
    assert isinstance(error, FindingsError) and error.exit_code == 4
    assert "mode earliest has other bits than that of mode latest" in str(error)


def test_findings_fail_a_right_result(artifact, inputs):
    found = report(artifact, inputs, findings=[RACE])
    assert found.right and not found.clean and not found.passed
    assert len(found.findings) == 1  # the same in both modes
    assert found.findings[0].at.source.operation == "load(x, i)"
    error = found.error()
    assert isinstance(error, FindingsError) and error.exit_code == 4
    assert "error[race-raw]" in str(error)
    assert dict(found.facts())["sanitizer"] == "1 error"


@pytest.mark.parametrize("severity", [LETTER, UNPROVED])
def test_findings_that_are_no_errors_are_told_and_fail_where_it_is_asked(
    artifact, inputs, severity
):
    found = report(artifact, inputs, findings=[replace(RACE, severity=severity)])
    assert found.passed and not found.clean and found.error() is None
    told = dict(found.facts())
    assert told["verdict"].startswith("passed") and told["sanitizer"].startswith("0 errors, 1 ")
    strict = found.error(LETTER)
    told = dict(found.facts(LETTER))["verdict"]
    if severity == LETTER:
        assert isinstance(strict, FindingsError) and told.startswith("FAILED")
    else:
        assert strict is None and told.startswith("passed")


def test_a_wrong_result_comes_before_findings(artifact, inputs):
    both = report(artifact, inputs, findings=[RACE], fault="dropped key")
    assert isinstance(both.error(), WrongResultError)


def test_unproved_is_never_passed(make_artifact, inputs):
    artifact = make_artifact(
        family="mha_prefill",
        config=CONFIG,
        proof=Proof("unproved", ("K slot 1 may be read too early",), 4, 9),
    )
    unproved = report(artifact, inputs)
    assert unproved.right and unproved.clean and not unproved.passed
    assert "K slot 1 may be read too early" in str(unproved.error())
    assert unproved.error().exit_code == 4
    assert dict(unproved.facts())["proof"] == "UNPROVED: K slot 1 may be read too early"


def test_json_is_whole_and_plain(artifact, inputs):
    def spoil(out):
        out[0, 5, 1, 2] = np.nan

    found = report(artifact, inputs, findings=[RACE], spoil=spoil)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["schema"] == SCHEMA == "mlagen.verify/2"
    assert (data["passed"], data["right"], data["clean"], data["proved"]) == (
        False, False, False, True,
    )  # fmt: skip
    assert data["problem"]["mask"] == "causal"
    assert (data["seq_len"], data["num_keys"], data["start_pos"]) == (320, 320, 0)
    latest = data["runs"][0]
    comparison = latest["comparisons"][0]
    assert comparison["oracle"] == "exact" and comparison["nans"] == 1
    assert comparison["max_ratio"] is None and comparison["worst"]["got"] is None
    assert [head["head"] for head in comparison["heads"]] == [0, 1, 2, 3]
    assert latest["counts"] == {"v_exp_f32": 5, "s_endpgm": 2}
    finding = latest["findings"][0]
    assert finding["text"].startswith("error[race-raw]")
    assert finding["at"]["source"]["cluster"] == "A"
    assert "artifact" not in data


def test_tables_have_their_columns(artifact, inputs):
    good = report(artifact, inputs)
    rows, heads = good.error_rows(), good.head_rows()
    assert len(rows) == 4 and len(heads) == 8
    assert all(len(row) == len(good.ERROR_COLUMNS) for row in rows)
    assert all(len(row) == len(good.HEAD_COLUMNS) for row in heads)


@pytest.mark.parametrize("modes", [(), ("sometimes",), ("latest", "late")])
def test_unknown_modes_are_refused(artifact, inputs, modes):
    with pytest.raises(ConfigError, match="latest, earliest, random"):
        verify_inputs(artifact, inputs, modes=modes)


@pytest.mark.parametrize("shape", [{"seq_len": 0}, {"batch": -1}, {"num_keys": -3}])
def test_bad_shapes_are_refused(artifact, shape):
    with pytest.raises(ConfigError, match=next(iter(shape))):
        verify(artifact, **shape)
