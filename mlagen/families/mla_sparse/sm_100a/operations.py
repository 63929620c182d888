"""Top-k sparse MLA prefill on Blackwell: the operations that the schedule arranges.

A block has up to 64 heads of a query, and all keys of its list, 64 a tile. S = Q K^T over all
columns of a row, O += P V over the first 512 of the same rows. Products are `tcgen05.mma.ws` of 64
rows, or of 128 rows of a CTA pair, 64 in each. Sums of either are folded: a row's first half of
columns lies in one of lanes 0 to 63, the other half in the lane 64 further. So two threads share a
head: each has half of a tile's keys, and half of each 256 columns of O. The last columns of Q are
copied to tensor memory once, to both halves of the lanes, where products find them as operand A.

Of a pair, either block has half of a tile's keys as K, and of all of them half of each 256 columns
as V: its halves of the operand B of the pair's products. Rows arrive by cp.async, which completes
barriers of the own block alone: so the feeder waits for the rows that it fetched a tile before, and
then tells the leader.

Softmax in base 2: P = exp2(c S - M), c = scale * log2(e). M is a whole number, and moves where a
score is more than 8 above it: then O, which lies in TMEM, is multiplied by a power of two, which is
exact, so that it does not matter when (`latent.order`). The two threads of a head exchange their
maxima. P is rounded to bf16 for the product; row sums add what it was before, and are added up at
the end. M starts at the lowest finite number: a tile without keys leaves M, and its P is 0. A query
without keys has one such tile.

With compute=fp8 all four operands are e4m3, 32 numbers a step. M is then 6 lower than it would be,
and P so much larger, so that small ones are normal numbers of e4m3; it moves where a score is more
than 8 above it, so that P is at most 256. Where rows have scales these multiply S, and P before it
is rounded; M follows scores that are lifted by the power of two above their row's scale.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.order import LEAST_POWER, OF_E4M3, SELDOM_MOVED
from mlagen.dsl import Access, Operation, PipelineOrder, RingTile, Tile, Value, bind, by, record
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.dsl.plain import Part
from mlagen.errors import ScheduleError
from mlagen.families.mla_sparse.nvidia.signature import signature
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.problem.fields import listed
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, TmemRegion, WarpRole
from mlagen.targets.sm_100a.dsl import Product, matrix_descriptor

# Tools find FlashMLA's kernel in a profile by a part of this name.
SYMBOL = "mlagen_sparse_attn_fwd_kernel_sm100"
LANES_A_ROW = 8  # threads that fetch 128 bytes of a row, 16 each
FLOAT = 4  # bytes of a scale
VALUES = 256  # columns of them that a product has
BOX = 32  # columns of TMEM that a tile of Q takes, four bytes a column
SWIZZLED = 1024  # bytes of 8 rows in the 128-byte swizzle
OPERATION_FIELDS = {field.name for field in dataclasses.fields(Operation)}


class SparsePrefill:
    """The operations of one kernel over the schedule's pipelines (query, keys, weights, scores; of
    a CTA pair also raw: keys before the leader knows of them), sums `o`, the region Q of what is
    copied of the queries, and registers (s, p, o)."""

    converts = False  # whether feeders make bf16 of rows
    weighs = False  # whether each row has a scale, which multiplies S and P

    def __init__(
        self,
        k: MlaSparsePrefillConfig,
        s: PipelineSpace,
        softmax: WarpRole,
        feeder: WarpRole,
        o: TmemRegion,
    ) -> None:
        self._check_rows(k)
        self._check_roles(s, softmax, feeder)
        query, keys, weights, scores = (
            s.smem.pipelines[name] for name in ("query", "keys", "weights", "scores")
        )
        kept = s.tmem.regions["Q"]
        if scores.depth != 1 or weights.depth != 1:
            raise ScheduleError(
                f"{scores.depth} slots of scores, {weights.depth} of P", hint="each has one"
            )
        if kept.columns % BOX or kept.columns // BOX > len(query.tiles):
            raise ScheduleError(
                f"{kept.columns} columns of TMEM for Q",
                hint=f"{BOX} for each of its {len(query.tiles)} tiles that products read there",
            )
        self.k, self.softmax, self.feeder, self.pair = k, softmax, feeder, s.smem.pair
        values = s.smem.pipelines.get("values", keys)  # of a pair they are tiles of their own
        if (keys.tiles[0].rows, values is keys) != (TILE // (1 + self.pair), not self.pair):
            raise ScheduleError(
                f"keys of {keys.tiles[0].rows} rows",
                hint=f"{TILE}; of a CTA pair {TILE // 2}, and values of {TILE} beside them",
            )
        self.query, self.keys, self.values = query, keys, values
        self.weights, self.scores = weights, scores
        apart = values.tiles[1].base - values.tiles[0].base
        order = OF_E4M3 if k.compute == "fp8" else SELDOM_MOVED
        qk, pv = products(k.compute, self.pair)
        half = VALUES // 2 * k.product_bytes  # bytes of a row of V that a block of a pair has
        self.supply: dict[str, Any] = {
            "k": k, "groups": -(-k.num_heads // ROWS), "decode": False, "extra": False,
            "causal": False, "shared_list": False, "tile_rows": TILE,
            "queries": query.tiles, "keys_": keys.tiles, "values": values.tiles, "weights": weights,
            "pair": self.pair, "from_smem": len(query.tiles) - kept.columns // BOX, "kept": kept,
            "scores": scores.columns[0], "o_region": o, "room": s.smem.scratches["of warps"],
            "row_bits": hex(matrix_descriptor(leading=16, stride=SWIZZLED)),
            "column_bits": hex(matrix_descriptor(leading=apart, stride=SWIZZLED)),
            "qk": qk, "pv": pv, "value_columns": VALUES,
            "element_bytes": k.product_bytes, "row_bytes": k.d_qk * k.product_bytes,
            "value_bytes": [
                at + n for at in range(0, k.d_v * k.product_bytes, 2 * half)
                for n in range(0, half, 128)
            ],
            "scaled": k.rows == "e4m3", "lifted": self.weighs and bool(order.bias),
            "least_power": LEAST_POWER, "float_bytes": FLOAT,
            "bias": order.bias, "bias_bits": _fp32(order.bias),
            "reach": order.slack + order.bias, "reach_bits": _fp32(order.slack + order.bias),
            **{name: s.names(name) for name in ("s", "p", "o")},
        }  # fmt: skip
        self._registers(s)
        if self.weighs:
            self.supply["weight"] = s.named("weight", ".f32", 1, "the scale of its key")[0]
            self.supply["weights_room"] = s.smem.room("row scales", FLOAT * softmax.threads)
        if self.supply["lifted"]:
            self.supply["powers_room"] = s.smem.room("powers", FLOAT * softmax.threads)
        threads = s.roles[-1].warps.stop * 32
        s.signature = signature(k, threads, grid="units", clusters=s.smem.blocks)
        s.symbol, s.plain = SYMBOL, self._plain()
        bind(weights, self._mover(weights, "store_p"))
        bind(scores, self._mover(scores, ""))
        self._feeding(s)

    def _check_rows(self, k: MlaSparsePrefillConfig) -> None:
        if k.rows != "bf16" and k.compute != "fp8":
            raise ScheduleError(f"rows={k.rows} are copied as they are", hint="FedPrefill converts")
        self.weighs = k.rows == "e4m3_row"

    def _check_roles(self, s: PipelineSpace, softmax: WarpRole, feeder: WarpRole) -> None:
        check_roles(s, {softmax.name: (128,), feeder.name: (128,)})

    def _feeding(self, s: PipelineSpace) -> None:
        """Declares what the feeder needs, and says how it fills the pipelines of rows."""
        fetched = TILE * LANES_A_ROW // self.feeder.threads
        self.supply |= {"rows_apart": self.feeder.threads // LANES_A_ROW, "fetched": fetched}
        for operand, type, count, why in (
            ("place", ".b32", fetched, "rows of the next tile that this thread fetches"),
            ("src", ".b64", fetched, "where the rows of this tile lie"),
            ("there", ".b32", 1, "which of them are rows, a bit each"),
        ):
            names = s.named(operand, type, count, why)
            self.supply[operand] = names if count > 1 else names[0]
        for pipeline in self._rows():
            if self.pair:
                raw = s.smem.pipelines[f"raw {pipeline.name}"]
                bind(raw, self._mover(raw, f"fetch_{pipeline.name}"))
                bind(pipeline, self._mover(pipeline, "hand_on", Value(raw.name)))
            else:
                bind(pipeline, self._mover(pipeline, "fetch"))

    def _rows(self) -> tuple[Pipeline, ...]:
        """The pipelines of rows: of K and of V, or one of both."""
        return (self.keys, self.values) if self.pair else (self.keys,)

    def _registers(self, s: PipelineSpace) -> None:
        for operand, type, why in (
            ("unit", ".b32", "this block's heads of a query, among all queries'"),
            ("table", ".b64", "this query's list"),
            ("keys", ".b32", "keys of the list"),
            ("ahead", ".b32", "tile to look up next"),
            ("listed_key", ".b32", "a key of the list of this warp's next tile"),
            ("turn", ".b32", "which half of the room for maxima is written next"),
            ("c", ".f32", "scale * log2(e)"),
            ("cm", ".f32", "M of this thread's head, in log2 units"),
            ("best", ".f32", "its largest score"),
            ("top", ".f32", "the tile's largest score of the head"),
            ("l", ".f32", "sum of P over this thread's keys"),
            ("alpha", ".f32", "what the tile's maximum does to O"),
        ):
            self.supply[operand] = s.named(f"{operand}_", type, 1, why)[0]

    def _plain(self) -> PipelineOrder:
        """Without overlap: a tile's rows are fetched, its scores, its P, and its values added."""
        math, softmax = self.keys.consumers[0], self.softmax.name
        feeders = {pipeline.producer: None for pipeline in self._rows()}
        setups = [part for role in (*feeders, math, softmax) for part in by(role, "setup")]
        return PipelineOrder(
            before=(*setups, *by(self.query.producer, "load_queries")),
            tiles=(
                *self._fetched(),
                *by(math, "keep_queries", "qk"),
                *by(softmax, "load_list", *(["load_scales"] if self.weighs else []), "load_scores",
                    "release scores", "row_maximum", "exponent", "rescale", "copy weights"),
                *by(math, "pv", "release weights",
                    *(f"release {pipeline.name}" for pipeline in self._rows())),
            ),
            after=by(softmax, "finish"),
        )  # fmt: skip

    def _fetched(self) -> tuple[Part, ...]:
        """How a tile's rows come to SMEM, of the plain order."""
        names = [pipeline.name for pipeline in self._rows()]
        copies = [f"copy {raw}{name}" for name in names
                  for raw in (["raw ", ""] if self.pair else [""])]  # fmt: skip
        return by(self.feeder.name, "look_up", "find_rows", *copies)

    # ---- before the loop --------------------------------------------------------------------

    def setup(self, role: WarpRole) -> None:
        """Find this block's query, its list, and how many tiles that has."""
        feeds = any(role.name == pipeline.producer for pipeline in self._rows())
        self._record("setup", None, feeds=feeds, masks=role is self.softmax)

    def load_queries(self, role: WarpRole) -> None:
        """Fetch 64 rows of Q by TMA, or make bf16 of those of e4m3. Rows past the query's own are
        of others, or zero. Only in the role that fills the pipeline."""
        if role.name == self.query.producer:
            self._record(
                "load_queries", None, pipeline=self.query, defines=(Value(self.query.name),),
                template="load_queries" if self.k.as_stored else "read_queries",
            )  # fmt: skip

    # ---- keys -------------------------------------------------------------------------------

    def look_up(self, tile: Tile) -> None:
        """Load what the list names of the rows that this thread fetches."""
        self._record("look_up", tile)

    def find_rows(self, tile: Tile) -> None:
        """Compute where these rows lie."""
        self._record("find_rows", tile)

    # ---- products ---------------------------------------------------------------------------

    def keep_queries(self, tile: Tile) -> None:
        """Copy the last columns of Q to TMEM, where products of the scores read them."""
        self._record(
            "keep_queries", tile, domain="first", uses=(Value(self.query.name),),
            defines=(Value("Q"),), asynchronous=True,
        )  # fmt: skip

    def qk(self, tile: Tile) -> None:
        """S = Q K^T."""
        self._record(
            "qk", tile, uses=(Value(self.keys.name, tile), Value(self.query.name), Value("Q")),
            defines=(Value(self.scores.name, tile),), asynchronous=True,
        )  # fmt: skip

    def pv(self, tile: Tile) -> None:
        """O += P V; the first tile overwrites."""
        self._record(
            "pv", tile, uses=(Value(self.values.name, tile), Value(self.weights.name, tile)),
            defines=(Value("O"),), asynchronous=True, first_differs=True,
        )  # fmt: skip

    # ---- softmax ----------------------------------------------------------------------------

    def load_list(self, tile: Tile) -> None:
        """Load what the list names in this warp's half of a tile, a key a lane."""
        self._record("load_list", tile)

    def load_scales(self, tile: Tile) -> None:
        """Load the scales of these rows, where each has one."""
        if self.weighs:
            self._record("load_scales", tile)

    def load_scores(self, tile: Tile) -> None:
        """Load S to registers."""
        self._record("load_scores", tile, uses=(Value(self.scores.name, tile),))

    def row_maximum(self, tile: Tile) -> None:
        """Mask S, and find the tile's largest score of each head."""
        self._record("row_maximum", tile)

    def exponent(self, tile: Tile) -> None:
        """Update M and alpha; compute P, and as bf16, and its sum."""
        self._record("exponent", tile)

    def rescale(self, tile: Tile) -> None:
        """O *= alpha, where there is an O."""
        self._record("rescale", tile, domain="rest", uses=(Value("O"),), defines=(Value("O"),))

    # ---- after the loop ---------------------------------------------------------------------

    def finish(self) -> None:
        """Store O / (l + exp(sink)), LSE and the largest score."""
        self._record("finish", None, uses=(Value("O"),))

    # ---- templates --------------------------------------------------------------------------

    def _mover(self, pipeline: Pipeline, template: str, *uses: Value, **more: Any) -> Mover:
        def mover(kind: AccessKind, tile: Tile) -> Operation:
            access = Access(kind, RingTile(pipeline.name, tile))
            if kind == "release":
                freed = {"pipeline": pipeline}
                return Operation(kind, "pipeline/release.ptx.j2", tile, lambda at: freed,
                                 access=access)  # fmt: skip
            return self._operation(
                kind, tile, template=template, pipeline=pipeline, access=access,
                uses=tuple(Value(value.block, tile) for value in uses), **more,
            )  # fmt: skip

        return mover

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(self._operation(name, tile, **more))

    def _operation(
        self, name: str, tile: Tile | None, *, template: str = "", **more: Any
    ) -> Operation:
        """`more`: fields of `Operation`; the rest are operands of the template."""
        own = {field: more.pop(field) for field in OPERATION_FIELDS & more.keys()}
        supply = {**self.supply, **more}
        folder, _, file = (template or name).rpartition("/")
        return Operation(
            name, f"mla_sparse/{folder or 'in_tensor'}/{file}.ptx.j2", tile,
            lambda at: {**supply, "first": at.first}, **own,
        )  # fmt: skip


def products(compute: str, pair: bool) -> tuple[Product, Product]:
    """Q K^T, and P V of 256 columns of values."""
    element = "fp8_e4m3" if compute == "fp8" else "bf16"
    form: dict[str, Any] = {"cta_group": 2} if pair else {"weights": True}
    form |= {"a": element, "b": element}
    heads = ROWS * (1 + pair)
    return Product(heads, TILE, **form), Product(heads, VALUES, b_major="mn", **form)


def _fp32(number: int) -> str:
    """A number as PTX writes its bits."""
    return f"0f{struct.pack('>f', number).hex().upper()}"


def check_roles(s: PipelineSpace, threads: Mapping[str, tuple[int, ...]]) -> None:
    """ScheduleError for roles with other threads than operations are written for: `threads` of
    those that are named, one of all others."""
    for role in s.roles:
        legal = threads.get(role.name, (1,))
        if role.threads not in legal or len(role.warps) != -(-role.threads // 32):
            raise ScheduleError(
                f"role {role.name!r} has {role.threads} threads, of {len(role.warps)} warps",
                hint=f"it has {listed(legal)}; one thread multiplies",
            )
