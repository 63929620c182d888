"""Sparse MLA of few heads on Hopper: rows that a query's list names, or two lists.

A block has one query, or a split of its keys, of its first list and then of its second one.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import ROWS
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel, check_rows
from mlagen.dsl import Tile
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.nvidia.signature import (
    DECODE_SYMBOL,
    SYMBOL,
    decode_signature,
    signature,
)

FOLDER = "swap_ab/rows/listed"
EXTRA = (
    ("main", ".b32", "tiles of the first list"),
    ("extra_table", ".b64", "the query's second list"),
    ("extra_keys", ".b32", "keys of that list"),
)
CAUSAL = (
    ("positions", ".b64", "positions of the list's keys"),
    ("last", ".b32", "the position up to which this query sees keys"),
)


def lists(kernel: SwapAbKernel, *, boxes: int | None, bulk: bool = False) -> None:
    """Declares the kernel's signature, and its lists. `boxes`: rows of Q that TMA fetches; None: it
    comes by way of registers; `bulk`: the kernel has that argument."""
    k, s, decode = kernel.k, kernel.s, isinstance(kernel.k, MlaSparseDecodeConfig)
    check_rows(kernel.rows, k.num_heads)
    of_decode: dict[str, Any] = {"extra": False, "causal": False, "shared_list": False}
    if decode:
        of_decode = {name: getattr(k, name) for name in of_decode} | {"slot_rows": ROWS}
    kernel.context |= {
        "decode": decode, "scaled": k.rows == "e4m3", "item_rows": k.num_heads,
        "row_bits": kernel.context["row_major_bits"],
        "column_bits": kernel.context["column_major_bits"], **of_decode,
    }  # fmt: skip
    kernel.name(
        ("unit", ".b32", "this block's heads of a query, among all queries'"),
        ("query_row", ".b32", "its first row of Q"),
        *([("split", ".b32", "which split of its keys")] if decode else ()),
        *(EXTRA if of_decode["extra"] else ()),
        *(CAUSAL if of_decode["causal"] else ()),
        ("table", ".b64", "this query's list"),
        ("keys", ".b32", "keys of the list"),
        ("ahead", ".b32", "tile to look up next"),
    )
    if decode:
        s.signature = decode_signature(k, kernel.threads, rows=boxes, resident=2, together=True,
                                       bulk=bulk)  # fmt: skip
    else:
        s.signature = signature(k, kernel.threads, rows=boxes, grid="units", resident=2)
    s.symbol = DECODE_SYMBOL if decode else SYMBOL


class Listed:
    """Lists whose rows a thread fetches for itself, two keys of a tile. `positions_first`: a list
    is loaded of keys that the token sees, once their positions are there: so both share registers,
    of which sums of columns leave the fewest."""

    def __init__(self, kernel: SwapAbKernel, *, sums: bool, bulk: bool) -> None:
        """`sums`: scales multiply sums of columns; `bulk`: the kernel has that argument."""
        self.kernel = kernel
        lists(kernel, boxes=None, bulk=bulk)
        causal = bool(kernel.context["causal"])
        self.positions_first = kernel.context["positions_first"] = causal and sums
        kernel.context["looks_ahead"] = False
        kernel.name(("stop", ".b32", "the tile after this block's last"))
        kernel.names(("place", ".b32", 2, "rows of the next tile that this thread fetches"))
        if causal and not sums:
            kernel.names(("where", ".b32", 2, "positions of two keys of this thread's next tile"))

    def setup(self) -> None:
        """Find this block's item and its list."""
        self.kernel.record("swap_ab/rows/listed/setup", None)

    def look_up(self, tile: Tile) -> None:
        """What was loaded with the rows of `tile` is this tile's."""
        self.kernel.record(f"{FOLDER}/look_up", tile)

    def look_ahead(self, tile: Tile, *, when: bool) -> None:
        """Load which rows the second tile after `tile` has, or where positions come first, these.
        `when`: or elsewhere."""
        if when:
            self.kernel.record(f"{FOLDER}/look_ahead", tile)

    def list_seen(self, tile: Tile, *, when: bool) -> None:
        """Where positions come first, load which rows the second tile after `tile` has. `when`: or
        elsewhere."""
        if when and self.positions_first:
            self.kernel.record(f"{FOLDER}/list_seen", tile)

    @property
    def steps(self) -> tuple[str, ...]:
        """Of the plain order."""
        return ("look_ahead", "list_seen") if self.positions_first else ("look_ahead",)


class SharedLists:
    """Lists whose rows all threads fetch, `groups` of a tile each, so that a thread looks up its
    own two keys besides, for its scores. Where rows are loaded to registers (`ahead`), lists are
    loaded a tile before they are used: whoever waits for a list that was just asked for waits for
    rows, too. Positions and second lists leave no registers for it."""

    def __init__(
        self, kernel: SwapAbKernel, groups: int, *, ahead: bool, boxes: int | None
    ) -> None:
        self.kernel = kernel
        lists(kernel, boxes=boxes)
        context = kernel.context
        causal, extra = bool(context["causal"]), bool(context["extra"])
        context["seen"] = ()  # what rows are is asked of the list again
        looks = context["looks_ahead"] = bool(ahead and context["decode"] and not causal | extra)
        kernel.names(
            ("place", ".b32", groups, "rows of the next tile that this thread fetches"),
            ("key", ".b32", 2, "rows that this thread's two keys of the next tile are"),
        )
        if causal:
            kernel.names(
                ("place_where", ".b32", groups, "positions of these rows"),
                ("where", ".b32", 2, "positions of two keys of this thread's next tile"),
            )
        if looks:
            kernel.names(
                ("next_key", ".b32", 2, "the same of the tile after it"),
                ("next_place", ".b32", groups, "rows of that tile that this thread fetches"),
            )

    def setup(self) -> None:
        """Find this block's item, its list, and what the first tile's rows are."""
        self.kernel.record("swap_ab/rows/listed/setup", None)

    def look_up(self, tile: Tile) -> None:
        """Load which rows the tile after `tile` has."""
        self.kernel.record("swap_ab/rows/listed/shared/look_up", tile)
