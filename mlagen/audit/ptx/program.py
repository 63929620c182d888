"""What all runs of an entry share: its graph, decoded operands, and results that repeat."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from mlagen.audit.launch import NOT_KNOWN, KnownLaunch
from mlagen.audit.ptx.agent import LANES, WARPS
from mlagen.audit.ptx.load_waits import Routes
from mlagen.audit.ptx.protocol import PROTOCOL, relevant
from mlagen.audit.ptx.shared import Cells
from mlagen.audit.ptx.values import Term, Value
from mlagen.ptx import Descriptor, Entry, Graph, Instruction, Kind
from mlagen.ptx.descriptor import ranges
from mlagen.ptx.effects import wgmma_operands
from mlagen.ptx.types import access_bytes

# Shared memory of a cluster's blocks, as addresses of shared::cluster have it: the rank is in the
# bits from the 24th on. The ISA does not say so; kernels that turn that bit rely on it.
WINDOW_BITS = 24
WINDOW = 1 << WINDOW_BITS
_ALL_LANES = (-1, 0xFFFFFFFF)
# Results that do not depend on a thread's own values alone.
_OF_OTHERS = frozenset(
    ("atom", "call", "shfl", "vote", "elect", "match", "redux", "activemask", "ldmatrix", "bar")
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is told: the block, the boxes of tensor maps and when copies land."""

    threads: int
    shared_bytes: int  # static and dynamic; accesses beyond are out of bounds
    symbols: Mapping[str, int]  # shared variables
    boxes: Mapping[str, int]  # bytes of a tensor map's box
    told: Mapping[str, int] = field(default_factory=dict)  # those of them that were not solved
    late: bool = False  # copies land when nothing else can happen; else at once
    reverse: bool = False  # order in which warps get their turn
    solve: bool = False  # look for the boxes' bytes; no other checks
    blocks: int = 1  # of the CTA cluster, all followed
    guessed: bool = False  # boxes are estimates: bytes are taken to match what is expected
    flow: bool = False  # keep which write each read sees
    flipped: int = -1  # a wait that is tried with the other parity, by its index
    launch: KnownLaunch = NOT_KNOWN

    @property
    def bounds(self) -> Mapping[Term, int]:
        """Of unknowns that a known launch bounds: the first number that they do not reach."""
        grid, cluster = self.launch.grid, self.launch.cluster or (1, 1, 1)
        found: dict[Term, int] = {}
        for axis, blocks, own in zip("xyz", grid or (), cluster, strict=False):
            found["special", f"ctaid.{axis}"] = blocks
            found["special", f"clusterid.{axis}"] = max(blocks // own, 1)
        return found

    @property
    def stride(self) -> int:
        """From a thread's number to that of the same thread of the next block: no warpgroup has
        threads of two blocks."""
        return -(-self.threads // (LANES * WARPS)) * LANES * WARPS

    @property
    def pitch(self) -> int:
        """From a byte's place in the history of shared memory to the next block's."""
        return -(-self.shared_bytes // 16) * 16

    def place(self, address: Any) -> Any:
        """The place in the history of shared memory of an address (or of an array of them)."""
        return (address >> WINDOW_BITS) * self.pitch + (address & (WINDOW - 1))

    def address(self, place: int) -> int:
        """The address of a place."""
        block, at = divmod(place, self.pitch)
        return block * WINDOW + at


Handlers = tuple[bool, bool, Callable[..., None] | None, Callable[..., None] | None]


@dataclass(slots=True, eq=False)
class Straight:
    """Arithmetic of which each instruction goes on to the next: their places, what they read that
    they do not write before, what they write, and results by the values read."""

    places: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    known: dict[tuple[Any, ...], dict[str, Value]] = field(default_factory=dict)


class EntryProgram:
    """An entry with what the runs need again and again."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.graph = Graph(entry)
        self.wgmma = {
            i: wgmma_operands(entry.instructions[i])
            for i, kind in enumerate(self.graph.kinds)
            if kind is Kind.WGMMA
        }
        self.steering, self.holds = relevant(self.graph, entry.registers)
        self._readers: dict[str, set[int]] = defaultdict(set)
        for i, names in enumerate(self.graph.reads):
            for name in names:
                self._readers[name].add(i)
        self._writers = Counter(name for names in self.graph.writes for name in names)
        self.next = self._following()
        self.routes = Routes(self.graph)
        self.sizes = {p.name: p.size for p in entry.parameters}
        self.places = entry.parameter_places
        self.words: set[Term] = set()  # fields of parameters that are loaded as 32-bit numbers
        self.cells: dict[tuple[int, bytes, bytes], Cells] = {}  # by size, addresses, threads
        self.unit = LANES * WARPS if self._in_step() else LANES
        self.widths = tuple(access_bytes(i.parts) for i in entry.instructions)
        self.compiled: dict[int, Callable[[Sequence[Value]], Value]] = {}
        self.handlers: tuple[Handlers, ...] = ()  # of each instruction (`cta`)
        self.straight: dict[int, Straight] = {}
        self._quiet: dict[int, bool] = {}
        self._skips: dict[int, bool | None] = {}
        self._leaving: dict[tuple[str, int], bool | None] = {}
        self._deciding: dict[int, Mapping[str, frozenset[str] | None]] = {}

    @cached_property
    def live(self) -> tuple[frozenset[str], ...]:
        """Registers that steer and that may be read from each instruction on: those that threads
        which part or meet there have to agree about."""
        graph, count = self.graph, len(self.entry.instructions)
        bit = {name: 1 << at for at, name in enumerate(sorted(self.steering))}
        reads = [
            sum({bit[n] for n in names if n in bit}) if self.next[i] == i else 0
            for i, names in enumerate(graph.reads)
        ]
        writes = [
            0 if self.entry.instructions[i].guard else sum({bit[n] for n in names if n in bit})
            for i, names in enumerate(graph.writes)
        ]
        found = [0] * (count + 1)
        work = list(range(count))
        while work:
            i = work.pop()
            after = 0
            for n in graph.successors[i]:
                after |= found[n]
            now = reads[i] | after & ~writes[i]
            if now != found[i]:
                found[i] = now
                work.extend(graph.predecessors[i])
        names = {one: frozenset(n for n, b in bit.items() if one & b) for one in set(found)}
        return tuple(names[one] for one in found)

    @cached_property
    def most_registers(self) -> int:
        """The largest count that a setmaxnreg.inc names, 0 where there is none or nothing else."""
        found = [i for i in self.entry.instructions if i.name == "setmaxnreg"]
        named = [i.operands[0] for i in found if "inc" in i.parts]
        numbers = [n for n in named if isinstance(n, int)]
        return max(numbers, default=0) if len(named) < len(found) else 0

    def _following(self) -> tuple[int, ...]:
        """The next instruction that matters, from each one on."""
        steering = self.steering
        count = len(self.entry.instructions)
        following = list(range(count + 1))
        for i in range(count - 1, -1, -1):
            idle = self.graph.kinds[i] in (Kind.PLAIN, Kind.COLLECTIVE)
            if idle and not steering.intersection(self.graph.writes[i]):
                following[i] = following[i + 1]
        return tuple(following)

    def _in_step(self) -> bool:
        """Whether a warpgroup's warps can be followed together: nothing but barriers and wgmma
        makes a warp something of its own."""
        for i, kind in enumerate(self.graph.kinds):
            if kind is Kind.WARP_BARRIER:
                return False
            if kind is Kind.COLLECTIVE and self.next[i] == i:
                operands = self.entry.instructions[i].operands
                if not operands or operands[-1] not in _ALL_LANES:
                    return False
        return True

    def warp_by_warp(self) -> EntryProgram:
        """The same, with the warps of a warpgroup followed one by one."""
        other = copy(self)
        other.unit, other.cells, other.straight = LANES, {}, {}
        return other

    def behind_a_fence(self, index: int) -> bool:
        """Whether a fence of the cluster, at least, stands right before an instruction: what comes
        behind it releases all before it."""
        while index:
            index -= 1
            instruction, kind = self.entry.instructions[index], self.graph.kinds[index]
            if instruction.name in ("fence", "membar") and kind is Kind.PLAIN:
                wide = {"cluster", "gpu", "sys", "gl"} & set(instruction.parts)
                return bool(wide) and "proxy" not in instruction.parts
            if kind not in (Kind.PLAIN, Kind.COLLECTIVE):
                return False
        return False

    def way_out(self, branch: int) -> bool:
        """Whether taking a branch leaves the loop around it (False for other instructions)."""
        target = self.entry.instructions[branch].target
        return target >= 0 and not self.graph.comes_back(branch, target)

    def leaving(self, register: str, at: int) -> bool | None:
        """What a predicate, read at an instruction, is where the loops that it steers are left;
        None where it steers none."""
        once = self._writers[register] == 1
        key = (register, -1 if once else at)
        if key not in self._leaving:
            found = set()
            for i in self._readers[register] if once else (at,):
                branch = self.entry.instructions[i]
                if self.graph.kinds[i] is not Kind.BRANCH or branch.guard is None:
                    continue
                taken = branch.target >= 0 and self.graph.comes_back(i, branch.target)
                stays = self.graph.comes_back(i, i + 1)
                if taken is not stays:
                    found.add(stays is not branch.guard.negated)
            self._leaving[key] = found.pop() if len(found) == 1 else None
        return self._leaving[key]

    def skips_work(self, branch: int) -> bool | None:
        """Whether taking a branch leads around a loop that others see something of (True), or not
        taking it does (False); None for neither, or both."""
        if branch not in self._skips:
            graph, target = self.graph, self.entry.instructions[branch].target
            meet = graph.post_dominator[branch]
            way = {taken: self._works(graph.region(at, meet))
                   for taken, at in ((True, target), (False, branch + 1))}  # fmt: skip
            alone = way[True] is not way[False] and not graph.comes_back(branch, branch + 1)
            self._skips[branch] = way[False] if alone else None
        return self._skips[branch]

    def _works(self, region: frozenset[int]) -> bool:
        """Whether a loop is in a region, other than one that waits for an mbarrier."""
        shown = PROTOCOL - {Kind.MBARRIER_WAIT}
        return any(
            self.graph.kinds[i] in shown
            for edge in self.graph.back_edges
            if region.issuperset(edge)
            for i in self.graph.loop(edge)
        )

    def quiet(self, branch: int) -> bool:
        """Whether a branch decides nothing that the audit follows."""
        if branch not in self._quiet:
            inside = self.graph.skipped(branch)
            self._quiet[branch] = not any(self.graph.kinds[i] in PROTOCOL for i in inside)
        return self._quiet[branch]

    def deciding(self, branch: int) -> Mapping[str, frozenset[str] | None]:
        """What code that a branch may skip leaves behind for others that steer: each such register,
        with the registers that decide its value; None where something else decides it too."""
        if branch not in self._deciding:
            inside = self.graph.skipped(branch)
            alone = all(_same_everywhere(self.entry.instructions[i]) for i in inside)
            made = self.steering.intersection(name for i in inside for name in self.graph.writes[i])
            self._deciding[branch] = {
                name: self._live(branch, inside, name) if alone else None
                for name in made
                if not self._readers[name] <= inside
            }
        return self._deciding[branch]

    def _live(self, branch: int, inside: frozenset[int], result: str) -> frozenset[str]:
        """Registers whose values at the branch decide what a result is where both ways meet."""
        graph = self.graph
        last = frozenset((result,))
        live = dict.fromkeys(inside, frozenset[str]())
        counts: set[int] = set()  # nodes that the result depends on
        changed = True
        while changed:
            changed = False
            for i in sorted(inside, reverse=True):
                now: frozenset[str] = frozenset()
                for n in graph.successors[i]:
                    now |= live.get(n, last)
                made = now.intersection(graph.writes[i])
                if made and not self.entry.instructions[i].guard:
                    now -= made
                parts = graph.kinds[i] is Kind.BRANCH and not counts.isdisjoint(graph.skipped(i))
                if made or parts:
                    now = now.union(graph.reads[i])
                    changed |= i not in counts
                    counts.add(i)
                changed |= now != live[i]
                live[i] = now
        found = frozenset(graph.reads[branch])
        for n in graph.successors[branch]:
            found |= live.get(n, last)
        return found


def _same_everywhere(instruction: Instruction) -> bool:
    """Whether whoever executes it with the same values has the same result."""
    if instruction.name == "ld":
        spaces = {part.partition("::")[0] for part in instruction.parts}
        varies = {"volatile", "relaxed", "acquire", "mmio"} & spaces
        return not varies and bool({"param", "const", "global"} & spaces)
    return instruction.name not in _OF_OTHERS


@lru_cache(maxsize=16384)
def pieces(
    descriptor: int, extent: int, depth_bytes: int, mn_major: bool, element_bytes: int
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Why a matrix descriptor is misaligned ("" if not), and the (start, bytes) that it reads."""
    decoded = Descriptor.decode(descriptor)
    found = ranges(
        decoded,
        extent=extent,
        depth_bytes=depth_bytes,
        mn_major=mn_major,
        element_bytes=element_bytes,
    )
    return decoded.misaligned(), tuple(found)
