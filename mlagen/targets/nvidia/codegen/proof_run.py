"""One run of a proof: the roles against each other, event by event, to the end."""

from __future__ import annotations

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.actors import TMEM_SPACE, RoleEvent, Touched, Warp
from mlagen.targets.nvidia.codegen.clocks import BarrierClock, join
from mlagen.targets.nvidia.codegen.proof_fills import FillingRun


class ProofRun(FillingRun):
    """All roles over items of `counts` tiles, of each block of a CTA cluster.

    Operations that may skip themselves are done for no tile, and for each one alone, in one run:
    what they order cannot be relied on for another, and what they touch must be in order there.
    To do one adds its accesses and the meetings around it, and these only let actors know more. So
    what the others touch is in order where it is in order without it, and only its own accesses are
    left. When it begins, its warps know what all of them brought to the meeting (`Aside.came`).
    Someone else knows that it is over if it knows so without the meetings, or if it knows that one
    of the warps has left the second one (`RegionAccess.met`): no other path leads there. The warps
    wait for each other at the meetings, which is one possible order without them too, and learn
    nothing.
    """

    def run(self) -> None:
        moved = True
        while moved and not self.problems:
            moved = False
            for warp in self.warps:
                count = len(warp.events)
                while not self.problems and warp.at < count and self._step(warp):
                    if warp.issues and not warp.block:
                        self.steps.append((warp.role, warp.events[warp.at]))
                    warp.at += 1
                    moved = True
        if self.problems:
            return
        for warp in self.warps:
            if warp.at < len(warp.events):
                self._stuck(warp)
                return
        self._complete()

    # ---- one event --------------------------------------------------------------------------

    def _step(self, warp: Warp) -> bool:
        """Whether the warp got past its next event."""
        event = warp.events[warp.at]
        op = event.op
        warp.clock[warp.actor] += 1
        if event.gathering:
            return self._arrive(warp, None, 0, sum(self.members.values()), wait=True)
        if op is None:
            self._retire(warp, event.groups)
            return True
        if event.meeting:
            if op.guarded:
                return self._meet_aside(warp, op, event.tile)
            self._fence(warp)
            return self._join_role(warp)
        if warp.loading:
            self._pass_loads(warp, op)
        does = self.touched[warp.block][id(op)]
        match does.kind:
            case "use":
                (self._use_aside if op.guarded else self._use)(warp, does, event)
            case "copy":
                self._copy(warp, does, event.tile)
            case "release":
                self._release(warp, does, event)
            case "wait_full" | "wait_empty":
                return self._wait(warp, does, event)
            case "fence_before":
                self._leave(warp)
            case "fence_after":
                warp.entered = list(warp.clock)
            case "arrive_full":
                self._arrive_full(warp, does, event)
            case "commit" if does.pipeline is not None:
                self._fill_by_commit(warp, does, event)
            case "commit":
                self._hand_over(warp, does)
            case "free":
                return self._free(warp, op)
            case "wait_committed":
                return self._take_over(warp, event)
            case _:
                return self._barrier(warp, does)
        return True

    def _use(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        op = does.op
        for pipeline in does.loads:
            self._fill(warp, op, pipeline, event.tile, event.item)
        if does.tensor and warp.block in self.freed:
            self._problem(op, warp, "touches TMEM that was given back")
        if does.piped:
            self._product(warp, does, event)
        elif does.touches:
            self._touch(warp, does, event)
        if not op.asynchronous:
            for flying, _ in warp.groups:
                if block := does.clash(flying):
                    self._problem(op, warp, f"touches {block} while {flying.op} is in flight")

    def _free(self, warp: Warp, op: Operation) -> bool:
        """The role's warps meet, and TMEM is given back when all is done there."""
        self._leave(warp)
        if not self._join_role(warp):
            return False
        warp.entered = list(warp.clock)
        self.freed.add(warp.block)
        for name, region in self.regions[warp.block].items():
            if region.base < TMEM_SPACE:
                continue
            for access in (*region.writes, *region.reads):
                if not access.known(warp.clock):
                    self._problem(op, warp, f"gives TMEM back before {access.op} is known to be "
                                  f"done with {name}")  # fmt: skip
                elif unfenced := self._unfenced(warp, region, access):
                    self._problem(op, warp, f"gives TMEM back {unfenced}")
        return True

    # ---- barriers ---------------------------------------------------------------------------

    def _barrier(self, warp: Warp, does: Touched) -> bool:
        op = does.op
        if op.name == "sync":
            return self._join_role(warp)
        exchange = self.schedule.smem.exchanges[op.uses[0].block]
        members = self.members[exchange.producer] + self.members[exchange.consumer]
        if op.name == "arrive_and_wait":
            return self._arrive(warp, op, exchange.barrier, members, wait=True)
        if does.fence:
            self._fence(warp)
        return self._arrive(warp, op, exchange.barrier, members, wait=False)

    def _join_role(self, warp: Warp) -> bool:
        return self._arrive(warp, None, warp.barrier, self.members[warp.role], wait=True)

    def _arrive(
        self, warp: Warp, op: Operation | None, number: int, members: int, *, wait: bool
    ) -> bool:
        bar = self.bars.setdefault((warp.block, number), BarrierClock(members))
        if warp.waiting is None:
            late = bar.overtaken(warp.actor, warp.clock)
            if late is not None and op is not None:
                self._problem(
                    op, warp, f"may arrive at barrier {number} again before "
                    f"{self._name(late)} has passed it"
                )  # fmt: skip
                return True
            bar.arrive(warp.actor, warp.clock)
            if not wait:
                return True
            warp.waiting = bar.generation if warp.actor not in bar.arrived else bar.generation + 1
        if bar.generation < warp.waiting:
            return False
        join(warp.clock, bar.merged)
        warp.waiting = None
        return True

    def _meet_aside(self, warp: Warp, op: Operation, tile: int) -> bool:
        """Before and after an operation that may skip itself: whether all warps are there."""
        aside, before = self._aside(warp, op, tile), warp.events[warp.at - 1]
        if before.op is op and not before.meeting:
            aside.met.setdefault(warp.actor, warp.clock[warp.actor])
            return len(aside.met) == self.members[warp.role]
        aside.came.setdefault(warp.actor, list(warp.clock))
        return len(aside.came) == self.members[warp.role]

    def _use_aside(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        """Do it with what its warps know together, which is forgotten after it."""
        alone = list(warp.clock)
        for clock in self._aside(warp, does.op, event.tile).came.values():
            join(warp.clock, clock)
        self._use(warp, does, event)
        warp.clock[:] = alone

    # ---- the end ----------------------------------------------------------------------------

    def _complete(self) -> None:
        for pipeline in self.schedule.smem.pipelines.values():
            if pipeline.resident and not pipeline.releases:
                continue
            wanted = sorted(self.line.starts if pipeline.resident else self.line.items)
            verbs = [(pipeline.producer, "fills")]
            if pipeline.releases:
                verbs += [(name, f"{name} releases") for name in pipeline.released_by]
            for role, verb in verbs:
                tiles = self.order.get((pipeline.name, verb), [])
                if sorted(tiles) != wanted:
                    self.problems[
                        f"role {role} {verb.rpartition(' ')[2]} {pipeline.name!r} for tiles "
                        f"{tiles}, {self.line}"
                    ] = None
        for (block, name, slot), filler in self.filler.items():
            last = self.slots[(block, name, slot)].filled
            if last and not any(warp.clock[filler] >= last for warp in self.warps):
                self.problems[
                    f"error[pipeline] {self.schedule.file}: nobody waits for the last fill of "
                    f"{name!r}, {self.line}: it may land in the next block's SMEM"
                ] = None
        for warp in self.warps:
            if warp.groups:
                self._problem(warp.groups[-1][0].op, warp, "is still in flight after the loop")
        for (block, role), pipe in self.pipes.items():
            if not any(warp.clock[pipe] >= self.issued[block, role] for warp in self.warps):
                self.problems[
                    f"error[pipeline] {self.schedule.file}: nobody waits for the last product of "
                    f"role {role!r}, {self.line}: TMEM may be given back before it is done"
                ] = None
        for exchange in self.schedule.smem.exchanges.values():
            bar = self.bars.get((0, exchange.barrier))
            if bar is not None and bar.arrived:
                self.problems[
                    f"error[pipeline] {self.schedule.file}: exchange {exchange.name!r} is written "
                    f"and not read, {self.line}"
                ] = None

    def _stuck(self, warp: Warp) -> None:
        event = warp.events[warp.at]
        name = event.op.name if event.op else "the meeting of all"
        block = event.op.uses[0].block if event.op and event.op.uses else warp.role
        pipeline = self.schedule.smem.pipelines.get(block)
        depth = f"; the pipeline is {pipeline.depth} deep" if pipeline else ""
        self.problems[
            f"error[deadlock] {self.schedule.file}: role {warp.role} stays at {name} of "
            f"{block}({event.tile}), {self.line}{depth}"
        ] = None
