"""The proof that the roles do together what the plain loop does, for every number of tiles.

The printed control flow of each role is followed for every run of the hand-off proof: it must pass
the operations which that proof took, with the slot and the phase of their tiles. What an operation
takes and leaves is read from its printed lines: registers of its role, and what lies in SMEM. The
order in which the hand-off proof ran the roles, in which nothing that two of them touch is left
unordered, is then compared with the plain order of the kernel: each operation of each tile is
done once, and takes what the same operation of the same tile left.

A kernel that declares no plain order is compared, each role for itself, with its own loop without
overlap: of each pass first what the schedule does furthest ahead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlagen.codegen.dataflow import Difference, Done, Effect, differences
from mlagen.codegen.sm_90a.derive import WAITS
from mlagen.codegen.sm_90a.effects import Unknown, effect_of
from mlagen.codegen.sm_90a.emit import Emitter, Printed
from mlagen.codegen.sm_90a.follow import Follower, Gathering, GroupWait, Lost, passed, value_of
from mlagen.codegen.sm_90a.proof import Event, Way
from mlagen.codegen.sm_90a.runs import Line, Loop, offset
from mlagen.dsl import Operation, Part, PipelineOrder, PipelineSchedule, Tile
from mlagen.dsl.pipeline import Stream

TILES, ITEMS, COMING = COUNTS = (
    "%tiles",
    "%items",
    "%coming",
)  # what control flow and operations share
OWN = (
    "%i",
    "%last",
    "%smem",
    "%thread",
    "%warp",
    "%lane",
)  # what the control flow keeps for itself
SECTIONS = ("prologue", "item", "tiles", "epilogue")


def check_words(schedule: PipelineSchedule) -> tuple[str, ...]:
    """Operations that stand where the kernel has none, twice, or not at all."""
    if schedule.plain is None:
        return ()
    found: list[str] = []
    for stream in schedule.streams:
        for section, operations, parts in _sections(schedule, stream, schedule.plain):
            found += _words(schedule, stream, section, operations, parts)
    return tuple(found)


def check_flow(
    schedule: PipelineSchedule, loops: Sequence[Loop], emitter: Emitter, ways: Iterable[Way]
) -> tuple[str, ...]:
    """What the printed program does otherwise than the plain loop, at the first run that shows it:
    one violation, or none."""
    try:
        flow = _Flow(schedule, loops, emitter)
        for way in ways:
            flow.check(way)
    except _Found as found:
        return (str(found),)
    return ()


class _Found(Exception):
    """A violation, as it is told."""


# ---- the schedule's words -----------------------------------------------------------------------


def _sections(
    schedule: PipelineSchedule, stream: Stream, plain: PipelineOrder
) -> Iterator[tuple[str, list[Operation], list[Part]]]:
    """The sections of a role's code: what stands there, and what the kernel does there."""

    def mine(parts: Iterable[Part]) -> list[Part]:
        return [part for part in parts if part.role == stream.role.name]

    item = mine(plain.item)
    once = [] if schedule.persistent else item  # where a block has one item
    yield "prologue", list(stream.prologue), [*mine(plain.before), *once]
    yield "each_item", list(stream.items), [] if once else item
    yield "tile loop", list(stream.loop), [*mine(plain.seeks), *mine(plain.tiles)]
    yield "epilogue", list(stream.epilogue), mine(plain.after)


def _words(
    schedule: PipelineSchedule,
    stream: Stream,
    section: str,
    operations: Sequence[Operation],
    parts: Sequence[Part],
) -> Iterator[str]:
    assert schedule.plain is not None
    step, hints = schedule.plain.step, schedule.plain.hints
    looped, role = section == "tile loop", f"role {stream.role.name}"
    if looped and stream.step != step:
        yield (
            f"error[not-of-kernel] {schedule.file}:{stream.line} {role} does {stream.step} tiles a "
            f"pass; the kernel does {step}"
        )
        return
    wanted = {(part.key, part.tile): part for part in parts}
    first: dict[tuple[str, int], Operation] = {}
    for op in operations:
        if op.key in hints:
            continue
        name = (op.key, offset(op) % step if looped else 0)
        place = f"{schedule.file}:{op.line} {_word(op)} of {role}"
        if name not in wanted:
            yield (
                f"error[not-of-kernel] {place} stands in the {section}, where the kernel does "
                f"{_instead(op, parts, looped=looped)}"
            )
        elif name in first:
            yield (
                f"error[done-twice] {place} is there already, at :{first[name].line} as "
                f"{first[name]}: it is done once{' a tile' * looped}"
            )
        first.setdefault(name, op)
    for name, part in wanted.items():
        if name not in first:
            of = f" for tile {Tile(part.tile)} of a pass" if looped and step > 1 else ""
            yield (
                f"error[not-done] {schedule.file}:{stream.line} {part.key!r} of {role} is missing "
                f"in the {section}{of}: the kernel does it once{' a tile' * looped}. "
                f"First at N = {part.tile + 1 if looped else 0}."
            )


def _instead(op: Operation, parts: Sequence[Part], *, looped: bool) -> str:
    """What the kernel does where it does not do `op`: the same otherwise, or all of it."""
    same = [part for part in parts if part.key == op.key]
    if same and looped:
        return "it for tile " + " and ".join(str(Tile(part.tile)) for part in same) + " of a pass"
    near = [part for part in parts if part.key.split(" ", 1)[0] == op.name]
    return ", ".join(dict.fromkeys(part.key for part in near or parts)) or "nothing"


def _word(op: Operation) -> str:
    """An operation as messages name it."""
    return f"{op} [{op.of}]" if op.of else str(op)


def own_order(schedule: PipelineSchedule) -> dict[str, PipelineOrder]:
    """The order of each role's own loop, where the kernel declares none."""
    orders = {}
    for stream in schedule.streams:
        role = stream.role.name

        def by(
            operations: Iterable[Operation], step: int = 1, role: str = role
        ) -> tuple[Part, ...]:
            return tuple(Part(role, _own_key(op), offset(op) % step) for op in operations)

        step = stream.step
        sought = [op for op in stream.loop if op.ahead == "seeks"]
        ahead = sorted(
            (op for op in stream.loop if op not in sought), key=lambda op: -(offset(op) // step)
        )
        orders[role] = PipelineOrder(
            before=by(stream.prologue), seeks=by(sought), item=by(stream.items),
            tiles=by(ahead, step), after=by(stream.epilogue), step=step,
        )  # fmt: skip
    return orders


def _own_key(op: Operation) -> str:
    """The name of an operation in the order of its own loop, where any name may come twice."""
    return f"{op.key} {id(op)}"


def _blocks(op: Operation) -> set[str]:
    names = {value.block for value in (*op.uses, *op.defines)}
    return names | {op.access.target.ring} if op.access is not None else names


# ---- what is printed ----------------------------------------------------------------------------


@dataclass
class _Role:
    """One role: its operations by section and name, and the effects of what is printed of them."""

    loop: Loop
    declared: bool
    section: dict[int, str] = field(default_factory=dict)  # of an operation, by id
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
                self.section[id(op)] = name
                tile = offset(op) % stream.step if name == "tiles" else 0
                self.named[(name, self.key(op), tile)] = op

    def key(self, op: Operation) -> str:
        return op.key if self.declared else _own_key(op)

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
        self.declared = schedule.plain is not None
        self.roles = {loop.stream.role.name: _Role(loop, self.declared) for loop in loops}
        self.follower = Follower.of(emitter)
        self.effects: dict[int, Effect] = {}  # of what is printed, by id
        self.counts: dict[int, tuple[frozenset[Hashable], frozenset[Hashable]]] = {}
        self.at: dict[tuple[int, bool], Printed] = {}  # by operation, and whether as that of tile 0
        self.whole: dict[tuple[int, int, int], Effect] = {}  # with what lies in SMEM
        self._read_effects()

    def _problem(self, code: str, op: Operation, role: str, what: str) -> _Found:
        return _Found(f"error[{code}] {self.schedule.file}:{op.line} {op} of role {role} {what}")

    # ---- effects -----------------------------------------------------------------------------

    def _read_effects(self) -> None:
        """What everything printed does to registers; those that always go together as one."""
        declared = {
            f"%{r.name}{index}" for r in self.schedule.registers for index in range(r.count)
        }
        kept = {name for _, names, _ in self.emitter.registers for name in names.split(", ")}
        kept |= {*OWN, *COUNTS}
        known, texts = declared | kept, self._texts()
        by_text: dict[tuple[str, ...], Effect] = {}
        for printed in passed(self.follower.lines):
            op = printed.op
            if op.name in WAITS:
                continue
            role = next(name for name, x in self.roles.items() if id(op) in x.section)
            text = texts.get(id(printed), ())
            same = self.at.setdefault((id(op), printed.first and op.first_differs), printed)
            if texts.get(id(same), ()) != text:
                raise self._problem(
                    "wrong-slot", op, role, "is not printed alike everywhere: in the loop it is "
                    "for any tile, so nothing of it may depend on which one"
                )  # fmt: skip
            effect = by_text.get(text)
            if effect is None:
                try:
                    effect = by_text[text] = effect_of(text, known)
                except Unknown as error:
                    raise self._problem(
                        "data-flow", op, role, f"has `{error}`, of which no table says what it "
                        f"writes (mlagen/codegen/sm_90a/effects.py)"
                    ) from error  # fmt: skip
            written = effect.writes | effect.may
            taken = (written & kept) - set(COUNTS)
            if taken or (self.schedule.persistent and TILES in written):
                name = min(map(str, taken), default=TILES)
                raise self._problem(
                    "control-flow", op, role, f"writes {name}, which the control flow keeps"
                )
            counted = set(COUNTS)
            self.counts[id(printed)] = (effect.reads & counted, written & counted)
            self.effects[id(printed)] = Effect(
                effect.reads & declared, effect.writes & declared, effect.may & declared
            )
        self._join()

    def _texts(self) -> dict[int, tuple[str, ...]]:
        texts: dict[int, list[str]] = {}
        for line in self.emitter.lines:
            if line.printed is not None:
                texts.setdefault(id(line.printed), []).append(line.text)
        return {key: tuple(lines) for key, lines in texts.items()}

    def _join(self) -> None:
        """One register stands for all that the same operations read and write."""
        uses: dict[Hashable, list[tuple[int, int]]] = {}
        for key, effect in self.effects.items():
            for kind, registers in enumerate((effect.reads, effect.writes, effect.may)):
                for register in registers:
                    uses.setdefault(register, []).append((key, kind))
        first: dict[tuple[tuple[int, int], ...], Hashable] = {}
        for register in sorted(uses, key=lambda name: (len(str(name)), str(name))):
            first.setdefault(tuple(uses[register]), register)
        stands = set(first.values())
        self.effects = {
            key: Effect(effect.reads & stands, effect.writes & stands, effect.may & stands)
            for key, effect in self.effects.items()
        }

    def _effect(self, role: _Role, op: Operation, place: int, *, first: bool) -> Effect:
        """What an operation does for the tile at `place`: registers of its role and SMEM."""
        first = first and op.first_differs
        printed = self.at.get((id(op), first)) or self.at.get((id(op), not first))
        if printed is None:
            return Effect(frozenset(), frozenset())
        return self._with_smem(role, printed, place)

    def _with_smem(self, role: _Role, printed: Printed, place: int) -> Effect:
        effect, op, smem = self.effects[id(printed)], printed.op, self.schedule.smem
        depths = [smem.handoffs[name].depth for name in _blocks(op) if name in smem.handoffs]
        slots = max(depths, default=1)
        key = (id(printed), place % slots, slots)
        if key in self.whole:
            return self.whole[key]
        reads, writes = (
            {(role.name, r) for r in effect.reads},
            {(role.name, r) for r in effect.writes},
        )
        may = {(role.name, r) for r in effect.may}
        if self.declared:
            read = {self._place(v.block, place) for v in op.uses if self._lies(v.block)}
            written = {self._place(v.block, place) for v in op.defines if self._lies(v.block)}
            if op.access is not None and op.access.kind == "copy":
                written.add(self._place(op.access.target.ring, place))
            reads |= read
            if op.guarded:
                may |= written
            else:
                writes |= written
        made = Effect(frozenset(reads), frozenset(writes), frozenset(may))
        self.whole[key] = made
        return made

    def _lies(self, block: str) -> bool:
        smem = self.schedule.smem
        return block in smem.handoffs or block in smem.messages or block in smem.scratches

    def _place(self, block: str, place: int) -> tuple[str, str]:
        handoff = self.schedule.smem.handoffs.get(block)
        if handoff is None or handoff.resident:
            return ("", block)
        return ("", f"{block}[{place % handoff.depth}]")

    # ---- one run -----------------------------------------------------------------------------

    def check(self, way: Way) -> None:
        """Raises _Found for what a run does otherwise than the plain loop."""
        for role in self.roles.values():
            self._follow(role, way)
        if self.schedule.plain is not None:
            self._compare(way, list(self.roles.values()), self.schedule.plain)
            return
        for name, order in own_order(self.schedule).items():
            self._compare(way, [self.roles[name]], order)

    def _compare(self, way: Way, roles: Sequence[_Role], plain: PipelineOrder) -> None:
        program = list(self._program(way, {role.name for role in roles}, plain))
        wanted = list(self._plain(way.line, {role.name: role for role in roles}, plain))
        found = differences(program, wanted)
        if found:
            raise self._told(found[0], way.line)

    def _follow(self, role: _Role, way: Way) -> None:
        """The printed lines pass what the hand-off proof took, with the slots of its tiles."""
        line, stream = way.line, role.loop.stream
        values = {"%thread": stream.role.first_thread, "%smem": 0}
        lines = self.follower.run(stream.role.name.upper(), values)
        stay: int | None = None  # the strictest group wait printed since the last operation
        asked: int | None = None
        sought = 0
        last: Operation = stream.loop[0]

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
                reads, writes = self.counts[id(printed)]
                self._set(role, last, writes, line, sought, values)
                if last.ahead == "seeks" and COMING in writes:
                    sought += 1
                elif ITEMS in reads and values[ITEMS] != len(line.counts) - sought:
                    raise lost(f"finds {values[ITEMS]} items left")
                if TILES in reads and TILES not in writes and (
                    values.get(TILES) != line.counts[event.item]
                ):  # fmt: skip
                    raise lost(f"finds {values.get(TILES)} tiles")
            printed = following()
            if printed is not None:
                goes = printed.op if isinstance(printed, Printed) else "a meeting of all warps"
                raise lost(f"is followed by {goes}, where the role ends")
            if asked is not None and (stay is None or stay > asked):
                raise lost(f"is followed by no wait for all groups but {asked}")
        except Lost as error:
            raise lost(str(error)) from error

    def _set(
        self,
        role: _Role,
        op: Operation,
        writes: frozenset[Hashable],
        line: Line,
        sought: int,
        values: dict[str, int],
    ) -> None:
        """Counts that operations set: what they find stands in memory, and is given here."""
        if TILES in writes:
            values[TILES] = line.counts[0]
        if ITEMS in writes:
            values[ITEMS] = len(line.counts)
        if COMING in writes:
            values[COMING] = line.counts[sought] if sought < len(line.counts) else 0

    def _cursor(
        self, role: _Role, printed: Printed, event: Event, line: Line, values: dict[str, int]
    ) -> None:
        """The slot and the phase that an operation is printed with are those of its tile."""
        op = printed.op
        if op.first_differs and printed.first != (event.tile == line.starts[event.item]):
            which = "that of tile 0" if printed.first else "those behind it"
            raise self._problem(
                "wrong-slot", op, role.name, f"is printed for {which}, and done for tile "
                f"{event.tile}, {line}"
            )  # fmt: skip
        if not printed.slot:
            return
        handoff = self.emitter.handoff_of(op)
        assert handoff is not None
        if handoff.resident:
            turn, slot = line.loads(event.item), 0
        else:
            turn, slot = line.turn(event.tile, handoff.depth), event.tile % handoff.depth
        wanted = {"slot": slot}
        if op.name in ("wait_full", "wait_empty"):
            wanted["phase"] = (turn + (op.name == "wait_empty")) & 1
        for what, number in wanted.items():
            found = value_of(printed.slot if what == "slot" else printed.phase, values)
            if found != number:
                raise self._problem(
                    "wrong-slot", op, role.name, f"is done for tile {event.tile} of "
                    f"{handoff.name!r} with {what} {found}; the tile's is {number}, {line}"
                )  # fmt: skip

    # ---- the two sequences -------------------------------------------------------------------

    def _program(self, way: Way, roles: set[str], plain: PipelineOrder) -> Iterator[Done]:
        """What was printed, in the order of the run."""
        sought: dict[int, int] = {}
        for name, event in way.steps:
            op = event.op
            if name not in roles or op is None or op.name in WAITS or event.meeting:
                continue
            if op.key in plain.hints:
                continue
            role, item = self.roles[name], event.item
            if op.ahead == "seeks":
                item = sought[id(op)] = sought.get(id(op), -1) + 1
            first = event.tile == way.line.starts[min(item, len(way.line.counts) - 1)]
            yield self._done(role, op, event.tile, item, first=first)

    def _plain(self, line: Line, roles: dict[str, _Role], plain: PipelineOrder) -> Iterator[Done]:
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
        if plain.seeks and line.counts[-1]:  # looked for behind the last one
            behind = line.starts[-1] + -(-line.counts[-1] // line.step) * line.step
            yield from around(plain.seeks, behind, len(line.counts), "tiles")

    def _done(self, role: _Role, op: Operation, place: int, item: int, *, first: bool) -> Done:
        looped = role.section[id(op)] == "tiles" and op.tile is not None and op.ahead != "seeks"
        of = f" #{item}" if not looped and role.section[id(op)] != "prologue" else ""
        return Done(
            f"{role.name} {role.key(op)}{of}", place if looped else None,
            self._effect(role, op, place, first=first), f"{op} of role {role.name}", op.line,
        )  # fmt: skip

    # ---- messages ----------------------------------------------------------------------------

    def _told(self, found: Difference, line: Line) -> _Found:
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

    def _tile(self, done: Done, line: Line) -> str:
        if done.tile is None:
            return ""
        if len(line.counts) == 1:
            return f" for tile {done.tile}"
        item = line.items.get(done.tile)
        if item is None:
            return f" for place {done.tile}"
        return f" for tile {done.tile - line.starts[item]} of item {item}"

    def _writer(self, done: Done | None, line: Line) -> str:
        if done is None:
            return "nobody: nothing was written there"
        return f"{done.text} (:{done.line}){self._tile(done, line)}"

    def _storage(self, storage: Hashable) -> str:
        _, name = storage if isinstance(storage, tuple) else ("", str(storage))
        for registers in self.schedule.registers:
            if name.rstrip("0123456789") == f"%{registers.name}":
                return f"{name} ({registers.comment})"
        return repr(name)
