"""How listed rows come to SMEM on Hopper where the warpgroup that multiplies them fetches them.

K and V are the same bytes. A tile's keys are in groups, 16 or 32, each a pipeline, which are
fetched as products are done with the keys in their place. `Gathered`: rows of bf16, by cp.async.
`Dequantized`: stored numbers are loaded to registers a tile ahead, and stored as bf16. `Grained`:
or as f16, in multiples of a key's grain (`latent.grains`), so that a number times its scale is not
rounded to bf16. Who converts a row finds its grain, and leaves it in SMEM with the numbers. Scores
are multiplied by it, and P by it over the largest one so far; where that grows O is divided by what
it grows by, together with what the maximum does. Q is f16, a row times a power of two, and so is P.
Columns that are bf16 in memory stay that, divided by the grain.
"""

from __future__ import annotations

import itertools

from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.sm_90a.column_scales import scales_template
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.sm_90a.seesaw.grains import SCALE_BITS
from mlagen.attention.latent.sm_90a.seesaw.queries import TOGETHER
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.attention.latent.sm_90a.swap_ab.queries import OwnQueries
from mlagen.attention.latent.sm_90a.swap_ab.softmax import WeightForm
from mlagen.dsl import Tile, Value, at_least, bind, copy, exactly, touched
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, TmaTile, tiles_of


def groups_of(
    kernel: SwapAbKernel, legal: tuple[int, ...], *, by_warps: bool
) -> tuple[Pipeline, ...]:
    """A pipeline for each group of keys, over the schedule's tiles: by columns, then by keys."""
    tiles, math = kernel.tiles("cache"), kernel.math
    count = TILE // tiles[0].rows
    if tiles[0].rows not in legal or len({tile.rows for tile in tiles}) > 1:
        raise ScheduleError(
            f"tiles of {tiles[0].rows} keys",
            hint="16 or 32 keys that are fetched by cp.async, 32 that are converted",
        )
    tiles_of("keys", tiles, kernel.k.d_qk // COLUMNS * count, rows=tiles[0].rows, slots=1)
    return tuple(
        kernel.s.smem.pipeline(
            f"keys {group}", *tiles[group::count], producer=math.name, consumer=math.name,
            producer_threads=math.threads, by_warps=by_warps,
        )
        for group in range(count)
    )  # fmt: skip


def own_queries(kernel: SwapAbKernel) -> OwnQueries:
    """Q, by TMA, or by way of registers where bf16 is made of it."""
    by_tma = kernel.k.dtype == "bf16"
    return OwnQueries(
        kernel, f"swap_ab/queries/own/{'load' if by_tma else 'read'}_queries", by_tma=by_tma
    )


def boxes(group: Pipeline) -> list[tuple[TmaTile, int]]:
    """A group's tiles with the first column of each."""
    return [(tile, COLUMNS * n) for n, tile in enumerate(group.tiles)]


class Gathered:
    """Rows of bf16, as they are."""

    looks_ahead = False  # whether rows come by way of registers, which a list is awaited for
    before: tuple[str, ...] = ()  # of the plain order: what is done before keys are in SMEM
    grains: tuple[str, ...] = ()
    weights = WeightForm(2 * TILE, context={"values_of": "bf16", "stored": None})
    queries = staticmethod(own_queries)

    def __init__(self, kernel: SwapAbKernel, queries: OwnQueries, stored: None) -> None:
        self.groups = groups_of(kernel, (16, 32), by_warps=False)
        kernel.context["key_scales"] = False
        for n, group in enumerate(self.groups):
            bind(group, kernel.mover(group, "swap_ab/rows/listed/shared/gather", boxes=boxes(group),
                                     group=n))  # fmt: skip

    def fetch(self, tile: Tile, group: int, *, when: bool = True) -> None:
        """Rows are copied."""

    def measure(self, tile: Tile, group: int) -> None:
        """Numbers are what they are."""

    def refill(self, tile: Tile, group: int) -> None:
        """Fetch keys of `tile`."""
        copy(self.groups[group], tile)


class Dequantized:
    """Rows of the form `stored`, over registers (raw) of as many groups as there are, or of fewer
    in turn. `scales`: registers of a thread for those of columns; 0: a share of each row's."""

    before: tuple[str, ...] = ("fetch",)
    grains: tuple[str, ...] = ()
    weights = WeightForm(2 * TILE, context={"values_of": "bf16"})
    queries = staticmethod(own_queries)

    def __init__(
        self, kernel: SwapAbKernel, queries: OwnQueries, stored: RowForm, scales: int = 0
    ) -> None:
        self.kernel, self.stored = kernel, stored
        self.groups = groups_of(kernel, (32,), by_warps=True)
        # Scales of rows leave no registers for lists of a tile later.
        self.looks_ahead, key = stored.scales != "key", stored.scales == "key"
        sizes = [n * stored.words for n in range(1, len(self.groups) + 1)]
        self.raw = kernel.s.names("raw", exactly("registers", sizes, "numbers of rows"))
        kernel.context |= {
            "stored": stored, "key_scales": key, "scales": scales_template(stored)
        }  # fmt: skip
        if key:
            kernel.names(("sigma", ".f32", 2, "scales of this thread's two keys"))
        elif stored.scales == "blocks":
            kernel.names(("scale", ".f32", scales or len(self.groups) * stored.held_scales,
                          "scales of the rows that this thread fetches"))  # fmt: skip
        for n, group in enumerate(self.groups):
            bind(group, kernel.mover(group, "swap_ab/storage/convert", self.numbers(n),
                                     boxes=boxes(group), group=n, words=self.words(n)))  # fmt: skip

    def fetch(self, tile: Tile, group: int, *, when: bool = True) -> None:
        """Load the numbers of rows of `tile` to registers. `when`: or elsewhere."""
        if when:
            self.kernel.record(
                "swap_ab/rows/listed/shared/fetch", tile, of=self.groups[group].name, group=group,
                words=self.words(group), defines=(self.numbers(group),),
            )  # fmt: skip

    def measure(self, tile: Tile, group: int) -> None:
        """Numbers are multiples of 1."""

    def refill(self, tile: Tile, group: int) -> None:
        """Store keys of `tile` that were loaded."""
        copy(self.groups[group], tile)

    def numbers(self, group: int) -> Value:
        """The numbers of a group's rows."""
        return Value(f"raw {group % self._sets}")

    def words(self, group: int) -> list[str]:
        """The registers that they are in."""
        first = group % self._sets * self.stored.words
        return self.raw[first : first + self.stored.words]

    @property
    def _sets(self) -> int:
        return len(self.raw) // self.stored.words


class Grained:
    """Rows whose numbers become multiples of a key's grain, over rooms for the grains of groups,
    and of Q's factors where it is bf16."""

    before = ("fetch", "measure")
    weights = WeightForm(2 * TILE, context={"values_of": "f16", "grained": True})

    @staticmethod
    def queries(kernel: SwapAbKernel) -> OwnQueries:
        """Q, by way of registers, where f16 is made of it."""
        return OwnQueries(kernel, "grained/lift_queries")

    def __init__(self, kernel: SwapAbKernel, queries: OwnQueries, stored: RowForm) -> None:
        rows = Dequantized(kernel, queries, stored, LANES)  # all four of a row
        self.kernel, self.rows, s = kernel, rows, kernel.s
        self.groups, self.looks_ahead = rows.groups, rows.looks_ahead
        self.fetch, self.refill = rows.fetch, rows.refill
        kernel.name(("grain", ".b32", "bits of what O is a multiple of: the largest grain so far"))
        self.rooms = tuple(
            touched(s.smem.scratches[f"grains {n}"],
                    exactly("bytes", FLOAT * group.tiles[0].rows, "grains of keys"))
            for n, group in enumerate(self.groups)
        )  # fmt: skip
        for room, after in itertools.pairwise(self.rooms):
            if after.base != room.base + room.bytes:
                raise ScheduleError(
                    f"{after.name!r} does not follow {room.name!r} in SMEM",
                    hint="a thread reads grains of any keys of a tile from where the first are",
                )
        self.grains = tuple(room.name for room in self.rooms)
        if kernel.k.dtype == "bf16":
            kernel.context["factors"] = touched(
                s.smem.scratches["of queries"],
                at_least("bytes", FLOAT * kernel.rows, "a factor of each query row"),
            )
            kernel.context["of_scores"] = [f"%own_c{n}" for n in range(kernel.held_rows)]
        kernel.context |= {
            "rooms": self.rooms, "sigma": ["%of_key0", "%of_key1"], **SCALE_BITS
        }  # fmt: skip
        queries.more = {
            "groups": 1, "tiles_": queries.tiles, "pipelines": (queries.pipeline,),
            "together": TOGETHER, "row_threads": kernel.math.threads // kernel.rows,
            "f16_tiles": stored.boxes,
        }  # fmt: skip

    def measure(self, tile: Tile, group: int) -> None:
        """Store the grains of rows that were loaded, for the softmax of `tile`; make of their
        scales, and of columns of bf16, multiples of these."""
        raw = self.rows.numbers(group)
        self.kernel.record(
            "grained/measure_rows", tile, name="measure", of=self.groups[group].name, group=group,
            words=self.rows.words(group), uses=(raw,),
            defines=(raw, Value(self.rooms[group].name, tile)),
        )  # fmt: skip
