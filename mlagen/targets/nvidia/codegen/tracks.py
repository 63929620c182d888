"""What warps do in the runs of a proof, and what all of its runs share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.actors import TMEM_SPACE, RoleEvent, Touched
from mlagen.targets.nvidia.codegen.clocks import Region
from mlagen.targets.nvidia.codegen.runs import AROUND, ItemRun, Loop, walk
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule
from mlagen.targets.nvidia.dsl.smem import Exchange, Pipeline, Scratch


@dataclass(frozen=True, slots=True)
class Track:
    """What a warp does in a run, and the fills of slots that it waits for."""

    events: list[RoleEvent]
    waits: list[tuple[tuple[str, int], int]]


def fills_of(
    line: ItemRun, pipeline: Pipeline, tile: int, item: int
) -> tuple[tuple[str, int], int]:
    """The slot of a tile, or of what is resident, and how often it is full with it."""
    if pipeline.resident:
        return (pipeline.name, 0), line.loads(item) + 1
    return (pipeline.name, tile % pipeline.depth), line.turn(tile, pipeline.depth) + 1


def resident_of(item: int) -> int:
    """What the regions of resident tiles hold for an item, in place of a tile."""
    return -1 - item


class Tracks:
    """What each role does over each line of items, with the regions that its operations touch."""

    def __init__(self, schedule: PipelineSchedule) -> None:
        self.schedule = schedule
        # Of each block of a CTA cluster.
        self.regions = [_regions(schedule) for _ in range(schedule.blocks)]
        # By the operation's id; it holds the operation.
        self.touched: list[dict[int, Touched]] = [{} for _ in self.regions]
        self._known: dict[int, tuple[Loop, dict[ItemRun, Track]]] = {}  # by the loop's id

    def of(self, loop: Loop, line: ItemRun) -> Track:
        """What a warp of the role does over the items of the line."""
        _, known = self._known.setdefault(id(loop), (loop, {}))
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
        _, known = self._known.get(id(loop), (loop, {}))
        self._known[id(tried)] = (
            tried,
            {
                line: self._track(line, [event for event in track.events if event.op is not wait])
                for line, track in known.items()
            },
        )

    def _track(self, line: ItemRun, events: list[RoleEvent]) -> Track:
        touched = self.touched[0]
        waits = [(event, touched[id(event.op)].pipeline) for event in events if event.waits]
        return Track(events, [fills_of(line, h, e.tile, e.item) for e, h in waits if h is not None])


def events_of(loop: Loop, line: ItemRun) -> Iterator[RoleEvent]:
    """What a warp of the role does over the items of the line, in order."""
    index_of = {id(step): index for index, step in enumerate(loop.cluster.steps)}
    for one in walk(loop, line.counts):
        around = one.section in AROUND
        if one.section == "empty":
            yield RoleEvent(None, 0, gathering=True)
        if one.section == "end" and loop.final is not None:
            yield RoleEvent(None, 0, loop.final)
        for op, place in one.steps:
            wait = None if around else loop.groups.get((one.section, index_of[id(op)]))
            if wait is not None:
                yield RoleEvent(None, 0, wait)
            item = one.item if around else line.items.get(place, one.item)
            event = RoleEvent(op, place, item=item, waits=op.name == "wait_full")
            if op.joins:
                meeting = replace(event, meeting=True)
                yield from (meeting, event, meeting)
            else:
                yield event
        end = None if around else loop.groups.get((one.section, len(loop.cluster.steps)))
        if end is not None:
            yield RoleEvent(None, 0, end)


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
