"""What the launchers of GPUs share: the checks before a launch, streams, and packed arguments.

A maker's own part is its driver and what its code objects ask for: `cuda.py` and `hip.py`.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from mlagen.artifact import Arg, Artifact, Manifest, TensorMapSpec
from mlagen.errors import ConfigError, MissingError
from mlagen.launch.device_tensor import (
    DeviceTensor,
    Platform,
    device_tensor,
    interface_streams,
    is_on_gpu,
    is_torch,
    platform_of,
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
from mlagen.launch.lifetimes import HELD, Retain, Weak, tell


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU, as far as every launcher knows it."""

    ordinal: int
    name: str


Device = TypeVar("Device", bound=GpuDevice)


class GpuDriver(ABC, Generic[Device]):
    """A driver: the few calls a launch needs, errors as exceptions. `api`: the maker's bindings, or
    something that answers like them."""

    count: ClassVar[str]  # the call that counts GPUs

    def __init__(self, api: Any) -> None:
        self.api = api

    @abstractmethod
    def call(self, name: str, *arguments: Any) -> Any:
        """Calls the driver and returns what it answers. LaunchFailed: it refuses."""

    @abstractmethod
    def _device(self, ordinal: int) -> Device:
        """GPU `ordinal`, which there is."""

    @abstractmethod
    def _ordinal_at(self, pointer: int) -> int:
        """The GPU whose memory an address is in. LaunchFailed: it is in none."""

    def is_capturing(self, stream: int) -> bool:
        """Whether what goes to the stream is captured. False where the driver does not tell."""
        return False

    def capture(self, stream: int) -> tuple[int, Retain | None]:
        """The number of the capture that the stream is in, and what makes its graph call a function
        of C when it is gone; None where the driver has no such thing."""
        return 0, None

    def device(self, ordinal: int) -> Device:
        """GPU `ordinal`. MissingError: there is none of that number."""
        count = int(self.call(self.count))
        if not 0 <= ordinal < count:
            raise MissingError(f"no GPU {ordinal}: this machine has {count}")
        return self._device(ordinal)

    def pointer_device(self, name: str, pointer: int) -> int:
        """The GPU whose memory `pointer`, that of the tensor `name`, is in."""
        try:
            return self._ordinal_at(pointer)
        except LaunchFailed as error:
            raise ConfigError(f"{name} at {pointer:#x} is in no GPU's memory") from error


class Kernargs:
    """A kernel's arguments as bytes in the host's memory, each at its offset, at a multiple of
    `align`. `address` is where they begin; they live as long as this does."""

    __slots__ = ("_buffer", "address", "size")

    def __init__(self, size: int, arguments: Iterable[tuple[Arg, bytes]], align: int) -> None:
        self._buffer = ctypes.create_string_buffer(size + align)
        self.address = -(-ctypes.addressof(self._buffer) // align) * align
        self.size = size
        for arg, data in arguments:
            ctypes.memmove(self.address + arg.offset, data, len(data))


class PreparedLaunch(ABC):
    """One launch with all its arguments; calling it enqueues the kernel and returns at once.

    It keeps the tensors alive, and tells torch of each stream that it is called in: whoever lets go
    of it then, the memory is used until the GPU is done. A graph that captures it keeps them too.
    Their contents may change between calls, their place may not.
    """

    __slots__ = ("_capturing", "_kept", "_kernargs", "_ordinal", "_owners", "_stream", "block",
                 "grid")  # fmt: skip

    def __init__(self, call: CheckedCall[Any], kernargs: Kernargs) -> None:
        self.grid, self.block = call.grid, call.artifact.manifest.block
        self._kernargs, self._stream = kernargs, call.stream
        self._capturing, self._ordinal = call.capturing, call.device.ordinal
        self._owners: list[Any] = [view.owner for view in call.tensors.values()]
        self._kept = self._owners  # by a graph

    @abstractmethod
    def __call__(self) -> None:
        """Enqueues the kernel in the stream. LaunchFailed: the driver refuses."""

    def graphs_keep(self, tensors: Iterable[Any]) -> None:
        """Graphs keep these alone: those of the launch's that are mlagen's own. Those of a call are
        its caller's, and may lie in memory that the graph uses more than once."""
        self._kept = list(tensors)

    def unowned(self) -> None:
        """Lets go of the tensors: from now on the caller keeps them alive until a call of this one
        has returned. What graphs keep is held by somebody else, too: of that streams are told."""
        self._owners = self._kept = [Weak(tensor) for tensor in self._kept]

    def _used(self, stream: int) -> None:
        """To be called before the first launch in each stream."""
        tell(self._owners, stream, self._ordinal)

    def _captured(self, driver: GpuDriver[Any], stream: int) -> None:
        """To be called before a launch in a stream that may be captured: not the default one."""
        if self._kept and self._capturing():
            number, retain = driver.capture(stream)
            HELD.hold(number, self._kept, retain)


@dataclass(frozen=True, slots=True)
class CheckedCall(Generic[Device]):
    """One launch, past all checks that do not ask the code itself."""

    artifact: Artifact
    device: Device
    grid: tuple[int, int, int]
    tensors: dict[str, DeviceTensor]
    numbers: dict[str, bytes]  # value arguments, as they are passed
    sizes: Mapping[str, int]
    stream: Callable[[], int]  # says which stream a launch goes to, at the time of the launch
    capturing: Callable[[], bool]  # whether that stream is captured then


class GpuLauncher(ABC, Generic[Device]):
    """A Launcher on a GPU.

    `device` is the GPU's number; without it the tensors' own is taken. `stream` is a handle, or a
    stream object of torch, CuPy or the maker's own bindings. Without it the launch goes to torch's
    current stream where torch tensors are given, else to the one that the tensors' array interface
    names, else to the default stream.

    Tensors: torch's, and what has `__cuda_array_interface__` or `__dlpack__`. Modules are kept from
    launch to launch.
    """

    kind: ClassVar[str]  # in reports
    title: ClassVar[str]  # in messages
    platform: ClassVar[Platform]
    targets: ClassVar[tuple[str, ...]]
    kernarg_align: ClassVar[int]  # bytes that the argument segment begins at a multiple of

    def __init__(self, device: int | None = None, stream: Any = None) -> None:
        self.device = device
        self.stream = None if stream is None else stream_handle(stream)
        self._devices: dict[int, Device] = {}
        self._functions: dict[tuple[Any, ...], Any] = {}  # by GPU and code

    @property
    @abstractmethod
    def driver(self) -> GpuDriver[Device]:
        """The driver, started at the first use. MissingError where there is none."""

    @abstractmethod
    def _check_grid(self, manifest: Manifest, grid: tuple[int, int, int]) -> None:
        """Raises ConfigError for a grid that no GPU of this maker takes."""

    @abstractmethod
    def _check_machine(self, manifest: Manifest, device: Device) -> None:
        """Raises LaunchRefused for a GPU that the code does not run on."""

    def _align(self, arg: Arg) -> int:
        """Bytes that the place of an argument's tensor must be a multiple of."""
        return arg.align

    def _interface_stream(self, named: int) -> int:
        """The handle of a stream that a tensor's array interface names."""
        return named

    @abstractmethod
    def _map(self, call: CheckedCall[Device], arg: Arg, spec: TensorMapSpec) -> bytes:
        """The tensor map that is passed as an argument."""

    @abstractmethod
    def _bind(self, call: CheckedCall[Device]) -> PreparedLaunch:
        """Loads the code and packs its arguments."""

    def _packed(self, call: CheckedCall[Device]) -> Kernargs:
        """The arguments of a call."""
        arguments = []
        for arg in call.artifact.manifest.args:
            if arg.tensor_map:
                data = self._map(call, arg, arg.tensor_map)
            elif arg.rows_of:
                data = struct.pack("<I", arg.rows_in(call.tensors[arg.rows_of].shape))
            elif arg.tensor:
                data = struct.pack("<Q", call.tensors[arg.tensor].pointer)
            else:
                data = call.numbers[arg.name]
            arguments.append((arg, data))
        return Kernargs(call.artifact.manifest.kernarg_bytes, arguments, self.kernarg_align)

    def launch(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, Any],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
        graphs_keep: Iterable[Any] = (),
    ) -> LaunchReport:
        """Enqueues the kernel once; see `Launcher.launch`. Does not wait for it. A graph that
        captures it keeps the tensors `graphs_keep`."""
        started = time.perf_counter()
        prepared = self.prepare(artifact, tensors=tensors, scalars=scalars, sizes=sizes)
        prepared.graphs_keep(graphs_keep)
        prepared()
        seconds = time.perf_counter() - started
        return LaunchReport(self.kind, prepared.grid, prepared.block, seconds)

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
        require_target(manifest, self.targets, self.title)
        check_names(manifest, tensors, scalars)
        for name, value in tensors.items():
            self._check_platform(manifest, name, value)
        numbers = {
            arg.name: scalar_value(manifest, arg, scalars[arg.name]).tobytes()
            for arg in manifest.args
            if not arg.tensor
        }
        grid = manifest.grid_for(sizes)
        self._check_grid(manifest, grid)
        _ = self.driver
        stream, capturing = self._stream_of(tensors)
        views = {name: device_tensor(name, value, stream()) for name, value in tensors.items()}
        device = self._device_of(manifest, views)
        self._check_machine(manifest, device)
        for arg in manifest.args:
            if arg.tensor:
                check_tensor(manifest, arg, views[arg.tensor], self._align(arg))
        return self._bind(
            CheckedCall(artifact, device, grid, views, numbers, sizes, stream, capturing)
        )

    def _check_platform(self, manifest: Manifest, name: str, value: Any) -> None:
        if not is_on_gpu(value):
            device_tensor(name, value, 0)  # raises, and says what it is instead
        theirs = platform_of(value)
        if theirs not in ("", self.platform):
            raise ConfigError(
                f"{manifest.kernel}: {name} is a tensor of {theirs}; {self.title} takes those of "
                f"{self.platform}"
            )

    def _stream_of(
        self, tensors: Mapping[str, Any]
    ) -> tuple[Callable[[], int], Callable[[], bool]]:
        """Says which stream a launch goes to, at the time of the launch, and whether it is captured
        then."""
        if self.stream is not None:
            return self._fixed(self.stream)
        for value in tensors.values():
            if is_torch(value):
                torch = sys.modules["torch"]
                return torch_stream(torch, value.device.index), torch_capturing(torch)
        found = interface_streams(tensors.values())
        if len(found) > 1:
            raise ConfigError(
                f"the tensors are ready in {len(found)} different streams",
                hint=f"{type(self).__name__}(stream=...) says which one to use",
            )
        return self._fixed(self._interface_stream(found.pop()) if found else 0)

    def _fixed(self, stream: int) -> tuple[Callable[[], int], Callable[[], bool]]:
        return lambda: stream, partial(self.driver.is_capturing, stream)

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


def check_threads(manifest: Manifest, most: int) -> None:
    """Raises LaunchRefused for a block of more threads than the loaded code allows."""
    x, y, z = manifest.block
    if x * y * z > most:
        raise LaunchRefused(
            f"{manifest.kernel}: blocks of {x * y * z} threads; its code allows {most}"
        )


def check_tensor(manifest: Manifest, arg: Arg, view: DeviceTensor, align: int) -> None:
    """Raises ConfigError for another dtype, gaps, a read-only output, or a place that is not a
    multiple of `align` bytes."""
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
    if view.pointer % align:
        raise ConfigError(
            f"{what} starts at {view.pointer:#x}; the kernel needs a multiple of {align} bytes",
            hint="a slice that starts in the middle of a tensor: .clone() moves it",
        )


def torch_stream(torch: Any, ordinal: int) -> Callable[[], int]:
    """Says which stream is torch's current one on GPU `ordinal`.

    By the handle where torch has a function for that, the one that its own compiled code calls: an
    object around it takes a microsecond more, at every launch.
    """
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return partial(raw, ordinal)
    return lambda: int(torch.cuda.current_stream(ordinal).cuda_stream)


def torch_capturing(torch: Any) -> Callable[[], bool]:
    """Says whether torch's current stream is captured, as far as torch tells."""
    raw = getattr(getattr(torch, "_C", None), "_cuda_isCurrentStreamCapturing", None)
    return raw if raw is not None else lambda: False


def stream_handle(stream: Any) -> int:
    """The handle of a stream: an integer, or an object of torch, CuPy, cuda.core or hip-python."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    if hasattr(stream, "as_c_void_p"):  # hip-python's pointers
        return int(stream)
    raise ConfigError(
        f"a {type(stream).__name__} is no stream of a GPU",
        hint="a handle, torch.cuda.Stream, cupy.cuda.Stream, an object with __cuda_stream__, or "
        "what hip-python's hipStreamCreate returns",
    )
