"""Dense MLA decode of few query rows over e4m3 rows on Hopper, keys as rows, with products of f16:
the operations a schedule arranges. One warpgroup has the scores, another one O.

Tiles stay in SMEM as they are stored. Both roles convert what they multiply in registers: the one
with the scores keys, as operand A of S^T = K Q^T; the one with O values, as operand A of
O^T += V^T P^T, across the rows, while the scores of the tile are computed. So nobody waits for
numbers that a third role has converted, and SMEM moves a third of the bytes. P and alpha, and in
the end row sums and M, go by way of SMEM.

One instruction makes f16 of two e4m3 numbers, exactly. A row of Q is f16 for them, times a power of
two that brings its largest number up to below 2^16, which c undoes; e4m3 numbers fit as they are. P
is f16, too.

Of rope-aware rows the last 64 columns are bf16, and are operand A where they lie. A row's scale
multiplies its scores, and P before it is rounded: f16 may not hold that, so P and V are bf16. A
thread loads the scales of its two keys, and looks their pages up, a tile ahead.

`ldmatrix` gives a lane four columns of a key, of which the first two come first in operand A, so Q
has them in that order, of each 16. Of V^T it gives a lane two columns of two keys: rows g and g + 8
of operand A, 16 a warp, are columns 2 g and 2 g + 1.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_rows import (
    BOX,
    VALUES_AT,
    FewRows,
    converts_queries,
    rows_in_eights,
)
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.dsl import PipelineOrder, Tile, Value, by, exactly
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole, tiles_of

SETS = 2  # of operands A, in turn
STEP, FRAGMENT = 16, 4  # columns of a matrix instruction, or keys; registers of its operand A


class FewWidened(FewRows):
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, K0 .. of the
    cache, one for each 128 columns, and of the tensor `ordered`: a Q of bf16 as scores take it) and
    registers (o, s, and a: operands A of `width` columns, in turn). `math` has O, `scores` the
    scores."""

    columns = BOX

    def __init__(
        self,
        k: LatentProblem,
        s: PipelineSpace,
        producer: WarpRole,
        scores: WarpRole,
        math: WarpRole,
        width: int,
        ahead: int,
        form: Form,
    ) -> None:
        self.scores, self.width = scores, width
        self.ordered = [tile for tile in s.smem.tiles.values() if tile.tensor == "ordered"]
        boxes = 0 if converts_queries(k) else k.d_qk // COLUMNS
        tiles_of("Q in order", self.ordered, boxes, rows=rows_in_eights(k), slots=1)

        def handed(what: str, size: int = 0) -> Any:
            return s.smem.exchange(what, size, producer=scores.name, consumer=math.name)

        super().__init__(k, s, producer, math, None, -(-k.d_qk // BOX), ahead, form)
        self.alphas = s.smem.room("alpha", FLOAT * self.rows)
        self.written = handed("P is there")
        self.read = s.smem.exchange("P is read", 0, producer=math.name, consumer=scores.name)
        self.sums = handed("sums", 2 * FLOAT * self.rows)
        self.factors = s.smem.room("of queries", FLOAT * self.rows) if self.ordered else None
        operands = exactly("registers", SETS * width // STEP * FRAGMENT, "operands A")
        self.supply |= {
            "neighbours": True, "alphas": self.alphas, "sums": self.sums,
            "key_scales": k.rope_aware, "a": s.names("a", operands), "spread": self.spread,
            "box_columns": COLUMNS, "values_of": "bf16" if k.rope_aware else "f16",
            "factors": self.factors,
        }  # fmt: skip

    def _users(self) -> tuple[WarpRole, ...]:
        return self.scores, self.math

    def _tiles(self, s: PipelineSpace) -> None:
        super()._tiles(s)
        name = self.scores.name
        if self.ordered or self.k.rope_aware_queries:
            self.row_factors = "c times the scale of a query row, or of its token"
        if self.reads:
            self.spread, self.apart = self.query, self.narrow // COLUMNS
            return
        self.spread = s.smem.pipeline(
            "Q in order", *self.ordered, producer=name, consumer=name, resident=True,
            producer_threads=self.scores.threads,
        )  # fmt: skip

    @property
    def _keys(self) -> str:
        """The pipeline of keys."""
        return self.cache[0].name

    def _more_registers(self) -> list[tuple[str, str, int, str]]:
        scales = [
            ("sigma", ".f32", 2, "scales of this thread's two keys"),
            ("next_sigma", ".f32", 2, "those of the next tile's"),
            ("entry", ".b32", 2, "pages of those of the tile after it"),
        ]
        takes = ("takes", ".b32", TILE // 8, "what takes two keys of a column out of a word of V")
        return [*super()._more_registers(), *(scales if self.k.rope_aware else [takes])]

    def _key_registers(self) -> list[tuple[str, str, str]]:
        keys = ("keys_at", ".b32", "row of K and 16 columns that this lane reads of 32")
        return [*super()._key_registers(), VALUES_AT, keys]

    def _plain(self) -> PipelineOrder:
        fetches, scores, math = self.producer.name, self.scores.name, self.math.name
        return PipelineOrder(
            before=(*by(fetches, "setup"), *by(scores, "setup", "clear"),
                    *by(math, "setup", "clear")),
            tiles=(
                *by(fetches, *self._by_map, f"copy {self._keys}", "look_up"),
                *by(scores, *(self._by_loads or ("spread_queries",)),
                    *(("next_scales",) if self.k.rope_aware else ()),
                    *(f"{does} {n}" for n in self.pieces for does in ("read_keys", "qk")),
                    *(("qk rope",) if self.k.rope_aware else ()),
                    "softmax", f"release {self._keys}"),
                *by(math, "rescale",
                    *(f"{does} {n}" for n in self.value_pieces for does in ("read_values", "pv")),
                    "is_read", f"release {self._keys}"),
                *by(scores, "wait_read"),
            ),
            after=(*by(scores, "store_sum", "hand_sums"), *by(math, "finish")),
            hints=frozenset({"prefetch"}),
        )  # fmt: skip

    @property
    def pieces(self) -> range:
        """Columns of a tile that are an operand, `width` of them each."""
        return range(-(-self.narrow // self.width))

    @property
    def value_pieces(self) -> range:
        """Those of them that are values."""
        return range(self.k.d_v // self.width)

    @property
    def narrow(self) -> int:
        """Columns that are e4m3 in memory, the first ones."""
        return self.k.d_v if self.k.rope_aware else self.k.d_qk

    @property
    def _zeroes_tail(self) -> bool:
        """What is read to registers is made finite there."""
        return False

    def find(self, role: WarpRole) -> None:
        """Find this block's work item and its number of tiles; in the producer also where the first
        two of them lie."""
        fetches = role is self.producer
        self._record("setup", None, role=role, fetches=fetches, scores=not fetches,
                     multiplies=role is self.scores)  # fmt: skip

    # ---- scores -----------------------------------------------------------------------------

    def spread_queries(self, tile: Tile) -> None:
        """Write Q with its columns in the order in which scores add them up, once."""
        if self.reads:
            self.read_queries(tile)
            return
        self._record(
            "spread_queries", tile, role=self.scores, domain="first", joins=True,
            ordered=self.narrow // COLUMNS, uses=(Value(self.query.name),),
            defines=(Value(self.spread.name),),
        )  # fmt: skip

    def next_scales(self, tile: Tile) -> None:
        """Take the scales of the tile's rows, where rows have some, and load those of the next
        one's."""
        if self.k.rope_aware:
            self._record("next_scales", tile)

    def read_keys(self, tile: Tile, piece: int) -> None:
        """Read a tile's keys as operand A, and make f16 of them."""
        self._record(
            "read_keys", tile, defines=(Value(f"K {piece % SETS}"),), **self._read(tile, piece),
        )  # fmt: skip

    def qk_of(self, tile: Tile, piece: int) -> None:
        """S^T += K Q^T over these columns; the first ones set it."""
        self._record(
            "qk", tile, of=str(piece), a=self._operand(piece), first_column=self.width * piece,
            asynchronous=True, defines=(Value("S"),),
            uses=(Value(f"K {piece % SETS}"), Value(self.spread.name)),
        )  # fmt: skip

    def qk_rope(self, tile: Tile) -> None:
        """S^T += K Q^T over columns that are bf16 in memory, where there are some."""
        if self.k.rope_aware:
            self._record(
                "qk", tile, of="rope", template="qk_rope", asynchronous=True,
                tile_=self.columns_of_keys[-1], query_tile=self.spread.tiles[-1],
                defines=(Value("S"),), uses=(Value(self._keys, tile), Value(self.spread.name)),
            )  # fmt: skip

    def wait_read(self, tile: Tile) -> None:
        """Wait until the other role is done with P and alpha of the tile."""
        self._record("wait_read", tile, template="nothing", uses=(Value(self.read.name, tile),))

    def softmax(self, tile: Tile) -> None:
        """Mask S; M and alpha; P in place of S, and to SMEM; sums."""
        self._record(
            "softmax", tile, role=self.scores, uses=(Value("S"), Value("l")), joins=True,
            defines=(Value(self.p.name, tile), Value(self.alphas.name, tile), Value("l"),
                     Value(self.written.name, tile)),
        )  # fmt: skip

    def store_sum(self) -> None:
        """Add up the row sums of all threads."""
        self._record("store_sum", None, role=self.scores, joins=True, uses=(Value("l"),),
                     defines=(Value(self.warps.name), Value("l")))  # fmt: skip

    def hand_sums(self) -> None:
        """Store row sums and M for the role that has O."""
        self._record("hand_sums", None, uses=(Value("l"),), defines=(Value(self.sums.name),))

    # ---- values -----------------------------------------------------------------------------

    def read_values(self, tile: Tile, piece: int) -> None:
        """Read some columns of V^T as operand A, and make f16 of them, or bf16."""
        self._record(
            "read_values", tile, counts=piece == 0, defines=(Value(f"V {piece % SETS}"),),
            **self._read(tile, piece),
        )  # fmt: skip

    def rescale(self, tile: Tile) -> None:
        """O *= alpha, of the role that has scores."""
        self._record(
            "rescale", tile, defines=(Value("O"),),
            uses=(Value(self.alphas.name, tile), Value(self.written.name, tile), Value("O")),
        )  # fmt: skip

    def pv_of(self, tile: Tile, piece: int) -> None:
        """O^T += V^T P^T over these columns."""
        self._record(
            "pv", tile, of=str(piece), a=self._operand(piece), asynchronous=True,
            first_block=self.width // COLUMNS * piece, defines=(Value("O"),),
            uses=(Value(f"V {piece % SETS}"), Value(self.p.name, tile),
                  Value(self.written.name, tile)),
        )  # fmt: skip

    def is_read(self, tile: Tile) -> None:
        """Say that the products with P are done."""
        self._record("is_read", tile, template="nothing", uses=(Value("O"),),
                     defines=(Value(self.read.name, tile),))  # fmt: skip

    def finish(self) -> None:
        """Store O / l and LSE; of a part to a slot, which blocks may put together."""
        assert self.parts
        self._record(
            "finish", None, joins=True, uses=(Value(self.sums.name), Value("O")),
            defines=tuple(Value(room.name) for room in self.parts.rooms.values()),
        )  # fmt: skip

    # ---- registers --------------------------------------------------------------------------

    def _read(self, tile: Tile, piece: int) -> dict[str, Any]:
        """Of an operation that reads some columns of a tile: where they are, and go."""
        box, begins = divmod(self.width * piece, BOX)
        return {
            "of": str(piece), "tile_": self.columns_of_keys[box], "begins": begins,
            "a": self._operand(piece), "uses": (Value(self._keys, tile),),
        }  # fmt: skip

    def _operand(self, piece: int) -> list[str]:
        """The registers of some columns as operand A."""
        a = self.supply["a"]
        first = len(a) // SETS * (piece % SETS)
        columns = min(self.width, self.narrow - self.width * piece)
        held: list[str] = a[first : first + columns // STEP * FRAGMENT]
        return held
