"""Programs: segments of tagged instructions, and the paths a workgroup of N tiles takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mlagen.dsl import Access, Cluster, Operation
from mlagen.targets.gfx950.dsl import Role, Roles, Schedule

Pipe = Literal[
    "matrix", "vector", "transcendental", "lds", "vmem", "smem", "scalar", "branch", "wait",
    "barrier", "label",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an instruction came from: operation, template line and schedule line."""

    operation: str
    template: str
    template_line: int
    schedule_line: int


@dataclass(frozen=True, slots=True)
class ProgramInstruction:
    """One instruction with its effects. Register ids: see `mlagen.targets.gfx950.codegen.isa`."""

    text: str
    mnemonic: str
    pipe: Pipe
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    operands: tuple[tuple[int, ...], ...] = ()  # register ids of each operand, in order
    counter: Literal["vm", "lgkm", ""] = ""
    origin: Origin | None = None
    access: Access | None = None  # LDS ring slot it copies into or reads
    target: str = ""  # label a branch goes to, or the label itself
    note: str = ""  # comment printed above it
    skips: tuple[int, ...] = ()  # branches around a block: registers that the block touches
    passes: int = 0  # matrix instructions: passes of 4 cycles
    needed: str = ""  # a wait placed by hand: the counts that the accesses need, or "none"
    owner: Operation | None = field(default=None, compare=False)  # whose instruction it is
    index: int = field(default=0, compare=False)  # and which of its instructions


@dataclass(frozen=True, slots=True)
class WaitPoint:
    """Where a wait may stand: before instruction `index` of a piece, or at its end (`index` =
    number of instructions), which is before its closing barrier."""

    piece: str
    index: int


@dataclass
class Piece:
    """One cluster in one section, printed once: the unit that paths are made of.

    `i` is the iteration, relative to `N` in a drain (`relative`), and the first one in a loop.
    """

    key: str
    section: str
    cluster: Cluster | None  # None: setup or epilogue
    body: list[ProgramInstruction]
    closed: bool  # ends in a barrier
    phase: int = 0
    iteration: str = ""
    stagger: Literal["", "enter", "leave"] = ""  # bare barriers of the control flow after it
    control: list[ProgramInstruction] = field(
        default_factory=list
    )  # that code, where it reads registers

    def barriers_after(self, role: Role, roles: Roles) -> int:
        """Bare barriers that a wave of `role` passes after the piece: those that delay it
        the foremost role, or those that even the totals."""
        if self.stagger == "enter":
            return role.stagger
        return roles.stagger - role.stagger if self.stagger == "leave" else 0


Flights = dict[str, list[tuple[int, ProgramInstruction, tuple[int, ...]]]]


@dataclass
class Segment:
    """A labelled run of pieces. `head` and `tail` hold the control flow around them. `role`: whose
    code it is; "" where all roles share it."""

    label: str
    section: str
    pieces: list[Piece]
    head: list[ProgramInstruction] = field(default_factory=list)
    tail: list[ProgramInstruction] = field(default_factory=list)
    role: str = ""


@dataclass(frozen=True, slots=True)
class RoleStream:
    """Roles that run the same code. `role`: the name of the only one; "" where all share it."""

    role: str
    members: tuple[Role, ...]


def streams_of(schedule: Schedule) -> tuple[RoleStream, ...]:
    """The streams of a schedule: one for all roles, or one each."""
    members = schedule.roles.members
    if not schedule.apart:
        return (RoleStream("", members),)
    return tuple(RoleStream(role.name, (role,)) for role in members)


@dataclass(frozen=True, slots=True)
class PathStep:
    """One piece on a path, run for iteration `i`."""

    piece: str
    i: int


@dataclass
class Layout:
    """All segments in print order, and for each N the pieces that each stream runs.

    `first_looped`: the smallest N that runs through the loop form; smaller ones are straight line.
    `steady_from`, `steady_to`: iteration i of N tiles is steady for steady_from <= i <
    N - steady_to.
    """

    segments: list[Segment]
    streams: tuple[RoleStream, ...]
    period: int
    first_looped: int
    steady_from: int
    steady_to: int
    ways: Mapping[str, Callable[[int], list[PathStep]]]
    once: Mapping[str, list[PathStep]]  # of a persistent kernel: what runs ahead of all items

    @property
    def persistent(self) -> bool:
        return bool(self.once)

    def paths(self, n: int, role: str = "") -> list[PathStep]:
        """The pieces that the stream of `role` runs for `n` tiles: all of them, or those of one
        work item."""
        return self.ways[role](n)

    def pieces(self) -> Iterator[Piece]:
        for segment in self.segments:
            yield from segment.pieces

    def runs(self) -> list[list[ProgramInstruction]]:
        """Every instruction list of the program in print order; a segment's label stands first."""
        found = []
        for segment in self.segments:
            found.append(
                [ProgramInstruction(f"{segment.label}:", ":", "label", target=segment.label)]
            )
            found.append(segment.head)
            found += [piece.body for piece in segment.pieces]
            found.append(segment.tail)
        return found

    def by_key(self) -> dict[str, Piece]:
        return {piece.key: piece for piece in self.pieces()}

    def flights(self) -> Flights:
        """By piece: what is issued and waited for, barriers, and uses of registers that some load
        writes. Index in the body, instruction, and those registers."""
        loaded = {r for piece in self.pieces() for x in piece.body if x.counter for r in x.writes}
        found: Flights = {}
        for piece in self.pieces():
            flights = found[piece.key] = []
            for index, x in enumerate(piece.body):
                touched: tuple[int, ...] = ()
                if not all(map(loaded.isdisjoint, (x.reads, x.writes, x.skips))):
                    touched = tuple(r for r in (*x.reads, *x.writes, *x.skips) if r in loaded)
                if touched or x.counter or x.pipe in ("wait", "barrier"):
                    flights.append((index, x, touched))
        return found
