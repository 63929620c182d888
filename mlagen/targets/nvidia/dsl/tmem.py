"""Tensor memory (TMEM) as data: regions of columns in which matrix products leave their sums.

A region lies in all 128 lanes. One role's products write it; when they are done, `tcgen05.commit`
completes an mbarrier, and the role that reads it waits there. How many columns are allocated, who
does it and when they are given back follows from the regions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets.nvidia.dsl.smem import Smem

ADDRESS_BYTES = 4  # tcgen05.alloc writes the first column's address to SMEM
COLUMN_BYTES = 4 * 128  # four of each lane (PTX ISA, "Tensor Memory")


@dataclass(frozen=True, slots=True)
class TmemRegion:
    """`columns` columns of four bytes from `column` on, in all lanes. `barrier`: SMEM address of
    the mbarrier that the producer's last product completes."""

    name: str
    column: int
    columns: int
    producer: str
    consumer: str
    barrier: int

    @property
    def bytes(self) -> int:
        """Bytes of all lanes."""
        return self.columns * COLUMN_BYTES


@dataclass
class Tmem:
    """The TMEM map of one schedule, filled while it is written. `capacity`: columns of an SM, 0
    where the target has no such memory; `least`: columns of the smallest allocation."""

    capacity: int
    least: int
    regions: dict[str, TmemRegion] = field(default_factory=dict)
    address: int = 0  # in SMEM, where the allocation's address is

    def region(
        self, smem: Smem, name: str, columns: int, *, producer: str, consumer: str
    ) -> TmemRegion:
        """Declare `columns` columns that products of `producer` write and `consumer` reads."""
        if not self.capacity:
            raise ScheduleError(f"region {name!r}: the target has no tensor memory")
        if name in self.regions:
            raise ScheduleError(f"{name!r} is declared twice")
        if columns < 1:
            raise ScheduleError(f"region {name!r}: {columns} columns; it has 1 or more")
        first = self.used
        if first + columns > self.capacity:
            held = ", ".join(f"{r.name} {r.columns}" for r in self.regions.values())
            raise CapacityError(
                f"TMEM ran out: {name!r} wants {columns} columns on top of {first}, "
                f"{first + columns} of {self.capacity}",
                hint=f"held so far: {held or 'nothing'}; fewer columns would fit",
            )
        if not self.regions:
            self.address = smem.reserve("TMEM address", ADDRESS_BYTES)
        barrier = smem.mbarrier(name)
        self.regions[name] = TmemRegion(name, first, columns, producer, consumer, barrier)
        return self.regions[name]

    @property
    def used(self) -> int:
        """Columns that regions take."""
        return sum(region.columns for region in self.regions.values())

    @property
    def allocated(self) -> int:
        """Columns of the allocation: a power of two (PTX ISA, tcgen05.alloc)."""
        if not self.regions:
            return 0
        return max(self.least, 1 << (self.used - 1).bit_length())

    @property
    def owner(self) -> str:
        """The role that allocates and gives back: the one that reads last."""
        consumers = {region.consumer for region in self.regions.values()}
        if len(consumers) > 1:
            raise ScheduleError(
                f"TMEM is read by the roles {', '.join(sorted(consumers))}; one role reads it, and "
                f"gives it back after its last read"
            )
        return next(iter(consumers), "")
