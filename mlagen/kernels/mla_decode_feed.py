"""How a tile of 64 keys comes from pages of any size, and what each thread has to look up for it.

* Whole tiles: a page holds one tile or several; TMA fetches a tile's columns with one box.
* Parts: a tile lies in two or four pages; one box for each of them.
* Rows: a page is one row; 128 threads fetch 16 bytes at a time with cp.async, zeros for rows that
  do not exist.
* Converted: an e4m3 cache in pages of any size; a warpgroup of its own loads 16 numbers a thread at
  a time, turns them into bf16 and stores them as TMA would. Rows that do not exist are not loaded:
  the numbers that stay are finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.problem import MlaDecodeConfig
from mlagen.problem.mla_decode import TILE

GATHERERS = 128  # threads that fetch single rows: a role


@dataclass(frozen=True, slots=True)
class Feed:
    """The way of one page size. `lookups`: table entries that a thread keeps for a tile."""

    kind: Literal["whole", "parts", "rows", "converted"]
    page: int

    @staticmethod
    def of(k: MlaDecodeConfig) -> Feed:
        if k.cache_dtype != "bf16":
            return Feed("converted", k.page_size)
        if k.page_size % TILE == 0:
            return Feed("whole", k.page_size)
        return Feed("rows" if k.page_size == 1 else "parts", k.page_size)

    @property
    def lookups(self) -> int:
        return self.passes if self.gatherers else max(TILE // self.page, 1)

    @property
    def box_rows(self) -> int:
        """Rows of a box of the cache's tensor map."""
        return min(self.page, TILE)

    @property
    def tiles(self) -> int:
        """Tiles a page, where there is one or more."""
        return max(self.page // TILE, 1)

    @property
    def gatherers(self) -> int:
        """Threads that fill a slot; 0: TMA does."""
        return GATHERERS if self.kind in ("rows", "converted") else 0

    @property
    def lanes_a_row(self) -> int:
        """Threads that share 64 columns of a row, 16 bytes each."""
        return 4 if self.kind == "converted" else 8

    @property
    def rows_apart(self) -> int:
        """Rows between the ones that a thread fetches."""
        return GATHERERS // self.lanes_a_row

    @property
    def passes(self) -> int:
        """Rows of a tile that a thread fetches."""
        return TILE // self.rows_apart
