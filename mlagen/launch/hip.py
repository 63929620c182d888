"""Launches on AMD GPUs through the HIP runtime (`hip-python`).

Everything that can be refused is refused in `prepare`, before anything is launched. A prepared
launch holds its arguments ready: calling it allocates nothing on the device, copies nothing and
waits for nothing. Importing this module imports no HIP package.
"""

from __future__ import annotations

import ctypes
from functools import cached_property

from mlagen.artifact import Arg, Artifact, Manifest, TensorMapSpec
from mlagen.errors import ConfigError
from mlagen.launch.gpu import CheckedCall, GpuLauncher, Kernargs, PreparedLaunch, check_threads
from mlagen.launch.hip_driver import HipDevice, HipDriver, HipFunction
from mlagen.launch.launcher import LaunchFailed, LaunchRefused
from mlagen.targets.gfx950.limits import GFX950

TARGETS = (GFX950.name,)
# HIP runtime API, hipModuleLaunchKernel: work-items in each dimension, and the keys of `extra`.
_ITEMS_END = 2**32
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3
# Accesses of a dword and more ignore the two lowest bits of the address (CDNA3 ISA, memory buffer
# instructions, alignment).
_DWORD = 4


class HipPreparedLaunch(PreparedLaunch):
    """A prepared launch of the HIP runtime, which copies the argument segment as it is."""

    __slots__ = ("_api", "_driver", "_extra", "_extra_address", "_function", "_shape", "_size",
                 "_streams")  # fmt: skip

    def __init__(
        self,
        driver: HipDriver,
        function: HipFunction,
        kernargs: Kernargs,
        dynamic_lds_bytes: int,
        call: CheckedCall[HipDevice],
    ) -> None:
        super().__init__(call, kernargs)
        self._driver, self._api, self._function = driver, driver.api, function
        self._streams: set[int] = set()  # that it was called in
        self._shape = (*self.grid, *self.block, dynamic_lds_bytes)
        self._size = ctypes.c_size_t(kernargs.size)
        self._extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, kernargs.address, _BUFFER_SIZE, ctypes.addressof(self._size), _END
        )
        self._extra_address = ctypes.addressof(self._extra)

    def __call__(self) -> None:
        """Enqueues the kernel in the stream. LaunchFailed: the runtime refuses."""
        api = self._api
        before = api.hipGetDevice()[1]
        away = before != self._ordinal
        if away:
            api.hipSetDevice(self._ordinal)
        try:
            stream = self._stream()
            if stream not in self._streams:
                self._used(stream)
                self._streams.add(stream)
            if stream:
                self._captured(self._driver, stream)
            (status,) = api.hipModuleLaunchKernel(
                self._function.handle, *self._shape, stream, None, self._extra_address
            )
        except ValueError as error:
            raise self._driver.nameless("hipModuleLaunchKernel", error) from error
        finally:
            if away:
                api.hipSetDevice(before)
        if status.value:
            raise LaunchFailed(
                f"the HIP runtime refuses to launch {self.grid} workgroups of {self.block} "
                f"work-items with {self._shape[-1]} bytes of dynamic LDS: "
                f"{self._driver.words(status)}",
                hint="an earlier kernel of this process may have failed",
            )


class HipLauncher(GpuLauncher[HipDevice]):
    """A Launcher on an AMD GPU; see `GpuLauncher`."""

    kind, title, platform, targets = "hip", "the HIP launcher", "ROCm", TARGETS
    kernarg_align = 64  # a cache line; the segment's own is at most 16 (LLVM AMDGPUUsage)

    @cached_property
    def driver(self) -> HipDriver:
        """The runtime, started at the first use. MissingError where there is none."""
        return HipDriver.load()

    def _check_grid(self, manifest: Manifest, grid: tuple[int, int, int]) -> None:
        for axis, groups, items in zip("xyz", grid, manifest.block, strict=True):
            if groups * items >= _ITEMS_END:
                raise ConfigError(
                    f"{manifest.kernel}: {groups} workgroups of {items} in {axis}; HIP launches "
                    f"fewer than 2^32 work-items in a dimension",
                    hint=f"at most {(_ITEMS_END - 1) // items} workgroups",
                )

    def _check_machine(self, manifest: Manifest, device: HipDevice) -> None:
        if device.arch != manifest.target:
            raise LaunchRefused(
                f"{manifest.kernel} is for {manifest.target}; GPU {device.ordinal}, "
                f"{device.name}, is a {device.arch}"
            )

    def _align(self, arg: Arg) -> int:
        return max(_DWORD, arg.align)

    def _interface_stream(self, named: int) -> int:
        # The interface's 1 is CUDA's legacy default stream, whose place in HIP is the null stream.
        return 0 if named == 1 else named

    def _map(self, call: CheckedCall[HipDevice], arg: Arg, spec: TensorMapSpec) -> bytes:
        manifest = call.artifact.manifest
        raise LaunchRefused(
            f"{manifest.kernel}: argument {arg.name} is a tensor map, which "
            f"{manifest.target} does not have"
        )

    def _bind(self, call: CheckedCall[HipDevice]) -> HipPreparedLaunch:
        function = self._function(call.artifact, call.device)
        # What the code's own descriptor asks for comes without being asked for again.
        dynamic = call.artifact.manifest.resources.lds_bytes - function.static_lds_bytes
        return HipPreparedLaunch(self.driver, function, self._packed(call), dynamic, call)

    def _function(self, artifact: Artifact, device: HipDevice) -> HipFunction:
        """The loaded kernel, held against this manifest."""
        manifest = artifact.manifest
        key = (device.ordinal, manifest.code_sha256, manifest.symbol)
        if key not in self._functions:
            self._functions[key] = self.driver.load_function(device, artifact.code, manifest.symbol)
        function = self._functions[key]
        check_threads(manifest, function.max_threads)
        lds, static = manifest.resources.lds_bytes, function.static_lds_bytes
        if static > lds:
            raise LaunchRefused(
                f"{manifest.kernel}: the manifest says {lds} bytes of LDS, the code asks for "
                f"{static}"
            )
        if lds > device.lds_bytes:
            raise LaunchRefused(
                f"{manifest.kernel} needs {lds} bytes of LDS, {static} of them static; "
                f"{device.name} gives a workgroup {device.lds_bytes}"
            )
        return function
