"""What a wgmma reads of shared memory: whether it lies inside, and the record of these accesses."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.elements import (
    beside_pattern,
    chunk_address,
    core_address,
    deep_address,
    line_address,
    per_chunk,
    swizzle_of,
    swizzled,
)
from mlagen.emulator.ptx.order.accesses import both_known, span
from mlagen.emulator.ptx.order.clocks import WGMMA, component
from mlagen.emulator.ptx.order.meeting import READ, packed
from mlagen.emulator.ptx.order.records import shadow_of
from mlagen.emulator.ptx.order.register_reads import matrix_words
from mlagen.emulator.ptx.state import cta_of, fault


@compiled
def note_operand(
    context: int, warp: int, row: int, descriptor: int, size: int, mn_major: int
) -> None:
    """Tell the record of accesses which chunks a warp's wgmma reads. `size`: of `check_operand`."""
    cta_warps = load_i64(context, y.C_CTA_WARPS)
    cta = cta_of(context, warp)
    clock = load_i64(matrix_words(context, warp), m.Q_COMMITTED) + 1
    access = packed(row, component(context, cta, WGMMA, warp % cta_warps), clock, 0)
    note_chunks(context, warp, access, cta, descriptor, size, mn_major)


@compiled
def note_chunks(
    context: int, warp: int, access: int, cta: int, descriptor: int, size: int, mn_major: int
) -> None:
    """Tell the record of accesses which chunks of a CTA's shared memory an operand is read from."""
    mine = cta << y.RANK_SHIFT
    shadow = shadow_of(context, mine)
    moved = swizzle_of(descriptor)
    first = size >> 32
    half = -1  # numbers of the records of two words, which become those of `become`
    become = 0
    for i in range(first, first + ((size >> 16) & 0xFFFF)):
        line = line_address(descriptor, i, mn_major)
        for j in range(size & 0xFFFF):
            at = swizzled(line + deep_address(descriptor, j, mn_major), moved)
            low = load_i64(shadow + at, 0)
            if low == half and load_i64(shadow + at, 1) == half:
                store_i64(shadow + at, 0, become)
                store_i64(shadow + at, 1, become)
            else:
                span(context, warp, mine | at, 16, access, READ, 1)
                become = both_known(context, low)
                half = low if become >= 0 else -1


@compiled
def inside(context: int, descriptor: int, across: int, deep: int, mn_major: int) -> bool:
    """Whether all 16-byte chunks of an operand lie in shared memory. `across`, `deep`: counts."""
    room = load_i64(context, y.C_SHARED_BYTES)
    most = 0
    begin = 0 if mn_major != 0 else across - 1  # rows of K-major operands lie one after the other
    for i in range(begin, across):
        most = max(most, core_address(descriptor, i, deep - 1, mn_major))
    if most + 128 <= room:  # a swizzle moves nothing further than a row
        return True
    most = 0
    for i in range(across):
        for j in range(deep):
            most = max(most, chunk_address(descriptor, i, j, mn_major))
    return most + 16 <= room


@compiled
def check_operand(
    context: int, warp: int, row: int, descriptor: int, size: int, mn_major: int
) -> bool:
    """Refuse a descriptor that is not modelled or leads out; note what it makes the warp read.
    `size`: first row << 32 | rows << 16 | elements of K as 16-byte chunks where K-major (chunks of
    rows << 16 | elements where MN-major)."""
    if (descriptor >> 49) & 7 != 0:
        fault(context, row, y.FAULT_DESCRIPTOR, y.BASE_OFFSET, descriptor)
        return False
    if beside_pattern(descriptor):
        fault(context, row, y.FAULT_DESCRIPTOR, y.BESIDE_PATTERN, descriptor)
        return False
    first = size >> 32
    across = (size >> 16) & 0xFFFF
    deep = size & 0xFFFF
    if not inside(context, descriptor, first + across, deep, mn_major):
        fault(context, row, y.FAULT_DESCRIPTOR, y.LEADS_OUT, descriptor)
        return False
    if load_i64(context, y.C_SANITIZE) != 0:
        note_operand(context, warp, row, descriptor, size, mn_major)
    return True


@compiled
def extent(kind: int, first: int, rows: int, depth: int, mn_major: int) -> int:
    """The `size` of `check_operand`."""
    count = per_chunk(kind)
    if mn_major != 0:
        return (first // count) << 32 | (rows // count) << 16 | depth
    return first << 32 | rows << 16 | depth // count
