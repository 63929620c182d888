"""The words of every schedule: the tile loop, what stands around it, copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mlagen.dsl.builder import AccessKind, Mover, Named, Section, current
from mlagen.dsl.operation import Operation
from mlagen.dsl.tile import Tile
from mlagen.errors import ScheduleError


def record(operation: Operation) -> Operation:
    """Add an operation to the open cluster, with the schedule line that called it."""
    builder = current()
    operation = replace(builder.limited(operation), line=builder.line())
    builder.add(operation)
    return operation


def tiles(waves: Any, *, step: int = 1) -> Iterator[Tile]:
    """The tile loop of some roles, written once for tile `i`; prologue and drain are derived from
    it. `step`: tiles a pass, where each role has its own loop; `i` is the first of them."""
    builder = current()
    builder.enter_loop(waves, step)
    yield Tile(0)
    builder.leave()


@contextmanager
def _section(name: Section, role: Any) -> Iterator[None]:
    builder = current()
    builder.enter_section(name, role)
    try:
        yield
    finally:
        builder.leave()


def prologue(role: Any = None) -> Any:
    """Operations before the tile loop, once a workgroup; of one role where roles differ."""
    return _section("prologue", role)


def each_item(role: Any = None) -> Any:
    """Operations at the head of every work item of a persistent kernel: between the prologue, which
    then runs once, and the tile loop. Loop and epilogue follow for the item, then the next one
    comes.

    gfx950: the prologue sets `items` of `entry(items=True)`, these operations set the number of
    tiles. A barrier of all waves comes before them, and LDS is free again. Pipeline schedules
    (`role`): see `PipelineSpace.persistent`; where blocks have one item, the operations are a part
    of the prologue."""
    return _section("item", role)


def epilogue(role: Any = None) -> Any:
    """Operations after the tile loop, once a workgroup or work item; of one role where roles
    differ."""
    return _section("epilogue", role)


def copy(ring: Named, tile: Tile, *, when: bool = True) -> Operation | None:
    """Start the DMA of `tile` into its slot of `ring`. `when`: what a knob says; otherwise the copy
    stands elsewhere, and here is None."""
    return moved(ring, "copy", tile) if when else None


def bind(ring: Named, mover: Mover) -> None:
    """Say which operations `copy` and `read` of a ring are: their templates and operands."""
    current().movers[ring.name] = mover


def moved(ring: Named, kind: AccessKind, tile: Tile) -> Operation:
    """Record what moves `tile` of a bound ring or pipeline."""
    mover = current().movers.get(ring.name)
    if mover is None:
        raise ScheduleError(f"ring {ring.name!r} is not bound to a global operand")
    return record(mover(kind, tile))
