"""What cp.reduce.async and red.async do to an element of memory."""

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
    load_u16,
    load_u32,
    store_i64,
    store_u16,
    store_u32,
    uint16,
    uint32,
    uint64,
)
from mlagen.emulator.ptx.agents import agent_records as a
from mlagen.emulator.ptx.matrix.elements import half_value
from mlagen.emulator.ptx.matrix.fragments import half_bits

# O_HOW
ADD, MIN, MAX, INC, DEC, AND, OR, XOR = range(1, 9)


@compiled
def whole(old: int, new: int, how: int) -> int:
    """A reduction of whole numbers, of which each is held as its type says."""
    if how == ADD:
        return old + new
    if how == MIN:
        return min(old, new)
    if how == MAX:
        return max(old, new)
    if how == INC:
        return 0 if old >= new else old + 1
    if how == DEC:
        return new if old == 0 or old > new else old - 1
    if how == AND:
        return old & new
    if how == OR:
        return old | new
    return old ^ new


@compiled
def unsigned_64(old: int, new: int, how: int) -> int:
    """The same of u64 where the order counts."""
    if how == MIN:
        return old if uint64(old) < uint64(new) else new
    if how == MAX:
        return old if uint64(old) > uint64(new) else new
    return whole(old, new, how)


@compiled
def real(old: float, new: float, how: int) -> float:
    """The same of floats; the smaller and the larger of a NaN and a number is the number."""
    if how == ADD:
        return old + new
    if old != old:
        return new
    if new != new:
        return old
    if how == MIN:
        return new if new < old else old
    return new if new > old else old


@compiled
def bf16_bits(number: float) -> int:
    """bf16 of an f32, to nearest even."""
    bits = int64(bits_of(number))
    if number != number:
        return 0x7FFF
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@compiled
def reduce_16(at: int, source: int, type_: int, how: int) -> None:
    """An element of f16 or bf16, or a whole one of 16 bits."""
    old = int64(load_u16(at, 0))
    new = int64(load_u16(source, 0))
    if type_ == a.T_F16:
        result = half_bits(real(half_value(old), half_value(new), how))
    elif type_ == a.T_BF16:
        first = f32_of(uint32(old << 16))
        result = bf16_bits(real(first, f32_of(uint32(new << 16)), how))
    else:
        result = whole(old, new, how)
    store_u16(at, 0, uint16(result))


@compiled
def signed_32(word: int) -> int:
    """The number of 32 bits."""
    return (word ^ 0x80000000) - 0x80000000


@compiled
def reduce_32(at: int, source: int, type_: int, how: int) -> None:
    """An element of 32 bits."""
    old = int64(load_u32(at, 0))
    new = int64(load_u32(source, 0))
    if type_ == a.T_F32:
        sum_ = real(f32_of(uint32(old)), f32_of(uint32(new)), how)
        bits = int64(bits_of(float32(sum_)))
        store_u32(at, 0, uint32(bits))
    elif type_ == a.T_S32:
        store_u32(at, 0, uint32(whole(signed_32(old), signed_32(new), how) & 0xFFFFFFFF))
    else:
        store_u32(at, 0, uint32(whole(old, new, how) & 0xFFFFFFFF))


@compiled
def reduce_64(at: int, source: int, type_: int, how: int) -> None:
    """An element of 64 bits."""
    old = load_i64(at, 0)
    new = load_i64(source, 0)
    if type_ == a.T_F64:
        store_i64(at, 0, bits_of_f64(f64_of(old) + f64_of(new)))
    elif type_ == a.T_S64:
        store_i64(at, 0, whole(old, new, how))
    else:
        store_i64(at, 0, unsigned_64(old, new, how))


@compiled
def reduce_bytes(at: int, source: int, size: int, type_: int, how: int) -> None:
    """`size` bytes of elements at host addresses."""
    step = element_bytes(type_)
    for i in range(size // step):
        if step == 2:
            reduce_16(at + 2 * i, source + 2 * i, type_, how)
        elif step == 4:
            reduce_32(at + 4 * i, source + 4 * i, type_, how)
        else:
            reduce_64(at + 8 * i, source + 8 * i, type_, how)


@compiled
def element_bytes(type_: int) -> int:
    """Bytes of an element of a type (a T_ number)."""
    if type_ == a.T_U8:
        return 1
    if type_ == a.T_U16 or type_ == a.T_F16 or type_ == a.T_BF16:
        return 2
    if type_ == a.T_U64 or type_ == a.T_S64 or type_ == a.T_F64:
        return 8
    return 4
