"""What users of the emulator give and get: a launch, how it is run, what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mlagen.emulator.buffer import Buffer, Triple
from mlagen.emulator.findings import SanitizerFinding
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput
from mlagen.emulator.streams import ExecutedStream
from mlagen.emulator.tensor_maps import TensorMap

Mode = Literal["latest", "earliest", "random"]


@dataclass(frozen=True, eq=False)
class Argument:
    """A kernel argument at a byte offset: a Buffer (its address is passed), a numpy scalar or, for
    PTX, a TensorMap (its 128 bytes are).

    `offset`: in the argument segment; for PTX in the parameter space, where each parameter begins
    at the next multiple of its alignment. `buffer_offset`: bytes added to a Buffer's address.
    """

    offset: int
    value: Buffer | np.generic | TensorMap
    buffer_offset: int = 0


@dataclass(frozen=True, eq=False)
class Launch:
    """What is launched.

    `grid`: workgroups in x, y, z; `block`: work-items in x, y, z. `buffers`: memory beside that of
    the arguments, reached through pointers that other memory holds (so with an address of its own).
    `kernel`: its name, where the code object has several. `dynamic_lds_bytes` adds to the LDS that
    the descriptor asks for.

    PTX only: `cluster` in blocks (None: what the text asks for, or none) and `dynamic_shared`, the
    bytes of shared memory beside the text's variables.
    """

    grid: Triple
    block: Triple
    arguments: Sequence[Argument]
    buffers: Sequence[Buffer] = ()
    kernel: str | None = None
    dynamic_lds_bytes: int = 0
    cluster: Triple | None = None
    dynamic_shared: int = 0


@dataclass(frozen=True)
class Settings:
    """How a launch is emulated.

    `sanitize`: watch for defects. `mode`: when asynchronous results land - as late as the waits
    allow, at once, or at random legal moments with random interleaving of waves (from `seed`).
    `workgroups`: run only these (default: all). `threads`: host threads over workgroups (default:
    up to the host's cores). `max_instructions` bounds the wave-instructions of one workgroup.
    `trace_nonfinite` follows NaN and Inf from the instruction that made them to the buffers they
    reach; such a run is slower. `record` keeps every instruction executed and the addresses of its
    accesses (some 100 bytes an instruction; choose the workgroups). Both are of gfx950 alone.
    `exact`, of PTX alone: the tensor core's own sums, bit for bit; else fp32, faster.
    """

    sanitize: bool = True
    mode: Mode = "latest"
    seed: int = 0
    workgroups: Sequence[Triple] | None = None
    threads: int | None = None
    max_instructions: int | None = None
    trace_nonfinite: bool = False
    record: bool = False
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Unlanded:
    """A store that ran `count` times and stored nothing: the range check of its buffer drops all
    its lanes. Kernels leave rows off so, and a wrong resource looks alike. `pc`: bytes from the
    kernel's entry."""

    pc: int
    asm: str
    count: int


@dataclass(frozen=True)
class EmulationResult:
    """What a run found and did. For PTX a workgroup is a block, a wave a warp.

    `findings`: deduplicated by (kind, pc, other_pc); of PTX they are `PtxFinding`s.
    `wave_instructions`: executed, all waves. `counts`: executed per mnemonic; `executions`: per
    instruction, by its byte offset (of PTX its number in the kernel's text, from 0). `seconds`:
    wall time of the execution itself.
    `dropped_findings`: occurrences not recorded because a workgroup had more than 2048 different
    findings. `nonfinite`: where NaN and Inf appeared first, in execution order within a workgroup;
    `nonfinite_outputs`: those that buffers hold after the run, with their origins. Both are empty
    without `trace_nonfinite`. `unlanded`: stores of which no lane ever reached memory (gfx950).
    `streams`: what each workgroup executed, with `record` only.
    """

    findings: tuple[SanitizerFinding, ...]
    wave_instructions: int
    counts: Mapping[str, int]
    seconds: float
    dropped_findings: int = 0
    nonfinite: tuple[NonfiniteOrigin, ...] = ()
    nonfinite_outputs: tuple[NonfiniteOutput, ...] = ()
    streams: tuple[ExecutedStream, ...] = ()
    executions: Mapping[int, int] = field(default_factory=dict)
    unlanded: tuple[Unlanded, ...] = ()
