"""The tables of `grid`, for launches that may need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.emulator.ptx.order import layout as o
from mlagen.ptx import Entry

_STRONG = frozenset({"acquire", "release", "acq_rel", "relaxed", "volatile", "sc"})


@dataclass(frozen=True)
class GridTables:
    """Arrays to keep alive, and the words of C_GRID from G_CLUSTERS on."""

    arrays: tuple[np.ndarray, ...]
    words: tuple[int, ...]


def communicates(entry: Entry) -> bool:
    """Whether a kernel's clusters may tell each other something through global memory."""
    return any(
        i.name in ("atom", "red", "membar") or not _STRONG.isdisjoint(i.parts)
        for i in entry.instructions
        if i.name in ("atom", "red", "membar", "ld", "st", "fence")
    )


def grid_tables(entry: Entry, clusters: int, components: int) -> GridTables | None:
    """None: nothing of it is kept: no access of the kernel is for others to see, or there are too
    many clusters to be told apart."""
    if clusters > o.MOST_CLUSTERS or not communicates(entry):
        return None
    known = np.zeros(clusters * clusters * components, np.int64)
    flags = np.zeros(o.FLAGS * clusters * components, np.int64)
    index = np.zeros(2 * o.FLAG_SLOTS, np.int64)
    words = np.zeros(o.WORD_SLOTS * o.WORD_SIZE, np.int64)
    pages = np.zeros(o.PAGES, np.uint8)
    at = [array.ctypes.data for array in (known, flags, index, words, pages)]
    return GridTables(
        (known, flags, index, words, pages),
        (clusters, components, at[0], at[1], at[2], 0, at[3], 0, 0, at[4]),
    )
