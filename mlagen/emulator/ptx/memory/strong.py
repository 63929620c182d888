"""What accesses of .relaxed, .acquire and .release do beside moving bytes."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import layout as z
from mlagen.emulator.ptx.order.grid import acquire_global, release_global
from mlagen.emulator.ptx.state import first_lane, warp_base


@compiled
def same_address(temp: int, lanes: int, address: int) -> int:
    """The lanes of a mask that have this address."""
    found = 0
    for lane in range(y.LANES):
        if (lanes >> lane) & 1 and load_i64(temp, z.ADDRESSES + lane) == address:
            found |= 1 << lane
    return found


@compiled
def order_lanes(context: int, warp: int, lanes: int, base: int, scope: int, release: bool) -> None:
    """Acquire or release the word at each address, once for all lanes that share it."""
    temp = load_i64(context, y.C_TEMP)
    left = lanes
    while left != 0:
        address = load_i64(temp, z.ADDRESSES + first_lane(left))
        together = same_address(temp, left, address)
        if release:
            release_global(context, warp, base + address, together, scope)
        else:
            acquire_global(context, warp, base + address, together, scope)
        left &= ~together


@compiled
def order_all(context: int, warp: int, p: int, release: bool) -> None:
    """Acquire or release what the lanes of an instruction have at their addresses."""
    temp = load_i64(context, y.C_TEMP)
    scope = load_i64(p, y.P_AUX + z.SCOPE)
    shared = load_i64(temp, z.SHARED_LANES)
    order_lanes(context, warp, shared, y.GENERIC_SHARED, scope, release)
    order_lanes(context, warp, load_i64(temp, z.GLOBAL_LANES), 0, scope, release)


@compiled
def give_way(context: int, warp: int) -> None:
    """The warp asks for what another one may have to write: others run before it asks again."""
    base = warp_base(context, warp)
    store_i64(base, y.W_YIELD, 1)
    store_i64(base, y.W_ASKED, load_i64(context, y.C_PROGRESS))
