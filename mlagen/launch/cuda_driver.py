"""The CUDA driver through `cuda-bindings`: the few calls a launch needs, errors as exceptions.

Importing this imports no CUDA package; `CudaDriver.load` does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mlagen.artifact import TensorMapSpec
from mlagen.artifact.manifest import TENSOR_MAP_BYTES
from mlagen.errors import MissingError
from mlagen.extras import install
from mlagen.launch.gpu import GpuDevice, GpuDriver
from mlagen.launch.launcher import LaunchFailed
from mlagen.launch.lifetimes import Retain

_TENSOR_TYPES = {
    "bf16": "BFLOAT16",
    "fp16": "FLOAT16",
    "fp32": "FLOAT32",
    "fp8_e4m3": "UINT8",
    "fp8_e5m2": "UINT8",
    "uint8": "UINT8",
    "int8": "UINT8",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class CudaDevice(GpuDevice):
    """One GPU with its primary context: the one that torch and the CUDA runtime use."""

    capability: tuple[int, int]
    smem_bytes: int  # a block may have, static and dynamic
    context: Any


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """One loaded kernel. `parameters`: the bytes of each."""

    handle: Any
    max_threads: int
    static_smem_bytes: int
    parameters: tuple[int, ...]


class CudaDriver(GpuDriver[CudaDevice]):
    """The driver. `api` is `cuda.bindings.driver` or something that answers like it."""

    count = "cuDeviceGetCount"

    def __init__(self, api: ModuleType | Any) -> None:
        super().__init__(api)
        self.version = int(self.call("cuDriverGetVersion"))  # 13000 for CUDA 13.0

    @classmethod
    def load(cls) -> CudaDriver:
        """Initialises the driver. MissingError without the package, the driver or a GPU."""
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise MissingError(
                "launching on an NVIDIA GPU needs the package cuda-bindings",
                hint=install("cuda"),
            ) from error
        return cls.start(driver)

    @classmethod
    def start(cls, api: ModuleType | Any) -> CudaDriver:
        """Initialises the driver of `api`."""
        try:
            (status,) = api.cuInit(0)
        except RuntimeError as error:  # the bindings' own, where libcuda is not there
            raise MissingError(
                "no NVIDIA driver on this machine: libcuda is not there",
                hint="the nvidia-driver package of the system; `mlagen doctor` shows what is there",
            ) from error
        if int(status):
            raise MissingError(
                f"the NVIDIA driver does not start: {status.name}",
                hint="`nvidia-smi` says whether this machine has a working GPU",
            )
        return cls(api)

    @property
    def version_text(self) -> str:
        return f"{self.version // 1000}.{self.version % 1000 // 10}"

    def call(self, name: str, *arguments: Any) -> Any:
        status, *answers = getattr(self.api, name)(*arguments)
        if int(status):
            raise LaunchFailed(f"{name}: {status.name}: {self._words(status)}")
        return answers[0] if len(answers) == 1 else tuple(answers)

    def _device(self, ordinal: int) -> CudaDevice:
        handle = self.call("cuDeviceGet", ordinal)
        name = self.call("cuDeviceGetName", 256, handle)
        attributes = self.api.CUdevice_attribute
        major, minor, smem = (
            int(self.call("cuDeviceGetAttribute", attribute, handle))
            for attribute in (
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )
        )
        context = self.call("cuDevicePrimaryCtxRetain", handle)
        return CudaDevice(ordinal, name.split(b"\0")[0].decode(), (major, minor), smem, context)

    def _ordinal_at(self, pointer: int) -> int:
        which = self.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.call("cuPointerGetAttribute", which, pointer))

    def is_capturing(self, stream: int) -> bool:
        asked = getattr(self.api, "cuStreamIsCapturing", None)
        if asked is None:
            return False
        status, capture = asked(stream)
        return not int(status) and bool(int(capture))

    def capture(self, stream: int) -> tuple[int, Retain]:
        # Status, number, graph; what follows depends on the bindings' version. A graph that is
        # captured may be given user objects (CUDA driver API, cuStreamGetCaptureInfo).
        _, number, graph, *_ = self.call("cuStreamGetCaptureInfo", stream)

        def retain(function: int, place: int) -> None:
            api = self.api
            made = self.call(
                "cuUserObjectCreate", place, api.CUhostFn(function), 1,
                api.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
            )  # fmt: skip
            move = api.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
            self.call("cuGraphRetainUserObject", graph, made, 1, move)

        return int(number), retain

    def load_function(
        self, device: CudaDevice, code: bytes, symbol: str, count: int
    ) -> CudaFunction:
        """Loads a cubin into the device's context and finds its kernel, of `count` parameters."""
        with self.current(device):
            module = self.call("cuModuleLoadData", code)
            handle = self.call("cuModuleGetFunction", module, symbol.encode())
            attributes = self.api.CUfunction_attribute
            threads, smem = (
                int(self.call("cuFuncGetAttribute", attribute, handle))
                for attribute in (
                    attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                    attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                )
            )
            return CudaFunction(handle, threads, smem, self._parameter_bytes(handle, count))

    def allow_smem(self, device: CudaDevice, function: CudaFunction, smem_bytes: int) -> None:
        """Lets the kernel ask for that much dynamic shared memory."""
        attributes = self.api.CUfunction_attribute
        which = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with self.current(device):
            self.call("cuFuncSetAttribute", function.handle, which, smem_bytes)

    def config(self, shape: tuple[int, ...], stream: int, *, dependent: bool) -> Any:
        """A launch of `shape`: grid, block, bytes of shared memory. `dependent`: it may come before
        the end of the kernel ahead of it in the stream."""
        api = self.api
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = shape[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = shape[3:6]
        config.sharedMemBytes, config.hStream = shape[6], stream
        if dependent:
            kinds = api.CUlaunchAttributeID
            attribute = api.CUlaunchAttribute()
            attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        else:
            config.numAttrs = 0
        return config

    def tensor_map(
        self, spec: TensorMapSpec, pointer: int, rows: int, cols: int, pitch_bytes: int
    ) -> bytes:
        """The 128 bytes of a tensor map; rows and cols in elements."""
        api = self.api
        encoded = self.call(
            "cuTensorMapEncodeTiled",
            getattr(
                api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_TYPES[spec.dtype]}"
            ),
            2,
            pointer,
            [api.cuuint64_t(cols), api.cuuint64_t(rows)],
            [api.cuuint64_t(pitch_bytes)],
            [api.cuuint32_t(spec.box_cols), api.cuuint32_t(spec.box_rows)],
            [api.cuuint32_t(1), api.cuuint32_t(1)],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(
                api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[spec.swizzle_bytes]}"
            ),
            # A box's lines are 128 bytes; 256 costs an H200 up to 7 % of its bandwidth.
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES)

    @contextmanager
    def current(self, device: CudaDevice) -> Iterator[None]:
        """A `with` in which the device's context is the thread's current one."""
        pushed = int(self.call("cuCtxGetCurrent")) != int(device.context)
        if pushed:
            self.call("cuCtxPushCurrent", device.context)
        try:
            yield
        finally:
            if pushed:
                self.call("cuCtxPopCurrent")

    def _parameter_bytes(self, handle: Any, count: int) -> tuple[int, ...]:
        """Bytes of the kernel's first `count` parameters, fewer where it has not so many."""
        found: list[int] = []
        for index in range(count):
            # Not asked past the end: compute-sanitizer reports every call that the driver refuses.
            # The offsets it answers are of the constant bank, not of the kernel's own layout.
            status, _, size = self.api.cuFuncGetParamInfo(handle, index)
            if int(status):
                break
            found.append(int(size))
        return tuple(found)

    def _words(self, status: Any) -> str:
        _, text = self.api.cuGetErrorString(status)
        return text.decode() if isinstance(text, bytes) else str(text)
