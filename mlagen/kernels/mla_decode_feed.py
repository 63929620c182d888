"""How a tile of 64 keys comes from pages of any size, and what each thread has to look up for it.

* Whole tiles: a page holds one tile or several; TMA fetches a tile's columns with one box.
* Parts: a tile lies in two or four pages; one box for each of them.
* Rows: a page is one row; 128 threads fetch 16 bytes at a time with cp.async, zeros for rows that
  do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.problem.mla_decode import TILE

GATHERERS = 128  # threads that fetch single rows: a role
LANES_A_ROW = 8  # 16 bytes each of a 128-byte tile row


@dataclass(frozen=True, slots=True)
class Feed:
    """The way of one page size. `lookups`: table entries that a thread keeps for a tile."""

    kind: Literal["whole", "parts", "rows"]
    page: int

    @staticmethod
    def of(page_size: int) -> Feed:
        if page_size % TILE == 0:
            return Feed("whole", page_size)
        return Feed("rows" if page_size == 1 else "parts", page_size)

    @property
    def lookups(self) -> int:
        if self.kind == "rows":
            return TILE * LANES_A_ROW // GATHERERS
        return max(TILE // self.page, 1)

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
        """Threads that fill a slot with cp.async; 0: TMA does."""
        return GATHERERS if self.kind == "rows" else 0

    @property
    def rows_apart(self) -> int:
        """Rows between the ones that a thread fetches."""
        return GATHERERS // LANES_A_ROW
