"""Operations on rows of 64 dwords as LLVM vectors, for the instructions that kernels are made of.

Each is an intrinsic `f(out, a, b, c, keep, aux)` on row addresses. A chunk of lanes is read whole
before it is written, so `out` may be any of the sources, but not overlap one shifted. f32 operands
and results are flushed as `keep` says: 0x80000000 makes denormals signed zeros, all ones keeps
them.

exp2 goes through a polynomial of degree 13 in double precision and is rounded once more, to f32: so
it is correctly rounded but for about one case in 2^27; rcp is always. Conversions round to nearest
even.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 16  # lanes a chunk: two AVX2 registers, one of AVX-512

_I1 = ir.IntType(1)
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_INTS = ir.VectorType(_I32, WIDTH)
_LONGS = ir.VectorType(_I64, WIDTH)
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
_BITS = ir.VectorType(_I1, WIDTH)
_EXP2_TERMS = [math.log(2.0) ** n / math.factorial(n) for n in range(14)]


class Chunk:
    """Builds code for one chunk of lanes: LLVM values in, LLVM values out."""

    def __init__(self, builder: Any, keep: Any) -> None:
        self.builder = builder
        self.keep = self.splat(builder.trunc(keep, _I32))

    def splat(self, scalar: Any) -> Any:
        undef = ir.Constant(_INTS, ir.Undefined)
        first = self.builder.insert_element(undef, scalar, ir.Constant(_I32, 0))
        return self.builder.shuffle_vector(first, undef, ir.Constant(_INTS, [0] * WIDTH))

    def const(self, value: int) -> Any:
        return ir.Constant(_INTS, [value] * WIDTH)

    def number(self, value: float, kind: Any = _FLOATS) -> Any:
        return ir.Constant(kind, [value] * WIDTH)

    def flush(self, bits: Any) -> Any:
        build = self.builder
        exponent = build.and_(bits, self.const(0x7F800000))
        denormal = build.icmp_unsigned("==", exponent, self.const(0))
        return build.select(denormal, build.and_(bits, self.keep), bits)

    def floats(self, bits: Any) -> Any:
        return self.builder.bitcast(self.flush(bits), _FLOATS)

    def bits(self, floats: Any) -> Any:
        return self.builder.bitcast(floats, _INTS)

    def result(self, floats: Any) -> Any:
        return self.flush(self.bits(floats))

    def call(self, name: str, kind: Any, *operands: Any) -> Any:
        suffix = {id(_FLOATS): "f32", id(_DOUBLES): "f64"}[id(kind)]
        signature = ir.FunctionType(kind, [kind] * len(operands))
        full = f"llvm.{name}.v{WIDTH}{suffix}"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, signature, full), operands
        )

    def extremum(self, x: Any, y: Any, larger: bool) -> Any:
        """max_f32 / min_f32 of floats: a NaN loses, +0 lies over -0."""
        build = self.builder
        first = build.fcmp_unordered(">" if larger else "<", x, y)
        best = build.select(first, x, y)
        best = build.select(build.fcmp_unordered("uno", x, x), y, best)
        combine = build.and_ if larger else build.or_
        both = build.bitcast(combine(self.bits(x), self.bits(y)), _FLOATS)
        return build.select(build.fcmp_ordered("==", x, y), both, best)

    def mask(self, word: Any, chunk: int | Any) -> Any:
        """The bits of a 64-bit lane mask that belong to a chunk (its number)."""
        shift = self.builder.mul(chunk, ir.Constant(_I64, WIDTH))
        part = self.builder.trunc(self.builder.lshr(word, shift), _I16)
        return self.builder.bitcast(part, _BITS)


def _load(builder: Any, row: Any, chunk: Any) -> Any:
    place = builder.add(row, builder.mul(chunk, ir.Constant(_I64, 4 * WIDTH)))
    return builder.load(builder.inttoptr(place, _INTS.as_pointer()), align=4)


def _store(builder: Any, row: Any, chunk: Any, value: Any) -> None:
    place = builder.add(row, builder.mul(chunk, ir.Constant(_I64, 4 * WIDTH)))
    builder.store(value, builder.inttoptr(place, _INTS.as_pointer()), align=4)


Body = Callable[[Chunk, Any, Any, Any, Any], Any]


def _rows(body: Body) -> Any:
    """An intrinsic that computes out = body(chunk, a, b, c, aux) chunk by chunk."""

    def typing(
        context: Any, out: Any, a: Any, b: Any, c: Any, keep: Any, aux: Any
    ) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out_row, *rows, keep_word, aux_word = args
            chunk = Chunk(builder, keep_word)
            extra = chunk.splat(builder.trunc(aux_word, _I32))
            with cgutils.for_range(builder, ir.Constant(_I64, 64 // WIDTH)) as loop:
                first, second, third = (_load(builder, row, loop.index) for row in rows)
                _store(builder, out_row, loop.index, body(chunk, first, second, third, extra))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return intrinsic(typing)


# ---- f32 arithmetic


def _mul(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.builder.fmul(t.floats(a), t.floats(b)))


def _add(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.builder.fadd(t.floats(a), t.floats(b)))


def _sub(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.builder.fsub(t.floats(a), t.floats(b)))


def _fma(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.call("fma", _FLOATS, t.floats(a), t.floats(b), t.floats(c)))


def _max(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.extremum(t.floats(a), t.floats(b), True))


def _min(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.extremum(t.floats(a), t.floats(b), False))


def _max3(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    two = t.extremum(t.floats(a), t.floats(b), True)
    return t.result(t.extremum(two, t.floats(c), True))


def _min3(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    two = t.extremum(t.floats(a), t.floats(b), False)
    return t.result(t.extremum(two, t.floats(c), False))


def _rcp(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return t.result(t.builder.fdiv(t.number(1.0), t.floats(a)))


def _exp2(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    build = t.builder
    x = t.floats(a)
    wide = build.fpext(x, _DOUBLES)
    low, high = t.number(-200.0, _DOUBLES), t.number(200.0, _DOUBLES)
    wide = build.select(build.fcmp_ordered(">", wide, low), wide, low)
    wide = build.select(build.fcmp_ordered("<", wide, high), wide, high)
    whole = t.call("floor", _DOUBLES, build.fadd(wide, t.number(0.5, _DOUBLES)))
    r = build.fsub(wide, whole)
    p = t.number(_EXP2_TERMS[-1], _DOUBLES)
    for term in reversed(_EXP2_TERMS[:-1]):
        p = t.call("fma", _DOUBLES, p, r, t.number(term, _DOUBLES))
    exponent = build.zext(build.add(build.fptosi(whole, _INTS), t.const(1023)), _LONGS)
    scale = build.shl(exponent, ir.Constant(_LONGS, [52] * WIDTH))
    value = build.fptrunc(build.fmul(p, build.bitcast(scale, _DOUBLES)), _FLOATS)
    return t.result(build.select(build.fcmp_unordered("uno", x, x), x, value))


# ---- conversions


def _bf16(t: Chunk, bits: Any) -> Any:
    """Lower half: f32 bits rounded to bf16, to nearest even; NaNs stay, made quiet."""
    build = t.builder
    top = build.lshr(bits, t.const(16))
    odd = build.and_(top, t.const(1))
    rounded = build.add(build.add(bits, t.const(0x7FFF)), odd)
    magnitude = build.and_(bits, t.const(0x7FFFFFFF))
    nan = build.icmp_unsigned(">", magnitude, t.const(0x7F800000))
    quiet = build.or_(top, t.const(0x40))
    return build.select(nan, quiet, build.lshr(rounded, t.const(16)))


def _pack_bf16(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    high = t.builder.shl(_bf16(t, t.flush(b)), t.const(16))
    return t.builder.or_(_bf16(t, t.flush(a)), high)


def _e4m3(t: Chunk, bits: Any, overflow: Any) -> Any:
    """f32 bits to e4m3 codes, to nearest even; what lies beyond 448 becomes `overflow`."""
    build = t.builder
    magnitude = build.and_(bits, t.const(0x7FFFFFFF))
    odd = build.and_(build.lshr(magnitude, t.const(20)), t.const(1))
    rounded = build.add(build.add(magnitude, t.const(0x7FFFF)), odd)
    normal = build.sub(build.lshr(rounded, t.const(20)), t.const(120 << 3))
    # Denormal codes count units of 2^-9, and so does the last place of 2^14.
    unit = t.number(16384.0)
    shifted = t.bits(build.fadd(build.bitcast(magnitude, _FLOATS), unit))
    small = build.sub(shifted, t.const(0x46800000))
    below = build.icmp_unsigned("<", magnitude, t.const(0x3C800000))  # 2^-6
    code = build.select(below, small, normal)
    code = build.select(build.icmp_unsigned(">", code, t.const(0x7E)), overflow, code)
    nan = build.icmp_unsigned(">", magnitude, t.const(0x7F800000))
    code = build.select(nan, t.const(0x7F), code)
    return build.or_(code, build.and_(build.lshr(bits, t.const(24)), t.const(0x80)))


def _pack_e4m3(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    overflow = t.builder.sub(t.const(0x7F), aux)  # aux: 1 to clamp
    high = t.builder.shl(_e4m3(t, t.flush(b), overflow), t.const(8))
    return t.builder.or_(_e4m3(t, t.flush(a), overflow), high)


# ---- integers


def _mov(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    return a


def _shift(t: Chunk, amount: Any) -> Any:
    return t.builder.and_(amount, t.const(31))


def _signed24(t: Chunk, x: Any) -> Any:
    return t.builder.ashr(t.builder.shl(x, t.const(8)), t.const(8))


def _perm(t: Chunk, a: Any, b: Any, c: Any, aux: Any) -> Any:
    """v_perm_b32: each byte of `c` picks one of the eight of a:b, a sign or a constant.

    0..7: a byte; 8..11: the sign of a 16-bit half; 12: zero; 13 and above: 0xFF (ISA guide).
    """
    build = t.builder
    value = t.const(0)
    for byte in range(4):
        select = build.and_(build.lshr(c, t.const(8 * byte)), t.const(0xFF))
        upper = build.icmp_unsigned("!=", build.and_(select, t.const(4)), t.const(0))
        place = build.shl(build.and_(select, t.const(3)), t.const(3))
        plain = build.lshr(build.select(upper, a, b), place)
        word = build.select(build.icmp_unsigned(">=", select, t.const(10)), a, b)
        odd = build.icmp_unsigned("!=", build.and_(select, t.const(1)), t.const(0))
        sign = build.ashr(build.select(odd, word, build.shl(word, t.const(16))), t.const(31))
        sign = build.select(build.icmp_unsigned("==", select, t.const(12)), t.const(0), sign)
        sign = build.select(build.icmp_unsigned(">", select, t.const(12)), t.const(-1), sign)
        picked = build.select(build.icmp_unsigned("<", select, t.const(8)), plain, sign)
        picked = build.and_(picked, t.const(0xFF))
        value = build.or_(value, build.shl(picked, t.const(8 * byte)))
    return value


row_mul = _rows(_mul)
row_add = _rows(_add)
row_sub = _rows(_sub)
row_fma = _rows(_fma)
row_max = _rows(_max)
row_min = _rows(_min)
row_max3 = _rows(_max3)
row_min3 = _rows(_min3)
row_rcp = _rows(_rcp)
row_exp2 = _rows(_exp2)
row_pack_bf16 = _rows(_pack_bf16)
row_pack_e4m3 = _rows(_pack_e4m3)
row_mov = _rows(_mov)
row_perm = _rows(_perm)
row_add_u32 = _rows(lambda t, a, b, c, aux: t.builder.add(a, b))
row_sub_u32 = _rows(lambda t, a, b, c, aux: t.builder.sub(a, b))
row_add3 = _rows(lambda t, a, b, c, aux: t.builder.add(t.builder.add(a, b), c))
row_and = _rows(lambda t, a, b, c, aux: t.builder.and_(a, b))
row_or = _rows(lambda t, a, b, c, aux: t.builder.or_(a, b))
row_xor = _rows(lambda t, a, b, c, aux: t.builder.xor(a, b))
row_shift_left = _rows(lambda t, a, b, c, aux: t.builder.shl(b, _shift(t, a)))
row_shift_right = _rows(lambda t, a, b, c, aux: t.builder.lshr(b, _shift(t, a)))
row_shift_arithmetic = _rows(lambda t, a, b, c, aux: t.builder.ashr(b, _shift(t, a)))
row_shift_add = _rows(lambda t, a, b, c, aux: t.builder.add(t.builder.shl(a, _shift(t, b)), c))
row_add_shift = _rows(lambda t, a, b, c, aux: t.builder.shl(t.builder.add(a, b), _shift(t, c)))
row_shift_or = _rows(lambda t, a, b, c, aux: t.builder.or_(t.builder.shl(a, _shift(t, b)), c))
row_and_or = _rows(lambda t, a, b, c, aux: t.builder.or_(t.builder.and_(a, b), c))
row_mul_lo = _rows(lambda t, a, b, c, aux: t.builder.mul(a, b))
row_mul_i24 = _rows(lambda t, a, b, c, aux: t.builder.mul(_signed24(t, a), _signed24(t, b)))
row_signs = _rows(lambda t, a, b, c, aux: t.builder.xor(t.builder.and_(a, t.keep), aux))
"""Float source modifiers: clear the bits that are not in `keep`, then flip those of `aux`."""
row_low_halves = _rows(
    lambda t, a, b, c, aux: t.builder.or_(
        t.builder.and_(a, t.const(-0x10000)), t.builder.and_(b, t.const(0xFFFF))
    )
)
"""Upper halves of `a`, lower halves of `b`."""
row_high_halves = _rows(
    lambda t, a, b, c, aux: t.builder.or_(
        t.builder.and_(a, t.const(0xFFFF)), t.builder.shl(b, t.const(16))
    )
)
"""Lower halves of `a`, the lower halves of `b` over them."""


# ---- lane masks


def _row_select(context: Any, out: Any, a: Any, b: Any, mask: Any) -> Any:
    """out = b in the lanes of `mask`, a elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_row, a_row, b_row, mask_word = args
        chunk = Chunk(builder, ir.Constant(_I64, 0))
        with cgutils.for_range(builder, ir.Constant(_I64, 64 // WIDTH)) as loop:
            a_part, b_part = (_load(builder, row, loop.index) for row in (a_row, b_row))
            taken = chunk.mask(mask_word, loop.index)
            _store(builder, out_row, loop.index, builder.select(taken, b_part, a_part))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


def _gather_mask(builder: Any, chunk_masks: list[Any]) -> Any:
    word = ir.Constant(_I64, 0)
    for number, bits in enumerate(chunk_masks):
        part = builder.zext(builder.bitcast(bits, _I16), _I64)
        word = builder.or_(word, builder.shl(part, ir.Constant(_I64, WIDTH * number)))
    return word


def _relation(kind: str) -> Any:
    """An intrinsic f(a, b, relation, keep): lanes where a < b (bit 0), a == b (1), a > b (2)."""

    def typing(context: Any, a: Any, b: Any, relation: Any, keep: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a_row, b_row, relation_word, keep_word = args
            chunk = Chunk(builder, keep_word)
            wanted = [
                builder.icmp_unsigned(
                    "!=", builder.and_(relation_word, ir.Constant(_I64, bit)), ir.Constant(_I64, 0)
                )
                for bit in (1, 2, 4)
            ]
            compare = {
                "f32": builder.fcmp_ordered,
                "i32": builder.icmp_signed,
                "u32": builder.icmp_unsigned,
            }[kind]
            found: list[list[Any]] = [[], [], []]
            for number in range(64 // WIDTH):
                part = ir.Constant(_I64, number)
                x, y = (_load(builder, row, part) for row in (a_row, b_row))
                if kind == "f32":
                    x, y = chunk.floats(x), chunk.floats(y)
                for masks, sign in zip(found, ("<", "==", ">"), strict=True):
                    masks.append(compare(sign, x, y))
            word = ir.Constant(_I64, 0)
            for want, masks in zip(wanted, found, strict=True):
                lanes = _gather_mask(builder, masks)
                word = builder.or_(word, builder.select(want, lanes, ir.Constant(_I64, 0)))
            return word

        return types.int64(*[types.int64] * 4), generate

    return intrinsic(typing)


def _carry(subtract: bool) -> Any:
    """An intrinsic f(out, a, b, carry_in): sums (differences) and the lanes that carry (borrow)."""

    def typing(context: Any, out: Any, a: Any, b: Any, carry: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out_row, a_row, b_row, carry_word = args
            chunk = Chunk(builder, ir.Constant(_I64, 0))
            carries = []
            for number in range(64 // WIDTH):
                part = ir.Constant(_I64, number)
                x, y = (_load(builder, row, part) for row in (a_row, b_row))
                extra = builder.zext(chunk.mask(carry_word, part), _INTS)
                if subtract:
                    first = builder.sub(x, y)
                    value = builder.sub(first, extra)
                    over = builder.icmp_unsigned("<", x, y)
                    again = builder.icmp_unsigned("<", first, extra)
                else:
                    first = builder.add(x, y)
                    value = builder.add(first, extra)
                    over = builder.icmp_unsigned("<", first, x)
                    again = builder.icmp_unsigned("<", value, first)
                carries.append(builder.or_(over, again))
                _store(builder, out_row, part, value)
            return _gather_mask(builder, carries)

        return types.int64(*[types.int64] * 4), generate

    return intrinsic(typing)


row_select: Any = intrinsic(_row_select)
lanes_f32 = _relation("f32")
lanes_i32 = _relation("i32")
lanes_u32 = _relation("u32")
row_add_carry = _carry(False)
row_sub_borrow = _carry(True)
