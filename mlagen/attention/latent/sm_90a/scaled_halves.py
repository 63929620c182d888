"""MLA of many query rows over rows of e4m3 whose columns have scales, on Hopper: no number of a key
is rounded.

As `FedSeesaw`, but of a scale only the power of two goes into the numbers, which bf16 holds
exactly. The rest, 1 to 2, multiplies sums. S is computed one group of columns after another, and
multiplied in between by the rest of this group over that of the next one, so that one accumulator
is enough; then the columns follow that have no scale. P times the rest of each group of values is
rounded to bf16, once, a P for each group: two go to registers, and two to SMEM for the other
warpgroup. One has a room of its own; the others lie over the columns of both tiles that are no
values, whose products are over by then. So Q's last columns stay in SMEM.

The feeder's warps compute the quotients, a group each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.sm_90a.fed import FedSeesaw
from mlagen.attention.latent.sm_90a.plain import weighed_order
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS
from mlagen.dsl import PipelineOrder, Tile, Value
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace, WarpRole, acquire, release
from mlagen.targets.nvidia.dsl.smem import Exchange, Scratch, TmaTile

GROUPS = LANES  # of columns that share a scale: a half of the output's has two
TURNS = ((0, 1, 2, 3), (2, 3, 0, 1))  # groups, in the order of scores, of even and odd tiles
FIRST_ROOMS = 2  # of quotients that fit between barriers and P


def has_scaled_halves(stored: RowForm | None) -> bool:
    """Whether scales of columns can multiply sums: four groups of columns, which are the values, in
    front of others."""
    return stored is not None and stored.blocks == GROUPS and stored.rope > 0 and (
        stored.block % COLUMNS == 0 and not stored.paged_exponents
    )  # fmt: skip


class ScaledHalves(FedSeesaw):
    """The operations of one kernel, as `FedSeesaw`."""

    def _tiles(self, s: PipelineSpace, boxes: int) -> None:
        super()._tiles(s, boxes)
        self.space = s
        self.rests = [self._room(n) for n in range(FIRST_ROOMS)]

    def _room(self, n: int) -> Scratch:
        return self.space.smem.room(f"quotients {n // GROUPS} {n % GROUPS}", TILE * FLOAT)

    def _columns(self, s: PipelineSpace, role: WarpRole, tiles: list[TmaTile]) -> Pipeline:
        if self.keys.index(tiles[0]) < self.value_parts:
            return super()._columns(s, role, tiles)
        # P of both warpgroups lie there: either gives it back.
        assert self.feeder
        return s.smem.pipeline(
            f"cache {self.keys.index(tiles[0])}", *tiles, producer=self.feeder.name,
            consumer=tuple(r.name for r in self.roles), producer_threads=self.feeder.threads,
            by_warps="fenced" if self.blocks == 1 else "for all",
            releases=sum(len(r.warps) for r in self.roles),
        )  # fmt: skip

    def _exchanges(self, s: PipelineSpace) -> None:
        left, right = (role.name for role in self.roles)
        size, rows = ROWS * TILE * 2, ROWS * FLOAT
        last = self.keys[self.value_parts]
        even, odd = (
            replace(last, name=f"{last.name} {n}", slots=1, base=last.slot_base(n))
            for n in range(SLOTS)
        )
        self.p_left = s.smem.exchange("P left", size, producer=left, consumer=right)
        # Scores of the odd tile are done when the right one has taken M, and those of the even one
        # when it was stored. What the left one has read it may write over.
        self.p_right, self.p_right_2 = (
            s.smem.exchange(name, size, producer=right, consumer=left, over=place)
            for name, place in (("P right", odd), ("P right 2", even))
        )
        self.p_left_2 = s.smem.exchange(
            "P left 2", size, producer=left, consumer=right, over=self.p_right
        )
        self.max_left = s.smem.exchange("M left", rows, producer=left, consumer=right)
        self.max_right = s.smem.exchange("M right", rows, producer=right, consumer=left)
        # Who stores sums has read the other one's last M.
        self.sum_left = s.smem.exchange(
            "l left", rows, producer=left, consumer=right, over=self.max_right
        )
        self.sum_right = s.smem.exchange(
            "l right", rows, producer=right, consumer=left, over=self.max_left
        )
        self.read = None
        self.rests += [self._room(n) for n in range(FIRST_ROOMS, SLOTS * GROUPS)]

    def _feeding(self, s: PipelineSpace) -> dict[str, Any]:
        found = super()._feeding(s)
        found["rest"] = s.named("rest", ".f32", 2, "two of the scales of a key")
        found["sums_scaled"] = True
        return found

    def _plain(self) -> PipelineOrder:
        assert self.feeder
        names = [[p.name for p in half] for half in (self.left, self.right)]
        return weighed_order(
            self.roles[0].name, self.roles[1].name, self.feeder.name, names,
            self.right[-1].name, [self._score_words(turn) for turn in TURNS],
            queries=f"load_queries {self.query.name}, {self.query_held.name}",
        )  # fmt: skip

    def _score_words(self, turn: tuple[int, ...]) -> list[str]:
        """Keys of the operations of `scores`."""
        each, words = self.stored.block // COLUMNS, []
        for place, group in enumerate(turn):
            words += [f"qk {n}" for n in range(each * group, each * (group + 1))]
            words.append(f"scale_scores {place}")
        words[0] += ", first"
        return [*words, f"qk {self.value_parts}"]

    # ---- scores -----------------------------------------------------------------------------

    def turn(self, tile: Tile) -> tuple[int, ...]:
        """The groups in the order in which scores have their columns: first those of the values
        that the same warpgroup has."""
        return TURNS[tile.offset % SLOTS]

    def _quotients(self, tile: Tile) -> list[Scratch]:
        first = tile.offset % SLOTS * GROUPS
        return self.rests[first : first + GROUPS]

    def scores(self, tile: Tile) -> None:
        """S = Q K^T, group by group, and then over the columns that have no scale."""
        each = self.stored.block // COLUMNS
        for place, group in enumerate(self.turn(tile)):
            for n in range(each * group, each * (group + 1)):
                pipeline = next(p for p in (*self.left, *self.right) if self.keys[n] in p.tiles)
                self._some_scores(tile, pipeline, [n], first=place == 0 and n == each * group)
            room = self._quotients(tile)[place]
            self._record(
                "scale_scores", tile, of=str(place), room=room,
                uses=(Value("S"), Value(room.name, tile)), defines=(Value("S"),),
            )  # fmt: skip
        for pipeline in self.last:
            numbers = [self.keys.index(t) for t in pipeline.tiles]
            self._some_scores(tile, pipeline, numbers, first=False)

    def _some_scores(
        self, tile: Tile, pipeline: Pipeline, numbers: list[int], *, first: bool
    ) -> None:
        self._record(
            "qk", tile, tiles_=[(n, self.keys[n]) for n in numbers], queries=self.queries,
            overwrites=first, of=" ".join(map(str, numbers)) + ", first" * first,
            uses=(Value(pipeline.name, tile), Value(self.query.name), Value(self.query_held.name)),
            defines=(Value("S"),), asynchronous=True,
        )  # fmt: skip

    def exponent(self, tile: Tile) -> None:
        """Compute P = exp2(c S - c M) in place of S, and row sums."""
        self._record("exponent", tile, weights=None, uses=(Value("S"), Value("alpha")),
                     p=(), defines=(Value("S"), Value("l")))  # fmt: skip

    def weigh_own(self, tile: Tile, which: int) -> None:
        """P times what is left of the scales of the first or the second group of this warpgroup's
        values, as operand A: registers have room for one beside P in fp32."""
        places: list[Any] = [None] * which
        self._weigh(tile, f"P {which}", *places, self.supply["p"])

    def weigh_both(self, tile: Tile) -> None:
        """The same of the right warpgroup for the other's values, to SMEM."""
        self._weigh(tile, "P right", None, None, self.p_right, self.p_right_2)

    def weigh_other(self, tile: Tile, which: int) -> None:
        """The same of the left one, one after another. The second P comes in place of the right
        one's first."""
        if which == 0:
            self._weigh(tile, "P left", None, None, self.p_left)
        else:
            self._weigh(tile, "P left 2", None, None, None, self.p_left_2, joins=True,
                        after=(Value("O 0"),))  # fmt: skip

    def _weigh(
        self, tile: Tile, of: str, *places: list[str] | Exchange | None,
        after: tuple[Value, ...] = (), **more: Any,
    ) -> None:  # fmt: skip
        """`places`: where P goes, by the turn of groups; None: nowhere."""
        rooms = self._quotients(tile)
        to = {n: place for n, place in enumerate(places) if place is not None}
        made = [
            Value(place.name, tile) if isinstance(place, Exchange) else Value("P")
            for place in to.values()
        ]
        self._record(
            "weigh", tile, rooms=rooms, to=to, of=of, defines=tuple(made),
            uses=(Value("S"), *(Value(room.name, tile) for room in rooms[min(to) :]), *after),
            **more,
        )  # fmt: skip

    def pv_group(
        self, tile: Tile, half: tuple[Pipeline, ...], which: int, room: Exchange | None = None
    ) -> None:
        """O += P V over the first or the second group of the columns of `half`. P: in registers, or
        in the other's `room`."""
        each, part = self.stored.block // COLUMNS, self.value_parts // 2
        group = which + (0 if half is self.left else GROUPS // 2)
        held = self.keys[each * group : each * (group + 1)]
        users = [p for p in half if set(p.tiles) & set(held)]
        first, wide = each * group % part * COLUMNS // 2, self.stored.block // 2
        source = Value(room.name, tile) if room else Value("P")
        self._record(
            "pv", tile, exchange=room, values=held, columns=self.stored.block,
            of=f"{room.name if room else 'P'}, {group}",
            o=self.supply["o"][first : first + wide], steps=TILE // 16, at_once=self.stored.block,
            uses=(source, *(Value(p.name, tile) for p in users)),
            defines=(Value("O"), Value(f"O {which}")), asynchronous=True,
        )  # fmt: skip

    def late_arrive(self, tile: Tile, exchange: Exchange) -> None:
        """As `Seesaw.late_arrive`, of both P."""
        rooms = (self.p_right, self.p_right_2)
        self._record("late_arrive", tile, template="empty",
                     defines=tuple(Value(room.name, tile) for room in rooms))  # fmt: skip

    def give_last(self, tile: Tile) -> None:
        """Give the columns back that are no values, where a P of the left warpgroup lay, or one for
        it."""
        for columns in self.last:
            release(columns, tile - SLOTS)

    # ---- the feeder -------------------------------------------------------------------------

    def _first(self, tile: Tile) -> Pipeline:
        """The columns that scores of `tile` begin with."""
        return (self.left, self.right)[tile.offset % SLOTS][0]

    def feed(self, pieces: tuple[Pipeline, ...], tile: Tile, room: int) -> None:
        for columns in (self.left[0], self.right[0]):
            if columns in pieces and columns is not self._first(tile):
                acquire(columns, tile)
        super().feed(pieces, tile, room)

    def publish(self, tile: Tile, *, when: bool = True) -> None:
        """Store which keys of `tile` count, and the quotients of their scales. `when`: here, or
        elsewhere."""
        if not when:
            return
        acquire(self._first(tile), tile)  # who gave it back has read the quotients before
        index = tile.offset % SLOTS
        rooms = [self.counts[index], *self._quotients(tile)]
        self._record("publish", tile, rooms=rooms, list=self._list(tile), index=index,
                     defines=tuple(Value(room.name, tile) for room in rooms))  # fmt: skip
