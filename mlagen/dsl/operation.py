"""Operations, which clusters hold: each is a template with what it defines, uses and accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from mlagen.dsl.tile import RingTile, Tile, Value


@dataclass(frozen=True, slots=True)
class Access:
    """An operation's effect on an LDS ring slot."""

    kind: Literal["copy", "read", "release"]
    target: RingTile


@dataclass(frozen=True, slots=True)
class Binding:
    """The concrete tile an operation is rendered for.

    `phase` is the tile number modulo every ring period; `first` says it is tile 0. `role` is the
    role whose code it is, "" where all roles share theirs.
    """

    phase: int
    first: bool
    role: str = ""


@dataclass(frozen=True)
class Operation:
    """One operation of a cluster.

    `domain`: "every" tile in [0, N); "first": only tile 0; "second": only tile 1; "rest": every
    tile but 0; "empty": outside the loop, only when there is no tile at all.
    `first_tiles`, `last_tiles`: only the first, or the last, so many tiles of these; 0: all. What
    is of the first tiles alone passes others by, as some share their code.
    `context(binding)` supplies the template's operands. `first_differs` says that tile 0 is
    rendered differently. `guarded`: the template skips itself with a branch, so it cannot be
    interleaved.
    `leaves`: the template may branch to `{{ exit }}`, where the workgroup ends; in a prologue.
    `asynchronous`: it issues one group of matrix instructions that completes later.
    `joins`: a barrier of its role's warps comes before it, and after what it wrote.
    `roles`: names of the roles whose code it is in; empty: all of them.
    `of`: what distinguishes it from operations of its name, where a tile has several.
    `ahead`: in a persistent pipeline schedule, the last pass of an item does it for the first tiles
    of the next one. It "seeks" that item, which there may not be, or "fetches" tiles of it.
    """

    name: str
    template: str
    tile: Tile | None
    context: Callable[[Binding], Mapping[str, Any]]
    defines: tuple[Value, ...] = ()
    uses: tuple[Value, ...] = ()
    access: Access | None = None
    domain: Literal["every", "first", "second", "rest", "empty"] = "every"
    first_tiles: int = 0
    last_tiles: int = 0
    first_differs: bool = False
    guarded: bool = False
    leaves: bool = False
    asynchronous: bool = False
    joins: bool = False
    roles: tuple[str, ...] = ()
    ahead: Literal["", "seeks", "fetches"] = ""
    of: str = ""
    line: int = 0

    def belongs(self, role: str) -> bool:
        """Whether the operation stands in the code of `role` ("": code that all roles share)."""
        return not self.roles or role in self.roles

    def present(self, i: int, n: int) -> bool:
        """Whether the operation exists in iteration `i` of a loop over `n` tiles."""
        tile = i + (self.tile.offset if self.tile else 0)
        if self.domain in ("first", "second"):
            return tile == (self.domain == "second") and tile < n
        low = max(int(self.domain == "rest"), n - self.last_tiles if self.last_tiles else 0)
        return low <= tile < (min(self.first_tiles, n) if self.first_tiles else n)

    @property
    def key(self) -> str:
        """What distinguishes it from the other operations of a tile: "qk", "copy K"."""
        if self.access is not None and self.access.kind == self.name:
            return f"{self.name} {self.access.target.ring}"
        return f"{self.name} {self.of}" if self.of else self.name

    def __str__(self) -> str:
        if self.access:
            return f"{self.access.kind}({self.access.target.ring}, {self.access.target.tile})"
        return f"{self.name}({self.tile})" if self.tile is not None else self.name


@dataclass(frozen=True)
class Interleave:
    """Two streams of instructions interleaved; order inside each stream is kept. The first stream
    is one operation, the second is the `rest`, one after another.

    `pattern` is read left to right: "6x1:3 10x1:5" takes six times one instruction of `first` and
    three of the second stream, then ten times one and five; what is left follows. "even" spreads
    the second evenly over the first.

    The streams may not touch each other's registers, unless `ordered`: then they mean `first` and
    after it the `rest`, and an instruction of the second stream is held back until all of `first`
    that it must follow are out. A slot of the pattern that would be its turn goes to `first`.
    """

    first: Operation
    rest: tuple[Operation, ...]
    pattern: str
    ordered: bool = False
    line: int = 0

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (self.first, *self.rest)

    def __str__(self) -> str:
        words = [
            f"{x} [{', '.join(x.roles)}]" if x.roles != self.first.roles else str(x)
            for x in self.operations
        ]
        words.append(repr(self.pattern))
        return f"interleave({', '.join(words)}{', ordered' if self.ordered else ''})"


Step = Operation | Interleave


def operations_of(steps: Iterable[Step]) -> tuple[Operation, ...]:
    """All operations of some steps, in the order of the schedule."""
    found: list[Operation] = []
    for step in steps:
        found.extend(step.operations if isinstance(step, Interleave) else (step,))
    return tuple(found)


def steps_of(steps: Iterable[Step], keep: Callable[[Operation], bool]) -> tuple[Step, ...]:
    """The steps with the kept operations. What has one stream left is no interleave."""
    found: list[Step] = []
    for step in steps:
        held = step.operations if isinstance(step, Interleave) else (step,)
        kept = tuple(operation for operation in held if keep(operation))
        if isinstance(step, Interleave) and len(kept) > 1 and kept[0] is step.first:
            found.append(replace(step, rest=kept[1:]))
        else:
            found += kept
    return tuple(found)
