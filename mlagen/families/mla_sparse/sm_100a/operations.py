"""Top-k sparse MLA on Blackwell: the operations that the schedule arranges.

A block has up to 64 heads of a query, and all keys of its list, or in decode a split of them, 64 a
tile: products and softmax are those of `attention.latent.sm_100a.in_tensor`. A block without keys
has one tile, whose P is 0. In decode tiles of a second cache follow those of the first. A block
that has all keys of its query writes O and LSE; a split writes both in fp32, for the merge kernel.

Of a pair, either block has half of a tile's keys as K, and of all of them half of each 256 columns
as V: its halves of the operand B of the pair's products. Rows arrive by cp.async, which completes
barriers of the own block alone: so the feeder waits for the rows that it fetched a tile before, and
then tells the leader.
"""

from __future__ import annotations

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.order import LEAST_POWER
from mlagen.attention.latent.sm_100a.in_tensor import InTensor, by_rows, check_roles
from mlagen.dsl import PipelineOrder, Tile, Value, bind, by, exactly, touched
from mlagen.dsl.plain import Part
from mlagen.errors import ScheduleError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.nvidia.signature import decode_signature, signature
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.dsl import (
    Pipeline,
    PipelineSpace,
    TmemRegion,
    WarpRole,
    filled,
    tiles_of,
)

# Tools find FlashMLA's kernels in a profile by parts of these names.
SYMBOL = "mlagen_sparse_attn_fwd_kernel_sm100"
DECODE_SYMBOL = "mlagen_flash_fwd_splitkv_mla_fp8_sparse_kernel_sm100"
LANES_A_ROW = 8  # threads that fetch 128 bytes of a row, 16 each
FLOAT = 4  # bytes of a scale


Config = MlaSparsePrefillConfig | MlaSparseDecodeConfig


class Sparse(InTensor):
    """The operations of one kernel over the schedule's pipelines (query, keys, weights, scores; of
    a CTA pair also raw: keys before the leader knows of them), sums `o`, the region Q of what is
    copied of the queries, and registers (s, p, o)."""

    converts = False  # whether feeders make bf16 of rows
    folder = "mla_sparse/in_tensor"

    def __init__(
        self,
        k: Config,
        s: PipelineSpace,
        softmax: WarpRole,
        feeder: WarpRole,
        o: TmemRegion,
    ) -> None:
        self._check_roles(s, softmax, feeder)
        super().__init__(k, s, o, element=k.product_bytes, weighs=self._row_scales(k))
        self.softmax, self.feeder = softmax, feeder
        reader = feeder if k.as_stored else softmax
        filled(self.query, **({"threads": 0} if k.as_stored else by_rows(reader)))
        half = self.supply["value_columns"] // 2 * k.product_bytes  # of a row of V, in a pair
        self.decodes = isinstance(k, MlaSparseDecodeConfig)
        self.supply |= {
            "groups": -(-k.num_heads // ROWS), **_lists(k, s.smem.blocks),
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
        threads, blocks = s.roles[-1].warps.stop * 32, s.smem.blocks
        if isinstance(k, MlaSparseDecodeConfig):
            s.signature, s.symbol = decode_signature(k, threads, clusters=blocks), DECODE_SYMBOL
        else:
            s.signature = signature(k, threads, grid="units", clusters=blocks)
            s.symbol = SYMBOL
        s.plain = self._plain()
        bind(self.weights, self._mover(self.weights, "store_p"))
        bind(self.scores, self._mover(self.scores, ""))
        self._feeding(s)

    def _row_scales(self, k: Config) -> bool:
        """Whether each row has a scale; ScheduleError for rows that are not for these."""
        if k.rows != "bf16" and k.compute != "fp8":
            raise ScheduleError(f"rows={k.rows} are copied as they are", hint="FedSparse converts")
        return k.rows == "e4m3_row"

    def _check_roles(self, s: PipelineSpace, softmax: WarpRole, feeder: WarpRole) -> None:
        check_roles(s, {softmax.name: (128,), feeder.name: (128,)})

    def _feeding(self, s: PipelineSpace) -> None:
        """Declares what the feeder needs, and says how it fills the pipelines of rows."""
        fetched = TILE * LANES_A_ROW // self.feeder.threads
        self.supply |= {"rows_apart": self.feeder.threads // LANES_A_ROW, "fetched": fetched}
        for operand, type, count, why in (
            ("place", ".b32", fetched, "rows of the next tile that this thread fetches"),
            ("place_where", ".b32", fetched * self.supply["causal"], "their positions"),
            ("src", ".b64", fetched, "where the rows of this tile lie"),
            ("there", ".b32", 1, "which of them are rows, a bit each"),
        ):
            names = s.named(operand, type, count, why) if count else []
            self.supply[operand] = names[0] if count == 1 else names
        threads = self.feeder.threads
        for pipeline in self._rows():
            filled(pipeline, threads=threads, arrive="fenced" if self.pair else "")
            if self.pair:
                raw = filled(s.smem.pipelines[f"raw {pipeline.name}"], threads=threads)
                landing = tiles_of("rows that are fetched", raw.tiles, len(pipeline.tiles),
                                   rows=pipeline.tiles[0].rows)  # fmt: skip
                for tile, whole in zip(landing, pipeline.tiles, strict=True):
                    touched(tile, exactly("base", whole.base, f"over {whole.name}"))
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
            ("top", ".f32", "the tile's largest score of the head"),
            ("l", ".f32", "sum of P over this thread's keys"),
            ("alpha", ".f32", "what the tile's maximum does to O"),
        )
        if not self.decodes:
            self._name(s, ("best", ".f32", "the largest score of this thread's head"))
            return
        self._name(s, ("split", ".b32", "which split of the query's keys"))
        if self.supply["extra"]:
            self._name(
                s,
                ("main", ".b32", "tiles of the first list"),
                ("extra_table", ".b64", "the query's second list"),
                ("extra_keys", ".b32", "keys of that list"),
                ("bound", ".b32", "rows that an index of this warp's next tile may name"),
            )
        if self.supply["causal"]:
            self._name(
                s,
                ("positions", ".b64", "positions of the list's keys"),
                ("last", ".b32", "the position up to which this query sees keys"),
                ("where", ".b32", "the position of the listed key"),
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


def _lists(k: Config, blocks: int) -> dict[str, bool | int]:
    """What templates ask about lists; `blocks`: of a CTA cluster."""
    if not isinstance(k, MlaSparseDecodeConfig):
        return {"decode": False, "extra": False, "causal": False, "shared_list": False}
    return {
        "decode": True, "extra": k.extra, "causal": k.causal, "shared_list": k.shared_list,
        "blocks": blocks, "slot_rows": ROWS,
    }  # fmt: skip
