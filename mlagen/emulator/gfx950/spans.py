"""Memory accesses of a whole wave as LLVM vector code: data, transposes, shadow state.

`addresses` is the address of 64 int64 words, one a lane; a lane's byte offset from `base` is its
word shifted right by `shift`. Nothing is checked here: callers know that all lanes are active and
that every access lies inside `base`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I8 = ir.IntType(8)
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_WIDE = ir.VectorType(_I32, 16)


def _vector(dwords: int) -> Any:
    return ir.VectorType(_I32, dwords)


def _int(value: int) -> Any:
    return ir.Constant(_I64, value)


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _plus(builder: Any, address: Any, index: Any, scale: int) -> Any:
    return builder.add(address, builder.mul(index, _int(scale)))


def _splat(builder: Any, scalar: Any, lanes: int) -> Any:
    kind = ir.VectorType(scalar.type, lanes)
    undef = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undef, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undef, ir.Constant(_vector(lanes), [0] * lanes))


def _shuffle(builder: Any, x: Any, y: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(x, y, ir.Constant(_vector(len(order)), order))


def _lane_address(builder: Any, base: Any, addresses: Any, shift: Any, lane: Any) -> Any:
    word = builder.load(_pointer(builder, _plus(builder, addresses, lane, 8), _I64), align=8)
    return builder.add(base, builder.lshr(word, shift))


def _join(builder: Any, parts: list[Any]) -> Any:
    """Vectors of equal length one after the other; their number is a power of two."""
    while len(parts) > 1:
        order = list(range(2 * parts[0].type.count))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffle(builder, x, y, order) for x, y in pairs]
    return parts[0]


def _void(build: Any, arguments: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        build(builder, *args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * arguments), generate


def _umax(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.icmp_unsigned(">", x, y), x, y)


def _largest(builder: Any, vector: Any) -> Any:
    """The largest element of a vector of unsigned dwords, as 64 bits."""
    count = vector.type.count
    while count > 1:
        half = count // 2
        upper = _shuffle(builder, vector, vector, list(range(half, count)))
        vector = _umax(builder, _shuffle(builder, vector, vector, list(range(half))), upper)
        count = half
    return builder.zext(builder.extract_element(vector, ir.Constant(_I32, 0)), _I64)


# ---- addresses


def _offsets(context: Any, row: Any, offset: Any, addresses: Any) -> Any:
    """addresses[lane] = (row[lane] + offset) mod 2^32; returns the largest << 32 | the bits set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row_address, offset_word, target = args
        extra = _splat(builder, builder.trunc(offset_word, _I32), 16)
        highest = ir.Constant(_WIDE, [0] * 16)
        union = ir.Constant(_WIDE, [0] * 16)
        for chunk in range(4):
            place = builder.add(row_address, _int(64 * chunk))
            words = builder.load(_pointer(builder, place, _WIDE), align=4)
            words = builder.add(words, extra)
            highest, union = _umax(builder, highest, words), builder.or_(union, words)
            wide = builder.zext(words, ir.VectorType(_I64, 16))
            out = _pointer(builder, builder.add(target, _int(128 * chunk)), wide.type)
            builder.store(wide, out, align=8)
        count = 16
        while count > 1:
            count //= 2
            upper = _shuffle(builder, union, union, list(range(count, 2 * count)))
            union = builder.or_(_shuffle(builder, union, union, list(range(count))), upper)
        bits = builder.zext(builder.extract_element(union, ir.Constant(_I32, 0)), _I64)
        return builder.or_(builder.shl(_largest(builder, highest), _int(32)), bits)

    return types.int64(*[types.int64] * 3), generate


# ---- data


def _gather(dwords: int) -> Any:
    """An intrinsic f(out, base, addresses, shift): `dwords` dwords a lane to register rows."""

    def typing(context: Any, out: Any, base: Any, addresses: Any, shift: Any) -> Any:
        def build(builder: Any, out: Any, base: Any, addresses: Any, shift: Any) -> None:
            kind = _vector(dwords)
            with cgutils.for_range(builder, _int(16)) as loop:
                first = builder.mul(loop.index, _int(4))
                parts = []
                for i in range(4):
                    lane = builder.add(first, _int(i))
                    place = _lane_address(builder, base, addresses, shift, lane)
                    parts.append(builder.load(_pointer(builder, place, kind), align=1))
                joined = _join(builder, parts)
                for dword in range(dwords):
                    order = [lane * dwords + dword for lane in range(4)]
                    values = _shuffle(builder, joined, joined, order)
                    row = builder.add(_plus(builder, out, loop.index, 16), _int(256 * dword))
                    builder.store(values, _pointer(builder, row, _vector(4)), align=4)

        return _void(build, 4)

    return intrinsic(typing)


def _copy(dwords: int) -> Any:
    """An intrinsic f(out, base, addresses, shift): `dwords` dwords a lane, lane after lane."""

    def typing(context: Any, out: Any, base: Any, addresses: Any, shift: Any) -> Any:
        def build(builder: Any, out: Any, base: Any, addresses: Any, shift: Any) -> None:
            kind = _vector(dwords)
            with cgutils.for_range(builder, _int(64)) as loop:
                place = _lane_address(builder, base, addresses, shift, loop.index)
                value = builder.load(_pointer(builder, place, kind), align=1)
                target = _plus(builder, out, loop.index, 4 * dwords)
                builder.store(value, _pointer(builder, target, kind), align=4)

        return _void(build, 4)

    return intrinsic(typing)


def _transposing(bits: int) -> Any:
    """An intrinsic f(out, base, addresses, shift): ds_read_b64_tr of 8- or 16-bit elements.

    16 lanes supply a row-major tile of 16 columns; lane j of them receives column j. Interleaving
    rows i and i + n/2 level by level brings the rows of a column together.
    """
    element, rows = (_I8, 8) if bits == 8 else (_I16, 4)
    share = 16 // rows  # lanes that hold a row

    def typing(context: Any, out: Any, base: Any, addresses: Any, shift: Any) -> Any:
        def build(builder: Any, out: Any, base: Any, addresses: Any, shift: Any) -> None:
            kind = ir.VectorType(element, 16 // share)
            with cgutils.for_range(builder, _int(4)) as loop:
                first = builder.mul(loop.index, _int(16))
                tile = []
                for row in range(rows):
                    parts = []
                    for i in range(share):
                        lane = builder.add(first, _int(row * share + i))
                        place = _lane_address(builder, base, addresses, shift, lane)
                        parts.append(builder.load(_pointer(builder, place, kind), align=1))
                    tile.append(_join(builder, parts))
                while len(tile) > 1:
                    half, count = len(tile) // 2, tile[0].type.count
                    order = [i // 2 + (i % 2) * count for i in range(2 * count)]
                    pairs = zip(tile[:half], tile[half:], strict=True)
                    tile = [_shuffle(builder, x, y, order) for x, y in pairs]
                words = builder.bitcast(tile[0], _vector(32))
                for dword in range(2):
                    values = _shuffle(builder, words, words, list(range(dword, 32, 2)))
                    row = builder.add(_plus(builder, out, loop.index, 64), _int(256 * dword))
                    builder.store(values, _pointer(builder, row, _WIDE), align=4)

        return _void(build, 4)

    return intrinsic(typing)


# ---- shadow state: one unsigned dword for each dword of LDS, at the same byte offset


def _scan(dwords: int) -> Any:
    """An intrinsic f(shadow, addresses, bias): the largest shadow value less `bias` (mod 2^32)."""

    def typing(context: Any, shadow: Any, addresses: Any, bias: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base, words, bias_word = args
            kind = _vector(dwords)
            less = _splat(builder, builder.trunc(bias_word, _I32), dwords)
            found = cgutils.alloca_once_value(builder, ir.Constant(kind, [0] * dwords))
            with cgutils.for_range(builder, _int(64)) as loop:
                place = _lane_address(builder, base, words, _int(0), loop.index)
                value = builder.load(_pointer(builder, place, kind), align=4)
                value = builder.sub(value, less)
                builder.store(_umax(builder, builder.load(found), value), found)
            return _largest(builder, builder.load(found))

        return types.int64(*[types.int64] * 3), generate

    return intrinsic(typing)


def _mark(dwords: int) -> Any:
    """An intrinsic f(shadow, addresses, value): set the shadow of all accesses."""

    def typing(context: Any, shadow: Any, addresses: Any, value: Any) -> Any:
        def build(builder: Any, base: Any, words: Any, value: Any) -> None:
            kind = _vector(dwords)
            number = _splat(builder, builder.trunc(value, _I32), dwords)
            with cgutils.for_range(builder, _int(64)) as loop:
                place = _lane_address(builder, base, words, _int(0), loop.index)
                builder.store(number, _pointer(builder, place, kind), align=4)

        return _void(build, 3)

    return intrinsic(typing)


def _scan_range(context: Any, shadow: Any, chunks: Any) -> Any:
    """The largest of 16 * chunks dwords."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base, count = args
        found = cgutils.alloca_once_value(builder, ir.Constant(_WIDE, [0] * 16))
        with cgutils.for_range(builder, count) as loop:
            place = _plus(builder, base, loop.index, 64)
            value = builder.load(_pointer(builder, place, _WIDE), align=4)
            builder.store(_umax(builder, builder.load(found), value), found)
        return _largest(builder, builder.load(found))

    return types.int64(types.int64, types.int64), generate


def _fill_range(context: Any, target: Any, chunks: Any, value: Any) -> Any:
    """Store a dword 16 * chunks times."""

    def build(builder: Any, base: Any, count: Any, value: Any) -> None:
        number = _splat(builder, builder.trunc(value, _I32), 16)
        with cgutils.for_range(builder, count) as loop:
            place = _plus(builder, base, loop.index, 64)
            builder.store(number, _pointer(builder, place, _WIDE), align=4)

    return _void(build, 3)


form_offsets: Any = intrinsic(_offsets)
gather_b64 = _gather(2)
gather_b128 = _gather(4)
copy_b32 = _copy(1)
copy_b128 = _copy(4)
transpose_b8 = _transposing(8)
transpose_b16 = _transposing(16)
scan_b32 = _scan(1)
scan_b64 = _scan(2)
scan_b128 = _scan(4)
mark_b32 = _mark(1)
mark_b64 = _mark(2)
mark_b128 = _mark(4)
scan_range: Any = intrinsic(_scan_range)
fill_range: Any = intrinsic(_fill_range)
