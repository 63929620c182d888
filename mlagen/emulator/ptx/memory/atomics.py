"""atom and red: lanes one after the other, in ascending order."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import (
    bits_of,
    bits_of_f64,
    f32_of,
    f64_of,
    float32,
    int64,
    load_i64,
    store_i64,
    uint32,
)
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.memory.halves import lesser_half, sum_of_halves
from mlagen.emulator.ptx.memory.items import (
    HIGH,
    item_at,
    poison_lanes,
    put_item,
    put_register,
    register_value,
)
from mlagen.emulator.ptx.memory.spaces import note_accesses, resolve
from mlagen.emulator.ptx.memory.strong import order_all
from mlagen.emulator.ptx.order.meeting import ATOMIC
from mlagen.emulator.ptx.state import give_way, listed, moved, place, program_row

_NAN = 0x7FFFFFFF
_SIGN = -1 << 63


@compiled
def flushed(word: int, flush: bool) -> int:
    """A denormal f32 as a zero with its sign, where global memory's adders make it one."""
    if flush and word & 0x7F800000 == 0:
        return word & 0x80000000
    return word


@compiled
def sum_of_words(old: int, own: int, flush: bool) -> int:
    """The sum of two f32."""
    one = f32_of(uint32(flushed(old, flush)))
    other = f32_of(uint32(flushed(own, flush)))
    total = int64(bits_of(float32(one + other)))
    if total & 0x7FFFFFFF > 0x7F800000:
        return _NAN
    return flushed(total, flush)


@compiled
def float_value(op: int, kind: int, old: int, own: int, flush: bool) -> int:
    """What replaces a float, or two halves."""
    if kind == z.F32:
        return sum_of_words(old, own, flush)
    if kind == z.F64:
        return bits_of_f64(f64_of(old) + f64_of(own))
    bf16 = kind == z.BF16 or kind == z.BF16X2
    halves = 2 if kind >= z.F16X2 else 1
    value = 0
    for half in range(halves):
        one = (old >> (16 * half)) & 0xFFFF
        other = (own >> (16 * half)) & 0xFFFF
        if op == z.ADD:
            found = sum_of_halves(one, other, bf16)
        else:
            found = lesser_half(one, other, bf16, op == z.MAX)
        value |= found << (16 * half)
    return value


@compiled
def whole_value(op: int, kind: int, size: int, old: int, own: int) -> int:
    """What replaces an integer; both without sign above `size` bytes."""
    if op == z.ADD:
        return old + own
    if op == z.AND:
        return old & own
    if op == z.OR:
        return old | own
    if op == z.XOR:
        return old ^ own
    if op == z.MIN or op == z.MAX:
        one = old
        other = own
        if size == 8:
            if kind == z.UNSIGNED:
                one = old ^ _SIGN
                other = own ^ _SIGN
        elif kind == z.SIGNED_INTEGER:
            one = (old << 32) >> 32
            other = (own << 32) >> 32
        return old if (one < other) == (op == z.MIN) else own
    if op == z.INC:
        return 0 if old >= own else old + 1
    if op == z.DEC:
        return own if old == 0 or old > own else old - 1
    return own  # EXCH


@compiled
def exchange_wide(context: int, warp: int, p: int, lane: int, host: int) -> bool:
    """exch and cas of 16 bytes; whether memory changed."""
    temp = load_i64(context, y.C_TEMP)
    low = item_at(host, 8, False)
    high = item_at(host + 8, 8, False)
    store_i64(temp, z.OLD + lane, low)
    store_i64(temp, z.OLD + y.LANES + lane, high)
    own = place(context, warp, listed(context, p, 2))
    if load_i64(p, y.P_OP) == z.CAS:
        if load_i64(own, lane) != low or load_i64(own + HIGH, lane) != high:
            return False
        own = place(context, warp, listed(context, p, 4))
    new_low = load_i64(own, lane)
    new_high = load_i64(own + HIGH, lane)
    put_item(host, 8, new_low)
    put_item(host + 8, 8, new_high)
    return new_low != low or new_high != high


@compiled
def exchange(context: int, warp: int, p: int, lane: int, item: int, flush: bool) -> bool:
    """One atomic operation; whether memory changed."""
    temp = load_i64(context, y.C_TEMP)
    size = load_i64(p, y.P_AUX + z.ITEM_BYTES)
    host = load_i64(temp, z.HOSTS + lane) + item * size
    if size == 16:
        return exchange_wide(context, warp, p, lane, host)
    items = load_i64(p, y.P_AUX + z.ITEMS)
    op = load_i64(p, y.P_OP)
    kind = load_i64(p, y.P_AUX + z.ARITHMETIC)
    bits = listed(context, p, 3 * items + item)
    own = register_value(place(context, warp, listed(context, p, 2 * items + item)), lane, bits)
    cut = (1 << (8 * size)) - 1 if size < 8 else -1
    own &= cut
    old = item_at(host, size, False)
    store_i64(temp, z.OLD + item * y.LANES + lane, old)
    if op == z.CAS:
        if old != own:
            return False
        other = place(context, warp, listed(context, p, 4 * items + item))
        value = register_value(other, lane, listed(context, p, 5 * items + item)) & cut
    elif kind >= z.F32:
        value = float_value(op, kind, old, own, flush)
    else:
        value = whole_value(op, kind, size, old, own) & cut
    put_item(host, size, value)
    return value != old


@compiled
def keep_old(context: int, warp: int, p: int, good: int, bad: int) -> None:
    """Write what was in memory before to the destination; poison where the access was refused."""
    temp = load_i64(context, y.C_TEMP)
    items = load_i64(p, y.P_AUX + z.ITEMS)
    for item in range(items):
        where = listed(context, p, item)
        if where == y.NONE:
            continue
        destination = place(context, warp, where)
        bits = listed(context, p, items + item)
        for lane in range(y.LANES):
            if (good >> lane) & 1:
                old = load_i64(temp, z.OLD + item * y.LANES + lane)
                if bits == 128:
                    store_i64(destination, lane, old)
                    above = load_i64(temp, z.OLD + y.LANES + lane)
                    store_i64(destination + HIGH, lane, above)
                else:
                    put_register(destination, lane, bits, old)
        if bad != 0:
            poison_lanes(destination, bits, bad)


@compiled
def run_atomic(context: int, warp: int, row: int, mask: int) -> int:
    """NEXT. The list: for each item the place and bits of the destination, of the operand, and for
    cas of the new value, all items of one after all of the other."""
    p = program_row(context, row)
    temp = load_i64(context, y.C_TEMP)
    items = load_i64(p, y.P_AUX + z.ITEMS)
    size = load_i64(p, y.P_AUX + z.ITEM_BYTES) * items
    good = resolve(context, warp, row, mask, size, 3)
    if load_i64(context, y.C_FAULT_KIND) != 0:
        return y.NEXT
    flags = load_i64(p, y.P_FLAGS)
    if load_i64(context, y.C_SANITIZE) != 0:
        note_accesses(context, warp, row, size, ATOMIC)
        if flags & z.RELEASE != 0:
            order_all(context, warp, True)
    in_global = load_i64(temp, z.GLOBAL_LANES)
    changed = False
    for lane in range(y.LANES):
        if (good >> lane) & 1:
            for item in range(items):
                if exchange(context, warp, p, lane, item, (in_global >> lane) & 1 != 0):
                    changed = True
    keep_old(context, warp, p, good, mask & ~good)
    if changed:
        moved(context)
    elif listed(context, p, 0) != y.NONE:  # it may ask for what another warp has to change
        give_way(context, warp)
    if flags & z.ACQUIRE != 0 and load_i64(context, y.C_SANITIZE) != 0:
        order_all(context, warp, False)
    return y.NEXT
