"""The words of gfx950: roles that share one stream, clusters, interleaving, reads of LDS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlagen.dsl.builder import Cluster
from mlagen.dsl.operation import Interleave, Operation
from mlagen.dsl.tile import Tile
from mlagen.dsl.words import moved
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.builder import clusters_of
from mlagen.targets.gfx950.dsl.lds import Ring
from mlagen.targets.gfx950.dsl.roles import Role, Roles
from mlagen.targets.gfx950.dsl.wait import Wait


def roles(*, stagger: int = 0, apart: bool = False, **groups: range) -> Roles:
    """The workgroup's roles: `roles(lower=range(0, 4), upper=range(4, 8), stagger=1)`. Each group
    lags the one before it by `stagger` barriers. `apart`: each gets code of its own, also where
    no operation is limited to one (see `only`)."""
    builder = clusters_of("roles")
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
    builder = clusters_of("only")
    builder.enter_only(members)
    try:
        yield
    finally:
        builder.leave_only()


@contextmanager
def cluster(name: str, *, priority: int = 0, wait: Wait | None = None) -> Iterator[None]:
    """Steps that end in a barrier. `priority`: s_setprio 0..3 while it runs. `wait`: a wait placed
    by hand before the barrier, instead of the derived one."""
    builder = clusters_of("cluster")
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


def interleave(
    first: Operation, *others: Operation | None, pattern: str = "even", ordered: bool = False
) -> None:
    """Interleave the operations just called: the first with the others, which follow each other
    (see `Interleave`); one that a knob leaves out is None. `ordered`: they may touch each other's
    registers; the result is that of the operations one after another."""
    builder = clusters_of("interleave")
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


def read(ring: Ring, tile: Tile, *, when: bool = True) -> Operation | None:
    """Read `tile` from its slot of `ring` into the ring's register tile. `when`: or elsewhere."""
    return moved(ring, "read", tile) if when else None
