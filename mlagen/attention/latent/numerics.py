"""What a kernel over latent rows rounds, in words and by name, as its manifest states it.

It is derived from the order that the rounding oracle follows: so what is stated is what is checked.
"""

from __future__ import annotations

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.order import Order

OF_P = {
    "bf16": "weights exp2(c S - M), at most 1, times what scales there are, before their product "
    "with V: half of 2^-8 of each",
    "f16": "the same: half of 2^-11 of each, below 2^-14 half of 2^-24",
    "fp8_e4m3": "weights exp2(c S - M + 6), before their product with V: half of 2^-3 of each",
}
LIFTED_P = (
    "weights times each group's scales, relative to the largest scale so far: half of 2^-11 of "
    "each, below 2^-28 of that scale a step of 2^-38"
)


def roundings(
    order: Order, *, blocks: bool = False, exact_blocks: bool = False
) -> tuple[Rounding, ...]:
    """Of a kernel that computes in this order. `blocks`: columns of a row have scales, which are
    powers of two where they are `exact_blocks`."""
    found = []
    f16_groups = order.scaled_columns > 0
    if blocks and not exact_blocks and not order.scaled_columns and not order.grained:
        found.append(Rounding(
            "rows", "bf16", "numbers of a key times the scale of their columns, once, for scores "
            "and values: half of 2^-8 of each",
        ))  # fmt: skip
    if order.grained:
        found.append(Rounding(
            "rows", "f16", "numbers of a key times the scale of their columns, unless that is a "
            "power of two: half of 2^-11 of each, below 2^-20 of the power of two under the "
            "key's largest scale half of 2^-30 of that; bf16 columns not",
        ))  # fmt: skip
    if order.lifted or f16_groups:
        found.append(Rounding(
            "Q", "f16", "a row times a power of two: only numbers below 2^-32 of its largest are "
            "off, by 2^-40 of that",
        ))  # fmt: skip
    if order.kept:
        found.append(Rounding(
            "sums", f"{order.kept} bits", "the tensor core cuts products of e4m3, the accumulator "
            "and their sum so many bits below the largest",
        ))  # fmt: skip
    to = "fp8_e4m3" if order.bias else "f16" if order.halves or f16_groups else "bf16"
    found.append(Rounding("P", to, LIFTED_P if f16_groups else OF_P[to]))
    if order.slack:
        begin = f"a row's first M is rounded up to 1/{order.fine}; " if order.fine else ""
        found.append(Rounding(
            "M", "whole numbers", f"{begin}log2 units that P is relative to; M moves where a score "
            f"is more than {order.slack} above it" + (", which decides how P is rounded" if
            order.bias else ": powers of two, which change no other rounding"),
        ))  # fmt: skip
    return tuple(found)
