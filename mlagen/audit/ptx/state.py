"""All that changes while a block is followed along a path."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from mlagen.audit.ptx.agent import Agent
from mlagen.audit.ptx.barriers import Mbarrier, NamedBarrier, WgmmaOperation
from mlagen.audit.ptx.order import Sink
from mlagen.audit.ptx.paths import Path
from mlagen.audit.ptx.program import WINDOW, WINDOW_BITS, EntryProgram, Setting
from mlagen.audit.ptx.report import Finding
from mlagen.audit.ptx.shared import Clash, Event, Release, SharedMemory
from mlagen.audit.ptx.values import Term
from mlagen.audit.ptx.weak import WeakWait
from mlagen.ptx import Instruction, Vector
from mlagen.severity import LETTER

# What the later of two accesses does, how the earlier one stands to it, and what would order them.
_CLASHES = {
    "smem-raw": ("reads", "which {} may still be writing", "a wait for it before this read"),
    "smem-war": ("overwrites", "which {} may still be reading",
                 "a release by the readers, and a wait for it, before this write"),
    "smem-waw": ("overwrites", "which {} may still be writing", "an order between the two writes"),
    "smem-load-release": ("overwrites", "which {} may still have to read",
                          "its values used before the release, or fence.proxy.async between the"
                          " load and the release"),
    "proxy-fence": ("accesses", "written by {} without a proxy fence",
                    "fence.proxy.async between the write and the synchronisation"),
}  # fmt: skip
_BY_WAITS = ("smem-raw", "smem-war", "smem-waw")


def _stores_one_number(instruction: Instruction) -> bool:
    """Whether a store puts the same number everywhere, whoever executes it."""
    stored = instruction.operands[1] if instruction.name == "st" else None
    each = stored.items if isinstance(stored, Vector) else (stored,)
    return isinstance(each[0], int) and len(set(each)) == 1


@dataclass(slots=True, eq=False)
class PathsSeen:
    """What the paths have shown, for judging mutants and the length of rings."""

    slots: dict[int, set[int]] = field(default_factory=dict)  # wait -> mbarriers it was seen on
    reached: set[int] = field(default_factory=set)  # instructions, on paths that were possible
    arrived: set[int] = field(default_factory=set)  # lines of arrivals
    useful: set[int] = field(default_factory=set)  # lines of arrivals that a wait was for
    fences: set[int] = field(default_factory=set)  # lines of proxy fences
    effective: set[int] = field(default_factory=set)  # of those, which made something visible
    equations: list[tuple[int, tuple[str, ...], Instruction]] = field(default_factory=list)
    targets: dict[str, set[int]] = field(default_factory=dict)  # where copies through a box go
    sources: dict[str, set[int]] = field(default_factory=dict)  # where stores of a box come from
    barriers: set[int] = field(default_factory=set)  # addresses of mbarriers
    in_parts: bool = False  # some warps of a warpgroup, and not all, told others what it did


@dataclass(eq=False)
class State:
    """Threads, barriers, memory and what was found, at one moment of one path."""

    program: EntryProgram
    setting: Setting
    path: Path
    seen: PathsSeen  # of the kernel as a whole, over all paths
    agents: list[Agent] = field(default_factory=list)
    finished: list[Agent] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    memory: SharedMemory = field(init=False)
    mbarriers: dict[int, Mbarrier] = field(default_factory=dict)
    bars: dict[int, NamedBarrier] = field(default_factory=dict)
    wgmma: dict[int, list[WgmmaOperation]] = field(default_factory=dict)  # by warpgroup
    generic: int = 0  # events that are ordinary writes, a set
    read: int = 0  # events that are ordinary loads
    loads: list[Event] = field(default_factory=list)
    registers: dict[int, int] = field(default_factory=dict)  # a thread's, by warp
    pool: dict[int, int] = field(default_factory=dict)  # that setmaxnreg.dec gave, by block
    register_trace: dict[int, list[int]] = field(default_factory=dict)  # by warp
    findings: list[Finding] = field(default_factory=list)
    gaps: dict[str, None] = field(default_factory=dict)  # what could not be decided
    blind: bool = False  # some access could not be followed
    reached: set[int] = field(default_factory=set)  # instructions other than arithmetic
    steps: int = 0
    moved: bool = False
    flow: int = 0  # fingerprint of which write each read sees
    counts: dict[tuple[int, int], int] = field(default_factory=dict)  # by line and warp
    data: int = 0  # that have got a name
    parities: dict[int, int] = field(default_factory=dict)  # of waits: the first, as it is written
    released: dict[int, Release] = field(default_factory=dict)  # by a load's event
    names: dict[int, dict[int, int]] = field(default_factory=dict)  # event -> warp -> fingerprint
    maps: dict[Term, Any] = field(default_factory=dict)  # edited tensor maps (`maps`), by address
    begun: list[Event] = field(default_factory=list)  # the begin of each block of a cluster
    # Accesses to shared memory of a cluster, by its block; and those from another block.
    within: dict[int, int] = field(default_factory=dict)
    remote: list[tuple[int, Event, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        setting = self.setting
        self.memory = SharedMemory.of(setting.blocks * setting.pitch, self.events)

    def clone(self) -> State:
        """An independent copy at the same moment."""
        other = copy(self)
        other.path = self.path.clone()
        other.agents = [agent.clone() for agent in self.agents]
        other.finished = list(self.finished)
        other.events = list(self.events)
        other.memory = self.memory.clone(other.events)
        other.mbarriers = {at: bar.clone() for at, bar in self.mbarriers.items()}
        other.bars = {number: bar.clone() for number, bar in self.bars.items()}
        other.wgmma = {
            group: [operation.clone() for operation in operations]
            for group, operations in self.wgmma.items()
        }
        other.loads = list(self.loads)
        other.registers, other.pool = dict(self.registers), dict(self.pool)
        other.register_trace = {warp: list(trace) for warp, trace in self.register_trace.items()}
        other.findings, other.gaps = list(self.findings), dict(self.gaps)
        other.reached = set(self.reached)
        other.counts = dict(self.counts)
        other.parities = dict(self.parities)
        other.released = dict(self.released)
        other.names = dict(self.names)
        other.maps = dict(self.maps)
        other.within, other.remote = dict(self.within), list(self.remote)
        return other

    def event(
        self, instruction: Instruction, what: str, threads: int = 0, *, generic: bool = False
    ) -> Event:
        """A new event."""
        event = Event(len(self.events), instruction, what, threads, generic)
        self.events.append(event)
        if generic:
            self.generic |= event.bit
        return event

    def tell(
        self,
        rule: str,
        agent: Agent | None,
        instruction: Instruction,
        message: str,
        *,
        other: Instruction | None = None,
        needs: str | WeakWait = "",
        guess: str = "",
        lightly: bool = False,
    ) -> None:
        """Notes a finding of this path. `needs`: what would mend it, or the wait that is to change.
        `guess`: what it rests on; see mlagen.severity. `lightly`: hardware is known to order it."""
        if self.setting.solve:
            return
        change = 0
        if isinstance(needs, WeakWait):
            message, change, needs = f"{message}; {needs.told}", needs.at.line, needs.needs
        name, who = self.program.entry.name, agent.who if agent else ""
        found = Finding.at(
            rule, name, instruction, message, other=other, needs=needs, who=who, guess=guess
        )
        severity = LETTER if lightly else found.severity
        self.findings.append(replace(found, severity=severity, change=change))

    def tell_clashes(
        self, agent: Agent, instruction: Instruction, what: str, found: list[Clash]
    ) -> None:
        """Notes accesses that are not ordered."""
        for clash in found:
            earlier, (verb, how, needs) = clash.earlier, _CLASHES[clash.kind]
            address = self.setting.address(clash.address)
            told = f"{what} {verb} shared memory at {address:#x}, {how.format(earlier.what)}"
            release = self.released.get(earlier.number)
            if clash.kind == "smem-load-release" and release:
                if self._elsewhere(earlier.instruction, release):
                    continue
                line = release.instruction.line
                told += f": line {line} releases it before a value of that load is used"
            # A load that a wait for wgmma followed has read long ago: kernels rely on it.
            lightly = clash.kind == "smem-load-release" and earlier.long_ago
            # Whichever comes last, the same is there.
            alike = earlier.instruction is instruction and _stores_one_number(instruction)
            lightly |= clash.kind == "smem-waw" and alike
            weak = earlier.lets(instruction) if clash.kind in _BY_WAITS else None
            other = earlier.instruction
            self.tell(
                clash.kind,
                agent,
                instruction,
                told,
                other=other,
                needs=weak or needs,
                lightly=lightly,
            )

    def _elsewhere(self, load: Instruction, release: Release) -> bool:
        """Whether a value that was not there yet at a release is used on other paths alone."""
        graph, begin, after = self.program.graph, load.index + 1, release.instruction.index + 1
        used = any(graph.used_from(begin, name) for name in graph.writes[load.index])
        return used and not any(graph.used_from(after, name) for name in release.held)

    def settle(self, sink: Sink) -> tuple[int, int]:
        """What whoever waits learns: (over, fenced)."""
        found = sink.settle(self.events)
        self.seen.in_parts |= sink.parts
        return found

    def accesses(self, agent: Agent, event: Event, block: int, what: str) -> None:
        """An access to the shared memory of a block, which must have begun, and not have ended."""
        if self.setting.blocks == 1 or not 0 <= block < self.setting.blocks:
            return
        self.within[block] = self.within.get(block, 0) | event.bit
        if block == agent.block:
            return
        self.remote.append((block, event, what))
        begun = self.begun[block]
        if not agent.knowledge(event.threads or event.by or None).over >> begun.number & 1:
            self.tell(
                "cluster-begin",
                agent,
                event.instruction,
                f"{what} accesses the shared memory of block {block}, which may not have begun",
                needs="barrier.cluster.arrive and .wait of all blocks before it",
            )

    def elsewhere(self, block: int) -> int:
        """Events on shared memory of other blocks than this one."""
        found = 0
        for other, events in self.within.items():
            found |= events if other != block else 0
        return found

    def inside(self, agent: Agent, instruction: Instruction, start: int, size: int) -> bool:
        """Whether bytes are inside the block's shared memory; if not, that is told."""
        at = start & (WINDOW - 1)
        within = at + size <= self.setting.shared_bytes
        if within and 0 <= start < self.setting.blocks << WINDOW_BITS:
            return True
        self.tell(
            "smem-bounds",
            agent,
            instruction,
            f"bytes {start:#x}..{start + size - 1:#x} are outside the block's"
            f" {self.setting.shared_bytes} bytes of shared memory",
        )
        return False

    def aligned(self, agent: Agent, instruction: Instruction, start: int, align: int) -> None:
        """Tells an address that is not aligned."""
        if start % align:
            self.tell(
                "smem-alignment",
                agent,
                instruction,
                f"shared-memory address {start:#x} is no multiple of {align}",
                needs=f"{align}-byte alignment",
            )

    def written(self, agent: Agent, instruction: Instruction, start: int, size: int) -> None:
        """Tells data that is written over an mbarrier in use."""
        for address, bar in self.mbarriers.items():
            if start < address + 8 and address < start + size:
                self.tell(
                    "mbarrier-overwritten",
                    agent,
                    instruction,
                    f"bytes {start:#x}..{start + size - 1:#x} hold the mbarrier at {address:#x}",
                    other=bar.init.instruction,
                    needs="another place, or mbarrier.inval before",
                )

    def gap(self, text: str) -> None:
        """Something that could not be decided."""
        self.gaps[text] = None

    def lose(self, instruction: Instruction, what: str) -> None:
        """Something that could not be followed: what comes after it may rest on it."""
        self.blind = True
        self.gap(f"line {instruction.line}: {what}")

    def lose_address(self, instruction: Instruction) -> None:
        """An access that is checked against none."""
        self.lose(
            instruction,
            f"the shared-memory address of `{instruction.text}` is not known, so this access is"
            " checked against none",
        )
