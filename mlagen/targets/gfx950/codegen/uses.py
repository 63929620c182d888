"""Uses of LDS slots on a path, and which of them must come one after the other.

All roles use the slots together, so what must be ordered follows from the schedule's text: cluster
after cluster, and in a cluster the operations as they are written, whoever runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from mlagen.errors import ProofError
from mlagen.targets.gfx950.codegen.program import Layout, ProgramInstruction, RoleStream
from mlagen.targets.gfx950.dsl import Schedule


@dataclass(frozen=True, slots=True)
class SlotUse:
    """One operation's accesses to one LDS slot on the path of a stream."""

    kind: str  # "copy" | "read"
    ring: str
    slot: int
    tile: int
    step: int  # piece on the path
    position: int  # of the operation in the schedule's text
    barriers: int  # inside the piece, ahead of the first access
    ticket: int  # last ticket of its counter
    instruction: ProgramInstruction
    stream: RoleStream

    @property
    def place(self) -> tuple[object, ...]:
        """The same for all streams that the operation is recorded for."""
        return (self.step, self.position, self.kind, self.ring, self.tile)


def text_order(schedule: Schedule) -> dict[int, int]:
    """Position in the schedule's text of each operation, by its id."""
    return {id(op): at for at, op in enumerate(schedule.operations)}


def slot_uses(schedule: Schedule, layout: Layout, stream: RoleStream, n: int) -> list[SlotUse]:
    """All LDS slot uses of `stream` with `n` tiles, one an operation."""
    pieces, positions = layout.by_key(), text_order(schedule)
    uses: list[SlotUse] = []
    issued = {"vm": 0, "lgkm": 0}
    for at, step in enumerate(layout.paths(n, stream.role)):
        found: dict[tuple[object, ...], SlotUse] = {}
        barriers = 0
        for instruction in pieces[step.piece].body:
            barriers += instruction.pipe == "barrier"
            if instruction.counter:
                issued[instruction.counter] += 1
            access = instruction.access
            if access is None:
                continue
            ring = schedule.lds.slotted[access.target.ring]
            tile = step.i + access.target.tile.offset
            ticket = issued[instruction.counter]
            position = positions[id(instruction.owner)]
            key = (access.kind, ring.name, tile, position)
            ahead = found[key].barriers if key in found else barriers
            found[key] = SlotUse(
                access.kind, ring.name, tile % ring.slots, tile, at, position, ahead, ticket,
                instruction, stream,
            )  # fmt: skip
        uses += found.values()
    return uses


def conflicts(uses: Iterable[SlotUse], file: str = "") -> Iterator[tuple[SlotUse, SlotUse]]:
    """Pairs (earlier, later) of the slot uses of all streams that must be ordered: copy then read,
    read then copy, copy then copy. ProofError where a read finds another tile in its slot; `file`
    is the schedule's, for its message."""
    holders: dict[tuple[str, int], list[SlotUse]] = {}
    readers: dict[tuple[str, int], list[SlotUse]] = {}
    ordered = sorted(uses, key=lambda use: use.place)
    # What several roles do by one operation happens at one place: they are not each other's past.
    for _, group in groupby(ordered, key=lambda use: use.place):
        together = list(group)
        key = (together[0].ring, together[0].slot)
        held = holders.get(key, [])
        if together[0].kind == "read":
            for use in together:
                if not held or held[0].tile != use.tile:
                    raise _stale(use, held, file)
                yield from ((copy, use) for copy in held)
            readers.setdefault(key, []).extend(together)
        else:
            earlier = [*held, *readers.pop(key, [])]
            yield from ((before, use) for use in together for before in earlier)
            holders[key] = together


def _stale(use: SlotUse, held: list[SlotUse], file: str) -> ProofError:
    content = f"tile {held[0].tile}" if held else "nothing"
    origin = use.instruction.origin
    line, what = (origin.schedule_line, origin.operation) if origin else (0, use.kind)
    who = f" of role {use.stream.role}" if use.stream.role else ""
    return ProofError(
        f"error[stale-slot] {file}:{line} {what}{who}: tile {use.tile} is read, but its slot "
        f"{use.slot} of {use.ring} holds {content}",
        hint="copy the tile before it is read, or give the ring more slots",
    )
