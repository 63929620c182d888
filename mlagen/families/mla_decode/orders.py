"""Facts of a kernel of MLA decode whose schedule has no variants, by its problem and knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.facts import Facts, Items
from mlagen.attention.latent.order import (
    BY_WAVES,
    BY_WAVES_64,
    BY_WIDE_WAVES,
    BY_WIDE_WAVES_64,
    E4M3_BY_WAVES,
    KEYS_AS_F16,
    SCORES_OF_F16,
    Order,
)

# Few query rows on Hopper over these caches, whose keys become what products are of in registers.
FROM_REGISTERS = {"fp8_e4m3": KEYS_AS_F16, "fp8_rope_aware": SCORES_OF_F16}
WAVES = 4  # of a workgroup on gfx950, each with rows of its own


def facts_for(target: str, problem: Mapping[str, Any], knobs: Mapping[str, Any]) -> Facts | None:
    """Of a kernel for `target`; fields and knobs by name. None: a schedule for it has variants, or
    is not ours."""
    if target != "gfx950":
        return None
    items: Items = "aiter" if knobs.get("arguments") == "aiter" else "one"
    if items == "one" and knobs.get("persistent"):
        items = "several"
    fp8 = problem.get("compute") == "fp8"
    wide = knobs["rows"] == 32
    order = E4M3_BY_WAVES if fp8 else _by_waves(wide, problem["cache_dtype"] != "bf16")
    return Facts(order, WAVES * int(knobs["rows"]), items=items)


def _by_waves(wide: bool, stored: bool) -> Order:
    if wide:
        return BY_WIDE_WAVES_64 if stored else BY_WIDE_WAVES
    return BY_WAVES_64 if stored else BY_WAVES
