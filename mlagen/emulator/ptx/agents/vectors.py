"""Which vector clocks (C_OBJECTS) barriers and mbarriers have: two each. What arrives goes into the
first; when a phase is complete, the second is its copy, from which those who waited take it."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import layout as a


@compiled
def vector(context: int, number: int, complete: int) -> int:
    """Address of a vector of object `number`; `complete`: 0 or 1."""
    size = 8 * load_i64(context, y.C_COMPONENTS)
    return load_i64(context, y.C_OBJECTS) + (2 * number + complete) * size


@compiled
def mbarrier_vector(context: int, slot: int, complete: int) -> int:
    """Of the mbarrier in a slot of the cluster."""
    cta = slot // a.MBARRIERS
    return vector(context, cta * (a.MBARRIERS + a.NAMED) + slot - cta * a.MBARRIERS, complete)


@compiled
def barrier_vector(context: int, slot: int, complete: int) -> int:
    """Of the named barrier in a slot of the cluster; the cluster's is CLUSTER_BARRIER."""
    cta = slot // a.NAMED
    number = cta * (a.MBARRIERS + a.NAMED) + a.MBARRIERS + slot - cta * a.NAMED
    return vector(context, number, complete)


@compiled
def complete_vector(context: int, filling: int) -> None:
    """A phase is complete: its vector is copied to the one behind it."""
    count = load_i64(context, y.C_COMPONENTS)
    for i in range(count):
        store_i64(filling, count + i, load_i64(filling, i))


@compiled
def tell(vector_at: int, number: int, value: int) -> None:
    """A vector knows that component `number` has reached `value`."""
    if load_i64(vector_at, number) < value:
        store_i64(vector_at, number, value)
