"""The state of a run of a proof: its warps, copy engines, tensor pipes, and what each knows."""

from __future__ import annotations

from collections.abc import Sequence

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.actors import Aside, RoleEvent, Slot, Touched, Warp, stand_ins
from mlagen.targets.nvidia.codegen.clocks import BarrierClock, Clock
from mlagen.targets.nvidia.codegen.loads import PrintedLoads
from mlagen.targets.nvidia.codegen.runs import ItemRun, Loop
from mlagen.targets.nvidia.codegen.tracks import Tracks
from mlagen.targets.nvidia.dsl.smem import Pipeline

NO_LOADS = PrintedLoads()


class RunState:
    """All roles over the items of a line, of each block of a CTA cluster: who acts, and the blocks
    that an actor reaches."""

    def __init__(
        self, tracks: Tracks, loops: Sequence[Loop], line: ItemRun, loads: PrintedLoads = NO_LOADS
    ) -> None:
        self.schedule, self.line, self.loads = tracks.schedule, line, loads
        self.touched, self.regions = tracks.touched, tracks.regions
        self.blocks = range(self.schedule.blocks)
        self.problems: dict[str, None] = {}
        self.checked = 0
        self.busy: set[int] = set()  # waits that told a warp something, by id
        smem = self.schedule.smem
        warps = [
            (block, loop, member)
            for block in self.blocks
            for loop in loops
            for member in range(stand_ins(loop.stream.role))
            if not (block and loop.stream.role.leader)
        ]
        fillers = [
            (block, p.name, slot)
            for block in self.blocks
            for p in smem.pipelines.values()
            for slot in range(p.depth)
        ]
        self.filler = {key: len(warps) + index for index, key in enumerate(fillers)}
        # Products that are committed are done in order by a pipe: one more actor for each role.
        multiplies = [
            (block, loop.stream.role.name)
            for block in self.blocks
            for loop in loops
            if self.schedule.tmem.capacity
            and any(op.asynchronous for op in loop.operations)
            and not (block and loop.stream.role.leader)
        ]
        self.pipes = {key: index for index, key in enumerate(multiplies, len(warps) + len(fillers))}
        self.leads = {loop.stream.role.name: loop.stream.role.leader for loop in loops}
        regions = self.schedule.tmem.regions.values()
        self.operands = {region.name for region in regions if region.operand}
        self.issued = dict.fromkeys(self.pipes, 0)
        # By block and region of TMEM, of each item: what its commit tells, and who saw it when.
        self.committed: dict[tuple[int, str], list[Clock]] = {}
        self.handed: dict[tuple[int, str, int], dict[int, int]] = {}
        size = len(warps) + len(fillers) + len(self.pipes)
        self.warps = [
            Warp(actor, block, loop.stream.role.name, loop.stream.role.barrier, member == 0,
                  len(loop.stream.role.warps) <= self.schedule.target.warpgroup_warps,
                  tracks.of(loop, line).events, [0] * size)
            for actor, (block, loop, member) in enumerate(warps)
        ]  # fmt: skip
        self.members = {
            loop.stream.role.name: sum(
                1 for block, other, _ in warps if other is loop and not block
            )
            for loop in loops
        }
        self.slots = {key: Slot() for key in fillers}
        for actor, (block, loop, _) in enumerate(warps):
            for key, fill in tracks.of(loop, line).waits:
                self.slots[(block, *key)].waits.setdefault(fill, {})[actor] = None
        # By block, pipeline and tile, of each actor.
        self.releases: dict[tuple[int, str, int], dict[int, Clock]] = {}
        self.order: dict[tuple[str, str], list[int]] = {}  # (pipeline, verb): tiles, as they came
        self.freed: set[int] = set()  # blocks whose TMEM was given back
        self.takers = {
            (block, region.name): [
                actor for actor, (held, loop, _) in enumerate(warps)
                if held == block and any(
                    op.name == "wait_committed" and op.uses[0].block == region.name
                    for op in loop.epilogue
                )
            ]
            for block in self.blocks for region in self.schedule.tmem.handed
        }  # fmt: skip
        self.bars: dict[tuple[int, int], BarrierClock] = {}
        self.asides: dict[tuple[int, str, int, int], Aside] = {}
        for region in (region for held in self.regions for region in held.values()):
            region.clear()
        self.steps: list[tuple[str, RoleEvent]] = []  # of the first warp of each role, of one block

    def _at_commit(self, warp: Warp) -> Clock:
        """What who sees a commit of the warp knows: all that it knew, and its products done."""
        known = list(warp.clock)
        known[self.pipes[warp.block, warp.role]] = self.issued[warp.block, warp.role]
        return known

    def _releases_of(self, pipeline: Pipeline) -> int:
        """Warps that release a slot of it."""
        blocks = 2 if pipeline.pair == "from leader" else pipeline.blocks
        return blocks * sum(self.members[name] for name in pipeline.released_by)

    def _blocks_of(self, warp: Warp, pipeline: Pipeline) -> range:
        """The blocks in which a warp fills and releases it."""
        return self.blocks if pipeline.blocks > 1 else range(warp.block, warp.block + 1)

    def _freed_in(self, warp: Warp, does: Touched, pipeline: Pipeline) -> range:
        """The blocks at whose empty barriers a release of the warp arrives."""
        if does.both:
            return self.blocks
        return range(1) if pipeline.pair else self._blocks_of(warp, pipeline)

    def _reached(self, warp: Warp) -> range:
        """The blocks whose memory products of the warp read and write."""
        return self.blocks if self.leads[warp.role] else range(warp.block, warp.block + 1)

    def _aside(self, warp: Warp, op: Operation, tile: int) -> Aside:
        return self.asides.setdefault((warp.block, warp.role, id(op), tile), Aside())

    def _before(self, pipeline: Pipeline, tile: int, item: int) -> int | None:
        """The tile that had the slot of `tile` last; of what is resident the item."""
        if pipeline.resident:
            return item - 1 if item else None
        return self.line.before(tile, pipeline.depth)

    def _name(self, actor: int) -> str:
        if actor < len(self.warps):
            return f"role {self.warps[actor].role}"
        return "the tensor pipe" if actor in self.pipes.values() else "the copy engine"

    def _problem(self, op: Operation, warp: Warp, what: str) -> None:
        self.problems[
            f"error[pipeline] {self.schedule.file}:{op.line} {op} of role {warp.role} {what}. "
            f"First at {self.line}."
        ] = None
