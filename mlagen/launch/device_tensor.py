"""Tensors that live on a GPU, whoever made them: where they are, what they hold, how they lie.

torch's tensors are read directly; everything else through `__cuda_array_interface__` or DLPack.
Nothing is copied and no framework is imported.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mlagen.errors import ConfigError

Platform = Literal["CUDA", "ROCm"]

# DLPack's device types and type codes (dlpack.h, version 1.1).
_DL_PLATFORMS: dict[int, Platform] = {2: "CUDA", 13: "CUDA", 10: "ROCm"}  # 13: managed memory
_DL_TYPES = {
    (0, 8): "int8",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 32): "uint32",
    (2, 16): "fp16",
    (2, 32): "fp32",
    (4, 16): "bf16",
    (10, 8): "fp8_e4m3",
    (12, 8): "fp8_e5m2",
}
# Names of torch and typestr codes of the array interface; a type not named here keeps its own name.
_NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "<f2": "fp16",
    "<f4": "fp32",
    "|u1": "uint8",
    "|i1": "int8",
    "<i4": "int32",
    "<u4": "uint32",
    "<i8": "int64",
}


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor in GPU memory. `strides` are in elements; `owner` keeps the memory alive."""

    name: str
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int | None  # None: its maker does not say, the driver knows
    writable: bool
    owner: Any

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether it is row-major without gaps; extents of 1 may have any stride."""
        return all(
            extent == 1 or stride == expected
            for extent, stride, expected in zip(
                self.shape, self.strides, row_major(self.shape), strict=True
            )
        )


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a C-contiguous tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_torch(value: Any) -> bool:
    """Whether it is a torch tensor; torch is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def platform_of(value: Any) -> Platform | Literal[""]:
    """Whose GPU holds the tensor; "" for what is no such tensor or does not say it.

    The array interface is named after CUDA, but libraries on ROCm offer it too: it says nothing.
    """
    if is_torch(value):
        if not value.is_cuda:
            return ""
        # ROCm's torch calls its GPUs "cuda" as well.
        version = getattr(sys.modules["torch"], "version", None)
        return "ROCm" if getattr(version, "hip", None) else "CUDA"
    if hasattr(value, "__dlpack_device__"):
        return _DL_PLATFORMS.get(int(value.__dlpack_device__()[0]), "")
    return ""


def is_on_gpu(value: Any) -> bool:
    """Whether it is a tensor in GPU memory: one that a launcher of a GPU takes."""
    if is_torch(value):
        return bool(value.is_cuda)
    return hasattr(value, "__cuda_array_interface__") or bool(platform_of(value))


def on_the_host(tensors: dict[str, Any]) -> bool:
    """Whether a call's tensors are arrays of the host, which are emulated.

    Raises ConfigError for what is no tensor, for torch's tensors in the host's memory, and for
    tensors of both places.
    """
    arrays: dict[bool, str] = {}  # a name of each place
    for name, tensor in tensors.items():
        if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
            raise ConfigError(f"{name} is a {type(tensor).__name__}, no tensor")
        if is_torch(tensor) and not tensor.is_cuda:
            raise ConfigError(
                f"{name} is a torch tensor in the host's memory",
                hint="tensor.to('cuda') is launched; numpy arrays, all of them, are emulated",
            )
        if isinstance(tensor, np.ma.MaskedArray):
            raise ConfigError(
                f"{name} is a masked array, whose mask no kernel sees", hint=f"{name}.filled(..)"
            )
        arrays.setdefault(isinstance(tensor, np.ndarray), name)
    if len(arrays) == 2:
        raise ConfigError(
            f"{arrays[True]} lies in the host's memory and {arrays[False]} on a GPU",
            hint="tensors of one GPU are launched; numpy arrays, all of them, are emulated",
        )
    return True in arrays


def beside(name: str, like: Any, shape: tuple[int | None, ...], dtype: str) -> Any:
    """A new torch tensor on the GPU of `like`, with any content; `dtype` as torch calls it.
    ConfigError: `like` is another library's."""
    if not is_torch(like):
        raise ConfigError(
            f"{name} is not given, and mlagen cannot make a {type(like).__module__} tensor",
            hint=f"pass {name}= of shape {shape} and dtype {dtype}",
        )
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)


def device_tensor(name: str, value: Any, stream: int) -> DeviceTensor:
    """`value` as a tensor on a GPU, ready to be used in `stream` (a stream's handle; -1: not to be
    used, only looked at).

    Raises ConfigError for what is no tensor, and for one in the host's memory.
    """
    if not is_on_gpu(value):
        where = "in the host's memory" if _is_tensor(value) else f"a {type(value).__name__}"
        raise ConfigError(
            f"{name} is {where}; a GPU kernel takes tensors of its device",
            hint="torch tensors: tensor.to('cuda')",
        )
    if is_torch(value):
        return DeviceTensor(
            name,
            value.data_ptr(),
            tuple(value.shape),
            tuple(value.stride()),
            _renamed(str(value.dtype).removeprefix("torch.")),
            value.device.index,
            True,
            value,
        )
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface:
        element = _element(name, interface["typestr"])
        # Types that numpy has no code for (bf16) come as bytes without meaning: DLPack names them.
        if element.kind != "V" or not hasattr(value, "__dlpack__"):
            return _from_interface(name, value, interface, element)
    return _from_dlpack(name, value, stream)


def interface_streams(values: Iterable[Any]) -> set[int]:
    """Streams in which tensors become ready, by the array interface; torch's are not asked."""
    found = set()
    for value in values:
        interface = None if is_torch(value) else getattr(value, "__cuda_array_interface__", None)
        if interface and interface.get("stream") is not None:
            found.add(int(interface["stream"]))
    return found


def _is_tensor(value: Any) -> bool:
    return is_torch(value) or hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")


def _renamed(dtype: str) -> str:
    return _NAMES.get(dtype, dtype)


def _element(name: str, typestr: str) -> np.dtype[Any]:
    """The type of an array interface: numpy's codes, and its names, which hip-python writes."""
    try:
        return np.dtype(typestr)
    except TypeError as error:
        raise ConfigError(f"{name} has the type {typestr!r}, which is none of numpy's") from error


def _from_interface(
    name: str, value: Any, interface: dict[str, Any], element: np.dtype[Any]
) -> DeviceTensor:
    shape = tuple(interface["shape"])
    pointer, read_only = interface["data"]
    size = element.itemsize
    strides = interface.get("strides")
    return DeviceTensor(
        name,
        int(pointer or 0),
        shape,
        row_major(shape) if strides is None else tuple(stride // size for stride in strides),
        _renamed(element.str),
        None,
        not read_only,
        value,
    )


class _DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, with device and type spelled out: the head of both managed kinds'
    tensors."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _from_dlpack(name: str, value: Any, stream: int) -> DeviceTensor:
    # The tensor is ready in `stream` afterwards. The array API names CUDA's default stream 1, and
    # ROCm's 0 (`__dlpack__`).
    default = 0 if platform_of(value) == "ROCm" else 1
    capsule = value.__dlpack__(stream=stream or default)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = pointer_of(capsule, b"dltensor")
    tensor = _DLTensor.from_address(address)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[axis] for axis in range(tensor.ndim))
        if tensor.strides
        else row_major(shape)
    )
    code = (tensor.code, tensor.bits)
    known = _DL_TYPES.get(code) if tensor.lanes == 1 else None
    return DeviceTensor(
        name,
        int(tensor.data or 0) + tensor.byte_offset,
        shape,
        strides,
        known or f"DLPack type {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes",
        tensor.device_id,
        True,
        (value, capsule),
    )
