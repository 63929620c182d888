"""Launches into the emulator: no GPU, every wave executed, the sanitizer watching."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlagen.artifact import Artifact
from mlagen.errors import MissingError
from mlagen.launch.launcher import LaunchReport, bind, require_proof, require_target
from mlagen.targets.registry import EMULATED

# Bytes between two arguments' tensors, and what their places are multiples of.
_APART, _ALIGN = 2**38, 256
Mode = Literal["latest", "earliest", "random"]
Group = tuple[int, int, int]


@dataclass(kw_only=True)
class EmulatedLauncher:
    """A Launcher on the CPU.

    `mode` says when an asynchronous transfer completes: as late as its wait allows, at once, or at
    a random legal moment drawn from `seed`. `workgroups` restricts the run to some of the grid.
    It may also be a function of the grid. Only a checker sets `allow_unproved`, to show what a
    missing proof lets through. `record` keeps what is executed and `max_instructions` bounds
    the wave-instructions of a workgroup (see `mlagen.emulator.Settings`).
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
        maps = {arg.tensor: tensors[arg.tensor] for arg in manifest.args if arg.tensor_map and arg.tensor in tensors}
        bound = bind(manifest, tensors, scalars)
        grid = manifest.grid_for(sizes)
        try:
            # Imported here: a machine that only launches on hardware has no emulator's packages.
            from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
        except ModuleNotFoundError as error:
            raise MissingError(
                f"the emulator needs the package {error.name}",
                hint="pip install 'mlagen[emulator]'",
            ) from error
        arguments = []
        for number, (arg, value) in enumerate(bound):
            if isinstance(value, np.ndarray):
                access: Literal["read", "write"] = "write" if arg.access == "write" else "read"
                buffer = Buffer(arg.name, value, access, _address(number, value.nbytes))
                arguments.append(Argument(arg.offset, buffer))
            else:
                arguments.append(Argument(arg.offset, value))
        started = time.perf_counter()
        settings = Settings(
            sanitize=self.sanitize,
            mode=self.mode,
            seed=self.seed,
            workgroups=self.workgroups(grid) if callable(self.workgroups) else self.workgroups,
            threads=self.threads,
            max_instructions=self.max_instructions,
            record=self.record,
        )
        asked = Launch(grid, manifest.block, arguments, kernel=manifest.symbol)
        result = emulate(artifact.code, asked, settings, progress=self.progress)
        seconds = time.perf_counter() - started
        count = sum(tensor.nbytes for tensor in tensors.values())
        return LaunchReport("emulated", grid, manifest.block, seconds, result, count)


def _address(number: int, size: int) -> int:
    """Where an argument's tensor lies: a boundary of 4 GiB goes through it, so that an address with
    a wrong upper half, or without its carry, leads out of it."""
    return (number + 1) * _APART - max(size // 2 // _ALIGN, 1) * _ALIGN
