"""MLA decode on Hopper in the absorbed form: the operations a schedule arranges.

One block computes a work item: up to 64 query rows of one sequence (heads, or heads of several new
tokens) over a range of its keys. S = Q K^T over 576 columns, O += P V over the first 512 columns of
the same rows. An item that has all keys of its rows writes O and LSE; one that has a part of them
writes both in fp32, for the merge kernel.

Two math warpgroups alternate: the left one has the scores of even tiles and output columns 0..255,
the right one those of odd tiles and columns 256..511. Each multiplies its own P from registers and
the other's from SMEM, so a pair of tiles is four products of P V, and while one warpgroup is at its
softmax the other keeps the matrix pipe busy.

Both use one running maximum M: the left one updates it after the even tile and passes it to the
right one, which updates it after the odd tile and passes it back.

Softmax in base 2: P = exp2(c * S - c * M) with c = scale * log2(e). P is rounded to bf16 for the
products; for the right columns an even tile's P is rounded after it was rescaled to the odd tile's
maximum. The row sum adds the unrounded values. M starts at the lowest finite number: a tile that a
row sees nothing of leaves M, and its P is 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy
from mlagen.attention.latent.sm_90a.plain import Fetched, plain_order
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS, own_registers, registers
from mlagen.dsl import Access, Operation, PipelineOrder, RingTile, Tile, Value, bind, copy, record
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, WarpRole, release, tiles_of
from mlagen.targets.nvidia.dsl.smem import Exchange, Scratch, TmaTile

QUERY_LOADS = 6  # 16-byte loads of an e4m3 Q that a thread has in flight
PART_PAIRS = 8  # 64-byte pieces of a part's row of which a thread has its loads in flight
# Times that a block asks for a part which another one has begun before it: half a microsecond each,
# and a second in all. Nobody waits so long for work that fits in a GPU's memory.
MOST_ASKS = 1 << 21
BANKS_APART = 32  # bytes between rows of a part in SMEM: a quarter of a warp's stores hit own banks
# wgmma descriptors: 128-byte swizzle, 8 rows are 1024 bytes (PTX ISA, matrix descriptor). Across
# the rows, the distance to the next 64 columns is added.
COLUMN_MAJOR = 1 << 62 | 1024 >> 4 << 32
ROW_MAJOR = COLUMN_MAJOR | 1 << 16


@dataclass(frozen=True, slots=True)
class SeesawKnobs:
    """How a problem is decoded. `boxes` tiles of 64 columns share a barrier. `held` tiles of 64
    columns of Q, the rotary part among them, are operands in registers, the others in SMEM.
    `refill`: when the left warpgroup fetches its even tile. `ahead`: passes ahead that tiles are
    brought to the L2 cache. `evict`: "first" of that cache go rows that were copied by box, or as
    any others ("normal"). `persistent`: a block does one item after another, and fetches the next
    one's Q and first tiles in an item's last pass. `feeders`: warpgroups that make bf16 of e4m3.
    `gathered`: a third warpgroup fetches listed rows, for both halves. `grained`: numbers of rows
    are f16, in multiples of a key's grain."""

    boxes: int
    held: int
    refill: Literal["early", "late"] = "late"
    ahead: int = 0
    evict: Literal["normal", "first"] = "normal"
    persistent: bool = False
    feeders: int = 0
    gathered: bool = False
    grained: bool = False


OPERATION_FIELDS = {field.name for field in dataclasses.fields(Operation)}


class Seesaw:
    """The operations of one decode kernel over the schedule's tiles (Q0 .. of the tensor q, K0 ..
    of the cache) and registers (o, s, p, qr); its pipelines, exchanges and other registers.

    `left` and `right`: pipelines of the cache's columns that the left warpgroup refills (0..255)
    and of those that the right one does."""

    def __init__(
        self,
        k: LatentProblem,
        s: PipelineSpace,
        left: WarpRole,
        right: WarpRole,
        feeder: WarpRole | None,
        knobs: SeesawKnobs,
        form: Form,
    ) -> None:
        persistent, held, boxes = knobs.persistent, knobs.held, knobs.boxes
        _check_roles(left, right, feeder)
        if feeder and not (form.stored or knobs.gathered) and k.cache_dtype == "bf16":
            raise ScheduleError(
                f"{feeder.place}: " * bool(feeder.place)
                + f"role {feeder.name!r} converts rows to bf16, and these are bf16"
            )
        if feeder and not form.stored and not knobs.gathered and boxes != 2:
            raise ScheduleError(
                f"boxes={boxes} with cache_dtype={k.cache_dtype}",
                hint="128 columns of e4m3 become two tiles of bf16: boxes=2",
            )
        if boxes < 1 or not 1 <= held <= k.d_qk // COLUMNS - k.d_v // COLUMNS // 2:
            raise ScheduleError(
                f"boxes={boxes}, held={held}",
                hint="a barrier covers one tile or more; registers hold the last one or more of Q",
            )
        self.knobs, self.held, self.feeder, self.form = knobs, held, feeder, form
        threads = s.roles[-1].warps.stop * 32
        # Columns of one wgmma of P V: ptxas holds each instruction to what a thread starts with,
        # and 512 threads start with 128 registers.
        self.at_once = 256 if threads <= 384 else 128
        self.persistent, s.persistent = persistent, "ahead" if persistent else ""
        self.k, self.roles, self.paged = k, (left, right), PagedCopy.of(k)
        # Whether rows of a block see different keys: those of several tokens.
        self.slanted = k.causal and k.q_len > 1
        self.parts, self.value_parts = k.d_qk // COLUMNS, k.d_v // COLUMNS
        self._tiles(s, boxes)
        self._exchanges(s)
        self.supply: dict[str, Any] = {
            **registers(
                k,
                s,
                self.paged,
                slanted=self.slanted,
                by_map=self._reads_queries == "load_queries",
                converters=0 if form.stored or knobs.gathered or not feeder else feeder.threads,
                extents={
                    "o": k.d_v // 4,
                    "s": TILE // 2,
                    "p": TILE // 4,
                    "qr": held * COLUMNS // 4,
                },
            ),
            "feeder": feeder,
            "k": k,
            "paged": self.paged,
            "item_bytes": form.item_bytes,
            "persistent": persistent,
            "slanted": self.slanted,
            "float_bytes": FLOAT,
            "tile_rows": TILE,
            "evict": knobs.evict,
            "stored": form.stored,
            "gathered": knobs.gathered,
            "values_of": "bf16",
            "f16_tiles": 0,
            "largest": "",
            "factors": None,
            **own_registers(s, form),
            **form.operands,
        }
        s.signature, s.symbol = form.signature, form.symbol
        s.plain = self._plain()
        for pipeline in (*self.left, *self.right, *self.raw.values()):
            bind(pipeline, self._mover(pipeline))

    def _plain(self) -> PipelineOrder:
        """The order that the schedule rearranges."""
        left, right = (
            Fetched(role.name, tuple(p.name for p in half),
                    {p.name: self.raw[p.name].name for p in half if p.name in self.raw},
                    self.form.listed)
            for role, half in zip(self.roles, (self.left, self.right), strict=True)
        )  # fmt: skip
        queries = [(self.query,), (self.query_held,)] if self.persistent else [
            (self.query, self.query_held)
        ]  # fmt: skip
        feeder = self.feeder.name if self.feeder else ""
        return plain_order(
            left, right, feeder=feeder, does="gather" if self.knobs.gathered else "convert",
            zeroes_tail=self._zeroes_tail, scales=bool(self.row_scales), persistent=self.persistent,
            queries=[f"load_queries {_names(pipelines)}" for pipelines in queries],
        )  # fmt: skip

    @property
    def _zeroes_tail(self) -> bool:
        """Whether rows past a sequence's end must become 0. Where rows are fetched one by one,
        what does not exist arrived as 0, but not what a window hides; e4m3 is finite here."""
        return not self.feeder and bool(self.k.window or not self.paged.producer_threads)

    def _tiles(self, s: PipelineSpace, boxes: int) -> None:
        names = tuple(role.name for role in self.roles)
        self.queries = [tile for tile in s.smem.tiles.values() if tile.tensor == "q"]
        self.keys = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"]
        boxes_of = self.k.d_qk // COLUMNS
        tiles_of("Q", self.queries, boxes_of, rows=ROWS, slots=1)
        tiles_of("keys", self.keys, boxes_of, rows=TILE, slots=SLOTS)
        self.query, self.query_held = (
            s.smem.pipeline(
                name, *tiles, producer=names[0], consumer=names, resident=True,
                producer_threads=0 if self._reads_queries == "load_queries"
                else self.roles[0].threads,
            )
            for name, tiles in (
                ("query", self.queries[: -self.held]),
                ("query held", self.queries[-self.held :]),
            )
        )  # fmt: skip
        middle = self.value_parts // 2
        # In a persistent block the next item's Q is loaded there meanwhile. A part in fp32 takes
        # more: the right one's lies in columns of the cache that no one else has as values.
        of_left, of_right = self.queries[:middle], self.queries[middle : self.value_parts]
        if not self.feeder:
            of_left, of_right = self.queries, self.keys[middle:]
        self.staged = () if self.persistent else (
            s.smem.scratch("O left", *of_left), s.smem.scratch("O right", *of_right)
        )  # fmt: skip
        self.raw: dict[str, Pipeline] = {}
        self.left, self.right = (
            tuple(
                self._columns(s, role, self.keys[first : min(first + boxes, stop)])
                for start, stop in spans for first in range(start, stop, boxes)
            )
            for role, spans in zip(
                self.roles, ([(0, middle)], self._right_spans(middle)), strict=True
            )
        )  # fmt: skip
        self.row_scales = tuple(
            s.smem.room(f"row scales {slot}", TILE * FLOAT)
            for slot in range(SLOTS if self.k.rope_aware else 0)
        )

    def _right_spans(self, middle: int) -> list[tuple[int, int]]:
        """Tiles of the right columns, of each type in memory."""
        return [(middle, self.parts)]

    def _columns(self, s: PipelineSpace, role: WarpRole, tiles: list[TmaTile]) -> Pipeline:
        """The pipeline of some columns that `role` fetches; all become bf16."""
        first = self.keys.index(tiles[0])
        # Rotary columns of rope-aware rows are bf16 as they are.
        rotary = self.value_parts if self.k.rope_aware else self.parts
        converter = self.feeder if first < rotary else None
        if self.knobs.gathered:
            assert self.feeder
            # The role that uses these columns last knows that the other one is done.
            return s.smem.pipeline(
                f"cache {first}", *tiles, producer=self.feeder.name,
                consumer=tuple(r.name for r in self.roles), producer_threads=self.feeder.threads,
                releases=(role.name, len(role.warps)),
            )  # fmt: skip
        pipeline = s.smem.pipeline(
            f"cache {first}", *tiles, producer=(converter or role).name,
            consumer=tuple(r.name for r in self.roles),
            producer_threads=converter.threads if converter else self.paged.producer_threads,
            by_warps=converter is not None,
        )  # fmt: skip
        if converter:
            self.raw[pipeline.name] = self._raw(s, role, pipeline)
        return pipeline

    def _raw(self, s: PipelineSpace, role: WarpRole, pipeline: Pipeline) -> Pipeline:
        """The e4m3 numbers of a pipeline, in its first tile."""
        assert self.feeder
        first = self.keys.index(pipeline.tiles[0])
        tile = s.smem.tile(f"R{first}", "cache", rows=TILE, row_bytes=2 * COLUMNS, slots=SLOTS,
                           over=pipeline.tiles[0])  # fmt: skip
        return s.smem.pipeline(
            f"raw {first}", tile, producer=role.name, consumer=self.feeder.name,
            producer_threads=self.paged.producer_threads, within=pipeline,
        )  # fmt: skip

    def _exchanges(self, s: PipelineSpace) -> None:
        left, right = (role.name for role in self.roles)
        size = ROWS * TILE * 2
        self.p_left = s.smem.exchange("P left", size, producer=left, consumer=right)
        # By then the rotary part of Q is in registers.
        self.p_right = s.smem.exchange(
            "P right", size, producer=right, consumer=left, over=self.queries[-1]
        )
        rows, maxima = ROWS * FLOAT, self._maximum_bytes
        self.max_left = s.smem.exchange("M left", maxima, producer=left, consumer=right)
        self.max_right = s.smem.exchange("M right", maxima, producer=right, consumer=left)
        # Who stores sums has read the other one's last M.
        over = (self.max_right, self.max_left) if self._sums_over_maxima else (None, None)
        self.sum_left, self.sum_right = (
            s.smem.exchange(f"l {own}", rows, producer=own, consumer=other, over=place)
            for own, other, place in ((left, right, over[0]), (right, left, over[1]))
        )
        # In an item of one tile no exchange goes from right to left before the sums.
        self.read = (
            s.smem.exchange("l is read", 0, producer=right, consumer=left)
            if self.persistent
            else None
        )

    _sums_over_maxima = False  # whether row sums have the place of maxima in the end

    @property
    def _maximum_bytes(self) -> int:
        """What one math role tells the other with its maxima."""
        return ROWS * FLOAT

    # ---- before the loop --------------------------------------------------------------------

    def setup(self, role: WarpRole) -> None:
        """Find this block's work item, its number of tiles and where its first two tiles are, or
        its work items, where it has several."""
        more = {} if self.persistent else self._counted(role)
        self._record(
            "setup", None, role=role, template="setup_block" if self.persistent else "",
            row_major_bits=hex(ROW_MAJOR),
            column_major_bits=hex(COLUMN_MAJOR | self._apart // 16 << 16), **more,
        )  # fmt: skip

    def _counted(self, role: WarpRole) -> dict[str, Any]:
        """What an item's setup needs. `row_maximum` counts down before it compares."""
        return {"count_from": (SLOTS - (role is self.roles[1])) * TILE,
                "fetches": (role is self.feeder) == self.knobs.gathered}  # fmt: skip

    def begin(self, role: WarpRole) -> None:
        """Begin the item that was looked up ahead, where a block has several."""
        if self.persistent:
            self._record("begin", None, role=role)

    def next_item(self, tile: Tile, role: WarpRole) -> None:
        """Load the record of the next work item, where a block has several."""
        self._seek("next_item", tile, role)

    def next_keys(self, tile: Tile, role: WarpRole) -> None:
        """Load how many keys the next item has and where its first two tiles are."""
        self._seek("next_keys", tile, role, **self._counted(role))

    def next_tiles(self, tile: Tile, role: WarpRole) -> None:
        """Compute how many tiles the next item has. Tiles fetched from here on are that item's."""
        self._seek("next_tiles", tile, role, **self._counted(role))

    def _seek(self, name: str, tile: Tile, role: WarpRole, **more: Any) -> None:
        if self.persistent:
            self._record(name, tile, role=role, domain="first", ahead="seeks", **more)

    def load_queries(self, tile: Tile, role: WarpRole) -> None:
        """Load the item's 64 rows of Q, once, with the first tile, and convert e4m3 to bf16. Rows
        past the item's own are of others or zero. The columns of `load_held` are left out."""
        held = () if self.persistent else (self.query_held,)
        self._load_queries(tile, role, self.query, *held)

    def load_held(self, tile: Tile, role: WarpRole) -> None:
        """Load the columns of Q that go to registers. Where a block has several items, P of the
        item before lies in their place until then."""
        if self.persistent:
            self._load_queries(tile, role, self.query_held)

    def _load_queries(self, tile: Tile, role: WarpRole, *pipelines: Pipeline) -> None:
        self._record(
            "load_queries", tile, role=role, domain="first", ahead="fetches",
            template=self._reads_queries,
            loads=[
                (pipeline, [(tile, COLUMNS * self.queries.index(tile)) for tile in pipeline.tiles])
                for pipeline in pipelines
            ],
            pipelines=pipelines, tiles_=[tile for p in pipelines for tile in p.tiles],
            first_column=COLUMNS * self.queries.index(pipelines[0].tiles[0]),
            together=QUERY_LOADS, of=_names(pipelines),
            defines=tuple(Value(pipeline.name) for pipeline in pipelines),
        )  # fmt: skip

    @property
    def _reads_queries(self) -> str:
        """The template that does."""
        return "load_queries" if self.k.dtype == "bf16" else "read_queries"

    def clear(self) -> None:
        """Set O = 0, l = 0, M to the lowest finite number: what a sequence without keys leaves."""
        self._record("clear", None, defines=(Value("O"),))

    def hold_queries(self, tile: Tile) -> None:
        """Read the last columns of Q to registers, when the role's first tile is on its way."""
        self._record("hold_queries", tile, domain="second" if tile.offset % SLOTS else "first",
                     tiles_=self.query_held.tiles,
                     uses=(Value(self.query_held.name),), defines=(Value("Q held"),))  # fmt: skip

    # ---- scores -----------------------------------------------------------------------------

    def qk(self, tile: Tile, half: tuple[Pipeline, ...], *, first: bool) -> None:
        """S = Q K^T over the columns of `half`, a group a pipeline; `first`: S starts here."""
        for pipeline in half:
            self._record(
                "qk", tile,
                tiles_=[(self.keys.index(t), t) for t in pipeline.tiles],
                queries=self.query.tiles, overwrites=first and pipeline is half[0],
                of=pipeline.name + ", first" * (first and pipeline is half[0]),
                uses=(Value(pipeline.name, tile), Value(self.query.name), Value("Q held")),
                defines=(Value("S"),), asynchronous=True,
            )  # fmt: skip

    def take_left_maximum(self, tile: Tile) -> None:
        """Take the left warpgroup's maximum after `tile`: set alpha, and rescale l."""
        self._record("take_left_maximum", tile, template="take_maximum",
                     exchange=self.max_left, scores=False,
                     uses=(Value(self.max_left.name, tile), Value("l")),
                     defines=(Value("alpha"), Value("l")))  # fmt: skip

    def take_right_maximum(self, tile: Tile) -> None:
        """Take the right warpgroup's maximum after `tile`: set alpha, and rescale l and P."""
        self._record("take_right_maximum", tile, template="take_maximum",
                     exchange=self.max_right, scores=True,
                     uses=(Value(self.max_right.name, tile), Value("S")),
                     defines=(Value("alpha"), Value("l"), Value("S")))  # fmt: skip

    def row_maximum(self, tile: Tile) -> None:
        """Multiply S by the rows' scales, mask it, and find each row's maximum over this tile."""
        weights, more = self._weights(tile)
        self._record("row_maximum", tile, stride=SLOTS * TILE, weights=weights,
                     uses=(Value("S"), *more), defines=(Value("S"), Value("top")))  # fmt: skip

    def running_maximum(self, tile: Tile, exchange: Exchange, *, fresh: bool) -> None:
        """Update the running maximum and alpha, and store the maximum for the other warpgroup.
        `fresh`: alpha starts here; otherwise it already has the factor of the other's maximum."""
        self._record("running_maximum", tile, exchange=exchange, fresh=fresh,
                     uses=(Value("top"),), of=exchange.name + ", fresh" * fresh,
                     defines=(Value("alpha"), Value("l"), Value(exchange.name, tile)))  # fmt: skip

    def exponent(self, tile: Tile) -> None:
        """Compute P = exp2(c S - c M) in place of S, and row sums; multiply P by the rows' scales
        and round it to bf16 as operand A."""
        weights, more = self._weights(tile)
        self._record("exponent", tile, weights=weights, uses=(Value("S"), Value("alpha"), *more),
                     defines=(Value("S"), Value("P"), Value("l")))  # fmt: skip

    def rescale(self, tile: Tile) -> None:
        """O *= alpha."""
        self._record("rescale", tile, uses=(Value("alpha"), Value("O")), defines=(Value("O"),))

    # ---- products ---------------------------------------------------------------------------

    def zero_tail(self, tile: Tile, role: WarpRole) -> None:
        """Set rows past the sequence's end to 0 in SMEM: P is 0 there, but 0 * NaN is not."""
        if not self._zeroes_tail:
            return
        names = [p.name for p in (*self.left, *self.right)]
        self._record(
            "zero_tail", tile, keys=self.keys[: self.value_parts], role=role,
            uses=tuple(Value(name, tile) for name in names),
            defines=tuple(Value(name, tile) for name in names),
            joins=True, guarded=True,
        )  # fmt: skip

    def store_p(self, tile: Tile, exchange: Exchange) -> None:
        """Store P as bf16 to SMEM, for the other warpgroup."""
        packed = exchange is self.p_right  # as operand A has it, otherwise rounded again
        self._record("store_p", tile, exchange=exchange, packed=packed, of=exchange.name,
                     uses=(Value("P" if packed else "S"),),
                     defines=(Value(exchange.name, tile),))  # fmt: skip

    def pv(self, tile: Tile, half: tuple[Pipeline, ...], exchange: Exchange | None = None) -> None:
        """O += P V over the columns of `half`, one group; P comes from registers, or from the
        other's exchange."""
        held = [t for p in half for t in p.tiles if self.keys.index(t) < self.value_parts]
        first = self.keys.index(held[0]) % (self.value_parts // 2)
        each = COLUMNS // 2  # accumulators of 64 columns
        source = Value(exchange.name, tile) if exchange else Value("P")
        self._record(
            "pv", tile, exchange=exchange, values=held, columns=COLUMNS * len(held),
            of=f"{exchange.name if exchange else 'P'}, {self._columns_of(half)}",
            o=self.supply["o"][each * first : each * (first + len(held))],
            steps=TILE // 16, at_once=min(COLUMNS * len(held), self.at_once),
            uses=(source, *(Value(p.name, tile) for p in half if set(p.tiles) & set(held))),
            defines=(Value("O"),), asynchronous=True,
        )  # fmt: skip

    def late_arrive(self, tile: Tile, exchange: Exchange) -> None:
        """Delay the arrival of `exchange` to this place: this role's products are issued by now, so
        the reader's come after them in the matrix pipe."""
        self._record("late_arrive", tile, template="empty",
                     defines=(Value(exchange.name, tile),))  # fmt: skip

    def refill(self, half: tuple[Pipeline, ...], tile: Tile, *, when: bool = True) -> None:
        """Fetch the columns of `half` of `tile`, or give their place back to the one who does; look
        up where the tile lies that is next in these slots, and load the tile's own list where there
        are lists. `when`: what a knob says; otherwise that stands elsewhere."""
        if not when:
            return
        for columns in half:
            if self.knobs.gathered:
                release(columns, tile - SLOTS)
            else:
                copy(self.raw.get(columns.name, columns), tile)
        role, index = self.roles[half is self.right], tile.offset % SLOTS
        if self.form.listed and role is self.roles[index]:
            self._record("load_list", tile, role=role, later=self.supply["ahead"][index],
                         ahead="fetches")  # fmt: skip
        if not self.knobs.gathered:
            self._record("next_page", tile, index=index, role=role, ahead="fetches")

    def gather(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Fetch the columns of `half` of a tile's rows, by a warpgroup of its own."""
        for columns in half:
            copy(columns, tile)

    def find_rows(self, tile: Tile) -> None:
        """Compute, in that warpgroup, where the rows of the tile lie."""
        self._record("find_rows", tile, index=tile.offset % SLOTS, role=self.feeder,
                     ahead="fetches")  # fmt: skip

    def look_up(self, tile: Tile) -> None:
        """Look up, in that warpgroup, which rows the tile has that is next in these slots."""
        self._record("next_page", tile, index=tile.offset % SLOTS, role=self.feeder,
                     ahead="fetches")  # fmt: skip

    def prefetch(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Prefetch to L2 the columns of `half` of the tile that is fetched a pass after `tile`.
        `refill`, which looks up where it lies, comes before; for copies by box only, and where a
        knob asks for it."""
        if not self.knobs.ahead:
            return
        index = tile.offset % SLOTS
        first = COLUMNS * self.keys.index(half[0].tiles[0])
        end = COLUMNS * (self.keys.index(half[-1].tiles[-1]) + 1)
        self._record(
            "prefetch", tile, role=self.roles[half is self.right],
            columns=list(range(first, end, self.paged.box_columns)),
            places=self.supply["pages"][index], later=self.supply["ahead"][index],
        )  # fmt: skip

    def convert(self, half: tuple[Pipeline, ...], tile: Tile) -> None:
        """Convert columns of an e4m3 tile to bf16 in place: read all to registers, then write."""
        for columns in (columns for columns in half if columns.name in self.raw):
            raw = self.raw[columns.name]
            self._record("read_e4m3", tile, tile_=raw.tiles[0], narrow=len(columns.tiles) == 1,
                         of=raw.name,
                         uses=(Value(raw.name, tile),), defines=(Value("raw"),))  # fmt: skip
            copy(columns, tile)

    def load_scales(self, tile: Tile) -> None:
        """Store the tile's row scales to SMEM, where rows have them, and load the next ones."""
        if self.row_scales:
            index = tile.offset % SLOTS
            self._record("load_scales", tile, index=index, room=self.row_scales[index],
                         defines=(Value(self.row_scales[index].name, tile),))  # fmt: skip

    def _weights(self, tile: Tile) -> tuple[Scratch | None, tuple[Value, ...]]:
        """Where the tile's row scales are, and the value that their users name; nothing, where rows
        have none."""
        if not self.row_scales:
            return None, ()
        room = self.row_scales[tile.offset % SLOTS]
        return room, (Value(room.name, tile),)

    # ---- after the loop ---------------------------------------------------------------------

    def store_sum(self, exchange: Exchange) -> None:
        """Store this warpgroup's row sums for the other one."""
        self._record("store_sum", None, exchange=exchange, of=exchange.name,
                     defines=(Value(exchange.name),))  # fmt: skip

    def finish(self, exchange: Exchange, role: WarpRole) -> None:
        """Store O / l to memory, this warpgroup's columns, and LSE by the left one: O in bf16, by
        way of SMEM where that is free, so that a warp writes a row at a time, or a part in fp32. In
        a persistent block the second part of a row block may merge the first."""
        index = self.roles.index(role)
        staged = self.staged[index] if self.staged else None
        self._record(
            "finish", None, exchange=exchange, left=index == 0, role=role, staged=staged,
            of=exchange.name,
            box_bytes=self.queries[0].bytes, first_column=index * self.k.d_v // 2,
            part_row=self.k.d_v // 2 * FLOAT + BANKS_APART if staged and not self.feeder else 0,
            block_rows=ROWS,
            together=PART_PAIRS, arrivals_last=self.form.arrivals - 1, most_asks=MOST_ASKS,
            uses=(Value(exchange.name), Value("O")),
            defines=(Value(staged.name),) if staged else (), joins=staged is not None,
        )  # fmt: skip

    def sync_sums(self, role: WarpRole) -> None:
        """Where a block has several items, the right warpgroup arrives when it has read the left
        one's sums, and the left one waits before the next item overwrites them."""
        if self.read and role is self.roles[0]:
            self._record("wait_sums", None, template="empty", uses=(Value(self.read.name),))
        elif self.read:
            self._record("arrive_sums", None, template="empty", defines=(Value(self.read.name),))

    # ---- templates --------------------------------------------------------------------------

    def _columns_of(self, half: tuple[Pipeline, ...]) -> str:
        """How operations and the plain order name some columns of the cache."""
        known = {id(self.left): "left columns", id(self.right): "right columns"}
        return known.get(id(half), _names(half))

    @property
    def _apart(self) -> int:
        """Bytes between neighbouring columns of tiles."""
        return self.keys[1].base - self.keys[0].base

    def _mover(self, pipeline: Pipeline) -> Any:
        role = next((role for role in self.roles if role.name == pipeline.producer), self.feeder)
        template = "gather" if self.paged.producer_threads else "copy"
        if role is self.feeder:
            template = "fetch_rows" if self.knobs.gathered else "convert"
        # The e4m3 numbers of some columns have the first of their tiles.
        named = (p for p in (*self.left, *self.right) if p.name == pipeline.within)
        columns = next(named, pipeline).tiles
        boxes = [
            (tile, COLUMNS * self.keys.index(column))
            for tile, column in zip(pipeline.tiles, columns, strict=False)
        ]

        def mover(kind: str, tile: Tile) -> Operation:
            if kind == "release":
                return Operation(
                    "release", "pipeline/release.ptx.j2", tile, lambda at: {"pipeline": pipeline},
                    access=Access("release", RingTile(pipeline.name, tile)),
                )  # fmt: skip
            return self._operation(
                "copy", tile, access=Access("copy", RingTile(pipeline.name, tile)),
                template=template, pipeline=pipeline, role=role, boxes=boxes,
                index=tile.offset % SLOTS,
                ahead="" if template == "convert" else "fetches",
                uses=(Value("raw"),) if template == "convert" else (),
                places=self.supply["pages"][tile.offset % SLOTS],
                later=self.supply["ahead"][tile.offset % SLOTS],
            )  # fmt: skip

        return mover

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(self._operation(name, tile, **more))

    def _operation(
        self, name: str, tile: Tile | None, *, template: str = "",
        role: WarpRole | None = None, **more: Any,
    ) -> Operation:  # fmt: skip
        """`more`: fields of `Operation`; the rest are operands of the template."""
        own = {field: more.pop(field) for field in OPERATION_FIELDS & more.keys()}
        supply = {**self.supply, **more, **({"role": role} if role else {})}
        return Operation(
            name, self.form.templates.get(template or name, f"latent/{template or name}.ptx.j2"),
            tile, lambda at: supply,
            roles=(role.name,) if role else (), **own,
        )  # fmt: skip


def _check_roles(left: WarpRole, right: WarpRole, feeder: WarpRole | None) -> None:
    """ScheduleError for roles with other warps than operations are written for."""
    for role, groups in ((left, (1,)), (right, (1,)), (feeder, (1, 2))):
        if role is not None and (role.single or len(role.warps) not in [4 * n for n in groups]):
            raise ScheduleError(
                f"role {role.name!r} has {role.threads} threads, of {len(role.warps)} warps",
                hint="each half of the output has one warpgroup; one or two convert e4m3 to bf16",
            )


def _names(pipelines: Iterable[Pipeline]) -> str:
    return ", ".join(pipeline.name for pipeline in pipelines)
