"""Operations: what a cluster holds. Each is a template plus what it defines, uses and touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlagen.dsl.lds import RingTile
from mlagen.dsl.registers import Value
from mlagen.dsl.tile import Tile


@dataclass(frozen=True, slots=True)
class Access:
    """An operation's effect on an LDS ring slot."""

    kind: Literal["copy", "read", "release"]
    target: RingTile


@dataclass(frozen=True, slots=True)
class Binding:
    """The concrete tile an operation is rendered for.

    `phase` is the tile number modulo every ring period; `first` says it is tile 0.
    """

    phase: int
    first: bool


@dataclass(frozen=True)
class Operation:
    """One operation of a cluster.

    `domain`: "every" tile in [0, N); "first": only tile 0; "rest": every tile but 0; "empty":
    outside the loop, only when there is no tile at all.
    `context(binding)` supplies the template's operands. `first_differs` says that tile 0 is
    rendered differently. `guarded`: the template skips itself with a branch, so it cannot be woven.
    `leaves`: the template may branch to `{{ exit }}`, where the workgroup ends; in a prologue.
    `asynchronous`: it issues one group of matrix instructions that completes later.
    `joins`: its role's warps meet at a barrier before it, and behind what it wrote.
    """

    name: str
    template: str
    tile: Tile | None
    context: Callable[[Binding], Mapping[str, Any]]
    defines: tuple[Value, ...] = ()
    uses: tuple[Value, ...] = ()
    access: Access | None = None
    domain: Literal["every", "first", "rest", "empty"] = "every"
    first_differs: bool = False
    guarded: bool = False
    leaves: bool = False
    asynchronous: bool = False
    joins: bool = False
    line: int = 0

    def present(self, i: int, n: int) -> bool:
        """Whether the operation exists in iteration `i` of a loop over `n` tiles."""
        tile = i + (self.tile.offset if self.tile else 0)
        if self.domain == "first":
            return tile == 0 and n > 0
        low = 1 if self.domain == "rest" else 0
        return low <= tile < n

    def __str__(self) -> str:
        if self.access:
            return f"{self.access.kind}({self.access.target.ring}, {self.access.target.tile})"
        return f"{self.name}({self.tile})" if self.tile is not None else self.name


@dataclass(frozen=True)
class Weave:
    """Two streams of instructions interleaved; order inside each stream is kept.

    `pattern` is read left to right: "6x1:3 10x1:5" takes six times one instruction of `first` and
    three of `second`, then ten times one and five; what is left follows. "even" spreads `second`
    evenly over `first`.
    """

    first: Operation
    second: Operation
    pattern: str
    line: int = 0


Step = Operation | Weave
