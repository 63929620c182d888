"""A torch over numpy: what operators and compat functions ask of it, and tensors of a GPU whose
memory is the host's. Launches of them are emulated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlagen.launch import EmulatedLauncher
from mlagen.launch_findings import findings_of

DTYPES = {
    "torch.bfloat16": np.dtype(ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "torch.float32": np.dtype(np.float32),
    "torch.int32": np.dtype(np.int32),
    "torch.int64": np.dtype(np.int64),
    "torch.int16": np.dtype(np.int16),
    "torch.uint8": np.dtype(np.uint8),
}
NAMES = {own: name for name, own in DTYPES.items()}
MODULES = (
    "mlagen.ops.gpu_kernel",
    "mlagen.ops.torch_registration",
    "mlagen.compat.flash_mla", "mlagen.compat.flash_mla_sparse",
    "mlagen.ops.torch_sparse", "mlagen.ops.torch_decode",
)  # fmt: skip


class Tensor:
    """A GPU's tensor, but for where it is."""

    is_cuda = True

    def __init__(self, array: Any, device: int = 0) -> None:
        self.array, self.device = array, SimpleNamespace(index=device)

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: NAMES[self.array.dtype])

    def stride(self) -> tuple[int, ...]:
        return tuple(n // self.array.itemsize for n in self.array.strides)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def contiguous(self) -> Tensor:
        return self if self.is_contiguous() else Tensor(np.ascontiguousarray(self.array))

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def element_size(self) -> int:
        return int(self.array.itemsize)

    def get_device(self) -> int:
        return int(self.device.index)

    def dim(self) -> int:
        return int(self.array.ndim)

    def as_strided(self, shape: Any, strides: Any) -> Tensor:
        size = self.array.itemsize
        made = np.lib.stride_tricks.as_strided(self.array, shape, [n * size for n in strides])
        return Tensor(made)

    def view(self, dtype: str) -> Tensor:
        return Tensor(self.array.view(DTYPES[dtype]))

    def reshape(self, shape: Any) -> Tensor:
        return Tensor(self.array.reshape(shape))

    def __getitem__(self, at: Any) -> Tensor:
        return Tensor(self.array[at])

    def new_empty(self, shape: Any, dtype: Any = None) -> Tensor:
        return empty(shape, dtype or self.dtype)

    def to(self, _device: Any) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.array.copy()


def empty(shape: Any, dtype: str, device: Any = None) -> Tensor:
    """Bytes of all ones: NaN."""
    size = DTYPES[dtype].itemsize
    ones = np.full((*shape[:-1], shape[-1] * size), 0xFF, np.uint8)
    return Tensor(ones.view(DTYPES[dtype]))


def from_numpy(array: Any) -> Tensor:
    """As torch's: of numpy's own types alone."""
    if array.dtype.kind == "V":
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}")
    return Tensor(array)


class Emulating:
    """A launcher of such tensors. `calls`: kernels that it launched, their scalars and sizes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], dict[str, int]]] = []

    def launch(self, artifact: Any, *, tensors: Any, scalars: Any, sizes: Any) -> Any:
        self.calls.append((artifact.manifest.kernel, dict(scalars), dict(sizes)))
        arrays = {name: tensor.array for name, tensor in tensors.items()}
        report = EmulatedLauncher().launch(artifact, tensors=arrays, scalars=scalars, sizes=sizes)
        assert not findings_of(artifact, report)
        return report


class Library:
    def __init__(self, name: str, _kind: str) -> None:
        self.name, self.schemas = name, {}

    def define(self, schema: str, tags: Any) -> None:
        self.schemas[schema.partition("(")[0]] = schema

    def impl(self, name: str, function: Any, key: str) -> None:
        assert key == "CUDA" and name in self.schemas
        setattr(sys.modules["torch"].ops.mlagen, name, SimpleNamespace(default=function))


def made() -> Any:
    """The module."""
    torch = SimpleNamespace(
        Tensor=Tensor, empty=empty, from_numpy=from_numpy, fakes={},
        ops=SimpleNamespace(mlagen=SimpleNamespace()), Tag=SimpleNamespace(pt2_compliant_tag=0),
        **{name.removeprefix("torch."): name for name in DTYPES},
    )  # fmt: skip
    torch.cuda = SimpleNamespace(
        is_current_stream_capturing=lambda: torch.capturing,
        current_stream=lambda device: SimpleNamespace(cuda_stream=7),
        get_device_properties=lambda device: SimpleNamespace(multi_processor_count=torch.sms),
        get_device_capability=lambda device: torch.capability,
        get_device_name=lambda device: "NVIDIA Fake",
    )
    torch.capturing, torch.sms, torch.capability = False, 1, (9, 0)
    torch.library = SimpleNamespace(
        Library=Library, register_fake=lambda name, fake, lib: torch.fakes.update({name: fake})
    )
    return torch


@contextmanager
def installed() -> Iterator[Any]:
    """The module as `torch`; modules that import it are imported anew, and gone afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        torch = made()
        patch.setitem(sys.modules, "torch", torch)
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        try:
            yield torch
        finally:
            for name in MODULES:
                package, _, own = name.rpartition(".")
                if sys.modules.pop(name, None) is not None:
                    vars(sys.modules[package]).pop(own, None)
