"""The proof of pipelines: every access to SMEM comes after those it needs, for all roles, every N.

It reads the final operation sequences (waits in place, group waits as printed) and runs the roles
against each other for N = 1, 2, ... with clocks of what each warp knows to be over; where blocks
are persistent, for items of N = 0, 1, 2, ... tiles in every order. It checks that

* a tile or exchange that is used is there: filled, for this tile, and known to be complete;
* nothing is overwritten before all that read or wrote it are known to be done, matrix instructions
  by their group wait, on every warp of a role;
* what ordinary instructions wrote is fenced before a matrix instruction or a copy touches it;
* what one warp, or the tensor pipe, did in tensor memory is fenced on both sides of the barrier by
  which another learns that it is over, before that one goes on there;
* ordinary code touches registers of a matrix group only when the group is done;
* of a CTA cluster, all of this holds for what a block writes and releases in the others: its bytes
  there complete a fill, and tell nothing else of the block that they come from; of a CTA pair,
  products of the leader read and write both blocks, and its commits arrive where they are sent;
* no barrier is arrived at again before all have left it, and no slot is filled again before all
  that wait for its content have seen it; each tile is filled and released once;
* the roles end: no wait is left without its arrival.

From one loop pass to the next only the tile number changes, so N up to two passes beyond the
deepest ring stands for all. What an item leaves to the next comes after the last use of what that
one has, so pairs of items of all N, and triples of short ones, stand for all sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.actors import (
    TMEM_SPACE,
    Aside,
    Event,
    Slot,
    Touched,
    Warp,
    stand_ins,
)
from mlagen.targets.nvidia.codegen.clocks import Access, Clock, NamedBarrier, Region, join
from mlagen.targets.nvidia.codegen.derived import FENCES
from mlagen.targets.nvidia.codegen.runs import AROUND, Line, Loop, item_runs, walk
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule
from mlagen.targets.nvidia.dsl.smem import Exchange, Pipeline, Scratch


@dataclass(frozen=True)
class Way:
    """A run as it was proved: the operations of all roles in one possible order. Every other
    possible order has the same effect on SMEM."""

    line: Line
    steps: tuple[tuple[str, Event], ...]  # role, what it does

    def of(self, role: str) -> list[Event]:
        """What one role does."""
        return [event for name, event in self.steps if name == role]


@dataclass(frozen=True, slots=True)
class PipelineProof:
    """`checked`: accesses looked at; `tiles`: largest N; of a proof that found nothing, `ways`: the
    runs that were looked at, and `idle`: ids of operations that wait for no tile that their warp
    did not know to be full already."""

    violations: tuple[str, ...]
    checked: int
    tiles: int
    ways: tuple[Way, ...] = ()
    idle: frozenset[int] = frozenset()


class _Run:
    """All roles over items of `counts` tiles, of each block of a CTA cluster.

    Operations that may skip themselves are done for no tile, and for each one alone, in one run:
    what they order cannot be relied on for another, and what they touch must be in order there.
    To do one adds its accesses and the meetings around it, and these only let actors know more. So
    what the others touch is in order where it is in order without it, and only its own accesses are
    left. When it begins, its warps know what all of them brought to the meeting (`Aside.came`).
    Someone else knows that it is over if it knows so without the meetings, or if it knows that one
    of the warps has left the second one (`Access.met`): no other path leads there. The warps wait
    for each other at the meetings, which is one possible order without them too, and learn nothing.
    """

    def __init__(self, prover: Prover, loops: Sequence[Loop], line: Line) -> None:
        self.schedule, self.line = prover.schedule, line
        self.touched, self.regions = prover.touched, prover.regions
        self.blocks = range(prover.schedule.blocks)
        self.problems: dict[str, None] = {}
        self.checked = 0
        self.busy = prover.busy
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
        self.committed: dict[tuple[int, str], Clock] = {}  # by block and region of TMEM
        size = len(warps) + len(fillers) + len(self.pipes)
        self.warps = [
            Warp(actor, block, loop.stream.role.name, loop.stream.role.barrier, member == 0,
                  len(loop.stream.role.warps) <= self.schedule.target.warpgroup_warps,
                  prover.track(loop, line).events, [0] * size)
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
            for key, fill in prover.track(loop, line).waits:
                self.slots[(block, *key)].waits.setdefault(fill, {})[actor] = None
        # By block, pipeline and tile, of each actor.
        self.releases: dict[tuple[int, str, int], dict[int, Clock]] = {}
        self.order: dict[tuple[str, str], list[int]] = {}  # (pipeline, verb): tiles, as they came
        self.bars: dict[tuple[int, int], NamedBarrier] = {}
        self.asides: dict[tuple[int, str, int, int], Aside] = {}
        for region in (region for held in self.regions for region in held.values()):
            region.clear()
        self.steps: list[tuple[str, Event]] = []  # of the first warp of each role, of one block

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
        does = self.touched[warp.block][id(op)]
        match does.kind:
            case "use":
                (self._use_aside if op.guarded else self._use)(warp, does, event)
            case "copy":
                self._copy(warp, does, event.tile)
            case "release":
                self._release(warp, does, event.tile)
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
                for block in self.blocks if does.both else (warp.block,):
                    self.committed[block, op.uses[0].block] = self._at_commit(warp)
            case "free":
                return self._free(warp, op)
            case "wait_committed":
                committed = self.committed.get((warp.block, op.uses[0].block))
                if committed is None:
                    return False
                join(warp.clock, committed)
            case _:
                return self._barrier(warp, does)
        return True

    def _free(self, warp: Warp, op: Operation) -> bool:
        """The role's warps meet, and TMEM is given back when all is done there."""
        self._leave(warp)
        if not self._join_role(warp):
            return False
        warp.entered = list(warp.clock)
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

    def _leave(self, warp: Warp) -> None:
        """A fence after what the warp did in TMEM."""
        for access in warp.tensor:
            access.left = warp.clock[warp.actor]
        warp.tensor = []

    def _unfenced(self, warp: Warp, region: Region, access: Access) -> str:
        """The fence of tcgen05 that lacks between an access of TMEM, which the warp knows to be
        over, and what it does there now. "" where none does."""
        actor = access.actor
        if region.base < TMEM_SPACE or actor == warp.actor:
            return ""
        by_warp = actor < len(self.warps)
        if by_warp and self._apart(warp, self.warps[actor]):
            return ""
        left = access.left if by_warp else access.over
        if left is None or warp.clock[actor] < left:
            return f"without {FENCES['fence_before']} after {access.op} of {self._name(actor)}"
        if warp.entered is None or warp.entered[actor] < left:
            over = f"{access.op} of {self._name(actor)} is known to be over"
            return f"without {FENCES['fence_after']} once {over}"
        return ""

    @staticmethod
    def _apart(warp: Warp, other: Warp) -> bool:
        """Whether two warps never reach the same lanes: those of a role of one warpgroup."""
        return warp.role == other.role and warp.block == other.block and warp.alone

    def _at_commit(self, warp: Warp) -> Clock:
        """What who sees a commit of the warp knows: all that it knew, and its products done."""
        known = list(warp.clock)
        known[self.pipes[warp.block, warp.role]] = self.issued[warp.block, warp.role]
        return known

    def _retire(self, warp: Warp, stay: int) -> None:
        done = warp.groups[: max(len(warp.groups) - stay, 0)]
        warp.groups = warp.groups[len(done) :]
        for _, access in done:
            access.over = warp.clock[warp.actor]

    def _wait(self, warp: Warp, does: Touched, event: Event) -> bool:
        op = does.op
        pipeline, tile = self.schedule.smem.pipelines[op.uses[0].block], event.tile
        if op.name == "wait_empty":
            return self._wait_empty(warp, pipeline, tile)
        key, fill = _fills(self.line, pipeline, tile, event.item)
        slot, filler = self.slots[(warp.block, *key)], self.filler[(warp.block, *key)]
        if does.fence or warp.clock[filler] < fill:
            self.busy.add(id(op))
        if warp.clock[filler] < fill - 1:
            # Its parity cannot be told from that of the phase before the last.
            self._problem(
                op, warp, f"waits for {pipeline.name}({tile}) without knowing that the slot's tile "
                f"before was complete"
            )  # fmt: skip
        if slot.filled < fill:
            return False
        slot.waits[fill][warp.actor] = warp.clock[warp.actor]
        join(warp.clock, slot.merged[fill - 1])
        warp.clock[filler] = max(warp.clock[filler], fill)
        if does.fence:
            self._fence(warp)
        return True

    def _wait_empty(self, warp: Warp, pipeline: Pipeline, tile: int) -> bool:
        before = self.line.before(tile, pipeline.depth)
        if before is None:
            return True
        freed = self.releases.get((warp.block, pipeline.name, before), {})
        if len(freed) < self._releases_of(pipeline):
            return False
        for clock in freed.values():
            join(warp.clock, clock)
        return True

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
        bar = self.bars.setdefault((warp.block, number), NamedBarrier(members))
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

    def _aside(self, warp: Warp, op: Operation, tile: int) -> Aside:
        return self.asides.setdefault((warp.block, warp.role, id(op), tile), Aside())

    def _meet_aside(self, warp: Warp, op: Operation, tile: int) -> bool:
        """Before and after an operation that may skip itself: whether all warps are there."""
        aside, before = self._aside(warp, op, tile), warp.events[warp.at - 1]
        if before.op is op and not before.meeting:
            aside.met.setdefault(warp.actor, warp.clock[warp.actor])
            return len(aside.met) == self.members[warp.role]
        aside.came.setdefault(warp.actor, list(warp.clock))
        return len(aside.came) == self.members[warp.role]

    def _use_aside(self, warp: Warp, does: Touched, event: Event) -> None:
        """Do it with what its warps know together, which is forgotten after it."""
        alone = list(warp.clock)
        for clock in self._aside(warp, does.op, event.tile).came.values():
            join(warp.clock, clock)
        self._use(warp, does, event)
        warp.clock[:] = alone

    def _fence(self, warp: Warp) -> None:
        for access in warp.unfenced:
            access.fenced = warp.clock[warp.actor]
        warp.unfenced = []
        warp.fence = list(warp.clock)

    # ---- accesses ---------------------------------------------------------------------------

    def _copy(self, warp: Warp, does: Touched, tile: int) -> None:
        assert does.op.access is not None
        pipeline = self.schedule.smem.pipelines[does.op.access.target.ring]
        self._fill(warp, does.op, pipeline, tile, self.line.items[tile])

    def _fill(self, warp: Warp, op: Operation, pipeline: Pipeline, tile: int, item: int) -> None:
        if not warp.issues and not pipeline.producer_threads:
            return
        for block in self._blocks_of(warp, pipeline):
            self._fill_slot(warp, op, pipeline, (tile, item), block)

    def _fill_slot(
        self, warp: Warp, op: Operation, pipeline: Pipeline, place: tuple[int, int], block: int
    ) -> None:
        """Fill a slot of a block, for the tile and item `place`."""
        tile, item = place
        (name, number), fill = _fills(self.line, pipeline, tile, item)
        full = 0 if pipeline.pair else block  # whose barrier tells that the slot is full
        slot, filler = self.slots[(full, name, number)], self.filler[(full, name, number)]
        held = _resident(item) if pipeline.resident else tile
        arrives = full == warp.block or pipeline.producer_threads > 0
        if arrives or pipeline.blocks > 1:
            self._check_waits(warp, op, pipeline, tile, slot.waits.get(fill - 1, {}))
        elif warp.clock[filler] < fill - 1:  # only its bytes come, before the arrival or after it
            self._problem(
                op, warp, f"fills {pipeline.name} for tile {tile} without knowing that the tile "
                f"before was complete, for which its bytes would count"
            )  # fmt: skip
        access = Access(filler, fill, held, op, (warp.role, id(op), tile),
                        generic=pipeline.producer_threads > 0 and not pipeline.fenced)  # fmt: skip
        for part in pipeline.parts:
            region = self.regions[block][f"{part.name}[{tile % pipeline.depth}]"]
            self._check_write(
                warp, op, region, tile, fills=True, proxy=not pipeline.producer_threads
            )
            region.write(access)
        # Its arrival; elsewhere its bytes arrive, and nothing with them.
        tells = full == warp.block or (bool(pipeline.pair) and arrives)
        self._gather(slot, pipeline, warp.clock if tells else None, tile, full)

    def _gather(
        self, slot: Slot, pipeline: Pipeline, clock: Clock | None, tile: int, block: int
    ) -> None:
        """One of those that fill a slot of a block has done so. `clock`: what its arrival tells."""
        slot.gathered += 1
        if slot.gathered == 1:
            slot.merged.append([0] * sum(map(len, (self.warps, self.filler, self.pipes))))
            if not block:
                self.order.setdefault((pipeline.name, "fills"), []).append(tile)
        if clock is not None:
            join(slot.merged[-1], clock)
        makers = self.members[pipeline.producer] if pipeline.producer_threads else 1
        makers *= 2 if pipeline.pair else pipeline.blocks if pipeline.producer_threads else 1
        if slot.gathered == makers:
            slot.filled, slot.gathered = slot.filled + 1, 0

    def _arrive_full(self, warp: Warp, does: Touched, event: Event) -> None:
        """A warp has filled its part of a slot of TMEM."""
        pipeline, tile = does.pipeline, event.tile
        assert pipeline is not None
        (name, number), fill = _fills(self.line, pipeline, tile, event.item)
        full = 0 if pipeline.pair else warp.block
        slot = self.slots[(full, name, number)]
        self._check_waits(warp, does.op, pipeline, tile, slot.waits.get(fill - 1, {}))
        self._gather(slot, pipeline, warp.clock, tile, full)

    def _check_waits(
        self, warp: Warp, op: Operation, pipeline: Pipeline, tile: int,
        waits: dict[int, int | None],
    ) -> None:  # fmt: skip
        """A problem where some may still wait for the slot's last fill, which `waits` are for."""
        for actor, seen in waits.items():
            if seen is None or warp.clock[actor] < seen:
                self._problem(
                    op, warp, f"fills {pipeline.name} for tile {tile} while {self._name(actor)} "
                    "may still wait for what was there, whose phase it would miss"
                )  # fmt: skip

    def _fill_by_commit(self, warp: Warp, does: Touched, event: Event) -> None:
        """Products have filled a slot of TMEM, when they are done."""
        pipeline = does.pipeline
        assert pipeline is not None
        (name, number), fill = _fills(self.line, pipeline, event.tile, event.item)
        for block in self.blocks if does.both else (warp.block,):
            slot = self.slots[(block, name, number)]
            self._check_waits(warp, does.op, pipeline, event.tile, slot.waits.get(fill - 1, {}))
            slot.merged.append(self._at_commit(warp))
            slot.filled += 1
        if not warp.block:
            self.order.setdefault((pipeline.name, "fills"), []).append(event.tile)

    def _release(self, warp: Warp, does: Touched, tile: int) -> None:
        op = does.op
        assert op.access is not None
        pipeline = self.schedule.smem.pipelines[op.access.target.ring]
        regions = {region.name for region in does.slots[tile % pipeline.depth]}
        flying = [access for _, access in warp.groups]
        if not does.commits and (warp.block, warp.role) in self.pipes:
            held = (self.regions[warp.block][region] for region in regions)
            flying += [x for region in held for x in region.reads if not x.known(warp.clock)]
        if any(access.tile == tile and regions & access.regions for access in flying):
            self._problem(op, warp, f"{pipeline.name}({tile}) is still read by a matrix group")
        last = self.line.before(tile, pipeline.depth)
        for block in self._freed_in(warp, does, pipeline):
            before = self.releases.get((block, pipeline.name, -1 if last is None else last), {})
            if last is not None and not (
                len(before) == self._releases_of(pipeline)
                and all(warp.clock[actor] >= clock[actor] for actor, clock in before.items())
            ):
                self._problem(
                    op, warp, f"releases {pipeline.name}({tile}) without knowing that all have "
                    f"released the tile before: their arrivals would count for one phase"
                )  # fmt: skip
            freed = self.releases.setdefault((block, pipeline.name, tile), {})
            freed[warp.actor] = self._at_commit(warp) if does.commits else list(warp.clock)
        if warp.issues and not warp.block:
            self.order.setdefault((pipeline.name, f"{warp.role} releases"), []).append(tile)

    def _use(self, warp: Warp, does: Touched, event: Event) -> None:
        op = does.op
        for pipeline in does.loads:
            self._fill(warp, op, pipeline, event.tile, event.item)
        if does.piped:
            self._product(warp, does, event)
        elif does.touches:
            self._touch(warp, does, event)
        if not op.asynchronous:
            for flying, _ in warp.groups:
                if block := does.clash(flying):
                    self._problem(op, warp, f"touches {block} while {flying.op} is in flight")

    def _touch(self, warp: Warp, does: Touched, event: Event) -> None:
        """Its reads and writes of SMEM."""
        op, tile, now = does.op, event.tile, warp.clock[warp.actor]
        flies, key = op.asynchronous, (warp.role, id(op), event.tile)
        met = self._aside(warp, op, tile).met if op.guarded else None
        reads, writes, names = does.places[tile % does.period]
        access = Access(
            warp.actor, None if flies else now, tile, op, key, not flies, names, met=met
        )
        for region, resident in reads:
            held = _resident(event.item) if resident else tile
            if region.base >= TMEM_SPACE:
                warp.tensor.append(access)
            if op.guarded or (warp.actor, held, flies) not in region.seen:
                self._look(warp, op, region, access, held)
            region.reads.append(access)
        self.checked += len(reads)
        if writes:
            for region, fills in writes:
                held = _resident(event.item) if region.name in does.stays else tile
                smem = region.base < TMEM_SPACE
                written = Access(warp.actor, now, held, op, key, generic=smem, met=met)
                self._check_write(warp, op, region, tile, fills=fills)
                region.write(written)
                (warp.unfenced if smem else warp.tensor).append(written)
        if flies:
            warp.groups.append((does, access))

    def _product(self, warp: Warp, does: Touched, event: Event) -> None:
        """A product that the tensor pipe does: what it reads must be there when it is issued, and
        to its sums it adds after the products before it. An operand that tcgen05.cp copied before
        is there. No other order of products is relied on (PTX ISA, pipelined tcgen05 instructions):
        not that one has read an operand."""
        op, tile, owner = does.op, event.tile, (warp.block, warp.role)
        pipe = self.pipes[owner]
        self.issued[owner] += 1
        time, key = self.issued[owner], (warp.role, id(op), tile)
        for block in self._reached(warp):
            reads, writes, names = self.touched[block][id(op)].places[tile % does.period]
            access = Access(pipe, time, tile, op, key, generic=False, regions=names)
            for region, resident in reads:
                self._look(warp, op, region, access, _resident(event.item) if resident else tile)
                region.reads.append(access)
            self.checked += len(reads)
            for region, fills in writes:
                held = _resident(event.item) if region.name in does.stays else tile
                written = Access(pipe, time, held, op, key, generic=False)
                if region.lost and any(old.tile == held for old in region.writes):
                    self._problem(op, warp, f"adds to {region.name}, in place of which lies "
                                  f"{region.lost}")  # fmt: skip
                self._check_write(warp, op, region, tile, fills=fills, pipe=pipe)
                region.write(written)

    def _look(self, warp: Warp, op: Operation, region: Region, access: Access, held: int) -> None:
        """Whether a read finds `held` in a region, a tile or what is resident for an item."""
        key, tile, certain = access.key, access.tile, not op.guarded
        # Where one of this tile is done that may skip itself, only it is there for another.
        done = [write for write in region.skipped if op.guarded and write.tile == tile]
        if not region.writes:
            self._problem(op, warp, f"uses {region.name} before it is full")
        elif region.lost is not None and not done:
            self._problem(op, warp, f"uses {region.name} of tile {tile}, in place of which lies "
                          f"{region.lost}")  # fmt: skip
        for write in done or region.writes + (region.skipped if not op.guarded else []):
            certain &= write.key != key
            if write.tile != held:
                of = f"item {-1 - write.tile}" if write.tile < 0 else f"tile {write.tile}"
                self._problem(op, warp, f"uses {region.name} of tile {tile}, which holds that of "
                              f"{of} ({write.op})")  # fmt: skip
            elif op.asynchronous and region.name in self.operands and write.actor == access.actor:
                continue  # a copy to TMEM and the product after it are in order
            elif write.key != key and not write.known(warp.clock):
                filled = write.actor >= len(self.warps)
                what = "before it is full" if filled else f"before {write.op} is known to be over"
                self._problem(op, warp, f"uses {region.name} of tile {tile} {what}")
            elif op.asynchronous and not write.fenced_for(warp.clock, warp.fence):
                self._problem(op, warp, f"reads {region.name} through the async proxy without a "
                              f"fence after {write.op}")  # fmt: skip
            elif unfenced := self._unfenced(warp, region, write):
                self._problem(op, warp, f"reads {region.name} {unfenced}")
        if certain and not self.problems:
            region.seen.add((warp.actor, held, op.asynchronous))

    def _check_write(
        self,
        warp: Warp,
        op: Operation,
        region: Region,
        tile: int,
        *,
        fills: bool,
        proxy: bool = False,
        pipe: int = -1,
    ) -> None:
        """`fills`: what was there does not matter; `proxy`: the write is one of the async proxy;
        `pipe`: that of the product which writes, after those that wrote the same sums."""
        self.checked += 1
        key = (warp.role, id(op), tile)
        for other, accesses, writes in region.pending():
            for access in accesses:
                if access.key == key:
                    continue
                sums = writes and other is region and access.actor == pipe
                known = sums or access.known(warp.clock)
                fenced = not proxy or not writes or access.fenced_for(warp.clock, warp.fence)
                unfenced = known and not sums and self._unfenced(warp, other, access)
                if (known and fenced and not unfenced) or self._other_rows(warp, op, access):
                    continue
                if unfenced:
                    what = unfenced
                elif known:
                    what = f"through the async proxy without a fence after {access.op}"
                else:
                    what = (
                        f"for tile {tile} while {self._name(access.actor)} may still "
                        f"{'write' if writes else 'read'} {other.name} "
                        f"({access.op}, tile {access.tile})"
                    )
                self._problem(op, warp, f"{'fills' if fills else 'writes'} {region.name} {what}")
        if not fills and any(write.tile != tile for write in region.writes):
            self._problem(op, warp, f"changes {region.name} of tile {tile}, which is not there")

    def _other_rows(self, warp: Warp, op: Operation, access: Access) -> bool:
        """Whether another warp of the role reads rows there that this one does not write: both make
        rows of their own of what is within the pipeline."""
        if op.access is None or access.actor == warp.actor or access.key[0] != warp.role:
            return False
        pipelines = self.schedule.smem.pipelines
        pipeline = pipelines[op.access.target.ring]
        return pipeline.by_warps and any(
            value.block in pipelines and pipelines[value.block].within == pipeline.name
            for value in access.op.uses
        )

    # ---- the end ----------------------------------------------------------------------------

    def _complete(self) -> None:
        for pipeline in self.schedule.smem.pipelines.values():
            if pipeline.resident:
                continue
            verbs = [(pipeline.producer, "fills")]
            if pipeline.releases:
                verbs += [(name, f"{name} releases") for name in pipeline.released_by]
            for role, verb in verbs:
                tiles = self.order.get((pipeline.name, verb), [])
                if sorted(tiles) != sorted(self.line.items):
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

    def _name(self, actor: int) -> str:
        if actor < len(self.warps):
            return f"role {self.warps[actor].role}"
        return "the tensor pipe" if actor in self.pipes.values() else "the copy engine"

    def _problem(self, op: Operation, warp: Warp, what: str) -> None:
        self.problems[
            f"error[pipeline] {self.schedule.file}:{op.line} {op} of role {warp.role} {what}. "
            f"First at {self.line}."
        ] = None


@dataclass(frozen=True, slots=True)
class _Track:
    """What a warp does in a run, and the fills of slots that it waits for."""

    events: list[Event]
    waits: list[tuple[tuple[str, int], int]]


def _fills(line: Line, pipeline: Pipeline, tile: int, item: int) -> tuple[tuple[str, int], int]:
    """The slot of a tile, or of what is resident, and how often it is full with it."""
    if pipeline.resident:
        return (pipeline.name, 0), line.loads(item) + 1
    return (pipeline.name, tile % pipeline.depth), line.turn(tile, pipeline.depth) + 1


class Prover:
    """The proofs of a schedule's streams, with what they share."""

    def __init__(self, schedule: PipelineSchedule) -> None:
        self.schedule = schedule
        # Of each block of a CTA cluster.
        self.regions = [_regions(schedule) for _ in range(schedule.blocks)]
        # By the operation's id; it holds the operation.
        self.touched: list[dict[int, Touched]] = [{} for _ in self.regions]
        self.busy: set[int] = set()  # waits that told a warp something, by id
        self._lines: dict[tuple[tuple[int, ...], int], Line] = {}
        self._tracks: dict[int, tuple[Loop, dict[Line, _Track]]] = {}  # by the loop's id

    def track(self, loop: Loop, line: Line) -> _Track:
        """What a warp of the role does over the items of the line."""
        _, known = self._tracks.setdefault(id(loop), (loop, {}))
        if line not in known:
            events = list(events_of(loop, line))
            for op in {id(event.op): event.op for event in events if event.op}.values():
                for touched, regions in zip(self.touched, self.regions, strict=True):
                    if id(op) not in touched:
                        touched[id(op)] = Touched(self.schedule, regions, op)
            known[line] = self._track(line, events)
        return known[line]

    def leave_out(self, loop: Loop, tried: Loop, wait: Operation) -> None:
        """`tried` does what `loop` does, but for a wait."""
        _, known = self._tracks.get(id(loop), (loop, {}))
        self._tracks[id(tried)] = (
            tried,
            {
                line: self._track(line, [event for event in track.events if event.op is not wait])
                for line, track in known.items()
            },
        )

    def _track(self, line: Line, events: list[Event]) -> _Track:
        touched = self.touched[0]
        waits = [(event, touched[id(event.op)].pipeline) for event in events if event.waits]
        return _Track(events, [_fills(line, h, e.tile, e.item) for e, h in waits if h is not None])

    def prove(self, loops: Sequence[Loop], *, quick: bool = False) -> PipelineProof:
        """Check all accesses of all roles for every N. `quick`: fewer N, so it may miss some."""
        runs = _runs(self.schedule, loops, quick=quick)
        largest = max(n for counts in runs for n in counts)
        checked = 0
        self.busy.clear()
        ways: list[Way] = []
        for counts in runs:
            step = max(loop.edge.step for loop in loops)
            line = self._lines.setdefault((counts, step), Line(counts, step))
            run = _Run(self, loops, line)
            run.run()
            ways.append(Way(line, tuple(run.steps)))
            checked += run.checked
            if run.problems:
                return PipelineProof(tuple(run.problems), checked, largest)
        waits = (op for loop in loops for op in loop.operations if op.name == "wait_full")
        idle = frozenset(map(id, waits)) - self.busy
        return PipelineProof((), checked, largest, tuple(ways), idle)


def prove_pipelines(
    schedule: PipelineSchedule, loops: Sequence[Loop], *, quick: bool = False
) -> PipelineProof:
    """`Prover.prove` of one set of streams."""
    return Prover(schedule).prove(loops, quick=quick)


def _runs(
    schedule: PipelineSchedule, loops: Sequence[Loop], *, quick: bool
) -> list[tuple[int, ...]]:
    """Tiles of the items of each run that is looked at."""
    step = max(loop.edge.step for loop in loops)
    if schedule.persistent:
        return item_runs(max(loop.edge.high for loop in loops), step, quick=quick)
    deepest = max((p.depth for p in schedule.smem.pipelines.values()), default=1)
    largest = max(loop.edge.first_looped for loop in loops) + deepest
    largest += 0 if quick else 2 * step
    # Where nothing was multiplied, no sums lie in TMEM: such a run traps.
    return [(n,) for n in range(bool(schedule.tmem.regions), largest + 1)]


def _resident(item: int) -> int:
    """What the regions of resident tiles hold for an item, in place of a tile."""
    return -1 - item


def events_of(loop: Loop, line: Line) -> Iterator[Event]:
    """What a warp of the role does over the items of the line, in order."""
    index_of = {id(step): index for index, step in enumerate(loop.cluster.steps)}
    for one in walk(loop, line.counts):
        around = one.section in AROUND
        if one.section == "empty":
            yield Event(None, 0, gathering=True)
        if one.section == "end" and loop.final is not None:
            yield Event(None, 0, loop.final)
        for op, place in one.steps:
            wait = None if around else loop.groups.get((one.section, index_of[id(op)]))
            if wait is not None:
                yield Event(None, 0, wait)
            item = one.item if around else line.items.get(place, one.item)
            event = Event(op, place, item=item, waits=op.name == "wait_full")
            if op.joins:
                meeting = replace(event, meeting=True)
                yield from (meeting, event, meeting)
            else:
                yield event
        end = None if around else loop.groups.get((one.section, len(loop.cluster.steps)))
        if end is not None:
            yield Event(None, 0, end)


def _regions(schedule: PipelineSchedule) -> dict[str, Region]:
    smem = schedule.smem
    regions = [
        Region(f"{tile.name}[{slot}]", tile.slot_base(slot), tile.bytes)
        for tile in smem.tiles.values()
        for slot in range(tile.slots)
    ]
    loose: list[Exchange | Scratch] = [*smem.exchanges.values(), *smem.scratches.values()]
    regions += [Region(buffer.name, buffer.base, buffer.bytes) for buffer in loose]
    regions += [
        Region(region.name, TMEM_SPACE + region.column, region.columns)
        for region in schedule.tmem.regions.values()
    ]
    regions += [
        Region(f"{tile.name}[{slot}]", TMEM_SPACE + tile.slot_column(slot), tile.columns)
        for tile in schedule.tmem.tiles.values()
        for slot in range(tile.slots)
    ]
    for region in regions:
        region.over = tuple(o for o in regions if o is not region and region.overlaps(o))
    return {region.name: region for region in regions}
