"""Vector clocks: what each warp knows to have happened.

Components of a CTA of W warps, `C_COMPONENTS` being the sum over the cluster:

    GENERIC + w    clock of warp w: its own accesses through the generic proxy
    FENCED + w     the clock of warp w up to which the async proxy sees its generic accesses
    WGMMA + w      wgmma groups of warp w that are complete
    BULK + w       bulk groups of warp w that are complete
    BULK_READ + w  bulk groups of warp w that have read their sources
    COPY + w       cp.async groups of warp w that are complete
    MBARRIER + k   phases that mbarrier k has completed

An *object* is what carries clocks from warp to warp: an mbarrier, a named barrier, the cluster's
barrier, a word of global memory.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled

GENERIC, FENCED, WGMMA, BULK, BULK_READ, COPY, KINDS = range(7)
MBARRIERS = 64  # of a CTA


@compiled
def component(context: int, cta: int, kind: int, warp_in_cta: int) -> int:
    """Number of a component of a warp."""
    return 0


@compiled
def mbarrier_component(context: int, cta: int, slot: int) -> int:
    """Number of the component of an mbarrier."""
    return 0


@compiled
def release_to(context: int, warp: int, vector: int) -> None:
    """What `warp` knows is joined into the clocks at address `vector`; its own clock grows."""


@compiled
def acquire_from(context: int, warp: int, vector: int) -> None:
    """The clocks at address `vector` are joined into what `warp` knows."""


@compiled
def reached(context: int, warp: int, number: int, value: int) -> None:
    """`warp` knows that component `number` has reached `value`."""


@compiled
def fence_proxy(context: int, warp: int) -> None:
    """Generic accesses that `warp` knows of are visible to the async proxy for it, and back."""
