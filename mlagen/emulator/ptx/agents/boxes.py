"""The boxes of tensor copies: which elements, where they lie in shared memory, what lies outside.

A box lies densely in shared memory, the first dimension fastest. A swizzle of 32, 64 or 128 bytes
exchanges 16-byte chunks: bits 4 to 6 of an address (4; 4 and 5) are changed by bits 7 to 9 (7; 7
and 8), so the pattern depends on the address alone.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_u8, uint8
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.agents.places import (
    buffer_host,
    copy_bytes,
    global_host,
    shared_host,
)
from mlagen.emulator.ptx.agents.reductions import reduce_bytes
from mlagen.emulator.ptx.order.clocks import BULK, mbarrier_component, own
from mlagen.emulator.ptx.order.global_accesses import global_range
from mlagen.emulator.ptx.order.meeting import ATOMIC, READ, WRITE

CHUNK = 16


@compiled
def taken(words: int, axis: int) -> int:
    """Elements that a box has along an axis. Along the first one a step is ignored."""
    if axis == 0:
        return load_i64(words, a.M_BOX)
    step = load_i64(words, a.M_STEPS + axis)
    return (load_i64(words, a.M_BOX + axis) + step - 1) // step


@compiled
def rows_of(words: int, op: int) -> int:
    """Rows of a box: what lies along its first axis is one."""
    if load_i64(op, a.O_FLAGS) != 0:
        return 4  # gather4, scatter4
    rows = 1
    for axis in range(1, load_i64(words, a.M_RANK)):
        rows *= taken(words, axis)
    return rows


@compiled
def box_bytes(words: int, op: int) -> int:
    """Bytes of a box in shared memory."""
    return rows_of(words, op) * taken(words, 0) * load_i64(words, a.M_ELEMENT)


@compiled
def row_address(words: int, op: int, number: int) -> int:
    """Global address of where a row of a box begins, as if nothing lay outside; -1 for a row that
    lies outside of the tensor as a whole."""
    address = load_i64(words, a.M_BASE)
    rest = number
    for axis in range(1, load_i64(words, a.M_RANK)):
        if load_i64(op, a.O_FLAGS) != 0:
            at = load_i64(op, a.O_ROWS + number)
        else:
            count = taken(words, axis)
            index = rest % count
            rest //= count
            at = load_i64(op, a.O_VALUES + axis) + index * load_i64(words, a.M_STEPS + axis)
        if at < 0 or at >= load_i64(words, a.M_DIMS + axis):
            return -1
        stride = load_i64(words, a.M_STRIDES + axis)
        if at > 0 and stride > (1 << 46) // at:
            return 0  # no buffer is there
        address += at * stride
    return address + load_i64(op, a.O_VALUES) * load_i64(words, a.M_ELEMENT)


@compiled
def first_inside(words: int, op: int) -> int:
    """The first element of a row that is not left of the tensor."""
    x = load_i64(op, a.O_VALUES)
    return 0 if x >= 0 else min(-x, taken(words, 0))


@compiled
def end_inside(words: int, op: int) -> int:
    """The first element of a row that is right of the tensor; at least `first_inside`."""
    left = load_i64(words, a.M_DIMS) - load_i64(op, a.O_VALUES)
    return max(min(left, taken(words, 0)), first_inside(words, op))


@compiled
def swizzled(address: int, mode: int) -> int:
    """Where a byte lies whose place is `address` without a swizzle."""
    return address ^ (((address >> 7) & ((1 << mode) - 1)) << 4)


@compiled
def fill_bytes(at: int, position: int, size: int, words: int) -> None:
    """Bytes of elements outside of the tensor: zeros, or the NaN that an H200 gives, whose halves
    are 0x7ff7 each."""
    nan = load_i64(words, a.M_FILL) != 0
    for i in range(size):
        byte = 0
        if nan:
            byte = 0x7F if (position + i) & 1 else 0xF7
        store_u8(at, i, uint8(byte))


@compiled
def move_piece(op: int, words: int, at: int, host: int, size: int) -> None:
    """Bytes of a row that lie together on both sides."""
    if load_i64(op, a.O_KIND) == a.TENSOR_TO_SHARED:
        copy_bytes(at, host, size)
    elif load_i64(op, a.O_HOW) != 0:
        reduce_bytes(host, at, size, load_i64(words, a.M_TYPE), load_i64(op, a.O_HOW))
    else:
        copy_bytes(host, at, size)


@compiled
def move_row(context: int, op: int, words: int, number: int, address: int) -> None:
    """One row of a box; `address` as `row_address` gives it."""
    element = load_i64(words, a.M_ELEMENT)
    mode = load_i64(words, a.M_SWIZZLE)
    size = taken(words, 0) * element
    low = first_inside(words, op) * element
    high = end_inside(words, op) * element
    if address < 0:
        low = 0
        high = 0
    host = 0
    if high > low:
        host = row_host(context, op, words, address)
    base = load_i64(op, a.O_SHARED) + number * size
    position = 0
    while position < size:
        # As far as the row goes, the chunk, an edge of the tensor.
        end = min(size, position + CHUNK - ((base + position) & (CHUNK - 1)))
        if position < low:
            end = min(end, low)
        elif position < high:
            end = min(end, high)
        at = shared_host(context, swizzled(base + position, mode))
        if position >= low and position < high:
            move_piece(op, words, at, host + position - low, end - position)
        elif load_i64(op, a.O_KIND) == a.TENSOR_TO_SHARED:
            fill_bytes(at, position, end - position, words)
        position = end


@compiled
def inside_bytes(op: int, words: int) -> int:
    """Bytes of a row that lie inside of the tensor."""
    count = end_inside(words, op) - first_inside(words, op)
    return count * load_i64(words, a.M_ELEMENT)


@compiled
def row_start(op: int, words: int, address: int) -> int:
    """Global address of a row's first element inside of the tensor."""
    return address + first_inside(words, op) * load_i64(words, a.M_ELEMENT)


@compiled
def row_host(context: int, op: int, words: int, address: int) -> int:
    """Host address of the same; 0 where no buffer has the row."""
    access = 1 if load_i64(op, a.O_KIND) == a.TENSOR_TO_SHARED else 2
    start = row_start(op, words, address)
    return buffer_host(context, start, inside_bytes(op, words), access)


@compiled
def move_box(context: int, op: int, words: int) -> None:
    """A tensor copy happens; `check_box` has seen it."""
    for number in range(rows_of(words, op)):
        move_row(context, op, words, number, row_address(words, op, number))


@compiled
def check_box(context: int, op: int, words: int) -> bool:
    """Whether buffers have all that a box touches; a fault where not. Tells the record of accesses
    about global memory."""
    size = inside_bytes(op, words)
    if size == 0:
        return True
    row = load_i64(op, a.O_ROW)
    warp = load_i64(op, a.O_WARP)
    loads = load_i64(op, a.O_KIND) == a.TENSOR_TO_SHARED
    number = own(context, warp, BULK)
    clock = load_i64(op, a.O_GROUP) + 1
    if loads:
        slot = load_i64(op, a.O_MBARRIER)
        number = mbarrier_component(context, slot // a.MBARRIERS, slot % a.MBARRIERS)
        clock = load_i64(op, a.O_PHASE) + 1
    for i in range(rows_of(words, op)):
        address = row_address(words, op, i)
        if address < 0:
            continue
        start = row_start(op, words, address)
        if global_host(context, row, start, size, 1 if loads else 2) == 0:
            return False
        if load_i64(context, y.C_SANITIZE) != 0:
            how = READ
            if not loads:
                how = ATOMIC if load_i64(op, a.O_HOW) != 0 else WRITE
            global_range(context, warp, row, start, size, how, number, clock)
    return True
