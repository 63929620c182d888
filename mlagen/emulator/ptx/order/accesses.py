"""The record of accesses: who read and wrote each word last, and what orders the next one.

Hooks of the engine. A warp's *clock* grows whenever it releases something; an access of a warp has
its clock, an access of an agent the number of what completes it. `component` names either (see
`clocks`): an access is ordered before what a warp does when the warp's vector clock has reached
that number in that component.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled

READ, WRITE, ATOMIC = range(3)


@compiled
def shared_lanes(
    context: int, warp: int, row: int, mask: int, addresses: int, size: int, how: int
) -> None:
    """A generic access of `size` bytes a lane to shared memory. `addresses`: of 32 int64 words,
    rank << 24 | offset each. `how`: READ, WRITE or ATOMIC."""


@compiled
def shared_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, component: int, clock: int
) -> None:
    """An access of an agent through the async proxy, which `warp` issued: `size` bytes of shared
    memory from `address`. It is complete when `component` reaches `clock`."""


@compiled
def global_lanes(
    context: int, warp: int, row: int, mask: int, addresses: int, size: int, how: int
) -> None:
    """The same as `shared_lanes` for global memory."""


@compiled
def global_range(
    context: int, warp: int, row: int, address: int, size: int, how: int, component: int, clock: int
) -> None:
    """The same as `shared_range` for global memory."""
