"""The proof that the printed waits and barriers order every pair of LDS accesses, for all roles.

It reads the final program (after waits were placed, by hand or derived) and follows each role's
path for N = 1, 2, ... Each access gets the barrier epoch in which it is issued and the one in which
a wait completes it. An earlier access X of one wave is ordered before a later conflicting Y of
another iff X is complete in an epoch before Y's; inside one wave, iff a wait covered X before Y. N
grows until the state at the loop's head repeats: from there on nothing new can happen.

A persistent kernel runs the path of one work item after another. Two items never meet in LDS: all
waves pass a barrier before an item, every access of an item comes after that barrier, and a wait
covers every one before the next. So LDS is proved item by item; what else one item passes to the
next is what its waits count (older operations on a counter never make a wait for the newest ones
weaker, except scalar loads, see `pending`) and registers in flight (see `loads.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlagen.errors import ProofError
from mlagen.targets.gfx950.codegen.loads import check_loads
from mlagen.targets.gfx950.codegen.program import Flights, Layout, ProgramInstruction, RoleStream
from mlagen.targets.gfx950.codegen.violation import Violation, waited
from mlagen.targets.gfx950.dsl import Role, Schedule

NEVER = 1 << 30
PASSES = 12  # loop passes within which a bounded schedule's state must repeat


@dataclass(eq=False)
class LdsEvent:
    """All LDS accesses of one operation by one wave of a role, for one tile."""

    kind: str
    ring: str
    slot: int
    tile: int
    cluster: str
    ordinal: int
    operation: str
    line: int
    counter: str
    issued: int  # barrier epoch at the first issue
    order: int  # position of the first in the wave's program order
    last: int = 0  # position of the last
    parts: int = 0  # instructions issued
    flying: int = 0  # of them not yet covered by a wait
    complete: int = NEVER  # barrier epoch in which a wait covered the last
    covered: int = NEVER  # position of that wait


@dataclass(frozen=True, slots=True)
class ProofResult:
    """`pairs`: ordered pairs checked; `tiles`: largest N expanded; `repeats`: loop passes after
    which the state repeats."""

    violations: tuple[Violation, ...]
    pairs: int
    tiles: int
    repeats: int


def prove(schedule: Schedule, layout: Layout) -> ProofResult:
    """Check all access pairs of all role pairs for every N."""
    found: dict[tuple[str, str], Violation] = {}
    pending = {stream.role: False for stream in layout.streams}
    flights = layout.flights()
    if layout.persistent:  # scalar loads that are in flight where an item begins void its waits
        span = range(layout.first_looped + 2 * layout.period)
        pending = {
            x.role: check_loads(schedule, layout, flights, x, span)[1] for x in layout.streams
        }
    repeats = _state_repeats(schedule, layout, flights, pending)
    if repeats is None:
        # Operations pile up that nothing waits for; the pairs they break show with few tiles.
        repeats = 2
        where = f"{schedule.file}:{schedule.loop[0].line}:"
        what = (
            f"the state at the loop's head does not repeat within {PASSES} passes, so no finite "
            f"number of tile counts stands for all"
        )
        shown = layout.first_looped + layout.period
        found[("", "")] = Violation.at("unbounded", where, what, shown)
    largest = layout.first_looped + (repeats + 1) * layout.period + layout.period - 1
    for stream in layout.streams:
        problems, scalar = check_loads(schedule, layout, flights, stream, range(largest + 1))
        pending[stream.role] |= layout.persistent and scalar
        for key, violation in problems:
            found.setdefault(key, violation)
    pairs = 0
    for n in range(largest + 1):
        walkers = _walkers(schedule, layout, flights, n, pending)
        uneven = _uneven(schedule, walkers, n)
        if uneven is not None:
            return ProofResult((uneven,), pairs, n, repeats)
        for first in walkers:
            if layout.persistent:
                for key, violation in _outside_item(schedule, first, n):
                    found.setdefault(key, violation)
            for second in walkers:
                count, problems = _check_pair(schedule, first, second, n)
                pairs += count
                for key, violation in problems:
                    # Of several role pairs, the one that needs its wait first.
                    known = found.get(key)
                    if known is None or (known.n, known.deadline) > (n, violation.deadline):
                        found[key] = violation
    violations = sorted(found.values(), key=lambda violation: violation.n)
    return ProofResult(tuple(violations), pairs, largest, repeats)


def require(violations: Sequence[Violation]) -> None:
    """ProofError with the first violations, unless there are none."""
    if violations:
        texts = [violation.text for violation in violations]
        more = f"\n({len(texts) - 4} more)" if len(texts) > 4 else ""
        raise ProofError("\n".join(texts[:4]) + more)


def _walkers(
    schedule: Schedule, layout: Layout, flights: Flights, n: int, pending: Mapping[str, bool]
) -> list[_Walker]:
    """One wave of each role, after its way through `n` tiles. `pending`: by stream, whether scalar
    loads may be in flight when it begins."""
    walkers = [
        _Walker(schedule, layout, flights, stream, role, pending[stream.role])
        for stream in layout.streams
        for role in stream.members
    ]
    for walker in walkers:
        walker.run(n)
    return walkers


def _uneven(schedule: Schedule, walkers: list[_Walker], n: int) -> Violation | None:
    """Roles that do not pass the same barriers: one would wait for ever."""
    first = walkers[0]
    for other in walkers[1:]:
        if other.epoch != first.epoch:
            passes = f"role {first.role.name} passes {first.epoch} barriers"
            what = f"{passes}, role {other.role.name} {other.epoch}, N = {n}"
            return Violation.at("barriers", f"{schedule.file}:{schedule.line}", what, n)
    return None


class _Walker:
    """Follows one wave through the program."""

    def __init__(
        self,
        schedule: Schedule,
        layout: Layout,
        flights: Flights,
        stream: RoleStream,
        role: Role,
        pending: bool,
    ) -> None:
        self.flights = flights
        self.schedule, self.layout, self.stream, self.role = schedule, layout, stream, role
        self.pieces = layout.by_key()
        self.epoch = 0
        self.order = 0
        self.queues: dict[str, deque[LdsEvent | None]] = {"vm": deque(), "lgkm": deque()}
        self.scalar_loads = int(pending)  # in flight; they return out of order
        self.events: dict[tuple[int, str, str, int], LdsEvent] = {}
        self.heads: list[tuple[object, ...]] = []  # state at each steady iteration of phase `low`

    def run(self, n: int) -> None:
        ordinal = -1
        for step in self.layout.paths(n, self.stream.role):
            piece = self.pieces[step.piece]
            ordinal += piece.cluster is not None
            if piece.cluster is not None and piece.cluster is self.schedule.loop[0]:
                self._remember(step.i, n)
            begun = self.order + 1
            for index, instruction, _ in self.flights[step.piece]:
                self.order = begun + index
                if instruction.pipe == "wait":
                    self._wait(instruction)
                elif instruction.pipe == "barrier":
                    self.epoch += 1
                elif instruction.counter:
                    self.scalar_loads += instruction.pipe == "smem"
                    event = self._event(instruction, step.i, ordinal, piece.cluster)
                    self.queues[instruction.counter].append(event)
            self.order = begun + len(piece.body) - 1
            self.epoch += piece.barriers_after(self.role, self.schedule.roles)

    def _event(
        self, x: ProgramInstruction, i: int, ordinal: int, cluster: object
    ) -> LdsEvent | None:
        if x.access is None:
            return None
        ring = self.schedule.lds.slotted[x.access.target.ring]
        tile = i + x.access.target.tile.offset
        key = (ordinal, x.access.kind, ring.name, tile)
        event = self.events.get(key)
        if event is None:
            operation, line = "", 0
            if x.origin:
                operation, line = x.origin.operation, x.origin.schedule_line
            event = self.events[key] = LdsEvent(
                x.access.kind, ring.name, tile % ring.slots, tile, getattr(cluster, "name", ""),
                ordinal, operation, line, x.counter, self.epoch, self.order,
            )  # fmt: skip
        event.parts += 1
        event.flying += 1
        event.last = self.order
        event.complete = event.covered = NEVER
        return event

    def _wait(self, instruction: ProgramInstruction) -> None:
        for counter, count in waited(instruction):
            if counter == "lgkm":
                if self.scalar_loads and count:
                    continue  # any of them may be the ones that are left: only 0 says anything
                self.scalar_loads = 0
            queue = self.queues[counter]
            while len(queue) > count:
                event = queue.popleft()
                if event is None:
                    continue
                event.flying -= 1
                if not event.flying:
                    event.complete, event.covered = self.epoch, self.order

    def _remember(self, i: int, n: int) -> None:
        low, high = self.layout.steady_from, self.layout.steady_to
        if not (low <= i < n - high) or (i - low) % self.layout.period:
            return

        def relative(event: LdsEvent | None) -> object:
            if event is None:
                return None
            complete = min(event.complete - self.epoch, 0)
            return (event.kind, event.ring, event.slot, event.tile - i, event.flying,
                    self.epoch - event.issued, complete)  # fmt: skip

        latest: dict[tuple[str, str, int], object] = {}
        for event in self.events.values():
            latest[(event.kind, event.ring, event.slot)] = relative(event)
        queues = tuple(tuple(relative(e) for e in queue) for queue in self.queues.values())
        slots = tuple(sorted(latest.items(), key=lambda item: item[0]))
        self.heads.append((queues, self.scalar_loads, slots))


def _state_repeats(
    schedule: Schedule, layout: Layout, flights: Flights, pending: Mapping[str, bool]
) -> int | None:
    """Loop passes after which the state at the loop's head is the one before; None if it keeps
    changing."""
    n = layout.first_looped + PASSES * layout.period
    needed = 0
    for walker in _walkers(schedule, layout, flights, n, pending):
        heads = walker.heads
        same = [k for k in range(1, len(heads)) if heads[k] == heads[k - 1]]
        if not same:
            return None
        needed = max(needed, same[0])
    return needed


def _outside_item(
    schedule: Schedule, walker: _Walker, n: int
) -> Iterator[tuple[tuple[str, str], Violation]]:
    """LDS accesses of a work item that another item's may meet."""
    for event in walker.events.values():
        if event.issued and not event.flying:
            continue
        when = "be in flight when the next item begins" if event.issued else "come too early"
        what = (
            f"{event.operation} of role {walker.role.name} may {when}: items are ordered by the "
            f"barrier between them only. First at N = {n}."
        )
        found = Violation.at("race-item", f"{schedule.file}:{event.line}", what, n)
        yield (event.operation, "item"), found


def _check_pair(
    schedule: Schedule, first: _Walker, second: _Walker, n: int
) -> tuple[int, list[tuple[tuple[str, str], Violation]]]:
    """All conflicting (X of first, Y of second) with X earlier in tile order of their slot."""
    by_slot: dict[tuple[str, int], list[LdsEvent]] = {}
    for event in first.events.values():
        by_slot.setdefault((event.ring, event.slot), []).append(event)
    problems = []
    count = 0
    same_role = first.role is second.role
    for y in second.events.values():
        period = schedule.lds.slotted[y.ring].slots
        for x in by_slot.get((y.ring, y.slot), ()):
            # What must come before y: the copy of what it reads, or, for a copy, everything that
            # concerns the slot's previous tile.
            wanted = (
                x.kind == "copy" and x.tile == y.tile
                if y.kind == "read"
                else x.tile == y.tile - period
            )
            if not wanted:
                continue
            count += 1
            across = x.complete < y.issued
            within = not same_role or x.covered < y.order
            if across and within:
                continue
            key = (f"{x.operation}:{x.line}", f"{y.operation}:{y.line}")
            problems.append((key, _violation(schedule, x, first, y, second, n)))
    return count, problems


def _deadline(first: Role, second: Role, ordinal: int) -> int:
    """Cluster at whose closing barrier a wait by the first role still orders its access before the
    second role's access in cluster `ordinal`. Below the first access's cluster: no wait can."""
    return ordinal + second.stagger - first.stagger - 1


def _violation(
    schedule: Schedule,
    x: LdsEvent,
    first: _Walker,
    y: LdsEvent,
    second: _Walker,
    n: int,
) -> Violation:
    """The diagnostic of one unordered pair."""
    x_role, y_role = first.role, second.role
    deadline = _deadline(x_role, y_role, y.ordinal)
    clusters = [cluster.name for cluster in schedule.loop]
    at = clusters.index(x.cluster) if x.cluster in clusters else 0
    closing = clusters[(at + deadline - x.ordinal) % len(clusters)]
    what = "LDS reads" if x.kind == "read" else "DMAs" if x.counter == "vm" else "LDS writes"
    verb = {"copy": "wrote", "read": "still read"}[x.kind]
    code = "wait-missing" if deadline >= x.ordinal else f"race-{_hazard(x, y)}"
    waves = f"waves {x_role.waves.start}-{x_role.waves.stop - 1}"
    text = (
        f"error[{code}] {schedule.file}:{y.line} cluster {y.cluster}, {y.operation}: {waves} "
        f"{verb} this slot at :{x.line} (cluster {x.cluster});\n"
        f"  {x.parts} of their {what} may still be in flight. "
    )
    if deadline >= x.ordinal:
        # Operations of the same counter that may stay in flight at the deadline's barrier.
        newer = sum(
            e.parts
            for e in first.events.values()
            if e.counter == x.counter and e.order > x.last and e.ordinal <= deadline
        )
        counter = "vmcnt" if x.counter == "vm" else "lgkmcnt"
        text += f"Needs {counter}({newer}) before the barrier that closes cluster {closing}. "
    else:
        apart = y.ordinal - x.ordinal
        text += (
            f"No wait can order them: the clusters are {apart} apart and the roles' stagger is "
            f"{schedule.roles.stagger}, so waves {y_role.waves.start}-{y_role.waves.stop - 1} may "
            f"be there first. "
        )
    return Violation(code, text + f"First at N = {n}.", n, deadline)


def _hazard(x: LdsEvent, y: LdsEvent) -> str:
    if y.kind == "read":
        return "raw"
    return "war" if x.kind == "read" else "waw"
