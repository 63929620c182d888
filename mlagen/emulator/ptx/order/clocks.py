"""Vector clocks: what each warp knows to have happened.

Components of a CTA of W warps, one CTA of the cluster after the other:

    GENERIC + w      releases of warp w: its own accesses through the generic proxy
    FENCED + w       the same, as far as the async proxy sees these accesses: to shared memory of
                     rank 0, and in further kinds to that of other ranks, and to global memory
    WGMMA + w        wgmma groups of warp w that are complete
    BULK + w         bulk groups of warp w that are complete
    BULK_READ + w    bulk groups of warp w that have read their sources
    COPY + w         cp.async groups of warp w that are complete
    FENCED_COPY + w  the same, as far as the async proxy sees what they wrote
    MBARRIER + k     phases that mbarrier k has completed

and, before the last, of a program that has tcgen05 (see `tensors`):

    TENSOR + w         tcgen05.mma and .cp of warp w that are complete
    TENSOR_BEGUN + w   the same, that a tcgen05.fence::before_thread_sync of the warp follows
    LOADED + w         tcgen05.ld of warp w: how many tcgen05.wait::ld it has done
    LOADED_FENCED + w  the same, with a tcgen05.fence::before_thread_sync behind them
    STORED + w, STORED_FENCED + w    the same of tcgen05.st

An *object* is what carries clocks from warp to warp: an mbarrier, a named barrier, the cluster's
barrier, a word of global memory.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.record_sizes import (
    BULK,
    BULK_READ,
    COPY,
    CTA_MBARRIERS,
    FENCED,
    FENCED_COPY,
    GENERIC,
    NAMED,
    WGMMA,
)
from mlagen.emulator.ptx.state import warp_base

__all__ = ["BULK", "BULK_READ", "COPY", "GENERIC", "WGMMA"]

# Which memory a fence of the async proxy is for.
OWN_SHARED, OTHER_SHARED, IN_GLOBAL = 1, 2, 4


@spliced
def component(context: int, cta: int, kind: int, warp_in_cta: int) -> int:
    """Number of a component of a warp."""
    warps = load_i64(context, y.C_CTA_WARPS)
    size = load_i64(context, y.C_KINDS) * warps + CTA_MBARRIERS
    return cta * size + kind * warps + warp_in_cta


@spliced
def mbarrier_component(context: int, cta: int, slot: int) -> int:
    """Number of the component of an mbarrier."""
    warps = load_i64(context, y.C_CTA_WARPS)
    mine = load_i64(context, y.C_KINDS) * warps
    return cta * (mine + CTA_MBARRIERS) + mine + slot


@spliced
def own(context: int, warp: int, kind: int) -> int:
    """Number of a component of a warp of the cluster."""
    warps = load_i64(context, y.C_CTA_WARPS)
    cta = warp // warps
    return component(context, cta, kind, warp - cta * warps)


@spliced
def clocks_of(context: int, warp: int) -> int:
    """Address of what a warp knows."""
    return load_i64(context, y.C_CLOCKS) + warp * (8 * load_i64(context, y.C_COMPONENTS))


@spliced
def object_of(context: int, number: int) -> int:
    """Address of the clocks that object `number` carries."""
    return load_i64(context, y.C_OBJECTS) + number * (8 * load_i64(context, y.C_COMPONENTS))


@spliced
def mbarrier_object(cta: int, slot: int, complete: int) -> int:
    """Number of an mbarrier's object: of the phase being filled, or of the last complete one."""
    return 2 * (cta * (CTA_MBARRIERS + NAMED) + slot) + complete


@spliced
def barrier_object(cta: int, slot: int, complete: int) -> int:
    """The same of a named barrier, or of the cluster's: slot 16 of CTA 0."""
    return 2 * (cta * (CTA_MBARRIERS + NAMED) + CTA_MBARRIERS + slot) + complete


@spliced
def fenced_kind(context: int, rank: int) -> int:
    """The kind of FENCED for shared memory of a rank."""
    more = load_i64(context, y.C_FENCED_MORE)
    if rank == 0 or more == 0:
        return FENCED
    return more + rank - 1


@compiled
def kind_of(context: int, number: int) -> int:
    """Which kind a component is of; KINDS for an mbarrier's."""
    warps = load_i64(context, y.C_CTA_WARPS)
    kinds = load_i64(context, y.C_KINDS)
    within = number % (kinds * warps + CTA_MBARRIERS)
    return min(within // warps, kinds)


@compiled
def warp_of(context: int, number: int) -> int:
    """The warp of the cluster that a component belongs to; -1 for an mbarrier's."""
    warps = load_i64(context, y.C_CTA_WARPS)
    kinds = load_i64(context, y.C_KINDS)
    size = kinds * warps + CTA_MBARRIERS
    cta = number // size
    within = number - cta * size
    if within >= kinds * warps:
        return -1
    return cta * warps + within % warps


@compiled
def join(context: int, into: int, other: int) -> None:
    """Clocks at `into` know what those at `other` know as well."""
    for i in range(load_i64(context, y.C_COMPONENTS)):
        store_i64(into, i, max(load_i64(into, i), load_i64(other, i)))


@compiled
def step_clock(context: int, warp: int) -> None:
    """What `warp` has accessed lies before what it does from now on."""
    clocks = clocks_of(context, warp)
    number = own(context, warp, GENERIC)
    store_i64(clocks, number, load_i64(clocks, number) + 1)


@compiled
def told(context: int, warp: int) -> None:
    """The instruction that `warp` executes tells others of what it did, or starts a copy after it:
    its loads may not be over (see `loads`)."""
    base = warp_base(context, warp)
    store_i64(base, y.W_TOLD, load_i64(base, y.W_TOLD) + 1)
    loads = load_i64(base, y.W_LOADS)
    if load_i64(base, y.W_RELEASED) != loads:
        store_i64(base, y.W_RELEASED, loads)
        store_i64(base, y.W_RELEASE, load_i64(base, y.W_PC))


@compiled
def release_to(context: int, warp: int, vector: int) -> None:
    """What `warp` knows is joined into the clocks at address `vector`; its own clock grows."""
    told(context, warp)
    step_clock(context, warp)
    join(context, vector, clocks_of(context, warp))


@compiled
def acquire_from(context: int, warp: int, vector: int) -> None:
    """The clocks at address `vector` are joined into what `warp` knows."""
    join(context, clocks_of(context, warp), vector)


@compiled
def note(vector: int, number: int, value: int) -> None:
    """The clocks at address `vector` know that component `number` has reached `value`."""
    store_i64(vector, number, max(load_i64(vector, number), value))


@compiled
def reached(context: int, warp: int, number: int, value: int) -> None:
    """`warp` knows that component `number` has reached `value`."""
    note(clocks_of(context, warp), number, value)


@compiled
def fence_kind(context: int, clocks: int, source: int, kind: int) -> None:
    """In the clocks at an address, components of `kind` come up to those of `source`."""
    warps = load_i64(context, y.C_CTA_WARPS)
    for cta in range(load_i64(context, y.C_CTAS_ALL)):
        base = component(context, cta, 0, 0)
        for w in range(warps):
            store_i64(clocks, base + kind * warps + w, load_i64(clocks, base + source * warps + w))


@compiled
def fence_proxy(context: int, warp: int, spaces: int) -> None:
    """Generic accesses that `warp` knows of are seen by the async proxy from now on. `spaces`: a
    sum of OWN_SHARED, OTHER_SHARED and IN_GLOBAL."""
    step_clock(context, warp)
    clocks = clocks_of(context, warp)
    mine = load_i64(warp_base(context, warp), y.W_CTA)
    for rank in range(load_i64(context, y.C_CTAS_ALL)):
        wanted = OWN_SHARED if rank == mine else OTHER_SHARED
        if spaces & wanted != 0:
            fence_kind(context, clocks, GENERIC, fenced_kind(context, rank))
    if spaces & OWN_SHARED != 0:  # cp.async writes to shared memory of its own CTA
        fence_kind(context, clocks, COPY, FENCED_COPY)
    if spaces & IN_GLOBAL != 0:
        fence_kind(context, clocks, GENERIC, load_i64(context, y.C_FENCED_GLOBAL))
