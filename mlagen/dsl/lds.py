"""LDS: rings of tile slots, the DMA that fills them and the reads that empty them, as plans.

A `Ring` gives every tile `t` the slot `t % slots`. Two plans follow from its layout alone: which
global row and byte each lane of each wave fetches so that the linear LDS-DMA write lands in layout
order, and which LDS address each lane reads for each fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlagen.dsl.layout import BitMap, Subtiled, bank_cycles
from mlagen.dsl.registers import Value
from mlagen.dsl.tile import Tile
from mlagen.errors import CapacityError, ScheduleError

DMA_BYTES = 16  # buffer_load_dwordx4 ... lds moves 16 bytes a lane (CDNA4 ISA, MUBUF LDS loads)
LANES = 64


@dataclass(frozen=True, slots=True)
class RingTile:
    """Slot content: tile `tile` of ring `ring`."""

    ring: str
    tile: Tile

    def __str__(self) -> str:
        return f"{self.ring}({self.tile})"


@dataclass(frozen=True, slots=True)
class DmaPlan:
    """One tile, fetched by `waves` waves with `len(row_offsets)` DMA instructions each.

    Lane `l` of wave `w` fetches 16 bytes at row `row(l | w << 6) + row_offsets[j]`, byte
    `byte(l | w << 6)`; instruction `j` lands at slot offset `lds_offsets[j] + wave * 1024`.
    """

    row: BitMap
    byte: BitMap
    row_offsets: tuple[int, ...]
    lds_offsets: tuple[int, ...]


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
class Ring:
    """`slots` tiles of one operand in LDS, at byte `base`."""

    name: str
    layout: Subtiled
    slots: int
    base: int
    waves: int
    dma: DmaPlan
    plan: ReadPlan
    windows: tuple[int, ...]  # LDS addresses that address registers start from
    comment: str

    def slot_base(self, slot: int) -> int:
        return self.base + slot % self.slots * self.layout.size

    def window(self, slot: int) -> int:
        """Index of the window that the immediate offsets of a slot's reads count from."""
        base = self.slot_base(slot)
        return max(w for w, start in enumerate(self.windows) if start <= base)

    def at(self, tile: Tile) -> RingTile:
        return RingTile(self.name, tile)

    @property
    def whole_tile(self) -> tuple[str, int, str]:
        """Register request for a whole tile, for `registers.share`."""
        registers = len(self.plan.reads) * self.plan.width // 4
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
    used: int = 0

    def ring(
        self,
        name: str,
        *,
        layout: Subtiled,
        slots: int,
        waves: int,
        fragments: Sequence[Callable[[int], tuple[int, int]]],
        width: int,
        readers: int = LANES,
        comment: str = "",
    ) -> Ring:
        """Declare a ring. `fragments[f](lane)` is the (row, byte) that lane reads, `width` bytes
        of it, for fragment f; they become the register tile in this order. With `readers` = 64
        every wave reads the same; with 64 * waves `lane` is the thread of the workgroup, and each
        wave may read a part of its own."""
        if name in self.rings:
            raise ScheduleError(f"ring {name!r} is declared twice")
        base, end = self.used, self.used + layout.size * slots
        if end > self.capacity:
            held = ", ".join(
                f"{ring.name} {ring.slots} x {ring.layout.size}" for ring in self.rings.values()
            )
            raise CapacityError(
                f"LDS ran out: ring {name!r} wants {slots} x {layout.size} bytes on top of {base}, "
                f"{end} of {self.capacity}",
                hint=f"held so far: {held or 'nothing'}; fewer slots or a smaller tile would fit",
            )
        plan = plan_reads(layout, fragments, width, readers)
        reach = max(offset for _, offset in plan.reads)
        windows = [0]
        for slot in range(base, end, layout.size):
            if slot + reach - windows[-1] >= 1 << self.offset_bits:
                windows.append(slot)
        dma = plan_dma(layout, waves)
        ring = Ring(name, layout, slots, base, waves, dma, plan, tuple(windows), comment)
        self.rings[name] = ring
        self.used = end
        return ring


def plan_dma(layout: Subtiled, waves: int) -> DmaPlan:
    """The DMA plan of one tile; ScheduleError when the layout cannot be filled that way."""
    pass_bytes = waves * LANES * DMA_BYTES
    if layout.size % pass_bytes:
        raise ScheduleError(
            f"a tile of {layout.size} bytes is no multiple of the {pass_bytes} bytes that "
            f"{waves} waves fetch at once"
        )
    if 1 << layout.chunk_bits < DMA_BYTES:
        raise ScheduleError(f"swizzle {layout.swizzle} splits the {DMA_BYTES} bytes a lane moves")
    bits = (waves * LANES).bit_length() - 1
    if 1 << bits != waves * LANES:
        raise ScheduleError(f"{waves} waves: the DMA split needs a power of two")

    def part(index: int, which: int) -> Callable[[int], int]:
        return lambda thread: layout.source(index * pass_bytes + thread * DMA_BYTES)[which]

    row = BitMap.of(part(0, 0), bits, what="DMA row")
    byte = BitMap.of(part(0, 1), bits, what="DMA byte")
    row_offsets = []
    for index in range(layout.size // pass_bytes):
        deltas = {part(index, 0)(thread) - row(thread) for thread in range(1 << bits)}
        same = all(part(index, 1)(thread) == byte(thread) for thread in range(1 << bits))
        if len(deltas) != 1 or not same:
            raise ScheduleError("DMA passes differ by more than a row offset in this layout")
        row_offsets.append(deltas.pop())
    return DmaPlan(
        row, byte, tuple(row_offsets), tuple(i * pass_bytes for i in range(len(row_offsets)))
    )


def plan_reads(
    layout: Subtiled,
    fragments: Sequence[Callable[[int], tuple[int, int]]],
    width: int,
    readers: int = LANES,
) -> ReadPlan:
    """Split each fragment's lane addresses into few address registers and immediate offsets.
    `cycles` are those of the wave that takes longest."""
    bases: list[BitMap] = []
    reads: list[tuple[int, int]] = []
    cycles = ideal = 0
    for fragment in fragments:

        def address(lane: int, fragment: Callable[[int], tuple[int, int]] = fragment) -> int:
            return layout.offset(*fragment(lane))

        linear = BitMap.of(address, readers.bit_length() - 1, what="LDS read address")
        # Constant bits the lane also drives stay in the register (XOR); the rest is an immediate.
        base = BitMap(linear.images, linear.constant & linear.span)
        if base not in bases:
            bases.append(base)
        reads.append((bases.index(base), linear.constant & ~linear.span))
        waves = [range(first, first + LANES) for first in range(0, readers, LANES)]
        took, least = max(bank_cycles([address(lane) for lane in wave], width) for wave in waves)
        cycles, ideal = cycles + took, ideal + least
    return ReadPlan(tuple(bases), tuple(reads), width, cycles, ideal)
