"""Facts of a kernel of sparse MLA whose schedule has no variants, by its problem and knobs; and
what a kernel rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.numerics import roundings
from mlagen.attention.latent.order import (
    KEYS_AS_ROWS,
    KEYS_OF_GRAINS,
    SEESAW,
    SEESAW_OF_GRAINS,
    Order,
    keys_in_registers,
)
from mlagen.attention.latent.split_work import BLOCK_ROWS
from mlagen.families.mla_sparse.rows import row_format


def facts_for(target: str, problem: Mapping[str, Any], knobs: Mapping[str, Any]) -> Facts | None:
    """Of a kernel for `target`; fields and knobs by name. Blocks of decode on Hopper with keys as
    rows put parts together. None: a schedule for it has variants, or is not ours."""
    if target != "sm_90a":
        return None
    order = _order_for(problem, knobs)
    few = bool(knobs.get("keys_as_rows"))
    decode = "q_len" in problem
    return Facts(order, BLOCK_ROWS, swap_ab=few, combine="blocks" if few and decode else "kernel")


def _order_for(problem: Mapping[str, Any], knobs: Mapping[str, Any]) -> Order:
    sums = knobs.get("scales") == "sums"
    if knobs.get("keys_from") == "registers":
        block = row_format(problem["rows"], problem["d_qk"]).block
        return keys_in_registers(problem["d_qk"], block if sums else 0)
    grains = knobs.get("scales") == "grains"
    if knobs.get("keys_as_rows"):
        return KEYS_OF_GRAINS if grains else KEYS_AS_ROWS
    return SEESAW_OF_GRAINS if grains else SEESAW


def roundings_for(problem: Mapping[str, Any], facts: Facts | None) -> tuple[Rounding, ...]:
    """What such a kernel rounds, but for what all kernels do: O to bf16, and sums in fp32."""
    if facts is None:
        return ()
    row = row_format(problem["rows"], problem["d_qk"])
    return roundings(facts.order, blocks=row.block > 0, exact_blocks=row.paged_scales)
