"""Dense MLA decode of few query rows over e4m3 rows on Hopper, keys as rows, computed in bf16: the
operations a schedule arranges.

Both roles convert what they multiply in registers: the one with the scores keys, as operand A of
S^T = K Q^T, the one with O values. So nobody waits for numbers that a third role has converted, and
SMEM moves a third of the bytes.

Of rope-aware rows the last 64 columns are bf16, and are operand A where they lie. A row's scale
multiplies its scores, and P before it is rounded: a thread loads those of its two keys, and looks
their pages up, a tile ahead.

`ldmatrix` gives a lane four columns of a key; those that are even come first in operand A, so Q has
them in that order, of each 16.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_apart import BOX, SETS, FewApart
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.dsl import Tile, Value
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole

STEP, FRAGMENT = 16, 4  # columns of a matrix instruction, or keys; registers of its operand A


class FewWidened(FewApart):
    """The operations of one kernel over the tiles and registers of `FewApart`, tiles of the tensor
    `spread` (Q as scores take it) and registers a (operands A of `width` columns, in turn)."""

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
        super().__init__(k, s, producer, scores, math, width, ahead, form)
        self.boxes_of_keys = [tiles[0] for tiles in self.keys]
        self.supply |= {
            "key_scales": k.rope_aware, "a": s.names("a"), "spread": self.spread,
            "box_columns": COLUMNS,
        }  # fmt: skip

    def _tiles(self, s: PipelineSpace) -> None:
        super()._tiles(s)
        name = self.scores.name
        self.spread = s.smem.pipeline(
            "Q in order", *(tile for tile in s.smem.tiles.values() if tile.tensor == "spread"),
            producer=name, consumer=name, resident=True, producer_threads=self.scores.threads,
        )  # fmt: skip

    def _more_registers(self) -> list[tuple[str, str, int, str]]:
        scales = [
            ("sigma", ".f32", 2, "scales of this thread's two keys"),
            ("next_sigma", ".f32", 2, "those of the next tile's"),
            ("entry", ".b32", 2, "pages of those of the tile after it"),
        ]
        return [*super()._more_registers(), *(scales if self.k.rope_aware else [])]

    def _key_registers(self) -> list[tuple[str, str, str]]:
        keys = ("keys_at", ".b32", "row of K and 16 columns that this lane reads of 32")
        return [*super()._key_registers(), keys]

    def _of_scores(self) -> tuple[str, ...]:
        return (
            "spread_queries", *(("next_scales",) if self.k.rope_aware else ()),
            *(f"{does} {n}" for n in self.pieces for does in ("read_keys", "qk")),
            *(("qk rope",) if self.k.rope_aware else ()),
        )  # fmt: skip

    @property
    def pieces(self) -> range:
        """Columns of a tile that are an operand, `width` of them each."""
        return range(-(-self.narrow // self.width))

    @property
    def narrow(self) -> int:
        """Columns that are e4m3 in memory, the first ones."""
        return self.k.d_v if self.k.rope_aware else self.k.d_qk

    # ---- scores -----------------------------------------------------------------------------

    def spread_queries(self, tile: Tile) -> None:
        """Write Q with its columns in the order in which scores add them up, once."""
        self._record(
            "spread_queries", tile, role=self.scores, domain="first",
            uses=(Value(self.query.name),), defines=(Value(self.spread.name),),
        )  # fmt: skip

    def next_scales(self, tile: Tile) -> None:
        """Take the scales of the tile's rows, where rows have some, and load those of the next
        one's."""
        if self.k.rope_aware:
            self._record("next_scales", tile)

    def read_keys(self, tile: Tile, piece: int) -> None:
        """Read a tile's keys as operand A, and make bf16 of them."""
        self._record(
            "read_keys", tile, defines=(Value(f"K {piece % SETS}"),), **self._read(tile, piece),
        )  # fmt: skip

    def qk_of(self, tile: Tile, piece: int) -> None:
        """S^T += K Q^T over these columns; the first ones set it."""
        self._record(
            "qk", tile, of=str(piece), template="qk_apart", a=self._operand(piece),
            first_column=self.width * piece, asynchronous=True, defines=(Value("S"),),
            uses=(Value(f"K {piece % SETS}"), Value(self.spread.name)),
        )  # fmt: skip

    def qk_rope(self, tile: Tile) -> None:
        """S^T += K Q^T over columns that are bf16 in memory, where there are some."""
        if self.k.rope_aware:
            self._record(
                "qk", tile, of="rope", template="qk_rope", asynchronous=True,
                tile_=self.boxes_of_keys[-1], query_tile=self.queries[-1], defines=(Value("S"),),
                uses=(Value(self._keys, tile), Value(self.query.name)),
            )  # fmt: skip

    # ---- values -----------------------------------------------------------------------------

    def read_values(self, tile: Tile, piece: int) -> None:
        """Read some columns of V^T as operand A, and make bf16 of them."""
        self._record(
            "read_values", tile, defines=(Value(f"V {piece % SETS}"),), **self._read(tile, piece),
        )  # fmt: skip

    def pv_of(self, tile: Tile, piece: int) -> None:
        """O^T += V^T P^T over these columns."""
        first = self.width // COLUMNS * piece
        self.multiply(tile, piece, "pv_apart", a=self._operand(piece), first_block=first)

    # ---- registers --------------------------------------------------------------------------

    def _read(self, tile: Tile, piece: int) -> dict[str, Any]:
        """Of an operation that reads some columns of a tile: where they are, and go."""
        box, begins = divmod(self.width * piece, BOX)
        return {
            "of": str(piece), "tile_": self.boxes_of_keys[box], "begins": begins,
            "a": self._operand(piece), "uses": (Value(self._keys, tile),),
        }  # fmt: skip

    def _operand(self, piece: int) -> list[str]:
        """The registers of some columns as operand A."""
        a = self.supply["a"]
        first = len(a) // SETS * (piece % SETS)
        columns = min(self.width, self.narrow - self.width * piece)
        held: list[str] = a[first : first + columns // STEP * FRAGMENT]
        return held
