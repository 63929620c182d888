"""Where the words of tensor.tensor_memory lie."""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.tensor import tensor_memory as t


@compiled
def cta_words(context: int, cta: int) -> int:
    """Address of the TC_ words of a CTA."""
    return load_i64(context, y.C_TENSOR) + cta * (8 * t.TC_SIZE)


@compiled
def warp_words(context: int, warp: int) -> int:
    """Address of the TW_ words of a warp."""
    first = load_i64(context, y.C_CTAS_ALL) * (8 * t.TC_SIZE)
    return load_i64(context, y.C_TENSOR) + first + warp * (8 * t.TW_SIZE)
