"""The HIP runtime through hip-python: the few calls a launch needs, errors as exceptions.

Importing this imports no HIP package; `HipDriver.load` does. hip-python opens libamdhip64.so at the
first call, and looks up each function at that function's first call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mlagen.errors import MissingError
from mlagen.extras import install
from mlagen.launch.gpu import GpuDevice, GpuDriver
from mlagen.launch.hip_library import NAME, one_runtime
from mlagen.launch.launcher import LaunchFailed

_ROCM_HINT = (
    f"ROCm 7 or newer; where it is not in /opt/rocm, $ROCM_PATH names the folder with lib/{NAME}; "
    f"`mlagen doctor` shows what is there"
)


@dataclass(frozen=True, slots=True)
class HipDevice(GpuDevice):
    """One GPU. `arch` is the processor's name without its features: gfx950."""

    arch: str
    lds_bytes: int  # a workgroup may have, static and dynamic


@dataclass(frozen=True, slots=True)
class HipFunction:
    """One loaded kernel. `owners` keep its module and the code it was loaded from."""

    handle: Any
    max_threads: int
    static_lds_bytes: int
    owners: tuple[Any, ...]


class HipDriver(GpuDriver[HipDevice]):
    """The runtime. `api` is hip-python's `hip.hip` or something that answers like it."""

    count = "hipGetDeviceCount"

    @classmethod
    def load(cls) -> HipDriver:
        """Starts the runtime. MissingError without the package, the runtime or a GPU."""
        try:
            from hip import hip
        except ImportError as error:
            raise MissingError(
                "launching on an AMD GPU needs the package hip-python",
                hint=install("hip"),
            ) from error
        with one_runtime():
            return cls.start(hip)

    @classmethod
    def start(cls, api: ModuleType | Any) -> HipDriver:
        """Starts the runtime of `api`."""
        try:
            (status,) = api.hipInit(0)
        except RuntimeError as error:  # hip-python's own, where the library cannot be opened
            raise MissingError(f"no HIP runtime on this machine: {error}", hint=_ROCM_HINT) from (
                error
            )
        driver = cls(api)
        if status.value:
            driver._forget_error()
            raise MissingError(
                f"the HIP runtime does not start: {status.name}",
                hint="`rocminfo` says whether this machine has a working AMD GPU; the user needs "
                "access to /dev/kfd (the groups render and video)",
            )
        return driver

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls the runtime and returns what it answers. LaunchFailed: it refuses; MissingError:
        it has no such function."""
        try:
            status, *answers = getattr(self.api, name)(*arguments)
        except RuntimeError as error:  # hip-python's own, where the library lacks the symbol
            raise MissingError(
                f"this HIP runtime does not have what a launch needs: {error}", hint=_ROCM_HINT
            ) from error
        except ValueError as error:
            raise self.nameless(name, error) from error
        if status.value:
            raise LaunchFailed(f"{name}: {self.words(status)}")
        return answers[0] if len(answers) == 1 else tuple(answers)

    def words(self, status: Any) -> str:
        """A failed call's status by name and in the runtime's words. Forgets the error: torch would
        find it at its next own launch."""
        self._forget_error()
        text = self.api.hipGetErrorString(status)[1]
        return f"{status.name}: {text.decode() if text is not None else 'no description'}"

    def nameless(self, name: str, error: ValueError) -> LaunchFailed:
        """What to raise for a status that hip-python has no name for."""
        self._forget_error()
        return LaunchFailed(f"{name}: {error}")

    def _device(self, ordinal: int) -> HipDevice:
        found = self.call("hipGetDeviceProperties", ordinal)
        # "gfx950:sramecc+:xnack-": what follows the name are features.
        arch = found.gcnArchName.partition(":")[0]
        return HipDevice(ordinal, found.name, arch, int(found.sharedMemPerBlock))

    def _ordinal_at(self, pointer: int) -> int:
        return int(self.call("hipPointerGetAttributes", pointer).device)

    def load_function(self, device: HipDevice, code: bytes, symbol: str) -> HipFunction:
        """Loads a code object onto the device and finds its kernel."""
        with self.current(device):
            module = self.call("hipModuleLoadData", code)
            handle = self.call("hipModuleGetFunction", module, symbol.encode())
            names = self.api.hipFunction_attribute
            threads, lds = (
                int(self.call("hipFuncGetAttribute", attribute, handle))
                for attribute in (
                    names.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                    names.HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                )
            )
            return HipFunction(handle, threads, lds, (module, code))

    @contextmanager
    def current(self, device: HipDevice) -> Iterator[None]:
        """A `with` in which the device is the thread's current one."""
        before = int(self.call("hipGetDevice"))
        self.call("hipSetDevice", device.ordinal)
        try:
            yield
        finally:
            if before != device.ordinal:
                self.call("hipSetDevice", before)

    def _forget_error(self) -> None:
        """Takes the thread's last error out of the runtime."""
        with suppress(ValueError):  # a status that hip-python has no name for
            self.api.hipGetLastError()
