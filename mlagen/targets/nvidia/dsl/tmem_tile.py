"""A ring of columns of TMEM, whose slots products or threads fill."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

COLUMN_BYTES = 512  # four in each of 128 lanes


@dataclass(frozen=True, slots=True)
class TmemTile:
    """`slots` times `columns` columns of four bytes, the first at `column`, in all lanes. `stride`:
    columns from one slot to the next."""

    kind: ClassVar[str] = "columns"
    name: str
    columns: int
    slots: int
    column: int
    stride: int
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def bytes(self) -> int:
        """Of a slot."""
        return self.columns * COLUMN_BYTES

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.slot_column(self.slots - 1) + self.columns

    def slot_column(self, slot: int) -> int:
        return self.column + slot % self.slots * self.stride
