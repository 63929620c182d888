"""The plain order of MLA decode: what the warpgroups compute, as if one acted at a time.

For the even tile e and the odd tile o of a pass:

    left    S = Q K(e); M = max(M, S), alpha, P = exp2(S - M), l += P
            O = alpha O + P V(e), its columns                           M of the left one
    right   S = Q K(o)
            takes M after e: alpha                                      M of the right one
            M = max(M, S), alpha too, P = exp2(S - M), l += P
            O = alpha O + P V(o), its columns; P for the left one
    left    takes M after o: alpha; rescales P(e), stores it for the right one
            O = alpha O + P(o) V(o), with P of the right one
    right   O += P(e) V(e), with P of the left one

An even tile that has no odd one leaves the lines of o out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mlagen.dsl import Part, PipelineOrder, by

TILES = EVEN, ODD = 0, 1
HINTS = frozenset({"prefetch", "late_arrive"})  # to L2, and a place for an arrival


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of the cache that `role` fetches: the pipelines `names`, in bf16 in the end. `raw`:
    those that its e4m3 numbers come by, by the pipeline that is made of them. `listed`: the role
    loads the list of each tile whose scores it has."""

    role: str
    names: tuple[str, ...]
    raw: dict[str, str]
    listed: bool = False


def _fetch(half: Fetched, tile: int, does: str, *, own: bool) -> Iterator[Part]:
    """What a math role does for a tile of its columns. `own`: it has the tile's scores."""
    if does == "convert":
        yield from by(
            half.role, *(f"copy {half.raw.get(name, name)}" for name in half.names), tile=tile
        )
    if half.listed and own:
        yield from by(half.role, "load_list", tile=tile)
    if does == "convert":
        yield from by(half.role, "next_page", tile=tile)


def _feed(feeder: str, halves: Sequence[Fetched], tile: int, does: str) -> Iterator[Part]:
    """What the feeder does for a tile."""
    feeds = does in ("feed", "measure")
    if feeds:
        yield from by(feeder, "look_up", tile=tile)
    if does != "convert":
        yield from by(feeder, "find_rows", tile=tile)
    if does == "measure":
        yield from by(feeder, "measure", "store_grains", tile=tile)
    for half in halves:
        for name in half.names:
            if does == "convert" and name in half.raw:
                yield from by(feeder, f"read_e4m3 {half.raw[name]}", tile=tile)
            elif feeds:
                yield from by(feeder, f"fetch {name}", tile=tile)
            if does != "convert" or name in half.raw:
                yield from by(feeder, f"copy {name}", tile=tile)
    if does != "convert":
        yield from by(feeder, "publish" if feeds else "next_page", tile=tile)


def _scores(own: Fetched, other: Fetched, tile: int) -> tuple[Part, ...]:
    words = [f"qk {name}" for name in (*own.names, *other.names)]
    words[0] += ", first"
    return by(own.role, *words, tile=tile)


def plain_order(
    left: Fetched,
    right: Fetched,
    *,
    feeder: str,
    does: Literal["convert", "gather", "feed", "measure"] = "convert",
    zeroes_tail: bool,
    scales: bool,
    queries: Sequence[str],
    persistent: bool,
) -> PipelineOrder:
    """The order of one kernel. `feeder`: a role beside these two, or ""; what it `does`: converts
    e4m3 to bf16, gathers bf16, or feeds e4m3 as bf16, with all that concerns rows; or measures
    grains of rows, and feeds multiples of them as f16. Where it fetches rows the others give back
    their places. `zeroes_tail`: rows past the end of a sequence are set to 0. `scales`: rows have
    scales. `queries`: what loads Q."""
    a, b = left.role, right.role
    halves = left, right
    zero_tail = ("zero_tail",) if zeroes_tail else ()

    def both(*keys: str) -> tuple[Part, ...]:
        return (*by(a, *keys), *by(b, *keys))

    def all_of(*keys: str) -> tuple[Part, ...]:
        return (*both(*keys), *(by(feeder, *keys) if feeder else ()))

    return PipelineOrder(
        before=all_of("setup"),
        seeks=all_of("next_item", "next_keys", "next_tiles") if persistent else (),
        item=(*(all_of("begin") if persistent else ()), *both("clear")),
        step=2,
        tiles=(
            *by(a, *queries, tile=EVEN),
            *(part for half in halves for tile in TILES
              for part in _fetch(half, tile, does, own=half is halves[tile])),
            *(part for tile in TILES if feeder
              for part in _feed(feeder, halves, tile, does)),
            *(part for tile in TILES if scales for part in by(feeder, "load_scales", tile=tile)),
            # softmax of the even tile, and its product
            *by(a, "hold_queries", tile=EVEN),
            *_scores(left, right, EVEN),
            *by(a, "row_maximum", "running_maximum M left, fresh", tile=EVEN),
            *by(a, "exponent", *zero_tail, "rescale", tile=EVEN),
            *by(a, "pv P, left columns", tile=EVEN),
            # softmax of the odd tile, after the even one's maximum, and its product
            *by(b, "hold_queries", tile=ODD),
            *_scores(right, left, ODD),
            *by(b, "take_left_maximum", tile=EVEN),
            *by(b, "row_maximum", "running_maximum M right", "exponent", *zero_tail, tile=ODD),
            *by(b, "store_p P right", tile=ODD),
            *by(b, "rescale", tile=EVEN),
            *by(b, "pv P, right columns", tile=ODD),
            # each one's product with the other's P
            *by(a, "take_right_maximum", tile=ODD),
            *by(a, "store_p P left", tile=EVEN),
            *by(a, "rescale", "pv P right, left columns", tile=ODD),
            *by(b, "pv P left, right columns", tile=EVEN),
            *(part for half in halves for tile in TILES if does != "convert"
              for part in by(half.role, *(f"release {name}" for name in half.names), tile=tile)),
        ),
        after=(
            *by(a, "store_sum l left"),
            *by(b, "store_sum l right", "finish l left"),
            *by(a, "finish l right"),
            *((*by(b, "arrive_sums"), *by(a, "wait_sums")) if persistent else ()),
        ),
        hints=HINTS,
    )  # fmt: skip
