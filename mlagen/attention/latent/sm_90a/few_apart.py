"""Dense MLA decode of few query rows on Hopper, keys as rows, with a warpgroup for the scores and
one for O: the operations that a schedule arranges, whatever makes the scores.

Tiles stay in SMEM as they are stored. The role with O reads V^T as operand A of O^T += V^T P^T,
across the rows, while the scores of the tile are computed. P and alpha, and in the end row sums and
M, go by way of SMEM.

`ldmatrix` gives a lane two columns of two keys of V^T: rows g and g + 8 of operand A, 16 a warp,
are columns 2 g and 2 g + 1.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_rows import FewRows
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.dsl import PipelineOrder, Tile, Value, by
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole

BOX = 128  # columns of e4m3 in a row of a tile
SETS = 2  # of operands A, in turn


class FewApart(FewRows):
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, K0 .. of the
    cache, one for each 128 columns) and registers (o, s). `math` has O, `scores` the scores;
    `width` columns of V are an operand A at a time."""

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

        def handed(what: str, size: int = 0) -> Any:
            return s.smem.exchange(what, size, producer=scores.name, consumer=math.name)

        super().__init__(k, s, producer, math, None, -(-k.d_qk // BOX), ahead, form)
        self.alphas = s.smem.room("alpha", FLOAT * self.rows)
        self.written = handed("P is there")
        self.read = s.smem.exchange("P is read", 0, producer=math.name, consumer=scores.name)
        self.sums = handed("sums", 2 * FLOAT * self.rows)
        self.supply |= {"neighbours": True, "alphas": self.alphas, "sums": self.sums}

    def _users(self) -> tuple[WarpRole, ...]:
        return self.scores, self.math

    @property
    def _keys(self) -> str:
        """The pipeline of keys."""
        return self.cache[0].name

    def _key_registers(self) -> list[tuple[str, str, str]]:
        values = ("values_at", ".b32", "row of K and 16 columns that this lane reads of 32 keys")
        return [*super()._key_registers(), values]

    def _plain(self) -> PipelineOrder:
        fetches, scores, math = self.producer.name, self.scores.name, self.math.name
        return PipelineOrder(
            before=(*by(fetches, "setup"), *by(scores, "setup", "clear"),
                    *by(math, "setup", "clear")),
            tiles=(
                *by(fetches, "load_queries", f"copy {self._keys}", "look_up"),
                *by(scores, *self._of_scores(), "softmax", f"release {self._keys}"),
                *by(math, "rescale",
                    *(f"{does} {n}" for n in self.value_pieces for does in ("read_values", "pv")),
                    "is_read", f"release {self._keys}"),
                *by(scores, "wait_read"),
            ),
            after=(*by(scores, "store_sum", "hand_sums"), *by(math, "finish")),
            hints=frozenset({"prefetch"}),
        )  # fmt: skip

    def _of_scores(self) -> tuple[str, ...]:
        """Operations that make S of a tile."""
        raise NotImplementedError

    @property
    def value_pieces(self) -> range:
        """Columns of a tile that are an operand and values, `width` of them each."""
        return range(self.k.d_v // self.width)

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

    def wait_read(self, tile: Tile) -> None:
        """Wait until the other role is done with P and alpha of the tile."""
        self._record("wait_read", tile, template="nothing", uses=(Value(self.read.name, tile),))

    def softmax(self, tile: Tile) -> None:
        """Mask S; M and alpha; P in place of S, and to SMEM; sums."""
        self._record(
            "softmax", tile, role=self.scores, uses=(Value("S"), Value("l")), joins=True,
            template="softmax_apart",
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

    def rescale(self, tile: Tile) -> None:
        """O *= alpha, of the role that has scores."""
        self._record(
            "rescale", tile, template="rescale_apart", defines=(Value("O"),),
            uses=(Value(self.alphas.name, tile), Value(self.written.name, tile), Value("O")),
        )  # fmt: skip

    def multiply(self, tile: Tile, piece: int, template: str, **more: Any) -> None:
        """O^T += V^T P^T over some columns of V, in registers."""
        self._record(
            "pv", tile, of=str(piece), template=template, asynchronous=True, **more,
            uses=(Value(f"V {piece % SETS}"), Value(self.p.name, tile),
                  Value(self.written.name, tile)),
            defines=(Value("O"),),
        )  # fmt: skip

    def is_read(self, tile: Tile) -> None:
        """Say that the products with P are done."""
        self._record("is_read", tile, template="nothing", uses=(Value("O"),),
                     defines=(Value(self.read.name, tile),))  # fmt: skip

    def finish(self) -> None:
        """Store O / l and LSE; of a part to a slot, which blocks may put together."""
        assert self.parts
        self._record(
            "finish", None, template="finish_apart", joins=True,
            uses=(Value(self.sums.name), Value("O")),
            defines=tuple(Value(room.name) for room in self.parts.rooms.values()),
        )  # fmt: skip
