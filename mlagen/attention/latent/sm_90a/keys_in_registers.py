"""MLA of few query rows over rows of e4m3 on Hopper, keys as rows and in registers: the operations
a schedule arranges.

As `keys_as_rows`, but a thread keeps the e4m3 numbers of its own two keys of the next tile, those
whose scores it will have, and makes of them the operand A of S^T = K Q^T: 16 keys a warp, rows
lane / 4 and 8 further. The same bf16 numbers go to SMEM, where O^T += V^T P^T reads them: columns
that are no value never do. The tile after it is loaded as soon as a register is free.

A lane loads 16 bytes of each 64 columns, 16 (lane % 4) .. of them. Step j of these columns takes
bytes 4 j .. 4 j + 3: so its 16 columns are four of each lane of a row, and Q lies in SMEM in that
order of columns (`latent.order`). V has the same, and O^T's rows with it, until `finish` stores
them.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.order import keys_in_registers
from mlagen.attention.latent.sm_90a.keys_as_rows import KeysAsRows
from mlagen.dsl import PipelineOrder, Tile, Value, by, exactly
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import PipelineSpace, tiles_of

OWN_KEYS = 2  # of a thread
SETS = 2  # of operands A, in turn
FRAGMENT = 16  # registers of operand A over 64 columns


class KeysInRegisters(KeysAsRows):
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, and for each
    64 columns of V0 .. one of 64 keys) and registers (o, s, raw, and a: operands A, in turn)."""

    held = True
    groups = 1
    fetched = OWN_KEYS
    reads_queries = "spread_queries"

    def __init__(self, *given: Any, products: int) -> None:
        """As `KeysAsRows`; O^T is computed in so many `products`, each of some of its rows."""
        self.products = products
        super().__init__(*given)

    def _tiles(self, s: PipelineSpace) -> None:
        name = self.math.name
        values = [tile for tile in s.smem.tiles.values() if tile.tensor == "cache"]
        if not self.stored or len(values) * COLUMNS != self.k.d_v or values[0].rows != TILE:
            raise ScheduleError(
                f"{len(values)} tiles of values, rows of {'e4m3' if self.stored else 'bf16'}",
                hint=f"rows of e4m3, and a tile of {TILE} keys for each {COLUMNS} columns of V",
            )
        tiles_of("values", values, self.k.d_v // COLUMNS, rows=TILE, slots=1)
        self.keys = [[tile] for tile in values]
        self.query = s.smem.pipeline(
            "query", *self.queries, producer=name, consumer=name, resident=True,
            producer_threads=self.math.threads,
        )  # fmt: skip
        self.cache = ()
        self.values = [s.smem.scratch(f"values {n}", tile) for n, tile in enumerate(values)]

    @property
    def _raw_sizes(self) -> list[int]:
        assert self.stored
        return [OWN_KEYS * self.stored.words]

    def _registers(self, s: PipelineSpace) -> dict[str, Any]:
        found = super()._registers(s)
        found["a"] = s.names("a", exactly("registers", SETS * FRAGMENT, "operands A"))
        for name, type, count, why in (
            ("src", ".b64", OWN_KEYS, "where this thread's numbers of the next rows begin"),
            ("found", ".pred", OWN_KEYS, "whether they are rows"),
            ("seen", ".pred", OWN_KEYS, "whether those of this tile are"),
            *self._next_registers(),
        ):
            found[name] = s.named(name, type, count, why)
        why = "where this lane's part of a row lies in 64 keys of 64 columns"
        found["lane_at"] = s.named("lane_at", ".b32", 1, why)[0]
        found["stop"] = s.named("stop", ".b32", 1, "the tile after this block's last")[0]
        found["positions_first"] = self.positions_first
        return found

    def _more_registers(self) -> list[tuple[str, str, int, str]]:
        more = super()._more_registers()
        return [one for one in more if one[0] != "key"]

    def _next_registers(self) -> list[tuple[str, str, int, str]]:
        """What scores and P of the next tile's keys need besides the rows themselves. It is loaded
        with the rows: whatever is loaded later ptxas makes wait for them, too."""
        assert self.stored
        found = []
        if self.stored.scales == "key":
            found.append(("next_sigma", ".f32", OWN_KEYS, "scales of the next tile's two keys"))
        return found

    @property
    def boxes(self) -> list[int]:
        """Columns, by 64, in the order in which they are added up: first those that are no values,
        or else the last ones, then the values' first half and their second one."""
        return list(keys_in_registers(self.k.d_qk).boxes)

    def part(self, part: int) -> list[int]:
        """Values by 64 columns, of the parts that are products of their own: in the order in which
        their places are stored to."""
        values = [box for box in self.boxes if self.valued(box)]
        each = len(values) // self.products
        return sorted(values[part * each : (part + 1) * each])

    def converted(self, box: int) -> bool:
        """Whether columns are e4m3; the others are bf16 in memory."""
        assert self.stored
        return box < self.stored.boxes

    def valued(self, box: int) -> bool:
        """Whether columns are values."""
        return box * COLUMNS < self.k.d_v

    def _plain(self) -> PipelineOrder:
        assert self.stored
        parts: list[str] = []
        for box in self.boxes:
            parts += [*self._before(box), f"convert {box}", f"qk {box}"]
            parts += [f"store_values {box}"] if self.valued(box) else []
            parts.append(f"fetch {box}")
        parts += self._before(None)
        parts += ["fetch_scales"] if self._more_than_rows else []
        early, late = (parts, []) if self.places_kept else ([], parts)
        return PipelineOrder(
            before=by(self.math.name, "setup", "clear", "fetch_first"),
            tiles=by(
                self.math.name, "load_queries", "locate", "look_up",
                *(f"free_values {part}" for part in range(self.products)), *early,
                *self._listing, *late, "softmax", "rescale",
                *(f"pv {part}" for part in range(self.products)),
            ),
            after=by(self.math.name, "store_sum", *self._at_last, "finish"),
        )  # fmt: skip

    def _before(self, box: int | None) -> list[str]:
        """Operations of the plain order before the products of 64 columns, None: after all."""
        return []

    _at_last: tuple[str, ...] = ()  # before the output is stored

    # ---- rows of the next tile --------------------------------------------------------------

    def fetch_first(self) -> None:
        """Load the first tile's numbers, and what rows the second one has."""
        self._record(
            "fetch_first", None, every=[self._numbers(box) for box in self.boxes],
            defines=tuple(Value(name) for box in self.boxes for name in self._raw(box)),
        )  # fmt: skip

    def locate(self, tile: Tile) -> None:
        """Find where the rows of the tile after `tile` lie."""
        self._record("locate", tile)

    def fetch_after(self, tile: Tile, box: int) -> None:
        """Load 64 columns of the tile after `tile`, in the place of its own."""
        self._record(
            "fetch", tile, of=str(box), template="fetch_box", numbers=self._numbers(box),
            defines=tuple(Value(name) for name in self._raw(box)),
        )  # fmt: skip

    def fetch_scales(self, tile: Tile) -> None:
        """Load what the tile after `tile` needs besides its rows: scales, of columns or of keys."""
        if self._more_than_rows:
            self._record("fetch_scales", tile)

    @property
    def _more_than_rows(self) -> bool:
        assert self.stored
        return self.stored.scales == "blocks" or bool(self._next_registers())

    @property
    def places_kept(self) -> bool:
        """Whether scales lie elsewhere than rows: then it takes places of rows to load them."""
        assert self.stored
        return self.stored.scales != "none" and self.stored.scales_at is None

    def take_second(self, tile: Tile) -> None:
        """Where rows are fetched whole, take a part of them; here loads are on their way."""

    def take_first(self, tile: Tile) -> None:
        """The same, of the others."""

    def look_ahead(self, tile: Tile, *, when: bool) -> None:
        """Load which rows the second tile after `tile` has, or where positions come first, these.
        `when`: or elsewhere."""
        if when:
            self._record("look_ahead", tile)

    def list_seen(self, tile: Tile, *, when: bool) -> None:
        """Where positions come first, load which rows the second tile after `tile` has. `when`: or
        elsewhere."""
        if when and self.positions_first:
            self._record("list_seen", tile)

    @property
    def positions_first(self) -> bool:
        """Whether a list is loaded of keys that the token sees, once their positions are there: so
        both share registers, of which sums of columns leave the fewest."""
        return bool(self.form.operands["causal"]) and self.scaled_sums

    @property
    def _listing(self) -> tuple[str, ...]:
        return ("look_ahead", "list_seen") if self.positions_first else ("look_ahead",)

    # ---- a tile -----------------------------------------------------------------------------

    def convert(self, tile: Tile, box: int) -> None:
        """Make operand A of 64 columns: bf16, times the scales that columns have. Those that are
        bf16 in memory are only put in order: an operand has its two keys' numbers in turn."""
        self._record(
            "convert", tile, of=str(box), numbers=self._numbers(box), box=box,
            template="fragments" if self.converted(box) else "order_fragments",
            a=self._operands(box), uses=tuple(Value(name) for name in self._raw(box)),
            defines=(Value(self._operand(box)),),
        )  # fmt: skip

    def qk_of(self, tile: Tile, box: int) -> None:
        """S^T += K Q^T over 64 columns; the first ones set it."""
        self._products(tile, box, "S", sums=self.supply["s"], products_of="bf16",
                       overwrites=box == self.boxes[0])  # fmt: skip

    def _products(self, tile: Tile, box: int, name: str, **more: Any) -> None:
        """Sums `name` of the products of 64 columns."""
        self._record(
            "qk", tile, of=str(box), template="qk_registers", a=self._operands(box),
            query_tile=self.queries[box],
            uses=(Value(self._operand(box)), Value(self.query.name)),
            defines=(Value(name),), asynchronous=True, **more,
        )  # fmt: skip

    def add_group(self, tile: Tile, before: int | None) -> None:
        """Where scales multiply sums of columns, this does; here they multiply each number."""

    def undo(self) -> None:
        """Nothing was multiplied that has to be undone."""

    def free_values(self, tile: Tile, part: int, *, before: int | None = None) -> None:
        """Wait until the product before is done with a part of its values, in all warps. `before`:
        the first 64 columns of them are these; otherwise that is done elsewhere."""
        if before is not None and before != self.part(part)[0]:
            return
        self._record(
            "free_values", tile, of=str(part), joins=True,
            defines=tuple(Value(self.values[box].name, tile) for box in self.part(part)),
        )  # fmt: skip

    def store_values(self, tile: Tile, box: int) -> None:
        """Store 64 columns of V to SMEM, where they are values."""
        if not self.valued(box):
            return
        scratch = self.values[box]
        self._record(
            "store_values", tile, of=str(box), place_=scratch.base, a=self._operands(box),
            uses=(Value(self._operand(box)),), defines=(Value(scratch.name, tile),),
        )  # fmt: skip

    def pv_of(self, tile: Tile, part: int) -> None:
        """O^T += V^T P^T, a part of the rows of O^T."""
        self._record(
            "pv", tile, of=str(part), group=0, parts=self.part(part), asynchronous=True,
            uses=(Value(self.p.name, tile),
                  *(Value(self.values[box].name, tile) for box in self.part(part))),
            defines=(Value("O"),),
        )  # fmt: skip

    # ---- registers --------------------------------------------------------------------------

    def _numbers(self, box: int) -> dict[str, Any]:
        """Of 64 columns, `at` some byte of a row: registers of each of this thread's two keys, 16
        bytes of each after another."""
        assert self.stored
        count = 4 if self.converted(box) else 8
        first = OWN_KEYS * (4 * min(box, self.stored.boxes) + 8 * max(box - self.stored.boxes, 0))
        raw = self.supply["raw"][first : first + OWN_KEYS * count]
        return {
            "words": [raw[:count], raw[count:]], "at": self.stored.byte_of(COLUMNS * box),
            "narrow": self.converted(box),
        }  # fmt: skip

    def _raw(self, box: int) -> tuple[str, ...]:
        """What the numbers of 64 columns are called."""
        return (f"raw {box}",)

    def _operand(self, box: int) -> str:
        """What operand A of 64 columns is called."""
        return f"a {self._turn(box)}"

    def _turn(self, box: int) -> int:
        """The registers that 64 columns have as an operand."""
        return self.boxes.index(box) % (len(self.supply["a"]) // FRAGMENT)

    def _operands(self, box: int) -> list[list[str]]:
        """Operand A of four steps: two keys' columns, then the two next columns of both."""
        first = FRAGMENT * self._turn(box)
        a = self.supply["a"][first : first + FRAGMENT]
        return [a[n : n + 4] for n in range(0, FRAGMENT, 4)]
