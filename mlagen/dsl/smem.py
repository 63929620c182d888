"""Shared memory on Hopper, as data: rings of tiles filled by TMA, and the hand-offs that move them
between roles.

A tile row is at most 128 bytes wide: that is the width of the 128-byte swizzle, which TMA applies
when it writes and `wgmma` undoes when it reads. Wider operands are several columns of such tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets import SM_90A

SWIZZLE_ROW_BYTES = max(SM_90A.swizzle_modes)
SWIZZLE_ALIGN = SM_90A.swizzle_align(SWIZZLE_ROW_BYTES)


def swizzle_128(offset: int) -> int:
    """Where byte `offset` of a tile lies under the 128-byte swizzle: bits 4-6 ^= bits 7-9."""
    return offset ^ (((offset >> 7) & 7) << 4)


@dataclass(frozen=True, slots=True)
class TmaTile:
    """`rows` rows of `row_bytes` in SMEM, filled by one TMA box of the tensor map `tensor`."""

    name: str
    tensor: str
    rows: int
    row_bytes: int
    slots: int
    base: int

    def __post_init__(self) -> None:
        if self.row_bytes != SWIZZLE_ROW_BYTES:
            raise ScheduleError(
                f"tile {self.name!r}: rows of {self.row_bytes} bytes do not fit the 128-byte "
                f"swizzle",
                hint="tiles are 128 bytes wide (64 bf16); take several side by side",
            )
        if self.rows % 8 or not 8 <= self.rows <= SM_90A.tma_box_max:
            raise ScheduleError(
                f"tile {self.name!r}: {self.rows} rows; a box has 8 to {SM_90A.tma_box_max}, "
                f"in eights"
            )

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    def slot_base(self, slot: int) -> int:
        return self.base + slot % self.slots * self.bytes


@dataclass(frozen=True, slots=True)
class Handoff:
    """Tiles that one role fills and another uses, `depth` deep.

    Two mbarriers a slot: `full` completes when all bytes of the slot have landed, `empty` when
    every consuming warp has released it.
    """

    name: str
    tiles: tuple[TmaTile, ...]
    producer: str
    consumer: str
    depth: int
    barriers: int  # SMEM address of full[0]; empty[0] follows after `depth` barriers
    releases: int  # arrivals that empty a slot: one a consuming warp
    resident: bool = False  # filled once, before the loop, and never released

    @property
    def bytes(self) -> int:
        """Bytes that complete a full barrier."""
        return sum(tile.bytes for tile in self.tiles)

    @property
    def full(self) -> int:
        return self.barriers

    @property
    def empty(self) -> int:
        return self.barriers + self.depth * SM_90A.mbarrier_bytes


@dataclass
class Smem:
    """The SMEM map of one schedule, filled while it is written."""

    capacity: int
    tiles: dict[str, TmaTile] = field(default_factory=dict)
    handoffs: dict[str, Handoff] = field(default_factory=dict)
    buffers: dict[str, tuple[int, int]] = field(default_factory=dict)  # name: (base, bytes)
    used: int = 0

    def tile(self, name: str, tensor: str, *, rows: int, row_bytes: int, slots: int) -> TmaTile:
        """Declare `slots` tiles that TMA fills from `tensor`."""
        base = -(-self.used // SWIZZLE_ALIGN) * SWIZZLE_ALIGN
        tile = TmaTile(name, tensor, rows, row_bytes, slots, base)
        self._claim(name, base, tile.bytes * slots)
        self.tiles[name] = tile
        return tile

    def buffer(self, name: str, size: int, *, align: int = 16) -> int:
        """Declare plain SMEM that one role writes and reads; returns its address."""
        base = -(-self.used // align) * align
        self._claim(name, base, size)
        self.buffers[name] = (base, size)
        return base

    def handoff(
        self,
        name: str,
        *tiles: TmaTile,
        producer: str,
        consumer: str,
        releases: int = 0,
        resident: bool = False,
    ) -> Handoff:
        """Declare that `producer` fills `tiles` together and `consumer` uses them. `resident`:
        once, before the loops; otherwise tile by tile, each emptied by `releases` arrivals."""
        if resident == bool(releases):
            raise ScheduleError(
                f"hand-off {name!r}: resident tiles are not released, others must be"
            )
        depths = {tile.slots for tile in tiles}
        if len(depths) != 1:
            raise ScheduleError(f"hand-off {name!r}: its tiles have {sorted(depths)} slots")
        depth = depths.pop()
        base = -(-self.used // SM_90A.mbarrier_bytes) * SM_90A.mbarrier_bytes
        self._claim(name, base, (1 if resident else 2) * depth * SM_90A.mbarrier_bytes)
        handoff = Handoff(name, tiles, producer, consumer, depth, base, releases, resident)
        self.handoffs[name] = handoff
        return handoff

    def _claim(self, name: str, base: int, size: int) -> None:
        if name in self.tiles or name in self.handoffs or name in self.buffers:
            raise ScheduleError(f"{name!r} is declared twice")
        if base + size > self.capacity:
            held = ", ".join(f"{t.name} {t.slots} x {t.bytes}" for t in self.tiles.values())
            raise CapacityError(
                f"SMEM ran out: {name!r} wants {size} bytes on top of {base}, {base + size} of "
                f"{self.capacity}",
                hint=f"held so far: {held or 'nothing'}; fewer slots or a smaller tile would fit",
            )
        self.used = base + size
