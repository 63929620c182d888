"""What the parts of a kernel share: its problem, its roles, its tiles, and how they record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlagen.attention.latent.nvidia.recording import Recording
from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS, own_registers, registers
from mlagen.dsl import Operation, Tile
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole, tiles_of
from mlagen.targets.nvidia.dsl.smem import TmaTile


@dataclass(frozen=True, slots=True)
class SeesawNumbers:
    """What math roles multiply. `type` of the numbers that come; `reads_queries`: the template that
    brings Q to SMEM, ""; that of its dtype; `told`: bytes that a role tells the other beside its
    maxima; `sums_over_maxima`: row sums have the place of these in the end."""

    type: str
    reads_queries: str = ""
    told: int = 0
    sums_over_maxima: bool = False


BF16 = SeesawNumbers("bf16")
OF_GRAINS = SeesawNumbers("f16", "lift_queries", told=FLOAT, sums_over_maxima=True)


@dataclass(frozen=True, slots=True)
class SeesawKnobs:
    """How a problem is decoded. `boxes` tiles of 64 columns share a barrier. `held` tiles of 64
    columns of Q, the rotary part among them, are operands in registers, the others in SMEM.
    `refill`: when the left warpgroup fetches its even tile. `ahead`: passes ahead that tiles are
    brought to the L2 cache. `evict`: "first" of that cache go rows that were copied by box, or as
    any others ("normal"). `persistent`: a block does one item after another, and fetches the next
    one's Q and first tiles in an item's last pass. `feeders`: warpgroups that fetch listed rows,
    or make bf16 of e4m3. `gathered`: listed rows are bf16. `grained`: numbers of rows are f16, in
    multiples of a key's grain. `together`: pieces of stored rows that are fetched at once."""

    boxes: int
    held: int
    refill: Literal["early", "late"] = "late"
    ahead: int = 0
    evict: Literal["normal", "first"] = "normal"
    persistent: bool = False
    feeders: int = 0
    gathered: bool = False
    grained: bool = False
    together: int = 1


@dataclass
class SeesawKernel(Recording):
    """`left` and `right`: the math roles; `feeder`: one that fetches or converts rows for both.
    Tiles (Q0 .. of the tensor q, K0 .. of the cache) and registers (o, s, p, qr) are the
    schedule's; tiles of the cache that are V come first."""

    left: WarpRole
    right: WarpRole
    feeder: WarpRole | None
    knobs: SeesawKnobs
    form: Form

    def __post_init__(self) -> None:
        self._check()
        k, s = self.k, self.s
        s.persistent = "ahead" if self.persistent else ""
        s.signature, s.symbol = self.form.signature, self.form.symbol
        self.paged = PagedCopy.of(k)
        # Whether rows of a block see different keys: those of several tokens.
        self.slanted = k.causal and k.q_len > 1
        self.parts, self.value_parts = k.d_qk // COLUMNS, k.d_v // COLUMNS
        self.queries = [tile for tile in s.smem.tiles.values() if tile.tensor == "q"]
        self.keys = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"]
        tiles_of("Q", self.queries, self.parts, rows=ROWS, slots=1)
        tiles_of("keys", self.keys, self.parts, rows=TILE, slots=SLOTS)
        threads = self.feeder.threads if self.feeder else 0
        in_place = not (self.form.stored or self.knobs.gathered)
        extents = {"o": k.d_v // 4, "s": TILE // 2, "p": TILE // 4,
                   "qr": self.knobs.held * COLUMNS // 4}  # fmt: skip
        self.context |= {
            **registers(k, s, self.paged, slanted=self.slanted, extents=extents,
                        converters=threads if in_place else 0,
                        by_map=self.reads_queries == "load_queries"),
            "feeder": self.feeder, "k": k, "paged": self.paged, "item_bytes": self.form.item_bytes,
            "persistent": self.persistent, "slanted": self.slanted, "float_bytes": FLOAT,
            "tile_rows": TILE, "evict": self.knobs.evict, "stored": self.form.stored,
            "gathered": self.knobs.gathered, "values_of": self.numbers.type, "f16_tiles": 0,
            "largest": "", "factors": None, **own_registers(s, self.form), **self.form.operands,
        }  # fmt: skip

    def _check(self) -> None:
        """ScheduleError for roles with other warps than operations are written for, and for knobs
        that no tile fits."""
        for role, groups in ((self.left, (1,)), (self.right, (1,)), (self.feeder, (1, 2))):
            if role and (role.single or len(role.warps) not in [4 * n for n in groups]):
                raise ScheduleError(
                    f"role {role.name!r} has {role.threads} threads, of {len(role.warps)} warps",
                    hint="each half of the output has one warpgroup; one or two convert e4m3 to "
                    "bf16",
                )
        boxes, held, k = self.knobs.boxes, self.knobs.held, self.k
        if boxes < 1 or not 1 <= held <= k.d_qk // COLUMNS - k.d_v // COLUMNS // 2:
            raise ScheduleError(
                f"boxes={boxes}, held={held}",
                hint="a barrier covers one tile or more; registers hold the last one or more of Q",
            )

    @property
    def roles(self) -> tuple[WarpRole, WarpRole]:
        return self.left, self.right

    @property
    def names(self) -> tuple[str, str]:
        """Of the math roles."""
        return self.left.name, self.right.name

    @property
    def feeding(self) -> WarpRole:
        """The feeder of rows that no math role fetches."""
        assert self.feeder
        return self.feeder

    @property
    def persistent(self) -> bool:
        return self.knobs.persistent

    @property
    def numbers(self) -> SeesawNumbers:
        return OF_GRAINS if self.knobs.grained else BF16

    @property
    def reads_queries(self) -> str:
        """The template that brings Q to SMEM."""
        own = "load_queries" if self.k.dtype == "bf16" else "read_queries"
        return self.numbers.reads_queries or own

    def boxes(self, columns: Pipeline, tiles: tuple[TmaTile, ...] = ()) -> Any:
        """Tiles of some columns, their own or others, with the first column of each."""
        return [
            (tile, COLUMNS * self.keys.index(column))
            for tile, column in zip(tiles or columns.tiles, columns.tiles, strict=False)
        ]

    def _operation(self, template: str, tile: Tile | None, more: Mapping[str, Any]) -> Operation:
        """Of a shared template, or of the family's own; `role`: only that one records it."""
        role = more.get("role")
        shared = template if "/" in template else f"latent/{template}"
        own = self.form.templates.get(template, shared)
        return super()._operation(own, tile, {**more, "roles": (role.name,) if role else ()})
