"""Lanes that meet at an instruction because its member mask names them."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.control import block, gathered
from mlagen.emulator.ptx.order.lane_clocks import met, met_in_order
from mlagen.emulator.ptx.state import first_lane, report, warp_base

_BARRIER = 1 << 31  # the object of WAIT_WARP at bar.warp.sync; no row has this number


@compiled
def of_same_members(mask: int, members: int, row_of_members: int) -> int:
    """The lanes of `mask` whose member mask is `members`."""
    group = 0
    for lane in range(y.LANES):
        if (mask >> lane) & 1 and int64(load_u32(row_of_members, lane)) == members:
            group |= 1 << lane
    return group


@compiled
def members_of(context: int, warp: int, row: int, group: int, named: int) -> int:
    """The member mask of a group of lanes. The ISA says nothing of lanes that it does not name:
    they are taken to be members."""
    if group & ~named != 0 and load_i64(context, y.C_SANITIZE) != 0:
        report(context, y.DIVERGED, row, -1, warp, group, named, 0)
    return named | group


@compiled
def others_wait(context: int, warp: int, row: int, lanes: int, row_of_members: int) -> None:
    """Lanes whose member masks differ from those that are looked at first: each its turn."""
    left = lanes
    while left != 0:
        named = int64(load_u32(row_of_members, first_lane(left)))
        group = of_same_members(left, named, row_of_members)
        block(context, warp, group, y.WAIT_WARP, row, named | group)
        left &= ~group


@compiled
def together(context: int, warp: int, row: int, mask: int, row_of_members: int) -> int:
    """The lanes of `mask` that execute a .sync instruction now, because all that their member mask
    names are here; 0 for none. All others of `mask` wait: return AGAIN where there are any."""
    named = int64(load_u32(row_of_members, first_lane(mask)))
    group = of_same_members(mask, named, row_of_members)
    members = members_of(context, warp, row, group, named)
    complete = gathered(context, warp, row, group, members)
    if group != mask:
        base = warp_base(context, warp)
        blocked = load_i64(base, y.W_BLOCKED)
        if not complete and blocked & group == 0:
            # The last of them came, but cannot go on before the others of `mask` wait: let the
            # engine see that the wait of all is over.
            store_i64(base, y.W_BLOCKED, blocked | members & load_i64(base, y.W_LIVE))
        others_wait(context, warp, row, mask & ~group, row_of_members)
    if complete:
        met(context, warp, members)
    return group if complete else 0


@compiled
def meet_group(context: int, warp: int, row: int, group: int, named: int) -> None:
    """Lanes with one member mask come to bar.warp.sync: the last of them free the others."""
    base = warp_base(context, warp)
    members = members_of(context, warp, row, group, named)
    missing = members & load_i64(base, y.W_LIVE) & ~group
    if missing == 0:
        met_in_order(context, warp, members)
        return
    blocked = load_i64(base, y.W_BLOCKED)
    here = 0
    for lane in range(y.LANES):
        if (
            (missing & blocked) >> lane & 1
            and load_i64(base, y.W_WAIT + lane) == (y.WAIT_WARP << 32) | _BARRIER
            and load_i64(base, y.W_WAIT_FOR + lane) == members
        ):
            here |= 1 << lane
    if here == missing:
        store_i64(base, y.W_BLOCKED, blocked & ~here)
        store_i64(base, y.W_OTHER, -1)  # look where all go on
        met_in_order(context, warp, members)
    else:
        block(context, warp, group, y.WAIT_WARP, _BARRIER, members)


@compiled
def meet_at_barrier(context: int, warp: int, row: int, mask: int, row_of_members: int) -> int:
    """bar.warp.sync. Lanes may come to it at several places of the program."""
    left = mask
    while left != 0:
        named = int64(load_u32(row_of_members, first_lane(left)))
        group = of_same_members(left, named, row_of_members)
        meet_group(context, warp, row, group, named)
        left &= ~group
    return y.NEXT
