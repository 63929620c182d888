"""Running kernels: buffers, arguments, results. The values users of the emulator deal with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mlagen.binary import CodeObject, load_code_object
from mlagen.emulator.findings import Finding
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput
from mlagen.emulator.streams import Stream
from mlagen.errors import ConfigError, MissingError, UnsupportedError

Mode = Literal["latest", "earliest", "random"]
Access = Literal["read", "write", "readwrite"]


@dataclass(frozen=True, eq=False)
class Buffer:
    """Global memory behind a pointer argument.

    `array`: any C-contiguous numpy array; what the kernel stores is written back into it unless
    `access` is "read". `address`: the simulated address (default: assigned, 4 KiB aligned, with
    guard gaps of more than 4 GiB around it). Accesses outside it are reported under `name`.
    """

    name: str
    array: np.ndarray
    access: Access = "readwrite"
    address: int | None = None


@dataclass(frozen=True, eq=False)
class Argument:
    """A kernel argument at a byte offset: a Buffer (its address is passed) or a numpy scalar.

    `buffer_offset`: bytes added to a Buffer's address.
    """

    offset: int
    value: Buffer | np.generic
    buffer_offset: int = 0


@dataclass(frozen=True)
class EmulationResult:
    """What a run found and did.

    `findings`: deduplicated by (kind, pc, other_pc). `wave_instructions`: executed, all waves.
    `counts`: executed per mnemonic; `executions`: per instruction, by its byte offset. `seconds`:
    wall time of the execution itself.
    `dropped_findings`: occurrences not recorded because a workgroup had more than 2048 different
    findings. `nonfinite`: where NaN and Inf appeared first, in execution order within a workgroup;
    `nonfinite_outputs`: those that buffers hold after the run, with their origins. Both are empty
    without `trace_nonfinite`. `streams`: what each workgroup executed, with `record` only.
    """

    findings: tuple[Finding, ...]
    wave_instructions: int
    counts: Mapping[str, int]
    seconds: float
    dropped_findings: int = 0
    nonfinite: tuple[NonfiniteOrigin, ...] = ()
    nonfinite_outputs: tuple[NonfiniteOutput, ...] = ()
    streams: tuple[Stream, ...] = ()
    executions: Mapping[int, int] = field(default_factory=dict)


def emulate(
    code: bytes | CodeObject,
    *,
    kernel: str | None = None,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[Argument],
    buffers: Sequence[Buffer] = (),
    sanitize: bool = True,
    mode: Mode = "latest",
    seed: int = 0,
    workgroups: Sequence[tuple[int, int, int]] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    dynamic_lds_bytes: int = 0,
    max_instructions: int | None = None,
    trace_nonfinite: bool = False,
    executed: Callable[[int], None] | None = None,
    record: bool = False,
) -> EmulationResult:
    """Execute a kernel of a gfx950 code object.

    `grid`: workgroups in x, y, z; `block`: work-items in x, y, z. `workgroups`: run only these
    (default: all). `buffers`: memory beside that of the arguments, reached through pointers that
    other memory holds (so with an address of its own). `mode`: when asynchronous results land - as
    late as the waits allow, at once, or at random legal moments with random interleaving of waves
    (from `seed`). `threads`: host threads over workgroups (default: up to the host's cores).
    `progress(done, total)` is called as workgroups finish, `executed(count)` every half a million
    wave-instructions of a workgroup with its count so far. `dynamic_lds_bytes` adds to the LDS that
    the descriptor asks for. `max_instructions` bounds the wave-instructions of one workgroup.
    `trace_nonfinite` follows NaN and Inf from the instruction that made them to the buffers they
    reach; such a run is slower. `record` keeps every instruction executed and the addresses of its
    accesses (some 100 bytes an instruction; choose the workgroups).

    Raises UnsupportedError before anything runs when the kernel uses what is not modelled,
    ConfigError for arguments that cannot be, BinaryError for code that cannot be read.
    """
    loaded = code if isinstance(code, CodeObject) else load_code_object(code)
    try:
        from mlagen.emulator.gfx950.machine import Launch, run_launch
    except ImportError as why:
        if getattr(why, "name", None) not in ("numba", "llvmlite"):
            raise
        raise MissingError(
            "the emulator's compiler is not installed: numba",
            hint="pip install 'mlagen[emulator]'",
        ) from None
    if loaded.target != "gfx950":
        raise UnsupportedError(f"the emulator executes gfx950 code, not {loaded.target}")
    if mode not in ("latest", "earliest", "random"):
        raise ConfigError(f"mode is {mode!r}; it is one of: latest, earliest, random")
    _check_dimensions("grid", grid)
    _check_dimensions("block", block)
    chosen = list(workgroups) if workgroups is not None else _all_workgroups(grid)
    for group in chosen:
        if len(group) != 3 or not all(0 <= g < n for g, n in zip(group, grid, strict=True)):
            raise ConfigError(f"workgroup {group} lies outside the grid {grid}")
    launch = Launch(
        kernel=loaded.kernel(kernel),
        grid=grid,
        block=block,
        arguments=tuple(arguments),
        buffers=tuple(buffers),
        sanitize=sanitize,
        mode=mode,
        seed=seed,
        workgroups=tuple(chosen),
        dynamic_lds_bytes=dynamic_lds_bytes,
        max_instructions=max_instructions,
        trace_nonfinite=trace_nonfinite,
        executed=executed,
        record=record,
    )
    return run_launch(launch, threads, progress)


def _check_dimensions(name: str, value: tuple[int, int, int]) -> None:
    if len(value) != 3 or any(int(part) < 1 for part in value):
        raise ConfigError(f"{name} is {value}; it is three numbers of at least 1")


def _all_workgroups(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
