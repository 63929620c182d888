"""Latent rows that a third warpgroup, the feeder, makes bf16 of, for the two of `Seesaw`.

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

from collections.abc import Iterator
from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.plain import Fetched, plain_order
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS
from mlagen.attention.latent.sm_90a.seesaw import Seesaw, SeesawKnobs
from mlagen.dsl import Access, Operation, PipelineOrder, RingTile, Tile, Value, record
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, WarpRole, release
from mlagen.targets.nvidia.dsl.smem import TmaTile

ROW_THREADS = 4  # that load a row together
ROOM_BOXES = 2  # of 64 columns of e4m3, or one of bf16, which a room in registers is for
BOX_WORDS = 4  # registers of 64 stored numbers of a row, of one of its threads
SPREAD = 64  # stored columns that a thread has parts of: with fewer a scale two scales a part


class FedSeesaw(Seesaw):
    """The operations of a kernel over rows of the form `form.stored`."""

    measures = False  # whether scales of a tile are measured before its numbers are converted

    def __init__(
        self,
        k: LatentProblem,
        s: PipelineSpace,
        left: WarpRole,
        right: WarpRole,
        feeder: WarpRole,
        knobs: SeesawKnobs,
        form: Form,
    ) -> None:
        if feeder.threads != ROW_THREADS * TILE // 2 or form.stored is None:
            raise ScheduleError(
                f"role {feeder.name!r} has {feeder.threads} threads",
                hint="one warpgroup converts two rows a thread, of stored rows",
            )
        self.stored, self.blocks = form.stored, s.smem.blocks
        row_blocks = -(-k.num_heads // ROWS)
        if row_blocks % self.blocks:
            raise ScheduleError(
                f"a CTA cluster of {self.blocks} blocks for {row_blocks} of a query's heads",
                hint="blocks of a cluster have heads of the same query, whose rows they share",
            )
        most = ROOM_BOXES * self.blocks
        if knobs.boxes > most:
            raise ScheduleError(
                f"boxes={knobs.boxes} over rows of e4m3",
                hint=f"a piece has room for {most * COLUMNS} columns: boxes=1 to {most}",
            )
        super().__init__(k, s, left, right, feeder, knobs, form)
        self.supply |= self._feeding(s)
        self.supply |= {
            "blocks": self.blocks,
            "rows_each": TILE // self.blocks,
            "scales_each": self.scales_each,
            "spread": self.blocks > 1
            and (self.stored.scales != "blocks" or self.stored.block >= SPREAD),
        }
        # What a tile has beyond the rooms for its other columns, and right columns but these.
        self.last = tuple(columns for columns in self.right[-1:] if len(columns.tiles) == 1)
        self.middle = self.right[: len(self.right) - len(self.last)]

    def _feeding(self, s: PipelineSpace) -> dict[str, Any]:
        """Declares the feeder's registers: names by what they are; some by slot, or by room."""
        stored, found = self.stored, dict[str, Any]()
        blocks, exponents = stored.scales == "blocks", stored.paged_exponents > 0
        causal = bool(self.form.operands["causal"])
        rows, of = (2, "two rows") if self.blocks == 1 else (1, "row")  # of a thread
        rooms = max(self.knobs.boxes, 2)
        self.scales_each = 2 if self.blocks == 1 or stored.block < 128 else 1
        words = rows * ROOM_BOXES * BOX_WORDS
        for name, type, count, why in (
            ("list", ".b32", 2 * self.blocks, "two keys of the next list; -1: does not count"),
            ("where", ".b32", 2 * causal, "their positions"),
            ("place", ".b32", rows, f"this thread's {of} of a tile; + 2^31 of a second cache"),
            ("weight", ".f32", 2 * (stored.scales == "key"), "scales of two keys"),
        ):
            if count:
                found[name] = s.named(name, type, count, why)
        for name, type, sets, each, why in (
            ("words", ".b32", rooms, words, "stored numbers that become bf16"),
            (
                "by",
                ".f32",
                rooms * (blocks and not exponents and not self.measures),
                rows * self.scales_each,
                "their scales",
            ),
            ("exponents", ".b32", SLOTS * exponents, 2 * rows, f"those of {of}, eight bytes each"),
        ):
            if sets:
                names = s.named(name, type, sets * each, why)
                found[name] = [names[each * n :] for n in range(sets)]
        # Where blocks share rows, the next tile's list is there before this one's was published.
        self.lists = [found["list"][2 * n : 2 * n + 2] for n in range(self.blocks)]
        return found

    def _tiles(self, s: PipelineSpace, boxes: int) -> None:
        super()._tiles(s, boxes)
        self.counts = tuple(s.smem.room(f"keys that count {slot}", 8) for slot in range(SLOTS))
        if self.stored.scales == "key":
            self.row_scales = tuple(
                s.smem.room(f"row scales {slot}", TILE * FLOAT) for slot in range(SLOTS)
            )

    def _right_spans(self, middle: int) -> list[tuple[int, int]]:
        return [(middle, self.stored.boxes), (self.stored.boxes, self.parts)]

    def _columns(self, s: PipelineSpace, role: WarpRole, tiles: list[TmaTile]) -> Pipeline:
        """Columns that the feeder fills, and `role` gives back: it is the last one to use them."""
        assert self.feeder
        return s.smem.pipeline(
            f"cache {self.keys.index(tiles[0])}", *tiles, producer=self.feeder.name,
            consumer=tuple(r.name for r in self.roles), producer_threads=self.feeder.threads,
            by_warps="fenced" if self.blocks == 1 else "for all",
            releases=(role.name, len(role.warps)),
        )  # fmt: skip

    def _plain(self) -> PipelineOrder:
        left, right = (
            Fetched(role.name, tuple(p.name for p in half), {})
            for role, half in zip(self.roles, (self.left, self.right), strict=True)
        )
        assert self.feeder
        return plain_order(
            left, right, feeder=self.feeder.name, does="measure" if self.measures else "feed",
            zeroes_tail=False, scales=False, persistent=False,
            queries=[f"load_queries {self.query.name}, {self.query_held.name}"],
        )  # fmt: skip

    def _counted(self, role: WarpRole) -> dict[str, Any]:
        return {"fetches": False}

    # ---- math roles -------------------------------------------------------------------------

    def refill(self, half: tuple[Pipeline, ...], tile: Tile, *, when: bool = True) -> None:
        """Give the columns of `half` back, in which `tile` will be: this role used them last."""
        for columns in half if when else ():
            release(columns, tile - SLOTS)

    def row_maximum(self, tile: Tile) -> None:
        weights, more = self._weights(tile)
        room = self.counts[tile.offset % SLOTS]
        self._record("row_maximum", tile, weights=weights, counts=room,
                     uses=(Value("S"), Value(room.name, tile), *more),
                     defines=(Value("S"), Value("top")))  # fmt: skip

    # ---- the feeder -------------------------------------------------------------------------

    def look_up(self, tile: Tile) -> None:
        """Load what the list names in `tile`: each warp all 64 keys, two a lane."""
        self._record("look_up", tile, index=tile.offset % SLOTS, list=self._list(tile))

    def find_rows(self, tile: Tile) -> None:
        """Find which keys of `tile` count, and where this thread's rows lie."""
        self._record("find_rows", tile, index=tile.offset % SLOTS, list=self._list(tile),
                     defines=(Value("scales"),) if self.measures else ())  # fmt: skip

    def fetch(self, pieces: tuple[Pipeline, ...], tile: Tile, room: int) -> None:
        """Load stored numbers of `tile` that become `pieces`, to registers from `room` on."""
        for columns, held in self._rooms(pieces, room):
            self._record("fetch", tile, of=columns.name, boxes=self._boxes(columns), held=held[0],
                         defines=tuple(Value(f"room {n}") for n in held))  # fmt: skip

    def feed(self, pieces: tuple[Pipeline, ...], tile: Tile, room: int) -> None:
        """Store what was fetched to registers from `room` on as bf16, in `pieces` of `tile`."""
        for columns, held in self._rooms(pieces, room):
            record(self._operation(
                "copy", tile, access=Access("copy", RingTile(columns.name, tile)),
                template="convert", pipeline=columns, boxes=self._boxes(columns), held=held[0],
                index=tile.offset % SLOTS,
                uses=(*(Value(f"room {n}") for n in held), *self._converted_by),
            ))  # fmt: skip

    def measure(self, tile: Tile) -> None:
        """Find what numbers of rows of `tile` are multiples of, where that is not 1."""

    _converted_by: tuple[Value, ...] = ()  # what numbers are converted by, besides their own scales

    def publish(self, tile: Tile) -> None:
        """Store which keys of `tile` count, and their scales, for the one that has its scores."""
        rooms = [rooms[tile.offset % SLOTS] for rooms in (self.counts, self.row_scales) if rooms]
        self._record("publish", tile, rooms=rooms, list=self._list(tile),
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

    def _boxes(self, columns: Pipeline) -> list[tuple[TmaTile, int]]:
        return [(tile, COLUMNS * self.keys.index(tile)) for tile in columns.tiles]

    def _mover(self, pipeline: Pipeline) -> Any:
        moves = super()._mover(pipeline)

        def mover(kind: str, tile: Tile) -> Operation:
            if kind == "release":
                released: Operation = moves(kind, tile)
                return released
            raise ScheduleError(f"{kind}({pipeline.name})", hint="`feed` and `refill` move rows")

        return mover
