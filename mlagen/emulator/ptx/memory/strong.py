"""What accesses of .relaxed, .acquire and .release do beside moving bytes."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.order.grid import acquire_global, release_global
from mlagen.emulator.ptx.state import first_lane


@compiled
def same_address(temp: int, lanes: int, address: int) -> int:
    """The lanes of a mask that have this address."""
    found = 0
    for lane in range(y.LANES):
        if (lanes >> lane) & 1 and load_i64(temp, z.ADDRESSES + lane) == address:
            found |= 1 << lane
    return found


@compiled
def order_lanes(context: int, warp: int, lanes: int, base: int, release: bool) -> None:
    """Acquire or release the word at each address, once for all lanes that share it."""
    temp = load_i64(context, y.C_TEMP)
    left = lanes
    while left != 0:
        address = load_i64(temp, z.ADDRESSES + first_lane(left))
        if release:
            release_global(context, warp, base + address)
        else:
            acquire_global(context, warp, base + address)
        left &= ~same_address(temp, left, address)


@compiled
def order_all(context: int, warp: int, release: bool) -> None:
    """Acquire or release what the lanes of an instruction have at their addresses."""
    temp = load_i64(context, y.C_TEMP)
    shared = load_i64(temp, z.SHARED_LANES)
    order_lanes(context, warp, shared, y.GENERIC_SHARED, release)
    order_lanes(context, warp, load_i64(temp, z.GLOBAL_LANES), 0, release)
