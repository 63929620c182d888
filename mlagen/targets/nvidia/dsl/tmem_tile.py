"""A ring of columns of TMEM, whose slots products fill."""

from __future__ import annotations

from dataclasses import dataclass

COLUMN_BYTES = 512  # four in each of 128 lanes


@dataclass(frozen=True, slots=True)
class TmemTile:
    """`slots` times `columns` columns of four bytes from `column` on, in all lanes."""

    name: str
    columns: int
    slots: int
    column: int

    @property
    def bytes(self) -> int:
        """Of a slot."""
        return self.columns * COLUMN_BYTES

    def slot_column(self, slot: int) -> int:
        return self.column + slot % self.slots * self.columns
