"""Operations on rows of 64 dwords as LLVM vectors, for the instructions that kernels are made of.

Each is a body of `row_operation`, or an intrinsic `f(out, a, b, c, keep, aux)` on row addresses. A
chunk of lanes is read whole before it is written, so `out` may be any of the sources, but not
overlap one shifted. f32 operands and results are flushed as `keep` says: 0x80000000 makes denormals
signed zeros, all ones keeps them.

exp2 goes through a polynomial of degree 13 in double precision and is rounded once more, to f32: so
it is correctly rounded but for about one case in 2^27; rcp is always. Conversions round to nearest
even.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mlagen.emulator.gfx950 import opcodes as o

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
    """Builds code for one chunk of lanes: LLVM values in, LLVM values out. `aux`: a dword."""

    def __init__(self, builder: Any, keep: Any, aux: Any = None) -> None:
        self.builder = builder
        self.keep = self.splat(builder.trunc(keep, _I32))
        self.aux = None if aux is None else self.splat(builder.trunc(aux, _I32))

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


Body = Callable[[Chunk, Any, Any, Any], Any]


def _run(builder: Any, body: Body, args: Sequence[Any]) -> None:
    """out = body(chunk, a, b, c) chunk by chunk."""
    out, *rows, keep, aux = args
    chunk = Chunk(builder, keep, aux)
    with cgutils.for_range(builder, ir.Constant(_I64, 64 // WIDTH)) as loop:
        a, b, c = (_load(builder, row, loop.index) for row in rows)
        _store(builder, out, loop.index, body(chunk, a, b, c))


def rows_of(body: Body) -> Any:
    """An intrinsic f(out, a, b, c, keep, aux) on row addresses: all lanes of `body`."""

    def typing(
        context: Any, out: Any, a: Any, b: Any, c: Any, keep: Any, aux: Any
    ) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _run(builder, body, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return intrinsic(typing)


def _choice(bodies: Mapping[int, Body]) -> Any:
    """An intrinsic f(op, out, a, b, c, keep, aux): `rows_of` the body for `op`; False for none."""

    def typing(
        context: Any, op: Any, out: Any, a: Any, b: Any, c: Any, keep: Any, aux: Any
    ) -> tuple[Any, Any]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            entry = builder.block
            done = builder.append_basic_block("rows.done")
            choice = builder.switch(args[0], done)
            ends = []
            for body in dict.fromkeys(bodies.values()):
                block = builder.append_basic_block("rows")
                for number in (number for number, each in bodies.items() if each is body):
                    choice.add_case(ir.Constant(_I64, number), block)
                builder.position_at_end(block)
                _run(builder, body, args[1:])
                ends.append(builder.block)
                builder.branch(done)
            builder.position_at_end(done)
            found = builder.phi(_I1)
            found.add_incoming(ir.Constant(_I1, 0), entry)
            for block in ends:
                found.add_incoming(ir.Constant(_I1, 1), block)
            return found

        return types.boolean(*[types.int64] * 7), generate

    return intrinsic(typing)


# ---- f32 arithmetic


def _floats(name: str) -> Body:
    """f32 arithmetic of two operands."""
    return lambda t, a, b, c: t.result(getattr(t.builder, name)(t.floats(a), t.floats(b)))


def _rounded(name: str) -> Body:
    """An LLVM function of one f32."""
    return lambda t, a, b, c: t.result(t.call(name, _FLOATS, t.floats(a)))


def _extremum(larger: bool) -> Body:
    return lambda t, a, b, c: t.result(t.extremum(t.floats(a), t.floats(b), larger))


def _extremum3(larger: bool) -> Body:
    def body(t: Chunk, a: Any, b: Any, c: Any) -> Any:
        two = t.extremum(t.floats(a), t.floats(b), larger)
        return t.result(t.extremum(two, t.floats(c), larger))

    return body


def _fma(t: Chunk, a: Any, b: Any, c: Any) -> Any:
    return t.result(t.call("fma", _FLOATS, t.floats(a), t.floats(b), t.floats(c)))


def _flushing(body: Body) -> Body:
    """The transcendental unit flushes denormals whatever MODE says (LLVM says so of rcp)."""
    flush = ir.Constant(_I64, 0x80000000)
    return lambda t, a, b, c: body(Chunk(t.builder, flush), a, b, c)


def _rcp(t: Chunk, a: Any, b: Any, c: Any) -> Any:
    return t.result(t.builder.fdiv(t.number(1.0), t.floats(a)))


def exp2(t: Chunk, a: Any, b: Any, c: Any) -> Any:
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


def _pack_bf16(t: Chunk, a: Any, b: Any, c: Any) -> Any:
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


def _pack_e4m3(t: Chunk, a: Any, b: Any, c: Any) -> Any:
    overflow = t.builder.sub(t.const(0x7F), t.aux)  # aux: 1 to clamp
    high = t.builder.shl(_e4m3(t, t.flush(b), overflow), t.const(8))
    return t.builder.or_(_e4m3(t, t.flush(a), overflow), high)


def _byte(number: int) -> Body:
    """One byte of a dword as f32."""

    def body(t: Chunk, a: Any, b: Any, c: Any) -> Any:
        byte = t.builder.and_(t.builder.lshr(a, t.const(8 * number)), t.const(0xFF))
        return t.bits(t.builder.uitofp(byte, _FLOATS))

    return body


# ---- integers


def _two(name: str) -> Body:
    """The LLVM instruction `name` of two operands."""
    return lambda t, a, b, c: getattr(t.builder, name)(a, b)


def _shift(t: Chunk, amount: Any) -> Any:
    return t.builder.and_(amount, t.const(31))


def _ones(t: Chunk, width: Any) -> Any:
    """As many low bits as the low 5 bits of `width` say."""
    return t.builder.sub(t.builder.shl(t.const(1), _shift(t, width)), t.const(1))


def _signed24(t: Chunk, x: Any) -> Any:
    return t.builder.ashr(t.builder.shl(x, t.const(8)), t.const(8))


def _low24(t: Chunk, x: Any) -> Any:
    return t.builder.and_(x, t.const(0xFFFFFF))


def _high(t: Chunk, x: Any, y: Any, extend: Any) -> Any:
    """The upper half of a product of 64 bits."""
    product = t.builder.mul(extend(x, _LONGS), extend(y, _LONGS))
    return t.builder.trunc(t.builder.lshr(product, ir.Constant(_LONGS, [32] * WIDTH)), _INTS)


def _pick(sign: str, signed: bool) -> Callable[..., Any]:
    """The one of two integers that is `sign` ("<", ">") the other."""

    def pick(t: Chunk, x: Any, y: Any, _: Any = None) -> Any:
        compare = t.builder.icmp_signed if signed else t.builder.icmp_unsigned
        return t.builder.select(compare(sign, x, y), x, y)

    return pick


def _of_three(signed: bool) -> tuple[Body, Body, Body]:
    """The least, the largest and the middle of three integers."""
    least, most = _pick("<", signed), _pick(">", signed)
    return (
        lambda t, a, b, c: least(t, least(t, a, b), c),
        lambda t, a, b, c: most(t, most(t, a, b), c),
        lambda t, a, b, c: most(t, least(t, a, b), least(t, most(t, a, b), c)),
    )


def _halfwords(body: Body, *, signed: bool = False) -> Body:
    """`body` on the lower halves of a and b; the upper half of the result is zero."""

    def half(t: Chunk, x: Any) -> Any:
        upper = t.builder.shl(x, t.const(16))
        return (t.builder.ashr if signed else t.builder.lshr)(upper, t.const(16))

    return lambda t, a, b, c: t.builder.and_(body(t, half(t, a), half(t, b), c), t.const(0xFFFF))


def _shift16(name: str) -> Body:
    return lambda t, a, b, c: getattr(t.builder, name)(b, t.builder.and_(a, t.const(15)))


def _perm(t: Chunk, a: Any, b: Any, c: Any) -> Any:
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


OPERATIONS: Mapping[int, Body] = {
    o.V_MUL_F32: _floats("fmul"),
    o.V_ADD_F32: _floats("fadd"),
    o.V_SUB_F32: _floats("fsub"),
    o.V_SUBREV_F32: lambda t, a, b, c: _floats("fsub")(t, b, a, c),
    o.V_FMA_F32: _fma,
    o.V_FMAC_F32: _fma,
    o.V_MAX_F32: _extremum(True),
    o.V_MIN_F32: _extremum(False),
    o.V_MAX3_F32: _extremum3(True),
    o.V_MIN3_F32: _extremum3(False),
    o.V_EXP_F32: _flushing(exp2),
    o.V_RCP_F32: _flushing(_rcp),
    o.V_SQRT_F32: _flushing(_rounded("sqrt")),
    o.V_TRUNC_F32: _rounded("trunc"),
    o.V_CEIL_F32: _rounded("ceil"),
    o.V_FLOOR_F32: _rounded("floor"),
    o.V_RNDNE_F32: _rounded("rint"),
    o.V_CVT_F32_I32: lambda t, a, b, c: t.bits(t.builder.sitofp(a, _FLOATS)),
    o.V_CVT_F32_U32: lambda t, a, b, c: t.bits(t.builder.uitofp(a, _FLOATS)),
    **{o.V_CVT_F32_UBYTE0 + number: _byte(number) for number in range(4)},
    # The guide moves the bits and says nothing of denormals.
    o.V_CVT_F32_BF16: lambda t, a, b, c: t.builder.shl(a, t.const(16)),
    o.V_CVT_PK_BF16_F32: _pack_bf16,
    o.V_CVT_PK_FP8_F32: _pack_e4m3,
    o.V_MOV_B32: lambda t, a, b, c: a,
    o.V_NOT_B32: lambda t, a, b, c: t.builder.not_(a),
    o.V_ADD_U32: _two("add"),
    o.V_SUB_U32: _two("sub"),
    o.V_SUBREV_U32: lambda t, a, b, c: t.builder.sub(b, a),
    o.V_ADD3_U32: lambda t, a, b, c: t.builder.add(t.builder.add(a, b), c),
    o.V_AND_B32: _two("and_"),
    o.V_OR_B32: _two("or_"),
    o.V_XOR_B32: _two("xor"),
    o.V_XNOR_B32: lambda t, a, b, c: t.builder.not_(t.builder.xor(a, b)),
    o.V_LSHLREV_B32: lambda t, a, b, c: t.builder.shl(b, _shift(t, a)),
    o.V_LSHRREV_B32: lambda t, a, b, c: t.builder.lshr(b, _shift(t, a)),
    o.V_ASHRREV_I32: lambda t, a, b, c: t.builder.ashr(b, _shift(t, a)),
    o.V_LSHL_ADD_U32: lambda t, a, b, c: t.builder.add(t.builder.shl(a, _shift(t, b)), c),
    o.V_ADD_LSHL_U32: lambda t, a, b, c: t.builder.shl(t.builder.add(a, b), _shift(t, c)),
    o.V_LSHL_OR_B32: lambda t, a, b, c: t.builder.or_(t.builder.shl(a, _shift(t, b)), c),
    o.V_AND_OR_B32: lambda t, a, b, c: t.builder.or_(t.builder.and_(a, b), c),
    o.V_OR3_B32: lambda t, a, b, c: t.builder.or_(t.builder.or_(a, b), c),
    o.V_XAD_U32: lambda t, a, b, c: t.builder.add(t.builder.xor(a, b), c),
    o.V_BFE_U32: lambda t, a, b, c: t.builder.and_(t.builder.lshr(a, _shift(t, b)), _ones(t, c)),
    o.V_BFI_B32: lambda t, a, b, c: t.builder.xor(c, t.builder.and_(a, t.builder.xor(b, c))),
    o.V_BFM_B32: lambda t, a, b, c: t.builder.shl(_ones(t, a), _shift(t, b)),
    o.V_PERM_B32: _perm,
    o.V_MUL_LO_U32: _two("mul"),
    o.V_MUL_HI_U32: lambda t, a, b, c: _high(t, a, b, t.builder.zext),
    o.V_MUL_HI_I32: lambda t, a, b, c: _high(t, a, b, t.builder.sext),
    o.V_MUL_I32_I24: lambda t, a, b, c: t.builder.mul(_signed24(t, a), _signed24(t, b)),
    o.V_MUL_U32_U24: lambda t, a, b, c: t.builder.mul(_low24(t, a), _low24(t, b)),
    o.V_MUL_HI_U32_U24: lambda t, a, b, c: _high(t, _low24(t, a), _low24(t, b), t.builder.zext),
    o.V_MAD_I32_I24: lambda t, a, b, c: t.builder.add(
        t.builder.mul(_signed24(t, a), _signed24(t, b)), c
    ),
    o.V_MAD_U32_U24: lambda t, a, b, c: t.builder.add(t.builder.mul(_low24(t, a), _low24(t, b)), c),
    o.V_MIN_I32: _pick("<", True),
    o.V_MAX_I32: _pick(">", True),
    o.V_MIN_U32: _pick("<", False),
    o.V_MAX_U32: _pick(">", False),
    **dict(zip((o.V_MIN3_I32, o.V_MAX3_I32, o.V_MED3_I32), _of_three(True), strict=True)),
    **dict(zip((o.V_MIN3_U32, o.V_MAX3_U32, o.V_MED3_U32), _of_three(False), strict=True)),
    o.V_ADD_U16: _halfwords(_two("add")),
    o.V_SUB_U16: _halfwords(_two("sub")),
    o.V_SUBREV_U16: _halfwords(lambda t, a, b, c: t.builder.sub(b, a)),
    o.V_MUL_LO_U16: _halfwords(_two("mul")),
    o.V_MAD_LEGACY_U16: _halfwords(lambda t, a, b, c: t.builder.add(t.builder.mul(a, b), c)),
    o.V_LSHLREV_B16: _halfwords(_shift16("shl")),
    o.V_LSHRREV_B16: _halfwords(_shift16("lshr")),
    o.V_ASHRREV_I16: _halfwords(_shift16("ashr"), signed=True),
    o.V_MIN_U16: _halfwords(_pick("<", False)),
    o.V_MAX_U16: _halfwords(_pick(">", False)),
    o.V_MIN_I16: _halfwords(_pick("<", True), signed=True),
    o.V_MAX_I16: _halfwords(_pick(">", True), signed=True),
}
"""What `row_operation` does, by the number of the operation."""

row_operation = _choice(OPERATIONS)
row_mov = rows_of(OPERATIONS[o.V_MOV_B32])
row_signs = rows_of(lambda t, a, b, c: t.builder.xor(t.builder.and_(a, t.keep), t.aux))
"""Float source modifiers: clear the bits that are not in `keep`, then flip those of `aux`."""
row_low_halves = rows_of(
    lambda t, a, b, c: t.builder.or_(
        t.builder.and_(a, t.const(-0x10000)), t.builder.and_(b, t.const(0xFFFF))
    )
)
"""Upper halves of `a`, lower halves of `b`."""
row_high_halves = rows_of(
    lambda t, a, b, c: t.builder.or_(
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
