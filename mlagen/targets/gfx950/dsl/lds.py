"""LDS: rings of tile slots, the DMA that fills them and the reads that empty them, as plans.

A `Ring` gives every tile `t` the slot `t % slots`. Two plans follow from its layout alone: which
global row and byte each lane of each wave fetches so that the linear LDS-DMA write lands in layout
order, and which LDS address each lane reads for each fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from mlagen.dsl.extents import declared_at
from mlagen.dsl.tile import RingTile, Tile, Value
from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets.gfx950.dsl.exchange import ALIGN, Exchange
from mlagen.targets.gfx950.dsl.layout import DMA_BLOCK, BitMap, TileLayout, bank_cycles
from mlagen.targets.gfx950.limits import GFX950

DMA_BYTES = 16  # buffer_load_dwordx4 ... lds moves 16 bytes a lane (CDNA4 ISA, MUBUF LDS loads)
LANES = GFX950.wave_size
Fragment = Callable[[int], tuple[int, int]]  # lane -> (row, byte) that it reads


@dataclass(frozen=True, slots=True)
class DmaPlan:
    """One tile, fetched by `waves` waves with `len(row_offsets)` DMA instructions each.

    Lane `l` of wave `w` fetches 16 bytes at row `row(l | w << 6) + row_offsets[j]`, byte
    `byte(l | w << 6) + byte_offsets[j]`; instruction `j` lands at offset `lds_offsets[j] + w *
    wave_stride`. Waves are counted from the first of those that fetch.
    """

    row: BitMap
    byte: BitMap
    row_offsets: tuple[int, ...]
    byte_offsets: tuple[int, ...]
    lds_offsets: tuple[int, ...]
    wave_stride: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Reads of one whole tile: `bases[b](lane)` is an address register's content; `reads` are
    (base index, byte offset inside the slot) in fragment order."""

    bases: tuple[BitMap, ...]
    reads: tuple[tuple[int, int], ...]
    width: int
    cycles: int
    ideal_cycles: int


@dataclass(frozen=True)
class Reads:
    """How waves read a tile: `fragments[f](lane)` is the (row, byte) that a lane reads, `width`
    bytes of it, for fragment f; they become the register tile in this order. A tile of several
    areas has a sequence of fragments for each. With `readers` = 64 every wave reads the same; with
    64 * waves `lane` is the thread of the workgroup, and each wave may read a part of its own."""

    fragments: Sequence[Fragment] | Sequence[Sequence[Fragment]]
    width: int
    comment: str = ""
    readers: int = LANES


@dataclass(frozen=True)
class Area:
    """A part of a ring's tile with a layout of its own, at byte `start` of the slot: columns that
    lie apart in global memory. DMA lands and reads start there."""

    layout: TileLayout
    start: int
    dma: DmaPlan
    plan: ReadPlan


@dataclass(frozen=True)
class Ring:
    """`slots` tiles of one operand in LDS, at byte `base`, fetched by `waves` waves."""

    kind: ClassVar[str] = "ring"
    name: str
    areas: tuple[Area, ...]
    slots: int
    base: int
    waves: int
    windows: tuple[int, ...]  # LDS addresses that address registers start from
    comment: str
    extra: int = 0  # bytes of a slot behind its areas, which operations lay out themselves
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def only(self) -> Area:
        """The area of a ring that has one."""
        (area,) = self.areas
        return area

    @property
    def layout(self) -> TileLayout:
        """The layout of a ring of one area."""
        return self.only.layout

    @property
    def dma(self) -> DmaPlan:
        """The DMA of a ring of one area."""
        return self.only.dma

    @property
    def plan(self) -> ReadPlan:
        """The reads of a ring of one area."""
        return self.only.plan

    @property
    def slot_bytes(self) -> int:
        """Bytes of one tile."""
        return self.extra_start + self.extra

    @property
    def extra_start(self) -> int:
        """Where the bytes behind the areas begin in a slot."""
        return sum(area.layout.size for area in self.areas)

    @property
    def cycles(self) -> tuple[int, int]:
        """LDS cycles of reading a whole tile, and without conflicts."""
        return (
            sum(area.plan.cycles for area in self.areas),
            sum(area.plan.ideal_cycles for area in self.areas),
        )

    def describe(self) -> str:
        """Its areas' layouts."""
        return "; ".join(area.layout.describe() for area in self.areas)

    def slot_base(self, slot: int) -> int:
        return self.base + slot % self.slots * self.slot_bytes

    def window(self, slot: int) -> int:
        """Index of the window that the immediate offsets of a slot's reads count from."""
        base = self.slot_base(slot)
        return max(w for w, start in enumerate(self.windows) if start <= base)

    def at(self, tile: Tile) -> RingTile:
        return RingTile(self.name, tile)

    @property
    def whole_tile(self) -> tuple[str, int, str]:
        """Register request for a whole tile, for `registers.share`."""
        registers = sum(len(area.plan.reads) * area.plan.width // 4 for area in self.areas)
        return self.name, registers, f"one whole {self.name} tile as MFMA operand"

    def register_value(self, tile: Tile) -> Value:
        """The value a `read` of this ring defines in its register block."""
        return Value(self.name, tile)


@dataclass
class Lds:
    """The LDS map of one schedule, filled while it is written."""

    capacity: int
    offset_bits: int
    rings: dict[str, Ring] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    used: int = 0

    @property
    def slotted(self) -> Mapping[str, Ring | Exchange]:
        """All that has slots of tiles, by name."""
        return {**self.rings, **self.exchanges}

    def exchange(self, name: str, size: int, *, slots: int = 1, comment: str = "") -> Exchange:
        """Declare `size` bytes that waves write for each other, and read again, each tile in one
        of `slots` slots. An operation that defines `Value(name, tile)` writes it, one that uses it
        reads it; where both stand in one cluster, prologue or epilogue, a barrier comes between
        them. Addresses inside of a slot are the templates' own."""
        if size < 1 or slots < 1:
            raise ScheduleError(f"exchange {name!r}: {slots} slots of {size} bytes")
        base = -(-self.used // ALIGN) * ALIGN
        exchange = Exchange(name, base, size, slots, comment, declared_at())
        self._claim(f"exchange {name!r}", name, base, slots, exchange.slot_bytes)
        self.exchanges[name] = exchange
        return exchange

    def _claim(self, what: str, name: str, base: int, slots: int, size: int) -> None:
        """Take the bytes from `base` on; CapacityError where they are not there."""
        if name in self.slotted:
            raise ScheduleError(f"{what} is declared twice")
        end = base + size * slots
        if end > self.capacity:
            held = ", ".join(f"{x.name} {x.slots} x {x.slot_bytes}" for x in self.slotted.values())
            raise CapacityError(
                f"LDS ran out: {what} wants {slots} x {size} bytes on top of {base}, "
                f"{end} of {self.capacity}",
                hint=f"held so far: {held or 'nothing'}; fewer slots or a smaller tile would fit",
            )
        self.used = end

    def ring(
        self,
        name: str,
        *,
        slots: int,
        waves: int,
        layout: TileLayout | Sequence[TileLayout],
        reads: Reads,
        extra: int = 0,
    ) -> Ring:
        """Declare a ring of `slots` tiles that `waves` waves fetch. A tile of several areas has a
        sequence of layouts; `extra` bytes lie behind them."""
        if slots < 1:
            raise ScheduleError(f"ring {name!r}: {slots} slots; a ring has 1 or more")
        areas: list[Area] = []
        start = 0
        for part, fragments in _parts(layout, reads.fragments):
            plan = plan_reads(part, fragments, reads.width, reads.readers)
            areas.append(Area(part, start, plan_dma(part, waves), plan))
            start += part.size
        start += extra
        base = self.used
        self._claim(f"ring {name!r}", name, base, slots, start)
        end = self.used
        reach = max(area.start + offset for area in areas for _, offset in area.plan.reads)
        windows: list[int] = []
        for slot in range(base, end, start):
            if not windows and slot + reach < 1 << self.offset_bits:
                windows.append(0)
            elif not windows or slot + reach - windows[-1] >= 1 << self.offset_bits:
                windows.append(slot)
        ring = Ring(
            name, tuple(areas), slots, base, waves, tuple(windows), reads.comment, extra,
            declared_at(),
        )  # fmt: skip
        self.rings[name] = ring
        return ring


def _parts(
    layout: TileLayout | Sequence[TileLayout],
    fragments: Sequence[Fragment] | Sequence[Sequence[Fragment]],
) -> Iterator[tuple[TileLayout, Sequence[Fragment]]]:
    """Each area's layout with its fragments."""
    if isinstance(layout, Sequence):
        yield from zip(layout, cast("Sequence[Sequence[Fragment]]", fragments), strict=True)
    else:
        yield layout, cast("Sequence[Fragment]", fragments)


def plan_dma(layout: TileLayout, waves: int) -> DmaPlan:
    """The DMA plan of one tile; ScheduleError when the layout cannot be filled that way."""
    pass_bytes = waves * DMA_BLOCK
    tile_bytes = layout.rows * layout.row_bytes
    if tile_bytes % pass_bytes:
        raise ScheduleError(
            f"a tile of {tile_bytes} bytes is no multiple of the {pass_bytes} bytes that "
            f"{waves} waves fetch at once"
        )
    if 1 << layout.chunk_bits < DMA_BYTES:
        raise ScheduleError(f"{layout.describe()} splits the {DMA_BYTES} bytes a lane moves")
    bits = (waves * LANES).bit_length() - 1
    if 1 << bits != waves * LANES:
        raise ScheduleError(f"{waves} waves: the DMA split needs a power of two")

    def fetched(index: int, thread: int) -> tuple[int, int]:
        """(row, byte) that a thread fetches in a pass."""
        wave, lane = divmod(thread, LANES)
        block = (index * waves + wave) * layout.block_stride
        return layout.source(block + lane * DMA_BYTES)

    row = BitMap.of(lambda thread: fetched(0, thread)[0], bits, what="DMA row")
    byte = BitMap.of(lambda thread: fetched(0, thread)[1], bits, what="DMA byte")
    passes, first = tile_bytes // pass_bytes, list(zip(row.table(), byte.table(), strict=True))
    offsets: list[tuple[int, int]] = []
    for index in range(passes):
        there = (fetched(index, thread) for thread in range(1 << bits))
        apart = {(r - row0, b - byte0) for (r, b), (row0, byte0) in zip(there, first, strict=True)}
        if len(apart) != 1:
            raise ScheduleError("DMA passes differ by more than an offset in this layout")
        offsets.append(apart.pop())
    return DmaPlan(
        row,
        byte,
        tuple(rows for rows, _ in offsets),
        tuple(columns for _, columns in offsets),
        tuple(index * waves * layout.block_stride for index in range(passes)),
        layout.block_stride,
    )


def plan_reads(
    layout: TileLayout,
    fragments: Sequence[Fragment],
    width: int,
    readers: int = LANES,
) -> ReadPlan:
    """Split each fragment's lane addresses into few address registers and immediate offsets.
    `cycles` are those of the wave that takes longest."""
    bases: list[BitMap] = []
    reads: list[tuple[int, int]] = []
    cycles = ideal = 0
    for fragment in fragments:
        address = [layout.offset(*fragment(lane)) for lane in range(readers)]
        bits = readers.bit_length() - 1
        linear = BitMap.of(address.__getitem__, bits, what="LDS read address")
        # Constant bits that a XOR of the lane also drives stay in the register; the rest is an
        # immediate.
        kept = 0 if linear.additive else linear.constant & linear.span
        base = BitMap(linear.images, kept, linear.additive)
        if base not in bases:
            bases.append(base)
        reads.append((bases.index(base), linear.constant - kept))
        waves = [address[first : first + LANES] for first in range(0, readers, LANES)]
        took, least = max(bank_cycles(wave, width) for wave in waves)
        cycles, ideal = cycles + took, ideal + least
    return ReadPlan(tuple(bases), tuple(reads), width, cycles, ideal)
