"""What hosts know of the forms of MLA decode on Hopper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import HOPPER_E4M3, SEESAW, Order
from mlagen.families.mla_decode import costs


def _facts(k: Any, order: Order, cost: Any, **more: Any) -> Facts:
    return Facts(order, BLOCK_ROWS, costs=costs.of_rows(cost, k), **more)


def swap_ab_facts(
    order: Callable[[Any], Order], cost: Callable[[Any], Any]
) -> Callable[[Any, Mapping[str, Any]], Facts]:
    """Those of swap-AB, of a problem's order and costs: blocks combine parts."""
    return lambda k, knobs: _facts(k, order(k), cost(k), combine="blocks")


def seesaw_facts(k: Any, knobs: Mapping[str, Any]) -> Facts:
    """Those of seesaw, whose persistent blocks take in the parts of their neighbours."""
    several = {"items": "several", "combine": "fix_up"} if knobs["persistent"] else {}
    return _facts(k, SEESAW, costs.seesaw(k), **several)


def seesaw_qkv_fp8_facts(k: Any, knobs: Mapping[str, Any]) -> Facts:
    """Those of seesaw with products of e4m3."""
    return _facts(k, HOPPER_E4M3, costs.SEESAW_QKV_FP8, combine="blocks", roles=2)
