"""MLA of few query rows on Hopper, keys as rows: the operations a schedule arranges.

One warpgroup has up to 32 query rows (heads) of one query and all of its keys, 64 a tile. It
computes S^T = K Q^T, with 64 keys as the rows of the matrix instruction, and O^T += V^T P^T, with
64 columns of V as its rows: 8, 16, 24 or 32 query rows do not pay for 64. K and V are the same
bytes in SMEM, where a query's list of rows is gathered by the warpgroup itself, 16 keys after each
step of the last product that is done with theirs. Two blocks an SM hide each other's latency.
Rows of e4m3 are loaded to registers a tile ahead, and stored as bf16 in the place of keys that are
done with.

Softmax in base 2: P = exp2(c S - c M), c = scale * log2(e); a tile's maximum is exchanged by the
warps, each of which has 16 keys. P is rounded to bf16 for the product; a thread adds up the
unrounded P of its own keys, and all sums are added up at the end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.parts import Parts, parts_over
from mlagen.attention.latent.sm_90a.registers import FLOAT, own_registers
from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    RingTile,
    Tile,
    Value,
    at_least,
    bind,
    by,
    copy,
    exactly,
    record,
    touched,
)
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, WarpRole, tiles_of

WARPS = 4  # of the role, which exchange maxima
STEP = 16  # keys of a matrix instruction
MOST_ROWS = 32  # of Q: their accumulators fill a thread's registers
# wgmma descriptors: 128-byte swizzle, 8 rows are 1024 bytes (PTX ISA, matrix descriptor).
COLUMN_MAJOR = 1 << 62 | 1024 >> 4 << 32
ROW_MAJOR = COLUMN_MAJOR | 1 << 16
OPERATION_FIELDS = {field.name for field in dataclasses.fields(Operation)}


def query_rows(k: LatentProblem, stored: RowForm | None) -> int:
    """Rows of Q that a block multiplies: heads, in eights. `stored`: the form of rows of e4m3."""
    rows = -(-k.num_heads // 8) * 8
    # ptxas 13.0 spills with 24, where scales lie in the rows, and does not with 32.
    return 32 if rows == 24 and stored and stored.scales_at is not None else rows


class KeysAsRows:
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, and of the
    cache K0 .., for each 64 columns one for each 16 or 32 keys) and registers (o, s, and raw for
    rows of e4m3, of the form `stored`)."""

    held = False  # whether scores take keys from registers
    scaled_sums = False  # whether scales of columns multiply sums
    grained = False  # or numbers, which are multiples of a key's grain
    whole_rows = False  # whether rows are fetched whole
    loads_too = False  # or loaded, as the kernel's argument says
    parts: Parts | None = None  # that blocks put together
    slots = 1  # tiles of keys in SMEM
    query_columns = COLUMNS  # of a tile of Q
    p_bytes = 2 * TILE  # of a query row of P

    def __init__(
        self,
        k: LatentProblem,
        s: PipelineSpace,
        math: WarpRole,
        form: Form,
        stored: RowForm | None = None,
    ) -> None:
        if math.threads != 128:
            raise ScheduleError(
                f"role {math.name!r} has {math.threads} threads",
                hint="one warpgroup has all rows of a query, and gathers their keys",
            )
        self.k, self.math, self.form = k, math, form
        self.stored = stored
        self.rows = self._query_rows()
        self.queries = [tile for tile in s.smem.tiles.values() if tile.tensor == "q"]
        boxes = -(-k.d_qk // self.query_columns)
        tiles_of("Q", self.queries, boxes, rows=self.rows, slots=1)
        self._tiles(s)
        if form.operands.get("together"):
            tiles = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"]
            self.parts = parts_over(s, tiles, self.rows, k.d_v, math)
        self.p, self.warps = (
            touched(s.smem.scratches[name], at_least("bytes", size, what))
            for name, size, what in (
                ("P", self.p_bytes * self.rows, "P of all query rows"),
                ("of warps", WARPS * FLOAT * self.rows, "maxima, then sums, of each warp"),
            )
        )
        self.supply: dict[str, Any] = {
            "k": k, "rows": self.rows, "tile_rows": TILE, "float_bytes": FLOAT, "role": math,
            "steps": TILE // STEP // self.groups, "stored": stored,
            "key_scales": stored is not None and stored.scales == "key",
            "value_parts": k.d_v // COLUMNS, "queries": self.queries, "tiles_": self.keys,
            "query": self.query, "p": self.p, "warps": self.warps, "held": self.held, "seen": (),
            "row_bits": hex(ROW_MAJOR), "column_bits": hex(COLUMN_MAJOR), "slots": self.slots,
            "parts": self.parts, "item_rows": k.num_heads, "looks_ahead": self.looks_ahead,
            "scaled_sums": self.scaled_sums, "loads_too": self.loads_too,
            "whole_rows": self.whole_rows, "values_of": "bf16",
            "parts_a_weight": k.d_v // COLUMNS, "grained": self.grained, "factors": None,
            "o": s.names("o", exactly("registers", k.d_v // COLUMNS * self.rows // 2, "O^T")),
            "s": s.names("s", exactly("registers", self.rows // 2, "S^T of a tile")),
            **self._registers(s),
            **own_registers(s, form),
            **form.operands,
        }  # fmt: skip
        s.signature, s.symbol = form.signature, form.symbol
        s.plain = self._plain()
        for pipeline in self._moved():
            bind(pipeline, self._mover(pipeline))

    def _moved(self) -> tuple[Pipeline, ...]:
        """Pipelines that are filled by `copy`."""
        return self.cache

    def _query_rows(self) -> int:
        return query_rows(self.k, self.stored)

    def _tiles(self, s: PipelineSpace) -> None:
        """Pipelines over the schedule's tiles."""
        name = self.math.name
        keys = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"]
        self.groups = TILE // keys[0].rows
        fits = {32} if self.stored else {16, 32}
        if keys[0].rows not in fits or len({tile.rows for tile in keys}) > 1:
            raise ScheduleError(
                f"tiles of {keys[0].rows} keys",
                hint="16 or 32 keys that are fetched by cp.async, 32 that are converted",
            )
        boxes = self.k.d_qk // COLUMNS
        tiles_of("keys", keys, boxes * self.groups, rows=keys[0].rows, slots=1)
        # by columns, then by keys
        self.keys = [keys[n : n + self.groups] for n in range(0, len(keys), self.groups)]
        self.query = s.smem.pipeline(
            "query",
            *self.queries,
            producer=name,
            consumer=name,
            resident=True,
            producer_threads=0 if self.reads_queries == "load_queries" else self.math.threads,
        )
        self.cache = tuple(
            s.smem.pipeline(
                f"keys {group}", *(column[group] for column in self.keys), producer=name,
                consumer=name, producer_threads=self.math.threads,
                by_warps=self.stored is not None,
            )
            for group in range(self.groups)
        )  # fmt: skip

    def _registers(self, s: PipelineSpace) -> dict[str, Any]:
        """Declares the registers besides the schedule's own: names by what they are."""
        each = self.rows // 4  # query rows that a thread has numbers of
        found: dict[str, Any] = {}
        for name, type, count, why in (
            ("alpha", ".f32", each, "what the tile's maximum does to O and l"),
            ("cm", ".f32", each, "c times the running maximum of this thread's query rows"),
            ("l", ".f32", each, "row sums of this thread's keys"),
            *self._more_registers(),
        ):
            found[name] = s.named(name, type, count, why)
        for name, type, why in (
            ("c", ".f32", "scale * log2(e)"),
            *self._key_registers(),
            ("row_major", ".b64", "descriptor of SMEM read along its rows (K-major)"),
            ("column_major", ".b64", "descriptor of SMEM read across its rows (MN-major)"),
            ("own_key", ".b32", "this thread's first key of a tile"),
            ("own_row", ".b32", "its first query row"),
        ):
            found[name] = s.named(name, type, 1, why)[0]
        found["of_scores"] = [found["c"]] * each
        if self.stored:
            found["raw"] = s.names("raw", exactly("registers", self._raw_sizes, "numbers of rows"))
        return found

    def _more_registers(self) -> list[tuple[str, str, int, str]]:
        """Those that a thread has several of."""
        apart = self.form.operands.get("causal") and not self.held  # else one thread has both
        later = [
            ("next_key", ".b32", 2, "the same of the tile after it"),
            ("next_place", ".b32", self.fetched, "rows of that tile that this thread fetches"),
        ]
        return [
            ("place", ".b32", self.fetched, "rows of the next tile that this thread fetches"),
            *([("place_where", ".b32", self.fetched, "positions of these rows")] if apart else []),
            ("key", ".b32", 2, "rows that this thread's two keys of the next tile are"),
            *self._scale_registers(),
            *(later if self.looks_ahead else []),
        ]

    @property
    def looks_ahead(self) -> bool:
        """Whether lists are loaded a tile before they are used: where rows of e4m3 are loaded to
        registers, whoever waits for a list that was just asked for waits for rows, too. Scales of
        rows, positions and second lists leave no registers for it."""
        if not self.stored or self.held or self.stored.scales == "key":
            return False
        asked = self.form.operands
        return bool(asked.get("decode") and not (asked.get("causal") or asked.get("extra")))

    def _key_registers(self) -> list[tuple[str, str, str]]:
        """Those that say where keys are."""
        return [
            ("table", ".b64", "this query's list"),
            ("keys", ".b32", "keys of the list"),
            ("ahead", ".b32", "tile to look up next"),
        ]

    @property
    def fetched(self) -> int:
        """Rows of a tile that a thread fetches."""
        return self.groups

    def _plain(self) -> PipelineOrder:
        """The order that the schedule rearranges: one tile after another."""
        name, fetched = self.math.name, []
        for pipeline in self.cache:
            fetched += [f"fetch {pipeline.name}"] if self.stored else []
            fetched += [f"measure {pipeline.name}"] if self.grained else []
            fetched.append(f"copy {pipeline.name}")
        return PipelineOrder(
            before=by(name, "setup", "clear"),
            tiles=by(
                name, "load_queries", *fetched, "look_up", "qk", "softmax", "rescale",
                *(f"pv {pipeline.name}" for pipeline in self.cache),
            ),
            after=by(name, "store_sum", "finish"),
        )  # fmt: skip

    def _scale_registers(self) -> list[tuple[str, str, int, str]]:
        stored = self.stored
        if stored is None or stored.scales == "none":
            return []
        if stored.scales == "key":
            return [("sigma", ".f32", 2, "scales of this thread's two keys")]
        count = self.fetched * stored.held_scales
        return [("scale", ".f32", count, "scales of the rows that this thread fetches")]

    # ---- before the loop --------------------------------------------------------------------

    def setup(self) -> None:
        """Find this block's item, its list, and what the first tile's rows are."""
        self._record("setup", None)

    def load_queries(self, tile: Tile, *, when: bool = True) -> None:
        """Load the item's rows of Q, once, with the first tile, and convert e4m3 to bf16. Rows past
        its own are of other queries, or zero. `when`: or elsewhere."""
        if not when:
            return
        self._record(
            "load_queries", tile, domain="first", template=self.reads_queries,
            defines=(Value(self.query.name),), **self._of_queries(),
        )  # fmt: skip

    def _of_queries(self) -> dict[str, Any]:
        """What that template takes besides."""
        return {}

    @property
    def reads_queries(self) -> str:
        """The template that does."""
        return "load_queries" if self.k.dtype == "bf16" else "read_queries"

    def clear(self) -> None:
        """Set O = 0, l = 0, M to the lowest finite number."""
        self._record("clear", None, defines=(Value("O"), Value("l")))

    # ---- a tile -----------------------------------------------------------------------------

    def qk(self, tile: Tile) -> None:
        """S^T = K Q^T."""
        self._record(
            "qk", tile, uses=(*(Value(p.name, tile) for p in self.cache), Value(self.query.name)),
            defines=(Value("S"),), asynchronous=True, columns=range(len(self.queries)),
        )  # fmt: skip

    def softmax(self, tile: Tile) -> None:
        """Mask S; M and alpha; P in place of S, as bf16 to SMEM; sums."""
        self._record("softmax", tile, joins=True,
                     uses=(Value("S"), Value("l"), *self._measured(tile)),
                     defines=(Value(self.p.name, tile), Value("alpha"), Value("l")))  # fmt: skip

    def rescale(self, tile: Tile) -> None:
        """O *= alpha."""
        self._record("rescale", tile, uses=(Value("alpha"), Value("O")), defines=(Value("O"),))

    def pv(self, tile: Tile, group: int) -> None:
        """O^T += V^T P^T over the keys of a pipeline."""
        pipeline = self.cache[group]
        self._record(
            "pv", tile, of=pipeline.name, group=group, asynchronous=True,
            parts=range(self.k.d_v // COLUMNS),
            uses=(Value(self.p.name, tile), Value(pipeline.name, tile)), defines=(Value("O"),),
        )  # fmt: skip

    def refill(self, tile: Tile, group: int) -> None:
        """Fetch keys of `tile`, or store those that were loaded, as bf16."""
        copy(self.cache[group], tile)

    def measure(self, tile: Tile, group: int) -> None:
        """Find what numbers of rows of `tile` are multiples of, where that is not 1."""

    def _measured(self, tile: Tile) -> tuple[Value, ...]:
        """What that leaves for the softmax."""
        return ()

    def fetch(self, tile: Tile, group: int, *, when: bool = True) -> None:
        """Load the numbers of e4m3 rows of `tile` to registers. `when`: or elsewhere."""
        if not when:
            return
        assert self.stored
        name = self.cache[group].name
        self._record("fetch", tile, of=name, group=group, words=self._words(group),
                     defines=(Value(f"raw {group % self.raw_sets}"),))  # fmt: skip

    @property
    def _raw_sizes(self) -> list[int]:
        """Registers for numbers of e4m3 that operations can use: of as many groups as there are, or
        of fewer in turn."""
        assert self.stored
        return [n * self.stored.words for n in range(1, self.groups + 1)]

    @property
    def raw_sets(self) -> int:
        assert self.stored
        return len(self.supply["raw"]) // self.stored.words

    def _words(self, group: int) -> list[str]:
        assert self.stored
        first = group % self.raw_sets * self.stored.words
        return list(self.supply["raw"][first : first + self.stored.words])

    def look_up(self, tile: Tile) -> None:
        """Load which rows the tile after `tile` has."""
        self._record("look_up", tile)

    # ---- after the loop ---------------------------------------------------------------------

    def store_sum(self) -> None:
        """Add up the row sums of all threads."""
        self._record("store_sum", None, joins=True, uses=(Value("l"),),
                     defines=(Value(self.warps.name), Value("l")))  # fmt: skip

    def finish(self) -> None:
        """Store O / l, LSE and maxima; of a part to a slot, which blocks may put together."""
        more: dict[str, Any] = {}
        if self.parts:
            rooms = tuple(Value(room.name) for room in self.parts.rooms.values())
            more = {"joins": True, "defines": rooms}
        self._record("finish", None, uses=(Value("O"), Value("l")), **more)

    # ---- templates --------------------------------------------------------------------------

    def _mover(self, pipeline: Pipeline) -> Any:
        group = self.cache.index(pipeline)
        boxes = [(column[group], COLUMNS * n) for n, column in enumerate(self.keys)]

        def mover(kind: str, tile: Tile) -> Operation:
            more: dict[str, Any] = {"template": "gather"}
            if self.stored:
                raw = Value(f"raw {group % self.raw_sets}")
                more = {"template": "convert", "uses": (raw,), "words": self._words(group)}
            return self._operation(
                "copy", tile, access=Access("copy", RingTile(pipeline.name, tile)),
                pipeline=pipeline, boxes=boxes, group=group, **more,
            )  # fmt: skip

        return mover

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(self._operation(name, tile, **more))

    def _operation(
        self, name: str, tile: Tile | None, *, template: str = "", **more: Any
    ) -> Operation:
        """`more`: fields of `Operation`; the rest are operands of the template."""
        own = {field: more.pop(field) for field in OPERATION_FIELDS & more.keys()}
        supply, file = {**self.supply, **more}, template or name
        path = self.form.templates.get(file, f"keys_as_rows/{file}.ptx.j2")
        return Operation(name, path, tile, lambda at: supply, **own)
