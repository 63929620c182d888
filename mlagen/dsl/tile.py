"""The loop variable of a schedule: tile `i`, and its neighbours `i - 1`, `i + 2`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile `i + offset` of the loop that a schedule writes once."""

    offset: int = 0

    def __add__(self, other: int) -> Tile:
        return Tile(self.offset + other)

    def __sub__(self, other: int) -> Tile:
        return Tile(self.offset - other)

    def __str__(self) -> str:
        return "i" if self.offset == 0 else f"i{self.offset:+d}"
