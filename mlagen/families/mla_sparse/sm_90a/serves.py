"""Which forms of sparse MLA on Hopper serve a problem, and what is known of each.

`k`: a problem of decode or prefill. Swap-AB's blocks put parts of decode's keys together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import Order, keys_in_registers
from mlagen.attention.latent.sm_90a.seesaw.grains import has_grains
from mlagen.attention.latent.sm_90a.swap_ab.kernel import MOST_ROWS, query_rows
from mlagen.attention.latent.sm_90a.swap_ab.scales import has_scaled_sums
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.rows import row_format


def swap_ab(k: Any) -> bool:
    """1 to 32 heads, but where ptxas 13.0 spills: 32 heads' scales, two lists and positions."""
    many = k.rows == "v32" and k.num_heads > 16
    return k.num_heads <= MOST_ROWS and not (many and k.extra and k.causal)


def swap_ab_grains(k: Any) -> bool:
    """32 heads, or fewer that are padded to them, which four threads a row lift."""
    return swap_ab(k) and grains(k) and query_rows(k, row_form(k)) == MOST_ROWS


def in_registers(k: Any) -> bool:
    """1 to 16 heads over quantised rows."""
    stored = row_form(k)
    return stored is not None and query_rows(k, stored) <= 16


def sums(k: Any) -> bool:
    """The same over rows whose scales can multiply sums."""
    stored = row_form(k)
    return in_registers(k) and stored is not None and has_scaled_sums(stored)


def grains(k: Any) -> bool:
    """Rows whose numbers can be multiples of a grain."""
    return has_grains(row_form(k))


def seesaw_grains(k: Any) -> bool:
    """The same, but where ptxas 13.0 spills: many tokens, where heads do not fill one block."""
    return grains(k) and (k.num_heads >= BLOCK_ROWS or k.q_len <= 2)


def facts(order: Order | Callable[[Any], Order], *, together: bool = False) -> Any:
    """Those of a variant; `order` may hang on the problem. `together`: blocks of decode put parts
    together."""

    def of(k: Any, knobs: Mapping[str, Any]) -> Facts:
        known = order if isinstance(order, Order) else order(k)
        blocks = together and k.splits
        return Facts(known, BLOCK_ROWS, combine="blocks" if blocks else "kernel")

    return of


def in_order_of_registers(*, sums: bool) -> Callable[[Any], Order]:
    """The order of keys in registers, by the problem's row."""
    return lambda k: keys_in_registers(k.d_qk, row_format(k.rows, k.d_qk).block if sums else 0)
