"""The Python half of the HIP runtime that tests run on (hip_standin.c), and tensors on it.

A launch is executed by the emulator, on the bytes that the runtime was given: the code object, the
argument segment, and what the device's memory holds. Which arguments are pointers is read from the
code object's own metadata. The manifest is not asked.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, emulate
from mlagen.errors import MlagenError

SOURCE = Path(__file__).with_name("hip_standin.c")
NOT_FOUND, LAUNCH_FAILED = 500, 719  # hipErrorNotFound, hipErrorLaunchFailure
GFX950 = b"gfx950:sramecc+:xnack-"

_ON_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
)


class LaunchStruct(ctypes.Structure):
    """`struct launch` of hip_standin.c."""

    _fields_ = (
        ("image", ctypes.c_void_p),
        ("image_bytes", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_lds", ctypes.c_uint),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        ("arguments", ctypes.c_ubyte * 4096),
    )


_ON_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchStruct))


def compile_standin(folder: Path) -> Path:
    """Compiles the C half into `folder`/lib/libamdhip64.so and returns `folder`, a ROCm's root."""
    library = folder / "lib" / "libamdhip64.so"
    library.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
    command += ["-Werror", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


class StandIn:
    """The loaded runtime: what it was asked, what it ran, and what it shall answer."""

    def __init__(self, root: Path) -> None:
        self.path = root / "lib" / "libamdhip64.so"
        self.library = ctypes.CDLL(str(self.path))
        self.library.standin_calls.restype = ctypes.c_char_p
        self.library.standin_extent.restype = ctypes.c_size_t
        self.library.standin_extent.argtypes = (ctypes.c_void_p,)
        self.launches: list[SimpleNamespace] = []  # that have run
        self.errors: list[Exception] = []
        self._kept = (_ON_FUNCTION(self._function), _ON_LAUNCH(self._launch))
        self.library.standin_on_function(self._kept[0])
        self.library.standin_on_launch(self._kept[1])

    def reset(self) -> None:
        self.machine()
        self.fail("", 0)
        self.launches.clear()
        self.errors.clear()
        self.library.standin_forget()

    def machine(self, devices: int = 1, arch: bytes = GFX950) -> None:
        self.library.standin_machine(devices, arch)

    def fail(self, call: str, status: int) -> None:
        """From now on `call` ends with `status`; "": none does."""
        self.library.standin_fail(call.encode(), status)

    @property
    def queued(self) -> int:
        """Launches that nobody waited for yet."""
        return int(self.library.standin_queued())

    @property
    def last_error(self) -> int:
        return int(self.library.standin_last_error())

    def calls(self) -> list[str]:
        """The calls since the last question."""
        made = self.library.standin_calls().decode().split()
        self.library.standin_forget()
        return made

    def _function(self, image: int, size: int, name: bytes, info: Any) -> int:
        try:
            kernel = load_code_object(ctypes.string_at(image, size)).kernel(name.decode())
        except MlagenError:
            return NOT_FOUND
        assert kernel.info is not None
        info[0], info[1] = kernel.info.max_workgroup_threads, kernel.descriptor.lds_bytes
        return 0

    def _launch(self, launched: Any) -> int:
        try:
            self.launches.append(self._run(launched.contents))
        except Exception:  # there is C between here and the test
            self.errors.append(AssertionError(traceback.format_exc()))
            return LAUNCH_FAILED
        return 0

    def _run(self, launch: LaunchStruct) -> SimpleNamespace:
        code = ctypes.string_at(launch.image, launch.image_bytes)
        name = launch.name.decode()
        info = load_code_object(code).kernel(name).info
        assert info is not None and launch.argument_bytes == info.kernarg_bytes
        arguments, written = [], []
        for argument in info.arguments:
            data = bytes(launch.arguments[argument.offset : argument.offset + argument.size])
            if argument.kind == "global_buffer":
                pointer = int.from_bytes(data, "little")
                extent = self.library.standin_extent(pointer)
                assert extent, f"{argument.name} points to no memory of the device"
                # A copy: nothing of Python may point into memory that is closed again.
                memory = np.frombuffer(ctypes.string_at(pointer, extent), np.uint8).copy()
                written.append((pointer, memory))
                arguments.append(
                    Argument(argument.offset, Buffer(argument.name, memory, address=pointer))
                )
            else:
                assert argument.size == 4
                arguments.append(Argument(argument.offset, np.frombuffer(data, np.uint32)[0]))
        grid, block = tuple(launch.grid), tuple(launch.block)
        assert math.prod(grid) < 10_000, f"a grid of {grid} is not for an emulator"
        asked = Launch(grid, block, arguments, kernel=name, dynamic_lds_bytes=launch.dynamic_lds)
        result: EmulationResult = emulate(code, asked)
        assert not result.findings, result.findings
        for pointer, memory in written:
            ctypes.memmove(pointer, memory.ctypes.data, memory.nbytes)
        return SimpleNamespace(
            name=name, grid=grid, block=block, dynamic_lds=launch.dynamic_lds,
            device=launch.device, stream=launch.stream or 0,
        )  # fmt: skip


# ---- tensors in the stand-in's memory -----------------------------------------------------------


def hip() -> Any:
    from hip import hip as module

    return module


def call(name: str, *arguments: Any) -> Any:
    """What a user of hip-python calls; the status must be hipSuccess."""
    status, *answers = getattr(hip(), name)(*arguments)
    assert status.value == 0, f"{name}: {status.name}"
    return answers[0] if answers else None


class Memory:
    """A copy of an array in device memory, freed with it. `skip` bytes lie before its start."""

    def __init__(self, array: np.ndarray, device: int = 0, skip: int = 0) -> None:
        array = np.ascontiguousarray(array)
        before = call("hipGetDevice")
        call("hipSetDevice", device)
        self.base = call("hipMalloc", max(array.nbytes + skip, 1))
        call("hipSetDevice", before)
        self.pointer, self.device = int(self.base) + skip, device
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        kinds = hip().hipMemcpyKind
        call("hipMemcpy", self.pointer, array, self.nbytes, kinds.hipMemcpyHostToDevice)

    def numpy(self) -> np.ndarray:
        """What it holds now; waits for everything."""
        array = np.empty(self.shape, self.dtype)
        kinds = hip().hipMemcpyKind
        call("hipMemcpy", array, self.pointer, self.nbytes, kinds.hipMemcpyDeviceToHost)
        return array

    def __del__(self) -> None:
        call("hipFree", self.base)


class Interface(Memory):
    """A tensor with the CUDA array interface alone."""

    stream: int | None = None
    described: str | None = None  # as its type, instead of the array's own

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        more = {} if self.stream is None else {"stream": self.stream}
        return {
            "shape": self.shape, "typestr": self.described or self.dtype.str,
            "data": (self.pointer, False),
            "version": 3, **more,
        }  # fmt: skip


class _Managed(ctypes.Structure):
    """`DLManagedTensor` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )  # fmt: skip


_DL_ROCM = 10
_DL_CODES = {
    np.dtype(ml_dtypes.bfloat16): (4, 16), np.dtype(np.float32): (2, 32),
    np.dtype(np.float16): (2, 16), np.dtype(ml_dtypes.float8_e4m3fn): (10, 8),
    np.dtype(np.int32): (0, 32), np.dtype(np.int64): (0, 64),
}  # fmt: skip


class DLPack(Memory):
    """A tensor with DLPack alone, as a library on ROCm makes it."""

    kind = _DL_ROCM
    strides: tuple[int, ...] | None = None  # in elements

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.device

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        # The array API for ROCm: -1 not to wait, 0 the default stream; 1 and 2 are not supported.
        assert stream is not None and stream not in (1, 2)
        self.streams = [*getattr(self, "streams", []), stream]
        code, bits = _DL_CODES[self.dtype]
        extents = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = (ctypes.c_int64 * len(self.shape))(*self.strides) if self.strides else None
        managed = _Managed(
            self.pointer, self.kind, self.device, len(self.shape), code, bits, 1,
            ctypes.addressof(extents), ctypes.addressof(strides) if strides else None, 0,
        )  # fmt: skip
        self.kept = (*getattr(self, "kept", ()), managed, extents, strides)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(managed), b"dltensor", None)


_TORCH_NAMES = {
    np.dtype(ml_dtypes.bfloat16): "bfloat16", np.dtype(np.float32): "float32",
    np.dtype(np.uint32): "uint32", np.dtype(np.int32): "int32",
}  # fmt: skip


class TorchTensor:
    """What mlagen asks of a torch tensor on ROCm."""

    is_cuda = True  # so it says there too

    def __init__(self, array: np.ndarray, device: int = 0, skip: int = 0) -> None:
        self.memory = Memory(array, device, skip)
        self.shape, self.dtype = array.shape, f"torch.{_TORCH_NAMES[array.dtype]}"
        self.device = SimpleNamespace(index=device)

    def stride(self) -> tuple[int, ...]:
        return tuple(
            int(np.prod(self.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(self.shape))
        )

    def data_ptr(self) -> int:
        return self.memory.pointer

    def numpy(self) -> np.ndarray:
        return self.memory.numpy()


def rocm_torch() -> SimpleNamespace:
    """A stand-in for torch of ROCm; its current stream is `streams[device]`."""
    module = SimpleNamespace(Tensor=TorchTensor, version=SimpleNamespace(hip="7.2"))
    module.streams = [0, 0]
    module.cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=module.streams[device])
    )
    module.bfloat16, module.float32, module.int32 = ml_dtypes.bfloat16, np.float32, np.int32
    module.empty = lambda shape, dtype, device: TorchTensor(
        np.full(shape, np.nan, dtype), device.index
    )
    module.full = lambda shape, value, dtype, device: TorchTensor(
        np.full(shape, value, dtype), device.index
    )
    return module
