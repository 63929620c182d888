"""A CUDA driver that launches nothing and writes down what it was asked, and tensors for it.

It answers like `cuda.bindings.driver` for the calls that the launcher makes.
"""

from __future__ import annotations

import ctypes
import enum
from types import SimpleNamespace
from typing import Any

import numpy as np

CUBIN_PARAMETERS = (128, 8, 8, 4, 4, 4)  # of tma_kernel


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209


OK = CUresult.CUDA_SUCCESS


def names(*given: str) -> SimpleNamespace:
    return SimpleNamespace(**{name: name for name in given})


class FakeApi:
    """`capability` and `version` of the machine; `fails` maps a call to the status it answers."""

    CUresult = CUresult
    CUdevice_attribute = names(
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    )
    CUpointer_attribute = names("CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")
    CUfunction_attribute = names(
        "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
        "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES",
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
    )
    CUtensorMapDataType = names("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", "CU_TENSOR_MAP_DATA_TYPE_UINT8")
    CUtensorMapInterleave = names("CU_TENSOR_MAP_INTERLEAVE_NONE")
    CUtensorMapSwizzle = names("CU_TENSOR_MAP_SWIZZLE_NONE", "CU_TENSOR_MAP_SWIZZLE_128B")
    CUtensorMapL2promotion = names("CU_TENSOR_MAP_L2_PROMOTION_L2_128B")
    CUtensorMapFloatOOBfill = names("CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE")
    CUlaunchAttributeID = names("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION")
    CUlaunchConfig = SimpleNamespace
    cuuint32_t = cuuint64_t = int

    @staticmethod
    def CUlaunchAttribute() -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace())

    def __init__(
        self,
        *,
        capability: tuple[int, int] = (9, 0),
        version: int = 13000,
        devices: int = 2,
        **fails: CUresult,
    ) -> None:
        self.capability, self.version, self.devices, self.fails = (
            capability,
            version,
            devices,
            fails,
        )
        self.calls: list[str] = []
        self.maps: list[tuple[Any, ...]] = []
        self.launches: list[dict[str, Any]] = []
        self.smem: list[int] = []
        self.contexts = [0]  # the stack of current ones
        self.kept: list[Any] = []
        self.parameters = CUBIN_PARAMETERS

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("cu") and callable(found) and not isinstance(found, type):
            self.calls.append(name)
            if status := self.fails.get(name):
                alone = name in ("cuInit", "cuLaunchKernelEx")
                return lambda *_: (status, None)[: 1 if alone else 2]
        return found

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, self.version

    def cuDeviceGetCount(self) -> Any:
        return OK, self.devices

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return OK, b"NVIDIA Fake\0\0\0"

    def cuDeviceGetAttribute(self, attribute: str, device: int) -> Any:
        if attribute.endswith("MAJOR"):
            return OK, self.capability[0]
        return OK, self.capability[1] if attribute.endswith("MINOR") else 232448

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return OK, 1000 + device

    def cuCtxGetCurrent(self) -> Any:
        return OK, self.contexts[-1]

    def cuCtxPushCurrent(self, context: int) -> Any:
        self.contexts.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> Any:
        return OK, self.contexts.pop()

    def cuModuleLoadData(self, code: bytes) -> Any:
        return OK, ("module", code)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        return OK, (module, name)

    def cuFuncGetAttribute(self, attribute: str, function: Any) -> Any:
        return OK, 512 if attribute.endswith("BLOCK") else 0

    def cuFuncGetParamInfo(self, function: Any, index: int) -> Any:
        if index >= len(self.parameters):
            return CUresult.CUDA_ERROR_INVALID_VALUE, 0, 0
        return OK, 48, self.parameters[index]

    def cuFuncSetAttribute(self, function: Any, attribute: str, value: int) -> Any:
        self.smem.append(value)
        return (OK,)

    def cuPointerGetAttribute(self, attribute: str, pointer: int) -> Any:
        return OK, pointer >> 40  # a GPU's memory begins at its number times a terabyte

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> Any:
        self.maps.append(arguments)
        data = ctypes.create_string_buffer(bytes([len(self.maps)]) * 128, 128)
        self.kept.append(data)
        return OK, SimpleNamespace(getPtr=lambda: ctypes.addressof(data))

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, _: Any) -> Any:
        pointers = (ctypes.c_void_p * len(self.parameters)).from_address(parameters)
        self.launches.append(
            {
                "grid": (config.gridDimX, config.gridDimY, config.gridDimZ),
                "block": (config.blockDimX, config.blockDimY, config.blockDimZ),
                "smem": config.sharedMemBytes,
                "stream": config.hStream,
                "attributes": config.attrs[: config.numAttrs] if config.numAttrs else [],
                "context": self.contexts[-1],
                "aligned": pointers[0] % 64 == 0,
                "arguments": [
                    ctypes.string_at(pointer, size)
                    for pointer, size in zip(pointers, self.parameters, strict=True)
                ],
            }
        )
        return (OK,)

    def cuGetErrorString(self, status: Any) -> Any:
        return OK, b"the driver's own words"


class Interface:
    """A tensor of a library with the CUDA array interface."""

    def __init__(self, shape: tuple[int, ...], typestr: str, pointer: int, **more: Any) -> None:
        self.described = {
            "shape": shape,
            "typestr": typestr,
            "data": (pointer, more.pop("read_only", False)),
            "version": 3,
            **more,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.described


class DLPack:
    """A tensor of a library with DLPack alone; its memory is the host's, which nobody reads."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (2, 0)) -> None:
        self.array, self.device = array, device
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        assert stream is not None
        self.streams.append(stream)
        return self.array.__dlpack__()


class TorchTensor:
    """What the launcher asks of a torch tensor."""

    def __init__(self, shape: tuple[int, ...], dtype: str, pointer: int, **more: Any) -> None:
        self.shape, self.dtype, self.pointer = shape, f"torch.{dtype}", pointer
        self.is_cuda = more.get("is_cuda", True)
        self.device = SimpleNamespace(index=more.get("device", 0))
        strides = [1]
        for extent in reversed(shape[1:]):
            strides.insert(0, strides[0] * extent)
        self.strides = more.get("strides", tuple(strides))

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def data_ptr(self) -> int:
        return self.pointer
