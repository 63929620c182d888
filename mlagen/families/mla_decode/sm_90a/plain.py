"""The plain order of MLA decode: what the warpgroups compute, as if one acted at a time.

For the even tile e and the odd tile o of a pass:

    left    S = Q K(e); M = max(M, S), alpha, P = exp2(S - M), l += P
            O = alpha O + P V(e), its columns                           M of the left one
    right   S = Q K(o)
            follows M after e: alpha                                    M of the right one
            M = max(M, S), alpha too, P = exp2(S - M), l += P
            O = alpha O + P V(o), its columns; P for the left one
    left    follows M after o: alpha; its P(e) with it, and for the right one
            O = alpha O + P(o) V(o), with P of the right one
    right   O += P(e) V(e), with P of the left one

An even tile that has no odd one leaves the lines of o out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.dsl import Part, PipelineOrder, by

EVEN, ODD = 0, 1
HINTS = frozenset({"prefetch", "turn"})  # to L2, and a place for an arrival


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of the cache that `role` fetches: the pipelines `names`, in bf16 in the end. `raw`:
    those that its e4m3 numbers come by, by the pipeline that is made of them."""

    role: str
    names: tuple[str, ...]
    raw: dict[str, str]


def plain_order(
    left: Fetched,
    right: Fetched,
    *,
    feeder: str,
    cleans: bool,
    scales: bool,
    queries: Sequence[str],
    persistent: bool,
) -> PipelineOrder:
    """The order of one kernel. `feeder`: who makes bf16 of e4m3, or "". `cleans`: rows behind the
    end of a sequence are set to 0. `scales`: rows have scales. `queries`: what loads Q."""
    a, b = left.role, right.role
    clean = ("clean",) if cleans else ()

    def both(*keys: str) -> tuple[Part, ...]:
        return (*by(a, *keys), *by(b, *keys))

    def fetch(half: Fetched, tile: int) -> tuple[Part, ...]:
        copies = (f"copy {half.raw.get(name, name)}" for name in half.names)
        return by(half.role, *copies, "next_page", tile=tile)

    def convert(tile: int) -> tuple[Part, ...]:
        made = [
            word for half in (left, right) for name, raw in half.raw.items()
            for word in (f"take {raw}", f"copy {name}")
        ]  # fmt: skip
        return by(feeder, *made, *(["bring_scales"] if scales else []), tile=tile)

    def scores(own: Fetched, other: Fetched, tile: int) -> tuple[Part, ...]:
        words = [f"qk {name}" for name in (*own.names, *other.names)]
        words[0] += ", first"
        return by(own.role, *words, tile=tile)

    return PipelineOrder(
        before=(*both("place"), *(by(feeder, "place") if feeder else ())),
        seeks=both("next_item", "next_keys", "next_tiles") if persistent else (),
        item=both(*(["begin"] if persistent else []), "clear"),
        step=2,
        tiles=(
            *by(a, *queries, tile=EVEN),
            *(part for half in (left, right) for tile in (EVEN, ODD) for part in fetch(half, tile)),
            *(part for tile in (EVEN, ODD) if feeder for part in convert(tile)),
            # softmax of the even tile, and its product
            *by(a, "hold_queries", tile=EVEN),
            *scores(left, right, EVEN),
            *by(
                a, "row_maximum", "maximum M left, fresh", "exponent", *clean, "rescale", tile=EVEN
            ),
            *by(a, "pv P, left columns", tile=EVEN),
            # softmax of the odd tile, behind the even one's maximum, and its product
            *by(b, "hold_queries", tile=ODD),
            *scores(right, left, ODD),
            *by(b, "heed", tile=EVEN),
            *by(b, "row_maximum", "maximum M right", "exponent", *clean, tile=ODD),
            *by(b, "publish P right", tile=ODD),
            *by(b, "rescale", tile=EVEN),
            *by(b, "pv P, right columns", tile=ODD),
            # each one's product with the other's P
            *by(a, "follow", tile=ODD),
            *by(a, "publish P left", tile=EVEN),
            *by(a, "rescale", "pv P right, left columns", tile=ODD),
            *by(b, "pv P left, right columns", tile=EVEN),
        ),
        after=(
            *by(a, "give_sum l left"),
            *by(b, "give_sum l right", "finish l left"),
            *by(a, "finish l right"),
            *((*by(b, "tell"), *by(a, "heard")) if persistent else ()),
        ),
        hints=HINTS,
    )
