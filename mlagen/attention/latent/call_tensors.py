"""What a call over latent rows asks of its tensors, and how it makes its own."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.launch.device_tensor import beside, is_torch
from mlagen.launch.lifetimes import HELD
from mlagen.problem.arrays import check_shape
from mlagen.problem.formats import ELEMENT_TYPES

# What tensors call the types that the kernel takes (torch's names carry a prefix more).
TYPE_NAMES = {
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "int32": "int32",
    "fp32": "float32",
}
# TMA coordinates are signed 32-bit numbers (PTX ISA, cp.async.bulk.tensor).
MAX_ROWS = 2**31


class Memory(Protocol):
    """Where a plan's own tensors come from.

    torch's tensors are told of each stream that uses them (`record_stream`), whoever made them; of
    another library's the memory itself sees to it that the GPU is done with what it gives away.
    """

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A tensor on the GPU with this content, int32, fp32 or bf16, there when this returns."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor on the GPU with any content; `dtype` as in `TYPE_NAMES`."""
        ...

    def write(self, tensor: Any, array: npt.NDArray[np.int32]) -> None:
        """New content for a tensor of `upload`, in the current stream."""
        ...


class TorchMemory:
    """Memory of a GPU through torch."""

    def __init__(self, device: Any) -> None:
        if "torch" not in sys.modules:
            raise ConfigError(
                "a plan's tensors are made by torch, which is not imported",
                hint="import torch, or hand the kernel a `memory` of your own",
            )
        self.torch, self.device = sys.modules["torch"], device

    def upload(self, array: npt.NDArray[Any]) -> Any:
        if self.torch.cuda.is_current_stream_capturing():
            raise ConfigError(
                "the first call of a shape makes tensors, which a graph cannot capture",
                hint="call once before the capture, as a warm-up",
            )
        HELD.sweep()
        if array.dtype == ELEMENT_TYPES["bf16"]:  # torch takes no such array, but its bits
            bits = self.torch.from_numpy(array.view(np.int16)).to(self.device)
            return bits.view(self.torch.bfloat16)
        return self.torch.from_numpy(array.copy()).to(self.device)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        made = getattr(self.torch, TYPE_NAMES[dtype])
        return self.torch.empty(shape, dtype=made, device=self.device)

    def write(self, tensor: Any, array: npt.NDArray[np.int32]) -> None:
        tensor.copy_(self.torch.from_numpy(array.copy()))


class HostMemory:
    """Arrays of the host, for calls that are emulated."""

    def upload(self, array: npt.NDArray[Any]) -> Any:
        return array.copy()

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """NaN: what nobody has written shows in the result."""
        return np.full(shape, np.nan, ELEMENT_TYPES[dtype])

    def write(self, tensor: Any, array: npt.NDArray[np.int32]) -> None:
        tensor[...] = array


class Workspace:
    """Memory whose empty tensors are the same at every request: for what lives no longer than one
    call. They grow; what they were stays, as a captured graph may know it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._held: dict[Any, list[Any]] = {}

    def upload(self, array: npt.NDArray[Any]) -> Any:
        return self.memory.upload(array)

    def write(self, tensor: Any, array: npt.NDArray[np.int32]) -> None:
        self.memory.write(tensor, array)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor of at least so many rows."""
        held = self._held.setdefault((shape[1:], dtype), [])
        have = int(held[-1].shape[0]) if held else 0
        if have < shape[0]:
            rows = max(shape[0], 2 * have)
            held.append(self.memory.empty((rows, *shape[1:]), dtype))
        return held[-1]


def check(name: str, tensor: Any, shape: tuple[int | None, ...], dtype: str) -> None:
    """Raises ConfigError for another dtype or shape. The launcher checks place and layout."""
    given = str(tensor.dtype).removeprefix("torch.")
    if given != TYPE_NAMES[dtype]:
        raise ConfigError(f"{name} has dtype {given}, the kernel wants {TYPE_NAMES[dtype]}")
    check_shape(name, tuple(int(extent) for extent in tensor.shape), shape)


def check_rows(name: str, extent: int, rows: int) -> None:
    """Raises ConfigError for more rows than coordinates reach: `extent` times `rows` of them."""
    if extent * rows > MAX_ROWS:
        raise ConfigError(
            f"{name} has {extent * rows} rows; TMA coordinates reach {MAX_ROWS} of them",
            hint=f"its first extent is at most {MAX_ROWS // rows}",
        )


def made(name: str, like: Any, shape: tuple[int | None, ...], dtype: str) -> Any:
    """A new tensor beside `like`; an array of the host holds NaN."""
    if isinstance(like, np.ndarray):
        return np.full(shape, np.nan, ELEMENT_TYPES[dtype])
    return beside(name, like, shape, TYPE_NAMES[dtype])


def own_tensors(tensors: Mapping[str, Any], theirs: Iterable[Any]) -> list[Any]:
    """What a launch takes besides its call's own tensors, `theirs`: plans, tables, workspaces."""
    known = {id(tensor) for tensor in theirs}
    return [tensor for tensor in tensors.values() if id(tensor) not in known]


def overlap(one: Any, other: Any) -> bool:
    """Whether two tensors share memory, as far as their makers say where they are."""
    spans = _span(one), _span(other)
    if spans[0] is None or spans[1] is None:
        return False
    return spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]


def _span(tensor: Any) -> tuple[int, int] | None:
    """First and last address of a contiguous tensor; None where its maker does not say."""
    if is_torch(tensor):
        start, size = tensor.data_ptr(), tensor.element_size()
    elif isinstance(tensor, np.ndarray):
        start, size = tensor.ctypes.data, tensor.itemsize
    elif hasattr(tensor, "__cuda_array_interface__"):
        interface = tensor.__cuda_array_interface__
        start, size = int(interface["data"][0] or 0), int(interface["typestr"][2:])
    else:
        return None
    return start, start + math.prod(int(extent) for extent in tensor.shape) * size - 1


def as_host(name: str, values: Any) -> Any:
    """Numbers that the host looks at: lists and arrays as they are, tensors copied."""
    return values if isinstance(values, list | tuple | np.ndarray) else on_host(name, values)


def on_host(name: str, tensor: Any) -> npt.NDArray[Any]:
    """A copy in the host's memory; waits for the GPU."""
    if is_torch(tensor):
        return np.asarray(tensor.cpu().numpy())
    if hasattr(tensor, "get"):  # CuPy
        return np.asarray(tensor.get())
    raise ConfigError(
        f"{name} is a {type(tensor).__name__}, which mlagen cannot copy to the host",
        hint="torch or CuPy tensors",
    )
