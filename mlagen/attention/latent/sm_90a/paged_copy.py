"""How a tile of 64 keys is copied from pages of any size, and what each thread looks up for it.

* Whole tiles: a page holds one tile or several; TMA fetches a tile's columns with one box.
* Parts: a tile lies in two or four pages; TMA fetches one box from each of them.
* Rows: a page is one row; 128 threads fetch 16 bytes at a time with cp.async, and zeros for rows
  that do not exist.

An e4m3 cache is copied the same way, 128 columns where bf16 has 64, into the first half of the SMEM
that its columns will take; the feeder converts them to bf16 there. The rotary columns of rope-aware
rows are bf16 already and are copied to where they stay; the feeder also loads the rows' scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.attention.latent.nvidia.sizes import TILE
from mlagen.attention.latent.problem import LatentProblem
from mlagen.errors import ScheduleError

PRODUCER_THREADS = 128  # threads that fetch single rows: a role
LANES_A_ROW = 8  # 16 bytes each of a 128-byte tile row


@dataclass(frozen=True, slots=True)
class PagedCopy:
    """How tiles are copied from pages of one size and type. `lookups`: table entries that a thread
    keeps for a tile."""

    kind: Literal["whole", "parts", "rows"]
    page: int
    converted: bool
    columns: int  # elements of a row of the cache's tensor

    @staticmethod
    def of(k: LatentProblem) -> PagedCopy:
        kind: Literal["whole", "parts", "rows"] = (
            "whole" if k.page_size % TILE == 0 else "rows" if k.page_size == 1 else "parts"
        )
        return PagedCopy(kind, k.page_size, k.cache_dtype != "bf16", k.cache_columns)

    @property
    def bytes(self) -> int:
        """Of a number of the cache."""
        return 1 if self.converted else 2

    @property
    def box_columns(self) -> int:
        """Columns of a 128-byte row."""
        return 128 // self.bytes

    @property
    def lookups(self) -> int:
        if self.page == 1:
            return self.passes
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
    def producer_threads(self) -> int:
        """Threads that fill a slot; 0: TMA does."""
        return PRODUCER_THREADS if self.kind == "rows" else 0

    @property
    def rows_apart(self) -> int:
        """Rows between the ones that a thread fetches."""
        return PRODUCER_THREADS // LANES_A_ROW

    @property
    def passes(self) -> int:
        """Rows of a tile that a thread fetches."""
        return TILE // self.rows_apart


def check_ahead(paged: PagedCopy, ahead: int) -> None:
    """ScheduleError where the tile that is so many after the fetched one cannot be brought to L2:
    single rows have no tensor map, whose boxes are prefetched."""
    if ahead < 0 or (ahead and paged.kind == "rows"):
        raise ScheduleError(
            f"ahead={ahead} with page_size={paged.page}",
            hint="boxes of pages of several rows are prefetched, of a later tile; or ahead=0",
        )
