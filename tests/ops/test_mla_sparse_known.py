"""Sparse calls that are like earlier ones, on a driver that only writes down what it is told."""

from __future__ import annotations

import struct
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sparse_calls import artifact

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

from fake_cuda import FakeApi, TorchTensor

from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.launch import CudaLauncher
from mlagen.launch.cuda_driver import CudaDriver

PLACES = count(1 << 20, 1 << 20)
LAUNCHING = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuLaunchKernelEx"}


class Tensor(TorchTensor):
    """What calls ask besides."""

    def __init__(self, shape: Any, dtype: str, pointer: int | None = None, **more: Any) -> None:
        super().__init__(tuple(shape), dtype, next(PLACES) if pointer is None else pointer, **more)

    def get_device(self) -> int:
        return int(self.device.index)

    def is_contiguous(self) -> bool:
        return self.strides == Tensor(self.shape, "x", 0).strides

    def element_size(self) -> int:
        return {"torch.bfloat16": 2}.get(self.dtype, 4)

    def as_strided(self, shape: Any, _strides: Any) -> Tensor:
        return Tensor(shape, self.dtype.removeprefix("torch."), self.pointer)

    def new_empty(self, shape: Any, dtype: Any = None) -> Tensor:
        return Tensor(shape, dtype)


class Memory:
    def upload(self, array: Any) -> Tensor:
        return Tensor(array.shape, str(array.dtype))

    def empty(self, shape: Any, dtype: str) -> Tensor:
        return Tensor(shape, "float32")

    def write(self, tensor: Any, array: Any) -> None:
        raise AssertionError("nothing is written anew")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    torch = SimpleNamespace(Tensor=Tensor, float32="float32", bfloat16="bfloat16")
    torch.stream = 5
    stream = lambda device: SimpleNamespace(cuda_stream=torch.stream)  # noqa: E731
    torch.cuda = SimpleNamespace(current_stream=stream)
    torch.empty = lambda shape, dtype, device: Tensor(shape, dtype)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return FakeApi()


def made(api: FakeApi, which: str, **more: Any) -> Any:
    own = artifact(f"mla_sparse_{which}_sm90", {"num_heads": 8, **more})
    api.parameters = tuple(arg.size for arg in own.manifest.args)
    launcher = CudaLauncher()
    launcher.driver = CudaDriver.start(api)
    kernel = sparse_kernel(own, launcher)
    kernel._memory, kernel._own_sms = Memory(), 132
    return kernel


def given(**changes: Any) -> dict[str, Any]:
    tensors = {
        "q": Tensor((3, 8, 576), "bfloat16"),
        "cache": Tensor((9, 64, 576), "bfloat16"),
        "indices": Tensor((3, 70), "int32"),
    }
    return {**tensors, "scale": 0.25, **changes}


def told(kernel: Any, api: FakeApi) -> dict[str, Any]:
    """What the last launch was told of pointers and whole numbers."""
    found = {}
    for arg, data in zip(kernel.artifact.manifest.args, api.launches[-1]["arguments"], strict=True):
        if arg.size in (4, 8):
            found[arg.name] = struct.unpack("<Q" if arg.size == 8 else "<I", data)[0]
    return found


def test_the_second_call_only_launches(api: FakeApi) -> None:
    kernel, tensors = made(api, "prefill"), given()
    first = kernel(**tensors)
    before = api.launches[-1]["arguments"]
    api.calls.clear()
    names = ("out", "lse", "max_logits")
    second = kernel(**tensors, **dict(zip(names, first, strict=True)))
    assert second == first and len(api.launches) == 2
    api.calls.clear()
    kernel(**tensors, **dict(zip(names, first, strict=True)))
    assert set(api.calls) <= LAUNCHING and api.launches[-1]["arguments"] == before
    third = kernel(**tensors)
    assert third[0].pointer != first[0].pointer and len({x.pointer for x in third}) == 3
    values = told(kernel, api)
    assert (values["o"], values["lse"], values["max_logits"]) == tuple(x.pointer for x in third)
    assert values["indices"] == tensors["indices"].pointer


def test_other_layouts_are_other_calls(api: FakeApi) -> None:
    """At the very place of a tensor that was right."""
    kernel, tensors = made(api, "prefill"), given()
    outputs = dict(zip(("out", "lse", "max_logits"), kernel(**tensors), strict=True))
    lists, cache = tensors["indices"], tensors["cache"]
    for change, name, value in (
        ({"indices": Tensor((3, 70), "int32", lists.pointer, strides=(90, 1))}, "list_stride", 90),
        ({"cache": Tensor((9, 64, 576), "bfloat16", cache.pointer, strides=(40960, 640, 1))},
         "row_bytes", 1280),
        ({"cache": Tensor((5, 64, 576), "bfloat16", cache.pointer)}, "cache_rows", 320),
        ({"indices": Tensor((3, 40), "int32", lists.pointer)}, "topk", 40),
        ({"empty_lse": "+inf"}, "empty_lse", 0x7F800000),
        ({}, "list_stride", 70),
    ):  # fmt: skip
        for _ in range(2):
            kernel(**{**tensors, **outputs, **change})
            assert told(kernel, api)[name] == value
    launches = len(api.launches)
    for change, words in (
        ({"q": Tensor((3, 8, 576), "bfloat16", tensors["q"].pointer, strides=(5120, 640, 1))},
         "q is not contiguous"),
        ({"indices": Tensor((3, 70), "int64", lists.pointer)}, "int64"),
        ({"indices": Tensor((3, 70), "int32", lists.pointer, device=1)}, "GPU 1"),
        ({"cache": Tensor((9, 64, 575), "bfloat16", cache.pointer)}, "cache has shape"),
        ({"sink": Tensor((8,), "float32", is_cuda=False)}, "sink is a torch tensor in the host"),
        ({"cache": Tensor((9, 64, 576), "bfloat16", cache.pointer + 8)}, "multiple of 16 bytes"),
    ):  # fmt: skip
        for _ in range(2):
            with pytest.raises(ConfigError, match=words):
                kernel(**{**tensors, **outputs, **change})
    assert len(api.launches) == launches


def test_a_prepared_call(api: FakeApi) -> None:
    kernel, tensors = made(api, "prefill"), given()
    prepared = kernel.prepare(**tensors)
    assert not api.launches
    api.calls.clear()
    for _ in range(2):
        prepared()
    assert set(api.calls) <= LAUNCHING and len(api.launches) == 2
    assert told(kernel, api)["max_logits"] == prepared.max_logits.pointer


def test_calls_of_one_stream_share_their_room(api: FakeApi) -> None:
    kernel = made(api, "decode", q_len=1)
    tensors = given(q=Tensor((3, 1, 8, 576), "bfloat16"), indices=Tensor((3, 1, 70), "int32"))
    rooms = []
    for stream in (5, 5, 6, 5):
        sys.modules["torch"].stream = stream  # type: ignore[attr-defined]
        kernel(**tensors)
        assert api.launches[-1]["stream"] == stream
        rooms.append(told(kernel, api)["partial_o"])
    assert rooms[0] == rooms[1] == rooms[3] != rooms[2]
