"""What the cycle engine takes, keeps and counts: values that numba compiles for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from mlagen.timing import cycle_program as p

Ints = npt.NDArray[np.int64]

# The engine allocates nothing. With numba's counts of references to the arrays of a value, kept at
# every use of one, it takes ten times as long.
OPTIONS: Final[dict[str, Any]] = {"_nrt": False}
# Of a function that only the engine calls: LLVM puts it into its callers.
_INNER: Final[dict[str, Any]] = {
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
compiled: Any = njit(**OPTIONS, **_INNER)

MODEL: Final = "the cycle model for this machine"  # what is compiled, as a log tells it

# Why a wave did not issue in its turn.
(
    ISSUED, VECTOR_RESULT, MATRIX_RESULT, SCALAR_RESULT, VALU_BUSY, MATRIX_BUSY, WAIT_VM,
    WAIT_LGKM, BARRIER, NOPS, FETCH, QUEUE_FULL, TURN,
) = range(13)  # fmt: skip
REASONS: Final = ("issued", "vector result", "matrix result", "scalar result", "vector unit busy",
                  "matrix unit busy", "memory wait", "LDS wait", "barrier", "nop", "branch",
                  "queue full", "other wave's turn")  # fmt: skip

# `Counts.busy`: cycles a pipe is busy, all SIMDs together.
B_VECTOR, B_TRANS, B_MATRIX, B_LDS, B_MEMORY, B_SIZE = range(6)

# A wave's slots in `Waves.state`.
S_AT: Final = 0  # cycle from which its next instruction may issue
S_WHY: Final = 1
S_STEP: Final = 2
S_PRIORITY: Final = 3
S_STATE: Final = 4
S_VM_TAIL: Final = 5
S_LGKM_TAIL: Final = 6
S_STATE_SIZE: Final = 7
RUNNING, WAITING, ENDED = 0, 1, 2

SIMDS: Final = 4
RING: Final = 128  # results of a wave that it may wait for
ARRIVALS: Final = 4096  # loads to LDS under way: at most 63 of each wave


class MachineNumbers(NamedTuple):
    """Of the machine: cycles, bytes a cycle, limits of counters."""

    slot: int
    lds_scale: float  # LDS cycles per phase cycle
    lds_latency: int
    lgkm_limit: int
    ta_bytes: int
    memory_bytes: float  # from beyond the L1, this CU's share
    memory_latency: int
    smem_latency: int
    vm_limit: int
    barrier: int
    taken: int
    not_taken: int
    co_issue: int
    dma_bytes: int


class Steps(NamedTuple):
    """What the waves execute. `first`: where each wave's steps begin in the others, and the end.

    `rows`, `ranges`: the program's. By step: its row, and of its access the cycles of LDS, the
    bytes and the cache lines. By wave: its workgroup (barriers are among these) and its SIMD.
    """

    rows: Ints
    ranges: Ints
    first: Ints
    row: Ints
    lds: Ints
    bytes: Ints
    lines: Ints
    group: Ints
    simd: Ints


class Counts(NamedTuple):
    """What comes out: the cycle of each step; wave-cycles [rows, reasons]; cycles by pipe."""

    when: Ints
    stalls: Ints
    busy: Ints


class Waves(NamedTuple):
    """By wave: slots S_*, when each register is ready and of which unit its value is, and when the
    operations come back that its counters count."""

    state: Ints
    ready: Ints
    origin: npt.NDArray[np.int8]
    vm: Ints
    lgkm: Ints


class Simds(NamedTuple):
    """The waves of each SIMD in the order of their turns and how many they are; the cycles from
    which its two issue ports and its matrix unit are free, and whose the ports were last. `used`:
    the units that a wave has used in the turn that is on."""

    order: Ints
    members: Ints
    port: Ints
    owner: Ints
    matrix_free: Ints
    used: Ints


class Pipes(NamedTuple):
    """The unit's. `free`: cycle from which LDS, addresses and memory are. Loads to LDS under way:
    when they arrive, the cycles of LDS that they take, the first and the end of them."""

    free: npt.NDArray[np.float64]
    arrivals: npt.NDArray[np.float64]
    costs: npt.NDArray[np.float64]
    ring: Ints


class ComputeUnit(NamedTuple):
    """One run of the engine."""

    numbers: MachineNumbers
    steps: Steps
    counts: Counts
    waves: Waves
    simds: Simds
    pipes: Pipes


def compute_unit(numbers: MachineNumbers, steps: Steps, counts: Counts) -> ComputeUnit:
    """A unit before its first cycle; waves without a step have ended."""
    waves = len(steps.group)
    state = np.zeros((waves, S_STATE_SIZE), dtype=np.int64)
    state[:, S_STEP], state[:, S_WHY] = steps.first[:-1], FETCH
    state[steps.first[:-1] == steps.first[1:], S_STATE] = ENDED
    order = np.zeros((SIMDS, waves), dtype=np.int64)
    members = np.bincount(steps.simd, minlength=SIMDS)
    for simd in range(SIMDS):
        order[simd, : members[simd]] = np.flatnonzero(steps.simd == simd)
    return ComputeUnit(
        numbers,
        steps,
        counts,
        Waves(
            state,
            ready=np.zeros((waves, p.REGISTERS), dtype=np.int64),
            origin=np.zeros((waves, p.REGISTERS), dtype=np.int8),
            vm=np.zeros((waves, RING), dtype=np.int64),
            lgkm=np.zeros((waves, RING), dtype=np.int64),
        ),
        Simds(
            order,
            members,
            port=np.zeros((SIMDS, 2), dtype=np.int64),
            owner=np.full((SIMDS, 2), -1, dtype=np.int64),
            matrix_free=np.zeros(SIMDS, dtype=np.int64),
            used=np.zeros(len(p.UNITS), dtype=np.int64),
        ),
        Pipes(
            free=np.zeros(3),
            arrivals=np.zeros(ARRIVALS),
            costs=np.zeros(ARRIVALS),
            ring=np.zeros(2, dtype=np.int64),
        ),
    )
