"""The proof that the roles do together what the plain loop does, for every number of tiles.

The printed control flow of each role is followed for every run of the pipeline proof: it must pass
the same operations, with the slot and the phase of their tiles. What an operation takes and leaves
is read from its printed lines: registers of its role, and what lies in SMEM. The pipeline proof ran
the roles in an order that leaves no two conflicting accesses unordered. This order is compared with
the kernel's plain order: each operation of each tile is done once, and takes what the same
operation of the same tile left.

Where a kernel declares no plain order, each role is compared with its own loop without overlap, in
which a pass begins with what the schedule does furthest ahead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlagen.codegen.dataflow import Difference, Done, differences
from mlagen.dsl import Operation, Part, PipelineOrder
from mlagen.targets.nvidia.codegen.actors import RoleEvent
from mlagen.targets.nvidia.codegen.completeness import orders_of
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.emit import Emitter, Printed
from mlagen.targets.nvidia.codegen.follow import Follower, Gathering, GroupWait, Lost, value_of
from mlagen.targets.nvidia.codegen.names import COMING, ITEMS, TILES
from mlagen.targets.nvidia.codegen.proof import Way
from mlagen.targets.nvidia.codegen.runs import ItemRun, Loop, offset
from mlagen.targets.nvidia.codegen.touches import Refused, Touches
from mlagen.targets.nvidia.codegen.tracks import events_of
from mlagen.targets.nvidia.dsl import PipelineSchedule

SECTIONS = ("prologue", "item", "tiles", "epilogue")


def check_flow(
    schedule: PipelineSchedule, loops: Sequence[Loop], emitter: Emitter, ways: Sequence[Way]
) -> tuple[str, ...]:
    """The first difference between the printed program and the plain loop: one violation, or
    none."""
    try:
        flow = _Flow(schedule, loops, emitter)
        for way in ways:
            flow.check(way)
        if not schedule.persistent:
            flow.turn_rings(max(max(way.line.counts) for way in ways))
    except _Found as found:
        return (str(found),)
    return ()


class _Found(Exception):
    """A violation, as it is told."""


@dataclass
class _Role:
    """One role: its operations by section and name."""

    loop: Loop
    # By an operation's id: how errors and the plain loop name it, and of what it is: a tile, an
    # item or the block.
    told: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    done: dict[tuple[int, int, int, bool], Done] = field(default_factory=dict)  # see `_Flow._done`
    named: dict[tuple[str, str, int], Operation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stream = self.loop.stream
        for name, operations in zip(
            SECTIONS, (self.loop.prologue, stream.items, self.loop.cluster.operations(),
                       self.loop.epilogue), strict=True,
        ):  # fmt: skip
            for op in operations:
                if op.name in WAITS:
                    continue
                looped = name == "tiles" and op.tile is not None and op.ahead != "seeks"
                of = "tile" if looped else "block" if name == "prologue" else "item"
                self.told[id(op)] = (f"{self.name} {op.key}", f"{op} of role {self.name}", of)
                tile = offset(op) % stream.step if name == "tiles" else 0
                self.named[(name, op.key, tile)] = op

    @property
    def name(self) -> str:
        return self.loop.stream.role.name

    def find(self, part: Part, section: str) -> Operation | None:
        step = self.loop.stream.step
        tile = part.tile % step if section == "tiles" else 0
        return self.named.get((section, part.key, tile))


class _Flow:
    """Compares runs with the plain loop."""

    def __init__(self, schedule: PipelineSchedule, loops: Sequence[Loop], emitter: Emitter) -> None:
        self.schedule, self.emitter = schedule, emitter
        self.roles = {loop.stream.role.name: _Role(loop) for loop in loops}
        self.follower = Follower.of(emitter)
        try:
            self.touches = Touches(emitter, shared=schedule.plain is not None)
        except Refused as error:
            role = next(name for name, x in self.roles.items() if id(error.op) in x.told)
            raise self._problem(error.code, error.op, role, error.what) from error

    def _problem(self, code: str, op: Operation, role: str, what: str) -> _Found:
        return _Found(f"error[{code}] {self.schedule.file}:{op.line} {op} of role {role} {what}")

    # ---- one run -----------------------------------------------------------------------------

    def check(self, way: Way) -> None:
        """Raises _Found for what a run does otherwise than the plain loop."""
        for role in self.roles.values():
            self._follow(role, way)
        orders = orders_of(self.schedule)
        if self.schedule.plain is not None:
            self._compare(way, list(self.roles.values()), self.schedule.plain)
            return
        for name, role in self.roles.items():
            self._compare(way, [role], orders[name])

    def turn_rings(self, tiles: int) -> None:
        """Follows a run of more than `tiles` tiles, in which every slot has both phases again."""
        tiles += 2 * max((p.depth for p in self.schedule.smem.pipelines.values()), default=1)
        loops = [role.loop for role in self.roles.values()]
        line = ItemRun((tiles,), max(loop.edge.step for loop in loops))
        for role in self.roles.values():
            events = events_of(role.loop, line)
            self._follow(role, Way(line, tuple((role.name, event) for event in events)))

    def _compare(self, way: Way, roles: Sequence[_Role], plain: PipelineOrder) -> None:
        program = list(self._program(way, {role.name for role in roles}, plain))
        wanted = list(self._plain(way.line, {role.name: role for role in roles}, plain))
        found = differences(program, wanted)
        if found:
            raise self._told(found[0], way.line)

    def _follow(self, role: _Role, way: Way) -> None:
        """The printed lines pass what the pipeline proof took, with the slots of its tiles."""
        line, stream = way.line, role.loop.stream
        values = {"%thread": stream.role.first_thread, "%smem": 0, "%rank": 0}
        lines = self.follower.run(stream.role.name.upper(), values)
        stay: int | None = None  # the strictest group wait printed since the last operation
        asked: int | None = None
        sought = 0
        last: Operation = (*stream.loop, *stream.prologue, *stream.epilogue)[0]

        def lost(what: str) -> _Found:
            return self._problem("control-flow", last, role.name, f"{what}, {line}")

        def following() -> Printed | Gathering | None:
            nonlocal stay
            for passed_by in lines:
                if isinstance(passed_by, GroupWait):
                    stay = passed_by.stay if stay is None else min(stay, passed_by.stay)
                else:
                    return passed_by
            return None

        try:
            for event in way.of(role.name):
                if event.op is None and not event.gathering:
                    asked = event.groups if asked is None else min(asked, event.groups)
                    continue
                if event.meeting:
                    continue
                printed = following()
                if asked is not None and (stay is None or stay > asked):
                    raise lost(f"is followed by no wait for all groups but {asked}")
                stay = asked = None
                if event.op is None:
                    if not isinstance(printed, Gathering):
                        raise lost("is not followed by the meeting of all warps")
                    continue
                if not isinstance(printed, Printed) or printed.op is not event.op:
                    goes = printed.op if isinstance(printed, Printed) else "the end"
                    raise lost(f"is followed by {goes}, where {event.op} must come")
                last = event.op
                self._cursor(role, printed, event, line, values)
                if last.name in WAITS:
                    continue
                wrong = self._counts(printed, event, line, sought, values)
                if wrong:
                    raise lost(wrong)
                sought += COMING in self.touches.counts[id(printed)][1]
            printed = following()
            if printed is not None:
                goes = printed.op if isinstance(printed, Printed) else "a meeting of all warps"
                raise lost(f"is followed by {goes}, where the role ends")
            if asked is not None and (stay is None or stay > asked):
                raise lost(f"is followed by no wait for all groups but {asked}")
        except Lost as error:
            raise lost(str(error)) from error

    def _counts(
        self,
        printed: Printed,
        event: RoleEvent,
        line: ItemRun,
        sought: int,
        values: dict[str, int],
    ) -> str:
        """Sets the counts that an operation finds in memory, which are given here; what is wrong
        with those that it reads. `sought`: items that were looked for before."""
        reads, writes = self.touches.counts[id(printed)]
        passed = event.item if self.schedule.persistent == "apart" else sought
        for name, wanted in ((ITEMS, len(line.counts) - passed), (TILES, line.counts[event.item])):
            if name in reads - writes and values.get(name) != wanted:
                return f"finds {values.get(name)} in {name}, not {wanted}"
        if TILES in writes:
            values[TILES] = line.counts[event.item]
        if ITEMS in writes:
            values[ITEMS] = len(line.counts)
        if COMING in writes:
            values[COMING] = line.counts[sought] if sought < len(line.counts) else 0
        return ""

    def _cursor(
        self,
        role: _Role,
        printed: Printed,
        event: RoleEvent,
        line: ItemRun,
        values: dict[str, int],
    ) -> None:
        """The slot and the phase that an operation is printed with are those of its tile."""
        op = printed.op
        if op.first_differs and printed.first != (event.tile == line.starts[event.item]):
            which = "that of tile 0" if printed.first else "later ones"
            raise self._problem(
                "wrong-slot", op, role.name, f"is printed for {which}, and done for tile "
                f"{event.tile}, {line}"
            )  # fmt: skip
        if not printed.slot:
            return
        pipeline = self.emitter.pipeline_of(op)
        if pipeline is None or pipeline.resident:
            turn, slot = line.loads(event.item), 0
        else:
            turn, slot = line.turn(event.tile, pipeline.depth), event.tile % pipeline.depth
        wanted = {"slot": slot}
        if op.name in ("wait_full", "wait_empty", "wait_committed"):
            wanted["phase"] = (turn + (op.name == "wait_empty")) & 1
        for what, number in wanted.items():
            found = value_of(printed.slot if what == "slot" else printed.phase, values)
            if found != number:
                raise self._problem(
                    "wrong-slot", op, role.name, f"is done for tile {event.tile} of "
                    f"{op.uses[0].block if pipeline is None else pipeline.name!r} with {what} "
                    f"{found}; the tile's is {number}, {line}"
                )  # fmt: skip

    # ---- the two sequences -------------------------------------------------------------------

    def _program(self, way: Way, roles: set[str], plain: PipelineOrder) -> Iterator[Done]:
        """What was printed, in the order of the run."""
        sought: dict[int, int] = {}
        for name, event in way.steps:
            op = event.op
            if name not in roles or op is None or op.name in WAITS or event.meeting:
                continue
            role, item = self.roles[name], event.item
            if op.key in plain.hints:
                yield self._hint(role, op)
                continue
            if op.ahead == "seeks":
                item = sought[id(op)] = sought.get(id(op), -1) + 1
            first = event.tile == way.line.starts[min(item, len(way.line.counts) - 1)]
            yield self._done(role, op, event.tile, item, first=first)

    def _plain(
        self, line: ItemRun, roles: dict[str, _Role], plain: PipelineOrder
    ) -> Iterator[Done]:
        """What the plain loop does."""

        def around(parts: Iterable[Part], place: int, item: int, section: str) -> Iterator[Done]:
            for part in parts:
                role = roles.get(part.role)
                op = role.find(part, section) if role is not None else None
                if role is not None and op is not None:
                    yield self._done(role, op, place, item, first=True)

        begun = "item" if self.schedule.persistent else "prologue"
        yield from around(plain.before, 0, 0, "prologue")
        for item, (start, n) in enumerate(zip(line.starts, line.counts, strict=True)):
            yield from around(plain.seeks, start, item, "tiles")
            yield from around(plain.item, start, item, begun)
            for i in range(0, n, plain.step):
                for part in plain.tiles:
                    role = roles.get(part.role)
                    op = role.find(part, "tiles") if role is not None else None
                    tile = i + part.tile
                    if role is not None and op is not None and op.present(tile - offset(op), n):
                        yield self._done(role, op, start + tile, item, first=tile == 0)
            yield from around(plain.after, start, item, "epilogue")
        if plain.seeks and line.counts[-1]:  # looked for after the last one
            past = line.starts[-1] + -(-line.counts[-1] // line.step) * line.step
            yield from around(plain.seeks, past, len(line.counts), "tiles")

    def _hint(self, role: _Role, op: Operation) -> Done:
        """A hint: what it writes in registers. In SMEM it says where something stands, no more."""
        key, text, _ = role.told[id(op)]
        return Done(key, None, self.touches.registers(role.name, op), text, op.line, hint=True)

    def _done(self, role: _Role, op: Operation, place: int, item: int, *, first: bool) -> Done:
        known = (id(op), place, item, first)
        if known not in role.done:
            key, text, of = role.told[id(op)]
            key += f" #{item}" if of == "item" else ""
            effect = self.touches.of(role.name, op, place, first=first)
            role.done[known] = Done(key, place if of == "tile" else None, effect, text, op.line)
        return role.done[known]

    # ---- messages ----------------------------------------------------------------------------

    def _told(self, found: Difference, line: ItemRun) -> _Found:
        done, file = found.done, self.schedule.file
        start = f"{file}:{done.line} {done.text}"
        of = self._tile(done, line)
        end = f"First at {line}."
        if found.kind == "missing":
            return _Found(f"error[not-done] {start} is never done{of}. {end}")
        if found.kind in ("twice", "foreign"):
            how = "done twice" if found.kind == "twice" else "done, which the plain loop does not"
            return _Found(f"error[done-twice] {start} is {how}{of}. {end}")
        return _Found(
            f"error[data-flow] {start}{of} takes {self._storage(found.storage)} of "
            f"{self._writer(found.found, line)}; it must be that of "
            f"{self._writer(found.wanted, line)}. {end}"
        )

    def _tile(self, done: Done, line: ItemRun) -> str:
        if done.tile is None:
            return ""
        if len(line.counts) == 1:
            return f" for tile {done.tile}"
        item = line.items.get(done.tile)
        if item is None:
            return f" for place {done.tile}"
        return f" for tile {done.tile - line.starts[item]} of item {item}"

    def _writer(self, done: Done | None, line: ItemRun) -> str:
        if done is None:
            return "nobody: nothing was written there"
        return f"{done.text} (:{done.line}){self._tile(done, line)}"

    def _storage(self, storage: Hashable) -> str:
        _, name = storage if isinstance(storage, tuple) else ("", str(storage))
        for registers in self.schedule.registers:
            if name.rstrip("0123456789") == f"%{registers.name}":
                return f"{name} ({registers.comment})"
        return repr(name)
