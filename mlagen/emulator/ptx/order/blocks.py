"""Begin and end of a block: events that accesses to its shared memory lie between.

Shared memory of another block of the cluster is there once that block has begun, and until its last
warp ends (PTX ISA, "Cluster of Cooperative Thread Arrays"; CUDA C++ Programming Guide, "Distributed
Shared Memory"). So who accesses it has to know of a warp of that block, which any release by one
tells: a warp's own clock is 1 when it begins. And a warp of that block has to know of the access
when it ends. What agents do to shared memory of a block, by whomever they were started, has to be
complete for one of the block's warps, too. Clocks say both, whichever came first in the run.

C_USES has, for each block and each component, the last access that the block's end comes after. An
arrival of a warp at an mbarrier has the place of the warp's FENCED component, which no access is
of: it may be known by the phase that it completes, too, and then says nothing of what came before.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, component, kind_of, own
from mlagen.emulator.ptx.order.record_sizes import (
    BULK_READ,
    CLOCK_AT,
    CLOCK_BITS,
    CLOCKS,
    COMPONENT_AT,
    COMPONENTS,
    COPY,
    FENCED,
    GENERIC,
    ROW_AT,
    USE_ACCESS,
    USE_ADDRESS,
    USE_CLOCK,
    USE_PHASE,
    USE_SIZE,
    USE_WARP,
)
from mlagen.emulator.ptx.state import cta_base, cta_of, report


@compiled
def has_begun(context: int, warp: int, cta: int) -> bool:
    """Whether `warp` knows that a block of its cluster has begun."""
    clocks = clocks_of(context, warp)
    first = component(context, cta, GENERIC, 0)
    for number in range(first, first + load_i64(context, y.C_CTA_WARPS)):
        if load_i64(clocks, number) != 0:
            return True
    return False


@compiled
def tell_begun(context: int, known: int, into: int) -> None:
    """The clocks at address `into` know which blocks have begun, as far as those at `known` do:
    all that relaxed arrivals and waits hand over."""
    warps = load_i64(context, y.C_CTA_WARPS)
    for cta in range(load_i64(context, y.C_CTAS_ALL)):
        first = component(context, cta, GENERIC, 0)
        for number in range(first, first + warps):
            begun = min(load_i64(known, number), 1)
            store_i64(into, number, max(load_i64(into, number), begun))


@compiled
def use_of(context: int, cta: int, number: int) -> int:
    """Address of the USE_ words of a block and a component."""
    place = cta * load_i64(context, y.C_COMPONENTS) + number
    return load_i64(context, y.C_USES) + place * (8 * USE_SIZE)


@compiled
def there(context: int, warp: int, row: int, address: int) -> bool:
    """Whether a block of shared memory that `warp` accesses has not ended. Told where it has, and
    where it may not have begun."""
    cta = address >> y.RANK_SHIFT
    if cta == cta_of(context, warp):
        return True
    if load_i64(cta_base(context, cta), y.T_LIVE) == 0:
        report(context, y.SHARED_GONE, row, -1, warp, address, 0, y.ERROR)
        return False
    if not has_begun(context, warp, cta):
        report(context, y.SHARED_EARLY, row, -1, warp, address, 0, y.ERROR)
    return True


@compiled
def reach(context: int, warp: int, address: int, access: int) -> None:
    """An access to shared memory that `warp` makes, or an agent that it started: of another block,
    or one that is over later. `access`: in one word."""
    if there(context, warp, access >> ROW_AT, address):
        number = (access >> COMPONENT_AT) & COMPONENTS
        use = use_of(context, address >> y.RANK_SHIFT, number)
        store_i64(use, USE_ACCESS, access)
        store_i64(use, USE_ADDRESS, address)
        store_i64(use, USE_WARP, warp)


@compiled
def reach_mbarrier(context: int, warp: int, address: int, access: int, phase: int) -> None:
    """`warp` arrives at an mbarrier of another block. `phase`: what completes it counts up to this
    number."""
    if there(context, warp, access >> ROW_AT, address):
        use = use_of(context, address >> y.RANK_SHIFT, own(context, warp, FENCED))
        store_i64(use, USE_ACCESS, access)
        store_i64(use, USE_ADDRESS, address)
        store_i64(use, USE_WARP, warp)
        store_i64(use, USE_PHASE, phase >> CLOCK_BITS)
        store_i64(use, USE_CLOCK, phase & CLOCKS)


@compiled
def known_at_end(context: int, cta: int, number: int, clock: int) -> bool:
    """Whether one of a block's warps, which have ended, knows that a component has come so far."""
    warps = load_i64(context, y.C_CTA_WARPS)
    for warp in range(cta * warps, (cta + 1) * warps):
        if load_i64(clocks_of(context, warp), number) >= clock:
            return True
    return False


@compiled
def in_time(context: int, cta: int, use: int) -> bool:
    """Whether a block ends after what the USE_ words at an address say."""
    access = load_i64(use, USE_ACCESS)
    number = (access >> COMPONENT_AT) & COMPONENTS
    if known_at_end(context, cta, number, (access >> CLOCK_AT) & CLOCKS):
        return True
    clock = load_i64(use, USE_CLOCK)
    return clock != 0 and known_at_end(context, cta, load_i64(use, USE_PHASE), clock)


@compiled
def end_of_block(context: int, cta: int) -> None:
    """The last warp of a block has ended. Of a store to global memory that has still to read, and
    of cp.async, no failure is known: published kernels rely on it."""
    for number in range(load_i64(context, y.C_COMPONENTS)):
        use = use_of(context, cta, number)
        access = load_i64(use, USE_ACCESS)
        if access == 0 or in_time(context, cta, use):
            continue
        warp = load_i64(use, USE_WARP)
        kind = y.SHARED_GONE
        severity = y.ERROR
        if cta_of(context, warp) == cta:
            kind = y.PENDING_AT_EXIT
            of = kind_of(context, number)
            if of == COPY or of == BULK_READ:  # noqa: SIM109 -- compiled code has no "in"
                severity = y.LETTER
        at = load_i64(use, USE_ADDRESS)
        report(context, kind, access >> ROW_AT, -1, warp, at, 0, severity)
