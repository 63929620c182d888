"""Derives waits from events. Every asynchronous operation takes a ticket of its counter; a use
names the ticket it needs; the wait is issued tickets minus needed ticket.

There are two kinds of use. A register is used by the wave that loaded it: the wait stands before
that instruction. An LDS slot is used by all waves of the workgroup: whoever filled it (or still
reads it) waits before the last barrier that the other wave passes ahead of its access, counted with
the stagger between their roles. Only who issued a transfer can wait for it, so where roles have
code of their own each gets its own waits. A wait is never left out because enough time has passed.

A count above 0 relies on the order in which operations complete. Where a schedule `drains`, no wait
relies on it while a copy to LDS may be on its way: such a wait is vmcnt(0).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlagen.targets.gfx950.codegen.isa import M0
from mlagen.targets.gfx950.codegen.program import (
    Flights,
    Layout,
    PathStep,
    ProgramInstruction,
    RoleStream,
    WaitPoint,
)
from mlagen.targets.gfx950.codegen.uses import conflicts, slot_uses
from mlagen.targets.gfx950.dsl import Role, Schedule, Wait
from mlagen.targets.gfx950.limits import Gfx950

Found = dict[tuple[str, int, str], int]  # piece, index in it and counter: the strictest wait there


def derive_waits(schedule: Schedule, layout: Layout, tiles: Iterable[int]) -> dict[WaitPoint, Wait]:
    """Wait counts for every point of the program, the strictest over all given tile counts and, of
    a persistent kernel, over all work items that may have gone before.

    ProofError when a read finds another tile in its slot. A pair that no wait can order gets the
    earliest wait there is, and the proof names it.
    """
    due = {n: _deadlines(schedule, layout, n) for n in tiles}
    ends = {WaitPoint(piece.key, len(piece.body)) for piece in layout.pieces()}
    # What one tile count needs at a closing barrier stands there for all others too, and may
    # spare them waits of their own: derive those again with it in place.
    flights = layout.flights()
    found = _strictest(schedule, layout, flights, due, {})
    closing = {point: counts for point, counts in found.items() if point in ends}
    return _strictest(schedule, layout, flights, due, closing)


def _strictest(
    schedule: Schedule,
    layout: Layout,
    flights: Flights,
    due: Mapping[int, Mapping[str, Mapping[int, Mapping[str, int]]]],
    given: Mapping[WaitPoint, Wait],
) -> dict[WaitPoint, Wait]:
    found: Found = {}
    for role in (stream.role for stream in layout.streams):
        start = _derive(schedule, layout, flights, layout.once.get(role, []), {}, given,
                        ItemFlight(), found)  # fmt: skip
        # What an item finds in flight is what some item left, or the setup: all there can be.
        seen, work = {start}, [start]
        while work:
            before = work.pop()
            for n, by_stream in due.items():
                path = layout.paths(n, role)
                after = _derive(
                    schedule, layout, flights, path, by_stream[role], given, before, found
                )
                if layout.persistent and after not in seen:
                    seen.add(after)
                    work.append(after)
    result = dict(given)
    for (piece, index, counter), count in found.items():
        point = WaitPoint(piece, index)
        result[point] = result.get(point, Wait()).stricter(Wait(**{counter: count}))
    return result


def is_lds_copy(x: ProgramInstruction) -> bool:
    """A load from memory that writes LDS, at M0."""
    return x.pipe == "vmem" and M0[0] in x.reads


@dataclass(frozen=True, slots=True)
class ItemFlight:
    """What a wave may still be loading where a work item begins. `registers`: (register, counter,
    tickets issued since its own), `scalar`: whether scalar loads are among it."""

    registers: frozenset[tuple[int, str, int]] = frozenset()
    scalar: bool = False


def _deadlines(schedule: Schedule, layout: Layout, n: int) -> dict[str, dict[int, dict[str, int]]]:
    """By stream: tickets that must be complete at the end of a piece of its path, by counter."""
    clocks = {role: clock for stream in layout.streams
              for role, clock in _clocks(schedule, layout, stream, n)}  # fmt: skip
    uses = [use for stream in layout.streams for use in slot_uses(schedule, layout, stream, n)]
    due: dict[str, dict[int, dict[str, int]]] = {stream.role: {} for stream in layout.streams}
    for first, second in conflicts(uses, schedule.file):
        # A wave's accesses before barrier number b are ordered before another's after it.
        last = min(clocks[role].begin[second.step] for role in second.stream.members)
        barrier = last + second.barriers - 1
        ends = (clocks[role].end for role in first.stream.members)
        at = min(bisect_right(end, barrier) - 1 for end in ends)
        wanted = due[first.stream.role].setdefault(max(at, first.step), {})
        counter = first.instruction.counter
        wanted[counter] = max(wanted.get(counter, 0), first.ticket)
    if layout.persistent:
        # The next item may use every slot after the barrier that it begins with.
        for use in uses:
            last = len(layout.paths(n, use.stream.role)) - 1
            wanted = due[use.stream.role].setdefault(last, {})
            counter = use.instruction.counter
            wanted[counter] = max(wanted.get(counter, 0), use.ticket)
    return due


@dataclass(frozen=True, slots=True)
class Clock:
    """Barriers that a wave has passed at the begin of each piece of its path, and at its end ahead
    of what closes it."""

    begin: tuple[int, ...]
    end: tuple[int, ...]


def _clocks(
    schedule: Schedule, layout: Layout, stream: RoleStream, n: int
) -> Iterator[tuple[Role, Clock]]:
    pieces = layout.by_key()
    path = [pieces[step.piece] for step in layout.paths(n, stream.role)]
    inside = [sum(x.pipe == "barrier" for x in piece.body) for piece in path]
    for role in stream.members:
        begin, end, passed = [], [], 0
        for piece, barriers in zip(path, inside, strict=True):
            begin.append(passed)
            end.append(passed + barriers)
            passed += barriers + piece.closed + piece.barriers_after(role, schedule.roles)
        yield role, Clock(tuple(begin), tuple(end))


def _derive(
    schedule: Schedule,
    layout: Layout,
    flights: Flights,
    path: Sequence[PathStep],
    due: Mapping[int, Mapping[str, int]],
    given: Mapping[WaitPoint, Wait],
    before: ItemFlight,
    found: Found,
) -> ItemFlight:
    """What one stream's path leaves in flight. `found`: takes the waits that it needs on top of the
    given ones."""
    target: Gfx950 = schedule.target
    pieces = layout.by_key()
    # A field of all ones asks for no wait at all (CDNA4 ISA, S_WAITCNT): one below is the weakest.
    capacity = {"vm": target.vmcnt_max - 1, "lgkm": target.lgkmcnt_max - 1}
    # Tickets of this path count from 1; what was in flight before has older ones.
    oldest = {counter: -count - 1 for counter, count in capacity.items()}
    issued = {"vm": 0, "lgkm": 0}
    done = {counter: ticket - 1 for counter, ticket in oldest.items()}
    # Last scalar load: they return out of order, so only lgkmcnt(0) is a wait.
    scalar_ticket = 0 if before.scalar else done["lgkm"]
    flying = {register: (counter, -age) for register, counter, age in before.registers}
    copied = done["vm"]  # ticket of the last copy to LDS
    loading = flying.keys()

    def drained(counter: str, count: int) -> int:
        """`count`, or 0 where the schedule does not rely on the order of copies to LDS."""
        return 0 if schedule.drains and counter == "vm" and copied > done["vm"] else count

    def reached(counter: str, count: int) -> int:
        """The last ticket that is complete after a wait for `count`."""
        if counter == "lgkm" and count and scalar_ticket > done[counter]:
            return done[counter]  # any of them may be the ones that are left
        return max(done[counter], issued[counter] - count)

    def need(key: str, index: int, counter: str, ticket: int) -> None:
        if ticket <= done[counter]:
            return
        count = drained(counter, min(issued[counter] - ticket, capacity[counter]))
        if counter == "lgkm" and scalar_ticket > done[counter]:
            count = 0
        done[counter] = reached(counter, count)
        found[key, index, counter] = min(count, found.get((key, index, counter), count))

    for at, step in enumerate(path):
        piece = pieces[step.piece]
        for index, instruction, touched in flights[step.piece]:
            if not loading.isdisjoint(touched):
                for load in [flying.pop(register) for register in touched if register in flying]:
                    need(piece.key, index, *load)
            if instruction.pipe == "wait":  # lgkmcnt(0), ahead of the barrier of an exchange
                done["lgkm"] = issued["lgkm"]
            if instruction.counter:
                issued[instruction.counter] += 1
                scalar_ticket = issued["lgkm"] if instruction.pipe == "smem" else scalar_ticket
                copied = issued["vm"] if is_lds_copy(instruction) else copied
                for register in instruction.writes:
                    flying[register] = (instruction.counter, issued[instruction.counter])
        last = len(piece.body)
        for load in [flying.pop(r) for x in piece.control for r in x.reads if r in flying]:
            need(piece.key, last, *load)
        covered = dict(done)
        end = given.get(WaitPoint(piece.key, last))
        for counter in done:
            if (count := getattr(end, counter, None)) is not None:
                if drained(counter, count) != count:
                    count = found[piece.key, last, counter] = 0
                done[counter] = reached(counter, count)
        for counter, ticket in sorted(due.get(at, {}).items()):
            need(piece.key, last, counter, ticket)
        if piece.cluster is not None and piece.cluster.wait is not None:
            # Only what the hand-placed wait covers may be relied on from here.
            for counter in done:
                done[counter] = covered[counter]
                if (count := getattr(piece.cluster.wait, counter)) is not None:
                    done[counter] = reached(counter, drained(counter, count))
    left = ((r, c, min(issued[c] - ticket, -oldest[c]))
            for r, (c, ticket) in flying.items() if ticket > done[c])  # fmt: skip
    return ItemFlight(frozenset(left), scalar_ticket > done["lgkm"])
