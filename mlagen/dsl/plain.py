"""Plain order: what a kernel does without any overlap, one tile after another.

A schedule rearranges a plain loop. The kernel, not the schedule, says what that loop is: which
operations come once before the tiles, which each tile needs, in which order, and which come once
behind them. The proof compares the printed program with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlainOrder:
    """Names of operations (`Operation.key`), each done once, in the order of the plain loop.

    `before`: once a workgroup, ahead of all tiles. `item`: once a work item of a persistent kernel,
    ahead of its tiles. `tile`: once a tile. `after`: once behind the tiles. `share`: operations
    that one role does alone, with the waves that this role must have; all roles do the others.
    """

    before: tuple[str, ...]
    tile: tuple[str, ...]
    after: tuple[str, ...]
    item: tuple[str, ...] = ()
    share: Mapping[str, tuple[str, range]] = field(default_factory=dict)
