"""Dense MLA decode of few query rows on Hopper, keys as rows: the operations a schedule arranges.

The products and the softmax are those of `keys_as_rows`: S^T = K Q^T and O^T += V^T P^T, for up to
32 query rows of a work item. The keys come from pages, a tile of 64 at a time, into a ring of
tiles that a producer fills: one thread by TMA, or a warpgroup by cp.async where a page is one row.
The math warpgroup gives a tile's columns back when its products are done with them. Tiles of e4m3
arrive in one place more, and a third role converts them to bf16.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.problem import LatentProblem, item_rows
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.keys_as_rows import MOST_ROWS, KeysAsRows
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy
from mlagen.attention.latent.sm_90a.parts import parts_over
from mlagen.attention.latent.sm_90a.registers import SEEN_FROM
from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    RingTile,
    Tile,
    Value,
    by,
    copy,
)
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import (
    Pipeline,
    PipelineSpace,
    TmaTile,
    WarpRole,
    release,
    tiles_of,
)

FEEDER = 128  # threads that convert e4m3
WORDS = TILE * 128 // 4 // FEEDER  # registers of a thread for 128 columns
SETS = 2  # of them, in turn
BOX = 128  # columns of e4m3 in a row of a tile
# A register of roles that read V^T across the rows of K.
VALUES_AT = ("values_at", ".b32", "row of K and 16 columns that this lane reads of 32 keys")


def rows_in_eights(k: LatentProblem) -> int:
    """Query rows that products have for a work item."""
    return -(-item_rows(k) // 8) * 8


def is_few(k: LatentProblem) -> bool:
    """Whether keys as rows can serve a problem: its rows of Q are few."""
    return item_rows(k) <= MOST_ROWS


def converts_queries(k: LatentProblem) -> bool:
    """Whether Q is converted, to bf16 or f16, on its way to SMEM."""
    return k.dtype != "bf16" and k.compute != "fp8"


class FewRows(KeysAsRows):
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, K0 .. of the
    cache, one for each 64 columns) and registers (o, s). `boxes` tiles of 64 columns share a
    barrier. `ahead`: which tile after the one that is fetched is prefetched to L2; 0: none is."""

    columns = COLUMNS  # of a tile in SMEM
    row_factors = ""  # what query rows have a factor of their own for
    apart = 0  # tiles of Q that are f16, in the order in which keys in registers have columns

    def __init__(
        self,
        k: LatentProblem,
        s: PipelineSpace,
        producer: WarpRole,
        math: WarpRole,
        feeder: WarpRole | None,
        boxes: int,
        ahead: int,
        form: Form,
    ) -> None:
        self.producer, self.boxes, self.paged = producer, boxes, PagedCopy.of(k)
        self.feeder = feeder
        if feeder and (feeder.threads != FEEDER or boxes != 2):
            raise ScheduleError(
                f"role {feeder.name!r} has {feeder.threads} threads, boxes={boxes}",
                hint="a warpgroup makes two tiles of bf16 of 128 columns of e4m3: boxes=2",
            )
        self.ahead, self.looked_up = ahead, max(ahead, 1) + 1
        # Whether rows of a block see different keys: those of several tokens.
        self.slanted = k.causal and k.q_len > 1
        if producer.threads != (self.paged.producer_threads or 1):
            raise ScheduleError(
                f"role {producer.name!r} has {producer.threads} threads",
                hint="one thread fetches pages by TMA, a warpgroup fetches single rows",
            )
        super().__init__(k, s, math, form)
        self.supply |= {
            "paged": self.paged,
            "slanted": self.slanted,
            "persistent": False,
            "evict": "normal",
            "item_bytes": form.item_bytes,
            "row_major_bits": self.supply["row_bits"],
            "column_major_bits": self.supply["column_bits"],
            "feeder": feeder,
            "count_from": TILE,  # `softmax` counts down before it compares
            "parts": self.parts,
            "box_columns": self.columns,
            "scaled": k.cache_dtype == "fp8_e4m3",
            "neighbours": False,
        }

    @property
    def reads(self) -> bool:
        """Whether the first user of Q loads it, and not the producer by TMA."""
        return converts_queries(self.k)

    @property
    def columns_of_keys(self) -> list[TmaTile]:
        """Tiles of the cache, by columns."""
        return [tiles[0] for tiles in self.keys]

    def _moved(self) -> tuple[Pipeline, ...]:
        return (*self.fetched_by, *(self.cache if self.feeder else ()))

    def _query_rows(self) -> int:
        return rows_in_eights(self.k)

    def _tiles(self, s: PipelineSpace) -> None:
        fetches, users = self.producer, self._users()
        keys = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"]
        tiles, keys = keys, keys[: -(-self.k.d_qk // self.columns)]
        raw = -(-self.k.d_qk // BOX) if self.feeder else 0
        tiles_of("keys", tiles, -(-self.k.d_qk // self.columns) + raw, rows=TILE)
        if {tile.rows for tile in keys} != {TILE}:
            raise ScheduleError(f"tiles of {keys[0].rows} keys", hint=f"tiles of {TILE} keys")
        self.keys, self.groups, self.slots = [[tile] for tile in keys], 1, keys[0].slots
        self.parts = parts_over(s, keys, self._query_rows(), self.k.d_v, self.math)
        self.query = s.smem.pipeline(
            "query", *self.queries, producer=(users[0] if self.reads else fetches).name,
            consumer=users[0].name, resident=True,
            producer_threads=users[0].threads if self.reads else 0,
        )  # fmt: skip
        parts = [keys[first : first + self.boxes] for first in range(0, len(keys), self.boxes)]
        if self.feeder:
            self._converted(s, parts)
            return
        self.cache = self.fetched_by = tuple(
            s.smem.pipeline(
                f"keys {n}", *tiles, producer=fetches.name, consumer=tuple(x.name for x in users),
                releases=sum(len(user.warps) for user in users),
                producer_threads=self.paged.producer_threads,
            )
            for n, tiles in enumerate(parts)
        )  # fmt: skip

    def _users(self) -> tuple[WarpRole, ...]:
        """Roles that use keys, the one that uses Q first."""
        return (self.math,)

    def _converted(self, s: PipelineSpace, parts: list[list[TmaTile]]) -> None:
        """Pipelines of e4m3 numbers, and of the tiles that become of them."""
        feeder = self.feeder
        assert feeder
        self.cache = tuple(
            s.smem.pipeline(
                f"keys {n}", *tiles, producer=feeder.name, consumer=self.math.name,
                releases=len(self.math.warps), producer_threads=feeder.threads, by_warps=True,
            )
            for n, tiles in enumerate(parts)
        )  # fmt: skip
        stored = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"][
            len(self.keys) :
        ]
        self.fetched_by = tuple(
            s.smem.pipeline(
                f"raw {n}", tile, producer=self.producer.name, consumer=feeder.name,
                releases=len(feeder.warps), producer_threads=self.paged.producer_threads,
            )
            for n, tile in enumerate(stored)
        )  # fmt: skip

    def _more_registers(self) -> list[tuple[str, str, int, str]]:
        unseen = ("unseen", ".b32", self.rows // 4, "keys at the end that query rows do not see")
        count = self.looked_up
        return [
            ("page", ".b32", count * self.paged.lookups, f"pages of the next {count} tiles"),
            ("ahead", ".b32", count, "tile to look up next, and before the loop those after it"),
            *([unseen] if self.slanted else []),
            *([("raw", ".b32", SETS * WORDS, "e4m3 numbers")] if self.feeder else []),
        ]

    def _key_registers(self) -> list[tuple[str, str, str]]:
        paged = self.paged
        found = [
            ("query_row", ".b32", "first query row of this block"),
            ("item_rows", ".b32", "its query rows"),
            ("above", ".b32", "rows of its sequence before them"),
            ("slot_of", ".b32", "where it leaves a part of its sequence, or -1"),
            ("valid", ".b32", "keys left from the next tile on"),
            ("table", ".b64", "this sequence's row of the block table"),
            ("entries", ".b32", "entries of that row which the sequence uses"),
            ("cache", ".b64", "the cache, this KV head's columns of a thread"
             if paged.producer_threads else "tensor map of the cache"),
            *([] if self.reads else [("map_q", ".b64", "tensor map of q")]),
            ("later", ".b32", "two more than the next tile to fetch"),
            ("end_tile", ".b32", "the tile after this block's last"),
        ]  # fmt: skip
        if paged.producer_threads or self.k.rope_aware:
            found.append(("keys", ".b32", "keys of the sequence"))
        if self.k.window and self.k.rope_aware:
            found.append(SEEN_FROM)
        if self.k.num_kv_heads > 1 and not paged.producer_threads:
            found.append(("kv_column", ".b32", "first column of this block's KV head"))
        if self.slanted:
            found.append(("slack", ".b32", "keys that this block's first row does not see"))
        return found

    def _registers(self, s: PipelineSpace) -> dict[str, Any]:
        found = super()._registers(s)
        each, pages = self.paged.lookups, s.names("page")
        found["pages"] = [pages[n : n + each] for n in range(0, len(pages), each)]
        if self.row_factors:
            found["of_scores"] = s.named("of_scores", ".f32", self.rows // 4, self.row_factors)
        return found

    def _plain(self) -> PipelineOrder:
        fetches, math = self.producer.name, self.math.name
        names = [pipeline.name for pipeline in self.cache]
        valued = [self.cache[n].name for n in range(len(self.cache)) if self._values(n)]
        arriving = [pipeline.name for pipeline in self.fetched_by]
        feeds = [
            part for raw, name in zip(arriving, names, strict=True) if self.feeder
            for part in by(self.feeder.name, f"read_e4m3 {raw}", f"copy {name}", f"release {raw}")
        ]  # fmt: skip
        return PipelineOrder(
            before=(*by(fetches, "setup"), *(by(self.feeder.name, "setup") if self.feeder else ()),
                    *by(math, "setup", "clear")),
            tiles=(
                *by(fetches, *self._by_map, *(f"copy {name}" for name in arriving), "look_up"),
                *feeds,
                *by(math, *self._by_loads, *(f"qk {name}" for name in names), "softmax",
                    *(("zero_tail",) if self._zeroes_tail else ()), "rescale",
                    *(f"pv {name}" for name in valued), *(f"release {name}" for name in names)),
            ),
            after=by(math, "store_sum", "finish"),
            hints=frozenset({"prefetch"}),
        )  # fmt: skip

    # ---- the producer -----------------------------------------------------------------------

    def find(self, role: WarpRole) -> None:
        """Find this block's work item and its number of tiles; in the producer also where the first
        two of them lie."""
        self._record("setup", None, role=role, fetches=role is self.producer,
                     scores=role is self.math)  # fmt: skip

    def load_queries(self, tile: Tile, *, when: bool = True) -> None:
        """Load the item's rows of Q, once, with the first tile, where they stay what they are. Rows
        past its own are of other queries, or zero. `when`: or elsewhere."""
        if self.reads or not when:
            return
        self._record("load_queries", tile, role=self.producer, domain="first",
                     defines=(Value(self.query.name),))  # fmt: skip

    def read_queries(self, tile: Tile) -> None:
        """Load them in the role that uses them, and make bf16 of them, where they are e4m3."""
        if self.reads:
            self._record(
                "read_queries", tile, role=self._users()[0], domain="first", apart=self.apart,
                lanes=self.math.threads >> (self.rows - 1).bit_length(),
                defines=(Value(self.query.name),),
            )  # fmt: skip

    @property
    def _by_map(self) -> tuple[str, ...]:
        """What the producer does for Q, and what its first user does."""
        return () if self.reads else ("load_queries",)

    @property
    def _by_loads(self) -> tuple[str, ...]:
        return ("read_queries",) if self.reads else ()

    def fetch_tile(self, tile: Tile) -> None:
        """Fetch the tile's columns."""
        for pipeline in self.fetched_by:
            copy(pipeline, tile)

    def look_up(self, tile: Tile) -> None:
        """Look up where the tile lies that is next to be looked up."""
        self._record("look_up", tile, role=self.producer)

    def prefetch(self, tile: Tile) -> None:
        """Prefetch a tile after `tile` to L2, where a knob asks for it."""
        if self.ahead:
            columns = range(0, self.k.d_qk, COLUMNS)
            self._record("prefetch", tile, role=self.producer, columns=columns, distance=self.ahead,
                         places=self.supply["pages"][self.ahead])  # fmt: skip

    def convert(self, tile: Tile) -> None:
        """Convert the tile's e4m3 numbers to bf16, 128 columns at a time: read them to registers,
        write them, and give their place back when registers are known to hold them."""
        for n, (raw, columns) in enumerate(zip(self.fetched_by, self.cache, strict=True)):
            self._record(
                "read_e4m3", tile, tile_=raw.tiles[0], of=raw.name, role=self.feeder,
                narrow=len(columns.tiles) == 1, words=self._words(n),
                uses=(Value(raw.name, tile),), defines=(Value(self._numbers(n)),),
            )  # fmt: skip
            copy(columns, tile)
            release(raw, tile)

    def _numbers(self, group: int) -> str:
        """What the e4m3 numbers of the columns of a barrier are called."""
        return f"numbers {group % SETS}"

    def _words(self, group: int) -> list[str]:
        """The registers that they are in."""
        first = WORDS * (group % SETS)
        held: list[str] = self.supply["raw"][first : first + WORDS]
        return held

    # ---- a tile -----------------------------------------------------------------------------

    def qk(self, tile: Tile) -> None:
        """S^T = K Q^T, a group for the columns of each barrier."""
        for n, pipeline in enumerate(self.cache):
            self._record(
                "qk", tile, of=pipeline.name, columns=self._columns(n), asynchronous=True,
                uses=(Value(pipeline.name, tile), Value(self.query.name)), defines=(Value("S"),),
            )  # fmt: skip

    def zero_tail(self, tile: Tile) -> None:
        """Set rows past the sequence's end to 0 in SMEM: P is 0 there, but 0 * NaN is not."""
        if not self._zeroes_tail:
            return
        held = tuple(Value(self.cache[n].name, tile) for n in self._valued)
        self._record("zero_tail", tile, uses=held, defines=held, joins=True, guarded=True)

    def pv_all(self, tile: Tile) -> None:
        """O^T += V^T P^T, a group for the columns of each barrier."""
        for n in self._valued:
            name = self.cache[n].name
            self._record(
                "pv", tile, of=name, group=0, parts=self._values(n), asynchronous=True,
                uses=(Value(self.p.name, tile), Value(name, tile)), defines=(Value("O"),),
            )  # fmt: skip

    def give_back(self, tile: Tile, *, when: bool = True) -> None:
        """Give the tile's columns back to who filled them. `when`: or elsewhere."""
        if not when:
            return
        for pipeline in self.cache:
            release(pipeline, tile)

    @property
    def _zeroes_tail(self) -> bool:
        """Whether rows past a sequence's end must become 0. Those that are fetched one by one are
        0 already, unless a window hides them, and e4m3 is finite here."""
        return not self.feeder and bool(self.k.window or not self.paged.producer_threads)

    # ---- columns ----------------------------------------------------------------------------

    def _columns(self, n: int) -> list[int]:
        """Columns, a tile's after another, of the pipeline `n`."""
        return list(range(len(self.keys)))[n * self.boxes : (n + 1) * self.boxes]

    def _values(self, n: int) -> list[int]:
        """Those of them that are values."""
        return [part for part in self._columns(n) if part * self.columns < self.k.d_v]

    @property
    def _valued(self) -> list[int]:
        """Pipelines that have values."""
        return [n for n in range(len(self.cache)) if self._values(n)]

    def _mover(self, pipeline: Pipeline) -> Any:
        converted = self.feeder is not None and pipeline in self.cache
        n = (self.cache if pipeline in self.cache else self.fetched_by).index(pipeline)
        boxes = [
            (tile, self.columns * column)
            for tile, column in zip(pipeline.tiles, self._columns(n), strict=False)
        ]
        template = "gather" if self.paged.producer_threads else "copy"

        def mover(kind: str, tile: Tile) -> Operation:
            access = Access(kind, RingTile(pipeline.name, tile))  # type: ignore[arg-type]
            if kind == "release":
                return Operation("release", "pipeline/release.ptx.j2", tile,
                                 lambda at: {"pipeline": pipeline}, access=access)  # fmt: skip
            return self._operation(
                "copy", tile, access=access, pipeline=pipeline, boxes=boxes,
                role=self.feeder if converted else self.producer,
                template="convert" if converted else template,
                uses=(Value(self._numbers(n)),) if converted else (),
                words=self._words(n) if converted else (),
                places=self.supply["pages"][0],
            )  # fmt: skip

        return mover
