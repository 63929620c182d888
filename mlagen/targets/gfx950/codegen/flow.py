"""The proof that the printed program does what the plain loop does, for every number of tiles.

The printed control flow is followed for N = 0, 1, 2, ... up to two passes of the loop. Each piece
is read back into operations: all instructions of each, as its template gave them for this tile, in
an order that keeps what they take from each other. The sequence that comes of it is compared with
the plain order of the kernel. Beyond that N only the number of passes grows: the loop counts down
by one, and each pass begins with what the one before it left.

A kernel that declares no plain order is compared with its own loop, one tile after another, in
which a tile begins with the operations that the schedule does furthest ahead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from mlagen.codegen.dataflow import Difference, Done, Effect, differences, inherited
from mlagen.codegen.expand import stands
from mlagen.dsl import Binding, Operation, PlainOrder
from mlagen.targets.gfx950.codegen.completeness import plain_order, spelled
from mlagen.targets.gfx950.codegen.expand import bounds
from mlagen.targets.gfx950.codegen.follow import Follower, Lost
from mlagen.targets.gfx950.codegen.isa import AGPR, SGPR
from mlagen.targets.gfx950.codegen.lowering import EXIT, Lowering
from mlagen.targets.gfx950.codegen.program import Layout, Piece, ProgramInstruction, RoleStream
from mlagen.targets.gfx950.codegen.violation import Violation
from mlagen.targets.gfx950.dsl import Role, Schedule

Step = tuple[Piece, int]
CONTROL = ("N", "LEFT", "ITEMS", "ITEM")  # registers of the control flow


def check_flow(schedule: Schedule, layout: Layout, lowering: Lowering) -> list[Violation]:
    """What the printed program does otherwise than the plain loop; the first N that shows it."""
    plain, found = plain_order(schedule), _overwrites(schedule, layout)
    if found:
        return found
    for stream in layout.streams:
        walk = _Walk(schedule, layout, lowering, plain, stream)
        for n in range(layout.first_looped + 2 * layout.period):
            found = walk.check(n)
            if found:
                return found
    return []


def _overwrites(schedule: Schedule, layout: Layout) -> list[Violation]:
    """Operations of the loop that write what the control flow counts in."""
    scalars = schedule.registers.physical()
    held = {name: SGPR + scalars[name] for name in CONTROL if name in scalars}
    found = []
    for piece in layout.pieces():
        mine = (
            held
            if piece.cluster is not None
            else {name: held[name] for name in ("LEFT", "ITEM") if name in held}
        )
        for x in piece.body:
            hit = next((name for name, register in mine.items() if register in x.writes), None)
            if hit is not None and x.owner is not None:
                where, code = f"{schedule.file}:{x.owner.line}", x.text.strip()
                what = f"{spelled(x.owner)}: `{code}` writes {hit}, in which the loop counts"
                found.append(Violation.at("control-flow", where, what))
    return found[:1]


# ---- one stream ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """An operation as it stands in a piece: the texts of its instructions."""

    operation: Operation
    texts: tuple[str, ...]


class _Walk:
    """Compares one stream with the plain loop."""

    def __init__(
        self,
        schedule: Schedule,
        layout: Layout,
        lowering: Lowering,
        plain: PlainOrder,
        stream: RoleStream,
    ) -> None:
        self.schedule, self.layout, self.lowering = schedule, layout, lowering
        self.plain, self.stream, self.edge = plain, stream, bounds(schedule)
        self.follower = Follower(layout, stream)
        self.who = f" of role {stream.role}" if stream.role else ""
        looped = [(op, cluster.name) for cluster in schedule.loop for op in cluster.operations()]
        around = (*schedule.prologue, *schedule.items, *schedule.epilogue)
        everything = [*((op, "") for op in around), *looped]
        mine = [(op, name) for op, name in everything if op.belongs(stream.role)]
        self.order = {id(op): index for index, (op, _) in enumerate(mine)}
        self.cluster = {id(op): name for op, name in mine}
        self.by_key = {op.key: op for op, _ in mine}
        self.parts: dict[str, list[_Part]] = {}
        self.effects: dict[int, Effect] = {}
        self.expected: dict[int, tuple[str, ...]] = {}
        self.problem: Violation | None = None
        numbers = schedule.registers.physical()
        counted = [name for name in ("N", "ITEMS") if name in numbers]
        self.counted = {
            name: Done(
                f"control flow, {name}",
                None,
                Effect(frozenset({SGPR + numbers[name]}), frozenset()),
                f"the control flow, which reads {name},",
                schedule.line,
            )
            for name in counted
        }

    def check(self, n: int) -> list[Violation]:
        """What is done otherwise with `n` tiles."""
        self.problem = None
        paths = self._paths(n)
        if self.problem is not None or paths is None:
            return [self.problem] if self.problem else []
        once, run = paths
        before = [*self._plain(self.plain.before, None)]
        item = [*self._plain(self.plain.item, None)]
        count = self.counted["N"]
        if not self.layout.persistent:
            return self._compare([*once, *run], [*before, count, *self._tiles(n)], n, set())
        # Items follow each other: each must find, and leave, what later ones read.
        own = [*item, count, *self._tiles(n)]
        live = inherited(own)
        found = self._compare(once, [*before, self.counted["ITEMS"]], n, live)
        return found or self._compare(run, own, n, live)

    def _compare(
        self, steps: Sequence[Step], plain: Sequence[Done], n: int, live: set[Hashable]
    ) -> list[Violation]:
        program = self._printed(steps)
        if self.problem is not None:
            return [self.problem]
        found = differences(program, plain, live)
        return [self._violation(found[0], n)] if found else []

    # ---- the printed program -----------------------------------------------------------------

    def _paths(self, n: int) -> tuple[list[Step], list[Step]] | None:
        """Pieces with their iterations: what runs once, and what `n` tiles run."""
        pieces = self.layout.by_key()
        once = [(pieces[step.piece], step.i) for step in self.layout.once.get(self.stream.role, [])]
        run = [(pieces[step.piece], step.i) for step in self.layout.paths(n, self.stream.role)]
        believed = [piece.key for piece, _ in [*once, *run]]
        for role in self.stream.members:
            try:
                passed = [piece.key for piece in self.follower.pieces(role, n)]
            except Lost as error:
                self.problem = self._control(str(error), n)
                return None
            if passed != believed:
                self.problem = self._control(_turn(role, passed, believed), n)
                return None
        return once, run

    def _control(self, what: str, n: int) -> Violation:
        where = f"{self.schedule.file}:{self.schedule.line}"
        return Violation.at("control-flow", where, f"{what}, N = {n}", n)

    def _show(self, code: str, op: Operation, what: str) -> None:
        """Keeps what is wrong with an operation, unless something else was found before."""
        if self.problem is None:
            where = f"{self.schedule.file}:{op.line}"
            self.problem = Violation.at(code, where, f"{spelled(op)}{what}")

    def _printed(self, steps: Sequence[Step]) -> list[Done]:
        done = []
        for piece, i in steps:
            for part in self._parts(piece):
                op = part.operation
                tile = None if op.tile is None or piece.cluster is None else i + op.tile.offset
                body = self._lowered(op, tile)
                if part.texts != self._texts(body):
                    what = f"in {piece.key} is printed for other slots than those of tile {tile}"
                    self._show("wrong-slot", op, f"{self.who} {what}")
                done.append(self._done(op, tile))
            if piece.stagger == "enter":
                done.append(self.counted["N"])
            elif piece.section == "setup":
                done.append(self.counted["ITEMS"])
        return done

    def _parts(self, piece: Piece) -> list[_Part]:
        """The operations of a piece, in the order of the schedule."""
        if piece.key in self.parts:
            return self.parts[piece.key]
        bodies: dict[int, list[ProgramInstruction]] = {}
        for x in piece.body:
            if x.owner is not None:
                bodies.setdefault(id(x.owner), []).append(x)
        ordered = sorted(bodies, key=self.order.__getitem__)
        parts = []
        for key in ordered:
            body = bodies[key]
            operation = body[0].owner
            assert operation is not None
            if [x.index for x in body] != list(range(len(body))):
                what = f": its instructions are not all there, in their order, in {piece.key}"
                self._show("order", operation, what)
            parts.append(_Part(operation, self._texts(body)))
        if len(parts) > 1:
            self._keeps_order(piece, {key: index for index, key in enumerate(ordered)})
        self.parts[piece.key] = parts
        return parts

    def _keeps_order(self, piece: Piece, order: dict[int, int]) -> None:
        """Interleaved operations take from each other what they would take one by one."""
        written: dict[int, tuple[tuple[int, int], Operation]] = {}
        read: dict[int, tuple[tuple[int, int], Operation]] = {}
        for x in piece.body:
            if x.owner is None:
                continue
            place = (order[id(x.owner)], x.index)
            for registers, earlier in ((x.reads, (written,)), (x.writes, (written, read))):
                for register in registers:
                    for table in earlier:
                        before = table.get(register)
                        if before is not None and before[0] > place:
                            what = (
                                f": `{x.text.strip()}` stands after an instruction of "
                                f"{spelled(before[1])} (:{before[1].line}) that must follow it, "
                                f"in {piece.key}"
                            )
                            self._show("order", x.owner, what)
            for register in x.reads:
                if register not in read or read[register][0] < place:
                    read[register] = (place, x.owner)
            for register in x.writes:
                written[register] = (place, x.owner)

    # ---- the plain loop ----------------------------------------------------------------------

    def _tiles(self, n: int) -> Iterator[Done]:
        for tile in range(n):
            yield from self._plain(self.plain.tile, tile, n)
        yield from self._plain(self.plain.after, None, n)

    def _plain(self, names: Sequence[str], tile: int | None, n: int = 1) -> Iterator[Done]:
        for name in names:
            op = self.by_key.get(name)
            if op is None:
                continue  # another role does it
            there = n == 0 or op.domain != "empty"
            if tile is not None:
                there = stands(op, tile - (op.tile.offset if op.tile else 0), n, self.edge)
            if there:
                yield self._done(op, tile)

    def _done(self, op: Operation, tile: int | None) -> Done:
        body = self._lowered(op, tile)
        effect = self.effects.get(id(body))
        if effect is None:
            effect = self.effects[id(body)] = effect_of(body)
        return Done(op.key, tile, effect, spelled(op), op.line, self.cluster[id(op)])

    def _lowered(self, op: Operation, tile: int | None) -> list[ProgramInstruction]:
        at = tile or 0
        return self.lowering.lower(
            op, Binding(at % self.layout.period, tile == 0, self.stream.role)
        )

    def _texts(self, body: Sequence[ProgramInstruction]) -> tuple[str, ...]:
        """What is printed, but for the names of labels."""
        return tuple(x.mnemonic if x.target else x.text for x in body)

    # ---- messages ----------------------------------------------------------------------------

    def _violation(self, found: Difference, n: int) -> Violation:
        done = found.done
        cluster = f" cluster {done.cluster}," if done.cluster else ""
        where = f"{self.schedule.file}:{done.line}{cluster}"
        of = "" if done.tile is None else f" of tile {done.tile}"
        first = f"First at N = {n}."
        if found.kind == "missing":
            what = f"is never done{of and ' for' + of[3:]}. {first}"
            return Violation.at("not-done", where, f"{done.text}{self.who} {what}", n)
        if found.kind in ("twice", "foreign"):
            how = "done twice" if found.kind == "twice" else "done, which the plain loop does not"
            what = f"{done.text}{self.who}{of} is {how}. {first}"
            return Violation.at("done-twice", where, what, n)
        what = (
            f"{done.text}{self.who}{of} uses {self._storage(found.storage)} of "
            f"{_writer(found.found)}; it must be that of {_writer(found.wanted)}. {first}"
        )
        return Violation.at("data-flow", where, what, n)

    def _storage(self, register: object) -> str:
        """A register by the name that the schedule gives it."""
        number = register if isinstance(register, int) else -1
        for _, held, place, _ in self.schedule.registers.symbols():
            first = place + (AGPR if held.file == "a" else 0)
            if first <= number < first + len(held):
                return str(held[number - first])
        for regs in self.schedule.registers.scalars.values():
            if regs.first <= number - SGPR < regs.first + regs.count:
                return f"s[{regs.name}]"
        return "vcc, scc, exec or m0"


def effect_of(body: Sequence[ProgramInstruction]) -> Effect:
    """What the instructions of one operation take and leave. After a branch around a block, what
    the block writes may be what was there before."""
    reads: set[int] = set()
    writes: set[int] = set()
    may: set[int] = set()
    inside: set[int] | None = None  # written so far in the block that may be skipped
    for x in body:
        if x.pipe == "label":
            inside = None
        known = writes if inside is None else writes | inside
        reads.update(r for r in x.reads if r not in known)
        if inside is None:
            writes.update(x.writes)
            may.difference_update(x.writes)
        else:
            inside.update(x.writes)
            may.update(r for r in x.writes if r not in writes)
        if x.pipe == "branch" and x.target not in ("", EXIT) and inside is None:
            inside = set()
    return Effect(frozenset(reads), frozenset(writes), frozenset(may - writes))


def _turn(role: Role, passed: Sequence[str], believed: Sequence[str]) -> str:
    """Where the printed control flow goes another way than the proof believes."""
    common = next(
        (k for k, (a, b) in enumerate(zip(passed, believed, strict=False)) if a != b),
        min(len(passed), len(believed)),
    )
    after = passed[common - 1] if common else "the start"
    goes = passed[common] if common < len(passed) else "its end"
    wanted = believed[common] if common < len(believed) else "its end"
    return (
        f"role {role.name} goes from {after} to {goes}; all tiles are done if it goes to {wanted}"
    )


def _writer(done: Done | None) -> str:
    if done is None:
        return "before the kernel's first operation"
    return f"{done.text} (:{done.line})" + ("" if done.tile is None else f" for tile {done.tile}")
