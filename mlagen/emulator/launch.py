"""What users of the emulator give and get: a launch, how it is run, what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mlagen.emulator.findings import Finding
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput
from mlagen.emulator.streams import ExecutedStream

Mode = Literal["latest", "earliest", "random"]
Access = Literal["read", "write", "readwrite"]
Triple = tuple[int, int, int]


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


@dataclass(frozen=True, eq=False)
class Launch:
    """What is launched.

    `grid`: workgroups in x, y, z; `block`: work-items in x, y, z. `buffers`: memory beside that of
    the arguments, reached through pointers that other memory holds (so with an address of its own).
    `kernel`: its name, where the code object has several. `dynamic_lds_bytes` adds to the LDS that
    the descriptor asks for.
    """

    grid: Triple
    block: Triple
    arguments: Sequence[Argument]
    buffers: Sequence[Buffer] = ()
    kernel: str | None = None
    dynamic_lds_bytes: int = 0


@dataclass(frozen=True)
class Settings:
    """How a launch is emulated.

    `sanitize`: watch for defects. `mode`: when asynchronous results land - as late as the waits
    allow, at once, or at random legal moments with random interleaving of waves (from `seed`).
    `workgroups`: run only these (default: all). `threads`: host threads over workgroups (default:
    up to the host's cores). `max_instructions` bounds the wave-instructions of one workgroup.
    `trace_nonfinite` follows NaN and Inf from the instruction that made them to the buffers they
    reach; such a run is slower. `record` keeps every instruction executed and the addresses of its
    accesses (some 100 bytes an instruction; choose the workgroups).
    """

    sanitize: bool = True
    mode: Mode = "latest"
    seed: int = 0
    workgroups: Sequence[Triple] | None = None
    threads: int | None = None
    max_instructions: int | None = None
    trace_nonfinite: bool = False
    record: bool = False


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
    streams: tuple[ExecutedStream, ...] = ()
    executions: Mapping[int, int] = field(default_factory=dict)
