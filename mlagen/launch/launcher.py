"""What every launcher shares: the interface, the report, and the checks on what is passed in."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mlagen.artifact import Arg, Artifact, Manifest
from mlagen.errors import ConfigError, MlagenError

if TYPE_CHECKING:
    from mlagen.emulator import EmulationResult

_LOG = logging.getLogger("mlagen.launch")
_TOLD: set[str] = set()  # digests of texts that were said to be ordered only

Scalar = np.uint32 | np.int32 | np.float32

_RANGES = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1)}


class LaunchRefused(ConfigError):
    """The artifact may not be launched: its order is not proved, or it is for another machine."""


class LaunchFailed(MlagenError):
    """The driver refused what it was asked for; its own words are in the message."""

    exit_code = 5


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """One launch. `emulation` is there when the kernel ran in the emulator, and `tensor_bytes`, of
    all its tensors. On a GPU `seconds` is the host's time: the kernel may still be running."""

    launcher: str
    grid: tuple[int, int, int]  # workgroups
    block: tuple[int, int, int]  # threads
    seconds: float
    emulation: EmulationResult | None = None
    tensor_bytes: int = 0


class Launcher(Protocol):
    """Something that runs artifacts."""

    def launch(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, Any],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> LaunchReport:
        """Runs the kernel once; outputs are written into the given tensors.

        `tensors` holds one C-contiguous tensor for every one that the manifest's arguments name:
        numpy arrays for an emulator, tensors of the device for a GPU. `scalars` holds one number
        for every value argument, `sizes` what the grid rule and the tensor maps name.
        """
        ...


def say_if_ordered(manifest: Manifest) -> None:
    """Logs, once a kernel, that nothing compared what it computes."""
    if manifest.proof.status == "ordered" and manifest.text_sha256 not in _TOLD:
        _TOLD.add(manifest.text_sha256)
        _LOG.warning("%s is %s", manifest.kernel, manifest.proof.verdict())


def require_proof(manifest: Manifest) -> None:
    """Raises LaunchRefused for an artifact whose proof was overridden.

    One that is ordered is launched: no access of it can race, and what it computes its author
    answers for, as of any kernel. That nothing compared it is logged, once a kernel.
    """
    say_if_ordered(manifest)
    if not manifest.proof.launchable:
        reasons = "".join(f"\n  {reason}" for reason in manifest.proof.reasons)
        raise LaunchRefused(
            f"{manifest.kernel} is unproved and is not launched:{reasons}",
            hint="build it without --allow-unproved; `mlagen verify` may look at it as it is",
        )


def require_target(manifest: Manifest, targets: tuple[str, ...], launcher: str) -> None:
    """Raises LaunchRefused for an artifact of a target that `launcher` does not run."""
    if manifest.target not in targets:
        raise LaunchRefused(
            f"{manifest.kernel} is for {manifest.target}; {launcher} runs {', '.join(targets)}"
        )


def check_names(
    manifest: Manifest, tensors: Mapping[str, Any], scalars: Mapping[str, int | float]
) -> None:
    """Raises ConfigError for a tensor or number that is missing or that the kernel has not."""
    needed = {arg.tensor for arg in manifest.args if arg.tensor}
    values = {arg.name for arg in manifest.args if not arg.tensor}
    for kind, legal, given in (("tensor", needed, tensors), ("scalar", values, scalars)):
        for what, names in (("misses", legal - given.keys()), ("has no", given.keys() - legal)):
            if names:
                raise ConfigError(
                    f"{manifest.kernel} {what} the {kind} {', '.join(sorted(names))}",
                    hint=f"its {kind}s: {', '.join(sorted(legal)) or 'none'}",
                )


def bind(
    manifest: Manifest,
    tensors: Mapping[str, np.ndarray],
    scalars: Mapping[str, int | float],
) -> list[tuple[Arg, np.ndarray | Scalar]]:
    """Pairs each argument of the kernel with the array or number passed for it, in order; a tensor
    map with the array that it describes.

    Raises ConfigError for a name that is missing or not an argument, an array that is not
    C-contiguous or not writable where the kernel writes, and a number out of its type's range.
    """
    check_names(manifest, tensors, scalars)
    return [
        (
            arg,
            np.uint32(arg.rows_in(tensors[arg.rows_of].shape))
            if arg.rows_of
            else _tensor(manifest, arg, tensors[arg.tensor])
            if arg.tensor
            else scalar_value(manifest, arg, scalars[arg.name]),
        )
        for arg in manifest.args
    ]


def _tensor(manifest: Manifest, arg: Arg, array: np.ndarray) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{manifest.kernel}: {arg.name} is a {type(array).__name__}, no array")
    if not array.flags.c_contiguous:
        raise ConfigError(
            f"{manifest.kernel}: {arg.name} is not C-contiguous (strides {array.strides})",
            hint="numpy.ascontiguousarray makes a copy that is",
        )
    if arg.access == "write" and not array.flags.writeable:
        raise ConfigError(f"{manifest.kernel}: {arg.name} is written to, but it is read-only")
    return array


def scalar_value(manifest: Manifest, arg: Arg, value: int | float) -> Scalar:
    """A number as the argument's type. Raises ConfigError for one that does not fit it."""
    if arg.kind == "f32":
        with np.errstate(over="ignore"):  # an overflow becomes infinite and is refused below
            single = np.float32(value)
        if not math.isfinite(single):
            raise ConfigError(f"{manifest.kernel}: {arg.name} = {value} is no finite f32")
        return single
    low, high = _RANGES[arg.kind]
    if int(value) != value or not low <= value <= high:
        raise ConfigError(f"{manifest.kernel}: {arg.name} = {value} is no {arg.kind}")
    return np.uint32(value) if arg.kind == "u32" else np.int32(value)
