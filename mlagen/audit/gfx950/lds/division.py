"""The few float instructions that integer division is made of, on 32-bit patterns.

Only these are evaluated (reciprocal, scale, convert back, then exact integer corrections), so that
tile counts which kernels divide out are followed like other sizes. Semantics: CDNA4 ISA guide,
VOP1 and VOP2; a reciprocal may be off by one unit in the last place, which the corrections absorb.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlagen.binary.integers import MASK

_INFINITY = 0x7F800000


def _lanes(function: Callable[..., int]) -> Callable[..., Any]:
    """The function for numbers, and for arrays of lanes."""

    def apply(*sources: Any) -> Any:
        if all(isinstance(source, int) for source in sources):
            return function(*sources)
        lanes = np.broadcast_arrays(*sources)
        columns = zip(*(lane.tolist() for lane in lanes), strict=True)
        return np.array([function(*column) for column in columns], dtype=np.int64)

    return apply


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _bits(value: float) -> int:
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return _INFINITY | (0x80000000 if value < 0 else 0)


def _reciprocal(a: int) -> int:
    value = _float(a)
    return _bits(1.0 / value) if value else _INFINITY | a & 0x80000000


def _to_unsigned(a: int) -> int:
    """Towards zero, clamped; NaN gives 0."""
    value = _float(a)
    return 0 if math.isnan(value) or value <= 0 else MASK if value > MASK else int(value)


DIVISION: Mapping[str, Callable[..., Any]] = {
    "v_cvt_f32_u32": _lanes(lambda a: _bits(float(a))),
    "v_rcp_f32": _lanes(_reciprocal),
    "v_rcp_iflag_f32": _lanes(_reciprocal),
    "v_mul_f32": _lanes(lambda a, b: _bits(_float(a) * _float(b))),
    "v_cvt_u32_f32": _lanes(_to_unsigned),
}
