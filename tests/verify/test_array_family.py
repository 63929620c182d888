"""`ArrayFamily`: what it asks of a call, what a launcher is told. docs/first_kernel.md runs one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import small_kernel

from mlagen.errors import ConfigError
from mlagen.family.arrays import ArrayFamily
from mlagen.launch.launcher import LaunchReport
from mlagen.problem.expected import Expected, compare, four_dimensions

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))
from fake_cuda import TorchTensor


def doubled(arrays: Any) -> Expected:
    x = arrays["x"].astype(np.float64)
    return Expected.of("exact", 2 * x, np.zeros_like(x), output="y")


def family(**changes: Any) -> ArrayFamily:
    fields: dict[str, Any] = {
        "name": "doubles",
        "sizes": {"m": 3, "n": 4},
        "inputs": {"x": ("fp32", "m", "n"), "bias": ("bf16", "n")},
        "outputs": {"y": ("fp32", "m", "n")},
        "oracles": [doubled],
        "calls": [{"m": 1}, {"m": 2, "n": 5}],
    }
    return ArrayFamily(**{**fields, **changes})


class Doubling:
    """A launcher that doubles x, and keeps what it was given; it spoils `wrong` elements."""

    def __init__(self, wrong: int = 0) -> None:
        self.wrong = wrong
        self.given: dict[str, Any] = {}

    def launch(self, artifact: Any, **given: Any) -> LaunchReport:
        self.given = given
        assert np.isnan(given["tensors"]["y"]).all()
        given["tensors"]["y"][...] = 2 * given["tensors"]["x"]
        given["tensors"]["y"].flat[: self.wrong] = np.nan
        return LaunchReport("stand-in", (1, 1, 1), (64, 1, 1), 0.0, None)


def test_a_call_by_place_and_by_name() -> None:
    launcher = Doubling()
    kernel = family().kernel(small_kernel.make(), launcher)
    x, bias = np.ones((5, 7), np.float32), np.zeros(7, ml_dtypes.bfloat16)
    assert (kernel(x, bias) == 2).all()
    assert (kernel(x, bias=bias) == 2).all()
    assert launcher.given["sizes"] == {"m": 5, "n": 7}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "takes x, bias, each once; got 0 by place and none by name"),
        ({"x": np.zeros((2, 3), np.float32)}, "each once"),
        (
            {"x": np.zeros((2, 3), np.float64), "bias": np.zeros(3)},
            r"x is float64 \[2, 3\], not fp32 \[m, n\]",
        ),
        ({"x": np.zeros(6, np.float32), "bias": np.zeros(6)}, r"x is fp32 \[6\]"),
        ({"x": np.zeros((2, 3), np.float32), "bias": None}, "bias is a NoneType, no tensor"),
    ],
)
def test_a_call_that_does_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family().kernel(small_kernel.make(), Doubling())(**given)


def test_sizes_that_do_not_go_together() -> None:
    kernel = family(inputs={"x": ("fp32", "m", "n"), "z": ("fp32", "n", 8)}).kernel(
        small_kernel.make(), Doubling()
    )
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ConfigError, match="z has 4 for n, not 3, as x has"):
        kernel(x, np.zeros((4, 8), np.float32))
    with pytest.raises(ConfigError, match="z has 9 for 8, not 8"):
        kernel(x, np.zeros((3, 9), np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": {"x": ("fp16", "m")}}, "x is of 'fp16'"),
        ({"outputs": {"y": ("fp32", "k")}}, "y has 'k'"),
    ],
)
def test_a_family_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family(**changes)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"data": "late"}, "unknown data 'late'"),
        ({"k": 3}, "unknown size k"),
        ({"m": 0}, "m=0: a size is at least 1"),
        ({"m": "many"}, "many"),
    ],
)
def test_made_up_inputs_that_cannot_be(shape: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family().kind("").inputs({}, **{"data": "randn", "seed": 0, **shape})


@pytest.mark.parametrize("wrong", [0, 1, 5])
def test_a_trial_judges_the_output(wrong: int) -> None:
    kind = family().kind("")
    inputs = kind.inputs({}, data="realistic", seed=3, m=2)
    again = kind.inputs({}, data="realistic", seed=3, m=2)
    assert all((inputs.arrays[name] == again.arrays[name]).all() for name in ("x", "bias"))
    trial = kind.trial(inputs)
    outputs, _ = trial.run(small_kernel.make(), Doubling(wrong))
    (expected,) = trial.oracles()
    found = compare(expected, outputs["y"])
    assert (found.failures, found.nans, found.passed) == (wrong, wrong, wrong == 0)
    if wrong:
        assert trial.place(found.worst) == "y[0, 0]"


def test_the_calls_that_reach_all_code() -> None:
    calls = family().kind("").covering(small_kernel.make()).calls
    assert [dict(call.shape) for call in calls] == [{"m": 1}, {"m": 2, "n": 5}]


def test_dimensions_are_filled_up_from_the_front() -> None:
    shapes = {n: four_dimensions(np.zeros((2, 3, 4)[3 - n :])).shape for n in range(4)}
    assert shapes == {0: (1, 1, 1, 1), 1: (1, 1, 1, 4), 2: (1, 3, 1, 4), 3: (2, 3, 1, 4)}
    with pytest.raises(ConfigError, match="4 dimensions"):
        four_dimensions(np.zeros((1, 1, 1, 1)))


def near(rng: Any, tensor: str, shape: tuple[int, ...]) -> Any:
    return rng.standard_normal(shape) * (1e-5 if tensor == "x" else 1)


def test_a_call_says_what_its_data_is_like() -> None:
    calls = [{"m": 1}, {"m": 2, "data": "near"}, {"data": "realistic"}]
    own = family(data={"near": near}, calls=calls)
    kind = own.kind("")
    assert kind.data == ("randn", "realistic", "near")
    covering = kind.covering(small_kernel.make())
    assert [(call.data, dict(call.shape)) for call in covering.calls] == [
        ("randn", {"m": 1}), ("near", {"m": 2}), ("realistic", {}),
    ]  # fmt: skip
    inputs = kind.inputs({}, data="near", seed=0, m=50).arrays
    assert np.abs(inputs["x"]).max() < 1e-3 < np.abs(inputs["bias"].astype(np.float32)).max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calls": [{"data": "near"}]}, "a call of data 'near'"),
        ({"calls": [{"k": 3}]}, "a call has 'k'"),
        ({"data": {"randn": near}}, "data 'randn' is there already"),
        ({"sizes": {"m": 3, "n": 4, "data": 5}}, "a size is called 'data'"),
    ],
)
def test_data_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family(**changes)


def test_data_of_another_shape_is_refused() -> None:
    own = family(data={"flat": lambda rng, tensor, shape: np.zeros(3)})
    with pytest.raises(ConfigError, match=r"data 'flat' makes x \[3\], not \[3, 4\]"):
        own.kind("").inputs({}, data="flat", seed=0)


def test_an_oracle_may_take_the_problem() -> None:
    def scaled(arrays: Any, problem: Any) -> Expected:
        x = problem["factor"] * arrays["x"].astype(np.float64)
        return Expected.of("exact", x, np.zeros_like(x), output="y")

    kind = family(oracles=[scaled]).kind("")
    inputs = kind.inputs({"factor": 2}, data="randn", seed=0)
    trial = kind.trial(inputs)
    outputs, _ = trial.run(small_kernel.make(), Doubling())
    assert compare(trial.oracles()[0], outputs["y"]).passed


def test_an_output_that_is_given_is_written() -> None:
    kernel = family().kernel(small_kernel.make(), Doubling())
    x, bias = np.ones((5, 7), np.float32), np.zeros(7, ml_dtypes.bfloat16)
    y = np.full((5, 7), np.nan, np.float32)
    assert kernel(x, bias, y=y) is y and (y == 2).all()
    with pytest.raises(ConfigError, match=r"y is fp32 \[5, 6\], not fp32 \[5, 7\]"):
        kernel(x, bias, y=y[:, :6].copy())


class OnGpu:
    """A launcher that keeps what it was given."""

    def launch(self, artifact: Any, **given: Any) -> LaunchReport:
        self.given = given
        return LaunchReport("cuda", (1, 1, 1), (64, 1, 1), 0.0, None)


def test_tensors_of_a_gpu_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are made beside them; arrays of the host among them are refused."""
    made: list[Any] = []

    def empty(shape: Any, dtype: Any, device: Any) -> TorchTensor:
        made.append((tuple(shape), dtype, device.index))
        return TorchTensor(tuple(shape), dtype, 0x3000, device=device.index)

    torch = SimpleNamespace(Tensor=TorchTensor, empty=empty, float32="float32")
    monkeypatch.setitem(sys.modules, "torch", torch)
    launcher = OnGpu()
    kernel = family().kernel(small_kernel.make(), launcher)
    x = TorchTensor((5, 7), "float32", 0x1000, device=1)
    bias = TorchTensor((7,), "bfloat16", 0x2000, device=1)
    y = kernel(x, bias=bias)
    assert made == [((5, 7), "float32", 1)] and launcher.given["tensors"]["y"] is y
    assert launcher.given["tensors"]["x"] is x and launcher.given["sizes"] == {"m": 5, "n": 7}
    with pytest.raises(ConfigError, match=r"x is bf16 \[5, 7\], not fp32"):
        kernel(TorchTensor((5, 7), "bfloat16", 0x1000), bias)
    with pytest.raises(ConfigError, match="lies in the host's memory"):
        kernel(x, np.zeros(7, ml_dtypes.bfloat16))
    with pytest.raises(ConfigError, match="bias is a torch tensor in the host's memory"):
        kernel(x, TorchTensor((7,), "bfloat16", 0x2000, is_cuda=False))
