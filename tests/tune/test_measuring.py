"""Timing variants against each other, on a device that is made up: drift, gaps, caches."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mlagen.app.texts import parse_sizes
from mlagen.errors import ConfigError, MissingError
from mlagen.tune import measured
from mlagen.tune.interleave import FEW_ROUNDS, interleaved, ratio


class Device:
    """Runs calls of so many seconds; its clock drifts, its timings jitter, and a call whose buffers
    were used last is faster."""

    def __init__(self, drift: float = 0.0, jitter: float = 0.0, cached: float = 1.0) -> None:
        self.now, self.drift, self.jitter, self.cached = 0.0, drift, jitter, cached
        self.draw, self.last, self.done = random.Random(0), None, 0

    def call(self, seconds: float, buffers: object) -> Callable[[], None]:
        def run() -> None:
            speed = 1 + self.drift * self.done
            took = seconds * speed * (1 + self.jitter * self.draw.random())
            self.now += took * (self.cached if self.last == buffers else 1.0)
            self.last, self.done = buffers, self.done + 1

        return run

    def calls(self, seconds: float, copies: int) -> list[Callable[[], None]]:
        return [self.call(seconds, copy) for copy in range(copies)]

    def mark(self) -> float:
        return self.now

    def hold(self) -> None:
        self.now += 1e-3

    def wait(self) -> None:
        pass

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


def test_a_drifting_clock_cancels() -> None:
    """While the clock falls to a third, a call 2 % faster is found to be 2 % faster."""
    device = Device(drift=0.02, jitter=0.05)
    calls = {"variant": device.calls(98e-6, 2), "reference": device.calls(100e-6, 2)}
    found = interleaved(calls, device)
    assert ratio(found["variant"], found["reference"]) == pytest.approx(0.98, abs=0.01)
    # One after the other, the same device would have told the opposite.
    device = Device(drift=0.02, jitter=0.05)
    first = interleaved({"reference": device.calls(100e-6, 2)}, device)["reference"]
    second = interleaved({"variant": device.calls(98e-6, 2)}, device)["variant"]
    assert ratio(second, first) > 1.2


def test_no_call_finds_its_data_where_the_one_before_left_it() -> None:
    """With one copy of the buffers, the second of two equal calls would look twice as fast."""
    one = Device(cached=0.5)
    found = interleaved({"a": one.calls(1e-4, 1), "b": one.calls(1e-4, 1)}, one)
    assert min(found["a"] + found["b"]) == pytest.approx(5e-5)
    two = Device(cached=0.5)
    found = interleaved({"a": two.calls(1e-4, 2), "b": two.calls(1e-4, 2)}, two)
    assert ratio(found["a"], found["b"]) == pytest.approx(1.0)
    assert min(found["a"] + found["b"]) == pytest.approx(1e-4)


def test_every_call_has_every_place_in_a_round() -> None:
    device, order = Device(), []
    calls = {name: [lambda name=name: order.append(name)] for name in "abc"}
    interleaved(calls, device, rounds=30, warm_up=1)
    rounds = [tuple(order[at : at + 3]) for at in range(3, len(order), 3)]
    assert len(rounds) == 30
    assert {rounds.count(one) for one in set(rounds)} == {10}
    assert len(set(rounds)) == 3


def test_a_hopeless_call_is_not_timed_to_the_end() -> None:
    device = Device()
    calls = {"variant": device.calls(2e-4, 2), "reference": device.calls(1e-4, 2)}
    found = interleaved(calls, device, keep="reference")
    assert len(found["variant"]) == FEW_ROUNDS
    calls["variant"] = device.calls(1.05e-4, 2)
    assert len(interleaved(calls, device, keep="reference")["variant"]) == 60


def test_what_cannot_be_measured_is_told(make_artifact: Any) -> None:
    def artifact(family: str, problem_type: str) -> Any:
        return make_artifact(family=family, problem_type=problem_type)

    with pytest.raises(ConfigError, match="solves a ToyConfig of the family 'toys'"):
        measured.workloads_of(artifact("toys", "ToyConfig"))
    made = measured.workloads_of(artifact("mla_decode", "MlaDecodeConfig"))
    assert {"batch", "keys"} <= set(made.sizes) and "batch" not in made.lists
    made = measured.workloads_of(artifact("mla_sparse", "MlaSparseDecodeConfig"))
    assert {"batch", "keys", "topk", "page_size"} <= set(made.sizes) and not made.lists
    made = measured.workloads_of(artifact("mla_sparse", "MlaSparsePrefillConfig"))
    assert {"rows", "keys", "topk"} <= set(made.sizes) and "batch" not in made.sizes
    made = measured.workloads_of(artifact("mha_prefill", "MhaConfigV2"))
    assert parse_sizes(["seq_len=3", "num_keys=5,6"], made.sizes, made.lists) == {
        "seq_len": 3, "num_keys": [5, 6]
    }  # fmt: skip


def test_a_machine_without_a_gpu_is_told() -> None:
    try:
        import torch
    except ModuleNotFoundError:
        with pytest.raises(MissingError, match="torch, which is not installed"):
            measured.device("sm_90a")
    else:
        if torch.cuda.is_available():
            pytest.skip("here is a GPU")
        with pytest.raises(MissingError, match="torch finds none"):
            measured.device("sm_90a")


@pytest.mark.parametrize(
    ("hip", "found", "there"),
    [
        ("7.2", "gfx950:sramecc+:xnack-", "gfx950"),
        ("7.2", "gfx942", "gfx942"),
        (None, "", "sm_90a"),
    ],
)
def test_the_gpu_must_be_of_the_target(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, found: str, there: str
) -> None:
    properties = SimpleNamespace(
        name="a GPU", gcnArchName=found, major=9, minor=0, multi_processor_count=132
    )
    cuda = SimpleNamespace(
        is_available=lambda: True, get_device_properties=lambda number: properties
    )
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip))
    monkeypatch.setitem(sys.modules, "torch", torch)
    for target in ("gfx950", "sm_90a"):
        if target == there:
            assert measured.device(target) == {"name": "a GPU", "units": 132}
        else:
            with pytest.raises(MissingError, match=f"torch finds a {there}, a GPU"):
                measured.device(target)
