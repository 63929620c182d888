"""What an inspection says, as values: the same for an artifact and for a binary that others made.

Code is cut into clusters: runs of instructions that end at a barrier, or where control leaves
them. Everything else (registers, memory, waits, instruction mix) is told cluster by cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mlagen.artifact.maps import TmemMap

Pipe = Literal[
    "matrix",
    "vector",
    "transcendental",
    "lds",
    "dma",
    "vmem",
    "smem",
    "scalar",
    "branch",
    "wait",
    "barrier",
]
PIPES: tuple[Pipe, ...] = get_args(Pipe)

Touch = Literal["write", "read", "both", "through"]
"""What a cluster does with a register block: `through` leaves its living values alone."""


@dataclass(frozen=True, slots=True)
class CodeRole:
    """Waves (warps on NVIDIA targets) `first` .. `last` that run the same code.

    `stagger`: barriers it lags the first role by. `registers`: of a thread, where roles differ.
    """

    name: str
    first: int
    last: int
    unit: Literal["wave", "warp"]
    stagger: int = 0
    registers: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One instruction. `at`: bytes from the entry, or the line of a `.ptx`. Lines are 1-based; 0
    and "" mean that nothing is known."""

    at: int
    text: str
    pipe: Pipe
    operation: str = ""
    template: str = ""
    template_line: int = 0
    schedule_line: int = 0


@dataclass(frozen=True, slots=True)
class CodeWait:
    """One wait. `needed`: what the accesses need at least; "" where that is not known.

    `source`: derived or explicit (written by hand) in an artifact, binary where nothing but the
    code tells of it. `slack`: how much stricter than needed, "" for none or not known.
    """

    at: int
    text: str
    source: Literal["derived", "explicit", "binary"]
    needed: str = ""
    slack: str = ""
    before: str = ""  # "s_barrier", or the instruction that had to wait


@dataclass(frozen=True, slots=True)
class CodeCluster:
    """A run of code. `id` is its own in this inspection; `name` as the schedule says it.

    `kind`: what it mostly does (see `mlagen.inspect.pipes.kind_of`). `loop`: the loop that holds
    it, "" outside of loops. `end`: "barrier", "jump", "end" or "falls through".
    """

    id: str
    name: str
    section: str
    roles: tuple[str, ...]
    loop: str
    kind: str
    end: str
    mix: tuple[tuple[Pipe, int], ...]
    waits: tuple[CodeWait, ...]
    lines: tuple[CodeLine, ...]
    priority: int | None = None

    @property
    def label(self) -> str:
        return f"{self.section} {self.name}".strip()

    @property
    def title(self) -> str:
        """The section, and the name that the schedule gives."""
        return self.section if self.name == self.id else f"{self.section} {self.name}"

    def count(self, pipe: Pipe) -> int:
        return dict(self.mix).get(pipe, 0)

    @property
    def instructions(self) -> int:
        return sum(count for _, count in self.mix)


@dataclass(frozen=True, slots=True)
class CodeLoop:
    """One loop of the code. `first`, `last`: as `CodeLine.at`. `barriers`: on one pass, None where
    the ways through it differ. `parent`: the loop around it, ""."""

    name: str
    first: int
    last: int
    parent: str
    roles: tuple[str, ...]
    barriers: int | None


@dataclass(frozen=True, slots=True)
class RegisterBlock:
    """`count` registers from `first` that live and die together.

    `file`: v, a, s or a PTX type. `touched`: (cluster id, touch) of each cluster it is alive in.
    `declared`: its name stands in the schedule; otherwise it was lifted from the code.
    """

    name: str
    file: str
    first: int
    count: int
    use: str
    touched: tuple[tuple[str, Touch], ...]
    declared: bool
    bank: str = ""

    @property
    def registers(self) -> str:
        if self.first < 0:
            return f"{self.count} x {self.file}"
        if self.count == 1:
            return f"{self.file}{self.first}"
        return f"{self.file}[{self.first}:{self.first + self.count - 1}]"


@dataclass(frozen=True, slots=True)
class MemoryArea:
    """`slots` pieces of `slot_bytes` in LDS or shared memory, from byte `base` on."""

    name: str
    kind: str  # ring, tile, buffer, message, barriers
    base: int
    slots: int
    slot_bytes: int
    layout: str = ""
    note: str = ""

    @property
    def bytes(self) -> int:
        return self.slots * self.slot_bytes


@dataclass(frozen=True, slots=True)
class LdsUse:
    """All accesses of one kind through one address register with the same bank pattern.

    `cycles` of `ideal` LDS cycles an access of a wave takes, None where the lanes' addresses or
    the phases of the instruction are not known (`unknown` says which). `banks`: for each phase the
    distinct dwords that every bank serves.
    """

    mnemonic: str
    address: str
    count: int
    first_at: int
    lowest: int | None  # byte of LDS, over lanes, waves and all these accesses
    highest: int | None
    cycles: int | None
    ideal: int | None
    banks: tuple[tuple[int, ...], ...] = ()
    unknown: str = ""
    areas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Handoff:
    """What goes from one role to others through shared memory: a pipeline, or an exchange."""

    name: str
    producer: str
    consumers: tuple[str, ...]
    depth: int
    bytes: int
    barrier: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Which clusters meet: column `c` is the time between two barriers, one row a role.

    `rows`: (role, ids of the clusters in each column). Only where all loops pass equally many
    barriers; otherwise `why` says what kept it from being drawn.
    """

    columns: int
    rows: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is told of one kernel."""

    name: str
    path: str
    origin: Literal["artifact", "binary"]
    target: str
    facts: tuple[tuple[str, str], ...]
    resources: tuple[tuple[str, int], ...]
    roles: tuple[CodeRole, ...]
    loops: tuple[CodeLoop, ...]
    clusters: tuple[CodeCluster, ...]
    timeline: Timeline
    blocks: tuple[RegisterBlock, ...]
    memory: tuple[MemoryArea, ...]
    memory_bytes: int
    lds: tuple[LdsUse, ...]
    handoffs: tuple[Handoff, ...]
    limits: tuple[str, ...]  # what could not be known, in words
    code_sha256: str  # of the kernel's machine code
    schedule_file: str = ""
    tmem: tuple[TmemMap, ...] = ()  # columns of tensor memory

    def cluster(self, id: str) -> CodeCluster:
        return next(cluster for cluster in self.clusters if cluster.id == id)

    def mix(self, clusters: tuple[CodeCluster, ...] | None = None) -> dict[Pipe, int]:
        """Instructions of each pipe, of all clusters or the given ones."""
        total = dict.fromkeys(PIPES, 0)
        for cluster in self.clusters if clusters is None else clusters:
            for pipe, count in cluster.mix:
                total[pipe] += count
        return total

    @property
    def looped(self) -> tuple[CodeCluster, ...]:
        """The clusters inside innermost loops."""
        outer = {loop.parent for loop in self.loops}
        return tuple(c for c in self.clusters if c.loop and c.loop not in outer)
