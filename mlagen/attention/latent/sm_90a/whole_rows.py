"""MLA of few query rows over rows of e4m3 that are fetched whole, on Hopper.

As `scaled_sums`, but one instruction fetches a row: a bulk copy to SMEM. Loads of 16 bytes find a
row's page anew each time, which takes longer than its bytes where rows lie in gigabytes. A warp
fetches its own rows, eight at a time: the first keys of its threads for the next tile but one while
it converts the next one, then their second keys during the softmax. From SMEM threads take the
numbers that they keep. Of the first tile both halves are fetched at once, the second one to where
values will lie.

Half of a tile is on its way at a time. Where an SM has one block that is too little: `LoadsToo`
loads rows as `keys_in_registers` does unless its argument `bulk` is 1. The numbers are the same.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.sm_90a.keys_in_registers import OWN_KEYS
from mlagen.attention.latent.sm_90a.scaled_sums import ScaledSums
from mlagen.dsl import PipelineOrder, Tile, Value, at_least, by, touched
from mlagen.targets.nvidia.dsl import PipelineSpace

PITCH = 704  # bytes from row to row: eight lanes' 16 bytes of two rows meet no bank twice
WARPS, AT_ONCE = 4, 8  # rows of a warp
ROOM = PITCH * WARPS * AT_ONCE
BARRIERS = 8 * WARPS  # bytes
OWN_TEMPLATES = ("fetch_first", "locate", "take_first", "take_second", "fetch_box")


class WholeRows(ScaledSums):
    """The operations of one kernel over the schedule's tiles, as `ScaledSums`, and rooms for rows
    and barriers."""

    whole_rows = True

    def _tiles(self, s: PipelineSpace) -> None:
        super()._tiles(s)
        tiles = [column[0] for column in self.keys]
        self.first = s.smem.scratch("first rows", *tiles[: -(-ROOM // tiles[0].bytes)])

    def _registers(self, s: PipelineSpace) -> dict[str, Any]:
        found = super()._registers(s)
        if self.loads_too:
            why = "whether rows are fetched whole"
            found["by_bulk"] = s.named("by_bulk", ".pred", 1, why)[0]
        found["row_phase"] = s.named("row_phase", ".b32", 1, "parity of what is awaited")[0]
        rows_at, arrivals = (
            touched(s.smem.scratches[name], at_least("bytes", size, what))
            for name, size, what in (
                ("rows", ROOM, "half of a tile's rows"),
                ("arrivals of rows", BARRIERS, "an mbarrier of each warp"),
            )
        )
        found |= {
            "rows_at": rows_at, "first_rows": self.first, "pitch": PITCH,
            "arrivals_of_rows": arrivals,
        }  # fmt: skip
        return found

    @property
    def _more_than_rows(self) -> bool:
        return self.loads_too

    def _raw(self, box: int) -> tuple[str, ...]:
        return self._of_first(box), self._of_second(box)

    @staticmethod
    def _of_first(box: int) -> str:
        return f"first {box}"

    @staticmethod
    def _of_second(box: int) -> str:
        return f"second {box}"

    def _plain(self) -> PipelineOrder:
        name = self.math.name
        parts: list[str] = []
        for box in self.boxes:
            parts += [*self._before(box), f"convert {box}", f"qk {box}"]
            parts += [f"store_values {box}"] if self.valued(box) else []
            parts += [f"fetch {box}"] if self.loads_too else []
        parts += self._before(None)
        return PipelineOrder(
            before=by(name, "setup", "clear", "fetch_first"),
            tiles=by(
                name, "load_queries", "take_second", "locate", "look_up",
                *(f"free_values {part}" for part in range(self.products)), *self._listing, *parts,
                "take_first", *(["fetch_scales"] if self._more_than_rows else []),
                "softmax", "rescale", *(f"pv {part}" for part in range(self.products)),
            ),
            after=by(name, "store_sum", *self._at_last, "finish"),
        )  # fmt: skip

    def fetch_first(self) -> None:
        self._record(
            "fetch_first", None, every=self._every, joins=True,
            defines=(*(Value(name) for box in self.boxes for name in self._raw(box)),
                     Value(self.first.name)),
        )  # fmt: skip

    def take_second(self, tile: Tile) -> None:
        """Take the second keys of `tile`, but of the first one, from SMEM."""
        self._record("take_second", tile, domain="rest", every=self._every,
                     defines=tuple(Value(self._of_second(box)) for box in self.boxes))  # fmt: skip

    def fetch_after(self, tile: Tile, box: int) -> None:
        """Nothing: rows are fetched whole, or else as elsewhere."""
        if self.loads_too:
            super().fetch_after(tile, box)

    def take_first(self, tile: Tile) -> None:
        """Take the first keys of the tile after `tile`, and fetch its second ones."""
        self._record("take_first", tile, every=self._every,
                     defines=tuple(Value(self._of_first(box)) for box in self.boxes))  # fmt: skip

    @property
    def _every(self) -> list[dict[str, Any]]:
        assert len(self.supply["raw"]) == OWN_KEYS * (self.stored.words if self.stored else 0)
        return [self._numbers(box) for box in self.boxes]


class LoadsToo(WholeRows):
    """`WholeRows`, or rows that are loaded: the argument says."""

    loads_too = True
