"""Lanes of a warp that part and meet: branches, exits, and lanes that wait.

Lanes at the lowest row go first, so that those which parted meet again where their ways join. The
lanes that run together are W_MASK at row W_PC. While all live lanes are together (W_APART is 0)
nothing else is kept; otherwise W_LANE_PC has the row of every other lane, and W_OTHER the lowest of
those that could run.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.state import cta_base, moved, warp_base


@compiled
def keep_rows(base: int, lanes: int, row: int) -> None:
    """Note the row of some lanes."""
    for lane in range(y.LANES):
        if (lanes >> lane) & 1:
            store_i64(base, y.W_LANE_PC + lane, row)


@compiled
def part(base: int) -> None:
    """The lanes that run are no longer all: from now on every lane has a row of its own."""
    if load_i64(base, y.W_APART) == 0:
        keep_rows(base, load_i64(base, y.W_LIVE), load_i64(base, y.W_PC))
        store_i64(base, y.W_APART, 1)


@compiled
def choose(base: int, beyond: int) -> None:
    """Take the lanes at the lowest row over `beyond` that can run; at the lowest of all where there
    are none (-1 takes the lowest). Rows of all lanes must have been kept."""
    ready = load_i64(base, y.W_LIVE) & ~load_i64(base, y.W_BLOCKED)
    lowest = y.NEVER
    after = y.NEVER
    for lane in range(y.LANES):
        if (ready >> lane) & 1:
            row = load_i64(base, y.W_LANE_PC + lane)
            lowest = min(lowest, row)
            if row > beyond:
                after = min(after, row)
    if after == y.NEVER:
        after = lowest
    together = 0
    other = y.NEVER
    for lane in range(y.LANES):
        if (ready >> lane) & 1:
            row = load_i64(base, y.W_LANE_PC + lane)
            if row == after:
                together |= 1 << lane
            else:
                other = min(other, row)
    store_i64(base, y.W_MASK, together)
    store_i64(base, y.W_OTHER, other)
    if together == 0:
        store_i64(base, y.W_STATE, y.WAITING)
        return
    store_i64(base, y.W_STATE, y.RUNNING)
    store_i64(base, y.W_PC, after)
    if together == load_i64(base, y.W_LIVE):
        store_i64(base, y.W_APART, 0)


@compiled
def go_on(base: int, row: int) -> None:
    """The lanes that run go on at `row`; those at a lower row, or at the same, are looked at."""
    store_i64(base, y.W_PC, row)
    if load_i64(base, y.W_APART) != 0 and row >= load_i64(base, y.W_OTHER):
        keep_rows(base, load_i64(base, y.W_MASK), row)
        choose(base, -1)


@compiled
def take_turns(base: int) -> None:
    """Other lanes of the warp go next: these ask in vain, or have run for long."""
    if load_i64(base, y.W_APART) != 0 and load_i64(base, y.W_OTHER) != y.NEVER:
        row = load_i64(base, y.W_PC)
        keep_rows(base, load_i64(base, y.W_MASK), row)
        choose(base, row)


@compiled
def branch(base: int, taken: int, target: int, following: int) -> None:
    """Some of the lanes that run go to `target`, the others to `following`."""
    mask = load_i64(base, y.W_MASK)
    if taken == mask:
        go_on(base, target)
    elif taken == 0:
        go_on(base, following)
    else:
        part(base)
        keep_rows(base, taken, target)
        keep_rows(base, mask & ~taken, following)
        choose(base, -1)


@compiled
def block(context: int, warp: int, lanes: int, wait: int, what: int, until: int) -> None:
    """Lanes that run wait from now on: a WAIT_ number, its object, the phase that ends it."""
    base = warp_base(context, warp)
    part(base)
    store_i64(base, y.W_BLOCKED, load_i64(base, y.W_BLOCKED) | lanes)
    for lane in range(y.LANES):
        if (lanes >> lane) & 1:
            store_i64(base, y.W_WAIT + lane, (wait << 32) | what)
            store_i64(base, y.W_WAIT_FOR + lane, until)


@compiled
def after_block(base: int, mask: int, blocked: int, waits_at: int, following: int) -> None:
    """Rows of the lanes that ran: some of them wait now."""
    keep_rows(base, blocked, waits_at)
    keep_rows(base, mask & ~blocked, following)
    choose(base, -1)


@compiled
def unblock(base: int, lanes: int) -> None:
    """Lanes go on where their rows say."""
    if load_i64(base, y.W_MASK) != 0:
        keep_rows(base, load_i64(base, y.W_MASK), load_i64(base, y.W_PC))
    store_i64(base, y.W_BLOCKED, load_i64(base, y.W_BLOCKED) & ~lanes)
    choose(base, -1)


@compiled
def gathered(context: int, warp: int, row: int, mask: int, members: int) -> bool:
    """Whether the lanes that a .sync instruction names are all here. Where not, those that are wait
    for the others: return AGAIN then."""
    base = warp_base(context, warp)
    missing = members & load_i64(base, y.W_LIVE) & ~mask
    if missing == 0:
        return True
    here = 0
    for lane in range(y.LANES):
        if (missing >> lane) & 1 and load_i64(base, y.W_WAIT + lane) == (y.WAIT_WARP << 32) | row:
            here |= 1 << lane
    here &= load_i64(base, y.W_BLOCKED)
    block(context, warp, mask, y.WAIT_WARP, row, members)
    if here == missing:  # these are the last: all execute it together
        store_i64(base, y.W_BLOCKED, load_i64(base, y.W_BLOCKED) & ~(mask | here))
    return False


@compiled
def end_lanes(context: int, warp: int, lanes: int) -> None:
    """Lanes exit."""
    base = warp_base(context, warp)
    part(base)
    live = load_i64(base, y.W_LIVE) & ~lanes
    store_i64(base, y.W_LIVE, live)
    store_i64(base, y.W_BLOCKED, load_i64(base, y.W_BLOCKED) & live)
    moved(context)
    if live != 0:
        rest = load_i64(base, y.W_MASK) & ~lanes
        keep_rows(base, rest, load_i64(base, y.W_PC) + 1)
        choose(base, -1)
        return
    store_i64(base, y.W_STATE, y.ENDED)
    store_i64(base, y.W_MASK, 0)
    store_i64(context, y.C_ENDED, load_i64(context, y.C_ENDED) + 1)
    cta = cta_base(context, load_i64(base, y.W_CTA))
    store_i64(cta, y.T_LIVE, load_i64(cta, y.T_LIVE) - 1)
