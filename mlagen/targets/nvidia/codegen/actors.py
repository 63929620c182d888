"""Who acts in the proof of pipelines, and what operations do: warps, slots, events.

A warp stands for one of its role's. What an operation reads and writes in SMEM and in tensor memory
is looked up once, for all runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.clocks import Clock, Region, RegionAccess
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.tensor import COMMITS
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule, WarpRole

TMEM_SPACE = 1 << 32  # columns of TMEM stand for bytes beyond those of SMEM


@dataclass(frozen=True, slots=True)
class RoleEvent:
    """An operation of one role at its place in a run, or a group wait where `op` is None.
    `tile`: its place in the block (`ItemRun`)."""

    op: Operation | None
    tile: int
    groups: int = 0  # at most so many groups stay in flight
    meeting: bool = False  # a barrier of the role's warps before or after the operation
    item: int = 0  # whose tile it is
    gathering: bool = False  # a barrier of all warps of the block
    waits: bool = False  # it is `wait_full`


def stand_ins(role: WarpRole) -> int:
    """Warps that stand for all of a role: two, or its only one."""
    return 1 if role.single else min(len(role.warps), 2)


def _at(tile: int, blocks: list[tuple[list[list[Region]], bool]]) -> list[tuple[Region, bool]]:
    """The regions of a tile's slots, each with what is told of its block."""
    return [(region, told) for slots, told in blocks for region in slots[tile % len(slots)]]


class Touched:
    """What an operation does, looked up once for all runs: the pipeline or exchange that it is of,
    and the regions of each block that it reads or writes, by slot."""

    def __init__(self, schedule: PipelineSchedule, regions: dict[str, Region], op: Operation):
        smem, tensor = schedule.smem, schedule.tmem.regions

        def slots(block: str) -> list[list[Region]]:
            pipeline = smem.pipelines.get(block)
            if pipeline is None:
                return [[regions[block]]]
            held = range(1 if pipeline.resident else pipeline.depth)
            return [[regions[f"{tile.name}[{slot}]"] for tile in pipeline.parts] for slot in held]

        pipelines, exchanges = smem.pipelines, smem.exchanges
        resident = {name for name, pipeline in pipelines.items() if pipeline.resident}
        there = {*pipelines, *exchanges, *smem.scratches, *tensor}
        uses = [value.block for value in op.uses]
        defines = [value.block for value in op.defines]
        self.op = op
        self.loads = [pipelines[block] for block in defines if block in resident]
        # What stays for all tiles of an item: resident tiles, and sums in TMEM.
        reads = [
            (slots(block), block in resident or block in tensor) for block in uses if block in there
        ]
        # Sums in TMEM, and what lies in no ring, may be written whatever was there before.
        rings = {name for name, pipeline in pipelines.items() if not pipeline.tensor}
        writes = [
            (slots(block), block not in rings)
            for block in defines if block in there and block not in resident
        ]  # fmt: skip
        self.stays = {regions[block].name for block in defines if block in tensor}
        self.period = lcm(*(len(held) for held, _ in (*reads, *writes)))
        self.places = [
            (_at(slot, reads), _at(slot, writes), frozenset(x.name for x, _ in _at(slot, reads)))
            for slot in range(self.period)
        ]
        self.kind = op.name if op.name in WAITS else "use"
        if self.kind == "use" and op.access is not None and op.access.kind != "read":
            self.kind = op.access.kind
        block = op.access.target.ring if op.access is not None else uses[0] if uses else ""
        self.pipeline = pipelines.get(block)
        self.slots = slots(block) if block in pipelines else []
        self.fence = op.name in ("wait_full", "arrive") and op.context(None).get("fence")  # type: ignore[arg-type]
        # Registers, which ordinary code must leave to a group in flight.
        self.written = {*defines} - {*pipelines, *exchanges, *tensor}
        self.used = {*uses} - {*pipelines, *exchanges, *tensor}
        self.held = self.used - {*smem.scratches}
        self.named = self.written | self.used
        self.touches = bool(reads or writes or op.asynchronous)
        self.commits = op.template in COMMITS.values()  # it arrives when products are done
        self.both = op.template == COMMITS[True]  # in both blocks of a CTA pair
        self.tensor = any(
            region.base >= TMEM_SPACE
            for held, written, _ in self.places for region, _ in (*held, *written)
        )  # fmt: skip
        self.piped = op.asynchronous and schedule.tmem.capacity > 0  # it is the tensor pipe's
        self._clashes: dict[int, str | None] = {}  # by the group's id

    def clash(self, flying: Touched) -> str | None:
        """What a group in flight has, which it must leave alone: registers that the group writes or
        reads, and for a write what it reads in SMEM."""
        if id(flying) not in self._clashes:
            hit = self.named & (flying.written | flying.held) | self.written & flying.used
            self._clashes[id(flying)] = min(hit, default=None)
        return self._clashes[id(flying)]


@dataclass
class Warp:
    """One warp on its way through a run."""

    actor: int
    block: int  # of the CTA cluster
    role: str
    barrier: int  # at which the warps of the role meet
    issues: bool  # it is the one that issues copies
    alone: bool  # no other warp of the role reaches its lanes of TMEM
    events: list[RoleEvent]
    clock: Clock
    at: int = 0
    waiting: int | None = None  # the named barrier's generation that it waits for
    groups: list[tuple[Touched, RegionAccess]] = field(default_factory=list)  # oldest first
    unfenced: list[RegionAccess] = field(default_factory=list)
    loading: list[RegionAccess] = field(default_factory=list)  # reads whose values nobody has used
    fence: Clock | None = None  # what it knew at its last proxy fence
    tensor: list[RegionAccess] = field(default_factory=list)  # of TMEM, since its last fence_before
    entered: Clock | None = None  # what it knew at its last fence_after


@dataclass
class Slot:
    """The barriers of a pipeline's slot."""

    filled: int = 0
    merged: list[Clock] = field(default_factory=list)  # what the filler knew, by fill
    gathered: int = 0
    # When warps saw it full, by fill and actor; None: not yet, but they will wait for it.
    waits: dict[int, dict[int, int | None]] = field(default_factory=dict)


@dataclass(slots=True)
class Aside:
    """An operation of a role that may skip itself, for one tile. `came`: what its warps knew at the
    meeting before it; `met`: their times at the one after it."""

    came: dict[int, Clock] = field(default_factory=dict)
    met: dict[int, int] = field(default_factory=dict)
