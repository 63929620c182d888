"""Launching: arguments packed by the manifest, and refusals before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from mlagen.artifact import Artifact, Proof
from mlagen.errors import ConfigError
from mlagen.launch import EmulatedLauncher, LaunchRefused

N = 150


def operands() -> dict[str, np.ndarray]:
    return {"x": np.arange(192, dtype=np.uint32), "o": np.zeros(192, np.uint32)}


def test_the_kernel_runs_and_writes_into_the_given_array(add_artifact: Artifact) -> None:
    tensors = operands()
    launcher = EmulatedLauncher()
    report = launcher.launch(add_artifact, tensors=tensors, scalars={"add": 7}, sizes={"length": N})
    assert report.grid == (3, 1, 1)
    assert report.block == (64, 1, 1)
    assert report.emulation is not None
    assert report.emulation.findings == ()
    np.testing.assert_array_equal(tensors["o"], tensors["x"] + 7)


def test_only_the_chosen_workgroups_run(add_artifact: Artifact) -> None:
    tensors = operands()
    EmulatedLauncher(workgroups=[(1, 0, 0)]).launch(
        add_artifact, tensors=tensors, scalars={"add": 7}, sizes={"length": N}
    )
    assert not tensors["o"][:64].any()
    np.testing.assert_array_equal(tensors["o"][64:128], tensors["x"][64:128] + 7)
    assert not tensors["o"][128:].any()


def test_a_buffer_that_is_too_small_is_found_by_name(add_artifact: Artifact) -> None:
    tensors = {**operands(), "x": np.arange(100, dtype=np.uint32)}
    report = EmulatedLauncher().launch(
        add_artifact, tensors=tensors, scalars={"add": 7}, sizes={"length": N}
    )
    assert report.emulation is not None
    assert {finding.kind for finding in report.emulation.findings} >= {"global-bounds"}
    assert any("x" in finding.resource for finding in report.emulation.findings)


def test_an_unproved_artifact_is_refused_unless_a_checker_asks(make_artifact) -> None:
    unproved = make_artifact(proof=Proof("unproved", ("read(V) may overtake copy(V)",)))
    tensors = operands()
    with pytest.raises(LaunchRefused, match="read\\(V\\) may overtake copy\\(V\\)") as caught:
        EmulatedLauncher().launch(
            unproved, tensors=tensors, scalars={"add": 7}, sizes={"length": N}
        )
    assert caught.value.exit_code == 2
    assert not tensors["o"].any()
    EmulatedLauncher(allow_unproved=True).launch(
        unproved, tensors=tensors, scalars={"add": 7}, sizes={"length": N}
    )
    assert tensors["o"].any()


@pytest.mark.parametrize(
    ("tensors", "scalars", "message"),
    [
        ({"x": np.zeros(4)}, {"add": 1}, "add misses the tensor o"),
        ({"x": np.zeros(4), "o": np.zeros(4), "y": np.zeros(4)}, {"add": 1}, "no the tensor y"),
        ({"x": np.zeros(4), "o": np.zeros(4)}, {}, "misses the scalar add"),
        ({"x": np.zeros(4), "o": np.zeros(4)}, {"add": -1}, "add = -1 is no u32"),
        ({"x": np.zeros(4), "o": np.zeros(4)}, {"add": 2**32}, "add = 4294967296 is no u32"),
        ({"x": np.zeros(4), "o": np.zeros(4)}, {"add": 0.5}, r"add = 0\.5 is no u32"),
        ({"x": np.zeros((4, 4)).T, "o": np.zeros(4)}, {"add": 1}, "x is not C-contiguous"),
        ({"x": [1, 2], "o": np.zeros(4)}, {"add": 1}, "x is a list, no array"),
    ],
)
def test_wrong_arguments_are_named(
    add_artifact: Artifact, tensors: dict, scalars: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        EmulatedLauncher().launch(
            add_artifact, tensors=tensors, scalars=scalars, sizes={"length": N}
        )


def test_a_read_only_output_is_refused(add_artifact: Artifact) -> None:
    tensors = operands()
    tensors["o"].flags.writeable = False
    with pytest.raises(ConfigError, match="o is written to, but it is read-only"):
        EmulatedLauncher().launch(
            add_artifact, tensors=tensors, scalars={"add": 7}, sizes={"length": N}
        )


def test_a_scalar_that_is_no_finite_number_is_refused(make_artifact) -> None:
    from mlagen.artifact import Arg

    manifest = make_artifact().manifest
    floating = make_artifact(args=(*manifest.args[:2], Arg("add", 16, 4, "f32", "value")))
    for value in (float("nan"), 1e39):
        with pytest.raises(ConfigError, match="no finite f32"):
            EmulatedLauncher().launch(
                floating, tensors=operands(), scalars={"add": value}, sizes={"length": N}
            )
