"""The tables of `grid`, for launches that may need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.emulator.ptx.order import record_sizes as o
from mlagen.ptx import Entry

_STRONG = frozenset({"acquire", "release", "acq_rel", "relaxed", "volatile", "sc"})


@dataclass(frozen=True)
class GridTables:
    """Arrays to keep alive, and C_ORDER, which has their addresses."""

    arrays: tuple[np.ndarray, ...]
    words: np.ndarray


def communicates(entry: Entry) -> bool:
    """Whether a kernel has what may tell others something through memory."""
    return any(
        i.name in ("atom", "red", "membar") or not _STRONG.isdisjoint(i.parts)
        for i in entry.instructions
        if i.name in ("atom", "red", "membar", "ld", "st", "fence")
    )


def grid_tables(clusters: int, components: int, *, others: bool) -> GridTables:
    """Tables of flags for `clusters` that are told apart, none for 0. `others`: words that other
    clusters have accessed are kept, too."""
    known = np.zeros(clusters * clusters * components, np.int64)
    flags = np.zeros(o.FLAGS * clusters * components, np.int64)
    index = np.zeros(2 * o.FLAG_SLOTS if clusters else 0, np.int64)
    words = np.zeros(o.WORD_SLOTS * o.WORD_SIZE if others else 0, np.int64)
    told = np.zeros(o.G_SIZE, np.int64)
    at = [array.ctypes.data for array in (known, flags, index)]
    told[[o.G_CLUSTERS, o.G_COMPONENTS, o.G_KNOWN, o.G_FLAGS]] = clusters, components, at[0], at[1]
    told[[o.G_FLAG_INDEX, o.G_WORDS]] = at[2], words.ctypes.data if others else 0
    return GridTables((known, flags, index, words), told)
