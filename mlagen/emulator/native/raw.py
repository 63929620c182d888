"""Typed loads, stores and bit casts on raw addresses for the compiled engine.

All state of a run lies in numpy arrays that Python owns; compiled code reaches them by address, so
that calls stay cheap and lane loops vectorise (numba's array indexing brings wrap-around checks
and seven words an argument). Every address is formed from a base that Python gave and an index
that was bounded before: register numbers when a kernel is translated, LDS and global offsets where
an access is checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_I8 = ir.IntType(8)
_I16 = ir.IntType(16)


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
uint16: Any = np.uint16
uint32: Any = np.uint32
uint64: Any = np.uint64
float32: Any = np.float32
float64: Any = np.float64

load_u16 = _loader(_I16, types.uint16, 2)
load_i32 = _loader(_I32, types.int32, 4)
load_f32 = _loader(_F32, types.float32, 4)
load_u32 = _loader(_I32, types.uint32, 4)
load_any_u32 = _loader(_I32, types.uint32, 1)  # at any byte address
load_i64 = _loader(_I64, types.int64, 8)
load_u8 = _loader(_I8, types.uint8, 1)
store_u16 = _storer(_I16, types.uint16, 2)
store_i32 = _storer(_I32, types.int32, 4)
store_f32 = _storer(_F32, types.float32, 4)
load_any_u16 = _loader(_I16, types.uint16, 1)
load_any_i64 = _loader(_I64, types.int64, 1)
store_u32 = _storer(_I32, types.uint32, 4)
store_any_u32 = _storer(_I32, types.uint32, 1)
store_i64 = _storer(_I64, types.int64, 8)
store_u8 = _storer(_I8, types.uint8, 1)
store_any_u16 = _storer(_I16, types.uint16, 1)
store_any_i64 = _storer(_I64, types.int64, 1)


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


def _bits_of_f64(context: Any, value: Any) -> Any:
    """The bits of a double."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), generate


def _fma_f32(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), generate


def _fma_f64(context: Any, a: Any, b: Any, c: Any) -> Any:
    """The same of doubles."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


f32_of: Any = intrinsic(_f32_of)
bits_of: Any = intrinsic(_bits_of)
f64_of: Any = intrinsic(_f64_of)
bits_of_f64: Any = intrinsic(_bits_of_f64)
fma_f32: Any = intrinsic(_fma_f32)
fma_f64: Any = intrinsic(_fma_f64)
