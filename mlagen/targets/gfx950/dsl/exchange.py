"""Exchanges: bytes of LDS that waves write for each other.

A ring's tiles come from global memory and are read by all; an exchange holds what the waves have
computed: sums of a row's parts, a maximum. An operation that defines `Value("SUMS", tile)` writes
it, one that uses it reads it. The wait, the barrier and their proof follow from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

ALIGN = 16  # ds_read_b128 and ds_write_b128 take multiples of 16 bytes (CDNA4 ISA, LDS)


@dataclass(frozen=True)
class Exchange:
    """`slots` times `size` bytes of LDS from byte `base` on; tile `t` lies in slot `t % slots`."""

    kind: ClassVar[str] = "exchange"
    name: str
    base: int
    size: int
    slots: int
    comment: str = ""
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def slot_bytes(self) -> int:
        """Bytes from one slot to the next."""
        return -(-self.size // ALIGN) * ALIGN

    @property
    def cycles(self) -> tuple[int, int]:
        """LDS cycles of a ring's reads; those of an exchange are its templates' own."""
        return 0, 0

    def describe(self) -> str:
        return f"{self.size} bytes that waves exchange"

    def slot_base(self, slot: int) -> int:
        """LDS address of a slot; of a tile, by its phase."""
        return self.base + slot % self.slots * self.slot_bytes
