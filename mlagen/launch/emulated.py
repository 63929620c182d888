"""Launches into the emulator: no GPU, every wave executed, the sanitizer watching."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from mlagen.artifact import DTYPE_BYTES, Artifact, TensorMapSpec, is_ptx
from mlagen.errors import ConfigError, MissingError
from mlagen.extras import install
from mlagen.launch.launcher import LaunchReport, bind, require_proof, require_target
from mlagen.targets.registry import EMULATED

if TYPE_CHECKING:
    from mlagen.emulator import Argument, Buffer, Launch, TensorMap

# Bytes between two arguments' tensors, and what their places are multiples of.
_APART, _ALIGN = 2**38, 256
_MAP_DTYPES = {
    "bf16": "bf16", "fp16": "f16", "fp32": "f32", "fp8_e4m3": "u8", "fp8_e5m2": "u8",
    "uint8": "u8", "int8": "u8", "int32": "i32", "uint32": "u32", "int64": "i64",
}  # fmt: skip
Mode = Literal["latest", "earliest", "random"]
Group = tuple[int, int, int]


@dataclass(kw_only=True)
class EmulatedLauncher:
    """A Launcher on the CPU: of gfx950 machine code, and of sm_90a and sm_100a by their PTX.

    `mode` says when an asynchronous transfer completes: as late as its wait allows, at once, or at
    a random legal moment drawn from `seed`. `workgroups` restricts the run to some of the grid.
    It may also be a function of the grid. Only a checker sets `allow_unproved`, to show what a
    missing proof lets through. `record` keeps what is executed and `max_instructions` bounds
    the wave-instructions of a workgroup; `exact` is of PTX (see `mlagen.emulator.Settings`).
    """

    sanitize: bool = True
    mode: Mode = "latest"
    seed: int = 0
    workgroups: Sequence[Group] | Callable[[Group], Sequence[Group]] | None = None
    threads: int | None = None
    allow_unproved: bool = False
    progress: Callable[[int, int], None] | None = None
    record: bool = False
    max_instructions: int | None = None
    exact: bool = True

    def launch(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, np.ndarray],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> LaunchReport:
        """Runs the kernel once in the emulator; see `Launcher.launch`.

        The report's `emulation` carries the sanitizer's findings: they are reported, not raised.
        """
        manifest = artifact.manifest
        if not self.allow_unproved:
            require_proof(manifest)
        require_target(manifest, EMULATED, "the emulator")
        grid = manifest.grid_for(sizes)
        try:
            # Imported here: a machine that only launches on hardware has no emulator's packages.
            from mlagen.emulator import Settings, emulate
        except ModuleNotFoundError as error:
            raise MissingError(
                f"the emulator needs the package {error.name}",
                hint=install("emulator"),
            ) from error
        asked = emulated_launch(artifact, tensors=tensors, scalars=scalars, sizes=sizes)
        started = time.perf_counter()
        settings = Settings(
            sanitize=self.sanitize,
            mode=self.mode,
            seed=self.seed,
            workgroups=self.workgroups(grid) if callable(self.workgroups) else self.workgroups,
            threads=self.threads,
            max_instructions=self.max_instructions,
            record=self.record,
            exact=self.exact,
        )
        code = artifact.text if is_ptx(manifest) else artifact.code
        result = emulate(code, asked, settings, progress=self.progress)
        seconds = time.perf_counter() - started
        count = sum(tensor.nbytes for tensor in tensors.values())
        return LaunchReport("emulated", grid, manifest.block, seconds, result, count)


def emulated_launch(
    artifact: Artifact,
    *,
    tensors: Mapping[str, np.ndarray],
    scalars: Mapping[str, int | float],
    sizes: Mapping[str, int],
) -> Launch:
    """What the emulator is asked for: the launch with each tensor in a buffer of its own, whatever
    arguments share it."""
    from mlagen.emulator import Argument, Buffer, Launch

    manifest = artifact.manifest
    bound = bind(manifest, tensors, scalars)
    grid = manifest.grid_for(sizes)
    buffers: dict[str, Buffer] = {}
    written = {arg.tensor for arg in manifest.args if arg.access == "write"}
    arguments: list[Argument] = []
    for number, (arg, value) in enumerate(bound):
        if not isinstance(value, np.ndarray):
            arguments.append(Argument(arg.offset, value))
            continue
        if arg.tensor not in buffers:
            access: Literal["read", "write"] = "write" if arg.tensor in written else "read"
            late = arg.tensor in manifest.dependent
            address = _address(number, value.nbytes)
            buffers[arg.tensor] = Buffer(arg.tensor, value, access, address, late)
        buffer = buffers[arg.tensor]
        if arg.tensor_map:
            made = _tensor_map(manifest.kernel, arg.tensor_map, buffer, sizes)
            arguments.append(Argument(arg.offset, made))
        else:
            arguments.append(Argument(arg.offset, buffer))
    dynamic = manifest.resources.lds_bytes if is_ptx(manifest) else 0
    return Launch(grid, manifest.block, arguments, kernel=manifest.symbol, dynamic_shared=dynamic)


def _tensor_map(
    kernel: str, spec: TensorMapSpec, buffer: Buffer, sizes: Mapping[str, int]
) -> TensorMap:
    """A manifest's map of a tensor, as the driver is asked for it."""
    from mlagen.emulator import TensorMap

    cols, pitch = spec.columns(sizes)
    size = DTYPE_BYTES[spec.dtype]
    rows, rest = divmod(buffer.array.nbytes, pitch * size)
    if rest or not rows:
        raise ConfigError(
            f"{kernel}: {buffer.name}, seen as rows of {pitch} elements, has "
            f"{buffer.array.nbytes // size} of them: not a number of whole rows"
        )
    return TensorMap(
        buffer,
        _MAP_DTYPES[spec.dtype],
        (cols, rows),
        (pitch * size,),
        (spec.box_cols, spec.box_rows),
        swizzle=f"{spec.swizzle_bytes}B" if spec.swizzle_bytes else "none",
    )


def place_of(artifact: Artifact, tensor: str, size: int) -> int:
    """The address that a tensor of `size` bytes has in a launch, for tensors that hold others'."""
    args = enumerate(artifact.manifest.args)
    numbers = [n for n, arg in args if arg.tensor == tensor and not arg.rows_of]
    return _address(numbers[0], size)


def _address(number: int, size: int) -> int:
    """Where an argument's tensor lies: a boundary of 4 GiB goes through it, so that an address with
    a wrong upper half, or without its carry, leads out of it."""
    return (number + 1) * _APART - max(size // 2 // _ALIGN, 1) * _ALIGN
