"""A form of a kernel over latent rows on gfx950, as the kernel's file lists it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mlagen.attention.latent.facts import Facts, Items
from mlagen.attention.latent.gfx950.parts import Parts
from mlagen.attention.latent.gfx950.sizes import WAVES
from mlagen.attention.latent.order import Order
from mlagen.dsl import Variant

OfProblem = Parts | Callable[[Any], Parts]


def form(
    name: str, use: str, table: Callable[..., None], parts: OfProblem, order: Order, **more: Any
) -> Variant:
    """A variant whose schedule is `table(problem, space, parts)`, and which computes in this order.
    `parts`: those of every problem, or what makes them of one. `more`: fields of `Variant`."""
    return Variant(
        name, use, partial(of_parts, table, parts), partial(_facts, parts, order), **more
    )


def of_parts(table: Callable[..., None], parts: OfProblem, k: Any, s: Any) -> None:
    """The schedule of a problem."""
    table(k, s, of_problem(parts, k))


def of_problem(parts: OfProblem, k: Any) -> Parts:
    return parts if isinstance(parts, Parts) else parts(k)


def _facts(parts: OfProblem, order: Order, k: Any, knobs: Mapping[str, Any]) -> Facts:
    items: Items = "several" if knobs.get("persistent") else "one"
    if knobs.get("arguments") == "aiter":
        items = "aiter"
    return Facts(order, WAVES * of_problem(parts, k).shape.rows, items=items)
