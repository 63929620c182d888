"""What becomes of a tile of keys in SMEM: it is multiplied as it is stored, or a warpgroup makes
bf16 of it there. K and V are the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel, check_width
from mlagen.dsl import Tile, Value, bind, by, copy
from mlagen.dsl.builder import Mover
from mlagen.dsl.plain import Part
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, TmaTile, WarpRole, release, tiles_of

BOX = 128  # columns of e4m3 in a row of a tile
DEQUANT = 128  # threads that convert e4m3
WORDS = TILE * BOX // 4 // DEQUANT  # registers of a thread for 128 columns
SETS = 2  # of them, in turn


class SwapAbRows(Protocol):
    """Where keys lie, and who fetches them: `producer`, with `producer_threads`; 0: TMA does."""

    producer: WarpRole
    producer_threads: int

    def mover(self, pipeline: Pipeline, boxes: Any) -> Mover: ...


@dataclass(frozen=True)
class KeyRing:
    """A ring of tiles of 64 keys that products take: tiles of `columns` columns, of which
    `pipelines` have `each` one after another, the first `values` columns being V."""

    tiles: list[TmaTile]
    pipelines: tuple[Pipeline, ...]
    columns: int
    each: int
    values: int

    def part(self, n: int) -> list[int]:
        """Tiles, by number, of the pipeline `n`."""
        return list(range(len(self.tiles)))[n * self.each : (n + 1) * self.each]

    def values_of(self, n: int) -> list[int]:
        """Those of them that are values."""
        return [one for one in self.part(n) if one * self.columns < self.values]

    @property
    def valued(self) -> list[int]:
        """Pipelines that have values."""
        return [n for n in range(len(self.pipelines)) if self.values_of(n)]

    def boxes(self, n: int, tiles: tuple[TmaTile, ...]) -> list[tuple[TmaTile, int]]:
        """`tiles` with the first column of each, of the pipeline `n`."""
        return [(t, self.columns * one) for t, one in zip(tiles, self.part(n), strict=False)]

    def release(self, tile: Tile, *, when: bool = True) -> None:
        """Give the tile's columns back to who filled them. `when`: or elsewhere."""
        if when:
            for pipeline in self.pipelines:
                release(pipeline, tile)

    @property
    def releases(self) -> tuple[str, ...]:
        return tuple(f"release {pipeline.name}" for pipeline in self.pipelines)


def ring(kernel: SwapAbKernel, columns: int, each: int, raw: int, **filled: Any) -> KeyRing:
    """The ring over the schedule's tiles, before `raw` others of the cache; `each` of its tiles
    share a barrier. `filled`: how a pipeline is."""
    k, every = kernel.k, kernel.tiles("cache")
    count = -(-k.d_qk // columns)
    tiles_of("keys", every, count + raw, rows=TILE)
    tiles = every[:count]
    kernel.context |= {"slots": tiles[0].slots, "tiles_": [[tile] for tile in tiles]}
    pipelines = tuple(
        kernel.s.smem.pipeline(f"keys {n}", *tiles[first : first + each], **filled)
        for n, first in enumerate(range(0, count, each))
    )
    return KeyRing(tiles, pipelines, columns, each, k.d_v)


class Filled:
    """Keys that the producer copies to SMEM."""

    arriving: tuple[Pipeline, ...]

    def fill(self, tile: Tile) -> None:
        """Copy a tile, as its places become free."""
        for pipeline in self.arriving:
            copy(pipeline, tile)


class StoredKeys(Filled):
    """Keys that products take as they arrive. Values of bf16 are read from SMEM, where keys that
    the sequence does not have must be finite (`cleans`); e4m3 goes through registers."""

    def __init__(self, kernel: SwapAbKernel, rows: SwapAbRows, columns: int, each: int) -> None:
        self.kernel, k = kernel, kernel.k
        check_width("keys", columns, 2 if k.cache_dtype == "bf16" else 1)
        users = kernel.users
        self.keys = ring(
            kernel, columns, each, 0,
            producer=rows.producer.name, consumer=tuple(user.name for user in users),
            releases=sum(len(user.warps) for user in users),
            producer_threads=rows.producer_threads,
        )  # fmt: skip
        # Rows that are fetched one by one are 0 past the end, unless a window hides some.
        self.arriving = self.keys.pipelines
        self.cleans = k.cache_dtype == "bf16" and bool(k.window or not rows.producer_threads)
        for n, pipeline in enumerate(self.keys.pipelines):
            bind(pipeline, rows.mover(pipeline, self.keys.boxes(n, pipeline.tiles)))

    steps: tuple[Part, ...] = ()  # what becomes of a tile that has arrived, of the plain order

    def zero_tail(self, tile: Tile) -> None:
        """Set rows past the sequence's end to 0 in SMEM: P is 0 there, but 0 * NaN is not."""
        if self.cleans:
            held = tuple(Value(self.keys.pipelines[n].name, tile) for n in self.keys.valued)
            values = self.keys.tiles[: self.kernel.k.d_v // self.keys.columns]
            self.kernel.record("latent/zero_tail", tile, keys=values, uses=held, defines=held,
                               joins=True, guarded=True)  # fmt: skip


class DequantizedKeys(Filled):
    """Keys of e4m3, one scale for all, that the role `dequant` makes bf16 of: they arrive in a
    place of their own, 128 columns of each tile, and become two tiles of 64 columns."""

    cleans = False  # e4m3 is finite here

    def __init__(
        self, kernel: SwapAbKernel, rows: SwapAbRows, dequant: WarpRole, each: int
    ) -> None:
        if not kernel.k.dequantized:
            raise ScheduleError(
                f"role {dequant.name!r} makes bf16 of e4m3 rows; "
                f"rows are {kernel.k.cache_dtype}, products of {kernel.k.compute}",
                hint="products take such keys as they are stored",
            )
        if dequant.threads != DEQUANT or each != 2:
            raise ScheduleError(
                f"role {dequant.name!r} has {dequant.threads} threads, boxes={each}",
                hint="a warpgroup makes two tiles of bf16 of 128 columns of e4m3: boxes=2",
            )
        self.kernel, self.dequant, math = kernel, dequant, kernel.math
        raw = -(-kernel.k.d_qk // BOX)
        self.keys = ring(
            kernel, COLUMNS, each, raw, producer=dequant.name, consumer=math.name,
            releases=len(math.warps), producer_threads=dequant.threads, by_warps=True,
        )  # fmt: skip
        self.arriving = tuple(
            kernel.s.smem.pipeline(
                f"raw {n}", tile, producer=rows.producer.name, consumer=dequant.name,
                releases=len(dequant.warps), producer_threads=rows.producer_threads,
            )
            for n, tile in enumerate(kernel.tiles("cache")[-raw:])
        )  # fmt: skip
        kernel.context["feeder"] = dequant
        kernel.names(("raw", ".b32", SETS * WORDS, "e4m3 numbers"))
        for n, (pipeline, keys) in enumerate(zip(self.arriving, self.keys.pipelines, strict=True)):
            bind(pipeline, rows.mover(pipeline, self.keys.boxes(n, pipeline.tiles)))
            bind(keys, kernel.mover(
                keys, "latent/convert", Value(self.numbers(n)), role=dequant, words=self.words(n),
                boxes=self.keys.boxes(n, keys.tiles),
            ))  # fmt: skip

    @property
    def steps(self) -> tuple[Part, ...]:
        """What becomes of a tile that has arrived, of the plain order."""
        return tuple(
            part
            for raw, keys in zip(self.arriving, self.keys.pipelines, strict=True)
            for part in by(
                self.dequant.name, f"read_e4m3 {raw.name}", f"copy {keys.name}",
                f"release {raw.name}",
            )
        )  # fmt: skip

    def convert(self, tile: Tile) -> None:
        """Make bf16 of the tile's numbers, 128 columns at a time: read them to registers, write
        them, and give their place back when registers are known to hold them."""
        for n in range(len(self.arriving)):
            self.read(tile, n)
            copy(self.keys.pipelines[n], tile)
            release(self.arriving[n], tile)

    def read(self, tile: Tile, n: int) -> None:
        """Read 128 columns of e4m3 to registers."""
        raw, keys = self.arriving[n], self.keys.pipelines[n]
        self.kernel.record(
            "latent/read_e4m3", tile, tile_=raw.tiles[0], of=raw.name, role=self.dequant,
            narrow=len(keys.tiles) == 1, words=self.words(n),
            uses=(Value(raw.name, tile),), defines=(Value(self.numbers(n)),),
        )  # fmt: skip

    def zero_tail(self, tile: Tile) -> None:
        """Rows that do not exist are finite numbers of e4m3."""

    def numbers(self, n: int) -> str:
        """What the e4m3 numbers of the columns of a barrier are called."""
        return f"numbers {n % SETS}"

    def words(self, n: int) -> list[str]:
        """The registers that they are in."""
        first = WORDS * (n % SETS)
        held: list[str] = self.kernel.context["raw"][first : first + WORDS]
        return held
