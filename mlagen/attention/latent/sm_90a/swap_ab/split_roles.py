"""Swap-AB in f16 over e4m3 rows: one warpgroup has the scores, another one O.

Tiles stay in SMEM as they are stored. Both roles dequantize their own operand A in registers: the
one with the scores K, of S^T = K Q^T; the one with O V, of O^T += V^T P^T, across the rows, while
the scores of the tile are computed. So nobody waits for numbers that a third role has converted,
and SMEM moves a third of the bytes. P and alpha, and in the end row sums and M, go by way of SMEM.

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
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.attention.latent.sm_90a.swap_ab.products import VALUES_AT
from mlagen.attention.latent.sm_90a.swap_ab.queries import SwapAbQueries
from mlagen.attention.latent.sm_90a.swap_ab.softmax import WeightForm
from mlagen.attention.latent.sm_90a.swap_ab.storage import BOX, KeyRing
from mlagen.dsl import Tile, Value, exactly
from mlagen.targets.nvidia.dsl import tiles_of

SETS = 2  # of operands A, in turn
STEP, FRAGMENT = 16, 4  # columns of a matrix instruction, or keys; registers of its operand A
FOLDER = "swap_ab/split_roles"


def fp8_columns(k: LatentProblem) -> int:
    """Columns that are e4m3 in memory, the first ones."""
    return k.d_v if k.rope_aware else k.d_qk


def ordered_tiles(k: LatentProblem) -> int:
    """Tiles of Q, 64 columns each, that are f16 in the order of the keys' columns."""
    return fp8_columns(k) // COLUMNS


def weights(k: LatentProblem) -> WeightForm:
    """P of f16, or of bf16 where it has rows' scales."""
    of = {"values_of": "bf16" if k.rope_aware else "f16"}
    return WeightForm(2 * TILE, rescale=f"{FOLDER}/rescale", context=of)


class OrderedQueries:
    """Q in the order of the keys' columns, which the role with the scores writes: of e4m3 when it
    loads Q, of bf16 from tiles of the tensor `ordered`."""

    def __init__(self, kernel: SwapAbKernel, queries: SwapAbQueries) -> None:
        k, scores = kernel.k, kernel.scores
        self.kernel, self.queries = kernel, queries
        tiles = kernel.tiles("ordered")
        boxes = 0 if queries.converts else k.d_qk // COLUMNS
        tiles_of("Q in order", tiles, boxes, rows=kernel.rows, slots=1)
        self.pipeline = queries.pipeline
        if tiles:
            self.pipeline = kernel.s.smem.pipeline(
                "Q in order", *tiles, producer=scores.name, consumer=scores.name, resident=True,
                producer_threads=scores.threads,
            )  # fmt: skip
        kernel.context["spread"] = self.pipeline
        self.row_factors = (
            "c times the scale of a query row, or of its token"
            if tiles or k.rope_aware_queries
            else ""
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """What the role with the scores does for Q, of the plain order."""
        return self.queries.reads or ("spread_queries",)

    def spread(self, tile: Tile) -> None:
        """Write Q with its columns in the order in which scores add them up, once."""
        if self.queries.converts:
            self.queries.read(tile)
            return
        self.kernel.record(
            f"{FOLDER}/spread_queries", tile, role=self.kernel.scores, domain="first", joins=True,
            ordered=ordered_tiles(self.kernel.k), defines=(Value(self.pipeline.name),),
            uses=(Value(self.queries.pipeline.name),),
        )  # fmt: skip


class Handed:
    """What the role with the scores hands to the one with O: P and alpha of a tile, and when P has
    been read; in the end row sums and M."""

    def __init__(self, kernel: SwapAbKernel, *, factors: bool) -> None:
        """`factors`: rows of Q are multiplied by powers of two, which are handed to all threads."""
        s, scores, math = kernel.s, kernel.scores.name, kernel.math.name
        size = FLOAT * kernel.rows
        self.kernel = kernel
        self.alphas = s.smem.room("alpha", size)
        self.written = s.smem.exchange("P is there", 0, producer=scores, consumer=math)
        self.read = s.smem.exchange("P is read", 0, producer=math, consumer=scores)
        self.sums = s.smem.exchange("sums", 2 * size, producer=scores, consumer=math)
        kernel.context |= {
            "alphas": self.alphas, "sums": self.sums,
            "factors": s.smem.room("of queries", size) if factors else None,
        }  # fmt: skip

    @property
    def alpha(self) -> tuple[str, ...]:
        """Alpha, and that it is there."""
        return self.alphas.name, self.written.name

    def wait_read(self, tile: Tile) -> None:
        """Wait until the other role is done with P and alpha of the tile."""
        self.kernel.record("pipeline/nothing", tile, name="wait_read",
                           uses=(Value(self.read.name, tile),))  # fmt: skip

    def is_read(self, tile: Tile) -> None:
        """Say that the products with P are done."""
        self.kernel.record("pipeline/nothing", tile, name="is_read", uses=(Value("O"),),
                           defines=(Value(self.read.name, tile),))  # fmt: skip

    def hand_sums(self) -> None:
        """Store row sums and M for the role that has O."""
        self.kernel.record(f"{FOLDER}/hand_sums", None, uses=(Value("l"),),
                           defines=(Value(self.sums.name),))  # fmt: skip


class KeyScales:
    """Scales of a thread's two keys, which rope-aware rows have."""

    def __init__(self, kernel: SwapAbKernel) -> None:
        self.kernel, self.any = kernel, kernel.k.rope_aware
        kernel.context["key_scales"] = self.any
        if self.any:
            kernel.names(
                ("sigma", ".f32", 2, "scales of this thread's two keys"),
                ("next_sigma", ".f32", 2, "those of the next tile's"),
                ("entry", ".b32", 2, "pages of those of the tile after it"),
            )

    @property
    def steps(self) -> tuple[str, ...]:
        """Of the plain order."""
        return ("next_scales",) if self.any else ()

    def next(self, tile: Tile) -> None:
        """Take the scales of the tile's rows, where rows have some, and load those of the next
        one's."""
        if self.any:
            self.kernel.record(f"{FOLDER}/next_scales", tile)


class FromRegisters:
    """Products whose operands A, `width` columns each, are made in registers (a), of tiles that are
    in SMEM as they are stored."""

    columns = BOX

    def __init__(
        self, kernel: SwapAbKernel, queries: OrderedQueries, keys: KeyRing, width: int
    ) -> None:
        k = kernel.k
        self.kernel, self.queries, self.keys, self.width = kernel, queries, keys, width
        self.name, self.fp8_columns = keys.pipelines[0].name, fp8_columns(k)
        self.pieces = range(-(-self.fp8_columns // width))  # of K: operands of a tile
        self.value_pieces = range(k.d_v // width)
        operands = exactly("registers", SETS * width // STEP * FRAGMENT, "operands A")
        self.a = kernel.s.names("a", operands)
        kernel.context |= {"neighbours": True, "addresses": f"{FOLDER}/addresses.ptx.j2"}
        kernel.name(
            VALUES_AT,
            ("keys_at", ".b32", "row of K and 16 columns that this lane reads of 32"),
        )
        if not k.rope_aware:
            why = "what takes two keys of a column out of a word of V"
            kernel.names(("takes", ".b32", TILE // 8, why))

    @property
    def of_scores(self) -> tuple[str, ...]:
        """Of the plain order."""
        rope = ("qk rope",) if self.kernel.k.rope_aware else ()
        return (*(f"{does} {n}" for n in self.pieces for does in ("read_keys", "qk")), *rope)

    @property
    def of_values(self) -> tuple[str, ...]:
        return tuple(f"{does} {n}" for n in self.value_pieces for does in ("read_values", "pv"))

    def read_keys(self, tile: Tile, piece: int) -> None:
        """Read a tile's keys as operand A, and make f16 of them."""
        self.kernel.record(f"{FOLDER}/read_keys", tile, defines=(Value(f"K {piece % SETS}"),),
                           **self._read(tile, piece))  # fmt: skip

    def qk(self, tile: Tile, piece: int) -> None:
        """S^T += K Q^T over these columns; the first ones set it."""
        self.kernel.record(
            f"{FOLDER}/qk", tile, of=str(piece), a=self._operand(piece), asynchronous=True,
            first_column=self.width * piece, defines=(Value("S"),),
            uses=(Value(f"K {piece % SETS}"), Value(self.queries.pipeline.name)),
        )  # fmt: skip

    def qk_rope(self, tile: Tile) -> None:
        """S^T += K Q^T over columns that are bf16 in memory, where there are some."""
        if self.kernel.k.rope_aware:
            spread = self.queries.pipeline
            self.kernel.record(
                f"{FOLDER}/qk_rope", tile, name="qk", of="rope", asynchronous=True,
                tile_=self.keys.tiles[-1], query_tile=spread.tiles[-1], defines=(Value("S"),),
                uses=(Value(self.name, tile), Value(spread.name)),
            )  # fmt: skip

    def read_values(self, tile: Tile, piece: int) -> None:
        """Read some columns of V^T as operand A, and make f16 of them, or bf16."""
        self.kernel.record(
            f"{FOLDER}/read_values", tile, counts=piece == 0, defines=(Value(f"V {piece % SETS}"),),
            **self._read(tile, piece),
        )  # fmt: skip

    def pv(self, tile: Tile, piece: int) -> None:
        """O^T += V^T P^T over these columns."""
        self.kernel.record(
            f"{FOLDER}/pv", tile, of=str(piece), a=self._operand(piece), asynchronous=True,
            first_block=self.width // COLUMNS * piece, defines=(Value("O"),),
            uses=(Value(f"V {piece % SETS}"), Value("P", tile), Value("P is there", tile)),
        )  # fmt: skip

    def _read(self, tile: Tile, piece: int) -> dict[str, Any]:
        """Of an operation that reads some columns of a tile: where they are, and go."""
        box, begins = divmod(self.width * piece, BOX)
        return {
            "of": str(piece), "tile_": self.keys.tiles[box], "begins": begins,
            "a": self._operand(piece), "uses": (Value(self.name, tile),),
        }  # fmt: skip

    def _operand(self, piece: int) -> list[str]:
        """The registers of some columns as operand A."""
        first = len(self.a) // SETS * (piece % SETS)
        columns = min(self.width, self.fp8_columns - self.width * piece)
        return self.a[first : first + columns // STEP * FRAGMENT]
