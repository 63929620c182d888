"""Shared memory on Hopper, as data: rings of tiles, the mbarrier pipelines that move them between
roles, and the named-barrier exchanges that roles write for each other.

A tile row is at most 128 bytes wide: that is the width of the 128-byte swizzle, which TMA applies
when it writes and `wgmma` undoes when it reads. Wider operands are several columns of such tiles.

Two things move between roles. A *pipeline* is a ring of tiles that its producer fills: mbarriers
say that a slot is full, and where consumers release slots, that it is empty. An *exchange* is a
buffer that one role's threads write for another's: writers arrive at a named barrier, readers wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from mlagen.artifact.manifest import TENSOR_MAP_BOX
from mlagen.dsl.extents import declared_at
from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets.nvidia.dsl.tmem_tile import TmemTile
from mlagen.targets.nvidia.limits import Nvidia

SWIZZLE_ROW_BYTES = max(Nvidia.swizzle_modes)
SWIZZLE_ALIGN = Nvidia.swizzle_align(SWIZZLE_ROW_BYTES)
VECTOR = 16  # bytes that a thread moves at once


@dataclass(frozen=True, slots=True)
class TmaTile:
    """`rows` rows of `row_bytes` in SMEM, filled by one TMA box of the tensor map `tensor`."""

    kind: ClassVar[str] = "tile"
    name: str
    tensor: str
    rows: int
    row_bytes: int
    slots: int
    base: int
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    def __post_init__(self) -> None:
        if self.row_bytes != SWIZZLE_ROW_BYTES:
            raise ScheduleError(
                f"tile {self.name!r}: rows of {self.row_bytes} bytes do not fit the 128-byte "
                f"swizzle",
                hint="tiles are 128 bytes wide (64 bf16); take several side by side",
            )
        if self.rows % 8 or not 8 <= self.rows <= TENSOR_MAP_BOX:
            raise ScheduleError(
                f"tile {self.name!r}: {self.rows} rows; a box has 8 to {TENSOR_MAP_BOX}, in eights"
            )

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    def slot_base(self, slot: int) -> int:
        return self.base + slot % self.slots * self.bytes


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Tiles that one role fills and others use, `depth` deep.

    The mbarrier `full` of a slot completes when all of its bytes have landed. With `releases`, its
    mbarrier `empty` completes when every warp of `released_by` has released it; without, the
    schedule's other waits must order each fill after the last use of the slot, and the proof checks
    it. Tiles of TMEM are filled by products, whose commit completes `full`, or by threads, of which
    each warp arrives once.
    """

    kind: ClassVar[str] = "pipeline"
    name: str
    tiles: tuple[TmaTile, ...]
    producer: str
    consumers: tuple[str, ...]
    depth: int
    barriers: int  # SMEM address of full[0]; empty[0] follows after `depth` barriers
    releases: int  # arrivals that empty a slot: one a releasing warp; 0: there is no such barrier
    resident: bool = False  # filled once an item; released only where another item follows
    producer_threads: int = 0  # threads that fill a slot; 0: TMA does
    within: str = ""  # the pipeline that takes the same SMEM next, made of these tiles in place
    by_warps: bool = False  # each warp makes rows of its own, and arrives once
    released_by: tuple[str, ...] = ()  # the consumers that release slots
    fenced: bool = False  # who fills it also fences what it wrote, for matrix instructions
    blocks: int = 1  # of a CTA cluster, whose producers each fill a part of every slot of all
    columns: tuple[TmemTile, ...] = ()  # of TMEM, in place of tiles
    # Of a CTA pair: both blocks fill it for a role of the leader, or that role fills it for both.
    pair: Literal["", "to leader", "from leader"] = ""
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def tensor(self) -> bool:
        """Whether its tiles lie in TMEM."""
        return bool(self.columns)

    @property
    def parts(self) -> tuple[TmaTile | TmemTile, ...]:
        """What a slot is made of."""
        return self.tiles or self.columns

    @property
    def bytes(self) -> int:
        """Bytes of a slot; by TMA they complete its full barrier."""
        return sum(part.bytes for part in self.parts)

    @property
    def arrivals(self) -> int:
        """Arrivals that a full barrier counts."""
        warps = self.producer_threads // Nvidia.warp_size
        threads = warps if self.by_warps or self.columns else self.producer_threads
        return threads * (2 if self.pair == "to leader" else 1) or 1

    @property
    def empties(self) -> int:
        """Arrivals that an empty barrier counts: releases of all blocks that fill the slot, or
        that use what the leader fills."""
        return self.releases * (2 if self.pair == "from leader" else self.blocks)

    @property
    def full(self) -> int:
        return self.barriers

    @property
    def empty(self) -> int:
        return self.barriers + self.depth * Nvidia.mbarrier_bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """`bytes` at `base` that the threads of `producer` write and `consumer` reads, once a tile.
    The named barrier `barrier` takes both roles: the producer arrives, the consumer waits."""

    kind: ClassVar[str] = "exchange"
    name: str
    base: int
    bytes: int
    producer: str
    consumer: str
    barrier: int
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    def overlaps(self, tile: TmaTile) -> bool:
        """Whether it lies in place of a slot of `tile`."""
        end = tile.base + tile.slots * tile.bytes
        return self.base < end and tile.base < self.base + self.bytes


@dataclass(frozen=True, slots=True)
class Scratch:
    """`bytes` at `base` that one role writes and that are read where the proof shows that they are
    written: memory of their own, or that of tiles which are no longer needed."""

    kind: ClassVar[str] = "room"
    name: str
    base: int
    bytes: int
    place: str = field(default="", compare=False, repr=False)  # where it is declared


@dataclass
class Smem:
    """The SMEM map of one schedule, filled while it is written."""

    capacity: int
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    scratches: dict[str, Scratch] = field(default_factory=dict)
    barriers: int = 1  # named barriers taken; 0 is the whole block's
    tiles: dict[str, TmaTile] = field(default_factory=dict)
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    used: int = 0
    blocks: int = 1  # of the CTA cluster, which have the same map
    pair: bool = False  # whether they are a CTA pair
    leaders: set[str] = field(default_factory=set)  # roles of its leader

    def tile(
        self,
        name: str,
        tensor: str,
        *,
        rows: int,
        row_bytes: int,
        slots: int,
        over: TmaTile | None = None,
    ) -> TmaTile:
        """Declare `slots` tiles that TMA fills from `tensor`. `over`: in place of tiles of the same
        size, whose content they are made into, which the proof checks."""
        if slots < 1:
            raise ScheduleError(f"tile {name!r}: {slots} slots; a ring has 1 or more")
        base = over.base if over else self._next(SWIZZLE_ALIGN)
        tile = TmaTile(name, tensor, rows, row_bytes, slots, base, declared_at())
        if over and (tile.bytes, slots) != (over.bytes, over.slots):
            raise ScheduleError(
                f"tile {name!r}: {slots} x {tile.bytes} bytes over {over.name!r}, which has "
                f"{over.slots} x {over.bytes}"
            )
        self._claim(name, base, 0 if over else tile.bytes * slots)
        self.tiles[name] = tile
        return tile

    def tile_row(
        self, name: str, count: int, tensor: str, *, rows: int, row_bytes: int = 128, slots: int = 1
    ) -> list[TmaTile]:
        """Declare `count` tiles that lie side by side, `name` with their number: the columns of a
        matrix that is wider than a row of the swizzle."""
        return [
            self.tile(f"{name}{n}", tensor, rows=rows, row_bytes=row_bytes, slots=slots)
            for n in range(count)
        ]

    def pipeline(
        self,
        name: str,
        *tiles: TmaTile | TmemTile,
        producer: str,
        consumer: str | tuple[str, ...],
        releases: int | tuple[str, int] = 0,
        resident: bool = False,
        producer_threads: int = 0,
        within: Pipeline | None = None,
        by_warps: bool | Literal["fenced", "for all"] = False,
    ) -> Pipeline:
        """Declare that `producer` fills `tiles` together and `consumer` uses them.

        `resident`: once an item, before its loop; where roles go apart from item to item it is
        released after its last use, else never. `releases`: arrivals that empty a slot, one a warp
        of the consumers, or a consumer that knows when the others are done, and its arrivals;
        without them a slot is filled again where the schedule says so. The order is proved either
        way.
        `producer_threads`: threads of the producer that fill it, instead of TMA. `within`: the
        pipeline whose slots these tiles lie in, which is filled from them. `by_warps`: each row is
        made by one warp, of the same row of the tiles within or of its registers; a warp arrives
        once, when its lanes are done, and "fenced" what they wrote for matrix instructions. "for
        all": of a CTA cluster each block's producer makes its part of the rows, in all blocks, and
        warps release their slot to all of them.
        """
        if by_warps == "for all" and (self.blocks == 1 or not releases or not producer_threads):
            raise ScheduleError(
                f"pipeline {name!r} is filled for all blocks of a CTA cluster",
                hint="`s.cta_cluster(2)` before it, `producer_threads` and `releases`",
            )
        held = tuple(tile for tile in tiles if isinstance(tile, TmaTile))
        columns = tuple(tile for tile in tiles if isinstance(tile, TmemTile))
        if held and columns:
            raise ScheduleError(
                f"pipeline {name!r}: {held[0].name} in SMEM, {columns[0].name} in TMEM",
                hint="products fill the one, copies the other: a pipeline each",
            )
        depths = {tile.slots for tile in tiles}
        if len(depths) != 1:
            raise ScheduleError(f"pipeline {name!r}: its tiles have {sorted(depths)} slots")
        depth = depths.pop()
        base = self._next(Nvidia.mbarrier_bytes)
        self._claim(name, base, (2 if releases else 1) * depth * Nvidia.mbarrier_bytes)
        consumers = (consumer,) if isinstance(consumer, str) else consumer
        role, arrivals = releases if isinstance(releases, tuple) else ("", releases)
        pipeline = Pipeline(
            name, held, producer, consumers, depth, base, arrivals, resident, producer_threads,
            within.name if within else "", bool(by_warps), (role,) if role else consumers,
            by_warps == "fenced", self.blocks if by_warps == "for all" else 1, columns,
            self._across(name, held, producer, consumers), declared_at(),
        )  # fmt: skip
        self.pipelines[name] = pipeline
        return pipeline

    def _across(
        self, name: str, held: tuple[TmaTile, ...], producer: str, consumers: tuple[str, ...]
    ) -> Literal["", "to leader", "from leader"]:
        """How a pipeline goes between the blocks of a CTA pair."""
        lead = {consumer in self.leaders for consumer in consumers}
        if len(lead) > 1:
            raise ScheduleError(
                f"pipeline {name!r}: {', '.join(consumers)} use it, of which some are of the "
                f"leader alone",
                hint="a pipeline for those, and one for the others",
            )
        if (producer in self.leaders) in lead:
            return ""
        if True in lead:
            return "to leader"
        if held:
            raise ScheduleError(
                f"pipeline {name!r}: role {producer!r} of the leader fills tiles of SMEM for both "
                f"blocks of a CTA pair",
                hint="a role of both fills them, in each its own",
            )
        return "from leader"

    def exchange(
        self,
        name: str,
        size: int,
        *,
        producer: str,
        consumer: str,
        over: TmaTile | Exchange | None = None,
    ) -> Exchange:
        """Declare `size` bytes that `producer` writes for `consumer`. `over`: in place of a
        tile, or of another exchange, that is no longer needed by then, which the proof checks."""
        if over is None:
            base = self._next(SWIZZLE_ALIGN if size >= SWIZZLE_ALIGN else VECTOR)
            self._claim(name, base, size)
        else:
            most = over.bytes * (over.slots if isinstance(over, TmaTile) else 1)
            if size > most:
                raise CapacityError(
                    f"exchange {name!r}: {size} bytes over {over.name!r}, which has {most}"
                )
            base = over.base
            self._claim(name, base, 0)
        barrier = self.named_barrier(name)
        exchange = Exchange(name, base, size, producer, consumer, barrier, declared_at())
        self.exchanges[name] = exchange
        return exchange

    def scratch(self, name: str, *over: TmaTile) -> Scratch:
        """Declare that a role writes over `over`, tiles that follow each other, when they are no
        longer needed, which the proof checks."""
        base = over[0].base
        size = sum(tile.bytes * tile.slots for tile in over)
        if over[-1].base + over[-1].bytes * over[-1].slots != base + size:
            names = ", ".join(tile.name for tile in over)
            raise ScheduleError(f"scratch {name!r}: {names} do not follow each other in SMEM")
        self._claim(name, base, 0)
        self.scratches[name] = Scratch(name, base, size, declared_at())
        return self.scratches[name]

    def room(self, name: str, size: int, *, align: int = VECTOR) -> Scratch:
        """Declare `size` bytes that one role writes, and that it or others read, at a multiple of
        `align`: of the swizzle's 8 lines where a product reads them as its operand."""
        base = self._next(align)
        self._claim(name, base, size)
        self.scratches[name] = Scratch(name, base, size, declared_at())
        return self.scratches[name]

    def named_barrier(self, name: str) -> int:
        """Take the next named barrier of the block."""
        if self.barriers == Nvidia.named_barriers:
            raise CapacityError(
                f"no named barrier is left for {name!r}: a block has {Nvidia.named_barriers}, and "
                f"0 is the one of all its threads"
            )
        self.barriers += 1
        return self.barriers - 1

    def mbarrier(self, name: str) -> int:
        """Take one mbarrier."""
        return self.reserve(f"mbarrier of {name}", Nvidia.mbarrier_bytes)

    def reserve(self, name: str, size: int) -> int:
        """Take `size` bytes that no operation touches, on their own alignment."""
        base = self._next(size)
        self._claim(name, base, size)
        return base

    def _next(self, align: int) -> int:
        """The first byte after what is taken, on that alignment."""
        return -(-self.used // align) * align

    def _claim(self, name: str, base: int, size: int) -> None:
        names = (*self.tiles, *self.pipelines, *self.exchanges, *self.scratches)
        if name in names:
            raise ScheduleError(f"{name!r} is declared twice")
        if base + size > self.capacity:
            held = ", ".join(f"{t.name} {t.slots} x {t.bytes}" for t in self.tiles.values())
            raise CapacityError(
                f"SMEM ran out: {name!r} wants {size} bytes on top of {base}, {base + size} of "
                f"{self.capacity}",
                hint=f"held so far: {held or 'nothing'}; fewer slots or a smaller tile would fit",
            )
        self.used = max(self.used, base + size)
