"""Which bytes of LDS an access touches, as bit masks, made once for equal addresses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds.expressions import Lanes
from mlagen.binary.integers import MASK

SPACE = 1 << 18
"""Bytes that masks can hold: more than any LDS; accesses beyond are out of bounds anyway."""


_MASK_STEPS = 1000  # a mask stays in memory, and is long


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """`mask`: a bit a unit. `end`: the byte after the highest touched one. `start`: the lowest."""

    mask: int
    start: int
    end: int


class Footprints:
    """Footprints in units of `unit` bytes (a dword, or a byte where an access is narrower)."""

    def __init__(self, unit: int, budget: Budget) -> None:
        self.unit = unit
        self._budget = budget
        self._known: dict[tuple[bytes, tuple[tuple[int, int], ...]], Footprint] = {}
        self._single: dict[tuple[bytes, int], int] = {}

    def of(self, addresses: Lanes, parts: tuple[tuple[int, int], ...]) -> Footprint:
        """What lanes at `addresses` touch; `addresses` holds active lanes only."""
        key = (addresses.tobytes(), parts)
        found = self._known.get(key)
        if found is None:
            self._budget.spend(_MASK_STEPS)
            found = self._known[key] = self._make(addresses, key[0], parts)
        return found

    def words(self, mask: int) -> list[int]:
        """First bytes of the units in a mask."""
        bits = np.frombuffer(mask.to_bytes(SPACE // 8, "little"), dtype=np.uint8)
        found: list[int] = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        return [unit * self.unit for unit in found]

    def _make(self, lanes: Lanes, key: bytes, parts: tuple[tuple[int, int], ...]) -> Footprint:
        mask, start, end = 0, MASK, 0
        for offset, width in parts:
            if not len(lanes):
                continue
            first = (lanes + offset) & MASK
            start = min(start, int(first.min()))
            end = max(end, int(first.max()) + width)
            if offset % self.unit == 0 and int(lanes.max()) + offset + width <= SPACE:
                mask |= self._at_zero(lanes, key, width) << offset // self.unit
            else:
                mask |= self._mask(first, width)
        return Footprint(mask, start if end else 0, end)

    def _at_zero(self, lanes: Lanes, key: bytes, width: int) -> int:
        found = self._single.get((key, width))
        if found is None:
            found = self._single[key, width] = self._mask(lanes, width)
        return found

    def _mask(self, first: Lanes, width: int) -> int:
        bits = np.zeros(SPACE // self.unit, dtype=np.uint8)
        units = first[:, None] // self.unit + np.arange(
            -(-(width + int(np.any(first % self.unit)) * (self.unit - 1)) // self.unit)
        )
        bits[units[units < len(bits)]] = 1
        return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
