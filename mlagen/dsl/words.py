"""The words of a schedule: roles, clusters, the tile loop, copies and reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mlagen.dsl.builder import AccessKind, Cluster, Mover, Named, Section, current
from mlagen.dsl.lds import Ring
from mlagen.dsl.operation import Interleave, Operation
from mlagen.dsl.roles import Role, Roles
from mlagen.dsl.tile import Tile
from mlagen.dsl.wait import Wait
from mlagen.errors import ScheduleError


def record(operation: Operation) -> Operation:
    """Add an operation to the open cluster, with the schedule line that called it."""
    builder = current()
    operation = replace(builder.limited(operation), line=builder.line())
    builder.add(operation)
    return operation


def roles(*, stagger: int = 0, apart: bool = False, **groups: range) -> Roles:
    """The workgroup's roles: `roles(lower=range(0, 4), upper=range(4, 8), stagger=1)`. Each group
    lags the one before it by `stagger` barriers. `apart`: each gets code of its own, also where
    no operation is limited to one (see `only`)."""
    builder = current()
    expected = 0
    members = []
    for index, (name, waves) in enumerate(groups.items()):
        if waves.start != expected or waves.step != 1 or len(waves) == 0:
            raise ScheduleError(f"role {name!r}: waves {waves} do not continue at {expected}")
        expected = waves.stop
        members.append(Role(name, waves, index * stagger))
    if not members or stagger < 0:
        raise ScheduleError("roles() needs at least one group of waves and a stagger >= 0")
    builder.roles = Roles(tuple(members), apart)
    return builder.roles


@contextmanager
def only(*members: Role) -> Iterator[None]:
    """Inside a cluster, prologue, item or epilogue: what is called here belongs to these roles
    alone, got by `waves["lower"]`. Each role has code of its own then; the clusters and their
    barriers stay for all."""
    builder = current()
    builder.enter_only(members)
    try:
        yield
    finally:
        builder.leave_only()


def tiles(waves: Any, *, step: int = 1) -> Iterator[Tile]:
    """The tile loop of some roles, written once for tile `i`; prologue and drain are derived from
    it. `step`: tiles a pass, where each role has its own loop; `i` is the first of them."""
    builder = current()
    builder.enter_loop(waves, step)
    yield Tile(0)
    builder.leave()


@contextmanager
def cluster(name: str, *, priority: int = 0, wait: Wait | None = None) -> Iterator[None]:
    """Steps that end in a barrier. `priority`: s_setprio 0..3 while it runs. `wait`: a wait placed
    by hand before the barrier, instead of the derived one."""
    builder = current()
    if builder.steps is not None:
        raise ScheduleError(f"cluster {name!r} stands inside another cluster")
    if not 0 <= priority <= 3:
        raise ScheduleError(f"cluster {name!r}: priority {priority} is outside 0..3")
    line, builder.steps = builder.line(), []
    try:
        yield
        builder.clusters.append(Cluster(name, tuple(builder.steps), priority, wait, line))
    finally:
        builder.steps = None


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


def interleave(
    first: Operation, *others: Operation | None, pattern: str = "even", ordered: bool = False
) -> None:
    """Interleave the operations just called: the first with the others, which follow each other
    (see `Interleave`); one that a knob leaves out is None. `ordered`: they may touch each other's
    registers; the result is that of the operations one after another."""
    builder = current()
    rest = tuple(operation for operation in others if operation is not None)
    steps, operations = builder.steps, (first, *rest)
    count = len(operations)
    if others and not rest:
        return
    if steps is None or count < 2 or steps[-count:] != [*operations]:
        raise ScheduleError(
            "interleave() takes the operations it is given, two or more, called in place"
        )
    for operation in operations:
        if operation.guarded:
            raise ScheduleError(f"{operation} branches around itself and cannot be interleaved")
    steps[-count:] = [Interleave(first, rest, pattern, ordered, builder.line())]


def copy(ring: Named, tile: Tile, *, when: bool = True) -> Operation | None:
    """Start the DMA of `tile` into its slot of `ring`. `when`: what a knob says; otherwise the copy
    stands elsewhere, and here is None."""
    return moved(ring, "copy", tile) if when else None


def read(ring: Ring, tile: Tile) -> Operation:
    """Read `tile` from its slot of `ring` into the ring's register tile."""
    return moved(ring, "read", tile)


def bind(ring: Named, mover: Mover) -> None:
    """Say which operations `copy` and `read` of a ring are: their templates and operands."""
    current().movers[ring.name] = mover


def moved(ring: Named, kind: AccessKind, tile: Tile) -> Operation:
    """Record what moves `tile` of a bound ring or pipeline."""
    mover = current().movers.get(ring.name)
    if mover is None:
        raise ScheduleError(f"ring {ring.name!r} is not bound to a global operand")
    return record(mover(kind, tile))
