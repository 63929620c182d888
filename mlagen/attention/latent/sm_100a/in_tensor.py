"""Attention to latent rows on Blackwell with sums in tensor memory: products and softmax.

A block has up to 64 query rows. S = Q K^T over all columns of a row, O += P V over the first 512 of
the same rows, 64 keys a tile. Products are `tcgen05.mma.ws` of 64 rows, or of 128 rows of a CTA
pair, 64 in each. Sums of either are folded: a row's first half of columns lies in one of lanes 0 to
63, the other half in the lane 64 further. So two threads share a row: each has half of a tile's
keys, and half of each 256 columns of O. The last columns of Q are copied to tensor memory once, to
both halves of the lanes, where products find them as operand A.

Softmax in base 2: P = exp2(c S - M), c = scale * log2(e). M is a whole number, and moves where a
score is more than 8 above it: then O, which lies in TMEM, is multiplied by a power of two, which is
exact, so that it does not matter when (`latent.order`). The two threads of a row exchange their
maxima. P is rounded to bf16 for the product; row sums add what it was before, and are added up at
the end. M starts at the lowest finite number: a tile without keys leaves M, and its P is 0.

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
from mlagen.attention.latent.order import OF_E4M3, SELDOM_MOVED, Order
from mlagen.attention.latent.sm_100a.piece import threads_of
from mlagen.dsl import (
    Access,
    Extent,
    Operation,
    RingTile,
    Tile,
    Value,
    at_least,
    exactly,
    record,
    touched,
)
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.errors import ScheduleError
from mlagen.problem.fields import listed
from mlagen.targets.nvidia.dsl import (
    Pipeline,
    PipelineSpace,
    TmemRegion,
    WarpRole,
    filled,
    tiles_of,
)
from mlagen.targets.nvidia.dsl.smem import SWIZZLE_ROW_BYTES, Scratch
from mlagen.targets.sm_100a.dsl import Product, matrix_descriptor

VALUES = 256  # columns of them that a product has
FLOAT, TURNS = 4, 2  # bytes of a maximum; rooms for them, in turn
BOX = 32  # columns of TMEM that a tile of Q takes, four bytes a column
SWIZZLED = 1024  # bytes of 8 rows in the 128-byte swizzle
OPERATION_FIELDS = {field.name for field in dataclasses.fields(Operation)}
# Templates that all kernels have; others are a kernel's own.
COMMON = {"qk", "pv", "keep_queries", "load_scores", "exponent", "rescale", "store_p", "convert"}


class InTensor:
    """Operations over the schedule's pipelines (query, keys, weights, scores; of a CTA pair also
    values), sums `o`, the region Q of what is copied of the queries, and registers (s, p, o).

    `k`: the problem, with `d_qk` and `d_v` columns. `element`: bytes of an operand's number, 1 with
    compute=fp8. `weighs`: whether each row has a scale, which multiplies S and P.
    """

    folder = ""  # of the kernel's own templates

    def __init__(
        self, k: Any, s: PipelineSpace, o: TmemRegion, *, element: int = 2, weighs: bool = False
    ) -> None:
        query, keys, weights, scores = (
            s.smem.pipelines[name] for name in ("query", "keys", "weights", "scores")
        )
        if scores.depth != 1 or weights.depth != 1:
            raise ScheduleError(
                f"{scores.depth} slots of scores, {weights.depth} of P", hint="each has one"
            )
        kept = s.tmem.regions["Q"]
        if kept.columns % BOX or kept.columns // BOX > len(query.tiles):
            raise ScheduleError(
                f"{kept.columns} columns of TMEM for Q",
                hint=f"{BOX} for each of its {len(query.tiles)} tiles that products read there",
            )
        self.k, self.pair, self.weighs = k, s.smem.pair, weighs
        values = s.smem.pipelines.get("values", keys)  # of a pair they are tiles of their own
        if (keys.tiles[0].rows, values is keys) != (TILE // (1 + self.pair), not self.pair):
            raise ScheduleError(
                f"keys of {keys.tiles[0].rows} rows",
                hint=f"{TILE}; of a CTA pair {TILE // 2}, and values of {TILE} beside them",
            )
        self.query, self.keys, self.values = query, keys, values
        self.weights, self.scores = weights, scores
        room = self._extents(s, o, element)
        apart = values.tiles[1].base - values.tiles[0].base
        qk, pv = products("fp8" if element == 1 else "bf16", self.pair)
        self.supply: dict[str, Any] = {
            "k": k, "tile_rows": TILE, "pair": self.pair,
            "queries": query.tiles, "keys_": keys.tiles, "values": values.tiles, "weights": weights,
            "from_smem": len(query.tiles) - kept.columns // BOX, "kept": kept,
            "scores": scores.columns[0], "o_region": o, "room": room,
            "row_bits": hex(matrix_descriptor(leading=16, stride=SWIZZLED)),
            "column_bits": hex(matrix_descriptor(leading=apart, stride=SWIZZLED)),
            "qk": qk, "pv": pv, "value_columns": VALUES,
            "element_bytes": element, "row_bytes": k.d_qk * element,
            **_moves(OF_E4M3 if element == 1 else SELDOM_MOVED, weighs=weighs),
            **{name: s.names(name, extent) for name, extent in _registers(element).items()},
        }  # fmt: skip

    def _extents(self, s: PipelineSpace, o: TmemRegion, element: int) -> Scratch:
        """Checks the extents of what operations touch, of numbers of `element` bytes; the room in
        which the two threads of a row exchange maxima and sums."""
        boxes, pair = -(-self.k.d_qk * element // SWIZZLE_ROW_BYTES), self.pair
        tiles_of("Q", self.query.tiles, boxes, rows=ROWS, slots=1)
        tiles_of("K", self.keys.tiles, boxes, rows=TILE // (1 + pair))
        if pair:
            half = self.k.d_v * element // 2 // SWIZZLE_ROW_BYTES
            tiles_of("V", self.values.tiles, half, rows=TILE)
        tiles_of("P", self.weights.tiles, 1, rows=ROWS, slots=1)
        threads = threads_of(s, self.weights)
        filled(self.weights, threads=threads, arrive="fenced")
        touched(self.scores.columns[0], exactly("columns", TILE // 2, "S, folded"))
        touched(o, exactly("columns", self.k.d_v // 2, "O, folded"))
        of_warps = s.smem.scratches["of warps"]
        return touched(of_warps, at_least("bytes", TURNS * threads * FLOAT, "maxima, then sums"))

    def load_item_queries(self, role: WarpRole, tile: Tile) -> None:
        """Load Q with an item's first tile, where blocks have several items."""

    def release_queries(self, tile: Tile) -> None:
        """Give Q back after an item's last scores, where another item's may follow."""

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

    def load_scores(self, tile: Tile) -> None:
        """Load S to registers."""
        self._record("load_scores", tile, uses=(Value(self.scores.name, tile),))

    def row_maximum(self, tile: Tile) -> None:
        """Mask S, and find the tile's largest score of each row."""
        self._record("row_maximum", tile)

    def exponent(self, tile: Tile) -> None:
        """Update M and alpha; compute P, and as bf16, and its sum."""
        self._record("exponent", tile)

    def rescale(self, tile: Tile) -> None:
        """O *= alpha, where there is an O."""
        self._record("rescale", tile, domain="rest", uses=(Value("O"),), defines=(Value("O"),))

    # ---- registers, templates ---------------------------------------------------------------

    def _name(self, s: PipelineSpace, *registers: tuple[str, str, str]) -> None:
        """Declares registers (operand of templates, type, why), one each."""
        for operand, type, why in registers:
            self.supply[operand] = s.named(f"{operand}_", type, 1, why)[0]

    def _mover(self, pipeline: Pipeline, template: str, *uses: Value, **more: Any) -> Mover:
        def mover(kind: AccessKind, tile: Tile) -> Operation:
            access = Access(kind, RingTile(pipeline.name, tile))
            if kind == "release":
                freed = {"pipeline": pipeline}
                return Operation(kind, "pipeline/release.ptx.j2", tile, lambda at: freed,
                                 access=access, last_tiles=int(pipeline.resident))  # fmt: skip
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
        """`more`: fields of `Operation`; the rest are operands of the template. A template in a
        folder lies beside the kernel's own one."""
        own = {field: more.pop(field) for field in OPERATION_FIELDS & more.keys()}
        supply = {**self.supply, **more}
        file = template or name
        folder = "latent/in_tensor" if file in COMMON else self.folder
        if "/" in file:
            folder = folder.rpartition("/")[0]
        return Operation(
            name, f"{folder}/{file}.ptx.j2", tile, lambda at: {**supply, "first": at.first}, **own
        )


def by_rows(role: WarpRole) -> dict[str, Any]:
    """How a role's threads fill a pipeline of rows that they make: `filled`."""
    return {"threads": role.threads, "arrive": "fenced"}


def _registers(element: int) -> dict[str, Extent]:
    """Registers of a schedule, and how many operations touch: S of half of a tile's keys, P of
    those as numbers of `element` bytes, some columns of O, which a load has by powers of two."""
    columns = [1 << n for n in range(3, (VALUES // 2).bit_length())]
    return {
        "s": exactly("registers", TILE // 2, "S: a row, half of a tile"),
        "p": exactly("registers", TILE // 2 * element // 4, "P of these keys"),
        "o": exactly("registers", columns, "columns that a load has"),
    }


def products(compute: str, pair: bool) -> tuple[Product, Product]:
    """Q K^T, and P V of 256 columns of values."""
    element = "fp8_e4m3" if compute == "fp8" else "bf16"
    form: dict[str, Any] = {"cta_group": 2} if pair else {"weights": True}
    form |= {"a": element, "b": element}
    rows = ROWS * (1 + pair)
    return Product(rows, TILE, **form), Product(rows, VALUES, b_major="mn", **form)


def _moves(order: Order, *, weighs: bool) -> dict[str, Any]:
    """What templates are told of where M lies."""
    reach = order.slack + order.bias
    return {
        "lifted": weighs and bool(order.bias),
        "bias": order.bias, "bias_bits": _fp32(order.bias),
        "reach": reach, "reach_bits": _fp32(reach),
    }  # fmt: skip


def _fp32(number: int) -> str:
    """A number as PTX writes its bits."""
    return f"0f{struct.pack('>f', number).hex().upper()}"


def check_roles(s: PipelineSpace, threads: Mapping[str, tuple[int, ...]]) -> None:
    """ScheduleError for roles with other threads than operations are written for: `threads` of
    those that are named, one of all others."""
    for role in s.roles:
        legal = threads.get(role.name, (1,))
        warps = -(-role.threads // 32)
        if role.threads not in legal or len(role.warps) != warps:
            raise ScheduleError(
                f"role {role.name!r} has {role.threads} threads, of {len(role.warps)} warps",
                hint=f"it has {listed(legal)}; one thread multiplies",
            )
