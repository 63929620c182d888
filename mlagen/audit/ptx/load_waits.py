"""Where values that were loaded from shared memory go: which instructions wait for them.

A load is issued, and has read when its value is there. For that waits an instruction that needs it
and that ptxas leaves in its place: a store, a wgmma, a branch, anything but arithmetic and
shuffles. Those it moves behind a release that follows without a branch (docs/ptx_emulator.md,
"Loads that are not over").
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from mlagen.ptx import Graph, Instruction, Kind
from mlagen.ptx.effects import has_result

_LOADS = (Kind.SHARED_LOAD, Kind.GENERIC_LOAD, Kind.OPAQUE)
_IN_PLACE = frozenset(("ld", "ldu", "ldmatrix", "atom", "call", "tcgen05", "multimem"))
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Passing:
    """What some instructions after each other do to loaded values. `ends`: registers whose values
    are waited for; `takes`: those that arithmetic has; `lost`: those that are written; `flows`: by
    a register, those whose values come of what it had."""

    named: frozenset[str]
    ends: frozenset[str]
    takes: frozenset[str]
    lost: frozenset[str]
    flows: Mapping[str, tuple[str, ...]]


@dataclass(slots=True, eq=False)
class Routes:
    """The registers of a kernel whose values may come of loads from shared memory."""

    graph: Graph
    watched: frozenset[str] = _NONE
    _known: dict[tuple[int, int], Passing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        made: dict[str, set[str]] = {}
        for i, instruction in enumerate(graph.instructions):
            if _computes(graph.kinds[i], instruction):
                for name in graph.reads[i]:
                    made.setdefault(name, set()).update(graph.writes[i])
        found = {
            name for i, kind in enumerate(graph.kinds) if kind in _LOADS for name in graph.writes[i]
        }
        work = list(found)
        while work:
            more = made.get(work.pop(), set()) - found
            found |= more
            work += more
        self.watched = frozenset(found)

    def along(self, first: int, last: int) -> Passing:
        """What the instructions `first` to `last` do."""
        if (first, last) not in self._known:
            self._known[first, last] = self._passing(first, last)
        return self._known[first, last]

    def _passing(self, first: int, last: int) -> Passing:
        graph, watched = self.graph, self.watched
        comes: dict[str, frozenset[str]] = {}  # of what is written, what it had come of before
        named: set[str] = set()
        ends: set[str] = set()
        takes: set[str] = set()
        for i in range(first, min(last + 1, len(graph.instructions))):
            instruction = graph.instructions[i]
            reads, writes = watched.intersection(graph.reads[i]), graph.writes[i]
            named.update(reads, watched.intersection(writes))
            of = _NONE.union(*(comes.get(name, frozenset((name,))) for name in reads))
            if _computes(graph.kinds[i], instruction):
                takes |= of
            else:
                ends |= of
                of = _NONE
            for name in watched.intersection(writes):
                before = comes.get(name, frozenset((name,))) if instruction.guard else _NONE
                comes[name] = of | before
        flows: dict[str, tuple[str, ...]] = {}
        for name, sources in comes.items():
            for source in sources:
                flows[source] = (*flows.get(source, ()), name)
        return Passing(frozenset(named), frozenset(ends), frozenset(takes), frozenset(comes), flows)


def _computes(kind: Kind, instruction: Instruction) -> bool:
    """Whether an instruction only computes registers of registers."""
    if kind not in (Kind.PLAIN, Kind.COLLECTIVE) or instruction.name in _IN_PLACE:
        return False
    return has_result(instruction)


@dataclass(slots=True, eq=False)
class Loading:
    """Loads of some threads that may not have read: by their numbers. `held`: by a register, the
    loads that its value comes of; `taken`: those whose values arithmetic had since a branch."""

    open: set[int] = field(default_factory=set)
    held: dict[str, frozenset[int]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)

    def begin(self, number: int, registers: tuple[str, ...]) -> None:
        """A load to registers."""
        self.open.add(number)
        self.held.update(dict.fromkeys(registers, frozenset((number,))))

    def along(self, passing: Passing) -> list[int]:
        """The loads that have read when the instructions are done. Those whose values are nowhere
        any more are among them: nobody needs them."""
        held = self.held
        if passing.named.isdisjoint(held):
            return []
        over: set[int] = set()
        after = {name: of for name, of in held.items() if name not in passing.lost}
        for name in passing.named.intersection(held):
            of = held[name]
            if name in passing.ends:
                over |= of
            if name in passing.takes:
                self.taken |= of & self.open
            for into in passing.flows.get(name, ()):
                after[into] = after.get(into, frozenset()) | of
        self.held = after
        over |= self.open - self.taken - set().union(*after.values())
        return self.end(over)

    def branch(self) -> list[int]:
        """The loads that have read when a branch is done."""
        return self.end(set(self.taken))

    def end(self, over: set[int]) -> list[int]:
        """Loads have read; which of them had not."""
        ended = sorted(over & self.open)
        self.open -= over
        self.taken -= over
        if ended:
            self.held = {n: left for n, of in self.held.items() if (left := of & self.open)}
        return ended

    def holders(self, number: int) -> frozenset[str]:
        """The registers whose values come of a load."""
        return frozenset(name for name, of in self.held.items() if number in of)

    def blur(self, reads: Set[str], writes: Set[str]) -> None:
        """Code that was not followed may have computed what it writes of what it reads."""
        of = frozenset().union(*(self.held.get(name, frozenset()) for name in reads))
        if of:
            self.taken |= of & self.open
            for name in writes:
                self.held[name] = self.held.get(name, frozenset()) | of

    def clone(self) -> Loading:
        """An independent copy."""
        return Loading(set(self.open), dict(self.held), set(self.taken))

    def join(self, other: Loading) -> None:
        """Threads that meet again."""
        self.open |= other.open
        self.taken |= other.taken
        for name, of in other.held.items():
            self.held[name] = self.held.get(name, frozenset()) | of
