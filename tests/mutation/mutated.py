"""The kernel that is mutated, built once a process."""

from __future__ import annotations

from functools import cache

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.mutation.gfx950.listing import Listing, read_listing

SYMBOL = "mha_prefill_v2"
# A loop of two tiles, whose waits stand before barriers: short enough to try mutants everywhere.
KNOBS = {
    "k_slots": 2, "v_slots": 2, "spare_slots": 0, "softmax": "grouped",
    "qk_pattern": "6x1:3 10x1:5", "pv_pattern": "4x1:5 6x1:5 6x1:3",
}  # fmt: skip


@cache
def prefill() -> Artifact:
    config = MhaConfigV2(num_heads=1, num_kv_heads=1, depth=128, mask="null")
    return build(SYMBOL, config, knobs=KNOBS)


@cache
def listing() -> Listing:
    return read_listing(prefill().text, SYMBOL)
