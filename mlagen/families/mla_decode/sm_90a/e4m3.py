"""MLA decode on Hopper with products of e4m3: the operations a schedule arranges.

One block computes a work item: up to 64 query rows of one sequence over a range of its keys, 64 a
tile. S = Q K^T over 576 columns. wgmma takes e4m3 from SMEM only along the products that it adds,
and rows of the cache lie across them for V. So O is kept transposed: O^T += V^T P^T, with V^T from
registers, which `ldmatrix` reads across the rows of K, and P in SMEM, a query row after another.

Two math warpgroups alternate: the left one has the scores of even tiles, the right one of odd ones.
Each has half of the columns of O, and multiplies the P of all tiles. A third one fetches keys.

`ldmatrix` gives a lane columns 2 g and 2 g + 1 (g = lane / 4) of keys 2 q and 2 q + 1 (q = lane %
4); a permutation of bytes of two such registers gives four keys of one column. So rows g and g + 8
of operand A, 16 a warp, are columns 2 g and 2 g + 1; and a lane's four bytes at 4 q of 16 are keys
2 q, 2 q + 1, 2 q + 8 and 2 q + 9. P has the same order, in which a lane's scores already are.

Softmax in base 2: P = exp2(c S - M), c = scale * log2(e). M begins at the first tile's largest
score, rounded up to 1/512, and moves by a whole number where a score is more than the slack above
it: alpha, which O and the row sum are multiplied by, is a power of two, and seldom not 1. M is
lower than it would be by the bias, and P larger, so that small ones are normal numbers of e4m3
(`latent.order`). Before that M is the lowest finite number: a tile that a row sees nothing of
leaves M, and its P is 0.

A lane has numbers of rows g and g + 8 of its warp's 16 query rows of S, but of O^T those of query
rows 8 j + 2 q and the next: alpha and the row sums go by way of SMEM.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.order import HOPPER_E4M3
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy
from mlagen.attention.latent.sm_90a.parts import parts_over
from mlagen.attention.latent.sm_90a.registers import FLOAT, ROW_MAJOR, SLOTS, registers
from mlagen.attention.latent.sm_90a.swap_ab.products import P_BITS, P_BYTES, maxima
from mlagen.dsl import (
    Access,
    Operation,
    PipelineOrder,
    RingTile,
    Tile,
    Value,
    bind,
    by,
    exactly,
    record,
    touched,
)
from mlagen.errors import ScheduleError, UnsupportedError
from mlagen.families.mla_decode.problem import ITEM_BYTES, MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.signature import SYMBOL, refuse_chunks, signature
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole, tiles_of
from mlagen.targets.nvidia.dsl.smem import Exchange, Scratch

BOX = 128  # columns of e4m3 in a row of a tile
STEP = 32  # products that an instruction adds
BLOCK = 64  # columns of O that an instruction has
WARPS = 4  # of a math role
OPERATION_FIELDS = {field.name for field in dataclasses.fields(Operation)}


@dataclasses.dataclass(frozen=True)
class Half:
    """What one math role writes: P of its tiles, and beside it alpha, M and whether any alpha is
    not 1; `written` and `read`: the other role may read it, and has."""

    role: WarpRole
    p: Scratch
    rows: Scratch
    written: Exchange
    read: Exchange
    sums: Exchange


class E4m3Decode:
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, K0 .. of the
    cache, `P left` and `P right`) and registers (o, s, p, v)."""

    def __init__(
        self,
        k: MlaDecodeConfig,
        s: PipelineSpace,
        left: WarpRole,
        right: WarpRole,
        feeder: WarpRole,
    ) -> None:
        _check_problem(k)
        _check_roles(left, right, feeder)
        self.k, self.roles, self.feeder, self.paged = k, (left, right), feeder, PagedCopy.of(k)
        tiles = s.smem.tiles.values()
        self.queries = [tile for tile in tiles if tile.tensor == "q"]
        self.columns = [tile for tile in tiles if tile.tensor == "cache"]
        boxes = -(-k.d_qk // BOX)
        tiles_of("Q", self.queries, boxes, rows=ROWS, slots=1)
        tiles_of("keys", self.columns, boxes, rows=TILE)
        names = (left.name, right.name)
        self.query = s.smem.pipeline(
            "query", *self.queries, producer=feeder.name, consumer=names, resident=True
        )
        self.keys = s.smem.pipeline(
            "keys", *self.columns, producer=feeder.name, consumer=names, releases=2 * WARPS
        )
        self.parts = parts_over(s, self.columns, ROWS, k.d_v, left, right)
        self.left = self._half(s, left, right)
        self.right = self._half(s, right, left)
        self.max_left = s.smem.exchange(
            "M left", ROWS * FLOAT, producer=left.name, consumer=right.name
        )
        self.supply: dict[str, Any] = {
            **registers(
                k, s, self.paged, slanted=k.causal and k.q_len > 1, converters=0, by_map=True,
                extents={"o": k.d_v // 4, "s": TILE // 2, "p": TILE // 8},
            ),
            "item": s.named("item", ".b64", 1, "work item of this block")[0],
            "values_at": s.named("values_at", ".b32", 1, "row of K and 16 columns that this lane "
                                 "reads of 32 keys")[0],
            "remaining": s.named("remaining", ".b32", 1, "keys left from the next tile of V on")[0],
            "k": k, "paged": self.paged, "item_bytes": ITEM_BYTES, "feeder": None,
            "persistent": False, "slanted": k.causal and k.q_len > 1, "float_bytes": FLOAT,
            "tile_rows": TILE, "queries": self.queries, "keys_": self.columns,
            "query": self.query, "box_columns": BOX, "p_bits": hex(P_BITS), "p_bytes": P_BYTES,
            **maxima(HOPPER_E4M3),
            "v": s.names("v", exactly("registers", k.d_v // 16, "V^T of a tile")),
            "row_floats": ROWS * FLOAT, "parts": self.parts,
        }  # fmt: skip
        s.signature = signature(k, s.roles[-1].warps.stop * 32, together=True)
        s.symbol, s.plain = SYMBOL, self._plain()
        bind(self.keys, self._mover)

    def _half(self, s: PipelineSpace, role: WarpRole, other: WarpRole) -> Half:
        name = role.name

        def to_other(what: str, size: int = 0) -> Exchange:
            return s.smem.exchange(what, size, producer=name, consumer=other.name)

        return Half(
            role,
            touched(s.smem.scratch(f"P of {name}", s.smem.tiles[f"P {name}"]),
                    exactly("bytes", ROWS * P_BYTES, "P of 64 query rows")),
            # alpha and M of each row, then a word of each warp
            s.smem.room(f"rows of {name}", 2 * ROWS * FLOAT + WARPS * FLOAT),
            to_other(f"P of {name} is there"),
            s.smem.exchange(
                f"P of {name} is read", 0, producer=other.name, consumer=name
            ),
            to_other(f"l of {name}", ROWS * FLOAT),
        )  # fmt: skip

    def _plain(self) -> PipelineOrder:
        """Without overlap: the left one's tile, then the right one's, and what each does with the
        other's P."""
        left, right, feeder = *(role.name for role in self.roles), self.feeder.name
        softmax = ("running_maximum", "exponent", "store_p")
        keys = self.keys.name

        def values(of: str) -> tuple[str, ...]:
            return f"rescale {of}", "load_values", f"pv {of}"

        return PipelineOrder(
            before=(*by(feeder, "setup"), *by(left, "setup", "clear"),
                    *by(right, "setup", "clear")),
            step=2,
            tiles=(
                *by(feeder, "load_queries"),
                *(part for tile in (0, 1) for part in by(feeder, f"copy {keys}", "next_page",
                                                         tile=tile)),
                *by(left, "await_keys", "qk", "row_maximum", *softmax),
                *by(left, *values(left), f"release {keys}"),
                *by(right, "qk", "row_maximum", tile=1),
                *by(right, "take_maximum", tile=0),
                *by(right, *softmax, tile=1),
                *by(right, *values(left), f"release {keys}", "is_read", tile=0),
                *by(right, *values(right), f"release {keys}", tile=1),
                *by(left, "take_maximum", *values(right), f"release {keys}", tile=1),
                *by(left, "wait_read", tile=0), *by(left, "is_read", tile=1),
                *by(right, "wait_read", tile=1),
            ),
            after=(*by(left, "store_sum"), *by(right, "store_sum", "finish"), *by(left, "finish")),
        )  # fmt: skip

    # ---- before the loop --------------------------------------------------------------------

    def setup(self, role: WarpRole) -> None:
        """Find this block's work item, its number of tiles, and where its first two tiles are."""
        self._record(
            "setup", None, role=role, fetches=role is self.feeder,
            count_from=(SLOTS - (role is self.roles[1])) * TILE,
            row_major_bits=hex(ROW_MAJOR), column_major_bits=hex(0),
        )  # fmt: skip

    def load_queries(self, tile: Tile) -> None:
        """Fetch the item's 64 rows of Q, once, with the first tile. Rows past the item's own are of
        others, or zero."""
        boxes = [(box, BOX * index) for index, box in enumerate(self.queries)]
        self._record("load_queries", tile, role=self.feeder, loads=[(self.query, boxes)],
                     shared="latent/load_queries", domain="first",
                     defines=(Value(self.query.name),))  # fmt: skip

    def clear(self) -> None:
        """Set O = 0, l = 0, M to the lowest finite number."""
        self._record("clear", None, shared="latent/clear", defines=(Value("O"), Value("l")))

    # ---- the feeder -------------------------------------------------------------------------

    def next_page(self, tile: Tile) -> None:
        """Look up where the tile lies that comes two after this one."""
        self._record("next_page", tile, role=self.feeder, index=tile.offset % SLOTS,
                     shared="latent/next_page")  # fmt: skip

    # ---- scores -----------------------------------------------------------------------------

    def await_keys(self, tile: Tile) -> None:
        """Wait for a tile's keys here: a wait spins, and a product that is in flight over a loop is
        waited for with all others."""
        self._record("await_keys", tile, shared="pipeline/nothing",
                     uses=(Value(self.keys.name, tile),))  # fmt: skip

    def qk(self, tile: Tile) -> None:
        """S = Q K^T."""
        self._record(
            "qk", tile, uses=(Value(self.keys.name, tile), Value(self.query.name)),
            defines=(Value("S"),), asynchronous=True,
        )  # fmt: skip

    def row_maximum(self, tile: Tile) -> None:
        """Mask S, and find each row's largest score of this tile."""
        self._record("row_maximum", tile, shared="latent/row_maximum", stride=SLOTS * TILE,
                     weights=None, uses=(Value("S"),),
                     defines=(Value("S"), Value("top")))  # fmt: skip

    def take_maximum(self, tile: Tile, half: Half) -> None:
        """Take the other role's M after `tile`, and rescale l."""
        early = half is self.left
        source = self.max_left if early else half.rows
        there = self.max_left if early else half.written
        self._record(
            "take_maximum", tile, at_=source.base + (0 if early else ROWS * FLOAT),
            uses=(*(() if early else (Value(half.rows.name, tile),)), Value(there.name, tile),
                  Value("l")),
            defines=(Value("M"), Value("l")),
        )  # fmt: skip

    def running_maximum(self, tile: Tile, half: Half) -> None:
        """Move M where a score is more than the slack above it; alpha, and l times that. The left
        role stores M for the right one."""
        stores = half is self.left
        self._record(
            "running_maximum", tile, exchange=self.max_left if stores else None,
            uses=(Value("top"), Value("M"), Value("l")),
            defines=(Value("M"), Value("alpha"), Value("l"),
                     *((Value(self.max_left.name, tile),) if stores else ())),
        )  # fmt: skip

    def exponent(self, tile: Tile) -> None:
        """P = exp2(c S - M) as e4m3, and row sums."""
        self._record("exponent", tile, uses=(Value("S"), Value("M"), Value("l")),
                     defines=(Value("S"), Value("P"), Value("l")))  # fmt: skip

    def store_p(self, tile: Tile, half: Half) -> None:
        """Store P, and alpha and M of its rows, for both roles."""
        self._record(
            "store_p", tile, half=half, role=half.role, joins=True, last=half is self.right,
            uses=(Value("P"), Value("alpha"), Value("M")),
            defines=(Value(half.p.name, tile), Value(half.rows.name, tile),
                     Value(half.written.name, tile)),
        )  # fmt: skip

    # ---- products of values -----------------------------------------------------------------

    def rescale(self, tile: Tile, half: Half, role: WarpRole) -> None:
        """O *= alpha of the tile, whose P `half` is."""
        self._record("rescale", tile, of=half.role.name, half=half, role=role,
                     uses=(Value(half.rows.name, tile), *self._there(tile, half, role),
                           Value("O")),
                     defines=(Value("O"),))  # fmt: skip

    def load_values(self, tile: Tile, role: WarpRole) -> None:
        """Read this role's columns of V as operand A; keys past the sequence's end as 0: P is 0
        there, but 0 * NaN is not."""
        self._record(
            "load_values", tile, shared="latent/load_values", counts=True, role=role,
            first_tile=self._first(role) // BOX,
            uses=(Value(self.keys.name, tile),), defines=(Value("V"),),
        )  # fmt: skip

    def pv(self, tile: Tile, half: Half, role: WarpRole) -> None:
        """O^T += V^T P^T."""
        self._record(
            "pv", tile, of=half.role.name, half=half, asynchronous=True, role=role,
            uses=(Value("V"), Value(half.p.name, tile), *self._there(tile, half, role)),
            defines=(Value("O"),),
        )  # fmt: skip

    def is_read(self, tile: Tile, half: Half) -> None:
        """Say that the product with the other role's P is done."""
        self._record("is_read", tile, shared="pipeline/nothing", uses=(Value("O"),),
                     defines=(Value(half.read.name, tile),))  # fmt: skip

    def wait_read(self, tile: Tile, half: Half) -> None:
        """Wait until the other role is done with this one's P, which the next tile's takes the
        place of."""
        self._record("wait_read", tile, shared="pipeline/nothing",
                     uses=(Value(half.read.name, tile),))  # fmt: skip

    def _there(self, tile: Tile, half: Half, role: WarpRole) -> tuple[Value, ...]:
        """What the other role waits for; the warps of the own one have met."""
        return () if half.role is role else (Value(half.written.name, tile),)

    def _first(self, role: WarpRole) -> int:
        """The first column of a role's half of V."""
        return self.roles.index(role) * self.k.d_v // 2

    # ---- after the loop ---------------------------------------------------------------------

    def store_sum(self, half: Half) -> None:
        """Store this role's row sums for the other one."""
        self._record("store_sum", None, shared="latent/store_sum", exchange=half.sums,
                     uses=(Value("l"),), defines=(Value(half.sums.name),))  # fmt: skip

    def finish(self, half: Half) -> None:
        """Store O / l of this role's columns, and LSE by the left one."""
        other = self.right if half is self.left else self.left
        self._record(
            "finish", None, shared="output/seesaw_qkv_fp8", role=half.role,
            left=half is self.left, own_sums=half.sums, other_sums=other.sums,
            first_column=self._first(half.role), joins=True,
            uses=(Value(other.sums.name), Value("O")),
            defines=(Value(self.parts.rooms[half.role.name].name),),
        )  # fmt: skip

    # ---- templates --------------------------------------------------------------------------

    def _mover(self, kind: str, tile: Tile) -> Operation:
        access = Access(kind, RingTile(self.keys.name, tile))  # type: ignore[arg-type]
        if kind == "release":
            freed = {"pipeline": self.keys}
            return Operation(kind, "pipeline/release.ptx.j2", tile, lambda at: freed,
                             access=access)  # fmt: skip
        index = tile.offset % SLOTS
        return self._operation(
            "copy", tile, role=self.feeder, access=access, pipeline=self.keys,
            places=self.supply["pages"][index], later=self.supply["ahead"][index],
        )  # fmt: skip

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(self._operation(name, tile, **more))

    def _operation(
        self, name: str, tile: Tile | None, *, shared: str = "", role: WarpRole | None = None,
        **more: Any,
    ) -> Operation:  # fmt: skip
        """`more`: fields of `Operation`; the rest are operands of the template. `shared`: a file
        that other kernels have too."""
        own = {field: more.pop(field) for field in OPERATION_FIELDS & more.keys()}
        supply = {**self.supply, **more, **({"role": role} if role else {})}
        return Operation(
            name, f"{shared or f'mla_decode/{name}'}.ptx.j2", tile, lambda at: supply,
            roles=(role.name,) if role else (), **own,
        )  # fmt: skip


def _check_problem(k: MlaDecodeConfig) -> None:
    """UnsupportedError for masks that there are no kernels for, and for pages that one thread
    cannot copy."""
    refuse_chunks(k)
    if k.page_size == 1:
        raise UnsupportedError(
            f"compute=fp8 with page_size={k.page_size} on sm_90a, and queries as rows of products",
            hint="page_size is 16, 32 or a multiple of 64, which TMA copies by box; compute=bf16 "
            "takes single rows, and so do keys as rows, of up to 32 query rows",
        )


def _check_roles(left: WarpRole, right: WarpRole, feeder: WarpRole) -> None:
    """ScheduleError for roles with other threads than operations are written for."""
    for role in (left, right, feeder):
        threads = 1 if role is feeder else 32 * WARPS
        if role.threads != threads:
            raise ScheduleError(
                f"role {role.name!r} has {role.threads} threads",
                hint="each half of the output has one warpgroup; one thread fetches keys",
            )
