"""What integer instructions compute: plain functions of their sources, for scalars and for lanes.

Semantics: CDNA4 ISA guide, SOP1 .. SOPK and VOP1 .. VOP3 instruction lists. Sources are unsigned
32-bit values (an int, or an int64 array of lanes); a result counts modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF
Wide = int | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Integer:
    """`function`: of the sources in the order of the encoding. `scc`: the scalar form's condition
    code; "nonzero": whether the result is not 0, "" for an instruction that leaves it, "other"
    for one whose rule is not given here."""

    function: Callable[..., Any]
    scc: str = ""


def signed(value: Wide) -> Any:
    """The value as a signed 32-bit number."""
    return ((value & MASK) ^ 0x80000000) - 0x80000000


def low24(value: Wide) -> Any:
    """The low 24 bits, signed."""
    return ((value & 0xFFFFFF) ^ 0x800000) - 0x800000


def multiply(a: Wide, b: Wide) -> Any:
    """The low 32 bits of a product, without leaving 64 bits on the way."""
    return (a * (b & 0xFFFF) + ((a * (b >> 16) & 0xFFFF) << 16)) & MASK


def multiply_high(a: Wide, b: Wide) -> Any:
    """The high 32 bits of an unsigned product, without leaving 63 bits on the way."""
    low, middle = (a & 0xFFFF) * (b & 0xFFFF), (a >> 16) * (b & 0xFFFF)
    other = (a & 0xFFFF) * (b >> 16)
    carry = (low >> 16) + (middle & 0xFFFF) + (other & 0xFFFF)
    return (a >> 16) * (b >> 16) + (middle >> 16) + (other >> 16) + (carry >> 16)


def _least(a: Wide, b: Wide) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return np.minimum(a, b)


def _most(a: Wide, b: Wide) -> Any:
    return -_least(-a, -b)


def _bits(width: Wide, at: Wide) -> Any:
    """s_bfm: `width` bits set from bit `at` on (5 bits each count)."""
    return ((1 << (width & 31)) - 1) << (at & 31)


def _bfe_scalar(a: int, b: int) -> int:
    """s_bfe_u32: the offset in bits 4:0, the width in bits 22:16."""
    return a >> (b & 31) & (1 << (b >> 16 & 0x7F)) - 1


def _first_one(a: int) -> int:
    return (a & -a).bit_length() - 1 if a else MASK


_add = Integer(lambda a, b: a + b)
_subtract = Integer(lambda a, b: a - b)

VECTOR: Mapping[str, Integer] = {
    "v_mov_b32": Integer(lambda a: a),
    "v_accvgpr_read_b32": Integer(lambda a: a),
    "v_accvgpr_write_b32": Integer(lambda a: a),
    "v_add_u32": _add,
    "v_add_i32": _add,
    "v_sub_u32": _subtract,
    "v_sub_i32": _subtract,
    "v_subrev_u32": Integer(lambda a, b: b - a),
    "v_lshlrev_b32": Integer(lambda a, b: b << (a & 31)),
    "v_lshrrev_b32": Integer(lambda a, b: b >> (a & 31)),
    "v_ashrrev_i32": Integer(lambda a, b: signed(b) >> (a & 31)),
    "v_and_b32": Integer(lambda a, b: a & b),
    "v_or_b32": Integer(lambda a, b: a | b),
    "v_xor_b32": Integer(lambda a, b: a ^ b),
    "v_not_b32": Integer(lambda a: ~a),
    "v_mul_u32_u24": Integer(lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mul_i32_i24": Integer(lambda a, b: low24(a) * low24(b)),
    "v_mul_lo_u32": Integer(multiply),
    "v_mul_hi_u32": Integer(multiply_high),
    "v_mad_u32_u24": Integer(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24": Integer(lambda a, b, c: low24(a) * low24(b) + c),
    "v_add3_u32": Integer(lambda a, b, c: a + b + c),
    "v_lshl_add_u32": Integer(lambda a, b, c: (a << (b & 31)) + c),
    "v_add_lshl_u32": Integer(lambda a, b, c: (a + b & MASK) << (c & 31)),
    "v_lshl_or_b32": Integer(lambda a, b, c: a << (b & 31) | c),
    "v_and_or_b32": Integer(lambda a, b, c: a & b | c),
    "v_or3_b32": Integer(lambda a, b, c: a | b | c),
    "v_xad_u32": Integer(lambda a, b, c: (a ^ b) + c),
    "v_bfe_u32": Integer(lambda a, b, c: a >> (b & 31) & (1 << (c & 31)) - 1),
    "v_bfi_b32": Integer(lambda a, b, c: a & b | ~a & c),
    "v_bfm_b32": Integer(_bits),
    "v_min_u32": Integer(_least),
    "v_max_u32": Integer(_most),
    "v_min_i32": Integer(lambda a, b: _least(signed(a), signed(b))),
    "v_max_i32": Integer(lambda a, b: _most(signed(a), signed(b))),
}

SCALAR: Mapping[str, Integer] = {
    "s_mov_b32": Integer(lambda a: a),
    "s_add_u32": Integer(_add.function, "other"),
    "s_add_i32": Integer(_add.function, "other"),
    "s_sub_u32": Integer(_subtract.function, "other"),
    "s_sub_i32": Integer(_subtract.function, "other"),
    "s_mul_i32": Integer(multiply),
    "s_mul_hi_u32": Integer(multiply_high),
    "s_min_u32": Integer(_least, "other"),
    "s_max_u32": Integer(_most, "other"),
    "s_min_i32": Integer(lambda a, b: _least(signed(a), signed(b)), "other"),
    "s_max_i32": Integer(lambda a, b: _most(signed(a), signed(b)), "other"),
    "s_lshl_b32": Integer(lambda a, b: a << (b & 31), "nonzero"),
    "s_lshr_b32": Integer(lambda a, b: a >> (b & 31), "nonzero"),
    "s_ashr_i32": Integer(lambda a, b: signed(a) >> (b & 31), "nonzero"),
    "s_and_b32": Integer(lambda a, b: a & b, "nonzero"),
    "s_andn2_b32": Integer(lambda a, b: a & ~b, "nonzero"),
    "s_or_b32": Integer(lambda a, b: a | b, "nonzero"),
    "s_xor_b32": Integer(lambda a, b: a ^ b, "nonzero"),
    "s_not_b32": Integer(lambda a: ~a, "nonzero"),
    "s_bfm_b32": Integer(_bits),
    "s_bfe_u32": Integer(_bfe_scalar, "nonzero"),
    "s_ff1_i32_b32": Integer(_first_one),
    "s_lshl2_add_u32": Integer(lambda a, b: (a << 2) + b, "other"),
    "s_lshl3_add_u32": Integer(lambda a, b: (a << 3) + b, "other"),
}

SHORT: Mapping[str, Callable[[int, int], int]] = {
    "s_movk_i32": lambda _, constant: constant,
    "s_addk_i32": lambda old, constant: old + constant,
    "s_mulk_i32": lambda old, constant: multiply(old, constant & MASK),
}
"""SOPK: of the destination's old value and the 16-bit constant, sign extended."""

RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
