"""Launches on NVIDIA GPUs through the CUDA driver (`cuda-bindings`).

Everything that can be refused is refused in `prepare`, before anything is launched. A prepared
launch holds its arguments and tensor maps ready: calling it allocates nothing on the device, copies
nothing and waits for nothing. Importing this module imports no CUDA package.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from functools import cached_property
from typing import Any

from mlagen.artifact import DTYPE_BYTES, Arg, Artifact, Manifest, TensorMapSpec
from mlagen.artifact.manifest import TENSOR_MAP_ALIGN, TENSOR_MAP_STEP
from mlagen.errors import ConfigError, MissingError
from mlagen.launch.capability import NVIDIA_TARGETS, one_alone, written
from mlagen.launch.cuda_driver import CudaDevice, CudaDriver, CudaFunction
from mlagen.launch.gpu import CheckedCall, GpuLauncher, Kernargs, PreparedLaunch, check_threads
from mlagen.launch.launcher import LaunchFailed, LaunchRefused
from mlagen.targets.registry import limits_of

# CUDA driver API, cuTensorMapEncodeTiled: pitch in bytes, extents in elements.
_PITCH_END, _EXTENT_MAX = 2**40, 2**32
_MAPS_KEPT = 1024  # tensor maps that a launcher remembers


class CudaPreparedLaunch(PreparedLaunch):
    """A prepared launch of the CUDA driver, which is told where each argument is."""

    __slots__ = ("_api", "_configs", "_context", "_dependent", "_driver", "_function", "_held",
                 "_parameters", "_shape")  # fmt: skip

    def __init__(
        self,
        driver: CudaDriver,
        function: CudaFunction,
        kernargs: Kernargs,
        call: CheckedCall[CudaDevice],
    ) -> None:
        manifest = call.artifact.manifest
        super().__init__(call, kernargs)
        self._held = (ctypes.c_void_p * len(manifest.args))(
            *(kernargs.address + arg.offset for arg in manifest.args)
        )
        self._parameters = ctypes.addressof(self._held)
        self._driver, self._api, self._context = driver, driver.api, int(call.device.context)
        self._function = function.handle
        self._shape = (*call.grid, *manifest.block, manifest.resources.lds_bytes)
        self._dependent = bool(manifest.dependent)
        # One a stream: threads that launch at the same time must not tell each other's stream. The
        # bindings take a microsecond less for one than for the numbers of cuLaunchKernel.
        self._configs: dict[int, Any] = {}

    def __call__(self) -> None:
        """Enqueues the kernel in the stream. LaunchFailed: the driver refuses."""
        api = self._api
        pushed = int(api.cuCtxGetCurrent()[1]) != self._context
        if pushed:
            api.cuCtxPushCurrent(self._context)
        try:
            parameters = self._parameters
            stream = self._stream()
            if (config := self._configs.get(stream)) is None:
                config = self._driver.config(self._shape, stream, dependent=self._dependent)
                self._used(stream)
                self._configs[stream] = config
            if stream:  # the default one is never captured
                self._captured(self._driver, stream)
            (status,) = api.cuLaunchKernelEx(config, self._function, parameters, 0)
        finally:
            if pushed:
                api.cuCtxPopCurrent()
        if int(status):
            raise LaunchFailed(
                f"the driver refuses to launch {self.grid} blocks of {self.block} threads with "
                f"{self._shape[-1]} bytes of shared memory: {status.name}",
                hint="an earlier kernel of this process may have failed",
            )


class CudaLauncher(GpuLauncher[CudaDevice]):
    """A Launcher on an NVIDIA GPU; see `GpuLauncher`. Tensor maps are kept from launch to launch.

    `stream` may also be an object of cuda.core.
    """

    kind, title, platform, targets = "cuda", "the CUDA launcher", "CUDA", NVIDIA_TARGETS
    kernarg_align = TENSOR_MAP_ALIGN  # a tensor map is read at a multiple of 64

    def __init__(self, device: int | None = None, stream: Any = None) -> None:
        super().__init__(device, stream)
        self._allowed_smem: dict[tuple[Any, ...], int] = {}  # bytes, of the same keys
        self._maps: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()

    @cached_property
    def driver(self) -> CudaDriver:
        """The driver, started at the first use. MissingError where there is none."""
        return CudaDriver.load()

    def _check_grid(self, manifest: Manifest, grid: tuple[int, int, int]) -> None:
        for axis, blocks, most in zip(
            "xyz", grid, limits_of(manifest.target).grid_max, strict=True
        ):
            if blocks > most:
                raise ConfigError(
                    f"{manifest.kernel}: {blocks} blocks in {axis}; a grid has at most {most}"
                )

    def _align(self, arg: Arg) -> int:
        return max(TENSOR_MAP_STEP if arg.tensor_map else 1, arg.align)

    def _bind(self, call: CheckedCall[CudaDevice]) -> CudaPreparedLaunch:
        function = self._function(call.artifact, call.device)
        return CudaPreparedLaunch(self.driver, function, self._packed(call), call)

    def _check_machine(self, manifest: Manifest, device: CudaDevice) -> None:
        capability = limits_of(manifest.target).compute_capability
        if device.capability != capability:
            raise LaunchRefused(
                f"{manifest.kernel} is for {manifest.target} (compute capability "
                f"{written(capability)}); GPU {device.ordinal}, {device.name}, has "
                f"{written(device.capability)}",
                hint=one_alone(manifest.target),
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

    def _function(self, artifact: Artifact, device: CudaDevice) -> CudaFunction:
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
        check_threads(manifest, function.max_threads)
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

    def _map(self, call: CheckedCall[CudaDevice], arg: Arg, spec: TensorMapSpec) -> bytes:
        """The tensor map of a tensor under `spec`, made once for each place and shape."""
        manifest, view = call.artifact.manifest, call.tensors[spec.tensor]
        cols, pitch = spec.columns(call.sizes)
        pitch_bytes = pitch * DTYPE_BYTES[spec.dtype]
        rows, rest = divmod(view.elements, pitch)
        what = f"{manifest.kernel}: {view.name}, seen as rows of {pitch} elements,"
        if rest or not rows:
            raise ConfigError(f"{what} has {view.elements} of them: not a number of whole rows")
        if pitch_bytes % TENSOR_MAP_STEP or pitch_bytes >= _PITCH_END:
            raise ConfigError(
                f"{what} has {pitch_bytes} bytes from row to row; TMA needs a multiple of "
                f"{TENSOR_MAP_STEP} below 2^40"
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
