"""Typed loads, stores and bit casts on raw addresses for the compiled engine.

All state of a run lies in numpy arrays that Python owns; compiled code reaches them by address, so
that calls stay cheap and lane loops vectorise (numba's array indexing brings wrap-around checks
and seven words an argument). Every address is formed from a base that Python gave and an index
that was bounded before: register numbers when a kernel is translated, LDS and global offsets where
an access is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_I8 = ir.IntType(8)


def _pointer(builder: Any, address: Any, index: Any, element: Any) -> Any:
    base = builder.inttoptr(address, element.as_pointer())
    return builder.gep(base, [index])


def _loader(element: Any, result: Any, align: int) -> Any:
    def typing(context: Any, address: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(builder, args[0], args[1], element)
            return builder.load(pointer, align=align)

        return result(types.int64, types.int64), generate

    return intrinsic(typing)


def _storer(element: Any, value_type: Any, align: int) -> Any:
    def typing(context: Any, address: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(builder, args[0], args[1], element)
            builder.store(args[2], pointer, align=align)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, value_type), generate

    return intrinsic(typing)


# numpy's scalar types as casts of compiled code, which treats them as plain numbers.
int32: Any = np.int32
int64: Any = np.int64
uint8: Any = np.uint8
uint32: Any = np.uint32
uint64: Any = np.uint64
float32: Any = np.float32
float64: Any = np.float64

load_u32 = _loader(_I32, types.uint32, 4)
load_any_u32 = _loader(_I32, types.uint32, 1)  # at any byte address
load_i64 = _loader(_I64, types.int64, 8)
load_u8 = _loader(_I8, types.uint8, 1)
store_u32 = _storer(_I32, types.uint32, 4)
store_any_u32 = _storer(_I32, types.uint32, 1)
store_i64 = _storer(_I64, types.int64, 8)
store_u8 = _storer(_I8, types.uint8, 1)


def _f32_of(context: Any, value: Any) -> Any:
    """The float whose bits are `value`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F32)

    return types.float32(types.uint32), generate


def _bits_of(context: Any, value: Any) -> Any:
    """The bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I32)

    return types.uint32(types.float32), generate


def _f64_of(context: Any, value: Any) -> Any:
    """The double whose bits are `value`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _fma_f32(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), generate


f32_of: Any = intrinsic(_f32_of)
bits_of: Any = intrinsic(_bits_of)
f64_of: Any = intrinsic(_f64_of)
fma_f32: Any = intrinsic(_fma_f32)


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
