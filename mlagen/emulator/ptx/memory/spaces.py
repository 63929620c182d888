"""Addresses in state spaces, and where their bytes lie.

`resolve` looks at the addresses of a warp's lanes at once: mostly all of them are in one buffer or
in one CTA's shared memory. Where not, each lane is looked at by itself. No address is followed that
was not found to lie in memory of the run.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import int64, load_i64, load_u32, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.memory.buffers import global_delta
from mlagen.emulator.ptx.order.accesses import shared_lanes
from mlagen.emulator.ptx.order.global_accesses import global_lanes
from mlagen.emulator.ptx.order.lane_clocks import accessed
from mlagen.emulator.ptx.order.loads import begun
from mlagen.emulator.ptx.order.meeting import near_how
from mlagen.emulator.ptx.order.pairs import keep_near
from mlagen.emulator.ptx.state import (
    cta_base,
    cta_of,
    fault,
    first_lane,
    place,
    program_row,
    report,
)

GONE = -1  # beside the FAULT_ numbers: the CTA of the address has ended


@compiled
def window(address: int) -> int:
    """The state space that a generic address lies in."""
    if address < y.GENERIC_CONST or address >= y.GENERIC_END:
        return z.GLOBAL
    if address >= y.GENERIC_SHARED:
        return z.SHARED_CLUSTER
    if address >= y.GENERIC_LOCAL:
        return z.LOCAL
    if address >= y.GENERIC_PARAM:
        return z.PARAM
    return z.CONST


@compiled
def window_base(space: int) -> int:
    """The generic address of a state space's first byte."""
    if space == z.SHARED_CLUSTER or space == z.SHARED_CTA:
        return y.GENERIC_SHARED
    if space == z.LOCAL:
        return y.GENERIC_LOCAL
    if space == z.PARAM:
        return y.GENERIC_PARAM
    if space == z.CONST:
        return y.GENERIC_CONST
    return 0


@compiled
def inside(low: int, last: int, size: int, first: int, beyond: int) -> bool:
    """Whether accesses of `size` bytes at `low` to `last` lie within two bounds."""
    return low >= first and last >= low and last <= beyond - size


@compiled
def shared_delta(context: int, warp: int, space: int, low: int, last: int, size: int) -> int:
    """The same as `global_delta` for shared memory; GONE for a CTA that has ended."""
    rank = low >> y.RANK_SHIFT
    own = cta_of(context, warp)
    start = rank << y.RANK_SHIFT
    beyond = start + load_i64(context, y.C_SHARED_BYTES)
    if rank < 0 or rank >= load_i64(context, y.C_CTAS_ALL):
        return 0
    if not inside(low, last, size, start + y.SHARED_FIRST, beyond):
        return 0
    if rank != own:
        if space == z.SHARED_CTA:
            return 0
        if load_i64(cta_base(context, rank), y.T_LIVE) == 0:
            return GONE
    room = load_i64(context, y.C_SHARED_ROOM)
    return load_i64(context, y.C_SHARED) + rank * room - start


@compiled
def delta_of(
    context: int, warp: int, space: int, low: int, last: int, size: int, access: int
) -> int:
    """What has to be added to addresses `low` to `last` in a state space to reach their bytes: 0
    where they do not all lie in one piece of memory that allows the access. For .local it is lane
    0's."""
    if space == z.GLOBAL:
        return global_delta(context, low, last, size, access)
    if space == z.SHARED_CTA or space == z.SHARED_CLUSTER:
        return shared_delta(context, warp, space, low, last, size)
    if space == z.LOCAL:
        bytes_ = load_i64(context, y.C_LOCAL_BYTES)
        if inside(low, last, size, 0, bytes_):
            return load_i64(context, y.C_LOCAL) + warp * (y.LANES * bytes_)
    elif space == z.PARAM:
        if inside(low, last, size, 0, load_i64(context, y.C_PARAM_BYTES)) and access == 1:
            return load_i64(context, y.C_PARAM)
    elif inside(low, last, size, 0, load_i64(context, y.C_CONST_BYTES)) and access == 1:
        return load_i64(context, y.C_CONST)
    return 0


@compiled
def stride_of(context: int, space: int) -> int:
    """How far apart the bytes of two lanes' same address lie."""
    if space == z.LOCAL:
        return load_i64(context, y.C_LOCAL_BYTES)
    return 0


@compiled
def refuse(
    context: int, warp: int, row: int, lane: int, space: int, address: int, why: int
) -> None:
    """An access that cannot be made. With the sanitizer a finding where the run can go on."""
    if load_i64(context, y.C_SANITIZE) != 0:
        kind = 0
        if why == y.FAULT_ALIGN:
            kind = y.ALIGNMENT
        elif why == GONE:
            kind = y.SHARED_GONE
        elif space == z.GLOBAL:
            kind = y.GLOBAL_BOUNDS
        elif space == z.SHARED_CTA or space == z.SHARED_CLUSTER:
            kind = y.SHARED_BOUNDS
        if kind != 0:
            report(context, kind, row, -1, warp, address, lane, space)
            return
    if why == y.FAULT_ALIGN:
        fault(context, row, y.FAULT_ALIGN, address, lane)
    elif space == z.GLOBAL:
        fault(context, row, y.FAULT_GLOBAL, address, lane)
    elif space == z.LOCAL:
        fault(context, row, y.FAULT_LOCAL, address, lane)
    elif space == z.PARAM:
        fault(context, row, y.FAULT_PARAM, address, lane)
    elif space == z.CONST:
        fault(context, row, y.FAULT_CONST, address, lane)
    else:
        fault(context, row, y.FAULT_SHARED, address, lane)


@compiled
def lane_addresses(context: int, warp: int, p: int, mask: int) -> None:
    """Addresses that a row's P_A and P_IMM say. Lanes outside the mask get another lane's."""
    temp = load_i64(context, y.C_TEMP)
    a = place(context, warp, load_i64(p, y.P_A))
    offset = load_i64(p, y.P_IMM)
    if load_i64(p, y.P_TYPE2) == 64:
        for lane in range(y.LANES):
            store_i64(temp, z.ADDRESSES + lane, load_i64(a, lane) + offset)
    else:
        for lane in range(y.LANES):
            store_i64(temp, z.ADDRESSES + lane, (int64(load_u32(a, lane)) + offset) & 0xFFFFFFFF)
    if mask != y.ALL:
        spare = load_i64(temp, z.ADDRESSES + first_lane(mask))
        for lane in range(y.LANES):
            own = load_i64(temp, z.ADDRESSES + lane)
            store_i64(temp, z.ADDRESSES + lane, own if (mask >> lane) & 1 else spare)


@compiled
def keep_lanes(temp: int, space: int, mask: int) -> None:
    """Note in which of the spaces that have an order the lanes' addresses lie."""
    shared = space == z.SHARED_CTA or space == z.SHARED_CLUSTER
    store_i64(temp, z.SHARED_LANES, mask if shared else 0)
    store_i64(temp, z.GLOBAL_LANES, mask if space == z.GLOBAL else 0)


@compiled
def resolve_each(context: int, warp: int, row: int, mask: int, size: int, access: int) -> int:
    """`resolve` for lanes that do not all lie in one piece of memory."""
    temp = load_i64(context, y.C_TEMP)
    asked = load_i64(program_row(context, row), y.P_TYPE)
    shared = 0
    general = 0
    good = 0
    for lane in range(y.LANES):
        if (mask >> lane) & 1 == 0:
            continue
        address = load_i64(temp, z.ADDRESSES + lane)
        space = asked
        if asked == z.GENERIC:
            space = window(address)
            address -= window_base(space)
            store_i64(temp, z.ADDRESSES + lane, address)
        delta = delta_of(context, warp, space, address, address, size, access)
        if address & (size - 1) != 0:
            refuse(context, warp, row, lane, space, address, y.FAULT_ALIGN)
        elif delta == 0 or delta == GONE:
            refuse(context, warp, row, lane, space, address, delta)
        else:
            host = address + delta + lane * stride_of(context, space)
            store_i64(temp, z.HOSTS + lane, host)
            good |= 1 << lane
            if space == z.GLOBAL:
                general |= 1 << lane
            elif space == z.SHARED_CTA or space == z.SHARED_CLUSTER:
                shared |= 1 << lane
    store_i64(temp, z.SHARED_LANES, shared)
    store_i64(temp, z.GLOBAL_LANES, general)
    return good if load_i64(context, y.C_FAULT_KIND) == 0 else 0


@compiled
def resolve(context: int, warp: int, row: int, mask: int, size: int, access: int) -> int:
    """The lanes that may access `size` bytes (a power of two) at their addresses: all of `mask`,
    but for those whose access was reported. Fills the work space (see `layout`). `access`: 1 to
    read, 2 to write, which is 3 for both. `mask` is not 0."""
    p = program_row(context, row)
    temp = load_i64(context, y.C_TEMP)
    lane_addresses(context, warp, p, mask)
    low = load_i64(temp, z.ADDRESSES)
    last = low
    bits = 0
    for lane in range(y.LANES):
        address = load_i64(temp, z.ADDRESSES + lane)
        low = min(low, address)
        last = max(last, address)
        bits |= address
    space = load_i64(p, y.P_TYPE)
    base = 0
    if space == z.GENERIC:
        space = window(low)
        base = window_base(space)
        if window(last) != space:
            return resolve_each(context, warp, row, mask, size, access)
    delta = delta_of(context, warp, space, low - base, last - base, size, access)
    if delta == 0 or delta == GONE or bits & (size - 1) != 0:
        return resolve_each(context, warp, row, mask, size, access)
    if base != 0:
        for lane in range(y.LANES):
            store_i64(temp, z.ADDRESSES + lane, load_i64(temp, z.ADDRESSES + lane) - base)
    stride = stride_of(context, space)
    for lane in range(y.LANES):
        address = load_i64(temp, z.ADDRESSES + lane)
        store_i64(temp, z.HOSTS + lane, address + delta + lane * stride)
    keep_lanes(temp, space, mask)
    return mask


@compiled
def note_accesses(context: int, warp: int, row: int, size: int, how: int) -> None:
    """Tell the record of accesses what the lanes that `resolve` found do."""
    temp = load_i64(context, y.C_TEMP)
    shared = load_i64(temp, z.SHARED_LANES)
    addresses = temp + 8 * z.ADDRESSES
    if shared != 0:
        accessed(context, warp, shared)
        keep_near(context, warp, row, shared, addresses, size, near_how(how))
        shared_lanes(context, warp, row, shared, addresses, size, how)
        if load_i64(program_row(context, row), y.P_MARKS) & y.MARK_LOADS != 0:
            begun(context, warp, row, shared, addresses, size)
    general = load_i64(temp, z.GLOBAL_LANES)
    if general != 0:
        global_lanes(context, warp, row, general, addresses, size, how)
