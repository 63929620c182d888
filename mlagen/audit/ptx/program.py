"""What all runs of an entry share: its graph, decoded operands, and results that repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mlagen.audit.ptx.agent import LANES, WARPS
from mlagen.audit.ptx.protocol import PROTOCOL, relevant
from mlagen.audit.ptx.shared import Cells
from mlagen.audit.ptx.values import Value
from mlagen.ptx import Descriptor, Entry, Graph, Kind
from mlagen.ptx.descriptor import ranges
from mlagen.ptx.effects import wgmma_operands
from mlagen.ptx.types import access_bytes

_ALL_LANES = (-1, 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is told: the block, the boxes of tensor maps and when copies land."""

    threads: int
    shared_bytes: int  # static and dynamic; accesses beyond are out of bounds
    symbols: Mapping[str, int]  # shared variables
    boxes: Mapping[str, int]  # bytes of a tensor map's box
    late: bool = False  # copies land when nothing else can happen; else at once
    reverse: bool = False  # order in which warps get their turn
    solve: bool = False  # look for the boxes' bytes; no other checks
    cluster: bool = False  # other blocks take part
    guessed: bool = False  # boxes are estimates: bytes are taken to match what is expected
    flow: bool = False  # keep which write each read sees


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
        self.steering = relevant(self.graph)
        self.next = self._following()
        self.sizes = {p.name: p.size for p in entry.parameters}
        self.cells: dict[tuple[int, bytes, bytes], Cells] = {}  # by size, addresses, threads
        self.unit = LANES * WARPS if self._in_step() else LANES
        self.widths = tuple(access_bytes(i.parts) for i in entry.instructions)
        self.compiled: dict[int, Callable[[Sequence[Value]], Value]] = {}
        self._quiet: dict[int, bool] = {}
        self._idle: dict[int, bool] = {}

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

    def way_out(self, branch: int) -> bool:
        """Whether taking a branch leaves the loop around it (False for other instructions)."""
        target = self.entry.instructions[branch].target
        return target >= 0 and not self.graph.comes_back(branch, target)

    def quiet(self, branch: int) -> bool:
        """Whether a branch decides nothing that the audit follows."""
        if branch not in self._quiet:
            inside = self.graph.skipped(branch)
            self._quiet[branch] = not any(self.graph.kinds[i] in PROTOCOL for i in inside)
        return self._quiet[branch]


    def idle(self, branch: int) -> bool:
        """Whether a branch is quiet and computes nothing that steers anything either."""
        if branch not in self._idle:
            inside = self.graph.skipped(branch)
            steers = any(self.steering.intersection(self.graph.writes[i]) for i in inside)
            self._idle[branch] = self.quiet(branch) and not steers
        return self._idle[branch]


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
