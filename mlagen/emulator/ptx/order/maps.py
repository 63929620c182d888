"""Tensor maps in global memory that a kernel edits: what lies between an edit and a copy.

Copies read a map through the tensormap proxy (PTX ISA 9.0, "Proxies", "membar, fence"). They see
an edit behind `fence.proxy.tensormap::generic.release` of the warp that made it, which
`tensormap.cp_fenceproxy` has in it, and then `fence.proxy.tensormap::generic.acquire` of the map by
whoever uses it, or by another warp that tells the user of it.

A map is known by its address; the last edit of each is kept, with the first fence behind it of each
warp, and the last copy of each warp through it, which an edit has to know of. Edits of other
clusters, and those of maps beyond MAPS, are not.
"""

from __future__ import annotations

from typing import Final

from mlagen.emulator.native.compiling import compiled, spliced
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, own, warp_of
from mlagen.emulator.ptx.order.record_sizes import GENERIC
from mlagen.emulator.ptx.state import report

MAPS: Final = 64  # a cluster
# Of an edited map: address + 1, the row, component and clock of the edit, whether its warp fenced
# it. Then of each warp ED_WARP words: the clock of its acquire and of its last copy, 0 for none,
# and the row of that copy.
ED_ADDRESS, ED_ROW, ED_NUMBER, ED_CLOCK, ED_RELEASED, ED_WARPS = range(6)
ACQUIRED, USED, USE_ROW, ED_WARP = range(4)
# Why a copy may not see the edit: the A of a finding.
NOT_TOLD, NOT_RELEASED, NOT_ACQUIRED = range(1, 4)


def edits_bytes(warps: int) -> int:
    """Room of C_EDITS for a cluster of so many warps."""
    return 8 * MAPS * (ED_WARPS + ED_WARP * warps)


@spliced
def edit_size(context: int) -> int:
    """Bytes of the words of a map."""
    return 8 * (ED_WARPS + ED_WARP * load_i64(context, y.C_WARPS_ALL))


@spliced
def of_warp(words: int, warp: int) -> int:
    """Address of the words of a warp at a map's."""
    return words + 8 * (ED_WARPS + ED_WARP * warp)


@compiled
def edit_of(context: int, address: int, make: bool) -> int:
    """Address of the words of the map at an address; 0: there are none, or no room."""
    size = edit_size(context)
    words = load_i64(context, y.C_EDITS)
    for _ in range(MAPS):
        held = load_i64(words, ED_ADDRESS)
        if held == 0 and make:
            store_i64(words, ED_ADDRESS, address + 1)
            return words
        if held == address + 1:
            return words
        if held == 0:
            return 0
        words += size
    return 0


@compiled
def knows(context: int, warp: int, number: int, clock: int) -> bool:
    """Whether a warp did what has that clock in a component of its own, or was told of it."""
    return number == own(context, warp, GENERIC) or (
        load_i64(clocks_of(context, warp), number) >= clock
    )


@compiled
def next_clock(context: int, warp: int) -> int:
    """The clock of what a warp does now, in its own component."""
    return load_i64(clocks_of(context, warp), own(context, warp, GENERIC)) + 1


@compiled
def map_edited(context: int, warp: int, row: int, address: int, released: int) -> None:
    """A warp edits the map at an address of global memory: report copies that it may come before,
    though it came after them here."""
    words = edit_of(context, address, True)
    if words == 0:
        return
    store_i64(words, ED_ROW, row)
    store_i64(words, ED_NUMBER, own(context, warp, GENERIC))
    store_i64(words, ED_CLOCK, next_clock(context, warp))
    store_i64(words, ED_RELEASED, released)
    for w in range(load_i64(context, y.C_WARPS_ALL)):
        mine = of_warp(words, w)
        clock = load_i64(mine, USED)
        if clock != 0 and not knows(context, warp, own(context, w, GENERIC), clock):
            tell(context, w, load_i64(mine, USE_ROW), words, NOT_TOLD)
        store_i64(mine, ACQUIRED, 0)
        store_i64(mine, USED, 0)


@compiled
def maps_released(context: int, warp: int) -> None:
    """fence.proxy.tensormap::generic.release: of all edits that the warp knows of."""
    words = load_i64(context, y.C_EDITS)
    for _ in range(MAPS):
        if load_i64(words, ED_CLOCK) != 0 and edit_known(context, warp, words):
            store_i64(words, ED_RELEASED, 1)
        words += edit_size(context)


@compiled
def edit_known(context: int, warp: int, words: int) -> bool:
    """Whether a warp knows of the edit of these words."""
    return knows(context, warp, load_i64(words, ED_NUMBER), load_i64(words, ED_CLOCK))


@compiled
def map_acquired(context: int, warp: int, address: int) -> None:
    """fence.proxy.tensormap::generic.acquire of the map at an address."""
    words = edit_of(context, address, False)
    if words == 0 or load_i64(words, ED_CLOCK) == 0 or not edit_known(context, warp, words):
        return
    mine = of_warp(words, warp)
    if load_i64(mine, ACQUIRED) == 0:
        store_i64(mine, ACQUIRED, next_clock(context, warp))


@compiled
def map_used(context: int, warp: int, row: int, address: int) -> None:
    """A copy goes through the map at an address: report what an edit of it lacks."""
    words = edit_of(context, address, True)
    if words == 0:
        return
    mine = of_warp(words, warp)
    store_i64(mine, USED, next_clock(context, warp))
    store_i64(mine, USE_ROW, row)
    if load_i64(words, ED_CLOCK) == 0:
        return
    if not edit_known(context, warp, words):
        tell(context, warp, row, words, NOT_TOLD)
    elif load_i64(words, ED_RELEASED) == 0:
        tell(context, warp, row, words, NOT_RELEASED)
    elif not acquired(context, warp, words):
        tell(context, warp, row, words, NOT_ACQUIRED)


@compiled
def acquired(context: int, warp: int, words: int) -> bool:
    """Whether a warp knows of a fence behind the edit of these words."""
    for w in range(load_i64(context, y.C_WARPS_ALL)):
        clock = load_i64(of_warp(words, w), ACQUIRED)
        if clock != 0 and knows(context, warp, own(context, w, GENERIC), clock):
            return True
    return False


@compiled
def tell(context: int, warp: int, row: int, words: int, why: int) -> None:
    """The copy of a warp may not see the edit of these words."""
    edit = load_i64(words, ED_ROW)
    address = load_i64(words, ED_ADDRESS) - 1
    found = report(context, y.MAP_FENCE, row, edit, warp, why, address, y.ERROR)
    if found != 0:
        store_i64(found, y.F_OTHER_WARP, warp_of(context, load_i64(words, ED_NUMBER)))
