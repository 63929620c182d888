"""Launches on NVIDIA GPUs through the CUDA driver (`cuda-bindings`).

Everything that can be refused is refused in `prepare`, before anything is launched. A prepared
launch holds its arguments and tensor maps ready: calling it allocates nothing on the device, copies
nothing and waits for nothing. Importing this module imports no CUDA package.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from mlagen.artifact import DTYPE_BYTES, Arg, Artifact, Manifest, TensorMapSpec
from mlagen.artifact.manifest import TENSOR_MAP_ALIGN
from mlagen.errors import ConfigError, MissingError
from mlagen.launch.cuda_driver import CudaDriver, Device, Function
from mlagen.launch.device_tensor import (
    DeviceTensor,
    device_tensor,
    interface_streams,
    is_on_gpu,
    is_torch,
)
from mlagen.launch.launcher import (
    LaunchFailed,
    LaunchRefused,
    LaunchReport,
    check_names,
    require_proof,
    require_target,
    scalar_value,
)

# Targets with the compute capability that their code runs on: exactly that one (PTX ISA, .target).
TARGETS = {"sm_90a": (9, 0)}
# CUDA C++ Programming Guide, technical specifications.
GRID_MAX = (2**31 - 1, 65535, 65535)
# CUDA driver API, cuTensorMapEncodeTiled: base and pitch in bytes, extents in elements.
_TMA_ALIGN, _PITCH_END, _EXTENT_MAX = 16, 2**40, 2**32
_MAPS_KEPT = 1024  # tensor maps a launcher remembers, 128 bytes each


class PreparedLaunch:
    """One launch with all its arguments; calling it enqueues the kernel and returns at once.

    It keeps the tensors alive. Their contents may change between calls, their place may not.
    """

    __slots__ = (
        "_api",
        "_buffer",
        "_context",
        "_function",
        "_launch",
        "_owners",
        "_parameters",
        "_shape",
        "_stream",
        "block",
        "grid",
    )

    def __init__(
        self,
        driver: CudaDriver,
        device: Device,
        function: Function,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        smem_bytes: int,
        arguments: list[tuple[Arg, bytes]],
        kernarg_bytes: int,
        stream: Callable[[], int],
        owners: list[Any],
    ) -> None:
        self.grid, self.block = grid, block
        # Aligned by hand: a tensor map is read at a multiple of 64.
        self._buffer = ctypes.create_string_buffer(kernarg_bytes + TENSOR_MAP_ALIGN)
        base = -(-ctypes.addressof(self._buffer) // TENSOR_MAP_ALIGN) * TENSOR_MAP_ALIGN
        for arg, data in arguments:
            ctypes.memmove(base + arg.offset, data, len(data))
        self._parameters = (ctypes.c_void_p * len(arguments))(
            *(base + arg.offset for arg, _ in arguments)
        )
        self._api, self._context = driver.api, int(device.context)
        self._function, self._stream, self._owners = function.handle, stream, owners
        self._shape = (*grid, *block, smem_bytes)
        self._launch = driver.api.cuLaunchKernel

    def __call__(self) -> None:
        """Enqueues the kernel in the stream. LaunchFailed: the driver refuses."""
        api = self._api
        pushed = int(api.cuCtxGetCurrent()[1]) != self._context
        if pushed:
            api.cuCtxPushCurrent(self._context)
        try:
            (status,) = self._launch(
                self._function,
                *self._shape,
                self._stream(),
                ctypes.addressof(self._parameters),
                0,
            )
        finally:
            if pushed:
                api.cuCtxPopCurrent()
        if int(status):
            raise LaunchFailed(
                f"the driver refuses to launch {self.grid} blocks of {self.block} threads with "
                f"{self._shape[-1]} bytes of shared memory: {status.name}",
                hint="an earlier kernel of this process may have failed",
            )


class CudaLauncher:
    """A Launcher on an NVIDIA GPU.

    `device` is the GPU's number; without it the tensors' own is taken. `stream` is a CUDA stream: a
    handle, or an object of torch, CuPy or cuda.core. Without it the launch goes to torch's current
    stream where torch tensors are given, else to the one that the tensors' array interface names,
    else to the default stream.

    Tensors: torch's, and what has `__cuda_array_interface__` or `__dlpack__`. Modules and tensor
    maps are kept from launch to launch.
    """

    def __init__(self, device: int | None = None, stream: Any = None) -> None:
        self.device = device
        self.stream = None if stream is None else stream_handle(stream)
        self._driver: CudaDriver | None = None
        self._devices: dict[int, Device] = {}
        self._functions: dict[tuple[Any, ...], Function] = {}
        self._allowed_smem: dict[tuple[Any, ...], int] = {}  # bytes, of the same keys
        self._maps: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()

    @property
    def driver(self) -> CudaDriver:
        """The driver, started at the first use. MissingError where there is none."""
        if self._driver is None:
            self._driver = CudaDriver.load()
        return self._driver

    def launch(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, Any],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> LaunchReport:
        """Enqueues the kernel once; see `Launcher.launch`. Does not wait for it."""
        started = time.perf_counter()
        prepared = self.prepare(artifact, tensors=tensors, scalars=scalars, sizes=sizes)
        prepared()
        seconds = time.perf_counter() - started
        return LaunchReport("cuda", prepared.grid, prepared.block, seconds)

    def prepare(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, Any],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> PreparedLaunch:
        """Checks everything, loads the kernel and packs its arguments; nothing is launched.

        Raises LaunchRefused for an unproved artifact and for a GPU that its code does not run on;
        ConfigError for tensors that are not on the GPU, on another one, of another dtype, not
        contiguous or misaligned, and for numbers and sizes that do not fit; MissingError without a
        driver, or with one that is too old; LaunchFailed where the driver refuses the code.
        """
        manifest = artifact.manifest
        require_proof(manifest)
        require_target(manifest, tuple(TARGETS), "the CUDA launcher")
        check_names(manifest, tensors, scalars)
        for name, value in tensors.items():
            if not is_on_gpu(value):
                device_tensor(name, value, 0)  # raises, and says what it is instead
        numbers = {
            arg.name: scalar_value(manifest, arg, scalars[arg.name]).tobytes()
            for arg in manifest.args
            if not arg.tensor
        }
        grid = self._grid(manifest, sizes)
        driver = self.driver
        stream = self._stream_of(tensors)
        views = {name: device_tensor(name, value, stream()) for name, value in tensors.items()}
        device = self._device_of(manifest, views)
        self._check_machine(manifest, device)
        for arg in manifest.args:
            if arg.tensor:
                _check_tensor(manifest, arg, views[arg.tensor])
        function = self._function(artifact, device)
        arguments = []
        for arg in manifest.args:
            if arg.tensor_map:
                data = self._map(manifest, arg.tensor_map, views[arg.tensor], sizes)
            elif arg.tensor:
                data = struct.pack("<Q", views[arg.tensor].pointer)
            else:
                data = numbers[arg.name]
            arguments.append((arg, data))
        return PreparedLaunch(
            driver,
            device,
            function,
            grid=grid,
            block=manifest.block,
            smem_bytes=manifest.resources.lds_bytes,
            arguments=arguments,
            kernarg_bytes=manifest.kernarg_bytes,
            stream=stream,
            owners=[view.owner for view in views.values()],
        )

    def _grid(self, manifest: Manifest, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        grid = manifest.grid_for(sizes)
        for axis, blocks, most in zip("xyz", grid, GRID_MAX, strict=True):
            if blocks > most:
                raise ConfigError(
                    f"{manifest.kernel}: {blocks} blocks in {axis}; a grid has at most {most}"
                )
        return grid

    def _stream_of(self, tensors: Mapping[str, Any]) -> Callable[[], int]:
        """Says which stream a launch goes to, at the time of the launch."""
        if self.stream is not None:
            chosen = self.stream
            return lambda: chosen
        for value in tensors.values():
            if is_torch(value):
                current, ordinal = sys.modules["torch"].cuda.current_stream, value.device.index
                return lambda: int(current(ordinal).cuda_stream)
        found = interface_streams(tensors.values())
        if len(found) > 1:
            raise ConfigError(
                f"the tensors are ready in {len(found)} different streams",
                hint="CudaLauncher(stream=...) says which one to use",
            )
        named = found.pop() if found else 0
        return lambda: named

    def _device_of(self, manifest: Manifest, views: Mapping[str, DeviceTensor]) -> Device:
        """The GPU that all tensors are on, which must be the launcher's own where it has one."""
        ordinals = {}
        for name, view in views.items():
            if not view.elements:
                raise ConfigError(f"{manifest.kernel}: {name} has no elements: shape {view.shape}")
            ordinals[name] = (
                self.driver.pointer_device(name, view.pointer)
                if view.device is None
                else view.device
            )
        wanted = next(iter(ordinals.values()), 0) if self.device is None else self.device
        for name, ordinal in ordinals.items():
            if ordinal != wanted:
                whose = "the other tensors are" if self.device is None else "the launcher is"
                raise ConfigError(
                    f"{manifest.kernel}: {name} is on GPU {ordinal}, {whose} on GPU {wanted}"
                )
        if wanted not in self._devices:
            self._devices[wanted] = self.driver.device(wanted)
        return self._devices[wanted]

    def _check_machine(self, manifest: Manifest, device: Device) -> None:
        capability = TARGETS[manifest.target]
        if device.capability != capability:
            raise LaunchRefused(
                f"{manifest.kernel} is for {manifest.target} (compute capability "
                f"{capability[0]}.{capability[1]}); GPU {device.ordinal}, {device.name}, has "
                f"{device.capability[0]}.{device.capability[1]}"
            )
        made_by = manifest.tools.get("ptxas", "")
        major = made_by.partition(".")[0]
        # Within one major release of CUDA, code runs with the driver of any of its minor ones.
        if major.isdigit() and self.driver.version // 1000 < int(major):
            raise MissingError(
                f"{manifest.kernel} was assembled by ptxas {made_by}; this driver is for CUDA "
                f"{self.driver.version_text}",
                hint=f"a driver for CUDA {major}.0 or newer, or an older ptxas: $MLAGEN_PTXAS",
            )

    def _function(self, artifact: Artifact, device: Device) -> Function:
        """The loaded kernel, held against this manifest, with its shared memory allowed."""
        manifest = artifact.manifest
        layout = tuple(arg.size for arg in manifest.args)
        key = (device.ordinal, manifest.code_sha256, manifest.symbol, len(layout))
        if key not in self._functions:
            self._functions[key] = self.driver.load_function(
                device, artifact.code, manifest.symbol, len(layout)
            )
        function = self._functions[key]
        if layout != function.parameters:
            raise LaunchRefused(
                f"{manifest.kernel}: the manifest's arguments are of {layout} bytes, the "
                f"code's of {function.parameters}"
            )
        x, y, z = manifest.block
        if x * y * z > function.max_threads:
            raise LaunchRefused(
                f"{manifest.kernel}: blocks of {x * y * z} threads; its code allows "
                f"{function.max_threads}"
            )
        dynamic, static = manifest.resources.lds_bytes, function.static_smem_bytes
        if dynamic + static > device.smem_bytes:
            raise LaunchRefused(
                f"{manifest.kernel} needs {dynamic + static} bytes of shared memory, {static} of "
                f"them static; {device.name} gives a block {device.smem_bytes}"
            )
        if dynamic > self._allowed_smem.get(key, 0):
            self.driver.allow_smem(device, function, dynamic)
            self._allowed_smem[key] = dynamic
        return function

    def _map(
        self,
        manifest: Manifest,
        spec: TensorMapSpec,
        view: DeviceTensor,
        sizes: Mapping[str, int],
    ) -> bytes:
        """The tensor map of `view` under `spec`, made once for each place and shape."""
        cols, pitch = spec.columns(sizes)
        pitch_bytes = pitch * DTYPE_BYTES[spec.dtype]
        rows, rest = divmod(view.elements, pitch)
        what = f"{manifest.kernel}: {view.name}, seen as rows of {pitch} elements,"
        if rest or not rows:
            raise ConfigError(f"{what} has {view.elements} of them: not a number of whole rows")
        if pitch_bytes % _TMA_ALIGN or pitch_bytes >= _PITCH_END:
            raise ConfigError(
                f"{what} has {pitch_bytes} bytes from row to row; TMA needs a multiple of "
                f"{_TMA_ALIGN} below 2^40"
            )
        if max(rows, cols) > _EXTENT_MAX:
            raise ConfigError(f"{what} is {rows} x {cols}; TMA reaches 2^32 in each dimension")
        key = (view.pointer, rows, cols, pitch_bytes, spec)
        if key in self._maps:
            self._maps.move_to_end(key)
        else:
            self._maps[key] = self.driver.tensor_map(spec, view.pointer, rows, cols, pitch_bytes)
            if len(self._maps) > _MAPS_KEPT:
                self._maps.popitem(last=False)
        return self._maps[key]


def stream_handle(stream: Any) -> int:
    """The handle of a CUDA stream: an integer, or torch's, CuPy's or cuda.core's object."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise ConfigError(
        f"a {type(stream).__name__} is no CUDA stream",
        hint="a handle, torch.cuda.Stream, cupy.cuda.Stream, or an object with __cuda_stream__",
    )


def _check_tensor(manifest: Manifest, arg: Arg, view: DeviceTensor) -> None:
    what = f"{manifest.kernel}: {view.name}"
    dtype = arg.tensor_map.dtype if arg.tensor_map else arg.dtype
    if dtype and view.dtype != dtype:
        raise ConfigError(f"{what} is {view.dtype}, the kernel takes {dtype}")
    if not view.contiguous:
        raise ConfigError(
            f"{what} is not contiguous (shape {view.shape}, strides {view.strides})",
            hint="torch: tensor.contiguous() makes a copy that is",
        )
    if arg.access == "write" and not view.writable:
        raise ConfigError(f"{what} is written to, but it is read-only")
    align = max(_TMA_ALIGN if arg.tensor_map else 1, arg.align)
    if view.pointer % align:
        raise ConfigError(
            f"{what} starts at {view.pointer:#x}; the kernel needs a multiple of {align} bytes",
            hint="a slice that starts in the middle of a tensor: .clone() moves it",
        )
