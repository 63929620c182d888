"""Loads from SMEM that printed operations leave open: they are issued, and may not have read yet.

An instruction that needs a loaded value waits until the load has read SMEM, and so does
fence.proxy.async; an arrival at a barrier does not. Arithmetic and shuffles that need the value are
no such instructions: ptxas moves them behind an arrival, up to the next branch. So a copy through
the async proxy may overwrite what a load of an earlier operation has still to read (measured:
`tests/gpu/released_loads.py`). Which loads those are is read from the printed text, since an
operation does not say whether it uses what it loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from mlagen.targets.nvidia.codegen.effects import WRITES_FIRST, UnknownInstruction, statements
from mlagen.targets.nvidia.codegen.emit import Emitter

_OPCODE = re.compile(r"\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)")
_LOADS = re.compile(r"(?:ld|ldmatrix)\.(?!param|global|const|local)")
_FENCE = "fence.proxy.async"
# Of what gives a value, the instructions that stay in their place.
_IN_PLACE = frozenset({"ld", "ldmatrix", "ldu", "atom", "tcgen05"})


class _Does(Enum):
    LOADS, COMPUTES, STAYS, BRANCHES, FENCES = (auto() for _ in range(5))


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement: what it does to loads."""

    does: _Does
    reads: frozenset[str]
    writes: frozenset[str]
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """A load that may not have read. `held`: the registers whose values come of it; `taken`:
    whether arithmetic had them since the last branch."""

    held: frozenset[str]
    taken: bool = False


@dataclass(slots=True)
class PrintedLoads:
    """What operations that were printed do to loads, by their ids."""

    of: Mapping[int, Sequence[_Step]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    _known: dict[tuple[int, Open | None], tuple[Open, ...]] = field(default_factory=dict)

    def left_by(self, op: int) -> tuple[Open, ...]:
        """The loads of an operation that are open when it is done."""
        return self._after(op, None)

    def after(self, op: int, load: Open) -> tuple[Open, ...]:
        """An earlier operation's load when an operation is done: none where it is over."""
        return self._after(op, load)

    def _after(self, op: int, load: Open | None) -> tuple[Open, ...]:
        key = (op, load)
        if key not in self._known:
            found = _follow(self.of.get(op, ()), load)
            kept = (Open(x.held & self.declared, x.taken) for x in found)
            self._known[key] = tuple(dict.fromkeys(x for x in kept if x.held))
        return self._known[key]


def loads_of(emitter: Emitter) -> PrintedLoads:
    """What all printed operations do to loads from SMEM; without operations where none leaves a
    load open."""
    registers = emitter.schedule.registers
    declared = frozenset(f"%{r.name}{index}" for r in registers for index in range(r.count))
    texts: dict[int, tuple[int, list[str]]] = {}  # by the printed one: its operation, its lines
    for line in emitter.lines:
        if line.printed is not None:
            _, lines = texts.setdefault(id(line.printed), (id(line.printed.op), []))
            lines.append(line.text)
    if not any(_LOADS.search(line) for _, lines in texts.values() for line in lines):
        return PrintedLoads()
    first: dict[int, list[str]] = {}
    for number, lines in texts.values():
        first.setdefault(number, lines)  # that of tile 0 and others load the same
    try:
        found = PrintedLoads(
            {number: tuple(_steps(lines)) for number, lines in first.items()}, declared
        )
    except UnknownInstruction:
        return PrintedLoads()  # which `touches` refuses
    return found if any(found.left_by(number) for number in first) else PrintedLoads()


def _follow(steps: Iterable[_Step], load: Open | None) -> list[Open]:
    """The loads that are open behind some statements: the one that was before, or, for None, those
    that begin there."""
    found = [] if load is None else [load]
    for step in steps:
        match step.does:
            case _Does.FENCES:
                found = []
            case _Does.BRANCHES:
                found = [x for x in found if not x.taken and x.held.isdisjoint(step.reads)]
            case _Does.STAYS | _Does.LOADS:
                found = [
                    x if step.guarded else Open(x.held - step.writes, x.taken)
                    for x in found
                    if x.held.isdisjoint(step.reads)
                ]
                if step.does is _Does.LOADS and load is None:
                    found.append(Open(step.writes))
            case _Does.COMPUTES:
                found = [_computed(x, step) for x in found]
        found = [x for x in found if x.held or x.taken]
    return found


def _computed(load: Open, step: _Step) -> Open:
    if not load.held.isdisjoint(step.reads):
        return Open(load.held | step.writes if step.guarded
                    else (load.held - step.writes) | step.writes, True)  # fmt: skip
    return load if step.guarded else Open(load.held - step.writes, load.taken)


def _steps(lines: Iterable[str]) -> Iterable[_Step]:
    for line in lines:
        for text in line.partition("//")[0].split(";"):
            match = _OPCODE.match(text)
            opcode = match[1] if match else ""
            for statement in statements(text):
                if statement.label:
                    continue
                yield _Step(
                    _does(opcode, branches=bool(statement.target)),
                    frozenset(statement.reads),
                    frozenset(statement.writes),
                    statement.guarded,
                )


def _does(opcode: str, *, branches: bool) -> _Does:
    name = opcode.partition(".")[0]
    if branches:
        return _Does.BRANCHES
    if opcode.startswith(_FENCE) and not opcode.endswith(".global"):
        return _Does.FENCES
    if _LOADS.match(opcode):
        return _Does.LOADS
    return _Does.COMPUTES if name in WRITES_FIRST - _IN_PLACE else _Does.STAYS
