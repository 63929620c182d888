"""Plain order: what a kernel does without any overlap, one tile after another.

A schedule rearranges a plain loop. The kernel, not the schedule, declares that loop: which
operations come once before the tiles, which each tile needs, in which order, and which come once
after them. The proof compares the printed program with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlainOrder:
    """Names of operations (`Operation.key`), each done once, in the order of the plain loop.

    `before`: once a workgroup, ahead of all tiles. `item`: once a work item of a persistent kernel,
    ahead of its tiles. `tile`: once a tile. `after`: once after the tiles. `share`: operations
    that one role does alone, with the waves that this role must have; all roles do the others.
    """

    before: tuple[str, ...]
    tile: tuple[str, ...]
    after: tuple[str, ...]
    item: tuple[str, ...] = ()
    share: Mapping[str, tuple[str, range]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """What `role` does once: the operation `key` (`Operation.key`), in the tile loop for tile
    `tile` of those that a pass has."""

    role: str
    key: str
    tile: int = 0

    def __str__(self) -> str:
        return self.key


def by(role: str, *keys: str, tile: int = 0) -> tuple[Part, ...]:
    """What a role does, one operation after another."""
    return tuple(Part(role, key, tile) for key in keys)


@dataclass(frozen=True)
class PipelineOrder:
    """The plain loop of a kernel whose roles are programs of their own: as if one of them acted at
    a time, in this order, so that it also says which exchange a role reads.

    `before`: once a block. `seeks`: once a work item of a persistent kernel, to find it, also
    after the last one. `item`: once an item, ahead of its tiles. `tiles`: once a pass of
    `step` tiles; a part whose tile an item does not have is left out. `after`: once after the
    tiles. `hints`: names of operations that compute nothing: they may be anywhere, or left out, and
    leave nothing behind that others take.
    """

    before: tuple[Part, ...]
    tiles: tuple[Part, ...]
    after: tuple[Part, ...]
    seeks: tuple[Part, ...] = ()
    item: tuple[Part, ...] = ()
    step: int = 1
    hints: frozenset[str] = frozenset()
