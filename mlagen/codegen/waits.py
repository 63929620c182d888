"""Events in, waits out. Every asynchronous operation takes a ticket of its counter; a use names the
ticket it needs; the wait is issued tickets minus needed ticket.

Two kinds of use. A register is used by the wave that loaded it: the wait stands before that
instruction. An LDS slot is used by all waves of the workgroup: whoever filled it (or still reads
it) waits before the last barrier that the other wave passes ahead of its access, counted with the
stagger between their roles. A wait is never left out because enough time has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mlagen.codegen.program import Counts, Instruction, Layout, WaitPoint
from mlagen.dsl import Schedule
from mlagen.errors import ProofError
from mlagen.targets import Gfx950


@dataclass(frozen=True, slots=True)
class SlotUse:
    """One operation's accesses to one LDS slot on a path."""

    kind: str  # "copy" | "read"
    ring: str
    slot: int
    tile: int
    ordinal: int  # cluster on the path
    ticket: int  # last ticket of its counter
    instruction: Instruction


def closing_deadline(stagger_first: int, second: int, stagger_second: int) -> int:
    """Cluster at whose closing barrier a wait by the first role still orders its access before the
    second role's access in cluster `second`. Below the first access's cluster: no wait can."""
    return second + stagger_second - stagger_first - 1


def derive_waits(
    schedule: Schedule, layout: Layout, tiles: Iterable[int]
) -> dict[WaitPoint, Counts]:
    """Wait counts for every point of the program, the strictest over all given tile counts.

    ProofError when a read finds another tile in its slot. A pair that no wait can order gets the
    earliest wait there is, and the proof names it.
    """
    counts = list(tiles)
    ends = {WaitPoint(piece.key, len(piece.body)) for piece in layout.pieces()}
    # What one tile count needs at a closing barrier stands there for all others too, and may
    # spare them waits of their own: derive those again with it in place.
    closing = {p: c for p, c in _strictest(schedule, layout, counts, {}).items() if p in ends}
    return _strictest(schedule, layout, counts, closing)


def _strictest(
    schedule: Schedule, layout: Layout, tiles: list[int], given: Mapping[WaitPoint, Counts]
) -> dict[WaitPoint, Counts]:
    result = dict(given)
    for n in tiles:
        for point, counts in _derive(schedule, layout, n, given).items():
            result[point] = result.get(point, Counts()).stricter(counts)
    return result


def slot_uses(schedule: Schedule, layout: Layout, n: int) -> tuple[list[SlotUse], int]:
    """All LDS slot uses on the path of `n` tiles, one per operation, and the clusters passed."""
    pieces = layout.by_key()
    uses: list[SlotUse] = []
    issued = {"vm": 0, "lgkm": 0}
    ordinal = -1
    for step in layout.paths(n):
        piece = pieces[step.piece]
        ordinal += piece.cluster is not None
        latest: dict[str, SlotUse] = {}
        for instruction in piece.body:
            if instruction.counter:
                issued[instruction.counter] += 1
            access = instruction.access
            if access is None:
                continue
            ring = schedule.lds.rings[access.target.ring]
            tile = step.i + access.target.tile.offset
            name = f"{access.kind}{ring.name}{tile}"
            latest[name] = SlotUse(
                access.kind, ring.name, tile % ring.slots, tile, ordinal,
                issued[instruction.counter], instruction,
            )  # fmt: skip
        uses += latest.values()
    return uses, ordinal + 1


def conflicts(uses: list[SlotUse], file: str = "") -> Iterable[tuple[SlotUse, SlotUse]]:
    """Pairs (earlier, later) of slot uses that must be ordered: copy then read, read then copy,
    copy then copy. ProofError where a read finds another tile in its slot; `file` is the
    schedule's, for its message."""
    holder: dict[tuple[str, int], SlotUse] = {}
    readers: dict[tuple[str, int], list[SlotUse]] = {}
    for use in uses:
        key = (use.ring, use.slot)
        last = holder.get(key)
        if use.kind == "read":
            if last is None or last.tile != use.tile:
                held = "nothing" if last is None else f"tile {last.tile}"
                origin = use.instruction.origin
                raise ProofError(
                    f"error[stale-slot] {file}:{origin.schedule_line if origin else 0} "
                    f"{origin.operation if origin else use.kind}: tile {use.tile} is read, but its "
                    f"slot {use.slot} of {use.ring} holds {held}",
                    hint="copy the tile before it is read, or give the ring more slots",
                )
            yield last, use
            readers.setdefault(key, []).append(use)
        else:
            if last is not None:
                yield last, use
            for reader in readers.pop(key, []):
                yield reader, use
            holder[key] = use


def _derive(
    schedule: Schedule, layout: Layout, n: int, given: Mapping[WaitPoint, Counts]
) -> dict[WaitPoint, Counts]:
    """Waits that the path of `n` tiles needs on top of the given ones."""
    target: Gfx950 = schedule.target
    uses, _ = slot_uses(schedule, layout, n)
    staggers = [role.stagger for role in schedule.roles.members]
    # Tickets that must be complete when a cluster closes.
    due: dict[int, dict[str, int]] = {}
    for first, second in conflicts(uses, schedule.file):
        deadline = min(closing_deadline(a, second.ordinal, b) for a in staggers for b in staggers)
        wanted = due.setdefault(max(deadline, first.ordinal), {})
        counter = "vm" if first.kind == "copy" else "lgkm"
        wanted[counter] = max(wanted.get(counter, 0), first.ticket)
    result: dict[WaitPoint, Counts] = {}
    pieces = layout.by_key()
    issued = {"vm": 0, "lgkm": 0}
    done = {"vm": 0, "lgkm": 0}
    scalar_ticket = 0  # last scalar load: they return out of order, so only lgkmcnt(0) is a wait
    flying: dict[int, tuple[str, int]] = {}
    # A field of all ones asks for no wait at all (CDNA4 ISA, S_WAITCNT): one below is the weakest.
    capacity = {"vm": target.vmcnt_max - 1, "lgkm": target.lgkmcnt_max - 1}

    def reached(counter: str, count: int) -> int:
        """The last ticket that is complete behind a wait for `count`."""
        if counter == "lgkm" and count and scalar_ticket > done[counter]:
            return done[counter]  # any of them may be the ones that are left
        return max(done[counter], issued[counter] - count)

    def need(point: WaitPoint, counter: str, ticket: int) -> None:
        if ticket <= done[counter]:
            return
        count = min(issued[counter] - ticket, capacity[counter])
        if counter == "lgkm" and scalar_ticket > done[counter]:
            count = 0
        done[counter] = reached(counter, count)
        wait = Counts(vm=count) if counter == "vm" else Counts(lgkm=count)
        result[point] = result.get(point, Counts()).stricter(wait)

    ordinal = -1
    for step in layout.paths(n):
        piece = pieces[step.piece]
        ordinal += piece.cluster is not None
        for index, instruction in enumerate(piece.body):
            for register in (*instruction.reads, *instruction.writes):
                load = flying.pop(register, None)
                if load is not None:
                    need(WaitPoint(piece.key, index), *load)
            if instruction.counter:
                issued[instruction.counter] += 1
                if instruction.pipe == "smem":
                    scalar_ticket = issued["lgkm"]
                for register in instruction.writes:
                    flying[register] = (instruction.counter, issued[instruction.counter])
        if piece.cluster is None:
            continue
        covered = dict(done)
        end = WaitPoint(piece.key, len(piece.body))
        for counter in done:
            count = getattr(given.get(end), counter, None)
            if count is not None:
                done[counter] = reached(counter, count)
        for counter, ticket in sorted(due.get(ordinal, {}).items()):
            need(end, counter, ticket)
        if piece.cluster.wait is not None:
            # Only what the hand-placed wait covers may be relied on from here.
            for counter in done:
                count = getattr(piece.cluster.wait, counter)
                done[counter] = covered[counter]
                if count is not None:
                    done[counter] = reached(counter, count)
    return result
