"""What a matrix instruction can be off by. Problems name orders, so this loads no numpy."""

from __future__ import annotations


# What one matrix instruction can be off by, as one wgmma of bf16 and 16 columns, relative to the
# largest number that takes part: accumulator, product, or a partial sum of them. Its arithmetic is
# not documented. Published bit-accurate models of Hopper (MMA-Sim, arXiv:2511.10909; likewise
# Khattak and Mikaitis, arXiv:2512.07004) agree on it: products are exact; they and the accumulator,
# 17 terms, are aligned to the largest exponent among them and cut off 25 bits below it; their sum
# is exact; it is cut to fp32, toward zero. A term loses less than 2^-25, the sum less than 2^-23.
# All cuts go the same way, so their worst case is taken: they are not independent of each other.
# Models of Blackwell (MMA-Sim; sf-tensor/tcgen05) have the same sum, of 32 products of e4m3 a step.
def step_error(depth: int) -> float:
    """The error of an instruction of so many products."""
    return (depth + 1) * 2.0**-25 + 2.0**-23


def serial_error(depth: int) -> float:
    """The same of an instruction that adds its products one by one, each with one rounding to fp32:
    gfx950's, as the emulator has it. What it rounds is a partial sum."""
    return depth * 2.0**-24


def cut_error(depth: int, kept: int) -> float:
    """The same of an instruction that cuts each term and the sum so many bits below the largest
    one. Hopper's of e4m3: 13 bits, measured (docs/ptx_arithmetic.md)."""
    return (depth + 2) * 2.0**-kept
