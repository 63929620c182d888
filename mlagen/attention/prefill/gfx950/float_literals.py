"""Constants of the softmax arithmetic as the fp32 literals that instructions carry."""

from __future__ import annotations

import math
import struct

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)
# Where the running maximum starts if a row may see nothing of its first tile: the lowest finite
# number, so that -inf minus it is -inf, and no score lies below it.
LOWEST = -float.fromhex("0x1.fffffep+127")


def float_bits(value: float) -> int:
    """The fp32 encoding of `value`."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def hex_float(value: float) -> str:
    """`value` in fp32 as an instruction's literal."""
    return hex(float_bits(value))
