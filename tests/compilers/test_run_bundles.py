"""The script that runs bundles on a GPU, on a driver that is played: memory is the host's, and the
kernel is a Python function. That it launches on a real one, a GPU shows."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from compare_bits import compared
from judging import Bundle, judged, passed
from run_bundles import Runner

LAUNCH = """
kernel = "add"
grid = [2, 1, 1]
block = [32, 1, 1]
cluster = [2, 1, 1]
dynamic_shared = 64

[buffers]
x = { file = "x.npy", dtype = "f32", shape = [4] }
out = { file = "out.npy", dtype = "bf16", shape = [4], output = "out.out.npy" }
scratch = { bytes = 16 }

[[arguments]]
name = "add_param_0"
buffer = "x"

[[arguments]]
name = "add_param_1"
buffer = "out"

[[arguments]]
name = "add_param_2"
type = "i32"
value = -7

[[arguments]]
name = "add_param_3"
tensor_map = "x"

[[tensor_maps]]
name = "x"
buffer = "x"
dtype = "f32"
dims = [2, 2]
strides = [16]
box = [2, 2]
element_strides = [1, 1]
interleave = "none"
swizzle = "none"
l2 = "128B"
fill = "nan"
"""

Kernel = Callable[[SimpleNamespace, list[int]], None]  # of the launch and each argument's place


class PlayedDriver:
    """Answers the calls that a launch makes."""

    def __init__(self, kernel: Kernel) -> None:
        self.api, self.kernel = MagicMock(), kernel
        self.api.CUlaunchConfig = self.api.CUlaunchAttribute = self._value
        self.api.cuuint64_t = self.api.cuuint32_t = int
        self.memory: dict[int, Any] = {}
        self.map = ctypes.create_string_buffer(bytes(range(128)), 128)
        self.encoded: tuple[Any, ...] = ()

    @staticmethod
    def _value() -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()), attrs=[])

    @contextmanager
    def current(self, device: Any) -> Iterator[None]:
        yield

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "cuMemAlloc":
            memory = ctypes.create_string_buffer(arguments[0])
            self.memory[ctypes.addressof(memory)] = memory
            return ctypes.addressof(memory)
        if name in ("cuMemcpyHtoD", "cuMemcpyDtoH"):
            return ctypes.memmove(*arguments)
        if name == "cuTensorMapEncodeTiled":
            self.encoded = arguments
            return SimpleNamespace(getPtr=lambda: ctypes.addressof(self.map))
        if name == "cuLaunchKernelEx":
            config, _, held, _ = arguments
            self.kernel(config, list((ctypes.c_void_p * 4).from_address(held)))
        return 0


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    (tmp_path / "launch.toml").write_text(LAUNCH)
    (tmp_path / "kernel.cubin").write_bytes(b"")
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    np.save(tmp_path / "out.npy", np.zeros(4, np.uint16))
    np.save(tmp_path / "out.expected.npy", np.array([0.0, 1, np.nan, 3]))
    np.save(tmp_path / "out.bound.npy", np.array([0.0, 0.5, 0, 0]))
    about = {"name": "add", "outputs": ["out"], "bits_defined": True}
    (tmp_path / "case.json").write_text(json.dumps(about))
    return Bundle.read(tmp_path)


def _writes(*words: int) -> Kernel:
    def kernel(config: SimpleNamespace, places: list[int]) -> None:
        out = ctypes.c_uint64.from_address(places[1]).value
        ctypes.memmove(out, np.array(words, np.uint16).tobytes(), 8)

    return kernel


def test_arguments_and_the_map_reach_the_kernel(bundle: Bundle) -> None:
    seen: dict[str, Any] = {}

    def kernel(config: SimpleNamespace, places: list[int]) -> None:
        x = ctypes.c_uint64.from_address(places[0]).value
        seen["x"] = list((ctypes.c_float * 4).from_address(x))
        seen["scalar"] = ctypes.c_int32.from_address(places[2]).value
        seen["map"] = ctypes.string_at(places[3], 128)
        seen["aligned"] = places[3] % 64
        seen["launch"] = (config.gridDimX, config.blockDimX, config.sharedMemBytes)
        seen["cluster"] = config.attrs[0].value.clusterDim.x

    driver = PlayedDriver(kernel)
    Runner(driver, None).run(bundle)
    assert seen["x"] == [0, 1, 2, 3] and seen["scalar"] == -7
    assert seen["map"] == bytes(range(128)) and seen["aligned"] == 0
    assert seen["launch"] == (2, 32, 64) and seen["cluster"] == 2
    assert driver.encoded[1] == 2 and driver.encoded[3:7] == ([2, 2], [16], [2, 2], [1, 1])


@pytest.mark.parametrize(
    ("runs", "good"),
    [
        (((0, 0x3F80, 0x7FC0, 0x4040), (0, 0x3F80, 0x7FC0, 0x4040)), True),
        (((0, 0x3FA0, 0x7FC0, 0x4040), (0, 0x3FA0, 0x7FC0, 0x4040)), True),  # 1.25, within a half
        (((0, 0x3F80, 0x7FC0, 0x4040), (0, 0x3FA0, 0x7FC0, 0x4040)), False),  # other bits
        (((0, 0x4000, 0x7FC0, 0x4040), (0, 0x4000, 0x7FC0, 0x4040)), False),  # 2 for 1
        (((0, 0x3F80, 0x0000, 0x4040), (0, 0x3F80, 0x0000, 0x4040)), False),  # 0 for NaN
        (((0, 0x3F80, 0x7FC0, 0x7FC0), (0, 0x3F80, 0x7FC0, 0x7FC0)), False),  # NaN for 3
    ],
)
def test_results_are_judged(bundle: Bundle, runs: tuple[tuple[int, ...], ...], good: bool) -> None:
    got = [Runner(PlayedDriver(_writes(*words)), None).run(bundle) for words in runs]
    assert passed(judged(bundle, got)) is good


def test_bits_may_differ_where_they_are_not_defined(bundle: Bundle) -> None:
    bundle.about["bits_defined"] = False
    runs = ((0, 0x3F80, 0x7FC0, 0x4040), (0, 0x3FA0, 0x7FC0, 0x4040))
    got = [Runner(PlayedDriver(_writes(*words)), None).run(bundle) for words in runs]
    report = judged(bundle, got)
    assert passed(report) and report["outputs"]["out"]["same_bits"] == 1


@pytest.mark.parametrize(
    ("defined", "words", "good", "differ"),
    [
        (True, (0, 0x3F80, 0x7FC0, 0x4040), True, 0),
        (True, (0, 0x3F81, 0x7FC0, 0x4040), False, 1),
        (True, (0, 0x3F80, 0x7FC1, 0x4040), False, 1),  # another NaN
        (False, (0, 0x3F81, 0x7FC1, 0x4040), True, 2),
        (False, (0, 0x3FD0, 0x7FC0, 0x4040), False, 1),  # 1.625: out of the bound
    ],
)
def test_two_sides_are_compared(
    bundle: Bundle, defined: bool, words: tuple[int, ...], good: bool, differ: int
) -> None:
    bundle.about["bits_defined"] = defined
    key = f"{bundle.folder.name}/out"
    one = {key: np.array([0, 0x3F80, 0x7FC0, 0x4040], np.uint16)}
    for sides in (
        (one, {key: np.array(words, np.uint16)}),
        ({key: np.array(words, np.uint16)}, one),
    ):
        agree, found = compared(bundle, *sides)
        assert (agree, found["out"]["differ"]) == (good, differ)
