"""Decoding of packed matrix operands to f32, and fused dot products, as LLVM vector code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

SPAN = 16  # values of one step along a row

_F32 = ir.FloatType()
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_INTS = ir.VectorType(_I32, SPAN)
_SHORTS = ir.VectorType(_I16, SPAN)
_PAIRS = ir.VectorType(_I16, 2 * SPAN)
_HALVES = ir.VectorType(ir.HalfType(), SPAN)
_FLOATS = ir.VectorType(_F32, SPAN)


def _splat(value: int) -> Any:
    return ir.Constant(_INTS, [value] * SPAN)


def _splat2(value: int) -> Any:
    return ir.Constant(_PAIRS, [value] * (2 * SPAN))


def _at(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _spread(width: int, decode: Callable[[Any, Any], list[Any]]) -> Any:
    """An intrinsic f(out, step, source): SPAN dwords of `width`-bit values to f32.

    Value e of dword i goes to float i at the address out + e * step.
    """

    def typing(context: Any, out: Any, step: Any, source: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out_address, step_bytes, source_address = args
            words = builder.load(builder.inttoptr(source_address, _INTS.as_pointer()), align=4)
            for e, values in enumerate(decode(builder, words)):
                place = builder.mul(step_bytes, ir.Constant(_I64, e))
                target = _at(builder, out_address, place, _FLOATS)
                builder.store(values, target, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return intrinsic(typing)


def _bf16(builder: Any, words: Any) -> list[Any]:
    halves = (builder.shl(words, _splat(16)), builder.and_(words, _splat(-0x10000)))
    return [builder.bitcast(half, _FLOATS) for half in halves]


def _f16(builder: Any, words: Any) -> list[Any]:
    values = []
    for word in (words, builder.lshr(words, _splat(16))):
        half = builder.bitcast(builder.trunc(word, _SHORTS), _HALVES)
        values.append(builder.fpext(half, _FLOATS))
    return values


def _through_half(builder: Any, words: Any, shift: int, last: int) -> list[Any]:
    """The four 8-bit floats of each dword as f16 of the same sign and exponent field, as f32.

    `shift`: from a byte's place in the lower half of 16 bits to that of the f16's magnitude;
    `last`: the largest magnitude code that is no NaN. Denormals of the format are denormals of f16.
    """
    pairs = builder.bitcast(words, _PAIRS)
    upper = builder.lshr(pairs, _splat2(8))
    codes = []
    for byte in (pairs, upper):
        magnitude = builder.and_(byte, _splat2(0x7F))
        sign = builder.shl(builder.and_(byte, _splat2(0x80)), _splat2(8))
        nan = builder.icmp_unsigned(">", magnitude, _splat2(last))
        magnitude = builder.select(nan, _splat2(0x7E00), builder.shl(magnitude, _splat2(shift)))
        codes.append(builder.bitcast(builder.or_(sign, magnitude), _INTS))
    values = []
    for e in range(4):
        word = builder.lshr(codes[e & 1], _splat(16)) if e & 2 else codes[e & 1]
        half = builder.bitcast(builder.trunc(word, _SHORTS), _HALVES)
        values.append(builder.fpext(half, _FLOATS))
    return values


def _e4m3(builder: Any, words: Any) -> list[Any]:
    """OCP e4m3: an f16 of the same bits is 2^8 times smaller; code 0x7F is the only NaN."""
    small = _through_half(builder, words, 7, 0x7E)
    return [builder.fmul(value, ir.Constant(_FLOATS, [256.0] * SPAN)) for value in small]


def _e5m2(builder: Any, words: Any) -> list[Any]:
    """OCP e5m2: the upper byte of an f16."""
    return _through_half(builder, words, 8, 0x7C)


def _i8(builder: Any, words: Any) -> list[Any]:
    """The four signed bytes of each dword as f32."""
    values = []
    for e in range(4):
        byte = builder.ashr(builder.shl(words, _splat(24 - 8 * e)), _splat(24))
        values.append(builder.sitofp(byte, _FLOATS))
    return values


def _same(context: Any, x: Any, y: Any, chunks: Any) -> Any:
    """Whether 16 * chunks dwords are equal; the first difference ends the comparison."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x_address, y_address, count = args
        equal = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(1), 1))
        with cgutils.for_range(builder, count) as loop:
            offset = builder.mul(loop.index, ir.Constant(_I64, 4 * SPAN))
            parts = [
                builder.load(_at(builder, address, offset, _INTS), align=4)
                for address in (x_address, y_address)
            ]
            bits = builder.bitcast(builder.icmp_unsigned("!=", *parts), _I16)
            differs = builder.icmp_unsigned("!=", bits, ir.Constant(_I16, 0))
            with builder.if_then(differs, likely=False):
                builder.store(ir.Constant(ir.IntType(1), 0), equal)
                loop.do_break()
        return builder.load(equal)

    return types.boolean(*[types.int64] * 3), generate


spread_bf16 = _spread(16, _bf16)
spread_f16 = _spread(16, _f16)
spread_e4m3 = _spread(8, _e4m3)
spread_e5m2 = _spread(8, _e5m2)
spread_i8 = _spread(8, _i8)
same_dwords: Any = intrinsic(_same)


def _dot_rows(width: int, rows: int) -> Callable[..., Any]:
    """Make `dot(c, out, a, a_step, b, depth, stride)`: `rows` rows of `width` fused dot products.

    out[r, j] = fma chain over k = 0 .. depth-1 of a[k*stride + r*a_step] * b[k*stride + j] onto
    c[r, j], in k order; all f32. `c` and `out` are rows*width contiguous floats.
    """

    def typing(
        context: Any, c: Any, out: Any, a: Any, a_step: Any, b: Any, depth: Any, stride: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            c_addr, out_addr, a_addr, a_step_v, b_addr, depth_v, stride_v = args
            vector = ir.VectorType(_F32, width)
            mask = ir.Constant(ir.VectorType(_I32, width), [0] * width)

            def load(address: Any, offset: Any, kind: Any) -> Any:
                place = builder.add(address, offset)
                return builder.load(builder.inttoptr(place, kind.as_pointer()), align=4)

            def const(value: int) -> Any:
                return ir.Constant(_I64, value)

            first = [load(c_addr, const(4 * width * r), vector) for r in range(rows)]
            entry = builder.block
            head = builder.append_basic_block("dot")
            done = builder.append_basic_block("dot.done")
            builder.branch(head)
            builder.position_at_end(head)
            k = builder.phi(_I64)
            k.add_incoming(const(0), entry)
            sums = []
            for value in first:
                phi = builder.phi(vector)
                phi.add_incoming(value, entry)
                sums.append(phi)
            row = builder.mul(builder.mul(k, stride_v), const(4))
            b_row = load(b_addr, row, vector)
            fused = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{width}f32"
            )
            after = []
            for r in range(rows):
                step = builder.mul(a_step_v, const(4 * r))
                scalar = load(a_addr, builder.add(row, step), _F32)
                undef = ir.Constant(vector, ir.Undefined)
                single = builder.insert_element(undef, scalar, ir.Constant(_I32, 0))
                splat = builder.shuffle_vector(single, undef, mask)
                after.append(builder.call(fused, [splat, b_row, sums[r]]))
            next_k = builder.add(k, const(1))
            k.add_incoming(next_k, head)
            for phi, value in zip(sums, after, strict=True):
                phi.add_incoming(value, head)
            builder.cbranch(builder.icmp_signed("<", next_k, depth_v), head, done)
            builder.position_at_end(done)
            for r in range(rows):
                place = builder.add(out_addr, const(4 * width * r))
                builder.store(after[r], builder.inttoptr(place, vector.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return intrinsic(typing)


dot_rows_32x2 = _dot_rows(32, 2)
dot_rows_16x4 = _dot_rows(16, 4)
