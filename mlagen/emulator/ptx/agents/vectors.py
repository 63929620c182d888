"""The vector clocks of barriers and mbarriers: two each. What arrives goes into the first; when a
phase is complete, the second is its copy, from which those who waited take it."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.order.clocks import barrier_object, mbarrier_object, object_of


@compiled
def mbarrier_vector(context: int, slot: int, complete: int) -> int:
    """Of the mbarrier in a slot of the cluster. `complete`: 0 or 1."""
    cta = slot // a.MBARRIERS
    return object_of(context, mbarrier_object(cta, slot - cta * a.MBARRIERS, complete))


@compiled
def barrier_vector(context: int, slot: int, complete: int) -> int:
    """Of the named barrier in a slot of the cluster; the cluster's is CLUSTER_BARRIER."""
    cta = slot // a.NAMED
    return object_of(context, barrier_object(cta, slot - cta * a.NAMED, complete))


@compiled
def close_phase(context: int, filling: int) -> None:
    """A phase is complete: its vector is copied to the one behind it. It keeps what it knows:
    whoever sees a later phase complete has seen this one complete, too."""
    count = load_i64(context, y.C_COMPONENTS)
    for i in range(count):
        store_i64(filling, count + i, load_i64(filling, i))
