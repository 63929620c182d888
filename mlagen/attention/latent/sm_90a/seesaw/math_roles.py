"""What the two math warpgroups do with rows in SMEM: scores, softmax and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.sm_90a.plain import plain_order
from mlagen.attention.latent.sm_90a.registers import COLUMN_MAJOR, FLOAT, ROW_MAJOR, SLOTS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.attention.latent.sm_90a.seesaw.output import SeesawOutput
from mlagen.attention.latent.sm_90a.seesaw.queries import SeesawQueries, names
from mlagen.attention.latent.sm_90a.seesaw.rows import SeesawRows
from mlagen.dsl import PipelineOrder, Tile, Value
from mlagen.targets.nvidia.dsl import Pipeline, WarpRole
from mlagen.targets.nvidia.dsl.smem import Exchange, Scratch


class Seesaw:
    """The operations of a kernel whose rows come as the part `rows`, a class, brings them.

    `left` and `right`: pipelines of the columns that the left warpgroup refills (0..255), and of
    those that the right one does. What a feeder does is in `rows`, what an item begins and ends
    with in `queries` and `output`."""

    def __init__(self, kernel: SeesawKernel, rows: Callable[[SeesawKernel], SeesawRows]) -> None:
        self.kernel, self._record, s = kernel, kernel.record, kernel.s
        self.queries, self.output = SeesawQueries(kernel), SeesawOutput(kernel)
        self.rows = rows(kernel)
        self.left, self.right = self.rows.left, self.rows.right
        left, right = kernel.names
        size = ROWS * TILE * 2
        self.p_left = s.smem.exchange("P left", size, producer=left, consumer=right)
        # By then the rotary part of Q is in registers.
        self.p_right = s.smem.exchange(
            "P right", size, producer=right, consumer=left, over=kernel.queries[-1]
        )
        maxima = ROWS * FLOAT + kernel.numbers.told
        self.max_left = s.smem.exchange("M left", maxima, producer=left, consumer=right)
        self.max_right = s.smem.exchange("M right", maxima, producer=right, consumer=left)
        self.output.exchanges(self.max_left, self.max_right)
        # Columns of one wgmma of P V: ptxas holds each instruction to what a thread starts with,
        # and 512 threads start with 128 registers.
        self.at_once = 256 if kernel.threads <= 384 else 128
        s.plain = self._plain()

    def _plain(self) -> PipelineOrder:
        """The order that the schedule rearranges."""
        kernel, rows = self.kernel, self.rows
        return plain_order(
            rows.fetched(self.left, kernel.left), rows.fetched(self.right, kernel.right),
            feeder=kernel.feeder.name if kernel.feeder else "", does=rows.does,
            zeroes_tail=rows.zeroes_tail, scales=rows.loads_scales, persistent=kernel.persistent,
            queries=[f"load_queries {names(some)}" for some in self.queries.loads],
        )  # fmt: skip

    # ---- before the loop --------------------------------------------------------------------

    def setup(self, role: WarpRole) -> None:
        """Find this block's work item, its number of tiles and where its first two tiles are, or
        its work items, where it has several."""
        several, keys = self.kernel.persistent, self.kernel.keys
        apart = keys[1].base - keys[0].base  # bytes between neighbouring columns of tiles
        self._record(
            "setup_block" if several else "setup", None, name="setup", role=role,
            row_major_bits=hex(ROW_MAJOR), column_major_bits=hex(COLUMN_MAJOR | apart // 16 << 16),
            **({} if several else self._counted(role)),
        )  # fmt: skip

    def _counted(self, role: WarpRole) -> dict[str, Any]:
        """What an item's setup needs. `row_maximum` counts down before it compares."""
        return {"count_from": (SLOTS - (role is self.kernel.right)) * TILE,
                "fetches": self.rows.looks_up(role)}  # fmt: skip

    def begin(self, role: WarpRole) -> None:
        """Begin the item that was looked up ahead, where a block has several."""
        if self.kernel.persistent:
            self._record("begin", None, role=role)

    def next_item(self, tile: Tile, role: WarpRole) -> None:
        """Load the record of the next work item, where a block has several."""
        self._seek("next_item", tile, role)

    def next_keys(self, tile: Tile, role: WarpRole) -> None:
        """Load how many keys the next item has and where its first two tiles are."""
        self._seek("next_keys", tile, role, **self._counted(role))

    def next_tiles(self, tile: Tile, role: WarpRole) -> None:
        """Compute how many tiles the next item has. Tiles fetched from here on are that item's."""
        self._seek("next_tiles", tile, role, **self._counted(role))

    def _seek(self, name: str, tile: Tile, role: WarpRole, **more: Any) -> None:
        if self.kernel.persistent:
            self._record(name, tile, role=role, domain="first", ahead="seeks", **more)

    def clear(self) -> None:
        """Set O = 0, l = 0, M to the lowest finite number: what a sequence without keys leaves."""
        self._record("clear", None, defines=(Value("O"),))

    # ---- scores -----------------------------------------------------------------------------

    def qk(self, tile: Tile, half: tuple[Pipeline, ...], *, first: bool) -> None:
        """S = Q K^T over the columns of `half`, a group a pipeline; `first`: S starts here."""
        query = self.queries.query
        for pipeline in half:
            begins = first and pipeline is half[0]
            self._record(
                "qk", tile, tiles_=[(self.kernel.keys.index(t), t) for t in pipeline.tiles],
                queries=query.tiles, overwrites=begins, of=pipeline.name + ", first" * begins,
                uses=(Value(pipeline.name, tile), Value(query.name), Value("Q held")),
                defines=(Value("S"),), asynchronous=True,
            )  # fmt: skip

    def take_left_maximum(self, tile: Tile) -> None:
        """Take the left warpgroup's maximum after `tile`: set alpha, and rescale l."""
        self._record("take_maximum", tile, name="take_left_maximum",
                     exchange=self.max_left, scores=False,
                     uses=(Value(self.max_left.name, tile), Value("l")),
                     defines=(Value("alpha"), Value("l")))  # fmt: skip

    def take_right_maximum(self, tile: Tile) -> None:
        """Take the right warpgroup's maximum after `tile`: set alpha, and rescale l and P."""
        self._record("take_maximum", tile, name="take_right_maximum",
                     exchange=self.max_right, scores=True,
                     uses=(Value(self.max_right.name, tile), Value("S")),
                     defines=(Value("alpha"), Value("l"), Value("S")))  # fmt: skip

    def row_maximum(self, tile: Tile) -> None:
        """Multiply S by the rows' scales, mask it, and find each row's maximum over this tile."""
        (weights, scales), (counts, seen) = self._of_keys(tile)
        self._record("row_maximum", tile, stride=SLOTS * TILE, weights=weights, counts=counts,
                     uses=(Value("S"), *seen, *scales),
                     defines=(Value("S"), Value("top")))  # fmt: skip

    def running_maximum(self, tile: Tile, exchange: Exchange, *, fresh: bool) -> None:
        """Update the running maximum and alpha, and store the maximum for the other warpgroup.
        `fresh`: alpha starts here; otherwise it already has the factor of the other's maximum."""
        self._record("running_maximum", tile, exchange=exchange, fresh=fresh,
                     uses=(Value("top"),), of=exchange.name + ", fresh" * fresh,
                     defines=(Value("alpha"), Value("l"), Value(exchange.name, tile)))  # fmt: skip

    def exponent(self, tile: Tile) -> None:
        """Compute P = exp2(c S - c M) in place of S, and row sums; multiply P by the rows' scales
        and round it to bf16 as operand A."""
        (weights, scales), _ = self._of_keys(tile)
        self._record("exponent", tile, weights=weights,
                     uses=(Value("S"), Value("alpha"), *scales),
                     defines=(Value("S"), Value("P"), Value("l")))  # fmt: skip

    def rescale(self, tile: Tile) -> None:
        """O *= alpha."""
        self._record("rescale", tile, uses=(Value("alpha"), Value("O")), defines=(Value("O"),))

    # ---- products ---------------------------------------------------------------------------

    def zero_tail(self, tile: Tile, role: WarpRole) -> None:
        """Set rows past the sequence's end to 0 in SMEM: P is 0 there, but 0 * NaN is not."""
        if not self.rows.zeroes_tail:
            return
        rows = tuple(Value(columns.name, tile) for columns in (*self.left, *self.right))
        self._record("zero_tail", tile, keys=self.kernel.keys[: self.kernel.value_parts], role=role,
                     uses=rows, defines=rows, joins=True, guarded=True)  # fmt: skip

    def store_p(self, tile: Tile, exchange: Exchange) -> None:
        """Store P as bf16 to SMEM, for the other warpgroup."""
        packed = exchange is self.p_right  # as operand A has it, otherwise rounded again
        self._record("store_p", tile, exchange=exchange, packed=packed, of=exchange.name,
                     uses=(Value("P" if packed else "S"),),
                     defines=(Value(exchange.name, tile),))  # fmt: skip

    def pv(self, tile: Tile, half: tuple[Pipeline, ...], exchange: Exchange | None = None) -> None:
        """O += P V over the columns of `half`, one group; P comes from registers, or from the
        other's exchange."""
        keys, count = self.kernel.keys, self.kernel.value_parts
        held = [t for p in half for t in p.tiles if keys.index(t) < count]
        first = keys.index(held[0]) % (count // 2)
        each = COLUMNS // 2  # accumulators of 64 columns
        source = Value(exchange.name, tile) if exchange else Value("P")
        self._record(
            "pv", tile, exchange=exchange, values=held, columns=COLUMNS * len(held),
            of=f"{exchange.name if exchange else 'P'}, {self._columns_of(half)}",
            o=self.kernel.context["o"][each * first : each * (first + len(held))],
            steps=TILE // 16, at_once=min(COLUMNS * len(held), self.at_once),
            uses=(source, *(Value(p.name, tile) for p in half if set(p.tiles) & set(held))),
            defines=(Value("O"),), asynchronous=True,
        )  # fmt: skip

    def late_arrive(self, tile: Tile, exchange: Exchange) -> None:
        """Delay the arrival of `exchange` to this place: this role's products are issued by now, so
        the reader's come after them in the matrix pipe."""
        self._record("pipeline/nothing", tile, name="late_arrive",
                     defines=(Value(exchange.name, tile),))  # fmt: skip

    def refill(self, half: tuple[Pipeline, ...], tile: Tile, *, when: bool = True) -> None:
        """Fetch the columns of `half` of `tile`, or give their place back to the one who does.
        `when`: what a knob says; otherwise that stands elsewhere."""
        if when:
            self.rows.refill(half, tile)

    def _of_keys(self, tile: Tile) -> list[tuple[Scratch | None, tuple[Value, ...]]]:
        """What keys of the tile are multiplied by, and which of them count: where that lies, and
        the value that its users name; nothing, where there is none."""
        rooms = [of[tile.offset % SLOTS] if of else None
                 for of in (self.rows.weights, self.rows.counts)]  # fmt: skip
        return [(room, (Value(room.name, tile),) if room else ()) for room in rooms]

    def _columns_of(self, half: tuple[Pipeline, ...]) -> str:
        """How operations and the plain order name some columns of the cache."""
        known = {id(self.left): "left columns", id(self.right): "right columns"}
        return known.get(id(half), names(half))
