"""Top-k sparse MLA prefill on Blackwell: the operations that the schedule arranges.

A block has up to 64 heads of a query, and all keys of its list, 64 a tile: products and softmax are
those of `attention.latent.sm_100a.in_tensor`. A query without keys has one tile, whose P is 0.

Of a pair, either block has half of a tile's keys as K, and of all of them half of each 256 columns
as V: its halves of the operand B of the pair's products. Rows arrive by cp.async, which completes
barriers of the own block alone: so the feeder waits for the rows that it fetched a tile before, and
then tells the leader.
"""

from __future__ import annotations

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.order import LEAST_POWER
from mlagen.attention.latent.sm_100a.in_tensor import InTensor, check_roles
from mlagen.dsl import PipelineOrder, Tile, Value, bind, by
from mlagen.dsl.plain import Part
from mlagen.errors import ScheduleError
from mlagen.families.mla_sparse.nvidia.signature import signature
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, TmemRegion, WarpRole

# Tools find FlashMLA's kernel in a profile by a part of this name.
SYMBOL = "mlagen_sparse_attn_fwd_kernel_sm100"
LANES_A_ROW = 8  # threads that fetch 128 bytes of a row, 16 each
FLOAT = 4  # bytes of a scale


class SparsePrefill(InTensor):
    """The operations of one kernel over the schedule's pipelines (query, keys, weights, scores; of
    a CTA pair also raw: keys before the leader knows of them), sums `o`, the region Q of what is
    copied of the queries, and registers (s, p, o)."""

    converts = False  # whether feeders make bf16 of rows
    folder = "mla_sparse/in_tensor"

    def __init__(
        self,
        k: MlaSparsePrefillConfig,
        s: PipelineSpace,
        softmax: WarpRole,
        feeder: WarpRole,
        o: TmemRegion,
    ) -> None:
        self._check_roles(s, softmax, feeder)
        super().__init__(k, s, o, element=k.product_bytes, weighs=self._row_scales(k))
        self.softmax, self.feeder = softmax, feeder
        half = self.supply["value_columns"] // 2 * k.product_bytes  # of a row of V, in a pair
        self.supply |= {
            "groups": -(-k.num_heads // ROWS), "decode": False, "extra": False,
            "causal": False, "shared_list": False,
            "value_bytes": [
                at + n for at in range(0, k.d_v * k.product_bytes, 2 * half)
                for n in range(0, half, 128)
            ],
            "scaled": k.rows == "e4m3", "least_power": LEAST_POWER, "float_bytes": FLOAT,
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
        bind(self.weights, self._mover(self.weights, "store_p"))
        bind(self.scores, self._mover(self.scores, ""))
        self._feeding(s)

    def _row_scales(self, k: MlaSparsePrefillConfig) -> bool:
        """Whether each row has a scale; ScheduleError for rows that are not for these."""
        if k.rows != "bf16" and k.compute != "fp8":
            raise ScheduleError(f"rows={k.rows} are copied as they are", hint="FedPrefill converts")
        return k.rows == "e4m3_row"

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
        self._name(
            s,
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
        )

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

    # ---- softmax ----------------------------------------------------------------------------

    def load_list(self, tile: Tile) -> None:
        """Load what the list names in this warp's half of a tile, a key a lane."""
        self._record("load_list", tile)

    def load_scales(self, tile: Tile) -> None:
        """Load the scales of these rows, where each has one."""
        if self.weighs:
            self._record("load_scales", tile)

    # ---- after the loop ---------------------------------------------------------------------

    def finish(self) -> None:
        """Store O / (l + exp(sink)), LSE and the largest score."""
        self._record("finish", None, uses=(Value("O"),))
