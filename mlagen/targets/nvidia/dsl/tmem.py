"""Tensor memory (TMEM) as data: regions of columns in which matrix products leave their sums.

A region lies in all 128 lanes. One role's products write it; when they are done, `tcgen05.commit`
completes an mbarrier, and the role that reads it waits there. The role that reads it may also
change it between products, where other waits order the two. A *tile* is a ring of columns that a
pipeline hands from the products that fill it to the role that reads it. How many columns are
allocated, who does it and when they are given back follows from regions and tiles. Threads may fill
a tile too, where it is the operand A of products. A region whose producer reads it is an operand
that tcgen05.cp fills from SMEM.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mlagen.dsl.extents import declared_at
from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets.nvidia.dsl.smem import Smem
from mlagen.targets.nvidia.dsl.tmem_tile import COLUMN_BYTES, TmemTile

ADDRESS_BYTES = 4  # tcgen05.alloc writes the first column's address to SMEM


@dataclass(frozen=True, slots=True)
class TmemRegion:
    """`columns` columns of four bytes from `column` on, in all lanes. `barrier`: SMEM address of
    the mbarrier that the producer's last product completes, -1 for an operand."""

    kind: ClassVar[str] = "region"
    name: str
    column: int
    columns: int
    producer: str
    consumer: str
    barrier: int
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def bytes(self) -> int:
        """Bytes of all lanes."""
        return self.columns * COLUMN_BYTES

    @property
    def operand(self) -> bool:
        """Whether tcgen05.cp fills it, for products of the same role."""
        return self.consumer == self.producer

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.column + self.columns


# Columns of a region, or of a tile's slots, in whose place others lie while their content is not
# needed; the proof checks that. The number: the first of them.
Place = tuple[TmemRegion | TmemTile, int]


@dataclass
class Tmem:
    """The TMEM map of one schedule, filled while it is written. `capacity`: columns of an SM, 0
    where the target has no such memory; `least`: columns of the smallest allocation."""

    capacity: int
    least: int
    regions: dict[str, TmemRegion] = field(default_factory=dict)
    tiles: dict[str, TmemTile] = field(default_factory=dict)
    address: int = 0  # in SMEM, where the allocation's address is

    def region(
        self,
        smem: Smem,
        name: str,
        columns: int,
        *,
        producer: str,
        consumer: str,
        over: Place | None = None,
    ) -> TmemRegion:
        """Declare `columns` columns that products of `producer` write and `consumer` reads, or that
        tcgen05.cp fills for products of the same role."""
        first = self._claim(smem, name, columns, over)
        barrier = smem.mbarrier(name) if consumer != producer else -1
        self.regions[name] = TmemRegion(
            name, first, columns, producer, consumer, barrier, declared_at()
        )
        return self.regions[name]

    def tile(
        self, smem: Smem, name: str, columns: int, slots: int, over: Place | None = None
    ) -> TmemTile:
        """Declare `slots` times `columns` columns, for a pipeline. Over another tile, each slot
        lies in one of that tile's."""
        if slots < 1:
            raise ScheduleError(f"tile {name!r}: {slots} slots; a ring has 1 or more")
        under = over[0] if over else None
        if isinstance(under, TmemTile):
            if slots > under.slots:
                raise CapacityError(
                    f"tile {name!r}: {slots} slots over {under.name!r}, which has {under.slots}"
                )
            first, stride = self._claim(smem, name, columns, over), under.stride
        else:
            first, stride = self._claim(smem, name, columns * slots, over), columns
        self.tiles[name] = TmemTile(name, columns, slots, first, stride, declared_at())
        return self.tiles[name]

    def _claim(self, smem: Smem, name: str, columns: int, over: Place | None) -> int:
        """The first of `columns` columns."""
        if not self.capacity:
            raise ScheduleError(f"region {name!r}: the target has no tensor memory")
        if name in self.regions or name in self.tiles:
            raise ScheduleError(f"{name!r} is declared twice")
        if columns < 1:
            raise ScheduleError(f"region {name!r}: {columns} columns; it has 1 or more")
        if over is not None:
            under, at = over
            if at < 0 or at + columns > under.columns:
                raise CapacityError(
                    f"{name!r}: columns {at} to {at + columns - 1} of {under.name!r}, which has "
                    f"{under.columns}"
                )
            return under.column + at
        first = self.used
        if first + columns > self.capacity:
            held = ", ".join(f"{x.name} {x.end - x.column}" for x in self._held())
            raise CapacityError(
                f"TMEM ran out: {name!r} wants {columns} columns on top of {first}, "
                f"{first + columns} of {self.capacity}",
                hint=f"held so far: {held or 'nothing'}; fewer columns would fit",
            )
        if not first:
            self.address = smem.reserve("TMEM address", ADDRESS_BYTES)
        return first

    def _held(self) -> list[TmemRegion | TmemTile]:
        return [*self.regions.values(), *self.tiles.values()]

    @property
    def handed(self) -> list[TmemRegion]:
        """Regions that one role hands to another."""
        return [region for region in self.regions.values() if not region.operand]

    @property
    def used(self) -> int:
        """Columns that regions and tiles take."""
        return max((x.end for x in self._held()), default=0)

    @property
    def allocated(self) -> int:
        """Columns of the allocation: a power of two (PTX ISA, tcgen05.alloc)."""
        if not self.used:
            return 0
        return max(self.least, 1 << (self.used - 1).bit_length())

    @property
    def owner(self) -> str:
        """The role that allocates and gives back: the one that reads last."""
        consumers = {region.consumer for region in self.handed}
        if len(consumers) > 1:
            raise ScheduleError(
                f"TMEM is read by the roles {', '.join(sorted(consumers))}; one role reads it, and "
                f"gives it back after its last read"
            )
        return next(iter(consumers), "")
