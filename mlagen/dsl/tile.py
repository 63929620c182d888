"""The loop variable of a schedule: tile `i`, its neighbours `i - 1`, `i + 2`, what they hold."""

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


@dataclass(frozen=True, slots=True)
class Value:
    """What tile `tile` holds in the registers `block`; tile None: one for the whole kernel."""

    block: str
    tile: Tile | None = None

    def __str__(self) -> str:
        return f"{self.block}({self.tile})" if self.tile is not None else self.block


@dataclass(frozen=True, slots=True)
class RingTile:
    """Slot content: tile `tile` of ring `ring`."""

    ring: str
    tile: Tile

    def __str__(self) -> str:
        return f"{self.ring}({self.tile})"
