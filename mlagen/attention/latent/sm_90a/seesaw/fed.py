"""Listed rows that a third warpgroup, the feeder, converts.

The feeder does all that concerns rows: it reads the list, loads rows of e4m3 to registers, and
stores them as bf16 where the math warpgroups have given their place back. It also says which of a
tile's keys count, and what their scales are. Four threads have a row, 16 of its columns each of
every 64; each converts what it loaded itself.

ptxas gives all loads of the feeder one scoreboard, so waiting for one is waiting for all that are
on their way. Pieces are therefore fetched together, when those before them are stored.

Two blocks that have heads of the same query may be a CTA cluster: each converts half of a tile's
rows, for both. What four threads then store at once lies together, 64 bytes of a row: half as much
at a time takes the way to the other block twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.sm_90a.column_scales import fed_scales
from mlagen.attention.latent.sm_90a.plain import Fetched
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.attention.latent.sm_90a.seesaw.rows import spans
from mlagen.dsl import Access, Operation, RingTile, Tile, Value, bind
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole, release
from mlagen.targets.nvidia.dsl.smem import Scratch

ROW_THREADS = 4  # that load a row together
ROOM_BOXES = 2  # of 64 columns of e4m3, or one of bf16, which a room in registers is for
ROOMS = 2  # that pieces take in turn
BOX_WORDS = 4  # registers of 64 stored numbers of a row, of one of its threads


class Converted(Protocol):
    """What numbers of rows become. `does`: of the plain order; `found`: what `find_rows` finds
    besides places; `by`: what numbers are converted by, besides scales that come with them, for
    which a room in registers has place where `scales_come`; `weights`: what S and P are multiplied
    by, a room a slot, which the feeder publishes where they are `published`."""

    scales_come: bool
    weights: tuple[Scratch, ...]
    published: bool

    @property
    def does(self) -> Literal["feed", "measure"]: ...

    @property
    def found(self) -> tuple[Value, ...]: ...

    @property
    def by(self) -> tuple[Value, ...]: ...

    def declare(self, rows: int) -> None:
        """Declare registers of the feeder, of whose threads each has so many rows."""

    def measure(self, tile: Tile) -> None:
        """Find what numbers of rows of `tile` are multiples of, where that is not 1."""

    def before_last(self, pipeline: Pipeline, tile: Tile) -> None:
        """What goes to SMEM with the columns of a tile that are given back last."""


@dataclass(frozen=True, slots=True)
class DequantizedColumns:
    """Columns of a tile that go to registers from `room` on; whether its first ones are them."""

    columns: tuple[Pipeline, ...]
    tile: Tile
    room: int
    begins: bool


class Rounded:
    """A number times its scale, rounded to bf16. Scales of keys multiply S and P."""

    does: Literal["feed"] = "feed"
    scales_come = published = True
    found = by = ()

    def __init__(self, kernel: SeesawKernel, stored: RowForm) -> None:
        self.weights = tuple(
            kernel.s.smem.room(f"row scales {slot}", TILE * FLOAT)
            for slot in range(SLOTS if stored.scales == "key" else 0)
        )

    def declare(self, rows: int) -> None:
        """It has none."""

    def measure(self, tile: Tile) -> None:
        """Numbers are multiples of 1."""

    def before_last(self, pipeline: Pipeline, tile: Tile) -> None:
        """Nothing does."""


class Fed:
    """Rows of the form `form.stored`, which become what `numbers`, a class, says."""

    zeroes_tail = loads_scales = False

    def __init__(
        self, kernel: SeesawKernel, numbers: Callable[[SeesawKernel, RowForm], Converted] = Rounded
    ) -> None:
        stored = kernel.form.stored
        self.kernel, self.feeder, self.blocks = kernel, kernel.feeding, kernel.s.smem.blocks
        if self.feeder.threads != ROW_THREADS * TILE // 2 or stored is None:
            raise ScheduleError(
                f"role {self.feeder.name!r} has {self.feeder.threads} threads",
                hint="one warpgroup converts two rows a thread, of stored rows",
            )
        self.stored, row_blocks = stored, -(-kernel.k.num_heads // ROWS)
        if row_blocks % self.blocks:
            raise ScheduleError(
                f"a CTA cluster of {self.blocks} blocks for {row_blocks} of a query's heads",
                hint="blocks of a cluster have heads of the same query, whose rows they share",
            )
        most = ROOM_BOXES * self.blocks
        if kernel.knobs.boxes > most:
            raise ScheduleError(
                f"boxes={kernel.knobs.boxes} over rows of e4m3",
                hint=f"a piece has room for {most * COLUMNS} columns: boxes=1 to {most}",
            )
        middle = kernel.value_parts // 2
        self.left, self.right = (
            tuple(self._columns(role, *span) for span in spans(kinds, kernel.knobs.boxes))
            for role, kinds in zip(
                kernel.roles,
                ([(0, middle)], [(middle, stored.boxes), (stored.boxes, kernel.parts)]),
                strict=True,
            )
        )  # fmt: skip
        # What a tile has beyond the rooms for its other columns, and right columns but these.
        self.last = tuple(columns for columns in self.right[-1:] if len(columns.tiles) == 1)
        self.middle = self.right[: len(self.right) - len(self.last)]
        self.counts = tuple(kernel.s.smem.room(f"keys that count {slot}", 8)
                            for slot in range(SLOTS))  # fmt: skip
        self.numbers = numbers(kernel, stored)
        self.weights, self.does = self.numbers.weights, self.numbers.does
        self._declare(rows=2 if self.blocks == 1 else 1)

    def _columns(self, role: WarpRole, first: int, stop: int) -> Pipeline:
        """Columns that the feeder fills, and `role` gives back: it is the last one to use them."""
        kernel = self.kernel
        columns = kernel.s.smem.pipeline(
            f"cache {first}", *kernel.keys[first:stop], producer=self.feeder.name,
            consumer=kernel.names, producer_threads=self.feeder.threads,
            by_warps="fenced" if self.blocks == 1 else "for all",
            releases=(role.name, len(role.warps)),
        )  # fmt: skip
        bind(columns, self._released(columns))
        return columns

    def _released(self, columns: Pipeline) -> Mover:
        releases = self.kernel.mover(columns, "")

        def mover(kind: AccessKind, tile: Tile) -> Operation:
            if kind != "release":
                raise ScheduleError(f"{kind}({columns.name})", hint="`feed` and `refill` move rows")
            return releases(kind, tile)

        return mover

    def _declare(self, rows: int) -> None:
        """Declare registers of the feeder, of whose threads each has so many rows: names by what
        they are; some by slot, or by room."""
        kernel, stored, found, s = self.kernel, self.stored, self.kernel.context, self.kernel.s
        exponents = stored.paged_exponents > 0
        by_blocks = stored.scales == "blocks" and not exponents and self.numbers.scales_come
        of = "two rows" if rows == 2 else "row"
        rooms = max(kernel.knobs.boxes, 2)
        scales = fed_scales(stored)
        each = scales.count(stored, self.blocks)
        for name, type, count, why in (
            ("list", ".b32", 2 * self.blocks, "two keys of the next list; -1: does not count"),
            ("where", ".b32", 2 * bool(kernel.form.operands["causal"]), "their positions"),
            ("place", ".b32", rows, f"this thread's {of} of a tile; + 2^31 of a second cache"),
            ("weight", ".f32", 2 * (stored.scales == "key"), "scales of two keys"),
        ):
            if count:
                found[name] = s.named(name, type, count, why)
        for name, type, sets, count, why in (
            ("words", ".b32", rooms, rows * ROOM_BOXES * BOX_WORDS,
             "stored numbers that become bf16"),
            ("by", ".f32", rooms * by_blocks, rows * each, "their scales"),
            ("exponents", ".b32", SLOTS * exponents, 2 * rows, f"those of {of}, eight bytes each"),
        ):  # fmt: skip
            if sets:
                names = s.named(name, type, sets * count, why)
                found[name] = [names[count * n :] for n in range(sets)]
        # Where blocks share rows, the next tile's list is there before this one's was published.
        self.lists = [found["list"][2 * n : 2 * n + 2] for n in range(self.blocks)]
        self.numbers.declare(rows)
        found |= {
            "blocks": self.blocks, "rows_each": TILE // self.blocks, "scales_each": each,
            "scales": scales.template, "spread": self.blocks > 1 and scales.spreads(stored),
        }  # fmt: skip

    def fetched(self, half: tuple[Pipeline, ...], role: WarpRole) -> Fetched:
        return Fetched(role.name, tuple(p.name for p in half), {})

    def looks_up(self, role: WarpRole) -> bool:
        return False

    def refill(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Give the columns of `half` back, in which `tile` will be: this role used them last."""
        for columns in half:
            release(columns, tile - SLOTS)

    def prefetch(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Rows that lie anywhere are in no box."""

    # ---- the feeder -------------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        """Whether another block converts half of the rows."""
        return self.blocks > 1

    def pieces(self, tile: Tile) -> list[list[tuple[DequantizedColumns, DequantizedColumns]]]:
        """The pieces of `tile` and the next one as their places become free, each with the one that
        takes its room when it is stored; in groups that are fetched together."""
        halves = ((self.left, tile), (self.right, tile),
                  (self.right, tile + 1), (self.left, tile + 1))  # fmt: skip
        order = [(columns, at) for half, at in halves for columns in half]
        order += [(columns, at + SLOTS) for columns, at in order[:ROOMS]]
        found = [
            DequantizedColumns(
                (columns,), at, n % ROOMS, begins=at.offset not in {x.offset for _, x in order[:n]}
            )
            for n, (columns, at) in enumerate(order)
        ]
        pairs = list(zip(found, found[ROOMS:], strict=False))
        step = self.kernel.knobs.together
        return [pairs[n : n + step] for n in range(0, len(pairs), step)]

    def look_up(self, tile: Tile, *, when: bool = True) -> None:
        """Load what the list names in `tile`: each warp all 64 keys, two a lane."""
        if when:
            self.kernel.record("look_up", tile, index=tile.offset % SLOTS, list=self._list(tile))

    def find_rows(self, tile: Tile, *, when: bool = True) -> None:
        """Find which keys of `tile` count, and where this thread's rows lie."""
        if when:
            self.kernel.record("find_rows", tile, index=tile.offset % SLOTS, list=self._list(tile),
                               defines=self.numbers.found)  # fmt: skip

    def fetch(self, pieces: tuple[Pipeline, ...], tile: Tile, room: int) -> None:
        """Load stored numbers of `tile` that become `pieces`, to registers from `room` on."""
        for columns, held in self._rooms(pieces, room):
            self.kernel.record("fetch", tile, of=columns.name, boxes=self.kernel.boxes(columns),
                               held=held[0],
                               defines=tuple(Value(f"room {n}") for n in held))  # fmt: skip

    def feed(self, pieces: tuple[Pipeline, ...], tile: Tile, room: int) -> None:
        """Store what was fetched to registers from `room` on as bf16, in `pieces` of `tile`."""
        if self.right[-1] in pieces:
            self.numbers.before_last(self.right[-1], tile)
        for columns, held in self._rooms(pieces, room):
            self.kernel.record(
                "convert", tile, name="copy", access=Access("copy", RingTile(columns.name, tile)),
                pipeline=columns, boxes=self.kernel.boxes(columns), held=held[0],
                index=tile.offset % SLOTS,
                uses=(*(Value(f"room {n}") for n in held), *self.numbers.by),
            )  # fmt: skip

    def measure(self, tile: Tile, *, when: bool = True) -> None:
        """Find what numbers of rows of `tile` are multiples of, where that is not 1."""
        if when:
            self.numbers.measure(tile)

    def publish(self, tile: Tile, *, when: bool = True) -> None:
        """Store which keys of `tile` count, and their scales, for the one that has its scores."""
        if not when:
            return
        published = (self.counts, self.weights) if self.numbers.published else (self.counts,)
        rooms = [rooms[tile.offset % SLOTS] for rooms in published if rooms]
        self.kernel.record("publish", tile, rooms=rooms, list=self._list(tile),
                           defines=tuple(Value(room.name, tile) for room in rooms))  # fmt: skip

    def _list(self, tile: Tile) -> list[str]:
        return self.lists[tile.offset % self.blocks]

    @staticmethod
    def _rooms(pieces: tuple[Pipeline, ...], room: int) -> Iterator[tuple[Pipeline, range]]:
        """Pieces, and rooms in registers one after another from `room` on."""
        for columns in pieces:
            held = range(room, room + -(-len(columns.tiles) // ROOM_BOXES))
            yield columns, held
            room = held.stop
