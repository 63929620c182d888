"""A form of a kernel over latent rows on gfx950, as the kernel's file lists it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mlagen.attention.latent.costs import Costs
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.gfx950.parts import LatentForm
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.latent.order import Order
from mlagen.attention.manifest_facts import Items
from mlagen.dsl import Variant

OfProblem = LatentForm | Callable[[Any], LatentForm]
OfRows = Callable[[Any, int], Costs]


def latent_form(
    name: str,
    use: str,
    table: Callable[..., None],
    parts: OfProblem,
    order: Order,
    *,
    costs: OfRows | None = None,
    **more: Any,
) -> Variant:
    """A variant whose schedule is `table(problem, space, parts)`, and which computes in this order.
    `parts`: those of every problem, or what makes them of one; `costs`: those of a problem and of
    a workgroup's query rows. `more`: fields of `Variant`."""
    facts = partial(_facts, parts, order, costs)
    return Variant(name, use, partial(of_parts, table, parts), facts, **more)


def of_parts(table: Callable[..., None], parts: OfProblem, k: Any, s: Any) -> None:
    """The schedule of a problem."""
    table(k, s, of_problem(parts, k))


def of_problem(parts: OfProblem, k: Any) -> LatentForm:
    return parts if isinstance(parts, LatentForm) else parts(k)


def _facts(
    parts: OfProblem, order: Order, costs: OfRows | None, k: Any, knobs: Mapping[str, Any]
) -> Facts:
    items: Items = "several" if knobs.get("persistent") else "one"
    if knobs.get("arguments") == "aiter":
        items = "aiter"
    rows = WAVES * of_problem(parts, k).shape.rows
    return Facts(order, rows, items=items, costs=costs(k, rows) if costs else None)
