"""Which order a kernel of MLA decode computes in, and what it rounds: of its problem, target and
knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.numerics import roundings
from mlagen.attention.latent.order import (
    BY_WAVES,
    BY_WAVES_64,
    BY_WIDE_WAVES,
    BY_WIDE_WAVES_64,
    E4M3_BY_WAVES,
    HOPPER_E4M3,
    KEYS_AS_F16,
    KEYS_AS_ROWS,
    OF_E4M3,
    SCORES_OF_F16,
    SEESAW,
    SELDOM_MOVED,
    Order,
)

NVIDIA_ORDERS = {"sm_90a": SEESAW, "sm_100a": SELDOM_MOVED}
# Few query rows on Hopper over these caches, whose keys become what products are of in registers.
FROM_REGISTERS = {"fp8_e4m3": KEYS_AS_F16, "fp8_rope_aware": SCORES_OF_F16}
ORDERS_OF_E4M3 = {"sm_90a": HOPPER_E4M3, "sm_100a": OF_E4M3, "gfx950": E4M3_BY_WAVES}


def order_for(target: str, problem: Mapping[str, Any], knobs: Mapping[str, Any]) -> Order:
    """The order of a kernel for `target`; fields and knobs by name."""
    if problem.get("compute") == "fp8":
        return ORDERS_OF_E4M3[target]
    if target != "gfx950":
        if not knobs.get("keys_as_rows"):
            return NVIDIA_ORDERS[target]
        if knobs.get("keys_from") != "registers":
            return KEYS_AS_ROWS
        return FROM_REGISTERS[str(problem["cache_dtype"])]
    wide, stored = knobs["rows"] == 32, problem["cache_dtype"] != "bf16"
    if wide:
        return BY_WIDE_WAVES_64 if stored else BY_WIDE_WAVES
    return BY_WAVES_64 if stored else BY_WAVES


def roundings_for(
    target: str, problem: Mapping[str, Any], knobs: Mapping[str, Any]
) -> tuple[Rounding, ...]:
    """What such a kernel rounds, but for what all kernels do: O to bf16, and sums in fp32."""
    return roundings(order_for(target, problem, knobs))
