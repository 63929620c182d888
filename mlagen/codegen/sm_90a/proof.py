"""The proof of pipelines: every access to SMEM comes after those it needs, for all roles, every N.

It reads the final operation sequences (waits in place, group waits as printed) and runs the roles
against each other for N = 1, 2, ... with clocks of what each warp knows to be over; where blocks
are persistent, for items of N = 0, 1, 2, ... tiles in every order. It checks that

* a tile or exchange that is used is there: filled, for this tile, and known to be complete;
* nothing is overwritten before all that read or wrote it are known to be done, matrix instructions
  by their group wait, on every warp of a role;
* what ordinary instructions wrote is fenced before a matrix instruction or a copy touches it;
* ordinary code touches registers of a matrix group only when the group is done;
* no barrier is arrived at again before all have left it, and no slot is filled again before all
  that wait for its content have seen it; each tile is filled and released once;
* the roles end: no wait is left without its arrival.

From one loop pass to the next only the tile number changes, so N up to two passes beyond the
deepest ring stands for all. What an item leaves to the next comes after the last use of what that
one has, so pairs of items of all N, and triples of short ones, stand for all sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from mlagen.codegen.sm_90a.clocks import Access, Clock, NamedBarrier, Region, join
from mlagen.codegen.sm_90a.runs import AROUND, Line, Loop, item_runs, walk
from mlagen.dsl import Operation
from mlagen.dsl.pipeline import PipelineSchedule
from mlagen.dsl.smem import Exchange, Pipeline, Scratch

APART = 7  # tiles between those that operations which may skip themselves are done for


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
    """`checked`: accesses looked at; `tiles`: largest N; `ways`: the runs that were looked at, of
    a proof that found nothing."""

    violations: tuple[str, ...]
    checked: int
    tiles: int
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An operation of one role at its place in a run, or a group wait where `op` is None.
    `tile`: its place in the block (`Line`)."""

    op: Operation | None
    tile: int
    groups: int = 0  # at most so many groups stay in flight
    meeting: bool = False  # a barrier of the role's warps before or after the operation
    item: int = 0  # whose tile it is
    gathering: bool = False  # a barrier of all warps of the block


@dataclass
class _Warp:
    """One warp on its way through a run."""

    actor: int
    loop: Loop
    issues: bool  # it is the one that issues copies
    events: list[Event]
    clock: Clock
    at: int = 0
    waiting: int | None = None  # the named barrier's generation that it waits for
    groups: list[tuple[Operation, list[Access]]] = field(default_factory=list)  # oldest first
    unfenced: list[Access] = field(default_factory=list)
    fence: Clock | None = None  # what it knew at its last proxy fence

    @property
    def role(self) -> str:
        return self.loop.stream.role.name


@dataclass
class _Slot:
    """The barriers of a pipeline's slot."""

    filled: int = 0
    merged: list[Clock] = field(default_factory=list)  # what the filler knew, by fill
    gathered: int = 0
    # When warps saw it full, by fill and actor; None: not yet, but they will wait for it.
    waits: dict[int, dict[int, int | None]] = field(default_factory=dict)


class _Run:
    """All roles over items of `counts` tiles. Operations that may skip themselves are done for
    tiles `taken` only: what they order cannot be relied on for another, and what they touch must be
    in order there."""

    def __init__(
        self,
        schedule: PipelineSchedule,
        loops: list[Loop],
        line: Line,
        events: Mapping[str, list[Event]],
        taken: frozenset[int],
    ) -> None:
        self.schedule, self.line, self.taken = schedule, line, taken
        self.problems: dict[str, None] = {}
        self.checked = 0
        smem = schedule.smem
        warps = [
            (loop, member)
            for loop in loops
            for member in range(2 if loop.stream.role.threads > 1 else 1)
        ]
        fillers = [(p.name, slot) for p in smem.pipelines.values() for slot in range(p.depth)]
        self.filler = {key: len(warps) + index for index, key in enumerate(fillers)}
        size = len(warps) + len(fillers)
        self.warps = [
            _Warp(actor, loop, member == 0, events[loop.stream.role.name], [0] * size)
            for actor, (loop, member) in enumerate(warps)
        ]
        self.members = {
            loop.stream.role.name: sum(1 for other, _ in warps if other is loop) for loop in loops
        }
        self.slots = {key: _Slot() for key in fillers}
        for warp in self.warps:
            for event in warp.events:
                if event.op is not None and event.op.name == "wait_full":
                    pipeline = smem.pipelines[event.op.uses[0].block]
                    key, fill = self._fills(pipeline, event.tile, event.item)
                    self.slots[key].waits.setdefault(fill, {})[warp.actor] = None
        self.releases: dict[tuple[str, int], list[Clock]] = {}
        self.order: dict[tuple[str, str], list[int]] = {}  # (pipeline, verb): tiles, as they came
        self.bars: dict[int, NamedBarrier] = {}
        self.regions = _regions(schedule)
        self.steps: list[tuple[str, Event]] = []  # of the first warp of each role

    def run(self) -> None:
        moved = True
        while moved and not self.problems:
            moved = False
            for warp in self.warps:
                while not self.problems and warp.at < len(warp.events) and self._step(warp):
                    if warp.issues:
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

    def _step(self, warp: _Warp) -> bool:
        """Whether the warp got past its next event."""
        event = warp.events[warp.at]
        op = event.op
        warp.clock[warp.actor] += 1
        if event.gathering:
            return self._arrive(warp, None, 0, len(self.warps), wait=True)
        if op is None:
            self._retire(warp, event.groups)
            return True
        if op.guarded and event.tile not in self.taken:
            return True
        if event.meeting:
            self._fence(warp)
            return self._join_role(warp)
        if op.name in ("wait_full", "wait_empty"):
            return self._wait(warp, op, event)
        if op.name in ("arrive_and_wait", "sync", "arrive"):
            return self._barrier(warp, op)
        if op.access is not None and op.access.kind == "copy":
            self._copy(warp, op, event.tile)
        elif op.access is not None and op.access.kind == "release":
            self._release(warp, op, event.tile)
        else:
            self._use(warp, op, event)
        return True

    def _retire(self, warp: _Warp, stay: int) -> None:
        done = warp.groups[: max(len(warp.groups) - stay, 0)]
        warp.groups = warp.groups[len(done) :]
        for _, accesses in done:
            for access in accesses:
                access.over = warp.clock[warp.actor]

    def _fills(self, pipeline: Pipeline, tile: int, item: int) -> tuple[tuple[str, int], int]:
        """The slot of a tile, or of what is resident, and how often it is full with it."""
        if pipeline.resident:
            return (pipeline.name, 0), self.line.loads(item) + 1
        key = (pipeline.name, tile % pipeline.depth)
        return key, self.line.turn(tile, pipeline.depth) + 1

    def _wait(self, warp: _Warp, op: Operation, event: Event) -> bool:
        pipeline, tile = self.schedule.smem.pipelines[op.uses[0].block], event.tile
        if op.name == "wait_empty":
            return self._wait_empty(warp, pipeline, tile)
        key, fill = self._fills(pipeline, tile, event.item)
        slot, filler = self.slots[key], self.filler[key]
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
        if op.context(None).get("fence"):  # type: ignore[arg-type]
            self._fence(warp)
        return True

    def _wait_empty(self, warp: _Warp, pipeline: Pipeline, tile: int) -> bool:
        if tile < pipeline.depth:
            return True
        freed = self.releases.get((pipeline.name, tile - pipeline.depth), [])
        if len(freed) < sum(self.members[name] for name in pipeline.consumers):
            return False
        for clock in freed:
            join(warp.clock, clock)
        return True

    def _barrier(self, warp: _Warp, op: Operation) -> bool:
        if op.name == "sync":
            return self._join_role(warp)
        exchange = self.schedule.smem.exchanges[op.uses[0].block]
        members = self.members[exchange.producer] + self.members[exchange.consumer]
        if op.name == "arrive_and_wait":
            return self._arrive(warp, op, exchange.barrier, members, wait=True)
        if op.context(None)["fence"]:  # type: ignore[arg-type]
            self._fence(warp)
        return self._arrive(warp, op, exchange.barrier, members, wait=False)

    def _join_role(self, warp: _Warp) -> bool:
        role = warp.loop.stream.role
        return self._arrive(warp, None, role.barrier, self.members[role.name], wait=True)

    def _arrive(
        self, warp: _Warp, op: Operation | None, number: int, members: int, *, wait: bool
    ) -> bool:
        bar = self.bars.setdefault(number, NamedBarrier(members))
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

    def _fence(self, warp: _Warp) -> None:
        for access in warp.unfenced:
            access.fenced = warp.clock[warp.actor]
        warp.unfenced = []
        warp.fence = list(warp.clock)

    # ---- accesses ---------------------------------------------------------------------------

    def _copy(self, warp: _Warp, op: Operation, tile: int) -> None:
        assert op.access is not None
        pipeline = self.schedule.smem.pipelines[op.access.target.ring]
        self._fill(warp, op, pipeline, tile, self.line.items[tile])

    def _fill(self, warp: _Warp, op: Operation, pipeline: Pipeline, tile: int, item: int) -> None:
        if not warp.issues and not pipeline.producer_threads:
            return
        key, fill = self._fills(pipeline, tile, item)
        slot, filler = self.slots[key], self.filler[key]
        held = _resident(item) if pipeline.resident else tile
        for actor, seen in slot.waits.get(fill - 1, {}).items():
            if seen is None or warp.clock[actor] < seen:
                self._problem(
                    op, warp, f"fills {pipeline.name} for tile {tile} while {self._name(actor)} "
                    "may still wait for what was there, whose phase it would miss"
                )  # fmt: skip
        for region in self._slot_regions(pipeline, tile):
            self._check_write(
                warp, op, region, tile, fills=True, proxy=not pipeline.producer_threads
            )
            region.write(
                Access(filler, fill, held, op, (warp.role, id(op), tile),
                       generic=pipeline.producer_threads > 0)
            )  # fmt: skip
        slot.gathered += 1
        if slot.gathered == 1:
            slot.merged.append(list(warp.clock))
            self.order.setdefault((pipeline.name, "fills"), []).append(tile)
        else:
            join(slot.merged[-1], warp.clock)
        if not pipeline.producer_threads or slot.gathered == self.members[pipeline.producer]:
            slot.filled, slot.gathered = slot.filled + 1, 0

    def _release(self, warp: _Warp, op: Operation, tile: int) -> None:
        assert op.access is not None
        pipeline = self.schedule.smem.pipelines[op.access.target.ring]
        regions = {region.name for region in self._slot_regions(pipeline, tile)}
        if any(
            access.tile == tile and access.region in regions
            for _, accesses in warp.groups for access in accesses
        ):  # fmt: skip
            self._problem(op, warp, f"{pipeline.name}({tile}) is still read by a matrix group")
        self.releases.setdefault((pipeline.name, tile), []).append(list(warp.clock))
        if warp.issues:
            self.order.setdefault((pipeline.name, f"{warp.role} releases"), []).append(tile)

    def _use(self, warp: _Warp, op: Operation, event: Event) -> None:
        smem, tile = self.schedule.smem, event.tile
        for value in op.defines:
            pipeline = smem.pipelines.get(value.block)
            if pipeline is not None and pipeline.resident:
                self._fill(warp, op, pipeline, tile, event.item)
        regions = [
            (region, _resident(event.item) if self._is_resident(value.block) else tile)
            for value in op.uses
            for region in self._regions_of(value.block, tile)
        ]  # fmt: skip
        reads = [self._read(warp, op, region, tile, held) for region, held in regions]
        written = [
            region
            for value in op.defines
            if value.block in smem.exchanges
            or value.block in smem.scratches
            or (value.block in smem.pipelines and not smem.pipelines[value.block].resident)
            for region in self._regions_of(value.block, tile)
        ]
        loose = {*smem.exchanges, *smem.scratches}
        for region in written:
            self._check_write(warp, op, region, tile, fills=region.name in loose)
            access = Access(warp.actor, warp.clock[warp.actor], tile, op,
                            (warp.role, id(op), tile), generic=True)  # fmt: skip
            region.write(access)
            warp.unfenced.append(access)
        if op.asynchronous:
            warp.groups.append((op, reads))
            return
        self._registers(warp, op)

    def _registers(self, warp: _Warp, op: Operation) -> None:
        """Ordinary code must not touch registers that a group in flight writes, or write any that
        it reads."""
        mine = {value.block for value in (*op.uses, *op.defines)}
        written = {value.block for value in op.defines}
        smem = (*self.schedule.smem.pipelines, *self.schedule.smem.exchanges)
        for flying, _ in warp.groups:
            hit = mine & {value.block for value in flying.defines}
            hit |= written & {value.block for value in flying.uses}
            for block in sorted(hit - set(smem))[:1]:
                self._problem(op, warp, f"touches {block} while {flying} is in flight")

    def _is_resident(self, block: str) -> bool:
        pipeline = self.schedule.smem.pipelines.get(block)
        return pipeline is not None and pipeline.resident

    def _read(self, warp: _Warp, op: Operation, region: Region, tile: int, held: int) -> Access:
        """`held`: what the region must hold, a tile or what is resident for an item."""
        self.checked += 1
        key = (warp.role, id(op), tile)
        if not region.writes:
            self._problem(op, warp, f"uses {region.name} before it is full")
        elif region.lost is not None:
            self._problem(op, warp, f"uses {region.name} of tile {tile}, in place of which lies "
                          f"{region.lost}")  # fmt: skip
        for write in region.writes:
            if write.tile != held:
                of = f"item {-1 - write.tile}" if write.tile < 0 else f"tile {write.tile}"
                self._problem(op, warp, f"uses {region.name} of tile {tile}, which holds that of "
                              f"{of} ({write.op})")  # fmt: skip
            elif write.key != key and not write.known(warp.clock):
                filled = write.actor >= len(self.warps)
                what = "before it is full" if filled else f"before {write.op} is known to be over"
                self._problem(op, warp, f"uses {region.name} of tile {tile} {what}")
            elif op.asynchronous and not self._fenced_since(warp, write):
                self._problem(op, warp, f"reads {region.name} through the async proxy without a "
                              f"fence after {write.op}")  # fmt: skip
        over = None if op.asynchronous else warp.clock[warp.actor]
        access = Access(
            warp.actor, over, tile, op, key, generic=not op.asynchronous, region=region.name
        )
        region.reads.append(access)
        return access

    def _check_write(
        self,
        warp: _Warp,
        op: Operation,
        region: Region,
        tile: int,
        *,
        fills: bool,
        proxy: bool = False,
    ) -> None:
        """`fills`: what was there does not matter; `proxy`: the write is one of the async proxy."""
        self.checked += 1
        key = (warp.role, id(op), tile)
        verb = "fills" if fills else "writes"
        for other, access, writes in region.pending():
            if access.key == key or self._other_rows(warp, op, access):
                continue
            if not access.known(warp.clock):
                doing = "write" if writes else "read"
                self._problem(
                    op, warp, f"{verb} {region.name} for tile {tile} while "
                    f"{self._name(access.actor)} may still {doing} {other.name} "
                    f"({access.op}, tile {access.tile})"
                )  # fmt: skip
            elif proxy and writes and not self._fenced_since(warp, access):
                self._problem(op, warp, f"{verb} {region.name} through the async proxy without a "
                              f"fence after {access.op}")  # fmt: skip
        if not fills and any(write.tile != tile for write in region.writes):
            self._problem(op, warp, f"changes {region.name} of tile {tile}, which is not there")

    def _other_rows(self, warp: _Warp, op: Operation, access: Access) -> bool:
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

    @staticmethod
    def _fenced_since(warp: _Warp, write: Access) -> bool:
        if not write.generic:
            return True
        if write.fenced is not None and warp.clock[write.actor] >= write.fenced:
            return True
        return warp.fence is not None and write.known(warp.fence)

    # ---- regions ----------------------------------------------------------------------------

    def _slot_regions(self, pipeline: Pipeline, tile: int) -> list[Region]:
        return [self.regions[f"{t.name}[{tile % pipeline.depth}]"] for t in pipeline.tiles]

    def _regions_of(self, block: str, tile: int) -> list[Region]:
        smem = self.schedule.smem
        if block in smem.pipelines:
            pipeline = smem.pipelines[block]
            return self._slot_regions(pipeline, 0 if pipeline.resident else tile)
        loose = block in smem.exchanges or block in smem.scratches
        return [self.regions[block]] if loose else []

    # ---- the end ----------------------------------------------------------------------------

    def _complete(self) -> None:
        for pipeline in self.schedule.smem.pipelines.values():
            if pipeline.resident:
                continue
            verbs = [(pipeline.producer, "fills")]
            if pipeline.releases:
                verbs += [(name, f"{name} releases") for name in pipeline.consumers]
            for role, verb in verbs:
                tiles = self.order.get((pipeline.name, verb), [])
                if sorted(tiles) != sorted(self.line.items):
                    self.problems[
                        f"role {role} {verb.rpartition(' ')[2]} {pipeline.name!r} for tiles "
                        f"{tiles}, {self.line}"
                    ] = None
        for (name, slot), filler in self.filler.items():
            last = self.slots[(name, slot)].filled
            if last and not any(warp.clock[filler] >= last for warp in self.warps):
                self.problems[
                    f"error[pipeline] {self.schedule.file}: nobody waits for the last fill of "
                    f"{name!r}, {self.line}: it may land in the next block's SMEM"
                ] = None
        for warp in self.warps:
            if warp.groups:
                self._problem(warp.groups[-1][0], warp, "is still in flight after the loop")
        for exchange in self.schedule.smem.exchanges.values():
            bar = self.bars.get(exchange.barrier)
            if bar is not None and bar.arrived:
                self.problems[
                    f"error[pipeline] {self.schedule.file}: exchange {exchange.name!r} is written "
                    f"and not read, {self.line}"
                ] = None

    def _stuck(self, warp: _Warp) -> None:
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
        return f"role {self.warps[actor].role}" if actor < len(self.warps) else "the copy engine"

    def _problem(self, op: Operation, warp: _Warp, what: str) -> None:
        self.problems[
            f"error[pipeline] {self.schedule.file}:{op.line} {op} of role {warp.role} {what}. "
            f"First at {self.line}."
        ] = None


def prove_pipelines(
    schedule: PipelineSchedule, loops: list[Loop], *, quick: bool = False
) -> PipelineProof:
    """Check all accesses of all roles for every N. `quick`: fewer N, and operations that may skip
    themselves for no tile, the first and the last only; that may miss something."""
    guarded = any(op.guarded for loop in loops for op in loop.cluster.operations())
    runs = _runs(schedule, loops, quick=quick)
    largest = max(n for counts in runs for n in counts)
    checked = 0
    ways: list[Way] = []
    for counts in runs:
        line = Line(counts, max(loop.edge.step for loop in loops))
        events = {loop.stream.role.name: list(events_of(loop, line)) for loop in loops}
        for taken in _taken(line, quick=quick) if guarded else [frozenset[int]()]:
            run = _Run(schedule, loops, line, events, taken)
            run.run()
            if not taken:
                ways.append(Way(line, tuple(run.steps)))
            checked += run.checked
            if run.problems:
                return PipelineProof(tuple(run.problems), checked, largest)
    return PipelineProof((), checked, largest, tuple(ways))


def _runs(schedule: PipelineSchedule, loops: list[Loop], *, quick: bool) -> list[tuple[int, ...]]:
    """Tiles of the items of each run that is looked at."""
    step = max(loop.edge.step for loop in loops)
    if schedule.persistent:
        return item_runs(max(loop.edge.high for loop in loops), step, quick=quick)
    deepest = max((p.depth for p in schedule.smem.pipelines.values()), default=1)
    largest = max(loop.edge.first_looped for loop in loops) + deepest
    largest += 0 if quick else 2 * step
    return [(n,) for n in range(largest + 1)]


def _taken(line: Line, *, quick: bool) -> list[frozenset[int]]:
    """Tiles for which operations that may skip themselves are done: for none, and for one. In a run
    over many items, for one of every so many, which have nothing to do with each other."""
    tiles = sorted(line.items)
    if len(line.counts) == 1:
        one = {*tiles[:1], *tiles[-1:]} if quick else tiles
        return [frozenset(), *(frozenset({tile}) for tile in one)]
    ends = [t for t in tiles if line.items.get(t + 1) != line.items[t]]
    if quick:
        return [frozenset(), frozenset(ends[::2]), frozenset(ends[1::2])]
    return [frozenset(), *(frozenset(tiles[first::APART]) for first in range(APART))]


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
            event = Event(op, place, item=item)
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
    for region in regions:
        region.over = tuple(o for o in regions if o is not region and region.overlaps(o))
    return {region.name: region for region in regions}
