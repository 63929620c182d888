"""Lanes of a warp, which have one clock: what one lane may tell others of.

A warp's lanes need not be at the same place of the program. What one of them releases lies behind
its own accesses, and behind those that other lanes made before all of them met last: at
bar.warp.sync or another .sync or .aligned instruction, or at a barrier. So where other lanes have
accessed shared memory since, a release by some lanes tells what the warp had done when they met.

Accesses of the lanes that release count as those of the others do, and what one lane acquires all
know. That two lanes of a warp are ordered themselves is looked at elsewhere (`pairs`).
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import (
    clocks_of,
    kind_of,
    own,
    release_to,
    step_clock,
    told,
    warp_of,
)
from mlagen.emulator.ptx.order.pairs import all_ordered, lanes_tell, some_ordered
from mlagen.emulator.ptx.order.record_sizes import FENCED, GENERIC
from mlagen.emulator.ptx.state import warp_base


@compiled
def accessed(context: int, warp: int, lanes: int) -> None:
    """Lanes of a warp access shared memory."""
    base = warp_base(context, warp)
    store_i64(base, y.W_ACCESSED, load_i64(base, y.W_ACCESSED) | lanes)


@compiled
def met(context: int, warp: int, lanes: int) -> None:
    """Lanes of a warp have met, all that live or some: what they did lies before what they do."""
    base = warp_base(context, warp)
    if load_i64(base, y.W_ACCESSED) != 0 and load_i64(base, y.W_LIVE) & ~lanes == 0:
        step_clock(context, warp)
        store_i64(base, y.W_MET, load_i64(clocks_of(context, warp), own(context, warp, GENERIC)))
        store_i64(base, y.W_ACCESSED, 0)


@compiled
def met_in_order(context: int, warp: int, lanes: int) -> None:
    """The same at bar.warp.sync or a barrier, which order what lanes access, too."""
    met(context, warp, lanes)
    if load_i64(warp_base(context, warp), y.W_LIVE) & ~lanes == 0:
        all_ordered(context, warp)
    else:
        some_ordered(context, warp, lanes)


@compiled
def fenced_of(context: int, warp: int, number: int) -> bool:
    """Whether a component is one of FENCED of a warp."""
    apart = number - own(context, warp, GENERIC)
    if apart < 0 or apart % load_i64(context, y.C_CTA_WARPS) != 0:
        return False
    if warp_of(context, number) != warp:
        return False
    kind = kind_of(context, number)
    more = load_i64(context, y.C_FENCED_MORE)
    last = load_i64(context, y.C_FENCED_GLOBAL)
    if kind == FENCED or kind == last:  # noqa: SIM109 -- compiled code has no "in"
        return True
    return more != 0 and kind >= more


@compiled
def release_lanes(context: int, warp: int, lanes: int, vector: int) -> None:
    """What lanes of a warp know is joined into the clocks at address `vector`."""
    base = warp_base(context, warp)
    if load_i64(base, y.W_ACCESSED) & ~lanes == 0:
        release_to(context, warp, vector)
        lanes_tell(context, warp, y.ALL)
        return
    lanes_tell(context, warp, lanes)
    told(context, warp)
    step_clock(context, warp)
    clocks = clocks_of(context, warp)
    mine = own(context, warp, GENERIC)
    for i in range(load_i64(context, y.C_COMPONENTS)):
        known = load_i64(clocks, i)
        if i == mine or fenced_of(context, warp, i):
            known = min(known, load_i64(base, y.W_MET))
        store_i64(vector, i, max(load_i64(vector, i), known))
